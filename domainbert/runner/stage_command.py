"""One stage from the command line: its settings from files and options, its help, its template."""

from __future__ import annotations

import inspect
import shlex
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from domainbert.base.choices import allow_import_words, choices_of, class_path, find_choice, is_choice
from domainbert.base.errors import DomainbertError, Problems, nearest
from domainbert.base.freshness import output_names
from domainbert.base.hashes import HASHES
from domainbert.base.paths import WHOLE_PATH, starts_at_home
from domainbert.base.ranks import process_rank
from domainbert.base.sealed import damages
from domainbert.base.validation import field_types
from domainbert.runner.claim import BEING_WRITTEN, CONFIG, NOT_FINISHED, read_status
from domainbert.runner.early_problems import add_early_problems
from domainbert.runner.jobs import (
    FolderState,
    Job,
    compared_state,
    folder_state,
    follow_job,
    make_job,
    refuse_errors,
    run_job,
)
from domainbert.runner.stage_table import Stage
from domainbert.settings.command_line import Typed
from domainbert.settings.help import add_fields, in_words
from domainbert.settings.reader import Settings, read_settings
from domainbert.settings.schema import defaults_of
from domainbert.settings.tree import read_config
from domainbert.settings.type_names import groups_in
from domainbert.settings.yaml_files import Node, dump_yaml
from domainbert.stages.inputs import Inputs

_MOST_EXAMPLES = 10_000


def stage_help(stage: Stage) -> str:
    """Text of `domainbert <stage> --help`: every setting with type, default and docstring."""
    flags = {
        "--resume auto": "the default; if it is given, seeds in the folder that are not asked for any more are removed",
        "--resume or-replace": "resume what fits these settings and inputs, and replace everything else",
        "--force": "replace what this stage has written there before",
        "--print_config": "print the settings as YAML and stop",
        "--allow-import PKG": "let class_path name classes of these packages of yours (PKG,PKG); they are imported",
    }
    if stage.show is not None:
        flags["--show N"] = "print N examples as the model reads them and stop; nothing is written"
    usage = f"domainbert {stage.name} [-c FILE]... [--key value]..."
    return options_help(
        stage.settings, usage, flags, stage.description, "settings", "folder to write; empty, or none yet"
    )


def options_help(
    kind: type,
    usage: str,
    flags: Mapping[str, str],
    description: str | None = None,
    contents: str = "the settings below",
    out: str = "folder to write",
) -> str:
    """The help of a command whose settings are the fields of a dataclass, and whose flags have the help in `flags`.

    The docstring of the dataclass describes the command, unless told.
    """
    parser = ArgumentParser(usage=usage, description=description or inspect.getdoc(kind))
    parser.add_argument("-c", "--config", metavar="FILE", help=f"YAML file with {contents}; several: later wins")
    parser.add_argument("--out", metavar="FOLDER", help=f"{out} (required)")
    for name, text in flags.items():
        parser.add_argument(name, action="store_true", help=text)
    add_fields(parser, kind)
    return in_words(parser)


def group_help(stage: Stage, key: str, name: str | None) -> str:
    """Text of `--encoder.help BertConfig` or `--corpus.sources.help`: the settings under one key.

    Raises:
        DomainbertError: there is nothing under `key`, or it has no choice called `name`.
    """
    kind = _class_under(stage, key)
    if kind is None:
        raise DomainbertError(f"--{key}.help: there are no settings under it; see domainbert {stage.name} --help")
    if is_choice(kind):
        choices = choices_of(kind)
        if name is None:
            return f"{key}: one of {', '.join(choices)}; --{key}.help NAME lists its settings\n"
        kind = find_choice(kind, name)
        if kind is None:
            raise DomainbertError(f"--{key}.help: no choice '{name}'; {nearest(name, list(choices))}")
    parser = ArgumentParser(usage=f"settings of {class_path(kind)}", add_help=False)
    add_fields(parser, kind, f"{key}.", _default_under(stage, key))
    return in_words(parser)


def _default_under(stage: Stage, key: str) -> Any:
    """The stage's own default at a dotted key; None where it has none."""
    first, *rest = key.split(".")
    value = defaults_of(stage.settings).get(first)
    for part in rest:
        value = getattr(value, part, None)
    return value


def _class_under(stage: Stage, key: str) -> type | None:
    """The dataclass that a dotted key takes, even in a list or as an option."""
    hints, kind = field_types(stage.settings), None
    for part in key.split("."):
        kind = next(iter(groups_in(hints.get(part))), None)
        hints = field_types(kind) if kind is not None else {}
    return kind


def config_template(stage: Stage, typed: Typed) -> str:
    """Text of `--print_config`: all settings; those still missing are null."""
    problems = Problems(stage.name)
    out, settings, _ = _settings(stage, typed, problems, template=True)
    problems.raise_if_any()
    return dump_yaml({"out": out, **settings.plain})


def show_examples(stage: Stage, typed: Typed) -> str:
    """Text of `--show N`: examples as the model reads them.

    Raises:
        DomainbertError: lists all problems of the settings and of the files that they name; the stage shows nothing.
    """
    if stage.show is None:
        raise DomainbertError(f"--show: {stage.name} has no examples to show; expected prepare, pretrain or finetune")
    problems, count = Problems(stage.name), typed.flags["show"] or ""
    if not (count.isascii() and count.isdecimal() and 0 < int(count) <= _MOST_EXAMPLES):
        problems.add(f"--show: found '{count}'; expected a number of examples from 1 to {_MOST_EXAMPLES:,}")
    _, settings, tree = _settings(stage, typed, problems, template=False)
    problems.raise_if_any()
    inputs = Inputs()
    add_early_problems(stage, settings, tree, problems, inputs)
    problems.raise_if_any()
    return "\n".join(stage.show(settings.instance, int(count), inputs)) + "\n"


def run_stage(stage: Stage, typed: Typed) -> str:
    """Check everything, run the stage, and return a closing line.

    A process that is not the first takes part in the stage, and leaves the folder to the first one.

    Raises:
        DomainbertError: lists all problems of the settings and of the files that they name, before torch is imported;
            or the folder is in use.
    """
    problems = Problems(stage.name)
    out, settings, tree = _settings(stage, typed, problems, template=False)
    if out is None:
        problems.add("--out: missing; expected the folder to write")
    elif starts_at_home(str(out)):
        problems.add(f"--out: found '{out}'; {WHOLE_PATH}")
    resume = typed.flags.get("resume", "auto")
    if resume not in ("auto", "or-replace"):
        problems.add(f"--resume: found '{resume}'; expected auto or or-replace")
    problems.raise_if_any()
    folder, force = Path(str(out)), "force" in typed.flags
    job = make_job(stage, settings, folder, HASHES, {}, anew=force)
    if process_rank() > 0:
        if force or not folder_state(job).done:  # problems that end the first process have to end the others, too
            add_early_problems(stage, settings, tree, problems, job.inputs)
            problems.raise_if_any()
        follow_job(job, force)
        return f"{stage.name}: done with the other processes"
    state = compared_state(job, HASHES)
    if state.done and not force:
        refuse_errors(state.manifest or {"metrics": {}}, job.out)
        return f"{stage.name}: {job.out} is done already with these settings and inputs; --force runs it again"
    force = force or (resume == "or-replace" and not state.resumable)
    if not force and not _holds_report(job, state):
        _check_free(job, state, may_drop="resume" in typed.flags)
    add_early_problems(stage, settings, tree, problems, job.inputs)
    problems.raise_if_any()
    words = ["domainbert", stage.name, "-c", str(job.out / CONFIG), "--resume", "auto", *allow_import_words()]
    manifest = run_job(job, shlex.join(words), state.resumable and not force, force)
    refuse_errors(manifest, job.out)
    return f"{stage.name}: done in {manifest['wall_seconds']:.1f} s, {job.out}"


def _holds_report(job: Job, state: FolderState) -> bool:
    """Whether the folder holds an earlier report of the same stage, as the stage left it, and nothing else."""
    if not job.stage.reports or state.manifest is None or state.manifest["stage"] != job.stage.name:
        return False
    others = set(output_names(job.out)) - set(state.manifest.get("outputs", ()))
    return not others and not damages(job.out, state.manifest)


def _check_free(job: Job, state: FolderState, may_drop: bool) -> None:
    """Raise `DomainbertError` if the folder holds files that must not be replaced without --force: predictions, say,
    that a stage kept when it failed and that nothing resumes."""
    out, kept = job.out, not job.trains and read_status(job.out).get("state") == "failed"
    if state.changed:
        raise DomainbertError(
            f"{out}: was interrupted with other settings ({state.changed}); expected the same ones to resume, "
            "or --force to start again"
        )
    if state.damaged:
        raise DomainbertError(
            f"{out}: not as the stage left it: {state.damaged}; expected it as it was, or --force to make it again"
        )
    nothing_lost = state.resumable and (may_drop or not (state.drops or kept))
    if state.empty or nothing_lost or (state.reason in (NOT_FINISHED, BEING_WRITTEN) and not kept):
        return
    advice = (
        "--resume auto to go on, or --force to replace it"
        if state.resumable and not kept
        else "or --force to replace it"
    )
    raise DomainbertError(f"{out}: holds other work ({state.reason}); expected a new folder, {advice}")


def _settings(stage: Stage, typed: Typed, problems: Problems, template: bool) -> tuple[Any, Settings, Node]:
    """The output folder, the settings, and what was read."""
    tree = read_config([Path(file) for file in typed.files], typed.options, "command line")
    out: Node | None = tree.value.get("out")
    if out is not None and not (out.value is None or (isinstance(out.value, str) and out.value.strip())):
        problems.add(f"{out.where}: out: found {out.shown()}; expected a folder")
    if "out" in typed.flags and not (typed.flags["out"] or "").strip():
        problems.add("--out: found ''; expected a folder")
    settings = read_settings(stage.settings, tree.without("out"), problems, template=template)
    return typed.flags.get("out", None if out is None else out.value), settings, tree
