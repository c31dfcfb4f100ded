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
from dataclasses import replace
from pathlib import Path

from domainbert.errors import DomainbertError, Problems
from domainbert.fingerprint import FileHashes
from domainbert.runner.early_problems import add_early_problems
from domainbert.runner.jobs import Job
from domainbert.runner.manifest import make_seal, referred_stages, stage_of
from domainbert.runner.recipe_run import Recipe
from domainbert.runner.stage_table import STAGES, load_stage
from domainbert.sealed import read_manifest
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
        verify: hash every input file, whether it seems unchanged or not.

    Raises:
        DomainbertError: with every problem of every stage: of its settings, and, unless it is done already, of what
            its files tell before it runs.
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
    jobs = _jobs(tree.value["stages"], out, hashes, problems)
    problems.raise_if_any()
    return Recipe(out, jobs, hashes)


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


def _jobs(stages: Node, out: Path, hashes: FileHashes, problems: Problems) -> dict[str, Job]:
    jobs: dict[str, Job] = {}
    for name, node in stages.value.items():
        job = _job(name, replace(node, value=node.value or {}), out, jobs, list(stages.value), hashes, problems)
        if job is not None:
            jobs[name] = job
    return jobs


def _job(
    name: str, node: Node, out: Path, earlier: dict[str, Job], names: list[str], hashes: FileHashes, problems: Problems
) -> Job | None:
    """One stage of the recipe, or None with its problems noted."""
    found = len(problems.messages)
    kind = node.value.get("stage", Node(name, node.where))
    if not isinstance(kind.value, str) or kind.value not in STAGES:
        problems.add(f"{kind.where}: stages.{name}: no stage '{kind.value}'; {nearest(str(kind.value), list(STAGES))}")
        return None
    known = names[: names.index(name)]
    rest = {key: _refer(child, out, known, problems) for key, child in node.value.items() if key != "stage"}
    stage = load_stage(kind.value)
    settings = read_settings(
        stage.function, replace(node, value=rest), problems, f"stages.{name}.", streams=stage.streams
    )
    if len(problems.messages) > found or any(other not in earlier for other in referred_stages(settings)):
        return None
    seal = make_seal(stage, settings, hashes, {other: job.key for other, job in earlier.items()})
    job = Job(stage, settings, out / name, seal)
    if not _is_done(job):
        add_early_problems(stage, settings, replace(node, value=rest), problems, f"stages.{name}.", earlier)
    return job


def _is_done(job: Job) -> bool:
    try:
        return (read_manifest(job.out) or {}).get("key") == job.key
    except DomainbertError:
        return False  # the plan says what is wrong with the folder


def _refer(node: Node, out: Path, known: Sequence[str], problems: Problems) -> Node:
    """`@vocab` as the folder of the earlier stage `vocab`."""
    if isinstance(node.value, dict):
        return replace(node, value={key: _refer(child, out, known, problems) for key, child in node.value.items()})
    if isinstance(node.value, list):
        return replace(node, value=[_refer(child, out, known, problems) for child in node.value])
    if not isinstance(node.value, str) or not _REFERENCE.fullmatch(node.value):
        return node
    if stage_of(node.value) not in known:
        problems.add(
            f"{node.where}: {node.value}: no earlier stage has this name; {nearest(stage_of(node.value), known)}"
        )
        return replace(node, reference=node.value)
    return replace(node, value=str(out / node.value.removeprefix("@")), text=None, reference=node.value)
