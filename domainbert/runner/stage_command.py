"""Run one stage from the command line, print its help, or print its settings as YAML."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from domainbert.base.choices import allow_import_arguments, choices_of, class_path, find_choice, is_choice
from domainbert.base.errors import DomainbertError, Problems, suggest_name
from domainbert.base.fields import field_types
from domainbert.base.files import HASHES
from domainbert.base.freshness import output_names
from domainbert.base.paths import WHOLE_PATH, starts_at_home
from domainbert.base.process import process_rank
from domainbert.base.run_record import RunRecord, read_record
from domainbert.runner.claim import BEING_WRITTEN, CONFIG, NOT_RESUMABLE, stage_of_config
from domainbert.runner.job_state import FolderState, Job, folder_state, make_job, raise_data_errors, verified_state
from domainbert.runner.jobs import follow_job, run_job
from domainbert.runner.stage_table import Stage, add_early_problems
from domainbert.settings.command_line import ParsedArguments
from domainbert.settings.facts import check_out
from domainbert.settings.help import add_fields, format_help
from domainbert.settings.reader import Settings, read_settings
from domainbert.settings.schema import defaults_of, groups_in
from domainbert.settings.tree import read_config
from domainbert.settings.yaml_files import Node, dump_yaml
from domainbert.stages.stage import Inputs

_MAX_EXAMPLES = 10_000


def stage_help(stage: Stage) -> str:
    """Return the text of `domainbert <stage> --help`: every setting with type, default and docstring."""
    flags = {
        "--resume auto": "the default; if given, seeds in the folder that the settings no longer name are removed",
        "--resume or-replace": "resume a run with the same settings and inputs, and replace any other output",
        "--force": "replace earlier output of this stage",
        "--print_config": "print the settings as YAML and stop",
        "--allow-import PKG": "allow class_path to name classes of your packages (PKG,PKG), which are imported",
    }
    if stage.show is not None:
        flags["--show N"] = "print N examples as the model reads them and stop; nothing is written"
    usage = f"domainbert {stage.name} [-c FILE]... [--key value]..."
    return options_help(stage.settings, usage, flags, stage.description, "folder to write, empty or new")


def options_help(
    settings: type, usage: str, flags: Mapping[str, str], description: str, out: str = "folder to write"
) -> str:
    """Return the help of a command with the options `-c`, `--out`, `flags`, and the fields of a settings dataclass.

    `flags` maps an option to its help, and `out` is the help of `--out`.
    """
    parser = ArgumentParser(usage=usage, description=description)
    help_of_config = "YAML file with the settings below; may be repeated, later files override earlier ones"
    parser.add_argument("-c", "--config", metavar="FILE", help=help_of_config)
    parser.add_argument("--out", metavar="FOLDER", help=f"{out} (required)")
    for name, text in flags.items():
        parser.add_argument(name, action="store_true", help=text)
    add_fields(parser, settings)
    return format_help(parser)


def group_help(stage: Stage, key: str, name: str | None) -> str:
    """Return the text of `--encoder.help BertConfig` or `--corpus.sources.help`: the settings below a key.

    Raises:
        DomainbertError: `key` has no settings, or no choice with this name.
    """
    cls = _class_at(stage, key)
    if cls is None:
        raise DomainbertError(
            f"no settings below the key '{key}'", where=f"--{key}.help", hint=f"see domainbert {stage.name} --help"
        )
    if is_choice(cls):
        choices = choices_of(cls)
        if name is None:
            return f"{key}: one of {', '.join(choices)}; --{key}.help NAME lists its settings\n"
        cls = find_choice(cls, name)
        if cls is None:
            raise DomainbertError(f"no choice '{name}'", where=f"--{key}.help", **suggest_name(name, choices))
    parser = ArgumentParser(usage=f"settings of {class_path(cls)}", add_help=False)
    add_fields(parser, cls, f"{key}.", _default_at(stage, key))
    return format_help(parser)


def _default_at(stage: Stage, key: str) -> Any:
    name, *nested_names = key.split(".")
    value = defaults_of(stage.settings).get(name)
    for nested_name in nested_names:
        value = getattr(value, nested_name, None)
    return value


def _class_at(stage: Stage, key: str) -> type | None:
    """Return the dataclass, or the base class of a choice, whose settings are below a dotted key: `Source` for
    `corpus.sources`; None without any."""
    cls: type | None = stage.settings
    for name in key.split("."):
        hints = {} if cls is None else field_types(cls)
        classes = groups_in(hints.get(name))
        cls = classes[0] if classes else None  # of a union, the first
    return cls


def config_template(stage: Stage, typed: ParsedArguments) -> str:
    """Return the text of `--print_config`: all settings; missing required settings are null."""
    problems = Problems(stage.name)
    out, settings, _ = _read_stage_settings(stage, typed, problems, template=True)
    problems.raise_if_any()
    return dump_yaml({"out": out, **settings.plain})


def show_examples(stage: Stage, typed: ParsedArguments) -> str:
    """Return the text of `--show N`: examples as the model reads them.

    Raises:
        DomainbertError: lists all problems of the settings and their input files, or the stage has no examples.
    """
    if stage.show is None:
        raise DomainbertError(
            f"the stage {stage.name} has no examples", where="--show", hint="use prepare, pretrain or finetune"
        )
    problems, count = Problems(stage.name), typed.flags["show"] or ""
    if not (count.isascii() and count.isdecimal() and 0 < int(count) <= _MAX_EXAMPLES):
        problems.add(where="--show", found=f"'{count}'", expected=f"a number of examples from 1 to {_MAX_EXAMPLES:,}")
    _, settings, tree = _read_stage_settings(stage, typed, problems, template=False)
    problems.raise_if_any()
    inputs = Inputs()
    _check_inputs(stage, settings, tree, inputs)
    return "\n".join(stage.show(settings.instance, int(count), inputs)) + "\n"


def _check_inputs(stage: Stage, settings: Settings, tree: Node, inputs: Inputs) -> None:
    problems = Problems(stage.name)
    add_early_problems(stage, settings, tree, problems, inputs)
    problems.raise_if_any()


def run_stage(stage: Stage, typed: ParsedArguments) -> str:
    """Validate the settings, run the stage, and return the line to print at the end.

    A process of rank > 0 takes part in the stage; only the first process writes the folder.

    Raises:
        DomainbertError: lists all problems of the settings and their input files, before torch is imported; or another
            process is writing the folder.
    """
    problems = Problems(stage.name)
    out, settings, tree = _read_stage_settings(stage, typed, problems, template=False)
    if out is None:
        problems.add("missing", where="--out", expected="the folder to write")
    elif starts_at_home(str(out)):
        problems.add(where="--out", found=f"'{out}'", expected=WHOLE_PATH)
    resume = typed.flags.get("resume", "auto")
    if resume not in ("auto", "or-replace"):
        problems.add(where="--resume", found=f"'{resume}'", expected="'auto' or 'or-replace'")
    problems.raise_if_any()

    folder, force = Path(str(out)), "force" in typed.flags
    check_out(settings, folder)
    job = make_job(stage, settings, folder, HASHES, keys={}, new_key=force)
    if process_rank() > 0:
        if force or not folder_state(job).done:  # a problem that ends the first process has to end the others too
            _check_inputs(stage, settings, tree, job.inputs)
        follow_job(job, force)
        return f"{stage.name}: done, together with the other processes"

    # the first process decides what becomes of the folder
    state = verified_state(job, HASHES)
    if state.done and not force:
        raise_data_errors(state.record or RunRecord(), job.out)
        return f"{stage.name}: {job.out} is already done with these settings and inputs; --force runs it again"
    _check_same_stage(stage, folder, state)
    replace = force or (resume == "or-replace" and not state.resumable)
    if not replace and not _holds_report(job, state):
        _check_replaceable(job, state, may_remove="resume" in typed.flags)
    _check_inputs(stage, settings, tree, job.inputs)

    words = ["domainbert", stage.name, "-c", str(job.out / CONFIG), "--resume", "auto", *allow_import_arguments()]
    record = run_job(job, shlex.join(words), resume=state.resumable and not replace, force=replace)
    raise_data_errors(record, job.out)
    return f"{stage.name}: done in {record.wall_seconds:.1f} s, {job.out}"


def _check_same_stage(stage: Stage, folder: Path, state: FolderState) -> None:
    """Raise `DomainbertError` if the folder holds output of another stage that may be useful."""
    record = read_record(folder)
    name_in_config = stage_of_config(folder) or stage.name  # an empty folder has no `CONFIG`
    earlier = name_in_config if record is None else record.stage
    may_be_useful = state.reason != NOT_RESUMABLE or _has_failed(folder)
    if earlier != stage.name and may_be_useful:
        expected = f"a new folder, or one of the stage {stage.name}"
        raise DomainbertError(f"holds output of the stage {earlier}", file=folder, expected=expected)


def _has_failed(out: Path) -> bool:
    record = read_record(out)
    return record is not None and record.state == "failed"


def _holds_report(job: Job, state: FolderState) -> bool:
    """Return whether the folder holds only an unchanged earlier report of the same stage, which may be replaced."""
    if not job.stage.reports or state.record is None or state.record.stage != job.stage.name:
        return False
    return set(output_names(job.out)) <= set(state.record.outputs) and not state.record.damage(job.out)


def _check_replaceable(job: Job, state: FolderState, may_remove: bool) -> None:
    """Raise `DomainbertError` if a run would remove output that may be useful. With `may_remove`, a run may be resumed
    even if this removes outputs, of seeds that are no longer listed."""
    out = job.out
    if state.changed:
        raise DomainbertError(
            f"was interrupted, and its settings or inputs have changed ({state.changed})",
            where=out,
            hint="undo the change to resume, or use --force to start again",
        )
    if state.damaged:
        raise DomainbertError(
            f"was changed after the stage {job.stage.name} finished ({state.damaged})",
            where=out,
            hint="restore the files, or use --force to run the stage again",
        )
    if state.empty or (state.resumable and (may_remove or not state.removes_outputs)):
        return
    # a failed stage without training may have written useful output, such as the predictions of some files
    if state.reason in (NOT_RESUMABLE, BEING_WRITTEN) and (job.trains or not _has_failed(out)):
        return
    resume = "--resume auto to keep what still fits, " if state.resumable else ""
    raise DomainbertError(
        f"holds output of an earlier run ({state.reason})",
        where=out,
        hint=f"use another --out, {resume}or --force to replace it",
    )


def _read_stage_settings(
    stage: Stage, typed: ParsedArguments, problems: Problems, template: bool
) -> tuple[Any, Settings, Node]:
    """Return the output folder (None if it is missing), the settings, and the YAML tree of the settings."""
    tree = read_config([Path(file) for file in typed.files], typed.options)
    out: Node | None = tree.value.get("out")
    out_in_file = None if out is None else out.value
    is_folder = isinstance(out_in_file, str) and bool(out_in_file.strip())
    if out is not None and out_in_file is not None and not is_folder:
        problems.add(
            where=f"{out.where}: out", found=out.short_text(), expected="a folder as text, such as 'runs/first'"
        )
    if "out" in typed.flags and not (typed.flags["out"] or "").strip():
        problems.add(where="--out", found="''", expected="a folder")
    settings = read_settings(stage.settings, tree.without("out"), problems, template=template)
    return typed.flags.get("out", out_in_file), settings, tree
