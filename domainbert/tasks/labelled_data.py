"""Labelled files as a LightningDataModule, for any task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from torch.utils.data import DataLoader, Dataset

from domainbert.base.errors import DomainbertError
from domainbert.data.batches import LabelledBatches, LabelledTrainBatches
from domainbert.data.examples import Example
from domainbert.data.types import Batch, Share
from domainbert.labelled.contents import Content, as_contents
from domainbert.labelled.items import Labelled
from domainbert.labelled.read import read_labelled
from domainbert.labelled.sets import LabelledFile, check_set_known
from domainbert.models.folder import ModelFolder, open_model
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.finetuning import FineTuning
from domainbert.tasks.scoring import Scoring
from domainbert.tasks.task import Task, encode_file, scoring_of, task_of_folder, task_of_training
from domainbert.tokenization.extend import with_tokens
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from domainbert.training.data_module import Batches, TrainingData
from domainbert.training.hparams import from_plain, plain

if TYPE_CHECKING:
    from domainbert.data.order import GlobalOrder
    from domainbert.training.module import TrainedModule

LabelledInput = str | Path | Any  # of a type with `Iterable`, jsonargparse replaces a path by the content of its file
"""A labelled set: a path or several, `hub:NAME`, a `datasets.Dataset`, rows as dicts, or a set that has been read."""

_VALIDATION_TOKENS = 16_384  # computed at once; more would only need more memory
_NEEDED = {"fit": ("train",), "validate": ("validation",), "test": ("test",), "predict": ()}


class LabelledData(TrainingData):
    """Training, validation and test set of a labelled task.

        data = LabelledData(Ner(), "train.conll", "dev.conll", "test.conll", model="models/minilm")

    >>> from domainbert import LabelledData, Ner
    >>> data = LabelledData(Ner(), predict=["The high court heard case number 7."], model="model")
    >>> data.setup("predict")
    >>> data.window, len(data.predict_dataloader())
    (64, 1)

    Texts are windowed and packed: nothing is cut. A training batch has the shapes that `FineTuning` describes; its
    counts `num_examples` and `num_targets` refer to the global batch.

    Args:
        task: the task, such as `Ner()`, with the format of the files.
        train: its labels are those the model will know.
        validation, test: sets with these labels.
        predict: contents to predict: a list of strings, of lists of words or of rows, or a labelled set; None takes the
            test set.
        model: folder of the model, or of its tokenizer; None takes the folder of the module.
        batch_size: examples of an optimizer step, over all devices and micro-batches.
        max_length: tokens of a window, special ones included; longer texts are read in overlapping windows. None takes
            what the model has positions for, or was fine-tuned with.
        seed: of the order; None takes the seed of the module.
        num_workers: see `TrainingData`.

    Attributes:
        tokenizer: of the model, with the tokens that the task adds.
        window: tokens of a window.
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
        self.task = cast(TaskConfig, from_plain(TaskConfig, task))
        self.model, self.max_length, self.seed = model, max_length, seed
        self._given: dict[str, Any] = {"train": train, "validation": validation, "test": test, "predict": predict}
        paths = {name: one for name, one in {**self._given, "model": model}.items() if isinstance(one, (str, Path))}
        how = {"batch_size": batch_size, "max_length": max_length, "seed": seed, "num_workers": num_workers}
        self.save_hyperparameters(
            plain({"task": self.task, **paths, **how}), logger=False
        )  # the module has a seed, too
        if max_length is not None:
            self.task.check_window(max_length)
        self._sets: dict[str, Labelled[Any]] = {}
        self._examples: dict[str, list[Example]] = {}
        self._scoring: Scoring | None = None
        self._order: GlobalOrder | None = None
        self._learnt: Task[Any, Any] | None = None  # with the labels of the training set

    def resolve(self, module: TrainedModule | None, stage: str) -> None:
        """Read the files of a stage, and decide on the labels.

        Raises:
            DomainbertError: a set that the stage needs is not given; anything wrong with a file; a label that training
                or the model does not have; a model folder without a head is to be tested.
        """
        if module is not None and not isinstance(module, FineTuning):
            found = type(module).__name__
            raise DomainbertError(f"trainer.{stage}: found {found} with {type(self).__name__}; expected FineTuning")
        for name in _NEEDED[stage]:
            if self._given[name] is None:
                raise DomainbertError(f"trainer.{stage}: found no {name} set; expected LabelledData(..., {name}=...)")
        if stage == "predict" and self._given["predict"] is None and self._given["test"] is None:
            raise DomainbertError("trainer.predict: found nothing to predict; expected LabelledData(..., predict=...)")
        self._open(module)
        self._decide(module, stage)
        self._find_window(module, stage)
        if module is not None:
            self.seed = module.seed if self.seed is None else self.seed
            module.resolve(self, stage)

    def labelled(self, name: str) -> Labelled[Any]:
        """The set `train`, `validation` or `test`, read once; what was found in its files is printed."""
        if name not in self._sets:
            given = self._given[name]
            if isinstance(given, Labelled):
                self._sets[name] = given
            else:
                self._sets[name] = read_labelled(self.task, given, name=name)
                if name != "test":  # its scoring says so
                    print(self._sets[name].describe())
        return self._sets[name]

    def items(self, name: str) -> Sequence[Any]:
        """The items of a set; none where it is not given."""
        return () if self._given[name] is None else self.labelled(name).items

    def examples(self, name: str) -> list[Example]:
        """The items of a set as token ids and targets; none where it is not given."""
        if self._given[name] is None:
            return []
        if name not in self._examples:
            self._examples[name] = encode_file(self.resolved_task, self.labelled(name), self.tokenizer, self.window)
        return self._examples[name]

    @cached_property
    def contents(self) -> list[Content]:
        """Contents to predict: the contents of `predict`, or of the test set."""
        given = self._given["predict"]
        if given is None:
            return self.labelled("test").contents
        if isinstance(given, list) and given and all(isinstance(one, Mapping) for one in given):
            key = getattr(getattr(self.task, "format", None), "text_key", "text")
            return [self.resolved_task.inputs.content_of(self.resolved_task, row, key) for row in given]
        if isinstance(given, list) and not all(isinstance(one, (Path, LabelledFile)) for one in given):
            return as_contents(given)
        read = given if isinstance(given, Labelled) else read_labelled(self.task, given, name="predict")
        return read.contents

    @property
    def scoring(self) -> Scoring:
        """The test set as `evaluate` scores it."""
        if self._scoring is None:
            self._scoring = self._scoring_of(self.labelled("test"))
        return self._scoring

    def scoring_of(self, numbers: Sequence[int]) -> Scoring:
        """The scoring of some items of the test set."""
        test = self.labelled("test")
        if len(numbers) == len(test.items):
            return self.scoring
        return self._scoring_of(replace(test, items=[test.items[number] for number in numbers]))

    def _scoring_of(self, test: Labelled[Any]) -> Scoring:
        reads_training = self.task.evaluation.uses_training_set and self._given["train"] is not None
        return scoring_of(self.task, test, self.labelled("train") if reads_training else None)

    @property
    def tokenizer_name(self) -> str:
        """The folder of the tokenizer, for messages."""
        return str(getattr(self.model, "path", self.model))

    def _open(self, module: FineTuning | None) -> None:
        """Open the tokenizer."""
        if "tokenizer" in vars(self):
            return
        if self.model is None and module is None:
            raise DomainbertError("model: found none; expected the folder of a model or of its tokenizer")
        if self.model is None:
            assert module is not None
            self.model = module.folder
        if isinstance(self.model, (str, Path)) and not _is_tokenizer(Path(self.model)):
            self.model = open_model(Path(self.model))
        if isinstance(self.model, DomainTokenizer):
            self.tokenizer = self.model
        elif isinstance(self.model, ModelFolder):
            self.tokenizer = self.model.tokenizer()
        else:
            self.tokenizer = load_tokenizer(Path(self.model))

    def _find_window(self, module: FineTuning | None, stage: str) -> None:
        """Return the tokens of a window: the window of the built model, or the number of positions of the encoder."""
        if "window" in vars(self):
            return
        usual, folder = self.max_length, self.model
        if usual is None and module is not None:
            usual = module.max_length if module.is_built else module.usual_window(self.resolved_task)
        elif usual is None and isinstance(folder, ModelFolder):
            usual = folder.config.max_length
        if usual is None:
            raise DomainbertError("max_length: found none; expected a number, as model is a tokenizer")
        if stage != "fit" and self.max_length is None:
            usual = min(self.tokenizer.model_max_length or usual, usual)
        self.window = usual

    def _decide(self, module: FineTuning | None, stage: str) -> None:
        """Decide on the task with its labels: the model's, if it is built or the stage trains nothing, else those of
        the training set; and check the labels of the sets that the stage reads."""
        built = None if module is None or not module.is_built else module.task
        before = vars(self).get("resolved_task")
        if stage == "fit":
            self.resolved_task = self._of_training(built)
        else:
            self.resolved_task = built or self._of_folder(self.model if module is None else module.open())
        if self.resolved_task is not before:
            self._examples.clear()
            self._order = None
        known = self.task.known_labels(self.resolved_task.labels)
        self.task.check_labels(known)
        for name in {"fit": ("train", "validation"), "validate": ("validation",), "test": ("test",)}.get(stage, ()):
            if self._given[name] is not None:
                check_set_known(self.labelled(name), known)
        wanted = self.resolved_task.inputs.added_tokens(self.resolved_task)
        if added := [token for token in wanted if token not in self.tokenizer.tokens]:
            self.tokenizer = with_tokens(self.tokenizer, added)

    def _of_training(self, built: Task[Any, Any] | None) -> Task[Any, Any]:
        """The task of the training set; `DomainbertError` if the model has been built for other labels."""
        if self._given["train"] is None:
            raise DomainbertError("model: found a tokenizer and no train set; expected a fine-tuned model")
        train = self.labelled("train")
        self._learnt = self._learnt or task_of_training(self.task, train)
        if built is not None and built.labels != self._learnt.labels:
            check_set_known(train, self.task.known_labels(built.labels))
            found, expected = ", ".join(self._learnt.labels), ", ".join(built.labels)
            raise DomainbertError(f"train: found the labels {found}; expected {expected}, which the model has")
        return self._learnt

    def _of_folder(self, folder: Any) -> Task[Any, Any]:
        """The task of a model folder; `DomainbertError` if it has no head for the task."""
        if not isinstance(folder, ModelFolder):
            return self._of_training(None)
        task = task_of_folder(folder)
        task.headline = self.task.headline
        if task.name != self.task.name:
            raise DomainbertError(f"model: {folder.path} is for {task.name}; expected {self.task.name}")
        return task

    @property
    def num_items(self) -> int:
        """Examples of the training set."""
        return len(self.items("train"))

    @property
    def order(self) -> GlobalOrder:
        """The examples of each optimizer step."""
        if self._order is None:
            task, seed = self.resolved_task, 1 if self.seed is None else self.seed
            self._order = task.fitting.order(task, self.items("train"), self.batch_size, seed)
        return self._order

    def train_batches(self, share: Share, steps: range) -> Dataset[Batch]:
        """Return the micro-batches of a rank for a range of optimizer steps (from 0)."""
        return LabelledTrainBatches(self.examples("train"), self.tokenizer, self.order, share, steps)

    def validation_batches(self, share: Share) -> Sequence[Dataset[Batch]]:
        """The validation set, if there is one."""
        if self._given["validation"] is None:
            return []
        return [LabelledBatches(self.examples("validation"), self.tokenizer, _VALIDATION_TOKENS, share)]

    def describe(self, step: int) -> dict[str, Any]:
        """The lines of the examples of a step."""
        train = self.labelled("train")
        return {"lines": [train.where(item) for item in self.order.batch(step)[1].tolist()]}

    def test_dataloader(self) -> Batches:
        """The numbers of the items of the test set, dealt to the ranks."""
        return self._numbers("test", len(self.items("test")))

    def predict_dataloader(self) -> Batches:
        """The numbers of the contents to predict, in order, dealt to the ranks."""
        return self._numbers("predict", len(self.contents))

    def _numbers(self, name: str, count: int) -> Batches:
        share = self._share
        if count < share.world_size:
            raise DomainbertError(f"{name}: fewer items than devices ({share.world_size}); use fewer devices")
        numbers = np.arange(count)[share.rank :: share.world_size]
        mine = [
            {"items": numbers[start : start + self.batch_size]} for start in range(0, len(numbers), self.batch_size)
        ]
        return Batches(lambda: DataLoader(mine, batch_size=None), len(mine))  # type: ignore[arg-type]


def _is_tokenizer(path: Path) -> bool:
    """Whether a path is a folder without a model, such as one that `vocab` wrote."""
    return path.is_dir() and not any((path / name).is_file() for name in ("config.json", "seeds.json"))
