"""Plan which stages of a recipe have to run, run them, and print the table of results, for `domainbert run`."""

from __future__ import annotations

import errno
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError, ErrorsFound, Problems, TrainingStopped, suggest_name
from domainbert.base.files import FileHashes, read_json, report_full_disk, write_json
from domainbert.base.freshness import format_examples
from domainbert.base.progress import format_duration
from domainbert.base.run_record import RunRecord, read_record
from domainbert.report.command import FILE, report_after_run
from domainbert.runner.claim import RECIPE, STREAM_ENDED
from domainbert.runner.job_state import (
    FolderState,
    Job,
    finished_record,
    make_job,
    raise_data_errors,
    verified_state,
)
from domainbert.runner.jobs import follow_job, run_or_wait
from domainbert.runner.results_table import model_lines, results_table
from domainbert.runner.stage_table import referred_stages


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
    _check_names(recipe, selection)
    selected = _selected_stages(recipe, selection)
    forced = recipe.dependents(selection.named_by_force(list(recipe.jobs)))
    # the other forced stages run later: `run_plan` records them for `_still_forced`
    if forced_now := {name for name in forced if name in selected}:
        recipe = _with_new_keys(recipe, forced_now)

    problems = Problems("plan")
    states = {}
    for name, job in recipe.jobs.items():
        with problems.collecting():
            states[name] = verified_state(job, recipe.hashes, verify)
    problems.raise_if_any()
    for name in _still_forced(recipe):
        if name in states and (states[name].done or states[name].damaged):  # in other states, a stage runs anyway
            forced.append(name)

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


def follow_recipe(recipe: Recipe, selection: Selection) -> None:
    """Run a recipe in a process of rank > 0: take part in training, and wait for all other stages.

    Raises:
        ErrorsFound: a stage found errors in the data; the first process does not run later stages.
    """
    _check_names(recipe, selection)
    for name in _selected_stages(recipe, selection):
        job = recipe.jobs[name]
        follow_job(job)
        record = read_record(job.out)
        if record is not None and record.metrics.get("errors"):
            raise ErrorsFound("this stage found errors in the data", where=job.out, hint="see the messages of rank 0")


def run_plan(recipe: Recipe, plan: Sequence[PlannedStage], resume_command: str) -> dict[str, Any]:
    """Run the stages of the plan, print the table of results and all warnings, and write and return `results.json`.

    If a stage ran, `report.html` is written to the same folder. `resume_command` resumes the recipe after an
    interruption. Raise `ErrorsFound` if a stage found errors in the data; later stages do not run.
    """
    _check_not_refused(plan)
    forced_later = [step.name for step in plan if step.forced and not step.selected]
    if forced_later:
        print(f"forced, but not selected, and so left for a later command: {', '.join(forced_later)}", flush=True)
    is_needed = any(step.run or step.forced for step in plan)
    with _writing(recipe.out, is_needed):
        recipe.hashes.save()
        forced = [step.name for step in plan if step.forced]  # remain in the list until they have run
        not_forced = {step.name for step in plan if step.selected and not step.forced}
        _write_recipe(recipe, resume_command, not_forced, forced)

    records: dict[str, RunRecord] = {}
    for step in plan:
        if step.selected:
            print(f"{step.name}: {'running' if step.run else 'skipped'} ({step.reason})", flush=True)
        if step.run:
            records[step.name] = _run_step(step, resume_command)
            if step.forced:  # no longer, because it has run
                _write_recipe(recipe, resume_command, not_forced={step.name})
        elif step.state.done and step.state.record is not None:
            records[step.name] = step.state.record
        if step.selected and step.name in records:
            raise_data_errors(records[step.name], step.job.out)

    # all stages that are up to date now, in order; another process may have finished some since the plan was made
    all_records = {step.name: records.get(step.name) or finished_record(step.job, recipe.hashes) for step in plan}
    known_records = {name: record for name, record in all_records.items() if record is not None}
    page_is_stale = any(step.run for step in plan) or not (recipe.out / FILE).is_file()
    with_page = bool(known_records) and page_is_stale
    results = _report_results(recipe.out, known_records, with_page, is_needed)
    if lines := model_lines(recipe.jobs, known_records):
        print("\n".join(["", *lines]), flush=True)
    return results


@contextmanager
def _writing(out: Path, is_needed: bool) -> Iterator[None]:
    """If no stage has to run, the folder may be read-only."""
    try:
        with report_full_disk(out):
            yield
    except OSError as error:
        if is_needed or error.errno not in (errno.EROFS, errno.EACCES):
            raise


def _check_not_refused(plan: Sequence[PlannedStage]) -> None:
    problems = Problems("run")
    for step in plan:
        if step.refused:
            problems.add(
                f"{step.job.out} was changed after the stage finished ({step.state.damaged})",
                where=f"stage {step.name}",
                hint=f"restore the files, or use --force {step.name} to run this stage and its dependents again",
            )
    problems.raise_if_any()


def _report_results(out: Path, records: Mapping[str, RunRecord], with_page: bool, is_needed: bool) -> dict[str, Any]:
    stages = {name: {"stage": record.stage, "metrics": record.metrics} for name, record in records.items()}
    warnings = [
        f"{name}: {warning}" for name, record in records.items() for warning in record.metrics.get("warnings", [])
    ]
    results = {"out": str(out), "warnings": warnings, "stages": stages}
    with _writing(out, is_needed):
        write_json(out / "results.json", results)
    table = results_table(stages)
    if table:
        print(f"\n{table}", flush=True)
        if (out / "results.json").is_file():  # not in a folder that is read-only
            print(f"\nall metrics: {out / 'results.json'}", flush=True)
    if with_page:
        print(report_after_run(out), flush=True)
    if warnings:
        print("\n  ".join(["\nwarnings:", *warnings]), flush=True)
    return results


def _run_step(step: PlannedStage, resume_command: str) -> RunRecord:
    start = time.monotonic()
    resume = step.state.resumable and not step.forced
    try:
        record = run_or_wait(step.job, resume_command, resume, step.forced)
    except DomainbertError as error:
        raise error.within(f"stage {step.name}") from error
    except TrainingStopped as error:
        raise TrainingStopped(f"stage {step.name}: {error}") from error
    print(f"{step.name}: done in {format_duration(time.monotonic() - start)}, {step.job.out}", flush=True)
    return record


def _check_names(recipe: Recipe, selection: Selection) -> None:
    options = {"--only": selection.only, "--force": selection.force or ()}
    options["--from"] = () if selection.first is None else (selection.first,)
    problems = Problems("command line")
    for option, names in options.items():
        for name in names:
            if name not in recipe.jobs:
                problems.add(f"no stage '{name}' in the recipe", where=option, **suggest_name(name, recipe.jobs))
    problems.raise_if_any()
    for name in selection.force or ():
        if name not in _selected_stages(recipe, selection):
            problems.add(
                f"the stage '{name}' is not selected by --only or --from",
                where="--force",
                hint="select it too, or omit it",
            )
    problems.raise_if_any()
    if not _selected_stages(recipe, selection):
        only = ",".join(selection.only)
        raise DomainbertError(
            where="--only", found=f"'{only}'", expected=f"at least one stage from '{selection.first}' on (--from)"
        )


def _write_recipe(recipe: Recipe, command: str, not_forced: Collection[str], forced: Sequence[str] = ()) -> None:
    """Write `RECIPE`; remove the stages `not_forced` from its list of forced stages, and add the stages `forced`.

    The list is read again each time, because other processes also edit it.
    """
    functions = {name: job.stage.name for name, job in recipe.jobs.items()}
    remaining = [name for name in _still_forced(recipe) if name not in not_forced]
    still_forced = list(dict.fromkeys([*remaining, *forced]))  # each once
    write_json(recipe.out / RECIPE, {"command": command, "stages": functions, "forced": still_forced})


def _still_forced(recipe: Recipe) -> list[str]:
    """Return the names of stages that earlier commands forced but did not finish; the recipe may lack them now."""
    path = recipe.out / RECIPE
    expected = "the stages of a recipe; delete the file, and use --force for stages that were forced and not run yet"
    names: list[str] = read_json(path, expected).get("forced", []) if path.is_file() else []
    return names


def _selected_stages(recipe: Recipe, selection: Selection) -> list[str]:
    """Include the automatic checks that the selected trainings need."""
    selected = set(selection.select(list(recipe.jobs)))
    selected |= {check for check, trainings in recipe.checks.items() if trainings & selected}
    return [name for name in recipe.jobs if name in selected]


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
