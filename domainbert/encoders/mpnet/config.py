"""Architecture of an MPNet encoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from domainbert.base.fields import Length
from domainbert.encoders.config import PostNormConfig, require, standard_classes

if TYPE_CHECKING:
    from typing_extensions import Self

PAD_ID = 1
"""Id of the padding, from which positions are counted; transformers ignores the value in `config.json`."""

NUM_BUCKETS = 32
"""Number of buckets of relative positions; transformers ignores the value in `config.json`."""


@dataclass(frozen=True)
class MPNetConfig(PostNormConfig):
    """An MPNet encoder (Song et al. 2020): BERT without token types, with a relative position bias in attention.

    The defaults come from transformers; mpnet-base has 514 positions and an epsilon of 1e-5 (`encoder: mpnet-base`).

    >>> from domainbert import MPNetConfig
    >>> MPNetConfig(num_hidden_layers=6).model_type
    'mpnet'
    """

    model_type = "mpnet"
    architectures = standard_classes("MPNet")
    special_ids: ClassVar[Mapping[str, int]] = {"pad_token_id": PAD_ID, "bos_token_id": 0, "eos_token_id": 2}

    max_position_embeddings: Length = 512
    """Rows of the position table: the longest sequence plus 2."""

    type_vocab_size: ClassVar[int] = 0  # type: ignore[misc]  # a class variable, so no field: there are no token types

    @classmethod
    @override
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Return the configuration in a `config.json`. Raises `DomainbertError` for another padding id or number of
        buckets than `PAD_ID` and `NUM_BUCKETS`."""
        for name, fixed in {"pad_token_id": PAD_ID, "relative_attention_num_buckets": NUM_BUCKETS}.items():
            value = fields.get(name, fixed)
            require(value == fixed, where=name, found=f"{value!r:.80}", hint=f"only {fixed} is supported for MPNet")
        return super().from_json(fields)

    @property
    def position_offset(self) -> int:
        """Row after the padding's row."""
        return PAD_ID + 1
