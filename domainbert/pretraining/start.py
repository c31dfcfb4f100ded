"""Initial models of a pretraining: random weights, or the weights of a model folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from domainbert.encoders.config import EncoderConfig, VocabularyFacts
from domainbert.encoders.families import build_model
from domainbert.encoders.heads import EncoderWithHead
from domainbert.models.folder import load_model, open_model
from domainbert.models.static_embeddings import initialise_table
from domainbert.tokenization.load import DomainTokenizer


@dataclass(frozen=True)
class InitialModels:
    """Source of the initial models: an architecture with random weights, or a model folder."""

    tokenizer: DomainTokenizer  # of the corpus
    encoder: EncoderConfig | None  # the architecture; None if a folder is given
    folder: Path | None  # contains the main model, and further models in subfolders
    dropout: float | None = None  # overrides the encoder's dropout during training
    static_embeddings: Tensor | None = None  # (vocab_size, D), initial word embeddings of a new encoder

    @property
    def config(self) -> EncoderConfig:
        """Architecture to save, without the dropout override."""
        if self.encoder is not None:
            return self.encoder
        assert self.folder is not None
        return open_model(self.folder).config

    def model(self, head: str, labels: Sequence[str] = ()) -> EncoderWithHead:
        """Return an encoder with a head of kind `head`, with the weights of the folder if there is one.

        Weights of the head that are missing in the folder are random; a message lists them.
        """
        if self.folder is None:
            return self.random_model(self.config, head, len(labels))
        model, _, new_weights = load_model(self.folder, head, labels, self.dropout)
        if new_weights:
            print(f"{self.folder}: no weights for the head; initialised at random: {', '.join(new_weights)}")
        return model

    def random_model(self, config: EncoderConfig, head: str, num_labels: int = 0) -> EncoderWithHead:
        """Return an encoder with a head of kind `head` and random weights, except the `static_embeddings` if given."""
        vocabulary = VocabularyFacts(self.tokenizer.vocab_size, self.tokenizer.pad_id)
        model = build_model(config.with_dropout(self.dropout), vocabulary, head, num_labels)
        if self.static_embeddings is not None:
            initialise_table(model.encoder.input_embeddings.weight, self.static_embeddings)
        return model
