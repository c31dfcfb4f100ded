"""The protocol that every pretraining objective follows.

An objective is a folder with `config.py`, a dataclass that inherits `ObjectiveConfig` and may be named in a YAML, and
`objective.py` with what its `build` gives. It holds no model: those that it builds are handed to its methods, so that
the processes which make batches take a copy of it and no weights.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from domainbert.data.packing import Ints, PackedRows, RowPlan, fill_rows, stretches
from domainbert.data.splits import PreparedCorpus, PreparedSplit
from domainbert.data.types import Batch
from domainbert.encoders.config import EncoderConfig
from domainbert.encoders.heads import EncoderWithHead
from domainbert.pretraining.config import ObjectiveConfig
from domainbert.pretraining.start import Start
from domainbert.tokenization.load import DomainTokenizer

MODEL = "model"
"""The model that stands at the top of the stage's folder; another one stands in the folder of its name."""

Models = Mapping[str, EncoderWithHead]
Config = TypeVar("Config", bound=ObjectiveConfig)


class Key(NamedTuple):
    """Key of everything random in some rows."""

    seed: int  # of the run; validation has one of its own
    step: int  # the optimiser step, from 0; 0 in validation
    epochs: Ints  # (R,) the pass over the corpus that each row belongs to
    rows: Ints  # (R,) the rows' numbers in the corpus
    progress: float = 0.0  # share of the run's optimiser steps made before this one, in [0, 1); 0 in validation


class CorpusRows(NamedTuple):
    """Rows of a corpus as they were written."""

    packed: PackedRows
    starts_word: NDArray[np.bool_]  # (R, S) whether each token begins a word; of special tokens it says nothing


@dataclass(frozen=True)
class Term:
    """A loss in the sum that is trained: its factor, and the count in `counts` that its sum is divided by."""

    weight: float = 1.0
    count: str = "num_targets"


@dataclass(frozen=True)
class Built:
    """A model to train, and what its folder says of it: the architecture, the kind of head, and its labels."""

    model: EncoderWithHead
    config: EncoderConfig
    head: str
    labels: Sequence[str] = ()


@dataclass(frozen=True)
class Presented:
    """Words for the card of a model: its summary, the code that loads it, and its task in the words of the Hugging Face
    hub, if that has a word for it."""

    summary: str
    usage: str
    pipeline_tag: str | None = None


@dataclass(frozen=True)
class ValidationText:
    """A text that is validated: its name, which is empty for the corpus' own validation split, its tokens per
    character, and the losses to compare with, from `Objective.baselines`; a held-out text has none. A language is a
    part of the corpus' own text."""

    name: str
    tokens_per_character: float
    baselines: Mapping[str, float]
    is_language: bool = False


class Objective(ABC, Generic[Config]):
    """Makes batches of rows of a corpus, prepared with the tokenizer, and losses and metrics of models on them."""

    terms: Mapping[str, Term]  # the losses whose weighted sum is trained, by name
    inputs: Sequence[str]  # the entries of a batch that the losses read; those that a batch lacks are left out
    measured: Sequence[str]  # names of what `measure` gives
    summary: str  # what the model is, for its card
    usage: str  # how it is loaded, for its card
    pipeline_tag: str | None = None  # what it does in the words of the Hugging Face hub, if that has a word for it

    def __init__(self, config: Config, tokenizer: DomainTokenizer) -> None:
        self.config, self.tokenizer = config, tokenizer

    def for_training(self, corpus: PreparedCorpus) -> Objective[Config]:
        """The objective that is trained on a corpus: itself, unless it has to know what stands there."""
        return self

    def for_validation(self) -> Objective[Config]:
        """The objective that validation uses, whatever is trained, so that runs compare."""
        return self

    def lay_out(self, split: PreparedSplit, length: int) -> RowPlan:
        """Plan of the rows of `length` tokens: which pieces of the documents stand in each."""
        return split.row_plan(self.tokenizer, length)

    def pieces_read(self, plan: RowPlan, key: Key) -> Ints:
        """The pieces of documents that are read in the rows of a key: (pieces,)."""
        return plan.pieces_of(key.rows)

    def read(self, split: PreparedSplit, plan: RowPlan, key: Key) -> CorpusRows:
        """The rows of a key, as the plan lays them out."""
        pieces = plan.pieces_of(key.rows)
        starts, lengths = plan.starts[pieces], plan.lengths[pieces]
        bounds = list(zip(starts.tolist(), (starts + lengths).tolist(), strict=True))
        texts = iter([split.take(*bound) for bound in bounds])
        counts = (plan.row_offsets[key.rows + 1] - plan.row_offsets[key.rows]).tolist()
        rows = [list(itertools.islice(texts, count)) for count in counts]
        packed = fill_rows(rows, plan.row_length, self.tokenizer.template, self.tokenizer.pad_id)
        starts_word = np.zeros(packed.input_ids.size, dtype=np.bool_)
        places = stretches(packed.first_positions + 1, lengths)
        starts_word[places] = np.concatenate([split.take_starts(*bound) for bound in bounds])
        return CorpusRows(packed, starts_word.reshape(packed.input_ids.shape))

    @abstractmethod
    def corrupt(self, rows: CorpusRows, key: Key) -> Batch:
        """Inputs of the models, made of rows: `input_ids` (R, S), `positions` (N,) that a head with dropout reads, in
        the flattened tokens, and whatever else the losses need, as arrays."""

    def notes(self, rows: CorpusRows, batch: Batch) -> list[list[str]]:
        """For `--show`: a note on each token (R, S) of rows and of what `corrupt` made of them, empty where there is
        none. By default it is the original token, where another one is read."""
        written, read = rows.packed.input_ids, np.asarray(batch["input_ids"])
        notes = [[""] * written.shape[1] for _ in written]
        for row, place in np.argwhere(written != read).tolist():
            notes[row][place] = f"stands for {self.tokenizer.pieces.shown(self.tokenizer.tokens[written[row, place]])}"
        return notes

    def heaviest_step(self, steps: range) -> int:
        """The one of some optimiser steps whose batch needs the most memory: the first, unless told."""
        return steps[0]

    @abstractmethod
    def counts(self, plan: RowPlan, key: Key) -> dict[str, int]:
        """Counts that the losses are divided by, by name: those of the rows of a key, which are a *global* batch."""

    @abstractmethod
    def build(self, start: Start) -> dict[str, Built]:
        """The models: `MODEL`, which is fine-tuned later, and any that learn with it and may share its parameters."""

    def saved(self, built: Mapping[str, Built]) -> Mapping[str, Built]:
        """The models that get a folder once they are trained; all that were built, unless told."""
        return built

    def presented(self, name: str) -> Presented:
        """Words for the card of the model with a name; those of `MODEL`, unless told."""
        return Presented(self.summary, self.usage, self.pipeline_tag)

    @abstractmethod
    def losses(self, models: Models, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The `terms`, each summed over a micro-batch. Scalars. Steps may differ in the terms that they have."""

    @abstractmethod
    def measure(self, models: Models, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Sums that validation adds up over its batches, `measured` by name: losses, and what they are divided by."""

    @abstractmethod
    def report(self, sums: Mapping[str, Tensor], text: ValidationText) -> dict[str, float]:
        """The metrics of a validation, `loss` among them, from the sums over all batches."""

    @abstractmethod
    def baselines(self, corpus: PreparedCorpus) -> dict[str, float]:
        """Losses to compare a validation loss with, by name."""

    @abstractmethod
    def judge(self, corpus: PreparedCorpus, validation: Mapping[str, float]) -> tuple[dict[str, Any], list[str]]:
        """Facts that stand beside the last validation's metrics, and warnings if the training came to nothing."""

    @abstractmethod
    def flops_per_token(self, models: Models, length: int) -> float:
        """Floating-point operations of a training step for a token in rows of `length`."""

    @abstractmethod
    def card_facts(self, validation: Mapping[str, float]) -> dict[str, str]:
        """Rows of the model card that tell the last validation."""
