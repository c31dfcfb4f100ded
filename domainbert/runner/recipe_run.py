"""Run the planned stages of a recipe, and print the table of results, for `domainbert run`."""

from __future__ import annotations

import errno
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError, ErrorsFound, Problems, TrainingStopped
from domainbert.base.files import report_full_disk, write_json
from domainbert.base.progress import format_duration
from domainbert.base.run_record import RunRecord, read_record
from domainbert.report.command import FILE, report_after_run
from domainbert.runner.claim import RECIPE
from domainbert.runner.job_state import finished_record, raise_data_errors
from domainbert.runner.jobs import follow_job, run_or_wait
from domainbert.runner.recipe_plan import FORCED, REMAKE, PlannedStage, Recipe, Selection, selected_stages, still_forced
from domainbert.runner.results_table import model_lines, results_table


def follow_recipe(recipe: Recipe, selection: Selection) -> None:
    """Run a recipe in a process of rank > 0: take part in training, and wait for all other stages.

    Raises:
        ErrorsFound: a stage found errors in the data; the first process does not run later stages.
    """
    for name in selected_stages(recipe, selection):
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
        # both remain in their lists until they run
        remake = [step.name for step in plan if step.forced and step.state.resumable and step.state.record is None]
        forced = [step.name for step in plan if step.forced and step.name not in remake]
        not_forced = {step.name for step in plan if step.selected and not step.forced}
        _write_recipe(recipe, resume_command, not_forced, forced, remake)

    records: dict[str, RunRecord] = {}
    for step in plan:
        if step.selected:
            print(f"{step.name}: {'running' if step.run else 'skipped'} ({step.reason})", flush=True)
        if step.run:
            if step.name in remake:  # once it has begun, the run may be resumed
                _write_recipe(recipe, resume_command, not_forced={step.name}, forced=[step.name])
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


def _write_recipe(
    recipe: Recipe,
    command: str,
    not_forced: Collection[str],
    forced: Sequence[str] = (),
    remake: Sequence[str] = (),
) -> None:
    """Write `RECIPE`; remove the stages `not_forced` from its lists of forced stages, and add the stages `forced` and
    `remake`.

    The lists are read again each time, because other processes also edit them.
    """
    functions = {name: job.stage.name for name, job in recipe.jobs.items()}
    lists = {}
    for key, new in ((FORCED, forced), (REMAKE, remake)):
        remaining = [name for name in still_forced(recipe, key) if name not in not_forced]
        lists[key] = list(dict.fromkeys([*remaining, *new]))  # each once
    write_json(recipe.out / RECIPE, {"command": command, "stages": functions, **lists})
