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

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.hashes import FileHashes
from domainbert.runner.early_problems import add_early_problems
from domainbert.runner.jobs import Job, compared_state
from domainbert.runner.manifest import make_seal, referred_stages, stage_of
from domainbert.runner.recipe_run import Recipe
from domainbert.runner.stage_table import STAGES, load_stage
from domainbert.settings.reader import read_settings
from domainbert.settings.tree import merge, nearest, option_tree
from domainbert.settings.variables import read_variables, substitute
from domainbert.settings.yaml_files import Node, load_yaml

_KEYS = ("out", "vars", "stages")
_REFERENCE = re.compile(r"@[\w-]+(/.*)?")
_NAME = re.compile(r"\w[\w-]*")


def read_recipe(
    path: Path,
    options: Sequence[tuple[str, str]],
    environment: Mapping[str, str] = os.environ,
    verify: bool = False,
) -> Recipe:
    """Read and check a recipe.

    Args:
        path: the YAML file.
        options: `(dotted.key, text)` that override it: `vars.data`, `out`, `stages.vocab.vocab_size`.
        environment: where `DOMAINBERT_<NAME>` is looked up.
        verify: hash every input file, even if it seems unchanged.

    Raises:
        DomainbertError: lists every problem of every stage: in its settings and, unless the stage is done, in its
            input files as far as they can be checked before it runs.
    """
    problems = Problems(str(path))
    tree = _with_options(load_yaml(path), [option for option in options if not option[0].startswith("stages.")])
    _check_keys(tree, problems)
    variables = read_variables(tree, environment, problems)
    tree = substitute(tree, variables, problems)
    stage_options = [option for option in options if option[0].startswith("stages.")]
    tree = substitute(_with_options(tree, stage_options), variables, problems)
    problems.raise_if_any()
    out = Path(str(tree.value["out"].value))
    hashes = FileHashes(out / ".cache" / "hashes.json", believe=not verify)
    reading = _Reading(out, hashes, problems)
    _read_stages(tree.value["stages"], reading)
    problems.raise_if_any()
    return Recipe(out, reading.jobs, hashes)


def _with_options(tree: Node, options: Sequence[tuple[str, str]]) -> Node:
    for key, text in options:
        tree = merge(tree, option_tree(key, text))
    return tree


def _check_keys(tree: Node, problems: Problems) -> None:
    for key, node in tree.value.items():
        if key not in _KEYS:
            problems.add(f"{node.where}: {key}: unknown key; {nearest(key, _KEYS)}")
    out, stages = tree.value.get("out"), tree.value.get("stages")
    if out is None or not isinstance(out.value, str) or not out.value.strip():
        problems.add(f"{(out or tree).where}: out: expected the folder that the stages write to, as text")
    if stages is None or not isinstance(stages.value, dict) or not stages.value:
        problems.add(f"{(stages or tree).where}: stages: expected a mapping of stage names to their settings")
        return
    for name, node in stages.value.items():
        if not isinstance(node.value, (dict, type(None))):
            problems.add(f"{node.where}: stages.{name}: found {node.shown()}; expected the settings of the stage")
        elif not _NAME.fullmatch(name):
            problems.add(f"{node.where}: stages.{name}: expected a name of letters, digits, '-' and '_'")


@dataclass
class _Reading:
    """State of reading a recipe."""

    out: Path
    hashes: FileHashes
    problems: Problems
    jobs: dict[str, Job] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    """Stages whose folders are up to date."""


def _read_stages(stages: Node, reading: _Reading) -> None:
    names = list(stages.value)
    for number, (name, node) in enumerate(stages.value.items()):
        job = _job(name, replace(node, value=node.value or {}), names[:number], reading)
        if job is not None:
            reading.jobs[name] = job


def _job(name: str, node: Node, known: Sequence[str], reading: _Reading) -> Job | None:
    """One stage of the recipe, or None with its problems noted; `known` are the names of those before it."""
    problems, earlier, prefix = reading.problems, reading.jobs, f"stages.{name}."
    found = len(problems.messages)
    kind = node.value.get("stage", Node(name, node.where))
    if not isinstance(kind.value, str) or kind.value not in STAGES:
        problems.add(f"{kind.where}: stages.{name}: no stage '{kind.value}'; {nearest(str(kind.value), list(STAGES))}")
        return None
    rest = {key: _refer(child, known, reading) for key, child in node.value.items() if key != "stage"}
    stage, node = load_stage(kind.value), replace(node, value=rest)
    settings = read_settings(stage.settings, node, problems, prefix)
    if len(problems.messages) > found or any(other not in earlier for other in referred_stages(settings)):
        return None
    seal = make_seal(stage, settings, reading.hashes, {other: job.key for other, job in earlier.items()})
    job = Job(stage, settings, reading.out / name, seal)
    if _is_done(job, reading.hashes):
        reading.done.add(name)
    else:
        yet_to_run = {other: job for other, job in earlier.items() if other not in reading.done}
        add_early_problems(stage, settings, node, problems, prefix, yet_to_run)
    return job


def _is_done(job: Job, hashes: FileHashes) -> bool:
    try:
        return compared_state(job, hashes).done
    except DomainbertError:
        return False  # the plan says what is wrong with the folder


def _refer(node: Node, known: Sequence[str], reading: _Reading) -> Node:
    """`@vocab` as the folder of the earlier stage `vocab`."""
    if isinstance(node.value, dict):
        return replace(node, value={key: _refer(child, known, reading) for key, child in node.value.items()})
    if isinstance(node.value, list):
        return replace(node, value=[_refer(child, known, reading) for child in node.value])
    if not isinstance(node.value, str) or not _REFERENCE.fullmatch(node.value):
        return node
    stage = stage_of(node.value)
    if stage not in known:
        reading.problems.add(f"{node.where}: {node.value}: no earlier stage has this name; {nearest(stage, known)}")
        return replace(node, reference=node.value)
    path = str(reading.out / node.value.removeprefix("@"))
    return replace(node, value=path, text=None, reference=node.value, made=stage in reading.done)
