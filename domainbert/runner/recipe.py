"""Read a recipe: a YAML file of stages, validated completely before the first stage runs.

    out: runs/quickstart                 # each stage writes out/<name>
    vars: {data: data}                   # ${data} in any text below
    stages:
      vocab: {corpus: {sources: [{path: "${data}/corpus.jsonl"}]}}
      ner: {stage: finetune, model: "@pretrain", ...}

`@name` is the folder of an earlier stage, `@name/file` a path in it. `stage:` names the stage function if the key of
the entry is not its name. The environment variable `DOMAINBERT_<NAME>` overrides a variable of `vars`, and
`--vars.name` overrides both. Relative paths are relative to the current folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from domainbert.base.errors import DomainbertError, Problems, suggest_name
from domainbert.base.files import FileHashes
from domainbert.base.paths import WHOLE_PATH, starts_at_home
from domainbert.runner.job_state import Job, finished_record, make_job
from domainbert.runner.recipe_plan import Recipe, Selection
from domainbert.runner.stage_table import STAGES, add_early_problems, load_stage, referred_stages
from domainbert.settings.facts import check_out
from domainbert.settings.reader import read_settings
from domainbert.settings.tree import (
    check_variables_read,
    read_variables,
    select_environment_variables,
    substitute,
    with_options,
)
from domainbert.settings.yaml_files import Node, load_yaml
from domainbert.stages.implied_checks import REFERENCE, RecipeStage, implied_checks, stages_in
from domainbert.stages.stage import Inputs

_RECIPE_KEYS = ("out", "vars", "check", "stages")
_NAME = re.compile(r"\w[\w-]*")
_CHECK_NAME = re.compile(r"check(-.+)?")
_ADDS_STAGE = re.compile(r"stages\.[^.]*(\.stage)?")  # an option `--stages.NAME` or `--stages.NAME.stage`


def read_recipe(
    path: Path,
    options: Sequence[tuple[str, str]],
    environment: Mapping[str, str] = os.environ,
    verify: bool = False,
    selection: Selection | None = None,
) -> Recipe:
    """Return a validated recipe.

    Args:
        options: `(dotted.key, text)` pairs that override the file: `vars.data`, `out`, `stages.vocab.vocab_size`.
        environment: environment variables, of which `DOMAINBERT_<NAME>` are read.
        verify: hash every input file, even if it seems unchanged.
        selection: selected stages, by default all; stages that are neither selected nor needed by a selected stage are
            left out if input files are missing.

    Raises:
        DomainbertError: lists all problems in the settings of all stages. Input files are checked for stages that are
            selected or needed, and not done.
    """
    problems = Problems(str(path))
    stage_options = [option for option in options if option[0].startswith("stages.")]
    file_tree = load_yaml(path)
    tree = with_options(file_tree, [option for option in options if option not in stage_options])
    out = tree.value.get("out")
    if out is not None and out.text is not None:  # typed after --out, where `2024` is the name of a folder
        tree.value["out"] = replace(out, value=out.text)
    _check_keys(tree, problems)
    _check_stage_options(stage_options, tree, problems)

    variables = read_variables(tree, environment, problems)
    check_variables_read(tree, file_tree.value.get("vars"), options, problems)
    tree = substitute(tree, variables, problems)  # first: an option may change a setting in `${data}/encoder.yaml`
    tree = with_options(tree, stage_options)
    tree = substitute(tree, variables, problems)  # again: the options may have variables
    if (out := tree.value.get("out")) is not None and starts_at_home(str(out.value)):
        problems.add(where=f"{out.where}: out", found=out.short_text(), expected=WHOLE_PATH)
    if not problems.messages:
        _check_stages(tree.value["stages"], problems)  # options may have added stages
    problems.raise_if_any()

    folder = Path(str(tree.value["out"].value))
    stages = tree.value["stages"].value
    hashes = FileHashes(folder / ".cache" / "hashes.json", trust_cache=not verify)
    recipe = Recipe(folder, hashes, variables=select_environment_variables(variables, options, environment))
    reader = _RecipeReader(recipe, problems, _needed_stages(stages, selection or Selection()))
    reader.read_stages(stages)
    if not problems.messages:
        reader.add_checks(stages, tree.value.get("check"))
    problems.raise_if_any()
    return recipe


def _needed_stages(stages: Mapping[str, Node], selection: Selection) -> frozenset[str]:
    """Return the selected stages and their dependencies; all stages if the selection has an unknown name."""
    named = {*selection.only, *([] if selection.first is None else [selection.first])}
    if not named <= stages.keys():  # `make_plan` reports the unknown name
        return frozenset(stages)
    needed = set(selection.select(list(stages)))
    for name, node in reversed(list(stages.items())):  # a stage refers only to earlier stages
        if name in needed:
            needed |= stages_in(node)
    return frozenset(needed)


def _check_keys(tree: Node, problems: Problems) -> None:
    for key, node in tree.value.items():
        if key not in _RECIPE_KEYS:
            note = "; domainbert run --help lists all options" if node.where.startswith("--") else ""
            problems.add("unknown key", where=node.location(key), **suggest_name(key, _RECIPE_KEYS, note))
    out, stages = tree.value.get("out"), tree.value.get("stages")
    if out is None or not isinstance(out.value, str) or not out.value.strip():
        problem, found = ("missing", "") if out is None else ("", out.short_text())
        expected = "a folder as text, such as 'runs/first'"
        problems.add(problem, where=f"{(out or tree).where}: out", found=found, expected=expected)
    check = tree.value.get("check")
    if check is not None and check.value is not False and not isinstance(check.value, dict):
        problems.add(
            where=f"{check.where}: check", found=check.short_text(), expected="settings, or false for no checks"
        )
    if stages is None or not isinstance(stages.value, dict) or not stages.value:
        problems.add(
            where=f"{(stages or tree).where}: stages", found="no stage", expected="a mapping of stage names to settings"
        )
    else:
        _check_stages(stages, problems)


def _check_stages(stages: Node, problems: Problems) -> None:
    for name, node in stages.value.items():
        if not isinstance(node.value, (dict, type(None))):
            problems.add(
                where=node.location(f"stages.{name}"), found=node.short_text(), expected="a mapping of settings"
            )
        elif not _NAME.fullmatch(name):
            problems.add(
                where=f"{node.where}: stages", found=f"name {name!r}", expected="letters, digits, _ and '-' (not first)"
            )


def _check_stage_options(options: Sequence[tuple[str, str]], tree: Node, problems: Problems) -> None:
    stages = tree.value["stages"].value if "stages" in tree.value else None
    if not isinstance(stages, dict):
        return
    keys = dict.fromkeys(key for key, _ in options)  # each once
    added = {key.split(".")[1] for key in keys if _ADDS_STAGE.fullmatch(key)}
    for key in keys:
        _, name, *setting = key.split(".")  # `stages.ner.optim.lr` has the name "ner", and the setting ["optim", "lr"]
        missing = f"--{key}: the recipe has no stage '{name}'"
        if _CHECK_NAME.fullmatch(name) and name not in stages and setting:
            problems.add(missing, hint=f"to change the automatic checks, use --check.{'.'.join(setting)}")
        elif name not in {*stages, *added, *STAGES}:
            problems.add(missing, **suggest_name(name, stages))


@dataclass
class _RecipeReader:
    recipe: Recipe
    problems: Problems
    needed: frozenset[str]  # selected stages, and the stages that they depend on
    pending: dict[str, Job] = field(default_factory=dict)  # jobs whose folders are not up to date
    inputs: Inputs = field(default_factory=Inputs)  # opens the inputs of all stages

    def read_stages(self, stages: Mapping[str, Node]) -> None:
        """Add the jobs of all stages that are not left out and have no problems."""
        for index, (name, node) in enumerate(stages.items()):
            node = replace(node, value=node.value or {})  # a stage without settings is null in YAML
            job = self.read_job(name, node, earlier_names=list(stages)[:index], needed=name in self.needed)
            if job is not None:
                self.recipe.jobs[name] = job

    def add_checks(self, stages: Mapping[str, Node], settings: Node | None) -> None:
        """Add the automatic checks to the jobs, each before the first stage that needs it."""
        jobs = self.recipe.jobs
        recipe_stages = {
            name: RecipeStage(job.stage.name, stages[name], job.settings.instance) for name, job in jobs.items()
        }
        for check in list(implied_checks(recipe_stages, settings)):
            names = list(jobs)
            position = names.index(check.next_stage)
            node = replace(check.node, value={**check.node.value, "stage": Node("check", check.node.where)})
            needed = not check.trainings.isdisjoint(self.needed)
            job = self.read_job(check.name, node, names[:position], needed)
            if job is not None:
                later_jobs = {name: jobs.pop(name) for name in names[position:]}
                jobs[check.name] = job  # before `next_stage`
                jobs.update(later_jobs)
                self.recipe.checks[check.name] = check.trainings

    def read_job(self, name: str, node: Node, earlier_names: Sequence[str], needed: bool) -> Job | None:
        """Return the job of a stage, or None:

        - if its settings have problems, which are added to `problems`;
        - if the settings refer to a stage without a job;
        - if input files are missing and the stage is not `needed`: the stage is then left out.

        `earlier_names` are the names of the earlier stages, to which references may refer.
        """
        problems = self.problems
        num_problems = len(problems.messages)  # before this stage
        prefix = f"stages.{name}."

        function = node.value.get("stage", Node(name, node.where))  # by default the name
        if not isinstance(function.value, str) or function.value not in STAGES:
            found, where = function.short_text(), function.location(f"{prefix}stage")
            problem = "" if "stage" in node.value else f"missing, and domainbert has no stage {found}"
            facts = suggest_name(str(function.value), STAGES)
            problems.add(problem, where=where, found="" if problem else found, **facts)
            return None

        stage = load_stage(function.value)
        node = node.without("stage").with_texts(lambda text: self.resolve_reference(text, earlier_names))
        settings = read_settings(stage.settings, node, problems, prefix)
        if settings.missing and not needed:  # a missing file is then no problem; other problems remain
            self.recipe.left_out.extend(settings.missing)
            stage_errors = problems.errors[num_problems:]
            problems.errors[num_problems:] = [error for error in stage_errors if str(error) not in settings.missing]
            return None
        keys = {earlier: job.key for earlier, job in self.recipe.jobs.items()}
        refers_to_stage_without_job = not set(referred_stages(settings)) <= keys.keys()
        if len(problems.messages) > num_problems or refers_to_stage_without_job:
            return None

        out = self.recipe.out / name
        try:
            check_out(settings, out)
        except DomainbertError as error:
            problems.add(error.at(f"stage {name}: out"))
            return None
        job = make_job(stage, settings, out, self.recipe.hashes, keys, self.inputs)
        if finished_record(job, self.recipe.hashes) is not None:
            return job
        if needed:
            add_early_problems(stage, settings, node, problems, self.inputs, prefix, self.pending)
        self.pending[name] = job
        return job

    def _check_part(self, node: Node, stage: str) -> None:
        """Add a problem if a reference names a seed that the earlier stage will not write."""
        job = self.pending.get(stage)
        _, _, part = node.value.partition("/seed-")
        if job is None or not part or job.stage.parts != "seeds":
            return
        seeds = list(map(str, job.settings.plain["seeds"]))
        if part.split("/")[0] not in seeds:
            expected = f"a seed of the stage '{stage}': {', '.join(seeds)}"
            self.problems.add(where=node.where, found=node.short_text(), expected=expected)

    def resolve_reference(self, node: Node, earlier_names: Sequence[str]) -> Node:
        """Return the node of a reference such as `@vocab` with the folder of the earlier stage `vocab` as its value.

        Other texts are returned unchanged.
        """
        match = REFERENCE.fullmatch(node.value)
        if match is None:
            return node
        stage = match[1]
        if stage not in earlier_names:
            facts = suggest_name(stage, earlier_names, none="this stage is the first of the recipe")
            found = f"'{node.value}', but no earlier stage is named '{stage}'"
            self.problems.add(where=node.where, found=found, **facts)
            return replace(node, reference=node.value)
        if ".." in Path(node.value).parts:
            self.problems.add(where=node.where, found=node.short_text(), expected=f"a path in @{stage}, without '..'")
        self._check_part(node, stage)
        path = self.recipe.out / node.value.removeprefix("@")
        is_done = stage in self.recipe.jobs and stage not in self.pending
        return replace(node, value=str(path), text=None, reference=node.value, stage_finished=is_done)
