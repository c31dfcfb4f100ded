"""A prepared corpus as a LightningDataModule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from domainbert.base.choices import as_plain
from domainbert.base.errors import DomainbertError
from domainbert.data.batches import Share
from domainbert.data.examples import TextBatches
from domainbert.data.packing import Batch
from domainbert.data.prepared import open_prepared
from domainbert.data.splits import PreparedCorpus
from domainbert.pretraining.batches import PackedRowsReader, ValidationRows, validation_reader
from domainbert.pretraining.config import ObjectiveConfig
from domainbert.pretraining.objective import Key, Objective, RowSources, ValidationText
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.pretraining.phases import PhasedRows, RowPhase, phase_of, row_phases
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from domainbert.training.config import CorpusDataSettings
from domainbert.training.data_module import Batches, TrainingData
from domainbert.training.hparams import read_argument
from domainbert.training.length_phases import check_phases, phases_of
from domainbert.training.steps import phases_of_training

PreparedInput = str | Path | list[str | Path] | PreparedCorpus
"""A prepared corpus: a folder, several folders read as one corpus, or an open corpus."""


class PretrainingData(TrainingData):
    """Packed rows of a prepared corpus, for `Pretraining` and `Distillation`.

        data = PretrainingData("runs/prepared", max_length=128, batch_size=256)

    >>> from domainbert import PretrainingData
    >>> PretrainingData("runs/prepared", max_length=64).row_length
    64

    A row holds several documents, or parts of long documents; attention never crosses document boundaries. A batch has
    `input_ids`, `position_ids` and `segment_ids` (rows, length), `positions` (N,) in the flattened tokens, and the
    targets of the objective, such as `targets` (N,). `num_targets` counts the targets of the global batch. Batches for
    validation and test have `sources`, the texts that they belong to.

    Args:
        prepared: folder that `prepare` wrote, or several with the same tokenizer, read as one corpus.
        objective: masks the rows, and sets the targets; the same as of the module. `Distillation` needs masked LM.
        held_out: further prepared folders by name, whose validation splits are also evaluated.
        test: prepared folder whose validation split `trainer.test` reads.
        predict: texts for which `trainer.predict` returns vectors, see `RowsModule.predict_step`.
        seed: random seed of order and masks.
        settings: all settings; or single settings by keyword, see `CorpusDataSettings`.
    """

    def __init__(
        self,
        prepared: PreparedInput,
        objective: ObjectiveConfig = MaskedLM(),
        *,
        held_out: Mapping[str, str | Path] | None = None,
        test: str | Path | None = None,
        predict: Sequence[str] | None = None,
        seed: int = 0,
        settings: CorpusDataSettings | None = None,
        **changes: Any,
    ) -> None:
        settings = CorpusDataSettings.of(settings, **changes)
        super().__init__(settings.batch_size, settings.num_workers)
        self.objective_config: ObjectiveConfig = read_argument("objective", ObjectiveConfig, objective)
        self.phases, self.seed, self.cache = phases_of(settings.max_length), seed, settings.cache
        check_phases(self.phases, "max_length")
        _check_texts(predict)
        self.prepared, self.held_out, self.test, self.predict = prepared, dict(held_out or {}), test, predict
        self._planned: dict[tuple[int, int, int], list[RowPhase]] = {}
        # an open corpus, texts and the cache of this machine are not saved
        saved: dict[str, Any] = {} if isinstance(prepared, PreparedCorpus) else {"prepared": prepared}
        saved |= {"objective": self.objective_config, "held_out": held_out, "test": test, "seed": seed}
        plain = as_plain({**saved, **vars(replace(settings, cache=None))})
        # not logged: some names are also arguments of the module
        self.save_hyperparameters(plain, logger=False, ignore=["predict"])

    @property
    def row_length(self) -> int:
        """Tokens of a row in the last phase, and in validation."""
        return self.phases[-1].length

    @cached_property
    def corpus(self) -> PreparedCorpus:
        """The open corpus."""
        return self._open(self.prepared)

    @cached_property
    def tokenizer(self) -> DomainTokenizer:
        """The tokenizer of the corpus."""
        return load_tokenizer(self.corpus.tokenizer_folder)

    @cached_property
    def objective(self) -> Objective[Any]:
        """The objective, which masks the rows."""
        objective: Objective[Any] = self.objective_config.build(self.tokenizer)
        return objective

    def setup(self, stage: str) -> None:
        """Open the corpus, and the texts of a stage of Lightning.

        Raises:
            DomainbertError: invalid corpus; a missing set; two metrics of validation with the same name.
        """
        if stage == "test" and self.test is None:
            raise DomainbertError(where="trainer.test", found="no test set", expected="PretrainingData(..., test=...)")
        if stage == "predict" and not self.predict:
            raise DomainbertError(
                where="trainer.predict", found="no texts", expected="PretrainingData(..., predict=[...])"
            )
        _ = self.corpus
        if stage in ("fit", "validate"):
            check_names(self.objective.for_validation(), self.validation_readers[1])

    def _open(self, prepared: PreparedInput, is_training_corpus: bool = True) -> PreparedCorpus:
        if isinstance(prepared, PreparedCorpus):
            return prepared
        paths = prepared if isinstance(prepared, list) else [prepared]
        folders = [Path(path) for path in paths]
        if is_training_corpus:
            return open_prepared(folders, None, self.cache)
        # `url` is the changed URL of the training corpus
        cache = None if self.cache is None else replace(self.cache, url=None)
        return open_prepared(folders, self.corpus.tokenizer_fingerprint, cache)

    @cached_property
    def readers(self) -> list[PackedRowsReader]:
        """Readers of the training split, one for each phase."""
        return [PackedRowsReader(self.corpus.train, self.objective, phase.length) for phase in self.phases]

    @property
    def num_items(self) -> int:
        """Number of rows of the training split in the last phase; the row length depends on the phase."""
        return self.readers[-1].plan.num_rows

    @property
    def tokens_per_pass(self) -> list[float]:
        """Expected number of tokens per pass in each phase."""
        return [reader.tokens_per_pass for reader in self.readers]

    @property
    def num_rows(self) -> list[int]:
        """Number of rows per pass in each phase."""
        return [reader.plan.num_rows for reader in self.readers]

    def plan(self, num_steps: int) -> list[RowPhase]:
        """Return the phases of `num_steps` optimizer steps; with `fast_dev_run`, which may have fewer steps than
        phases, the last phase alone."""
        is_dev_run = self.trainer is not None and bool(self.trainer.fast_dev_run)  # type: ignore[attr-defined]
        first = len(self.phases) - 1 if is_dev_run else 0
        key = (num_steps, self.batch_size, first)  # `BatchSizeFinder` changes `batch_size`
        if key not in self._planned:  # only the last plan is kept
            phases = phases_of_training(self.phases[first:], self.batch_size, num_steps, self.num_rows[first:])
            self._planned = {key: row_phases(self.readers[first:], phases, self.seed)}
        return self._planned[key]

    def train_batches(self, share: Share, steps: range) -> Dataset[Batch]:
        """Return the micro-batches of a rank for a range of optimizer steps (from 0)."""
        return PhasedRows(self.plan(steps.stop), share, steps)

    def train_dataloader(self) -> Batches:
        """Return the training batches of an epoch. Raises `DomainbertError` for several phases without `max_steps`."""
        endless = self.trainer is not None and self.trainer.max_steps < 1
        if len(self.phases) > 1 and endless:
            raise DomainbertError(
                f"not set, with {len(self.phases)} phases of max_length",
                where="trainer.max_steps",
                expected="Trainer(max_steps=...), of which each phase takes a share",
            )
        return super().train_dataloader()

    @cached_property
    def validation_readers(self) -> tuple[list[PackedRowsReader], list[ValidationText]]:
        """Readers for validation, and a `ValidationText` for each text that has metrics.

        Readers: the validation split of the corpus, or one for each of its languages; then the held-out texts. Texts:
        the whole validation split (name ""), its languages, the held-out texts.
        """
        held_out = {name: self._open(path, is_training_corpus=False) for name, path in self.held_out.items()}
        # readers
        reader = validation_reader(self.corpus, self.objective, self.row_length)
        languages = reader.by_language()
        if duplicates := sorted(languages.keys() & held_out.keys()):
            raise DomainbertError(
                f"a language of the corpus has the name {duplicates[0]!r}", where="held_out", hint="rename the set"
            )
        readers = [*(languages.values() or [reader])]
        for name, other in held_out.items():
            try:
                readers.append(validation_reader(other, self.objective, self.row_length))
            except DomainbertError as error:
                inner = error.at("") if error.where == "prepared" else error
                raise inner.within(f"held_out.{name}") from error
        # texts
        split = self.corpus.validation
        texts = [ValidationText("", split.tokens_per_character, self.objective.baselines(self.corpus))]
        texts += [ValidationText(name, split.tokens_per_character_of(name), {}, is_language=True) for name in languages]
        texts += [ValidationText(name, other.validation.tokens_per_character, {}) for name, other in held_out.items()]
        return readers, texts

    @cached_property
    def test_readers(self) -> tuple[list[PackedRowsReader], list[ValidationText]]:
        """The reader of the test set, and its `ValidationText`: two lists with one item, like `validation_readers`."""
        assert self.test is not None
        test = self._open(self.test, is_training_corpus=False)
        text = ValidationText("", test.validation.tokens_per_character, self.objective.baselines(test))
        return [validation_reader(test, self.objective, self.row_length)], [text]

    def validation_batches(self, share: Share) -> Sequence[Dataset[Batch]]:
        """Return the batches of a rank for each of the `validation_readers`."""
        readers, texts = self.validation_readers
        batches = []
        for reader, indices in zip(readers, texts_of_loaders(texts), strict=True):
            sources = RowSources([texts[index] for index in indices])
            batches.append(self._validation_rows(reader, sources, share))
        return batches

    def test_dataloader(self) -> Batches:
        """Return the batches of the test set. Raises `DomainbertError` if a device has no row."""
        (reader,), texts = self.test_readers
        share = self._share
        if len(reader.rows) < share.world_size:
            found = f"fewer rows ({len(reader.rows)}) than devices ({share.world_size})"
            raise DomainbertError(where="test", found=found, hint="use fewer devices")
        sources = RowSources(texts)
        return self._batches(self._equal_length(lambda share: self._validation_rows(reader, sources, share)))

    def predict_dataloader(self) -> Batches:
        """Return the batches of the texts to predict, `batch_size` texts each, in order, divided over the ranks."""
        assert self.predict is not None
        share = self._share
        if len(self.predict) < share.world_size:
            found = f"fewer texts ({len(self.predict)}) than devices ({share.world_size})"
            raise DomainbertError(where="predict", found=found, hint="use fewer devices")
        texts, tokenizer = self.predict, self.tokenizer
        batches = self._equal_length(
            lambda share: TextBatches(texts, tokenizer, self.row_length, self.batch_size, share)
        )
        return self._batches(batches, batches.indices)

    def _validation_rows(self, reader: PackedRowsReader, sources: RowSources, share: Share) -> ValidationRows:
        return ValidationRows(reader, max(share.micro_batch_size(self.batch_size), 1), share, sources)

    def describe(self, step: int) -> dict[str, Any]:
        """Return the numbers of the `rows` and `documents` that a step reads, as lists that JSON can store."""
        phase = phase_of(self.plan(self.num_steps), step)
        return phase.reader.describe(Key(phase.order.seed, step, *phase.order.batch(step)))

    @property
    def heaviest(self) -> Sequence[int]:  # type: ignore[override]
        """Steps that need the most memory: one for each row length, the longest last."""
        return [phase.reader.objective.heaviest_step(phase.steps) for phase in self.plan(self.num_steps)]


def texts_of_loaders(texts: Sequence[ValidationText]) -> list[list[int]]:
    """Return, for each validation loader, the indices of the texts whose metrics include its batches.

    Text 0 is the whole validation split. It has a loader, unless the corpus has languages: then each language has one,
    which counts for text 0 too. With the split, two languages and a held-out text: [[0, 1], [0, 2], [3]].
    """
    indices = [[0, index] if text.is_language else [index] for index, text in enumerate(texts)]
    has_languages = any(text.is_language for text in texts)
    return indices[1:] if has_languages else indices


def check_names(objective: Objective[Any], texts: Sequence[ValidationText]) -> None:
    """Raise `DomainbertError` if a metric would be logged under the same name for two texts."""
    dummy_sums = dict.fromkeys(objective.measured, torch.ones(()))  # only the names matter
    owners: dict[str, str] = {}  # name of the text by metric
    for text in texts:
        for name in objective.report(dummy_sums, text):
            metric = f"{text.name}_{name}" if text.name else name
            if owners.setdefault(metric, text.name) != text.name:
                held_out = text.name or owners[metric]
                raise DomainbertError(
                    where="held_out",
                    found=f"{held_out!r}, but the metric {metric} exists already",
                    expected="another name",
                )


def _check_texts(texts: Sequence[str] | None) -> None:
    if isinstance(texts, str):
        raise DomainbertError(where="predict", found="a single string", expected="a list of texts")
    for index, text in enumerate(texts or ()):
        if not isinstance(text, str):
            raise DomainbertError(where=f"predict[{index}]", found=type(text).__name__, expected="a string")
