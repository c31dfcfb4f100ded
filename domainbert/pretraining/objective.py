"""Base class of pretraining objectives.

An objective is a folder with `config.py`, a dataclass that inherits `ObjectiveConfig` and can be used in a YAML, and
`objective.py`, with an `Objective`, called `MaskedLMObjective` for `MaskedLM`. It has no reference to a model, so that
worker processes copy it without weights: models are arguments of its methods.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from domainbert.data.packing import Ints, PackedRows, RowPlan, concatenated_ranges, fill_rows
from domainbert.data.splits import PreparedCorpus, PreparedSplit
from domainbert.data.types import Batch
from domainbert.encoders.config import EncoderConfig
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed
from domainbert.pretraining.config import ObjectiveConfig
from domainbert.pretraining.start import InitialModels
from domainbert.tokenization.load import DomainTokenizer
from domainbert.training.throughput import flops_per_token

MODEL = "model"
"""Name of the model saved in the stage's folder; other models are saved in subfolders with their names."""

Models = Mapping[str, EncoderWithHead]
Config = TypeVar("Config", bound=ObjectiveConfig)


class Key(NamedTuple):
    """Key of all random numbers for some rows."""

    seed: int  # of the run; validation uses a separate seed
    step: int  # optimiser step, from 0; 0 in validation
    epochs: Ints  # (R,) pass over the corpus of each row
    rows: Ints  # (R,) row numbers in the corpus
    progress: float = 0.0  # share of the run's optimiser steps completed before this one, in [0, 1); 0 in validation


class CorpusRows(NamedTuple):
    """Original rows of a corpus."""

    packed: PackedRows
    starts_word: NDArray[np.bool_]  # (R, S) whether each token begins a word; undefined for special tokens


@dataclass(frozen=True)
class Term:
    """A term of the training loss: its weight, and the name in `counts` of the divisor of its sum."""

    weight: float = 1.0
    count: str = "num_targets"


@dataclass(frozen=True)
class Built:
    """A model to train, with the metadata of its folder: architecture, kind of head, labels."""

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
    """A validation text."""

    name: str  # empty for the validation split of the corpus
    tokens_per_character: float
    baselines: Mapping[str, float]  # from `Objective.baselines`; empty for a held-out text
    is_language: bool = False  # whether it is the part of the validation split in one language


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
        usage: loading code for the model card.
        pipeline_tag: pipeline tag of the Hugging Face hub, if any.
    """

    terms: Mapping[str, Term] = MappingProxyType({"loss": Term()})
    inputs: Sequence[str] = (*Packed._fields, "positions", "targets")
    measured: Sequence[str] = ("loss", "num_targets")
    head: str
    labels: Sequence[str] = ()
    summary: str = "An encoder pretrained with domainbert."
    usage: str = "from transformers import AutoModel\n\nmodel = AutoModel.from_pretrained(folder)"
    pipeline_tag: str | None = None

    def __init__(self, config: Config, tokenizer: DomainTokenizer) -> None:
        self.config, self.tokenizer = config, tokenizer

    def for_training(self, corpus: PreparedCorpus) -> Objective[Config]:
        """Return the objective for training on a corpus; override it if the objective depends on the corpus."""
        return self

    def for_validation(self) -> Objective[Config]:
        """Return the objective for validation, independent of training settings, so that runs are comparable."""
        return self

    def layout_rows(self, split: PreparedSplit, length: int) -> RowPlan:
        """Plan rows of `length` tokens: assign pieces of documents to rows."""
        return split.row_plan(self.tokenizer, length)

    def pieces_read(self, plan: RowPlan, key: Key) -> Ints:
        """Indices (pieces,) of the document pieces read in the rows of a key."""
        return plan.pieces_of(key.rows)

    def read(self, split: PreparedSplit, plan: RowPlan, key: Key) -> CorpusRows:
        """Read the rows of a key, as laid out by the plan."""
        pieces = plan.pieces_of(key.rows)
        starts, lengths = plan.starts[pieces], plan.lengths[pieces]
        bounds = list(zip(starts.tolist(), (starts + lengths).tolist(), strict=True))
        texts = iter([split.take(*bound) for bound in bounds])
        counts = (plan.row_offsets[key.rows + 1] - plan.row_offsets[key.rows]).tolist()
        rows = [list(itertools.islice(texts, count)) for count in counts]
        packed = fill_rows(rows, plan.row_length, self.tokenizer.template, self.tokenizer.pad_id)
        starts_word = np.zeros(packed.input_ids.size, dtype=np.bool_)
        positions = concatenated_ranges(packed.first_positions + 1, lengths)
        starts_word[positions] = np.concatenate([split.take_starts(*bound) for bound in bounds])
        return CorpusRows(packed, starts_word.reshape(packed.input_ids.shape))

    @abstractmethod
    def corrupt(self, rows: CorpusRows, key: Key) -> Batch:
        """Build a batch: `input_ids` (R, S), `positions` (N,) in the flattened tokens for a head with dropout, and
        further arrays that the losses need."""

    def notes(self, rows: CorpusRows, batch: Batch) -> list[list[str]]:
        """Notes (R, S) on the tokens of a batch for `--show`; by default, the original token of each replaced token."""
        written, read = rows.packed.input_ids, np.asarray(batch["input_ids"])
        notes = [[""] * written.shape[1] for _ in written]
        for row, column in np.argwhere(written != read).tolist():
            original = self.tokenizer.tokens[written[row, column]]
            notes[row][column] = f"replaces {self.tokenizer.pieces.readable(original)}"
        return notes

    def heaviest_step(self, steps: range) -> int:
        """The optimiser step whose batch needs the most memory; by default the first."""
        return steps[0]

    @abstractmethod
    def counts(self, plan: RowPlan, key: Key) -> dict[str, int]:
        """Divisors of the losses, by name, for the rows of a key, which form a *global* batch."""

    def build(self, start: InitialModels) -> dict[str, Built]:
        """Build the models: `MODEL`, to be fine-tuned later, and others trained with it, which may share parameters.

        By default one model with the attributes `head` and `labels`.
        """
        return {MODEL: Built(start.model(self.head, self.labels), start.config, self.head, self.labels)}

    def saved(self, built: Mapping[str, Built]) -> Mapping[str, Built]:
        """Models to save after training; by default all."""
        return built

    def card_texts(self, name: str) -> CardTexts:
        """Texts of the model card of the model with this name; by default the same for all models."""
        return CardTexts(self.summary, self.usage, self.pipeline_tag)

    def losses(self, models: Models, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute the `terms`, scalars summed over a micro-batch; by default with `measure`. Steps may omit terms."""
        measured = self.measure(models, batch)
        return {name: measured[name] for name in self.terms}

    @abstractmethod
    def measure(self, models: Models, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute sums of losses and their divisors, with the keys `measured`, which validation adds over batches."""

    def report(self, sums: Mapping[str, Tensor], text: ValidationText) -> dict[str, float]:
        """Compute the validation metrics, including `loss`, from the sums over all batches.

        By default the weighted sum of the `terms`, each divided by its count, which `measure` must return.
        """
        return {"loss": sum(term.weight * float(sums[name] / sums[term.count]) for name, term in self.terms.items())}

    def baselines(self, corpus: PreparedCorpus) -> dict[str, float]:
        """Reference losses for the validation loss, by name; by default none."""
        return {}

    def judge(self, corpus: PreparedCorpus, validation: Mapping[str, float]) -> tuple[dict[str, Any], list[str]]:
        """Return facts to store with the last validation's metrics, and warnings if the model has not learned.

        By default neither.
        """
        return {}, []

    def flops_per_token(self, models: Models, length: int) -> float:
        """Floating-point operations per token of a training step with rows of `length`.

        By default every model reads the rows, and its head reads every token.
        """
        return sum(flops_per_token(model, length, predicted_share=1.0) for model in models.values())

    def card_facts(self, validation: Mapping[str, float]) -> dict[str, str]:
        """Rows of the model card with results of the last validation; by default the loss."""
        return {"validation loss": f"{validation['loss']:.4f}"}
