"""Base class of pretraining objectives.

An objective is a folder with `config.py`, a dataclass that inherits `ObjectiveConfig` and can be used in a YAML, and
`objective.py`, with an `Objective`, called `MaskedLMObjective` for `MaskedLM`. It has no reference to a model, so that
worker processes copy it without weights: models are arguments of its methods.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from domainbert.data.packing import Batch, Ints, PackedRows, RowPlan, concatenated_ranges, fill_rows
from domainbert.data.splits import PreparedCorpus, PreparedSplit
from domainbert.encoders.config import EncoderConfig, VocabularyFacts
from domainbert.encoders.families import build_model
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed
from domainbert.models.card import load_code
from domainbert.models.folder import open_model
from domainbert.models.loading import load_model
from domainbert.models.static_embeddings import initialise_table
from domainbert.pretraining.config import ObjectiveConfig
from domainbert.tokenization.load import DomainTokenizer
from domainbert.training.throughput import flops_per_token


@dataclass(frozen=True)
class InitialModels:
    """Source of the initial models: an architecture with random weights, or a model folder."""

    tokenizer: DomainTokenizer  # of the corpus
    encoder: EncoderConfig | None  # the architecture; None if a folder is given
    folder: Path | None  # contains the main model, and further models in subfolders
    dropout: float | None = None  # overrides the encoder's dropout during training
    static_embeddings: Tensor | None = None  # (vocab_size, D), initial word embeddings of a new encoder
    architectures: Mapping[str, EncoderConfig] = field(
        default_factory=dict
    )  # of further models, by name, in a checkpoint

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


MODEL = "model"
"""Name of the model saved in the stage's folder; other models are saved in subfolders with their names."""

Models = Mapping[str, EncoderWithHead]
Config = TypeVar("Config", bound=ObjectiveConfig)


class Key(NamedTuple):
    """Identifies some rows of a step, and all random numbers that are drawn for them."""

    seed: int  # of the run; validation uses a separate seed
    step: int  # optimiser step, from 0; 0 in validation
    epochs: Ints  # (R,) pass over the corpus of each row
    rows: Ints  # (R,) indices of the rows in the split
    progress: float = 0.0  # share of the run's optimiser steps completed before this one, in [0, 1); 0 in validation


class CorpusRows(NamedTuple):
    """Rows of a corpus before masking."""

    packed: PackedRows
    starts_word: NDArray[np.bool_]  # (R, S) whether each token begins a word; undefined for special tokens


@dataclass(frozen=True)
class Term:
    """A term of the training loss: its weight, and the key in `Objective.counts` of the number that divides its sum."""

    weight: float = 1.0
    count: str = "num_targets"


@dataclass(frozen=True)
class BuiltModel:
    """A model to train, with the metadata that is saved with it: architecture, kind of head, labels."""

    model: EncoderWithHead
    config: EncoderConfig
    head: str
    labels: Sequence[str] = ()


@dataclass(frozen=True)
class CardTexts:
    """Texts of a model card: summary, code that loads the model, and pipeline tag of the Hugging Face hub, if any."""

    summary: str
    usage: str
    pipeline_tag: str | None = None


@dataclass(frozen=True)
class ValidationText:
    """A text whose metrics are logged: the validation split, the part of it in one language, or a held-out text."""

    name: str  # empty for the validation split of the corpus
    tokens_per_character: float
    baselines: Mapping[str, float]  # from `Objective.baselines`; empty for a held-out text
    is_language: bool = False  # whether it is the part of the validation split in one language


class RowSources:
    """Texts that validation rows belong to: a value that Lightning neither moves to a device nor changes."""

    def __init__(self, texts: Sequence[ValidationText]) -> None:
        self.texts = texts


class Objective(ABC, Generic[Config]):
    """Builds batches from rows of a corpus prepared with the tokenizer, and computes losses and metrics.

    A subclass defines `head` (or `build`), `corrupt`, `counts` and `measure`; the other members have defaults.

    Attributes:
        terms: terms of the training loss, by name; by default `loss`, divided by the count `num_targets`.
        inputs: batch entries that the losses read; entries missing in a batch are skipped.
        measured: keys of the result of `measure`.
        head: kind of head of the model that `build` builds.
        labels: names of the outputs of this head, if it has labels.
        summary: description for the model card.
        usage: loading code for the model card, which runs in the model folder.
        pipeline_tag: pipeline tag of the Hugging Face hub, if any.
    """

    terms: Mapping[str, Term] = MappingProxyType({"loss": Term()})
    inputs: Sequence[str] = (*Packed._fields, "positions", "targets")
    measured: Sequence[str] = ("loss", "num_targets")
    head: str
    labels: Sequence[str] = ()
    summary: str = "An encoder pretrained with domainbert."
    usage: str = load_code()
    pipeline_tag: str | None = None

    def __init__(self, config: Config, tokenizer: DomainTokenizer) -> None:
        self.config, self.tokenizer = config, tokenizer

    def for_validation(self) -> Objective[Config]:
        """Return the objective for validation, independent of training settings, so that runs are comparable."""
        return self

    def layout_rows(self, split: PreparedSplit, length: int) -> RowPlan:
        """Return a plan of rows of `length` tokens, which assigns pieces of documents to rows."""
        return split.row_plan(self.tokenizer, length)

    def pieces_read(self, plan: RowPlan, key: Key) -> Ints:
        """Return the indices (pieces,) of the pieces of documents that are in the rows of a key."""
        return plan.pieces_of(key.rows)

    def read(self, split: PreparedSplit, plan: RowPlan, key: Key) -> CorpusRows:
        """Return the rows of a key, as laid out by the plan, before masking."""
        # token ids: texts of all rows, then grouped by row
        pieces = plan.pieces_of(key.rows)
        starts, lengths = plan.starts[pieces], plan.lengths[pieces]
        bounds = list(zip(starts.tolist(), (starts + lengths).tolist(), strict=True))
        texts = iter([split.take(*bound) for bound in bounds])
        counts = (plan.row_offsets[key.rows + 1] - plan.row_offsets[key.rows]).tolist()
        rows = [list(itertools.islice(texts, count)) for count in counts]
        packed = fill_rows(rows, plan.row_length, self.tokenizer.template, self.tokenizer.pad_id)
        # word starts, at the same positions of the flattened rows
        starts_word = np.zeros(packed.input_ids.size, dtype=np.bool_)
        positions = concatenated_ranges(packed.first_positions + 1, lengths)  # + 1: after [CLS]
        starts_word[positions] = np.concatenate([split.take_starts(*bound) for bound in bounds])
        return CorpusRows(packed, starts_word.reshape(packed.input_ids.shape))

    @abstractmethod
    def corrupt(self, rows: CorpusRows, key: Key) -> Batch:
        """Mask rows and return a batch: `input_ids` (R, S), `positions` (N,) in the flattened tokens that a head with
        dropout reads, and further arrays that the losses need."""

    def notes(self, rows: CorpusRows, batch: Batch) -> list[list[str]]:
        """Return a note for each token of a batch (R, S), "" for none, which `--show` prints.

        By default, a token that differs from the original one has the note "replaces X".
        """
        original_ids, input_ids = rows.packed.input_ids, np.asarray(batch["input_ids"])
        notes = [[""] * original_ids.shape[1] for _ in original_ids]
        for row, column in np.argwhere(original_ids != input_ids).tolist():
            original = self.tokenizer.tokens[original_ids[row, column]]
            notes[row][column] = f"replaces {self.tokenizer.pieces.readable(original)}"
        return notes

    def heaviest_step(self, steps: range) -> int:
        """Return the optimiser step whose batch needs the most memory; by default the first."""
        return steps[0]

    @abstractmethod
    def counts(self, plan: RowPlan, key: Key) -> dict[str, int]:
        """Return the divisors of the losses, by name, such as `num_targets`, for the rows of a *global* batch."""

    def build(self, start: InitialModels) -> dict[str, BuiltModel]:
        """Return the models by name: `MODEL`, to be fine-tuned later, and others, which may share its weights.

        By default one model with the attributes `head` and `labels`.
        """
        return {MODEL: BuiltModel(start.model(self.head, self.labels), start.config, self.head, self.labels)}

    def saved(self, built: Mapping[str, BuiltModel]) -> Mapping[str, BuiltModel]:
        """Return the models to save; by default all. `built` may be trained further and must not change."""
        return built

    def card_texts(self, name: str) -> CardTexts:
        """Return the texts for the card of the model with this name; by default the same for all models."""
        return CardTexts(self.summary, self.usage, self.pipeline_tag)

    def losses(self, models: Models, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the `terms`, scalars summed over a micro-batch, by default from `measure`; a step may omit terms."""
        measured = self.measure(models, batch)
        return {name: measured[name] for name in self.terms}

    @abstractmethod
    def measure(self, models: Models, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the sums over a batch that metrics need, such as losses and their divisors, under the keys `measured`.

        Validation adds them over all batches for `report`.
        """

    def report(self, sums: Mapping[str, Tensor], text: ValidationText) -> dict[str, float]:
        """Return the validation metrics by name, including `loss`, from the sums over all batches.

        By default the weighted sum of the `terms`, each divided by its count, which `measure` must return.
        """
        return {"loss": sum(term.weight * float(sums[name] / sums[term.count]) for name, term in self.terms.items())}

    def baselines(self, corpus: PreparedCorpus) -> dict[str, float]:
        """Return losses to compare the validation loss with, by name, such as `unigram_entropy`; by default none."""
        return {}

    def judge(self, corpus: PreparedCorpus, validation: Mapping[str, float]) -> tuple[dict[str, Any], list[str]]:
        """Return facts to store with the metrics of the last validation, and warnings if the model has not learned.

        By default both are empty.
        """
        return {}, []

    def flops_per_token(self, models: Models, length: int) -> float:
        """Return the floating-point operations per token of a training step with rows of `length` tokens.

        By default every model reads the rows, and its head reads every token.
        """
        return sum(flops_per_token(model, length, predicted_share=1.0) for model in models.values())

    def card_facts(self, validation: Mapping[str, float]) -> dict[str, str]:
        """Return results of the last validation for the model card, by description; by default the loss."""
        return {"validation loss": f"{validation['loss']:.4f}"}
