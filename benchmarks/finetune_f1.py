"""F1 of fine-tuning on named entities over several seeds, one side after another.

    python benchmarks/finetune_f1.py [--data econ|ncbi] [--model FOLDER] [--epochs 5] [--seeds 1 2 3 4 5]
        [--sides peers|factors]

The sides are those of `finetune_ner.py`, or domainbert as it is and with one thing as `run_ner.py` has it. The JSON
is written after each seed. Seeds that it holds already are not trained again.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from finetune_ner import PACKAGES, Settings, described, parser_of, settings_of, sides_of, train_domainbert
from prepared_corpus import CACHE
from scipy.stats import t
from side_by_side import Rounds, Side, measure, versions, write_result

_CONFIDENCE = 0.95

Curves = Mapping[str, Mapping[str, Sequence[float]]]
"""By seed and side, the F1 on the validation set after each epoch."""


def factors_of(settings: Settings) -> list[Side]:
    """domainbert as it is, then with one thing changed at a time."""
    return [
        Side("domainbert", train_domainbert, settings),
        Side("full precision", train_domainbert, replace(settings, precision="32-true")),
        Side("first pieces of words alone", train_domainbert, replace(settings, words_alone=True)),
        Side("word by word", train_domainbert, replace(settings, word_by_word=True)),
    ]


SIDES: Mapping[str, Callable[[Settings], list[Side]]] = {"peers": sides_of, "factors": factors_of}


def train(sides: Sequence[Side], settings: Settings) -> dict[str, list[float]]:
    """The validation F1 of each side after each epoch."""
    whole = Rounds(1, 0, settings.num_epochs * settings.steps_per_epoch, settle=0)
    _, facts = measure(sides, whole, CACHE / "logs")
    return {name: fact["validation_f1"] for name, fact in facts.items()}


def summary(curves: Curves) -> dict[str, Any]:
    """Each side's best epoch, over the seeds, and how far domainbert is from the others with the same seed."""
    best = {side: [max(of_seed[side]) for of_seed in curves.values()] for side in next(iter(curves.values()))}
    ours, *others = best
    return {
        "validation_f1": {side: mean_and_interval(values) for side, values in best.items()},
        "differences": {
            f"{ours} - {other}": mean_and_interval([a - b for a, b in zip(best[ours], best[other], strict=True)])
            for other in others
        },
    }


def mean_and_interval(values: Sequence[float]) -> dict[str, Any]:
    """Mean and its interval by Student's t; None with one value."""
    mean, interval = statistics.fmean(values), None
    if len(values) > 1:
        standard_error = statistics.stdev(values) / math.sqrt(len(values))
        reach = float(t.ppf((1 + _CONFIDENCE) / 2, len(values) - 1)) * standard_error  # 0 for equal values
        interval = [mean - reach, mean + reach]
    return {"mean": mean, "interval": interval, "by_seed": list(values)}


def kept(path: Path, settings: Mapping[str, Any], key: str = "curves") -> dict[str, Any]:
    """The trainings that an earlier run wrote under `key`, with the same settings and versions of packages."""
    if not path.is_file():
        return {}
    before = json.loads(path.read_text(encoding="utf-8"))
    for name, wanted in {"settings": settings, "versions": versions(PACKAGES)}.items():
        if before[name] != wanted:
            raise SystemExit(f"{path}: {name}: found {before[name]}; expected {wanted}, or another --out")
    trained: dict[str, Any] = before[key]
    return trained


def main() -> None:
    """Train what is missing, and report."""
    parser = parser_of("What fine-tuning on entities learns: domainbert and run_ner.py, over several seeds")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="of all sides")
    parser.add_argument("--sides", choices=tuple(SIDES), default="peers", help="other systems, or one thing changed")
    options = parser.parse_args()
    settings = settings_of(options)
    suffix = "" if options.sides == "peers" else f"-{options.sides}"
    out = options.out or Path(__file__).parent / "results" / f"finetune_f1-{options.data}{suffix}.json"
    told = described(options) | {"sides": options.sides}
    curves = kept(out, told)
    for seed in options.seeds:
        if str(seed) not in curves:
            print(f"seed {seed}", flush=True)
            seeded = replace(settings, seed=seed)
            curves[str(seed)] = train(SIDES[options.sides](seeded), seeded)
            write_result(out, summary(curves), told, PACKAGES, {"curves": curves})
    print(f"best F1 on the validation set, mean of {len(curves)} seeds and its {_CONFIDENCE:.0%} interval")
    for name, found in [pair for part in summary(curves).values() for pair in part.items()]:
        low, high = found["interval"] or (math.nan, math.nan)
        print(f"{name:42} {100 * found['mean']:6.2f}  [{100 * low:.2f}, {100 * high:.2f}]")


if __name__ == "__main__":
    main()
