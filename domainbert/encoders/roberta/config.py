"""Architecture of a RoBERTa encoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from domainbert.base.fields import Dropout, Length
from domainbert.encoders.config import PostNormConfig, require, standard_classes

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class RobertaConfig(PostNormConfig):
    """A RoBERTa encoder (Liu et al. 2019): BERT with positions that are counted from the padding's id on.

    The defaults come from transformers; roberta-base has 514 positions, 1 token type and an epsilon of 1e-5
    (`encoder: roberta-base`).

    >>> from domainbert import RobertaConfig
    >>> RobertaConfig(max_position_embeddings=514).max_length
    512
    """

    model_type = "roberta"
    supports_causal: ClassVar[bool] = True
    architectures = standard_classes("Roberta")
    special_ids: ClassVar[Mapping[str, int]] = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}

    max_position_embeddings: Length = 512
    """Rows of the position table: the longest sequence plus the padding's id (usually 1) plus 1."""

    classifier_dropout: Dropout | None = None
    """Dropout in a task's head; None is `hidden_dropout_prob`."""

    @classmethod
    @override
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Return the configuration in a `config.json`. Positions are counted from the padding's id on: raises
        `DomainbertError` if fewer than three positions would be left after this id."""
        pad, positions = fields.get("pad_token_id", 1), fields.get("max_position_embeddings", 512)
        is_id = type(pad) is int and pad >= 0
        require(
            is_id and (type(positions) is not int or pad + 3 < positions),  # another type is rejected later
            where="pad_token_id",
            found=f"{pad!r:.80}",
            expected="an integer below max_position_embeddings - 3, because positions are counted from this "
            f"id on (max_position_embeddings: {positions!r:.80})",
        )
        return super().from_json(fields)

    @property
    def position_offset(self) -> int:
        """Row after the padding's row; 2 for a new configuration, because padding then has id 1."""
        return self.pad_token_id + 1

    @property
    def num_token_types(self) -> int:
        """Always 0: all tokens use the first row of the table, as in RoBERTa's pretraining."""
        return 0
