"""A recipe: a YAML of stages, checked as a whole before the first one runs.

    out: runs/quickstart                 # each stage writes out/<name>
    vars: {data: data}                   # ${data} in any text below
    stages:
      vocab: {corpus: {sources: [{path: "${data}/corpus.jsonl"}]}}
      ner: {stage: finetune, model: "@pretrain", ...}

`@name` is the folder of an earlier stage, `@name/file` something in it. `stage:` names the stage function where the
name of the entry does not. The environment variable `DOMAINBERT_<NAME>` sets a variable, and `--vars.name` overrides
both. Relative paths are relative to the current folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from domainbert.base.errors import DomainbertError, Problems, nearest
from domainbert.base.hashes import FileHashes
from domainbert.base.paths import WHOLE_PATH, starts_at_home
from domainbert.runner.early_problems import add_early_problems
from domainbert.runner.jobs import Job, compared_state, make_job
from domainbert.runner.manifest import referred_stages, stage_of
from domainbert.runner.recipe_run import Recipe, Selection
from domainbert.runner.stage_table import STAGES, load_stage
from domainbert.settings.reader import read_settings
from domainbert.settings.tree import check_variables_read, of_environment, read_variables, substitute, with_options
from domainbert.settings.yaml_files import Node, load_yaml
from domainbert.stages.inputs import Inputs

_KEYS = ("out", "vars", "check", "stages")
_REFERENCE = re.compile(r"@[\w-]+(/.*)?")
_NAME = re.compile(r"\w[\w-]*")
_CHECK = re.compile(r"check(-.+)?")
_ALL = Selection()


def read_recipe(
    path: Path,
    options: Sequence[tuple[str, str]],
    environment: Mapping[str, str] = os.environ,
    verify: bool = False,
    selection: Selection = _ALL,
) -> Recipe:
    """Read and check a recipe.

    Args:
        path: the YAML file.
        options: `(dotted.key, text)` that override it: `vars.data`, `out`, `stages.vocab.vocab_size`.
        environment: has `DOMAINBERT_<NAME>`, too.
        verify: hash every input file, even if it seems unchanged.
        selection: a stage that is neither among these nor needed by them may lack input files; it is left out then.

    Raises:
        DomainbertError: lists every problem of every stage: in its settings and, where it is selected or needed and not
            done, in its input files as far as they can be checked before it runs.
    """
    problems = Problems(str(path))
    of_stages = [option for option in options if option[0].startswith("stages.")]
    own = load_yaml(path)
    tree = with_options(own, [option for option in options if option not in of_stages])
    out = tree.value.get("out")
    if out is not None and out.text is not None:  # an option: `2024`, `law: 2` are folders
        tree.value["out"] = replace(out, value=out.text)
    _check_keys(tree, problems)
    _check_own(of_stages, tree, problems)
    variables = read_variables(tree, environment, problems)
    check_variables_read(tree, own.value.get("vars"), options, problems)
    tree = with_options(substitute(tree, variables, problems), of_stages)
    tree = substitute(tree, variables, problems)
    if (out := tree.value.get("out")) is not None and starts_at_home(str(out.value)):
        problems.add(f"{out.where}: out: found {out.shown()}; {WHOLE_PATH}")
    if not problems.messages:
        _check_stages(tree.value["stages"], problems)  # those of the options, too
    problems.raise_if_any()
    out = Path(str(tree.value["out"].value))
    needed = _needed(tree.value["stages"].value, selection)
    reading = _Reading(out, FileHashes(out / ".cache" / "hashes.json", believe=not verify), problems, needed)
    reading.read(tree.value["stages"].value)
    if not problems.messages:
        reading.add_checks(tree.value["stages"].value, tree.value.get("check"))
    problems.raise_if_any()
    by_environment = of_environment(variables, options, environment)
    return Recipe(out, reading.jobs, reading.hashes, reading.checks, by_environment, reading.left_out)


def _needed(stages: Mapping[str, Node], selection: Selection) -> frozenset[str]:
    """The selected stages and those whose folders they name; all, if a name of the selection is no stage."""
    if not {*selection.only, *filter(None, [selection.first])} <= set(stages):
        return frozenset(stages)
    needed = set(selection.among(list(stages)))
    for name, node in reversed(list(stages.items())):
        if name in needed:
            needed |= {stage_of(text) for text in node.texts() if _REFERENCE.fullmatch(text)}
    return frozenset(needed)


def _check_keys(tree: Node, problems: Problems) -> None:
    for key, node in tree.value.items():
        if key not in _KEYS:
            problems.add(f"{node.where}: {key}: unknown key; {nearest(key, _KEYS)}")
    out, stages = tree.value.get("out"), tree.value.get("stages")
    if out is None or not isinstance(out.value, str) or not out.value.strip():
        problems.add(f"{(out or tree).where}: out: expected the folder that the stages write to, as text")
    check = tree.value.get("check")
    if check is not None and check.value is not False and not isinstance(check.value, dict):
        problems.add(f"{check.where}: check: found {check.shown()}; expected false, or settings of `check`")
    if stages is None or not isinstance(stages.value, dict) or not stages.value:
        problems.add(f"{(stages or tree).where}: stages: expected a mapping of stage names to their settings")
        return
    _check_stages(stages, problems)


def _check_stages(stages: Node, problems: Problems) -> None:
    for name, node in stages.value.items():
        if not isinstance(node.value, (dict, type(None))):
            problems.add(f"{node.where}: stages.{name}: found {node.shown()}; expected the settings of the stage")
        elif not _NAME.fullmatch(name):
            problems.add(f"{node.where}: stages.{name}: expected a name of letters, digits, '-' and '_'")


def _check_own(options: Sequence[tuple[str, str]], tree: Node, problems: Problems) -> None:
    """Note options of a check that the recipe runs by itself: it is no stage of the recipe's own."""
    own = tree.value["stages"].value if "stages" in tree.value else None
    for key, _ in options:
        _, name, *setting = key.split(".")
        if setting and isinstance(own, dict) and name not in own and _CHECK.fullmatch(name):
            problems.add(
                f"--{key}: the recipe has no stage '{name}' of its own; expected --check.{'.'.join(setting)} for the "
                "checks that it runs by itself"
            )


@dataclass
class _Reading:
    """State of reading the stages of a recipe."""

    out: Path
    hashes: FileHashes
    problems: Problems
    needed: frozenset[str]
    """The stages that are selected, or needed by those."""
    jobs: dict[str, Job] = field(default_factory=dict)
    checks: dict[str, frozenset[str]] = field(default_factory=dict)
    yet_to_run: dict[str, Job] = field(default_factory=dict)
    """The jobs whose folders are not up to date."""
    left_out: list[str] = field(default_factory=list)
    """The missing files of stages that are not needed."""
    inputs: Inputs = field(default_factory=Inputs)
    """Opens the inputs of all stages."""

    def read(self, stages: Mapping[str, Node]) -> None:
        for number, (name, node) in enumerate(stages.items()):
            node = replace(node, value=node.value or {})
            job = self.job(name, node, list(stages)[:number], name in self.needed)
            if job is not None:
                self.jobs[name] = job

    def add_checks(self, stages: Mapping[str, Node], given: Node | None) -> None:
        """Put the checks that the recipe runs by itself before its trainings."""
        from domainbert.stages.implied_checks import ReadStage, implied_checks

        read = {name: ReadStage(job.stage.name, stages[name], job.settings.instance) for name, job in self.jobs.items()}
        for one in list(implied_checks(read, given)):
            names = list(self.jobs)
            earlier = names[: names.index(one.before)]
            node = replace(one.node, value={**one.node.value, "stage": Node("check", one.node.where)})
            job = self.job(one.name, node, earlier, not one.trainings.isdisjoint(self.needed))
            if job is not None:
                later = {other: self.jobs.pop(other) for other in names[len(earlier) :]}
                self.jobs |= {one.name: job} | later
                self.checks[one.name] = one.trainings

    def job(self, name: str, node: Node, known: Sequence[str], needed: bool) -> Job | None:
        """One stage of the recipe, or None with its problems noted; `known` are the names of those before it."""
        problems, prefix = self.problems, f"stages.{name}."
        found = len(problems.messages)
        kind = node.value.get("stage", Node(name, node.where))
        if not isinstance(kind.value, str) or kind.value not in STAGES:
            text = isinstance(kind.value, str)
            near = nearest(kind.value if text else "", list(STAGES))
            problems.add(f"{kind.where}: stages.{name}: no stage {kind.shown()}; {near}")
            return None
        stage = load_stage(kind.value)
        node = node.without("stage").with_texts(lambda text: self.refer(text, known))
        settings = read_settings(stage.settings, node, problems, prefix)
        if settings.missing and not needed:
            self.left_out += settings.missing
            problems.messages[found:] = [one for one in problems.messages[found:] if one not in settings.missing]
            return None
        if len(problems.messages) > found or any(other not in self.jobs for other in referred_stages(settings)):
            return None
        keys = {other: job.key for other, job in self.jobs.items()}
        job = make_job(stage, settings, self.out / name, self.hashes, keys, self.inputs)
        if self.is_done(job):
            return job
        if needed:
            add_early_problems(stage, settings, node, problems, self.inputs, prefix, self.yet_to_run)
        self.yet_to_run[name] = job
        return job

    def is_done(self, job: Job) -> bool:
        try:
            return compared_state(job, self.hashes).done
        except DomainbertError:
            return False  # the plan says what is wrong with the folder

    def refer(self, node: Node, known: Sequence[str]) -> Node:
        """`@vocab` as the folder of the earlier stage `vocab`."""
        if not _REFERENCE.fullmatch(node.value):
            return node
        stage = stage_of(node.value)
        if stage not in known:
            self.problems.add(f"{node.where}: {node.value}: no earlier stage has this name; {nearest(stage, known)}")
            return replace(node, reference=node.value)
        if ".." in Path(node.value).parts:
            self.problems.add(f"{node.where}: found {node.shown()}; expected a path inside the folder of {stage}")
        path, made = str(self.out / node.value.removeprefix("@")), stage in self.jobs and stage not in self.yet_to_run
        return replace(node, value=path, text=None, reference=node.value, made=made)
