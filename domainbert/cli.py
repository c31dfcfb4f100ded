"""The command line: `domainbert <stage> -c some.yaml --key value`, and `domainbert run recipe.yaml`."""

from __future__ import annotations

import io
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from domainbert.base.errors import DomainbertError, ErrorsFound, TrainingStopped
from domainbert.base.ranks import launched_here, process_rank, started_together
from domainbert.base.redact import redact
from domainbert.runner.stage_table import STAGES, load_stage
from domainbert.settings.choices import allow_imports
from domainbert.settings.command_line import Typed, take_apart
from domainbert.settings.tree import nearest

_USAGE = """\
usage: domainbert <stage> [-c FILE]... [--key value]...
       domainbert run RECIPE [--vars.name value] [--stages.name.key value]...
       domainbert report RUN... [--out FILE]
       domainbert report MODEL --attend TEXT [--out FILE]
       domainbert tune -c FILE [--key value]...
       domainbert runs [FOLDER] [--json]
       domainbert init --labelled PATH [--corpus PATH] [--model FOLDER]

Small, fast BERT models of one domain, from raw text to evaluation.

stages:
"""
_RUN_HELP = """\
usage: domainbert run RECIPE [options]

Run the stages of a recipe in order. A stage that is done with the same settings and inputs is skipped. If something
that it wrote is missing or has changed since, nothing runs until --force makes it again.

  --dry-run            print what would run, and why; run nothing
  --only NAME,NAME     these stages only
  --from NAME          this stage and those after it
  --force [NAME,NAME]  run these stages (all, if none is named) and what depends on them, even if they are done
  --verify             hash all files that the stages have read and written; else a quick look at size, times and inode
                       clears a file, and one that it does not clear is hashed
  --vars.NAME TEXT     set a variable of the recipe; so does the environment variable DOMAINBERT_NAME
  --out FOLDER         where the run goes; each stage writes FOLDER/<name>
  --stages.NAME.KEY V  set one value of one stage
  --allow-import PKG   let class_path name classes of these packages of yours (PKG,PKG); they are imported

Relative paths are relative to the current folder. "@name" is the folder of an earlier stage.
"""
_STAGE_FLAGS = {
    "out": "one",
    "resume": "one",
    "force": "none",
    "show": "one",
    "print_config": "none",
    "allow_import": "one",
}
_RUN_FLAGS = {
    "dry_run": "none",
    "only": "one",
    "from": "one",
    "force": "optional",
    "verify": "none",
    "allow_import": "one",
}
_RUNS_FLAGS = {"json": "none"}
_REPORT_FLAGS = {"out": "one", "attend": "one", "allow_import": "one"}
_TUNE_FLAGS = {"extend": "none", "allow_import": "one"}

_TRY_AGAIN = 75  # EX_TEMPFAIL of sysexits.h


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    It is 0, 1 for errors that `check` found in the data, 2 for what else the user can fix, 75 if it can be resumed.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    warnings.formatwarning = _without_place
    if process_rank() > 0:
        sys.stdout = io.StringIO()  # only the first process prints
    try:
        return _dispatch(words)
    except (DomainbertError, TrainingStopped) as error:
        sys.stderr.write(f"domainbert: {redact(str(error))}\n")
        if isinstance(error, DomainbertError):
            return 1 if isinstance(error, ErrorsFound) else 2
        return 0 if launched_here() else _TRY_AGAIN  # Lightning kills the first process when another one fails
    except BrokenPipeError:  # `domainbert --help | head`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        sys.stderr.write(f"domainbert: {str(error.filename)[:200]}: {error.strerror}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("domainbert: interrupted\n")
        return 130


def _without_place(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A library's warning on a line of its own; its place in the library does not help a user."""
    return f"warning: {' '.join(str(message).split())}\n"


def _dispatch(words: list[str]) -> int:
    if words[:1] == ["run"]:
        return _run(take_apart(words[1:], _RUN_FLAGS))
    if not words or words[0] in ("-h", "--help"):
        text = _usage()
    elif words[0] == "--version":
        from domainbert import __version__

        text = f"domainbert {__version__}\n"
    elif words[0] == "report":
        text = _report(take_apart(words[1:], _REPORT_FLAGS))
    elif words[0] == "tune":
        text = _tune(take_apart(words[1:], _TUNE_FLAGS))
    elif words[0] == "runs":
        text = _runs(take_apart(words[1:], _RUNS_FLAGS))
    elif words[0] == "init":
        text = _init(words[1:])
    elif words[0] in STAGES:
        text = _stage(words[0], take_apart(words[1:], _STAGE_FLAGS))
    else:
        commands = [*STAGES, "run", "report", "tune", "runs", "init"]
        raise DomainbertError(f"{words[0]}: no such command; {nearest(words[0], commands)}")
    sys.stdout.write(text)
    return 0


def _usage() -> str:
    lines = [f"  {name:<10} {load_stage(name).summary}\n" for name in STAGES]
    lines.append(f"  {'run':<10} Run a recipe: several stages, skipping what is done.\n")
    lines.append(f"  {'report':<10} One page of HTML about a run, or several side by side.\n")
    lines.append(f"  {'tune':<10} Search over the settings of a stage.\n")
    lines.append(f"  {'runs':<10} List runs: how far each has come, its scores, time and size.\n")
    lines.append(f"  {'init':<10} Write a first recipe for your own data.\n")
    return _USAGE + "".join(lines) + "\n'domainbert <stage> --help' lists the settings of a stage.\n"


def _stage(name: str, typed: Typed) -> str:
    from domainbert.runner import stage_command

    allow_imports(typed.flags.get("allow_import"))
    if typed.words:
        raise DomainbertError(f"{typed.words[0]}: found a word alone; expected --key value, or -c FILE")
    stage = load_stage(name)
    if "help" in typed.flags:
        return stage_command.stage_help(stage)
    if typed.help_of is not None:
        return stage_command.group_help(stage, *typed.help_of)
    if "print_config" in typed.flags:
        return stage_command.config_template(stage, typed)
    if "show" in typed.flags:
        return stage_command.show_examples(stage, typed)
    return stage_command.run_stage(stage, typed) + "\n"


def _run(typed: Typed) -> int:
    if "help" in typed.flags:
        sys.stdout.write(_RUN_HELP)
        return 0
    allow_imports(typed.flags.get("allow_import"))
    if len(typed.words) != 1 or typed.files:
        raise DomainbertError("run: expected exactly one recipe: domainbert run recipe.yaml")
    from domainbert.runner.recipe import read_recipe
    from domainbert.runner.recipe_run import Selection, follow_recipe, make_plan, run_plan

    flags = typed.flags
    verify = "verify" in flags
    recipe = read_recipe(Path(typed.words[0]), typed.options, verify=verify)
    force = _names(flags["force"]) if "force" in flags else None
    if force is not None and started_together() > 1:
        raise DomainbertError("--force: cannot be used with several processes; run it once with one, without training")
    selection = Selection(_names(flags.get("only")), flags.get("from"), force)
    if process_rank() > 0:
        if "dry_run" not in flags:
            follow_recipe(recipe, selection)
        return 0
    plan = make_plan(recipe, selection, verify)
    if "dry_run" in flags:
        sys.stdout.writelines(f"{step.line()}\n" for step in plan if step.selected)
        return 2 if any(step.refused for step in plan) else 0
    run_plan(recipe, plan, _same_again(typed))
    return 0


def _report(typed: Typed) -> str:
    from domainbert.report import command

    allow_imports(typed.flags.get("allow_import"))
    return command.HELP if "help" in typed.flags else command.report(typed) + "\n"


def _tune(typed: Typed) -> str:
    from domainbert.tuning import command
    from domainbert.tuning.search import read_search

    if "help" in typed.flags:
        return command.tune_help()
    allow_imports(typed.flags.get("allow_import"))
    if typed.words or not typed.files:
        raise DomainbertError("tune: expected a YAML: domainbert tune -c FILE")
    search = read_search([Path(file) for file in typed.files], typed.options)
    return command.run_search(search, typed) + "\n"


def _runs(typed: Typed) -> str:
    from domainbert.runner.listing_table import RUNS_HELP, list_command

    if "help" in typed.flags:
        return RUNS_HELP
    if len(typed.words) > 1 or typed.files or typed.options:
        raise DomainbertError("runs: expected at most one folder, and --json: domainbert runs FOLDER")
    return list_command(typed)


def _init(words: list[str]) -> str:
    from domainbert.runner.first_recipe import command

    typed = take_apart(words, command.FLAGS)
    if "help" in typed.flags:
        return command.HELP
    allow_imports(typed.flags.get("allow_import"))
    return command.write_recipe(typed)


def _same_again(typed: Typed) -> str:
    """The command that resumes a recipe; stages that were forced are not forced again."""
    options = [f"--{name}={value}" for name, value in typed.options]
    once = ("force", "dry_run", "verify")
    options += [f"--{name}={value}" for name, value in typed.flags.items() if name not in once]
    return shlex.join(["domainbert", "run", *typed.words, *options])


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name for name in (text or "").split(",") if name)


if __name__ == "__main__":
    sys.exit(main())
