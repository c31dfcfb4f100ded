"""Checks of the settings of a stage, and of the files that they name, before any stage runs. Imports no torch.

Fields of the settings declare in their metadata whether they name a tokenizer or a model
(`settings.schema.opened_settings`). A stage module does further checks that need no output of earlier stages in
`check_arguments(arguments)`. `domainbert <stage>`, `run`, `run --dry-run` and `tune` run both before the first stage.

Labelled files are read to their end, which takes about 0.3 s per megabyte, so that every error is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import FINETUNED, NO_TASK_HEAD, DomainbertError, needs_package
from domainbert.base.paths import is_installed
from domainbert.corpus.config import CorpusConfig
from domainbert.encoders.config import EncoderConfig, check_length, frozen_layers_error
from domainbert.labelled.items import check_labels_known
from domainbert.labelled.sets import LabelledSet, files_of, path_of, paths_of
from domainbert.settings.schema import opened_settings
from domainbert.stages.stage import Inputs
from domainbert.tasks.config import TaskConfig, folder_name
from domainbert.tasks.lookup import task_kind
from domainbert.training.config import check_logger_installed
from domainbert.training.length_phases import last_length, phases_of

if TYPE_CHECKING:
    from domainbert.models.folder import ModelFolder


@dataclass
class StageArguments:
    """Arguments of a stage before it runs, and the problems found in them.

    The methods `check_...` add problems to `problems`, and skip paths that a pending stage (an earlier stage of the
    recipe that has not run yet) will write. The default path of a check is the argument at `key`.
    """

    arguments: Mapping[str, Any]
    """All arguments except `out`, including defaults."""

    pending_stages: Mapping[str, StageArguments] = field(default_factory=dict)
    """Arguments of the pending stages, by each path in their output that these arguments name."""

    inputs: Inputs = field(default_factory=Inputs)
    """Inputs that the checks open; the stage reuses them."""

    problems: list[tuple[str, DomainbertError]] = field(default_factory=list)
    """Pairs of a dotted key and the error of the argument there."""

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def get(self, name: str) -> Any:
        """Return an argument; None if the stage has no argument of this name."""
        return self.arguments.get(name)

    def pending_stage(self, path: Path) -> StageArguments | None:
        """Return the arguments of the pending stage that will write `path`; None if there is none."""
        return self.pending_stages.get(str(path))

    def is_ready(self, path: LabelledSet | None) -> bool:
        """Return whether `path` is set and no pending stage has yet to write it; it may still not exist."""
        return path is not None and all(self.pending_stage(file) is None for file in paths_of(path))

    @contextmanager
    def record_problems(self, key: str) -> Iterator[None]:
        """Context manager that adds the errors of a `DomainbertError` to `problems` instead of raising it.

        An error whose `where` begins with an argument (`max_length`) belongs to this argument, any other to `key`. An
        empty `key` refers to the arguments as a whole.
        """
        try:
            yield
        except DomainbertError as error:
            for part in error.errors:
                name, _, rest = part.where.partition(": ")
                at_argument = (name == key or name in self.arguments) and not part.file
                self.problems.append((name, part.at(rest)) if at_argument else (key, part))

    def check_declared(self, settings_class: type) -> None:
        """Check the tokenizers and models that fields of `settings_class` declare, and report missing packages for
        near-duplicates and loggers."""
        for key, expected in opened_settings(settings_class).items():
            paths = self[key] if isinstance(self[key], list) else [self[key]]
            for number, path in enumerate(paths):
                path_key = f"{key}[{number}]" if isinstance(self[key], list) else key
                if expected == "tokenizer":
                    self.check_tokenizer(path_key, path)
                else:
                    self.check_model(path_key, path, trained=expected == "trained model")
        for key, value in self.arguments.items():
            if isinstance(value, CorpusConfig) and value.near_duplicate_threshold is not None:
                self.check_installed(f"{key}.near_duplicate_threshold", ["datasketch"], "near-duplicates")
        for name in self.get("loggers") or ():
            with self.record_problems("loggers"):
                check_logger_installed(name)

    def check_installed(self, key: str, packages: Sequence[str], extra: str) -> None:
        """Report packages that are missing. The setting at `key` needs them, or the whole stage if `key` is empty;
        `extra` is the optional dependency of domainbert that installs them."""
        missing = [name for name in packages if not is_installed(name)]
        if missing:
            self.problems.append((key, needs_package(", ".join(missing), extra)))

    def check_tokenizer(self, key: str, path: Path | None) -> None:
        """Report a tokenizer folder that cannot be read."""
        if path is not None and self.is_ready(path):
            with self.record_problems(key):
                self.inputs.tokenizer(path)

    def check_model(self, key: str, path: Path | None, trained: bool = True) -> None:
        """Report a model folder that cannot be read or, if `trained`, has no weights, such as an exported folder."""
        if path is None or not self.is_ready(path):
            return
        with self.record_problems(key):
            from domainbert.models.folder import need_weights

            folder = self.inputs.model(path)
            if trained:
                need_weights(folder)
            folder.tokenizer()

    def check_task(self, key: str, path: Path | None = None, expected: str | None = None) -> None:
        """Report a model that has no head for a task, or, if `expected` is set, is for another task."""
        path = path or self[key]
        with self.record_problems(key):
            task = self.task_of_model(path)
            if task == "":  # None, if the task is not known yet, is no problem
                raise DomainbertError(f"'{path}' has {NO_TASK_HEAD}", expected=FINETUNED)
            if task is not None and expected is not None and task != expected:
                raise DomainbertError(f"'{path}' is for {task}", expected=f"a model for {expected}")

    def task_of_model(self, path: Path) -> str | None:
        """Return the task of a model, "" for a model without a task head, or None if the task is not known yet."""
        pending = self.pending_stage(path)
        if pending is None:
            if (folder := self.readable_model(path)) is None:
                return None
            kind = task_kind(folder.head, folder.fields)
            return "" if kind is None else folder_name(kind)
        if "prepared" in pending.arguments:  # pretraining
            return ""
        task, model = pending.get("task"), pending.get("model")
        if task is None and model is not None:  # the stage works on a model, such as `export`
            return pending.task_of_model(model)
        return task.name if isinstance(task, TaskConfig) else None

    def check_pairs(self, key: str, path: Path | None = None) -> None:
        """Report a tokenizer that has no template for pairs, if the task reads pairs.

        `path` may also be a tokenizer folder.
        """
        path = path or self[key]
        if path is None or not self.is_ready(path) or not self["task"].reads_pairs:
            return
        folder = self.readable_model(path)
        with suppress(DomainbertError):  # another check reports a tokenizer that cannot be read
            tokenizer = self.inputs.tokenizer(path) if folder is None else folder.tokenizer()
            with self.record_problems(key):
                tokenizer.template.num_special_tokens(pair=True)  # raises the error

    def check_max_length(self, encoder: EncoderConfig | None) -> None:
        """Report a window or row that is longer than the positions of the encoder, if its architecture is known."""
        with self.record_problems("max_length"):
            check_length(last_length(self["max_length"]), encoder)

    def check_prepared(self, models: Mapping[str, Path]) -> None:
        """Report corpora that pending stages prepare with other row lengths, or with another tokenizer than a model.

        `models` are model folders by the key of the setting; models that do not exist yet are skipped.
        """
        lengths = {phase.length for phase in phases_of(self["max_length"])}
        for path in (*self["prepared"], *(self.get("held_out") or {}).values()):
            pending = self.pending_stage(path)
            if pending is None or "tokenizer" not in pending.arguments:
                continue
            prepared = pending.get("row_lengths")
            missing = set() if prepared is None else lengths - set(prepared)
            if missing:
                found = ", ".join(map(str, sorted(missing)))
                expected = f"one of {', '.join(map(str, sorted(prepared)))}, the row_lengths of {path}"
                self.problems.append(("max_length", DomainbertError(found=found, expected=expected)))
            for key, model in models.items():
                if self.is_ready(model) and not pending.has_tokenizer_of(model):
                    problem = f"{path} is prepared with {pending['tokenizer']}, which is not the tokenizer of {model}"
                    hint = f"set tokenizer: {model} in the stage of {path}"
                    self.problems.append((key, DomainbertError(problem, hint=hint)))

    def has_tokenizer_of(self, model: Path) -> bool:
        """Return whether the argument `tokenizer` is the tokenizer of a model.

        Return False only if the tokenizer is known to differ: a pending stage `vocab` trains it, or the fingerprints
        differ. Return True if it is not known yet, because another pending stage writes it or a file is unreadable.
        """
        pending, folder = self.pending_stage(self["tokenizer"]), self.readable_model(model)
        if pending is not None:
            trains_tokenizer = "vocab_size" in pending.arguments  # a setting of `vocab` alone
            return not trains_tokenizer
        with suppress(DomainbertError):  # other checks report unreadable tokenizers
            tokenizer = self.inputs.tokenizer(self["tokenizer"])
            return folder is None or folder.tokenizer().fingerprint == tokenizer.fingerprint
        return True

    def check_frozen_layers(self, encoder: EncoderConfig | None) -> None:
        """Report `frozen_layers` beyond the layers of the encoder, if its architecture is known."""
        frozen = self["frozen_layers"]
        if encoder is not None and frozen is not None and frozen > (size := encoder.sizes.num_layers):
            self.problems.append(("frozen_layers", frozen_layers_error(frozen, size).at("")))

    def encoder_of(self, path: Path | None) -> EncoderConfig | None:
        """Return the configuration of the encoder of the model in `path`; None if it is not known yet."""
        if path is None:
            return None
        pending = self.pending_stage(path)
        if pending is None:
            folder = self.readable_model(path)
            return None if folder is None else folder.config
        if "student" in pending.arguments:  # the architecture depends on the teacher
            return None
        # that stage has an encoder, or starts from a model, which may be the output of a further stage
        encoder: EncoderConfig | None = pending.get("encoder")
        initial_model = pending.get("init_from") or pending.get("model")  # None if the stage has no such setting
        return encoder or pending.encoder_of(initial_model)

    def check_training_files(self) -> None:
        """Report errors in the training and validation sets, and labels that the model will not have."""
        labels = self.training_labels()
        if labels is not None:
            with self.record_problems("task"):
                self["task"].check_labels(labels)
        self.check_labelled("train", self["task"], self["task"].labels)
        self.check_labelled("validation", self["task"], labels)

    def training_labels(self) -> tuple[str, ...] | None:
        """Return the labels of the task or, if it has none, of the training set; None if they are not known yet."""
        task, train = self.get("task"), self.get("train")
        if task is None or train is None:
            return None
        if task.labels is not None:
            return tuple(task.labels)
        if not self.is_ready(train):
            return None
        with suppress(DomainbertError):  # `check_labelled` reports the error
            labels = [self.inputs.labels(task, file) for file in files_of(train)]
            return tuple(sorted(set().union(*labels)))
        return None

    def check_labelled(self, key: str, task: TaskConfig | None, known_labels: tuple[str, ...] | None = None) -> None:
        """Report errors in the labelled set at `key`, and labels that are not in `known_labels`, if set.

        Nothing is checked without a task, because it defines the format of the files.
        """
        if task is None or not self.is_ready(self[key]):
            return
        for file in files_of(self[key]):
            with self.record_problems(key):
                labels = self.inputs.labels(task, file)
                if known_labels is not None:
                    check_labels_known(labels, known_labels, path_of(file))

    def readable_model(self, path: Path) -> ModelFolder | None:
        """Open a model folder; return None if it cannot be read, which `check_model` reports."""
        with suppress(DomainbertError):
            return self.inputs.model(path)
        return None
