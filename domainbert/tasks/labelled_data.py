"""Labelled files as a LightningDataModule, for any task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from lightning.pytorch.trainer.states import TrainerFn
from torch.utils.data import Dataset

from domainbert.base.choices import as_plain
from domainbert.base.errors import DomainbertError
from domainbert.base.fields import Seed, as_plain_list, check_value
from domainbert.base.process import process_rank
from domainbert.data.batches import GlobalOrder, LabelledBatches, LabelledTrainBatches, Share
from domainbert.data.examples import entry_ids
from domainbert.data.packing import Batch, Example
from domainbert.labelled.contents import Content, as_contents, located_errors, map_contents
from domainbert.labelled.items import Labelled, check_set_known
from domainbert.labelled.read import read_labelled
from domainbert.labelled.sets import LabelledFile
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.finetuning_config import LabelledDataSettings
from domainbert.tasks.scoring import Scoring
from domainbert.tasks.slices import slice_values
from domainbert.tasks.source_batches import ItemBatches, WithSources
from domainbert.tasks.task import (
    Task,
    build_scoring,
    encode_file,
    has_fixed_outputs,
    task_from_labels,
    task_from_training_set,
)
from domainbert.tokenization.extend import with_tokens
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from domainbert.training.data_module import TrainingData
from domainbert.training.hparams import read_argument
from domainbert.training.loaders import Batches

LabelledInput = str | Path | Any  # not `Iterable`: jsonargparse would replace a path by the content of its file
"""A labelled set: a path, a list of paths, `hub:NAME`, a `datasets.Dataset`, rows as dicts, or a `Labelled`."""

_VALIDATION_TOKENS = 16_384  # per batch; larger batches need more memory without being faster
_SETS = {"fit": ("train", "validation"), "validate": ("validation",), "test": ("test",), "predict": ()}
"""Labelled sets of a stage of Lightning; the first is required."""


class LabelledData(TrainingData):
    """Training, validation and test set of a labelled task.

        data = LabelledData(Ner(), "train.conll", "dev.conll", "test.conll", tokenizer="models/minilm")

    >>> from domainbert import LabelledData, Ner
    >>> task = Ner(labels=["law"])
    >>> data = LabelledData(task, predict=["The high court heard case number 7."], tokenizer="model")
    >>> (batch,) = data.predict_dataloader()
    >>> batch["input_ids"].shape[0], batch["items"].tolist()
    (1, [0])

    Texts are split into windows and packed; nothing is truncated. `FineTuning` describes the shapes of a batch; its
    counts `num_examples` and `num_targets` refer to the global batch, and `items` are the indices of its examples in
    the set. Batches for validation, test and prediction have `sources`, their labelled items or contents.

    Args:
        task: the task, such as `Ner()`, with the format of the files; or `task` of a module.
        train: training set; defines the labels of the model, unless the task has labels.
        validation, test: sets with labels of the training set.
        predict: contents to predict: a list of strings, lists of words or rows, or a labelled set; None takes the test
            set.
        tokenizer: tokenizer of the model, or its folder; `task` needs none.
        seed: seed of the data order.
        settings: all settings; or single settings by keyword, see `LabelledDataSettings`.
    """

    def __init__(
        self,
        task: TaskConfig | Task[Any, Any],
        train: LabelledInput | None = None,
        validation: LabelledInput | None = None,
        test: LabelledInput | None = None,
        predict: LabelledInput | None = None,
        *,
        tokenizer: str | Path | DomainTokenizer | None = None,
        seed: int = 1,
        settings: LabelledDataSettings | None = None,
        **changes: Any,
    ) -> None:
        settings = LabelledDataSettings.of(settings, **changes)
        super().__init__(settings.batch_size, settings.num_workers)
        given = task.config if isinstance(task, Task) else task
        self.config: TaskConfig = read_argument("task", TaskConfig, given)
        """Settings of the task, with the format of the files."""
        if isinstance(task, Task) and (task.has_learned or train is None):
            self.task = task
        check_value("seed", seed, Seed)
        self.seed, self.max_length, self._tokenizer = seed, settings.max_length, tokenizer
        self._sources: dict[str, Any] = {"train": train, "validation": validation, "test": test, "predict": predict}
        inputs = {**self._sources, "tokenizer": tokenizer}
        paths = {name: value for name, value in inputs.items() if isinstance(value, (str, Path))}
        # not logged: `seed` would collide with the module's; ignored: Lightning compares all arguments, perhaps arrays
        plain = as_plain({"task": self.config, "seed": seed, **paths, **vars(settings)})
        self.save_hyperparameters(plain, logger=False, ignore=["task", *(inputs.keys() - paths.keys())])
        if settings.max_length is not None:
            self.config.check_window(settings.max_length)
        self._sets: dict[str, Labelled[Any]] = {}
        self._examples: dict[str, list[Example]] = {}

    @cached_property
    def task(self) -> Task[Any, Any]:
        """The task with its labels, which the first call reads from the training set.

        Raises:
            DomainbertError: neither the task nor a training set has labels; an invalid file.
        """
        if self._sources["train"] is not None:
            return task_from_training_set(self.config, self.labelled("train"))
        if self.config.labels is None and not has_fixed_outputs(self.config):
            name = type(self.config).__name__
            expected = f"{name}(labels=[...]), the task of a module, or LabelledData(..., train=...)"
            raise DomainbertError(where="task", found=f"{name}() without labels and no train set", expected=expected)
        return task_from_labels(self.config, self.config.labels or ())

    @cached_property
    def tokenizer(self) -> DomainTokenizer:
        """The tokenizer, with the tokens that the task adds. Raise `DomainbertError` if none is given."""
        if self._tokenizer is None:
            raise DomainbertError(
                where="tokenizer", found="none", expected="LabelledData(..., tokenizer=module.tokenizer)"
            )
        tokenizer = self._tokenizer
        if not isinstance(tokenizer, DomainTokenizer):
            tokenizer = load_tokenizer(tokenizer)
        tokens = self.task.inputs.added_tokens(self.task)
        return tokenizer if set(tokens) <= set(tokenizer.tokens) else with_tokens(tokenizer, tokens)

    @property
    def window(self) -> int:
        """Window length in tokens. Raise `DomainbertError` if neither the data nor the tokenizer has a length."""
        window = self.max_length or self.tokenizer.model_max_length
        if window is None:
            raise DomainbertError(
                where="max_length", found="none in the tokenizer", expected="LabelledData(..., max_length=...)"
            )
        return window

    def setup(self, stage: str) -> None:
        """Read the files of a stage of Lightning, and check their labels.

        Raises:
            DomainbertError: a missing set; an invalid file; a label that the task does not have.
        """
        sets = _SETS[stage]
        for name in sets[:1]:
            if self._sources[name] is None:
                where = f"trainer.{TrainerFn(stage).value}"
                raise DomainbertError(where=where, found=f"no {name} set", expected=f"LabelledData(..., {name}=...)")
        if stage == "predict" and self._sources["predict"] is None and self._sources["test"] is None:
            raise DomainbertError(
                where="trainer.predict", found="nothing to predict", expected="LabelledData(..., predict=...)"
            )
        known = self.config.known_labels(self.task.labels)
        self.config.check_labels(known)
        for name in sets:
            if self._sources[name] is not None:
                check_set_known(self.labelled(name), known)

    def labelled(self, name: str) -> Labelled[Any]:
        """Return the set `train`, `validation` or `test`; the first call reads it and prints a summary."""
        if name not in self._sets:
            source = self._sources[name]
            if isinstance(source, Labelled):
                self._sets[name] = source
            else:
                self._sets[name] = read_labelled(self.config, source, name=name)
                if name != "test" and process_rank() == 0:  # the scoring prints the test set
                    print(self._sets[name].describe())
        return self._sets[name]

    def items(self, name: str) -> Sequence[Any]:
        """Return the items of a set; () if it is not given."""
        return () if self._sources[name] is None else self.labelled(name).items

    def examples(self, name: str) -> list[Example]:
        """Return the items of a set as token ids and targets; [] if it is not given."""
        if self._sources[name] is None:
            return []
        if name not in self._examples:
            self._examples[name] = encode_file(self.task, self.labelled(name), self.tokenizer, self.window)
        return self._examples[name]

    @property
    def entry_ids(self) -> Any:
        """Ids of the vocabulary entries that occur in training and validation: (n,)."""
        return entry_ids([*self.examples("train"), *self.examples("validation")], self.tokenizer)

    @cached_property
    def contents(self) -> list[Content]:
        """Return the contents to predict, from `predict` or the test set."""
        source = as_plain_list(self._sources["predict"])
        if isinstance(source, (tuple, Iterator)):
            source = list(source)
        if source is None:
            return self.labelled("test").contents
        if isinstance(source, Labelled):
            return source.contents
        if isinstance(source, list) and not source:
            raise DomainbertError(
                where="predict", found="LabelledData(predict=[])", expected="texts, lists of words or rows"
            )
        are_files = not isinstance(source, list) or all(isinstance(item, (Path, LabelledFile)) for item in source)
        if are_files:
            return read_labelled(self.config, source, name="predict").contents
        if all(isinstance(row, Mapping) for row in source):
            text_key = getattr(self.config.reading, "text_key", "text")
            return map_contents(lambda row: self.task.inputs.content_of(self.task, row, text_key), source)
        return as_contents(source)  # texts or lists of words

    @cached_property
    def scoring(self) -> Scoring:
        """Return the scoring of the test set, as in `evaluate`."""
        reads_training = self.config.evaluation.uses_training_set and self._sources["train"] is not None
        train = self.labelled("train") if reads_training else None
        return build_scoring(self.config, self.labelled("test"), train)

    @property
    def num_items(self) -> int:
        """Return the number of training examples."""
        return len(self.items("train"))

    @property
    def order(self) -> GlobalOrder:
        """Return the order of the training examples, by optimizer step."""
        return self.task.training_hooks.order(self.task, self.items("train"), self.batch_size, self.seed)

    def train_batches(self, share: Share, steps: range) -> Dataset[Batch]:
        """Return the micro-batches of a rank for a range of optimizer steps (from 0)."""
        return LabelledTrainBatches(self.examples("train"), self.tokenizer, self.order, share, steps)

    def validation_batches(self, share: Share) -> Sequence[Dataset[Batch]]:
        """Return the batches of the validation set, if there is one."""
        if self._sources["validation"] is None:
            return []
        labelled = self.labelled("validation")
        batches = LabelledBatches(self.examples("validation"), self.tokenizer, _VALIDATION_TOKENS, share)
        return [WithSources(batches, labelled.items, labelled.file_names, slice_values(self.task, labelled.items))]

    def describe(self, step: int) -> dict[str, Any]:
        """Return the file lines of the examples of a step, under the key "lines"."""
        train = self.labelled("train")
        _, indices = self.order.batch(step)
        return {"lines": [train.line_or_location(index) for index in indices.tolist()]}

    def test_dataloader(self) -> Batches:
        """Return batches of the test set, `batch_size` items each, in order, distributed over ranks."""
        examples, scoring = self.examples("test"), self.scoring
        return self._item_batches("test", self.items("test"), lambda items: [examples[item] for item in items], scoring)

    def predict_dataloader(self) -> Batches:
        """Return batches of the contents to predict, `batch_size` contents each, in order, distributed over ranks."""
        return self._item_batches("predict", self.contents, self._encode_contents)

    def _encode_contents(self, indices: Sequence[int]) -> list[Example]:
        with located_errors(lambda position: f"text {indices[position] + 1:,}"):
            return self.task.encode_contents([self.contents[index] for index in indices], self.tokenizer, self.window)

    def _item_batches(
        self,
        name: str,
        items: Sequence[Any],
        encode: Callable[[Sequence[int]], list[Example]],
        scoring: Scoring | None = None,
    ) -> Batches:
        share = self._share
        if len(items) < share.world_size:
            found = f"fewer items ({len(items)}) than devices ({share.world_size})"
            raise DomainbertError(found, where=name, hint="use fewer devices")
        batches = self._equal_length(
            lambda share: ItemBatches(items, encode, self.tokenizer, self.batch_size, share, scoring)
        )
        # without workers: each batch of a test set would carry the whole set to the main process
        return self._batches(batches, batches.indices, use_workers=scoring is None)
