"""Start of a pretraining: random weights, or those of a model folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from domainbert.encoders.config import EncoderConfig, VocabularyFacts
from domainbert.encoders.families import build_model
from domainbert.encoders.heads import EncoderWithHead
from domainbert.models.folder import load_model, open_model
from domainbert.models.static_embeddings import put_in
from domainbert.tokenization.load import DomainTokenizer


@dataclass(frozen=True)
class Start:
    """An architecture with random weights, or the weights of a model folder."""

    tokenizer: DomainTokenizer  # of the corpus
    encoder: EncoderConfig | None  # the architecture; None where a folder is given
    folder: Path | None  # its models stand in it and in folders below it
    dropout: float | None = None  # overrides the encoder's dropout while it is trained
    static_embeddings: Tensor | None = None  # (vocab_size, D), where random word embeddings are to start from them

    @property
    def config(self) -> EncoderConfig:
        """The architecture to save, whose dropout is not overridden."""
        if self.encoder is not None:
            return self.encoder
        assert self.folder is not None
        return open_model(self.folder).config

    def model(self, head: str, labels: Sequence[str] = ()) -> EncoderWithHead:
        """The encoder with a head of some kind; the folder's head where it has that one."""
        if self.folder is None:
            return self.random(self.config, head, len(labels))
        model, _, made = load_model(self.folder, head, labels, self.dropout)
        if made:
            print(f"{self.folder}: no weights for the head; made {', '.join(made)}")
        return model

    def random(self, config: EncoderConfig, head: str, num_labels: int = 0) -> EncoderWithHead:
        """An encoder of some architecture and its head, both with random weights, word embeddings perhaps excepted."""
        vocabulary = VocabularyFacts(self.tokenizer.vocab_size, self.tokenizer.pad_id)
        model = build_model(config.as_trained(self.dropout), vocabulary, head, num_labels)
        if self.static_embeddings is not None:
            put_in(model.encoder.input_embeddings.weight, self.static_embeddings)
        return model
