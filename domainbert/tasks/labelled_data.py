"""Labelled files as a LightningDataModule, for any task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

from domainbert.base.choices import as_plain
from domainbert.base.errors import DomainbertError
from domainbert.base.fields import Length, Seed, as_plain_list, check_value
from domainbert.base.process import process_rank
from domainbert.data.batches import LabelledBatches, LabelledTrainBatches, Share
from domainbert.data.packing import Batch, Example
from domainbert.labelled.contents import Content, as_contents, map_contents
from domainbert.labelled.items import Labelled
from domainbert.labelled.read import read_labelled
from domainbert.labelled.sets import LabelledFile, check_set_known
from domainbert.models.folder import ModelFolder, open_model
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.finetuning import FineTuning
from domainbert.tasks.scoring import Scoring
from domainbert.tasks.task import Task, build_scoring, encode_file, task_from_model_folder, task_from_training_set
from domainbert.tokenization.extend import with_tokens
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from domainbert.training.data_module import Batches, TrainingData
from domainbert.training.hparams import read_argument

if TYPE_CHECKING:
    from domainbert.data.batches import GlobalOrder
    from domainbert.training.module import TrainedModule

LabelledInput = str | Path | Any  # not `Iterable`: jsonargparse would replace a path by the content of its file
"""A labelled set: a path, a list of paths, `hub:NAME`, a `datasets.Dataset`, rows as dicts, or a `Labelled`."""

_VALIDATION_TOKENS = 16_384  # per batch; larger batches need more memory without being faster
_NEEDED_SETS = {"fit": ("train",), "validate": ("validation",), "test": ("test",), "predict": ()}


class LabelledData(TrainingData):
    """Training, validation and test set of a labelled task.

        data = LabelledData(Ner(), "train.conll", "dev.conll", "test.conll", model="models/minilm")

    >>> from domainbert import LabelledData, Ner
    >>> data = LabelledData(Ner(), predict=["The high court heard case number 7."], model="model")
    >>> data.setup("predict")
    >>> data.window, len(data.predict_dataloader())
    (64, 1)

    Texts are split into windows and packed; nothing is truncated. `FineTuning` describes the shapes of a batch; its
    counts `num_examples` and `num_targets` refer to the global batch.

    Args:
        task: the task, such as `Ner()`, with the format of the files.
        train: training set; defines the labels of the model.
        validation, test: sets with labels of the training set.
        predict: contents to predict: a list of strings, lists of words or rows, or a labelled set; None takes the test
            set.
        model: folder of the model or of its tokenizer; None takes the folder of the module.
        batch_size: examples of an optimizer step, over all devices and micro-batches.
        max_length: window length in tokens, with special tokens; longer texts are split into overlapping windows. None
            takes the length of fine-tuning, or the number of positions of the encoder.
        seed: seed of the data order; None takes the seed of the module.
        num_workers: see `TrainingData`.

    Attributes:
        tokenizer: tokenizer of the model, with the tokens that the task adds.
        window: window length in tokens.
        resolved_task: the task with its labels.
    """

    tokenizer: DomainTokenizer
    window: int
    resolved_task: Task[Any, Any]

    def __init__(
        self,
        task: TaskConfig,
        train: LabelledInput | None = None,
        validation: LabelledInput | None = None,
        test: LabelledInput | None = None,
        predict: LabelledInput | None = None,
        *,
        model: str | Path | ModelFolder | DomainTokenizer | None = None,
        batch_size: int = 32,
        max_length: int | None = None,
        seed: int | None = None,
        num_workers: int | None = None,
    ) -> None:
        super().__init__(batch_size, num_workers)
        self.task: TaskConfig = read_argument("task", TaskConfig, task)
        self.model, self.max_length, self.seed = model, max_length, seed
        check_value("seed", seed, Seed | None)
        check_value("max_length", max_length, Length | None)
        self._sources: dict[str, Any] = {"train": train, "validation": validation, "test": test, "predict": predict}
        inputs = {**self._sources, "model": model}
        paths = {name: value for name, value in inputs.items() if isinstance(value, (str, Path))}
        settings = {"batch_size": batch_size, "max_length": max_length, "seed": seed, "num_workers": num_workers}
        # not logged: `seed` would collide with the module's; ignored: Lightning compares all arguments, perhaps arrays
        plain = as_plain({"task": self.task, **paths, **settings})
        self.save_hyperparameters(plain, logger=False, ignore=[*(inputs.keys() - paths.keys())])
        if max_length is not None:
            self.task.check_window(max_length)
        self._sets: dict[str, Labelled[Any]] = {}
        self._examples: dict[str, list[Example]] = {}
        self._order: GlobalOrder | None = None
        self._module_seed = 1  # used if `seed` is None
        self._train_task: Task[Any, Any] | None = None  # with the labels of the training set

    def resolve(self, module: TrainedModule | None, stage: str) -> None:
        """Read the files of a stage and resolve the task, its labels and the window length.

        Raises:
            DomainbertError: the module has another task; a missing set; an invalid file; a label that training or the
                model does not have; a model folder without a head, unless the stage is `fit`.
        """
        if module is not None and not isinstance(module, FineTuning):
            data, found = type(self).__name__, type(module).__name__
            raise DomainbertError(f"trainer.{stage}: found {found} with {data}; expected FineTuning with {data}")
        if module is not None:
            self._check_same_task(module)
        for name in _NEEDED_SETS[stage]:
            if self._sources[name] is None:
                raise DomainbertError(f"trainer.{stage}: found no {name} set; expected LabelledData(..., {name}=...)")
        if stage == "predict" and self._sources["predict"] is None and self._sources["test"] is None:
            raise DomainbertError("trainer.predict: found nothing to predict; expected LabelledData(..., predict=...)")
        self._open_tokenizer(module)
        self._resolve_task(module, stage)
        self._resolve_window(module, stage)
        if module is not None:
            self._module_seed, self._order = module.seed, None
            module.resolve(self, stage)

    def labelled(self, name: str) -> Labelled[Any]:
        """Return the set `train`, `validation` or `test`; the first call reads it and prints a summary."""
        if name not in self._sets:
            source = self._sources[name]
            if isinstance(source, Labelled):
                self._sets[name] = source
            else:
                self._sets[name] = read_labelled(self.task, source, name=name)
                if name != "test" and process_rank() == 0:  # the scoring prints the test set
                    print(self._sets[name].describe())
        return self._sets[name]

    def items(self, name: str) -> Sequence[Any]:
        """Return the items of a set; () if it is not given."""
        return () if self._sources[name] is None else self.labelled(name).items

    def file_names(self, name: str) -> str:
        """Return the file names of a set, separated by commas; "" if it is not given."""
        sets = [] if self._sources[name] is None else [self.labelled(name)]
        return ", ".join(part.path.name for labelled in sets for part in labelled.parts or sets)

    def examples(self, name: str) -> list[Example]:
        """Return the items of a set as token ids and targets; [] if it is not given."""
        if self._sources[name] is None:
            return []
        if name not in self._examples:
            self._examples[name] = encode_file(self.resolved_task, self.labelled(name), self.tokenizer, self.window)
        return self._examples[name]

    @cached_property
    def contents(self) -> list[Content]:
        """Return the contents to predict, from `predict` or the test set."""
        source = as_plain_list(self._sources["predict"])
        if source is None:
            return self.labelled("test").contents
        if isinstance(source, Labelled):
            return source.contents
        if isinstance(source, list) and not source:
            raise DomainbertError("predict: found LabelledData(predict=[]); expected texts, lists of words or rows")
        if not isinstance(source, list) or all(isinstance(item, (Path, LabelledFile)) for item in source):
            return read_labelled(self.task, source, name="predict").contents
        if all(isinstance(row, Mapping) for row in source):
            text_key = getattr(self.task.reading, "text_key", "text")
            content_of = self.resolved_task.inputs.content_of
            return map_contents(lambda row: content_of(self.resolved_task, row, text_key), source)
        return as_contents(source)  # texts or lists of words

    @cached_property
    def scoring(self) -> Scoring:
        """Return the scoring of the test set, as in `evaluate`."""
        return self._build_scoring(self.labelled("test"))

    def scoring_of(self, indices: Sequence[int]) -> Scoring:
        """Return the scoring of the test items with these indices."""
        test = self.labelled("test")
        if len(indices) == len(test.items):
            return self.scoring
        return self._build_scoring(replace(test, items=[test.items[index] for index in indices]))

    def _build_scoring(self, test: Labelled[Any]) -> Scoring:
        """Return the scoring of a test set, with the training set if the scoring reads it and it is given."""
        reads_training = self.task.evaluation.uses_training_set and self._sources["train"] is not None
        return build_scoring(self.task, test, self.labelled("train") if reads_training else None)

    @property
    def tokenizer_name(self) -> str:
        """Return the folder of the model or tokenizer, for messages."""
        return str(getattr(self.model, "path", self.model))  # `model` may be a path, too

    def _check_same_task(self, module: FineTuning) -> None:
        """Raise `DomainbertError` if a module has another task, or other settings than the format of files."""
        ours, theirs = self.task, module.task_config
        names = [field.name for field in fields(ours) if field.name != "format"]
        if type(ours) is not type(theirs):
            key, values = "task", [type(task).__name__ for task in (ours, theirs)]
        elif different := [name for name in names if getattr(ours, name) != getattr(theirs, name)]:
            key, values = f"task.{different[0]}", [repr(getattr(task, different[0])) for task in (ours, theirs)]
        else:
            return
        found = f"{values[0]} in {type(self).__name__} and {values[1]} in {type(module).__name__}"
        raise DomainbertError(f"{key}: found {found}; expected the same")

    def _open_tokenizer(self, module: FineTuning | None) -> None:
        """Set `tokenizer` from `model`, or from the folder of the module; do nothing if it is set."""
        if "tokenizer" in vars(self):
            return
        if self.model is None:
            if module is None:
                raise DomainbertError("model: found none; expected LabelledData(..., model=...), a model or tokenizer")
            self.model = module.folder
        if isinstance(self.model, (str, Path)) and not _is_tokenizer(Path(self.model)):
            self.model = open_model(Path(self.model))
        if isinstance(self.model, DomainTokenizer):
            self.tokenizer = self.model
        elif isinstance(self.model, ModelFolder):
            self.tokenizer = self.model.tokenizer()
        else:
            self.tokenizer = load_tokenizer(Path(self.model))

    def _resolve_window(self, module: FineTuning | None, stage: str) -> None:
        """Set `window` unless it is set: `max_length`, the window of the built model, or the default of the encoder.

        Outside of training, the window is at most the length that the tokenizer folder records.
        """
        if "window" in vars(self):
            return
        if self.max_length is not None:
            self.window = self.max_length
            return
        window = None
        if module is not None:
            window = module.max_length if module.is_built else module.default_window(self.resolved_task)
        elif isinstance(self.model, ModelFolder):
            window = self.model.config.max_length
        if window is None:
            raise DomainbertError("max_length: found none in the tokenizer; expected LabelledData(..., max_length=...)")
        if stage != "fit":
            window = min(self.tokenizer.model_max_length or window, window)
        self.window = window

    def _resolve_task(self, module: FineTuning | None, stage: str) -> None:
        """Set `resolved_task`, the task with the labels of the training set in `fit`, otherwise of the model.

        Check the labels in the sets that the stage reads, and add the tokens of the task to `tokenizer`.
        """
        built = None if module is None or not module.is_built else module.task
        previous = vars(self).get("resolved_task")  # None before the first stage
        if stage == "fit":
            self.resolved_task = self._task_of_training(built)
        elif built is not None:
            self.resolved_task = built
        else:
            self.resolved_task = self._task_of_folder(self.model if module is None else module.open())
        if self.resolved_task is not previous:  # both depend on the task
            self._examples.clear()
            self._order = None

        known = self.task.known_labels(self.resolved_task.labels)  # `self.task` has the settings, without labels
        self.task.check_labels(known)
        sets_of_stage = {"fit": ("train", "validation"), "validate": ("validation",), "test": ("test",)}
        for name in sets_of_stage.get(stage, ()):
            if self._sources[name] is not None:
                check_set_known(self.labelled(name), known)

        needed = self.resolved_task.inputs.added_tokens(self.resolved_task)
        if missing := [token for token in needed if token not in self.tokenizer.tokens]:
            self.tokenizer = with_tokens(self.tokenizer, missing)

    def _task_of_training(self, built: Task[Any, Any] | None) -> Task[Any, Any]:
        """Return the task of the training set; raise `DomainbertError` if the model was built for other labels."""
        if self._sources["train"] is None:
            raise DomainbertError(
                "model: found only a tokenizer; expected a fine-tuned model, or LabelledData(..., train=...)"
            )
        train = self.labelled("train")
        self._train_task = self._train_task or task_from_training_set(self.task, train)
        if built is not None and sorted(built.labels) != sorted(self._train_task.labels):
            check_set_known(train, self.task.known_labels(built.labels))  # a clearer error for unknown labels
            labels = f"found the labels {', '.join(self._train_task.labels)}; expected {', '.join(built.labels)}"
            raise DomainbertError(f"train: {labels}, as in the model, or a new module for other labels")
        return self._train_task

    def _task_of_folder(self, folder: Any) -> Task[Any, Any]:
        """Return the task of a model folder, or the task of the training set if `folder` is only a tokenizer.

        Raise `DomainbertError` if the model has no head for the task.
        """
        if not isinstance(folder, ModelFolder):
            return self._task_of_training(None)
        task = task_from_model_folder(folder)
        task.headline = self.task.headline
        if task.name != self.task.name:
            raise DomainbertError(f"model: {folder.path} is for {task.name}; expected a model for {self.task.name}")
        return task

    @property
    def num_items(self) -> int:
        """Return the number of training examples."""
        return len(self.items("train"))

    @property
    def order(self) -> GlobalOrder:
        """Return the order of the training examples, by optimizer step."""
        if self._order is None:
            task = self.resolved_task
            seed = self._module_seed if self.seed is None else self.seed
            self._order = task.training_hooks.order(task, self.items("train"), self.batch_size, seed)
        return self._order

    def train_batches(self, share: Share, steps: range) -> Dataset[Batch]:
        """Return the micro-batches of a rank for a range of optimizer steps (from 0)."""
        return LabelledTrainBatches(self.examples("train"), self.tokenizer, self.order, share, steps)

    def validation_batches(self, share: Share) -> Sequence[Dataset[Batch]]:
        """Return the batches of the validation set, if there is one."""
        if self._sources["validation"] is None:
            return []
        return [LabelledBatches(self.examples("validation"), self.tokenizer, _VALIDATION_TOKENS, share)]

    def describe(self, step: int) -> dict[str, Any]:
        """Return the file lines of the examples of a step, under the key "lines"."""
        train = self.labelled("train")
        _, indices = self.order.batch(step)
        return {"lines": [train.line_or_location(index) for index in indices.tolist()]}

    def test_dataloader(self) -> Batches:
        """Return batches of indices of test items, distributed over ranks."""
        return self._index_batches("test", len(self.items("test")))

    def predict_dataloader(self) -> Batches:
        """Return batches of indices of contents to predict, in order, distributed over ranks."""
        return self._index_batches("predict", len(self.contents))

    def _index_batches(self, name: str, count: int) -> Batches:
        """Return batches of this rank's indices below `count`; raise `DomainbertError` if a rank gets none."""
        share = self._share
        if count < share.world_size:
            raise DomainbertError(f"{name}: fewer items ({count}) than devices ({share.world_size}); use fewer devices")
        indices = np.arange(count)[share.rank :: share.world_size]
        batches = [
            {"items": indices[start : start + self.batch_size]} for start in range(0, len(indices), self.batch_size)
        ]
        # batch_size=None: an element of `batches` is a complete batch
        return Batches(lambda: DataLoader(batches, batch_size=None), len(batches))  # type: ignore[arg-type]


def _is_tokenizer(path: Path) -> bool:
    """Whether a path is a folder without a model, such as the output of `vocab`."""
    return path.is_dir() and not any((path / name).is_file() for name in ("config.json", "seeds.json"))
