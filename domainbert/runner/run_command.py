"""Read, plan and run a recipe: the command `domainbert run`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from domainbert.base.errors import DomainbertError
from domainbert.base.process import launched_world_size, process_rank
from domainbert.runner.recipe import read_recipe
from domainbert.runner.recipe_plan import Selection, make_plan
from domainbert.runner.recipe_run import follow_recipe, run_plan
from domainbert.settings.command_line import ParsedArguments

FLAGS = {
    "dry_run": "none",
    "only": "one",
    "from": "one",
    "force": "optional",
    "verify": "none",
    "allow_import": "one",
}
_FLAGS_APPLIED_ONCE = ("force", "dry_run", "verify", "extend")
OPTIONS = """\
  --dry-run            print which stages would run, and why; run nothing
  --only NAME,NAME     run only these stages, and the automatic check before trainings among them
  --from NAME          run this stage and all later stages
  --force [NAME,NAME]  run these stages (default: all) and the stages that depend on them, even if they are done
  --verify             hash all input and output files; by default, only files whose size, times or inode have changed
                       are hashed
  --vars.NAME TEXT     set a variable of the recipe; the environment variable DOMAINBERT_NAME does the same
  --out FOLDER         output folder of the run; each stage writes FOLDER/<name>
  --stages.NAME.KEY V  override a setting of a stage; --check.KEY V overrides a setting of the automatic checks
  --allow-import PKG   allow class_path to name classes of your packages (PKG,PKG), which are imported
"""
HELP = f"""\
usage: domainbert run RECIPE [options]

Run the stages of a recipe in order. A stage that is done with the same settings and inputs is skipped. If one of its
output files is missing or was changed, no stage runs until --force runs this stage again.

{OPTIONS}
Relative paths are relative to the current folder. "@name" is the folder of an earlier stage.
"""


def perform(typed: ParsedArguments) -> int:
    """Run the recipe that the command line names, as `run_recipe`."""
    if len(typed.words) != 1 or typed.files:
        raise DomainbertError("expected exactly one recipe, without -c: domainbert run recipe.yaml", where="run")
    return run_recipe(Path(typed.words[0]), typed, "run")


def run_recipe(path: Path, typed: ParsedArguments, command: str) -> int:
    """Run a recipe, or print its plan, and return the exit code: 2 if `--dry-run` finds a refused stage, else 0.

    `typed` has the flags and options of the command line; `command` (`run` or `demo`) resumes the run.
    """
    flags = typed.flags
    verify, dry_run = "verify" in flags, "dry_run" in flags
    force = _names_of_option(flags, "force") if "force" in flags else None
    selection = Selection(only=_names_of_option(flags, "only"), first=flags.get("from"), force=force)
    recipe = read_recipe(path, typed.options, verify=verify, selection=selection)
    for name in ("force", "verify"):
        if name in flags and launched_world_size() > 1:
            raise DomainbertError(
                "cannot be used in a launch of several processes",
                where=f"--{name}",
                hint="run this command without torchrun or srun",
            )
    if process_rank() > 0:  # only the first process plans and prints
        if not dry_run:
            follow_recipe(recipe, selection)
        return 0

    for message in recipe.left_out:
        print(f"{message}; the stage is left out, because it is not selected", flush=True)
    plan = make_plan(recipe, selection, verify)
    if dry_run:
        sys.stdout.writelines(f"{step.dry_run_line()}\n" for step in plan if step.selected)
        return 2 if any(step.refused for step in plan) else 0
    run_plan(recipe, plan, resume_command(command, typed, recipe.variables))
    return 0


def resume_command(command: str, typed: ParsedArguments, variables: Mapping[str, str]) -> str:
    """Return the command line that resumes a run or a search, without flags that apply only once, such as `--force`.

    `variables` are the variables of the YAML that the environment has set.
    """
    words = [*typed.words, *(word for file in typed.files for word in ("-c", file))]
    words += [f"--vars.{name}={value}" for name, value in variables.items()]
    words += [f"--{name}={value}" for name, value in typed.options]
    words += [f"--{name}={value}" for name, value in typed.flags.items() if name not in _FLAGS_APPLIED_ONCE]
    return shlex.join(["domainbert", command, *words])


def _names_of_option(flags: Mapping[str, str | None], option: str) -> tuple[str, ...]:
    text = flags.get(option)
    names = tuple(name for name in (text or "").split(",") if name)
    if text is not None and not names:  # such as an unset shell variable
        raise DomainbertError(where=f"--{option}", found=f"'{text}'", expected="names of stages: NAME,NAME")
    return names
