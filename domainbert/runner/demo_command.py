"""Run the recipe of the quickstart, which the package contains: the command `domainbert demo`."""

from __future__ import annotations

from pathlib import Path

from domainbert import samples
from domainbert.base.errors import DomainbertError
from domainbert.runner import run_command
from domainbert.settings.command_line import ParsedArguments

FLAGS = run_command.FLAGS
RECIPE = Path(samples.__file__).with_name("quickstart.yaml")
HELP = f"""\
usage: domainbert demo [options]

Run the whole path on synthetic text, in a few minutes on two cores: a vocabulary, pretraining, taggers, a student,
classifiers, and a report with scores, in runs/quickstart. The recipe is samples/quickstart.yaml in the package. An
interrupted demo continues with the same command.

{run_command.OPTIONS}"""


def perform(typed: ParsedArguments) -> int:
    """Run the recipe of the quickstart, as `run_command.run_recipe`."""
    if typed.words or typed.files:
        raise DomainbertError(
            "expected options only", where="demo", hint="domainbert run RECIPE runs a recipe of your own"
        )
    return run_command.run_recipe(RECIPE, typed, "demo")
