"""Objectives of pretraining side by side: the steps that each makes in the time of the first one.

    DOMAINBERT_DATA=/path/to/data python benchmarks/objectives.py [--rounds 3]

The stages `pretrain` of configs/econ/objectives.yaml, each with the objective, the optimiser and the batch that stand
there, on the benchmarks' corpus. The last lines are what `max_steps` is then, if it is right for the first stage.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from prepared_corpus import CACHE, prepared_corpus, raw_corpus
from pretraining import Settings, train
from side_by_side import Rounds, Side, Turns, measure, num_cores, report, summarise

from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.runner.recipe import read_recipe
from domainbert.runner.recipe_plan import Selection
from domainbert.stages.pretrain import Pretrain

_ROOT = Path(__file__).parents[1]
_RECIPE = _ROOT / "configs" / "econ" / "objectives.yaml"
_PACKAGES = ("domainbert", "torch", "lightning", "numpy")
_STEPS = 16  # of a measurement


def train_steps(turns: Turns, settings: Settings) -> dict[str, Any]:
    """Train with one objective; an optimiser step is a unit, whatever it reads."""
    return train(settings, turns.num_units, lambda tokens: turns.done(1), CACHE / "objectives")


def stages_of(recipe: Path) -> dict[str, Pretrain]:
    """The stages `pretrain` of a recipe, by name."""
    corpus = json.dumps({"sources": [{"path": str(raw_corpus()[1])}]})
    options = [(f"stages.{stage}.corpus", corpus) for stage in ("vocab", "prepare")]
    needed = Selection(only=("prepare",))  # the files of the other stages are not opened
    jobs = read_recipe(recipe, options, selection=needed).jobs
    found = {name: job.settings.instance for name, job in jobs.items()}
    return {name: one for name, one in found.items() if isinstance(one, Pretrain)}


def settings_of(stage: Pretrain, prepared: Path) -> Settings:
    """The work of a stage."""
    learnt, encoder = stage.objective or MaskedLM(stage.masking), stage.encoder
    assert encoder is not None
    return Settings(prepared, encoder, stage.row_length, stage.batch_size, stage.dropout or 0.0, learnt, stage.optim)


def main() -> None:
    """Measure, print the steps, write the JSON."""
    parser = argparse.ArgumentParser(description="Steps of each objective in the same time")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each side; the median counts")
    parser.add_argument("--steps", type=int, default=_STEPS, help="optimiser steps of a measurement")
    parser.add_argument("--out", type=Path, default=_ROOT / "benchmarks" / "results" / "objectives.json")
    options = parser.parse_args()
    corpus, prepared = prepared_corpus()
    stages = stages_of(_RECIPE)
    sides = [Side(name, train_steps, settings_of(one, prepared)) for name, one in stages.items()]
    rounds = Rounds(options.rounds, options.steps, options.steps)
    print(f"{_RECIPE.name}, {corpus} corpus, {num_cores()} cores")
    measurements, facts = measure(sides, rounds, CACHE / "logs")
    rates = {name: side["median"] for name, side in summarise(measurements, facts)[1].items()}
    first = next(iter(stages))
    most = stages[first].budget.max_steps or 0
    max_steps = {name: round(most * rate / rates[first]) for name, rate in rates.items()}
    described = {"corpus": corpus, "encoder": asdict(stages[first].encoder), "rounds": asdict(rounds)}
    report(options.out, "steps", described, _PACKAGES, measurements, facts, {"max_steps": max_steps})
    print("\n".join(f"{name}: max_steps {steps:,}" for name, steps in max_steps.items()))


if __name__ == "__main__":
    main()
