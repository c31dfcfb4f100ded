"""One stage from the command line: its settings from files and options, its help, its template."""

from __future__ import annotations

import inspect
import io
import re
import shlex
from argparse import SUPPRESS
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

from jsonargparse import ArgumentParser

from domainbert.errors import DomainbertError, Problems
from domainbert.fingerprint import FileHashes
from domainbert.ranks import process_rank
from domainbert.runner.claim import CONFIG
from domainbert.runner.jobs import FolderState, Job, compared_state, follow_job, run_job
from domainbert.runner.manifest import make_seal
from domainbert.runner.stage_table import Stage
from domainbert.settings.choices import allow_import_words, choices_of, class_path, find_choice, is_choice
from domainbert.settings.command_line import Typed
from domainbert.settings.reader import Settings, read_settings
from domainbert.settings.tree import nearest, read_config
from domainbert.settings.yaml_files import Node, dump_yaml

_WORDING = (
    (r"<class\s+'(\w+)'>", r"\1"),
    (r" '\[\"PATH1\".*", " [PATH,...]"),  # ways of jsonargparse to give a list, which are not those of command_line.py
    (r"Path to a configuration file\.", "YAML file with the settings below."),
    (r"\bNone\b", "null"),
)
"""What jsonargparse and Python docstrings say, as it is in YAML and on the command line."""


def stage_help(stage: Stage) -> str:
    """What `domainbert <stage> --help` prints: every setting with type, default and docstring."""
    usage = f"domainbert {stage.name} [-c FILE]... [--key value]..."
    parser = ArgumentParser(usage=usage, description=stage.description, argument_default=SUPPRESS)
    parser.add_argument("-c", "--config", metavar="FILE", help="YAML file with settings; several: later wins")
    parser.add_argument("--out", metavar="FOLDER", help="folder to write; empty, or none yet (required)")
    parser.add_argument(
        "--resume", metavar="auto", help="go on from the newest checkpoint in the folder, if there is one"
    )
    parser.add_argument("--force", action="store_true", help="replace what this stage has written there before")
    parser.add_argument("--print_config", action="store_true", help="print the settings as YAML and stop")
    allow = "let class_path name classes of these packages of yours (PKG,PKG); they are imported"
    parser.add_argument("--allow-import", metavar="PKG", help=allow)
    for hint in get_type_hints(stage.function).values():
        for base in filter(is_choice, [hint, *get_args(hint)]):
            choices_of(base)  # imports them, so that jsonargparse can list them
    parser.add_function_arguments(stage.function, skip={"out"}, as_group=False)
    return _help_of(parser)


def group_help(stage: Stage, key: str, name: str | None) -> str:
    """What `--encoder.help BertConfig` or `--corpus.sources.help` prints: the settings under one key.

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
        found = find_choice(kind, name)
        if found is None:
            raise DomainbertError(f"--{key}.help: no choice '{name}'; {nearest(name, list(choices))}")
        kind = found
    parser = ArgumentParser(usage=f"settings of {class_path(kind)}", add_help=False)
    parser.add_class_arguments(kind, key)
    return _help_of(parser)


def options_help(kind: type, usage: str, flags: Mapping[str, str]) -> str:
    """The help of a command whose settings are the fields of a dataclass.

    Args:
        kind: the dataclass; its docstring describes the command.
        usage: one line.
        flags: options that are no settings, and what they do.
    """
    parser = ArgumentParser(usage=usage, description=inspect.getdoc(kind), argument_default=SUPPRESS)
    parser.add_argument("-c", "--config", metavar="FILE", help="YAML file with the settings below; several: later wins")
    parser.add_argument("--out", metavar="FOLDER", help="folder to write (required)")
    for name, text in flags.items():
        parser.add_argument(name, action="store_true", help=text)
    parser.add_class_arguments(kind, as_group=False)
    return _help_of(parser)


def _class_under(stage: Stage, key: str) -> type | None:
    """The dataclass that a dotted key takes, be it in a list or optional."""
    hints, kind = get_type_hints(stage.function), None
    for part in key.split("."):
        hint = hints.get(part)
        members = [hint, *get_args(hint)]
        kind = next((member for member in members if is_choice(member) or is_dataclass(member)), None)
        hints = get_type_hints(kind) if kind is not None else {}
    return kind


def _help_of(parser: ArgumentParser) -> str:
    with redirect_stdout(io.StringIO()) as text:
        parser.print_help()
    words = text.getvalue()
    for pattern, replacement in _WORDING:
        words = re.sub(pattern, replacement, words)
    return words


def config_template(stage: Stage, typed: Typed) -> str:
    """What `--print_config` prints: all settings; those still missing are null."""
    problems = Problems(stage.name)
    out, settings = _settings(stage, typed, problems, template=True)
    problems.raise_if_any()
    return dump_yaml({"out": out, **settings.plain})


def run_stage(stage: Stage, typed: Typed) -> str:
    """Check everything, run the stage, and return a closing line.

    One of several processes that is not the first takes part in the stage, and leaves the folder to the first.

    Raises:
        DomainbertError: all problems of the settings together, before torch is imported; or the folder is in use.
    """
    problems = Problems(stage.name)
    out, settings = _settings(stage, typed, problems, template=False)
    if out is None:
        problems.add("--out: missing; expected the folder to write")
    resume = "resume" in typed.flags
    if typed.flags.get("resume", "auto") != "auto":
        problems.add(f"--resume: found '{typed.flags['resume']}'; expected auto")
    problems.raise_if_any()
    job = Job(stage, settings, Path(str(out)), make_seal(stage, settings, FileHashes(), {}))
    force = "force" in typed.flags
    if process_rank() > 0:
        follow_job(job, force)
        return f"{stage.name}: done with the other processes"
    state = compared_state(job, FileHashes())
    if state.done and not force:
        return f"{stage.name}: {job.out} is done already with these settings and inputs; --force runs it again"
    if not force:
        _check_free(job.out, state, resume)
    words = ["domainbert", stage.name, "-c", str(job.out / CONFIG), "--resume", "auto", *allow_import_words()]
    manifest = run_job(job, shlex.join(words), resume=resume and state.resumable and not force)
    return f"{stage.name}: done in {manifest['wall_seconds']:.1f} s, {job.out}"


def _check_free(out: Path, state: FolderState, resume: bool) -> None:
    """`DomainbertError` if the folder holds something that may not simply be replaced."""
    if state.changed and resume:
        raise DomainbertError(
            f"{out}: was interrupted with other settings ({state.changed}); expected the same ones to go on, "
            "or --force to start again"
        )
    if state.damaged:
        raise DomainbertError(
            f"{out}: not as the stage left it: {state.damaged}; expected it as it was, or --force to make it again"
        )
    if state.empty or (resume and state.reason in ("interrupted", "not finished")):
        return
    advice = "--resume auto to go on, or --force to replace it" if state.resumable else "or --force to replace it"
    raise DomainbertError(f"{out}: holds other work ({state.reason}); expected a new folder, {advice}")


def _settings(stage: Stage, typed: Typed, problems: Problems, template: bool) -> tuple[Any, Settings]:
    tree = read_config([Path(file) for file in typed.files], typed.options, "command line")
    out: Node | None = tree.value.get("out")
    if out is not None and not isinstance(out.value, (str, type(None))):
        problems.add(f"{out.where}: out: found {out.shown()}; expected a folder")
    rest = {key: node for key, node in tree.value.items() if key != "out"}
    settings = read_settings(stage.function, replace(tree, value=rest), problems, template=template)
    return typed.flags.get("out", None if out is None else out.value), settings
