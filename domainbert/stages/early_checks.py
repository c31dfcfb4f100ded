"""Checks of the settings of a stage, and of the files they name, before any stage has run. Free of torch.

The metadata of a setting declare that the stage opens a tokenizer or a model there (`settings.schema.TOKENIZER`). What
else can be tried without the outputs of earlier stages, the module of a stage tries in `check_arguments(given: Given)`.
`domainbert <stage>`, `run`, `run --dry-run` and `tune` do both before the first stage runs.

Labelled files are read as a whole, so that an error in their last line is told, too: about 0.3 s for a megabyte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import NO_TASK_HEAD, DomainbertError, needs_package
from domainbert.base.paths import is_installed
from domainbert.corpus.config import CorpusConfig
from domainbert.encoders.config import EncoderConfig, above_layers, check_length
from domainbert.labelled.items import check_labels_known
from domainbert.labelled.sets import LabelledSet, files_of, path_of, paths_of
from domainbert.settings.schema import opens
from domainbert.stages.inputs import Inputs
from domainbert.tasks.config import TaskConfig, folder_name, task_kind
from domainbert.training.config import need_logger
from domainbert.training.length_phases import last_length, phases_of

if TYPE_CHECKING:
    from domainbert.models.folder import ModelFolder


@dataclass
class Given:
    """Arguments of a stage before it runs, and the problems that were found in them.

    A check leaves what an earlier stage has yet to write, and takes the path from the argument at `key` unless told.
    """

    arguments: Mapping[str, Any]
    """All of them but `out`, defaults included."""

    makers: Mapping[str, Given] = field(default_factory=dict)
    """Arguments of the earlier stages that have yet to run, by the paths in their folders that are named here."""

    inputs: Inputs = field(default_factory=Inputs)
    """Opens what the arguments name; the stage continues with it."""

    problems: list[tuple[str, str]] = field(default_factory=list)
    """Dotted keys, and the problems at them."""

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def get(self, name: str) -> Any:
        """An argument; None if the stage has none of that name."""
        return self.arguments.get(name)

    def maker(self, path: Path) -> Given | None:
        """Arguments of the earlier stage that has yet to write a path; None if the path is there already."""
        return self.makers.get(str(path))

    def there(self, path: LabelledSet | None) -> bool:
        """True if an argument names something that no earlier stage has yet to write."""
        return path is not None and all(self.maker(one) is None for one in paths_of(path))

    @contextmanager
    def under(self, key: str) -> Iterator[None]:
        """Note what a `DomainbertError` says, as problems of the argument that they begin with, or of that at `key`.

        An empty key stands for all arguments together.
        """
        try:
            yield
        except DomainbertError as error:
            for problem in error.problems:
                begin, _, rest = problem.partition(": ")
                named = begin == key or begin in self.arguments
                is_file = begin == str(self.get(begin))  # that is called like the argument
                self.problems.append((begin, rest) if named and not is_file else (key, problem))

    def check_declared(self, kind: type) -> None:
        """Note what is wrong with the inputs that a dataclass of settings declares, and packages that are missing."""
        for key, expected in opens(kind).items():
            paths = self[key] if isinstance(self[key], list) else [self[key]]
            for number, path in enumerate(paths):
                place = f"{key}[{number}]" if isinstance(self[key], list) else key
                if expected == "tokenizer":
                    self.check_tokenizer(place, path)
                else:
                    self.check_model(place, path, trained=expected == "trained model")
        for key, value in self.arguments.items():
            if isinstance(value, CorpusConfig) and value.near_duplicate_threshold is not None:
                self.check_installed(f"{key}.near_duplicate_threshold", ["datasketch"], "near-duplicates")
        for name in self.get("loggers") or ():
            with self.under("loggers"):
                need_logger(name)

    def check_installed(self, key: str, packages: Sequence[str], extra: str) -> None:
        """Note missing packages that a setting needs, or that a stage needs where the key is empty."""
        missing = [name for name in packages if not is_installed(name)]
        if missing:
            self.problems.append((key, needs_package(", ".join(missing), extra)))

    def check_tokenizer(self, key: str, path: Path | None) -> None:
        """Note a tokenizer folder that cannot be read."""
        if path is not None and self.there(path):
            with self.under(key):
                self.inputs.tokenizer(path)

    def check_model(self, key: str, path: Path | None, trained: bool = True) -> None:
        """Note a model folder whose family, labels or tokenizer cannot be read, or that cannot learn.

        An exported folder has no weights, and is enough where `trained` is false.
        """
        if path is None or not self.there(path):
            return
        with self.under(key):
            from domainbert.models.folder import need_weights

            folder = self.inputs.model(path)
            if trained:
                need_weights(folder)
            folder.tokenizer()

    def check_task(self, key: str, path: Path | None = None, wanted: str | None = None) -> None:
        """Note a model, there or yet to be made, that has no head for a task, or one for another than `wanted`."""
        path = path or self[key]
        with self.under(key):
            found = self.task_of_model(path)
            if found == "":
                raise DomainbertError(f"{path} has {NO_TASK_HEAD}")
            if found is not None and wanted is not None and found != wanted:
                raise DomainbertError(f"{path} is for {found}; expected {wanted}")

    def task_of_model(self, path: Path) -> str | None:
        """Name of the task that a model is for, empty for one without a head of such; None where that is not told."""
        maker = self.maker(path)
        if maker is None:
            if (folder := self.opened(path)) is None:
                return None
            kind = task_kind(folder.head, folder.fields)
            return "" if kind is None else folder_name(kind)
        task, model = maker.get("task"), maker.get("model")
        if isinstance(task, TaskConfig):
            return task.name
        if task is None and "prepared" in maker.arguments:  # it learns from text without labels
            return ""
        return maker.task_of_model(model) if task is None and model is not None else None

    def check_pairs(self, key: str, path: Path | None = None) -> None:
        """Note a tokenizer, of a model or alone, that frames no pairs of texts where the task reads such."""
        path = path or self[key]
        if path is None or not self.there(path) or not self["task"].reads_pairs:
            return
        folder = self.opened(path)
        with suppress(DomainbertError):  # one that cannot be read has been told
            tokenizer = self.inputs.tokenizer(path) if folder is None else folder.tokenizer()
            with self.under(key):
                tokenizer.template.extra(pair=True)

    def check_max_length(self, encoder: EncoderConfig | None) -> None:
        """Note a window or row that is longer than the encoder's positions, where its architecture is known."""
        with self.under("max_length"):
            check_length(last_length(self["max_length"]), encoder)

    def check_prepared(self, models: Mapping[str, Path]) -> None:
        """Note corpora to come, of which the YAML tells that their rows have other lengths, or that their tokenizer is
        not that of the models, by key, that are there."""
        lengths = {phase.length for phase in phases_of(self["max_length"])}
        for path in (*self["prepared"], *(self.get("held_out") or {}).values()):
            maker = self.maker(path)
            if maker is None or "tokenizer" not in maker.arguments:
                continue
            known = maker.get("row_lengths")
            if known is not None and not lengths <= set(known):
                wrong, have = (", ".join(map(str, sorted(one))) for one in (lengths - set(known), known))
                self.problems.append(
                    ("max_length", f"found {wrong}; expected one of the row_lengths of {path}, {have}")
                )
            for key, model in models.items():
                if self.there(model) and not maker.has_tokenizer_of(model):
                    found = f"{path} is prepared with {maker['tokenizer']}, which is not the tokenizer of {model}"
                    self.problems.append((key, f"{found}; expected tokenizer: {model} in prepare"))

    def has_tokenizer_of(self, model: Path) -> bool:
        """Whether the tokenizer at `tokenizer` is that of a model; not, if it is yet to be trained."""
        maker, folder = self.maker(self["tokenizer"]), self.opened(model)
        if maker is not None:
            return "vocab_size" not in maker.arguments
        try:
            own = self.inputs.tokenizer(self["tokenizer"])
            return folder is None or folder.tokenizer().fingerprint == own.fingerprint
        except DomainbertError:
            return True  # which is told where they are checked

    def check_frozen_layers(self, encoder: EncoderConfig | None) -> None:
        """Note more layers to freeze than the encoder has, where its architecture is known."""
        frozen = self["frozen_layers"]
        if encoder is not None and frozen is not None and frozen > (size := encoder.sizes.num_layers):
            self.problems.append(("frozen_layers", above_layers(frozen, size)))

    def encoder_of(self, path: Path | None) -> EncoderConfig | None:
        """The architecture of a model folder that an argument names, as far as YAML and files tell it."""
        if path is None:
            return None
        maker = self.maker(path)
        if maker is None:
            folder = self.opened(path)
            return None if folder is None else folder.config
        if "student" in maker.arguments:  # it is computed with the teacher
            return None
        own: EncoderConfig | None = maker.get("encoder")
        return own or maker.encoder_of(maker.get("init_from")) or maker.encoder_of(maker.get("model"))

    def check_training_files(self) -> None:
        """Note errors in a training or validation set, and labels of validation that training does not have."""
        known = self.labels_of_training()
        if known is not None:
            with self.under("task"):
                self["task"].check_labels(known)
        self.check_labelled("train", self["task"])
        self.check_labelled("validation", self["task"], known)

    def labels_of_training(self) -> tuple[str, ...] | None:
        """The labels that a stage's models know, from its training set; None where that is not told yet."""
        if self.get("train") is None or self.get("task") is None or not self.there(self["train"]):
            return None
        try:
            labels = [self.inputs.labels(self["task"], file) for file in files_of(self["train"])]
        except DomainbertError:
            return None  # which is told where the file is checked
        return tuple(sorted(set().union(*labels)))

    def check_labelled(self, key: str, task: TaskConfig | None, known: tuple[str, ...] | None = None) -> None:
        """Note errors in a labelled file, and labels beside the `known` ones of training, where these are known.

        Nothing is checked where no task says how the file is read.
        """
        if task is None or not self.there(self[key]):
            return
        for file in files_of(self[key]):
            try:
                labels = self.inputs.labels(task, file)
                if known is not None:
                    check_labels_known(labels, known, path_of(file))
            except DomainbertError as error:
                self.problems += [(key, problem) for problem in error.problems]

    def opened(self, path: Path) -> ModelFolder | None:
        """Facts of a model folder; None where `check_model` has said that it cannot be read."""
        try:
            return self.inputs.model(path)
        except DomainbertError:
            return None
