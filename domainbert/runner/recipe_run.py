"""`domainbert run`: plans which stages of a recipe have to run, runs them, and prints the table at the end."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError, ErrorsFound, Problems, TrainingStopped, nearest
from domainbert.base.files import read_json, told_if_full, write_json
from domainbert.base.hashes import FileHashes
from domainbert.base.progress import format_duration
from domainbert.base.sealed import read_manifest
from domainbert.report.command import FILE, report_after_run
from domainbert.runner.jobs import (
    FolderState,
    Job,
    compared_state,
    follow_job,
    make_job,
    refuse_errors,
    run_in_turn,
)
from domainbert.runner.manifest import referred_stages
from domainbert.runner.results_table import results_table

RECIPE = "recipe.json"
"""The stages of a recipe by name, in order, those that are yet to run among them; the command; and the stages that were
to be made again by force, and have not been yet."""


@dataclass(frozen=True)
class Recipe:
    """A checked recipe."""

    out: Path
    jobs: dict[str, Job]
    """Stage names to jobs, in the order in which they run."""
    hashes: FileHashes
    """Hashes of input files; saved in `out` when the recipe runs."""
    checks: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The checks that the recipe runs by itself, by name, and the trainings that are not run without each."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Those that the environment has set, by name."""
    left_out: Sequence[str] = ()
    """The input files that stages lack which are neither selected nor needed: these are not among the jobs."""

    def dependents(self, names: Sequence[str]) -> list[str]:
        """The named stages and all that depend on them, in order."""
        found = set(names)
        for name, job in self.jobs.items():
            if found & set(referred_stages(job.settings)):
                found.add(name)
        return [name for name in self.jobs if name in found]


@dataclass(frozen=True)
class Selection:
    """Stages that the command line asks for."""

    only: tuple[str, ...] = ()
    """Only these stages; empty means all."""
    first: str | None = None
    """This stage and those after it."""
    force: tuple[str, ...] | None = None
    """These stages run even if they are done, with those that depend on them; empty means every selected stage."""

    def among(self, names: Sequence[str]) -> list[str]:
        """The selected ones of the stages of a recipe, which are in order."""
        names = names[names.index(self.first) :] if self.first is not None else names
        return [name for name in names if not self.only or name in self.only]


@dataclass(frozen=True)
class PlannedStage:
    """One stage of the plan."""

    name: str
    job: Job
    state: FolderState
    run: bool
    reason: str
    forced: bool
    """Whether it is made again, by this command or, where it is not selected, by the next one that selects it."""
    selected: bool = True
    """Whether the command line asks for it; nothing is printed about the others."""

    @property
    def refused(self) -> bool:
        """Whether its folder was damaged, and the command line does not allow to replace it."""
        return self.run and bool(self.state.damaged) and not self.forced

    def line(self) -> str:
        """For `--dry-run`."""
        what = "stop" if self.refused else "run " if self.run else "skip"
        return f"{what}  {self.name} ({self.reason}) -> {self.job.out}"


def make_plan(recipe: Recipe, selection: Selection, verify: bool = False) -> list[PlannedStage]:
    """Decide for every stage whether it runs, and why.

    With `verify`, every file that a stage has written is hashed, instead of a quick look.

    Raises:
        DomainbertError: an unknown stage name; a folder with foreign files; a selected stage needs one that is neither
            selected nor done.
    """
    _check_names(recipe, selection)
    chosen = _chosen(recipe, selection)
    forced = selection.among(list(recipe.jobs)) if selection.force == () else recipe.dependents(selection.force or ())
    forced += [name for name in recipe.dependents(forced) if name not in chosen]
    if made_again := {name for name in forced if name in chosen}:
        recipe = _sealed_anew(recipe, made_again)
    problems, states = Problems("plan"), {}
    for name, job in recipe.jobs.items():
        try:
            states[name] = compared_state(job, recipe.hashes, verify)
        except DomainbertError as error:
            problems.add(str(error))
    problems.raise_if_any()
    left = [name for name in _still_forced(recipe) if name in states]
    forced = [*forced, *(name for name in left if states[name].done or states[name].damaged)]
    plan = [_step(name, job, states[name], name in chosen, name in forced) for name, job in recipe.jobs.items()]
    steps = {step.name: step for step in plan}
    for step in plan:
        for other in referred_stages(step.job.settings) if step.run else []:
            if not steps[other].run and not states[other].done:
                reason = states[other].reason
                told = f"{step.name}: needs @{other}, which is not up to date ({reason}); run it too"
                problems.add(told + (", or train unchecked: --check false" if step.name in recipe.checks else ""))
        if step.run and step.state.changed and not step.forced:
            problems.add(
                f"{step.name}: was interrupted with other settings ({step.state.changed}); "
                f"expected the same ones to resume, or --force {step.name} to start again"
            )
    problems.raise_if_any()
    return plan


def follow_recipe(recipe: Recipe, selection: Selection) -> None:
    """Run a recipe in a process that is not the first: take part in training, and wait for the rest.

    Raises:
        ErrorsFound: a stage found errors in the data, so that the first process goes no further.
    """
    _check_names(recipe, selection)
    for name in _chosen(recipe, selection):
        job = recipe.jobs[name]
        follow_job(job)
        made = read_manifest(job.out)
        if made is not None and (made["metrics"] or {}).get("errors"):
            raise ErrorsFound(f"{job.out}: the first process found errors in the data, and says which")


def run_plan(recipe: Recipe, plan: Sequence[PlannedStage], go_on: str) -> dict[str, Any]:
    """Run the stages of the plan, print the table of results and all warnings, and write and return `results.json`.

    If something ran, `report.html` is written beside it.

    `go_on` is the command that resumes after an interruption.

    Raises:
        DomainbertError: a stage's folder was damaged, and it is not forced; or from a stage.
        ErrorsFound: a stage found errors in the data; those after it do not run.
    """
    problems = Problems("run")
    for step in filter(lambda step: step.refused, plan):
        problems.add(
            f"stage {step.name}: {step.job.out}: not as the stage left it: {step.state.damaged}; "
            f"expected it as it was, or --force {step.name} to make it again, and what depends on it"
        )
    problems.raise_if_any()
    selected = {step.name for step in plan if step.selected}
    forced = [step.name for step in plan if step.forced]
    later = [step.name for step in plan if step.forced and not step.selected]
    if later:
        print(f"made again by the next command without --only: {', '.join(later)}", flush=True)
    with told_if_full(recipe.out):
        recipe.hashes.save()
        _write_recipe(recipe, go_on, without=selected, forced=forced)
    manifests: dict[str, dict[str, Any]] = {}
    for step in plan:
        if step.run:
            print(f"{step.name}: running ({step.reason})", flush=True)
            manifests[step.name] = _run(step, go_on)
            if step.forced:
                _write_recipe(recipe, go_on, without={step.name})
        else:
            if step.selected:
                print(f"{step.name}: skipped ({step.reason})", flush=True)
            if step.state.done and step.state.manifest is not None:
                manifests[step.name] = step.state.manifest
        if step.selected and step.name in manifests:
            refuse_errors(manifests[step.name], step.job.out)
    for step in plan:
        if step.name not in manifests and (manifest := _made_meanwhile(step, recipe.hashes)) is not None:
            manifests[step.name] = manifest
    manifests = {step.name: manifests[step.name] for step in plan if step.name in manifests}
    stale = bool(manifests) and (any(step.run for step in plan) or not (recipe.out / FILE).is_file())
    return _tell_results(recipe.out, manifests, with_page=stale)


def _made_meanwhile(step: PlannedStage, hashes: FileHashes) -> dict[str, Any] | None:
    """The manifest of a stage that another process has run since the plan was made; None if none has."""
    if step.state.damaged:
        return None
    try:
        found = compared_state(step.job, hashes)
    except DomainbertError:  # files of somebody else, which this command has not to do with
        return None
    return found.manifest if found.done else None


def _tell_results(out: Path, manifests: Mapping[str, Mapping[str, Any]], with_page: bool) -> dict[str, Any]:
    stages = {name: {"stage": made["stage"], "metrics": made["metrics"]} for name, made in manifests.items()}
    warnings = [
        f"{name}: {warning}" for name, made in stages.items() for warning in (made["metrics"] or {}).get("warnings", [])
    ]
    results = {"out": str(out), "warnings": warnings, "stages": stages}
    with told_if_full(out):
        write_json(out / "results.json", results)
    table = results_table(stages)
    if table:
        print(f"\n{table}\n\n{out / 'results.json'} has all numbers.", flush=True)
    if with_page:
        print(report_after_run(out), flush=True)
    if warnings:
        print("\n  ".join(["\nwarnings:", *warnings]), flush=True)
    return results


def _run(step: PlannedStage, go_on: str) -> dict[str, Any]:
    start = time.monotonic()
    try:
        manifest = run_in_turn(step.job, go_on, step.state.resumable and not step.forced, step.forced)
    except (DomainbertError, TrainingStopped) as error:
        raise type(error)(f"stage {step.name}: {error}") from error
    print(f"{step.name}: done in {format_duration(time.monotonic() - start)}, {step.job.out}", flush=True)
    return manifest


def _check_names(recipe: Recipe, selection: Selection) -> None:
    asked = {"--only": selection.only, "--force": selection.force or ()}
    asked["--from"] = () if selection.first is None else (selection.first,)
    problems = Problems("command line")
    for option, names in asked.items():
        for name in names:
            if name not in recipe.jobs:
                problems.add(f"{option}: no stage '{name}' in the recipe; {nearest(name, list(recipe.jobs))}")
    problems.raise_if_any()
    for name in selection.force or ():
        if name not in _chosen(recipe, selection):
            problems.add(f"--force: '{name}' is not among the stages of --only or --from; expected one of them")
    problems.raise_if_any()


def _write_recipe(recipe: Recipe, command: str, without: Collection[str], forced: Sequence[str] = ()) -> None:
    """Write `RECIPE`; of the stages still to be forced, which other processes change, too, leave out some and add
    others."""
    kinds = {name: job.stage.name for name, job in recipe.jobs.items()}
    still_forced = dict.fromkeys([*(name for name in _still_forced(recipe) if name not in without), *forced])
    write_json(recipe.out / RECIPE, {"command": command, "stages": kinds, "forced": list(still_forced)})


def _still_forced(recipe: Recipe) -> list[str]:
    """The stages that an earlier command was to make again by force, and has not: it was stopped, or failed. Some of
    them may be left out now."""
    path = recipe.out / RECIPE
    left: list[str] = read_json(path, "the stages of a recipe").get("forced", []) if path.is_file() else []
    return left


def _chosen(recipe: Recipe, selection: Selection) -> list[str]:
    """The stages that are asked for, and the checks that the recipe runs by itself before the trainings among them."""
    asked = set(selection.among(list(recipe.jobs)))
    return [name for name in recipe.jobs if name in asked or asked & recipe.checks.get(name, frozenset())]


def _sealed_anew(recipe: Recipe, names: Collection[str]) -> Recipe:
    """The recipe with new keys of the stages that are made again, and of those that depend on them: what their folders
    hold by now, perhaps of an older version, counts no more."""
    jobs = dict[str, Job]()
    for name, job in recipe.jobs.items():
        keys = {other: made.key for other, made in jobs.items()}
        jobs[name] = make_job(job.stage, job.settings, job.out, recipe.hashes, keys, job.inputs, anew=name in names)
    return replace(recipe, jobs=jobs)


def _step(name: str, job: Job, state: FolderState, chosen: bool, forced: bool) -> PlannedStage:
    if not chosen:
        return PlannedStage(name, job, state, False, state.reason, forced and not state.empty, selected=False)
    reason = "forced" if forced and not state.empty else state.reason
    return PlannedStage(name, job, state, run=forced or not state.done, reason=reason, forced=forced)
