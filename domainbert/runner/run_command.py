"""`domainbert run`: reads a recipe, plans and runs it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from domainbert.base.errors import DomainbertError
from domainbert.base.ranks import process_rank, started_together
from domainbert.runner.recipe import read_recipe
from domainbert.runner.recipe_run import Selection, follow_recipe, make_plan, run_plan
from domainbert.settings.command_line import Typed

FLAGS = {
    "dry_run": "none",
    "only": "one",
    "from": "one",
    "force": "optional",
    "verify": "none",
    "allow_import": "one",
}
HELP = """\
usage: domainbert run RECIPE [options]

Run the stages of a recipe in order. A stage that is done with the same settings and inputs is skipped. If something
that it wrote is missing or has changed since, nothing runs until --force makes it again.

  --dry-run            print what would run, and why; run nothing
  --only NAME,NAME     these stages only, and the check that the recipe runs by itself before trainings among them
  --from NAME          this stage and those after it
  --force [NAME,NAME]  run these stages (all, if none is named) and what depends on them, even if they are done
  --verify             hash all files that the stages have read and written; else a quick look at size, times and inode
                       clears a file, and one that it does not clear is hashed
  --vars.NAME TEXT     set a variable of the recipe; so does the environment variable DOMAINBERT_NAME
  --out FOLDER         where the run goes; each stage writes FOLDER/<name>
  --stages.NAME.KEY V  set one value of one stage; --check.KEY V one of the checks that the recipe runs by itself
  --allow-import PKG   let class_path name classes of these packages of yours (PKG,PKG); they are imported

Relative paths are relative to the current folder. "@name" is the folder of an earlier stage.
"""


def help_text() -> str:
    """Text of `domainbert run --help`."""
    return HELP


def perform(typed: Typed) -> int:
    """Run the recipe, or print what would run; the exit code is 2 where a folder was damaged.

    Raises:
        DomainbertError: no recipe or several, anything wrong with it, or from a stage.
        TrainingStopped: a signal came; the same command goes on.
    """
    if len(typed.words) != 1 or typed.files:
        raise DomainbertError("run: expected exactly one recipe: domainbert run recipe.yaml")
    flags = typed.flags
    verify = "verify" in flags
    force = _names(flags, "force") if "force" in flags else None
    selection = Selection(_names(flags, "only"), flags.get("from"), force)
    recipe = read_recipe(Path(typed.words[0]), typed.options, verify=verify, selection=selection)
    for name in ("force", "verify"):
        if name in flags and started_together() > 1:
            raise DomainbertError(
                f"--{name}: cannot be used with several processes; run it once with one, without training"
            )
    if process_rank() > 0:
        if "dry_run" not in flags:
            follow_recipe(recipe, selection)
        return 0
    for message in recipe.left_out:
        print(f"{message}; the stage is not asked for, and left out", flush=True)
    plan = make_plan(recipe, selection, verify)
    if "dry_run" in flags:
        sys.stdout.writelines(f"{step.line()}\n" for step in plan if step.selected)
        return 2 if any(step.refused for step in plan) else 0
    run_plan(recipe, plan, _same_again(typed, recipe.variables))
    return 0


def _same_again(typed: Typed, variables: Mapping[str, str]) -> str:
    """The command that resumes a recipe, with the `variables` that the environment has set; stages that were forced are
    not forced again."""
    options = [f"--vars.{name}={value}" for name, value in variables.items()]
    options += [f"--{name}={value}" for name, value in typed.options]
    once = ("force", "dry_run", "verify")
    options += [f"--{name}={value}" for name, value in typed.flags.items() if name not in once]
    return shlex.join(["domainbert", "run", *typed.words, *options])


def _names(flags: Mapping[str, str | None], option: str) -> tuple[str, ...]:
    """The names that an option has; none where it is not given, or stands alone."""
    text = flags.get(option)
    names = tuple(name for name in (text or "").split(",") if name)
    if text is not None and not names:  # a variable of the shell that is not set
        raise DomainbertError(f"--{option}: found '{text}'; expected names of stages, NAME,NAME")
    return names
