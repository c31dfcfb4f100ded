"""Command line: `domainbert <stage> -c some.yaml --key value`, and `domainbert run recipe.yaml`."""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
import threading
import warnings
from collections.abc import Sequence
from types import ModuleType

from domainbert.base.choices import allow_imports
from domainbert.base.errors import DomainbertError, ErrorsFound, TrainingStopped, suggest_name
from domainbert.base.files import disk_full_message
from domainbert.base.layout import printable
from domainbert.base.paths import check_utf8
from domainbert.base.process import TRY_AGAIN, launched_by_domainbert, process_rank, record_signals
from domainbert.base.redact import redacted_output
from domainbert.runner.stage_table import STAGES, load_stage
from domainbert.settings.command_line import ParsedArguments, parse_arguments

_USAGE = """\
usage: domainbert <stage> [-c FILE]... [--key value]...
       domainbert run RECIPE [--vars.name value] [--stages.name.key value]...
       domainbert demo [--stages.name.key value]...
       domainbert report RUN... [--out FILE]
       domainbert report MODEL --attend TEXT [--out FILE]
       domainbert tune -c FILE [--key value]...
       domainbert runs [FOLDER] [--json]
       domainbert push FOLDER REPOSITORY [--card FILE]
       domainbert init --labelled PATH [--corpus PATH] [--model FOLDER] [--teacher FOLDER]

Train small, fast BERT models for one domain, from raw text to evaluation.
With --json, every command prints an error as a line of JSON with file, line, where, found, expected and hint.

stages:
"""
_COMMANDS = {
    "run": ("domainbert.runner.run_command", "Run a recipe: several stages; finished stages are skipped."),
    "demo": ("domainbert.runner.demo_command", "Run the quickstart, a recipe on synthetic text, in minutes."),
    "init": ("domainbert.runner.first_recipe.command", "Write a first recipe for your own data."),
    "tune": ("domainbert.tuning.command", "Search for the best settings of a stage."),
    "runs": ("domainbert.runner.listing", "List runs: the state of each stage, scores and time."),
    "report": ("domainbert.report.command", "Write an HTML page about a run, or compare several runs."),
    "push": ("domainbert.runner.push", "Upload a model folder to the Hugging Face hub."),
}
"""Commands that are not stages, with module and summary. A module defines `FLAGS`, `HELP` and `perform`, and is
imported when its command is used."""

# Flags of all stages, with the number of their values; other options are settings.
_STAGE_FLAGS = {
    "out": "one",
    "resume": "one",
    "force": "none",
    "show": "one",
    "print_config": "none",
    "allow_import": "one",
}


@redacted_output()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    0: success; 1: `check` found errors in the data; 2: another error that the user can fix; 75: stopped and resumable.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in arguments
    if as_json and arguments[0] != "runs":  # `runs --json` is an option of the command itself: it prints its list
        arguments.remove("--json")
    warnings.formatwarning = _format_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a console may not have all characters, as in cp1252
    threading.excepthook = _report_thread_error
    try:
        if process_rank() > 0:
            sys.stdout = io.StringIO()  # only the first process prints
        with record_signals():
            return _dispatch(arguments)
    except (DomainbertError, TrainingStopped) as error:
        sys.stderr.write(_error_text(error, as_json))
        if isinstance(error, DomainbertError):
            return 1 if isinstance(error, ErrorsFound) else 2
        # 0 in a process that a stage has started: if such a process fails, Lightning kills the first process
        return 0 if launched_by_domainbert() else TRY_AGAIN
    except BrokenPipeError:  # `domainbert --help | head`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout at its exit
        return 1
    except OSError as error:
        if error.filename is None and not disk_full_message(error):
            raise
        problem = DomainbertError(error.strerror, file=printable(str(error.filename or "output")[:200]))
        sys.stderr.write(_error_text(problem, as_json))
        return 2
    except UnicodeEncodeError as error:  # the name of a file on the disk
        encoding, name = error.encoding.upper(), ascii(error.object[:200])
        problem = DomainbertError(f"this name is not {encoding}", file=name, hint="rename it")
        sys.stderr.write(_error_text(problem, as_json))
        return 2
    except KeyboardInterrupt:
        sys.stderr.write(_error_text(TrainingStopped("interrupted"), as_json))
        return 130


def _report_thread_error(args: threading.ExceptHookArgs) -> None:
    # TensorBoard raises the error that the disk is full in the main thread, too
    if args.exc_value is None or not disk_full_message(args.exc_value):
        threading.__excepthook__(args)


def _error_text(error: DomainbertError | TrainingStopped, as_json: bool) -> str:
    """Return the text to print for an error, as a sentence or as a line of JSON."""
    if as_json:
        return json.dumps(error.facts() if isinstance(error, DomainbertError) else {"message": str(error)}) + "\n"
    lines = str(error).split("\n")  # with arguments, paths and parts of files
    return "domainbert: " + "\n".join(map(printable, lines)) + "\n"


def _format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Replacement for `warnings.formatwarning`: one line, without the position in the code."""
    return f"warning: {printable(' '.join(str(message).split()))}\n"


def _dispatch(arguments: list[str]) -> int:
    for argument in arguments:
        check_utf8(argument)
    name = arguments[0] if arguments else "--help"
    if name in _COMMANDS:
        return _run_command(name, arguments[1:])
    if name in ("-h", "--help"):
        text = _usage()
    elif name == "--version":
        from domainbert import __version__

        text = f"domainbert {__version__}\n"
    elif name in STAGES:
        text = _run_stage(name, parse_arguments(arguments[1:], _STAGE_FLAGS))
    else:
        raise DomainbertError(f"no command or stage '{name}'", **suggest_name(name, [*STAGES, *_COMMANDS]))
    sys.stdout.write(text)
    return 0


def _usage() -> str:
    lines = [f"  {name:<12} {load_stage(name).summary}\n" for name in STAGES]
    lines += ["\nfurther commands:\n", *(f"  {name:<12} {summary}\n" for name, (_, summary) in _COMMANDS.items())]
    return _USAGE + "".join(lines) + "\n'domainbert <stage> --help' lists the settings of a stage.\n"


def command_module(name: str) -> ModuleType:
    """Import and return the module of a command that is not a stage, such as `run`."""
    return importlib.import_module(_COMMANDS[name][0])


def _run_command(name: str, arguments: list[str]) -> int:
    command = command_module(name)
    typed = parse_arguments(arguments, command.FLAGS)
    if "help" in typed.flags:
        sys.stdout.write(command.HELP)
        return 0
    if typed.help_of is not None:
        where, hint = f"--{typed.help_of[0]}.help", "use `domainbert STAGE --help`, and `--SETTING.help` of a stage"
        raise DomainbertError(f"no option of {name}", where=where, hint=hint)
    allow_imports(typed.flags.get("allow_import"))
    code: int = command.perform(typed)
    return code


def _run_stage(name: str, typed: ParsedArguments) -> str:
    from domainbert.runner import stage_command

    allow_imports(typed.flags.get("allow_import"))
    if typed.words:
        raise DomainbertError(found=f"'{typed.words[0]}' without an option", expected="-c FILE or --KEY VALUE")
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


if __name__ == "__main__":
    sys.exit(main())
