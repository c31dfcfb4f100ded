"""Plan which stages of a recipe have to run, and why, for `domainbert run`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from domainbert.base.errors import DomainbertError, Problems, suggest_name
from domainbert.base.files import FileHashes, read_json
from domainbert.base.freshness import format_examples
from domainbert.runner.claim import RECIPE, STREAM_ENDED
from domainbert.runner.job_state import FolderState, Job, make_job, verified_state
from domainbert.runner.stage_table import referred_stages

FORCED, REMAKE = "forced", "remake"
"""Keys of `RECIPE`: stages that are forced; and stages that are forced and must not resume their interrupted run, which
began before they were forced."""


@dataclass(frozen=True)
class Recipe:
    """A validated recipe."""

    out: Path
    hashes: FileHashes  # hashes of input files; saved in `out` when the recipe runs
    jobs: dict[str, Job] = field(default_factory=dict)  # stage names to jobs, in the order in which they run
    checks: dict[str, frozenset[str]] = field(default_factory=dict)
    """Automatic checks by name, each with the trainings that need it."""
    variables: Mapping[str, str] = field(default_factory=dict)  # variables that were set by the environment
    left_out: list[str] = field(default_factory=list)
    """Messages about missing input files of stages that are neither selected nor needed; `jobs` omits these stages."""

    def dependents(self, names: Sequence[str]) -> list[str]:
        """Return the named stages and all stages that depend on them, in order."""
        dependent = set(names)
        for name, job in self.jobs.items():
            if dependent & set(referred_stages(job.settings)):
                dependent.add(name)
        return [name for name in self.jobs if name in dependent]


@dataclass(frozen=True)
class Selection:
    """Stages that the command line selects."""

    only: tuple[str, ...] = ()  # names of `--only`; empty selects all stages
    first: str | None = None  # name of `--from`: this stage and all later stages
    force: tuple[str, ...] | None = None
    """Stages of `--force`, which run even if they are done, with their dependents; empty means every selected stage."""

    def select(self, names: Sequence[str]) -> list[str]:
        """Return the names of the selected stages; `names` are all stages of the recipe, in order."""
        names = names[names.index(self.first) :] if self.first is not None else names
        return [name for name in names if not self.only or name in self.only]

    def named_by_force(self, names: Sequence[str]) -> Sequence[str]:
        """Return the stages of `--force`: all selected stages if it has no names, and none without `--force`."""
        if self.force is None:
            return ()
        return self.force or self.select(names)


@dataclass(frozen=True)
class PlannedStage:
    """A stage of the plan."""

    name: str
    job: Job
    state: FolderState
    run: bool  # whether the stage runs
    reason: str  # reason why the stage runs or is skipped
    forced: bool
    """Whether the stage runs even if it is done; an unselected stage runs with the next command that selects it."""
    selected: bool = True  # whether the command line selects the stage; nothing is printed about other stages

    @property
    def refused(self) -> bool:
        """Whether the folder is damaged and the command line does not force the stage."""
        return self.run and bool(self.state.damaged) and not self.forced

    def dry_run_line(self) -> str:
        """Return the line that `--dry-run` prints."""
        action, reason = "run " if self.run else "skip", self.reason
        if self.refused:
            action, reason = "stop", f"{reason}; restore the files, or use --force {self.name}"
        return f"{action}  {self.name} ({reason}) -> {self.job.out}"


def make_plan(recipe: Recipe, selection: Selection, verify: bool = False) -> list[PlannedStage]:
    """Return the plan: for every stage of the recipe whether it runs, and why.

    With `verify`, every output file is hashed, even if its size and times are unchanged.

    Raises:
        DomainbertError: an unknown stage name; a folder with foreign files; a selected stage needs a stage that is
            neither selected nor done.
    """
    selected = selected_stages(recipe, selection)
    forced = recipe.dependents(selection.named_by_force(list(recipe.jobs)))
    # the other forced stages run later: `run_plan` records them for `still_forced`
    if forced_now := {name for name in forced if name in selected}:
        recipe = _with_new_keys(recipe, forced_now)

    problems = Problems("plan")
    states = {}
    for name, job in recipe.jobs.items():
        with problems.collecting():
            states[name] = verified_state(job, recipe.hashes, verify)
    problems.raise_if_any()
    for name in still_forced(recipe):
        if name in states and (states[name].done or states[name].damaged):  # in other states, a stage runs anyway
            forced.append(name)
    forced += [name for name in still_forced(recipe, REMAKE) if name in states]

    plan = [
        _planned_stage(name, job, states[name], selected=name in selected, forced=name in forced)
        for name, job in recipe.jobs.items()
    ]
    _check_plan(recipe, plan)
    return plan


def _planned_stage(name: str, job: Job, state: FolderState, selected: bool, forced: bool) -> PlannedStage:
    """A stage with an empty folder runs without --force, too: its reason is "never run", and if it is not selected, it
    is not recorded as forced."""
    needs_force = forced and not state.empty
    if not selected:
        return PlannedStage(name, job, state, run=False, reason=state.reason, forced=needs_force, selected=False)
    reason = "forced" if needs_force else state.reason
    return PlannedStage(name, job, state, run=forced or not state.done, reason=reason, forced=forced)


def _check_plan(recipe: Recipe, plan: Sequence[PlannedStage]) -> None:
    problems = Problems("plan")
    steps = {step.name: step for step in plan}
    for step in plan:
        if not step.run:
            continue
        for other in referred_stages(step.job.settings):
            if not steps[other].run and not steps[other].state.done:
                reason = steps[other].state.reason
                advice = f"add {other} to --only, or use --from {other}"
                advice += ", or --check false to skip all checks" if step.name in recipe.checks else ""
                problems.add(
                    f"needs stage {other}, which is not up to date ({reason})", where=f"stage {step.name}", hint=advice
                )
        if not step.forced:
            _check_replaceable(step, problems)
    problems.raise_if_any()


def _check_replaceable(step: PlannedStage, problems: Problems) -> None:
    """Report files in the folder of a stage that only --force may delete."""
    state, out, where, force = step.state, step.job.out, f"stage {step.name}", f"or use --force {step.name}"
    if state.changed:
        found = f"was interrupted, and its settings or inputs have changed ({state.changed})"
        problems.add(found, where=where, hint=f"undo the change to resume, {force} to start again")
    if state.reason == STREAM_ENDED:
        found = f"{STREAM_ENDED}, and its output is kept in {out}"
        problems.add(found, where=where, hint=f"move the output, {force} to replace it")
    if names := state.foreign_names(out):
        found = f"has to run again, but its folder has files that it did not write ({format_examples(names)})"
        problems.add(found, where=where, hint=f"move them out of {out}, {force} to delete them")


def selected_stages(recipe: Recipe, selection: Selection) -> list[str]:
    """Return the names of the selected stages, in order, with the automatic checks that the selected trainings need.

    Raises:
        DomainbertError: a name that is no stage, a forced stage that is not selected, or nothing is selected.
    """
    _check_names(recipe, selection)
    selected = set(selection.select(list(recipe.jobs)))
    selected |= {check for check, trainings in recipe.checks.items() if trainings & selected}
    problems = Problems("command line")
    for name in selection.force or ():
        if name not in selected:
            problems.add(
                f"the stage '{name}' is not selected by --only or --from",
                where="--force",
                hint="select it too, or omit it",
            )
    problems.raise_if_any()
    if not selected:
        only = ",".join(selection.only)
        raise DomainbertError(
            where="--only", found=f"'{only}'", expected=f"at least one stage from '{selection.first}' on (--from)"
        )
    return [name for name in recipe.jobs if name in selected]


def _check_names(recipe: Recipe, selection: Selection) -> None:
    options = {"--only": selection.only, "--force": selection.force or ()}
    options["--from"] = () if selection.first is None else (selection.first,)
    problems = Problems("command line")
    for option, names in options.items():
        for name in names:
            if name not in recipe.jobs:
                problems.add(f"no stage '{name}' in the recipe", where=option, **suggest_name(name, recipe.jobs))
    problems.raise_if_any()


def still_forced(recipe: Recipe, key: str = FORCED) -> list[str]:
    """Return the names of stages that earlier commands forced but did not finish; the recipe may lack them now. With
    the key `REMAKE`, the stages whose folder has an interrupted run from before."""
    path = recipe.out / RECIPE
    expected = "the stages of a recipe; delete the file, and use --force for stages that were forced and not run yet"
    names: list[str] = read_json(path, expected).get(key, []) if path.is_file() else []
    return names


def _with_new_keys(recipe: Recipe, names: Collection[str]) -> Recipe:
    """Return the recipe with keys for running the stages `names` again, and so with other keys for their dependents.

    The keys of the stages `names` are computed from settings and inputs, not taken from the folders, which an earlier
    version may have written.
    """
    jobs = dict[str, Job]()
    for name, job in recipe.jobs.items():
        keys = {earlier_name: earlier_job.key for earlier_name, earlier_job in jobs.items()}
        jobs[name] = make_job(job.stage, job.settings, job.out, recipe.hashes, keys, job.inputs, new_key=name in names)
    return replace(recipe, jobs=jobs)
