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
from domainbert.runner.early_problems import add_early_problems
from domainbert.runner.jobs import Job, make_job, verified_state
from domainbert.runner.manifest import referred_stages, stage_of
from domainbert.runner.recipe_run import Recipe, Selection
from domainbert.runner.stage_table import STAGES, load_stage
from domainbert.settings.reader import read_settings
from domainbert.settings.tree import (
    check_variables_read,
    read_variables,
    select_environment_variables,
    substitute,
    with_options,
)
from domainbert.settings.yaml_files import Node, load_yaml
from domainbert.stages.stage import Inputs

_RECIPE_KEYS = ("out", "vars", "check", "stages")
_REFERENCE = re.compile(r"@[\w-]+(/.*)?")
_NAME = re.compile(r"\w[\w-]*")
_CHECK_NAME = re.compile(r"check(-.+)?")
_ALL_STAGES = Selection()


def read_recipe(
    path: Path,
    options: Sequence[tuple[str, str]],
    environment: Mapping[str, str] = os.environ,
    verify: bool = False,
    selection: Selection = _ALL_STAGES,
) -> Recipe:
    """Return a validated recipe.

    Args:
        path: the YAML file.
        options: `(dotted.key, text)` pairs that override it: `vars.data`, `out`, `stages.vocab.vocab_size`.
        environment: environment variables, of which `DOMAINBERT_<NAME>` are read.
        verify: hash every input file, even if it seems unchanged.
        selection: stages that are neither selected nor needed by a selected stage are left out if input files are
            missing.

    Raises:
        DomainbertError: lists all problems in the settings of all stages. Input files are checked for stages that are
            selected or needed, and not done.
    """
    problems = Problems(str(path))
    stage_options = [option for option in options if option[0].startswith("stages.")]
    file_tree = load_yaml(path)
    tree = with_options(file_tree, [option for option in options if option not in stage_options])
    out = tree.value.get("out")
    if out is not None and out.text is not None:  # an option is text: `2024` and `law: 2` are folder names
        tree.value["out"] = replace(out, value=out.text)
    _check_keys(tree, problems)
    _check_stage_options(stage_options, tree, problems)
    variables = read_variables(tree, environment, problems)
    check_variables_read(tree, file_tree.value.get("vars"), options, problems)
    tree = with_options(substitute(tree, variables, problems), stage_options)
    tree = substitute(tree, variables, problems)
    if (out := tree.value.get("out")) is not None and starts_at_home(str(out.value)):
        problems.add(f"{out.where}: out: found {out.short_text()}; {WHOLE_PATH}")
    if not problems.messages:
        _check_stages(tree.value["stages"], problems)  # options may have added stages
    problems.raise_if_any()
    out = Path(str(tree.value["out"].value))
    needed = _needed_stages(tree.value["stages"].value, selection)
    reader = _RecipeReader(out, FileHashes(out / ".cache" / "hashes.json", trust_cache=not verify), problems, needed)
    reader.read_stages(tree.value["stages"].value)
    if not problems.messages:
        reader.add_checks(tree.value["stages"].value, tree.value.get("check"))
    problems.raise_if_any()
    environment_variables = select_environment_variables(variables, options, environment)
    return Recipe(out, reader.jobs, reader.hashes, reader.checks, environment_variables, reader.left_out)


def _needed_stages(stages: Mapping[str, Node], selection: Selection) -> frozenset[str]:
    """Return the selected stages and their dependencies; all stages if the selection has an unknown name."""
    if not {*selection.only, *filter(None, [selection.first])} <= set(stages):
        return frozenset(stages)
    needed = set(selection.select(list(stages)))
    for name, node in reversed(list(stages.items())):
        if name in needed:
            needed |= {stage_of(text) for text in node.texts() if _REFERENCE.fullmatch(text)}
    return frozenset(needed)


def _check_keys(tree: Node, problems: Problems) -> None:
    for key, node in tree.value.items():
        if key not in _RECIPE_KEYS:
            problems.add(f"{node.where}: {key}: unknown key; {suggest_name(key, _RECIPE_KEYS)}")
    out, stages = tree.value.get("out"), tree.value.get("stages")
    if out is None or not isinstance(out.value, str) or not out.value.strip():
        problems.add(f"{(out or tree).where}: out: expected the folder that the stages write to, a string")
    check = tree.value.get("check")
    if check is not None and check.value is not False and not isinstance(check.value, dict):
        problems.add(f"{check.where}: check: found {check.short_text()}; expected false, or settings of `check`")
    if stages is None or not isinstance(stages.value, dict) or not stages.value:
        problems.add(f"{(stages or tree).where}: stages: expected a mapping of stage names to their settings")
        return
    _check_stages(stages, problems)


def _check_stages(stages: Node, problems: Problems) -> None:
    for name, node in stages.value.items():
        if not isinstance(node.value, (dict, type(None))):
            problems.add(f"{node.where}: stages.{name}: found {node.short_text()}; expected the settings of the stage")
        elif not _NAME.fullmatch(name):
            problems.add(f"{node.where}: stages.{name}: expected a name of letters, digits, '-' and '_'")


def _check_stage_options(options: Sequence[tuple[str, str]], tree: Node, problems: Problems) -> None:
    """Add a problem for each option of an automatic check, which is not a stage of the recipe."""
    stages = tree.value["stages"].value if "stages" in tree.value else None
    for key, _ in options:
        _, name, *setting = key.split(".")
        if setting and isinstance(stages, dict) and name not in stages and _CHECK_NAME.fullmatch(name):
            problems.add(
                f"--{key}: the recipe lists no stage '{name}'; expected --check.{'.'.join(setting)} for the automatic "
                "checks"
            )


@dataclass
class _RecipeReader:
    """Read the stages of a recipe into jobs, in order, and collect their problems."""

    out: Path
    hashes: FileHashes
    problems: Problems
    needed: frozenset[str]
    """Selected stages, and the stages that they depend on."""
    jobs: dict[str, Job] = field(default_factory=dict)
    checks: dict[str, frozenset[str]] = field(default_factory=dict)
    pending: dict[str, Job] = field(default_factory=dict)
    """Jobs whose folders are not up to date."""
    left_out: list[str] = field(default_factory=list)
    """Messages about missing input files of stages that are not needed."""
    inputs: Inputs = field(default_factory=Inputs)
    """Opens the inputs of all stages."""

    def read_stages(self, stages: Mapping[str, Node]) -> None:
        for index, (name, node) in enumerate(stages.items()):
            node = replace(node, value=node.value or {})
            job = self.read_job(name, node, list(stages)[:index], name in self.needed)
            if job is not None:
                self.jobs[name] = job

    def add_checks(self, stages: Mapping[str, Node], settings: Node | None) -> None:
        """Add the automatic checks to the jobs, each before the first stage that needs it."""
        from domainbert.stages.implied_checks import RecipeStage, implied_checks

        recipe_stages = {
            name: RecipeStage(job.stage.name, stages[name], job.settings.instance) for name, job in self.jobs.items()
        }
        for check in list(implied_checks(recipe_stages, settings)):
            names = list(self.jobs)
            earlier = names[: names.index(check.next_stage)]
            node = replace(check.node, value={**check.node.value, "stage": Node("check", check.node.where)})
            job = self.read_job(check.name, node, earlier, not check.trainings.isdisjoint(self.needed))
            if job is not None:
                later = {name: self.jobs.pop(name) for name in names[len(earlier) :]}
                self.jobs |= {check.name: job} | later
                self.checks[check.name] = check.trainings

    def read_job(self, name: str, node: Node, earlier: Sequence[str], needed: bool) -> Job | None:
        """Return the job of a stage; None if it is left out, or has problems, which are added.

        `earlier` are the names of the earlier stages, to which references may refer.
        """
        problems, prefix = self.problems, f"stages.{name}."
        num_problems = len(problems.messages)
        function = node.value.get("stage", Node(name, node.where))
        if not isinstance(function.value, str) or function.value not in STAGES:
            text = function.value if isinstance(function.value, str) else ""
            hint = suggest_name(text, list(STAGES))
            problems.add(f"{function.where}: stages.{name}: no stage {function.short_text()}; {hint}")
            return None
        stage = load_stage(function.value)
        node = node.without("stage").with_texts(lambda text: self.resolve_reference(text, earlier))
        settings = read_settings(stage.settings, node, problems, prefix)
        if settings.missing and not needed:
            self.left_out += settings.missing
            messages = problems.messages[num_problems:]
            problems.messages[num_problems:] = [message for message in messages if message not in settings.missing]
            return None
        if len(problems.messages) > num_problems or any(other not in self.jobs for other in referred_stages(settings)):
            return None
        keys = {other: job.key for other, job in self.jobs.items()}
        job = make_job(stage, settings, self.out / name, self.hashes, keys, self.inputs)
        if self.is_done(job):
            return job
        if needed:
            add_early_problems(stage, settings, node, problems, self.inputs, prefix, self.pending)
        self.pending[name] = job
        return job

    def is_done(self, job: Job) -> bool:
        try:
            return verified_state(job, self.hashes).done
        except DomainbertError:
            return False  # `make_plan` reports the problem of the folder

    def resolve_reference(self, node: Node, earlier: Sequence[str]) -> Node:
        """Return the node with a reference such as `@vocab` replaced by the folder of the earlier stage `vocab`."""
        if not _REFERENCE.fullmatch(node.value):
            return node
        stage = stage_of(node.value)
        if stage not in earlier:
            self.problems.add(
                f"{node.where}: {node.value}: no earlier stage has this name; {suggest_name(stage, earlier)}"
            )
            return replace(node, reference=node.value)
        if ".." in Path(node.value).parts:
            self.problems.add(f"{node.where}: found {node.short_text()}; expected a path inside the folder of {stage}")
        path, done = str(self.out / node.value.removeprefix("@")), stage in self.jobs and stage not in self.pending
        return replace(node, value=path, text=None, reference=node.value, stage_finished=done)
