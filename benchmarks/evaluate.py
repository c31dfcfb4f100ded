"""Entity scores: domainbert against seqeval, from lists of tags to strict precision, recall and F1 of every type.

    python benchmarks/evaluate.py [--tokens 1000000] [--rounds 5]

The tags are generated: valid IOB2 in sentences of about 25 words, predictions with the errors that a tagger makes. All
sides have to give the same numbers.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prepared_corpus import CACHE
from side_by_side import Rounds, Side, Turns, measure, num_cores, report

from domainbert.labelled.tag_schemes import Span, spans_from_tags, tags_from_spans

_TYPES = {"population": 30, "outcome": 25, "intervention": 20, "place": 12, "effect": 8, "period": 5}  # frequencies
_WORDS = (10, 40)  # of a sentence
_ENTITY_EVERY = 8  # words between entities: with their own two, one word in five is in an entity
_MORE_WORDS = 0.45  # the chance that an entity goes on
_MISSED, _SHORTENED, _MISTYPED, _SPURIOUS = 0.06, 0.06, 0.04, 0.1  # of the entities
_PACKAGES = ("domainbert", "seqeval", "scikit-learn", "numpy")
_RESAMPLES = 2000
_REPEATS = 3
_TOLERANCE = 1e-12

Tags = list[list[str]]
Numbers = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Settings:
    """The predictions that all sides score."""

    tokens: int
    seed: int = 0


def generate(settings: Settings) -> tuple[Tags, Tags, int]:
    """Gold and predicted tags of sentences of 10 to 40 words, and how many words there are: at least `tokens`."""
    draw = random.Random(settings.seed)
    gold: Tags = []
    predicted: Tags = []
    words = 0
    while words < settings.tokens:
        length = draw.randint(*_WORDS)
        spans = _draw_spans(draw, length)
        gold.append(tags_from_spans(spans, length))
        predicted.append(tags_from_spans(_predict(draw, spans), length))
        words += length
    return gold, predicted, words


def _draw_spans(draw: random.Random, length: int) -> list[Span]:
    spans = []
    start = _gap(draw)
    while start < length:
        end = start + 1
        while end < length and draw.random() < _MORE_WORDS:
            end += 1
        spans.append((start, end, _draw_type(draw)))
        start = end + _gap(draw)
    return spans


def _gap(draw: random.Random) -> int:
    return int(draw.expovariate(1 / _ENTITY_EVERY))


def _draw_type(draw: random.Random) -> str:
    return draw.choices(list(_TYPES), list(_TYPES.values()))[0]


def _predict(draw: random.Random, gold: Sequence[Span]) -> list[Span]:
    """The entities with errors: some missed, some without their last word, some of another type, and spurious ones."""
    found: list[Span] = []
    free = 0  # the first word that no entity before holds
    for start, end, kind in gold:
        if start > free and draw.random() < _SPURIOUS:
            found.append((free, free + 1, _draw_type(draw)))
        free = end
        error = draw.random()
        if error < _MISSED:
            continue
        if error < _MISSED + _SHORTENED and end - start > 1:
            end -= 1
        elif error > 1 - _MISTYPED:
            kind = _draw_type(draw)
        found.append((start, end, kind))
    return found


def score_with_domainbert(turns: Turns, settings: Settings) -> dict[str, Any]:
    """As the stage `evaluate` counts: tags to spans, strict counts of each sentence, sums, scores."""
    from domainbert.metrics.counts import macro_f1, scores
    from domainbert.metrics.entities import count_entities

    def numbers(gold: Tags, predicted: Tags) -> Numbers:
        wanted, found = ([spans_from_tags(tags) for tags in side] for side in (gold, predicted))
        types = sorted({span[2] for side in (wanted, found) for one in side for span in one})
        counts = count_entities(wanted, found, types).sum(axis=0)  # (types, 3)
        rows = {**dict(zip(types, counts, strict=True)), "micro": counts.sum(axis=0)}
        scored = {name: {**scores(row), "support": int(row[0] + row[2])} for name, row in rows.items()}
        return {**scored, "macro": {"f1": float(macro_f1(counts))}}

    facts = _score(turns, settings, numbers, "spans_from_tags, count_entities, scores")
    return facts | _seconds_of_the_rest(settings)


def _score(turns: Turns, settings: Settings, numbers: Callable[[Tags, Tags], Numbers], how: str) -> dict[str, Any]:
    gold, predicted, words = generate(settings)
    for _ in range(turns.num_units):
        result = numbers(gold, predicted)
        turns.done(words)
    return {"how": how, "numbers": result}


def _seconds_of_the_rest(settings: Settings) -> dict[str, Any]:
    """Work without a peer: bootstrap interval alone, and all that `evaluate` says of a system, interval included."""
    from domainbert.labelled.entities import NerFile, Sentence
    from domainbert.metrics.bootstrap import interval, resample_scores
    from domainbert.metrics.counts import micro_f1
    from domainbert.metrics.entities import count_entities
    from domainbert.metrics.summary import Resampling
    from domainbert.tasks.ner.config import Ner
    from domainbert.tasks.ner.scoring import EntityScoring
    from domainbert.tasks.word_task import TaggedWords

    gold, predicted, _ = generate(settings)
    wanted, found = ([spans_from_tags(tags) for tags in side] for side in (gold, predicted))
    counts = count_entities(wanted, found, list(_TYPES))
    items = [Sentence(tags, tags, line, line) for line, tags in enumerate(gold)]
    scoring = EntityScoring(Ner(), NerFile(Path("generated"), items, "conll", "", [], "IOB2"), None)
    scoring.predictions = {"system": {"model": [TaggedWords(tags, []) for tags in predicted]}}

    def bootstrap() -> tuple[float, float]:
        return interval(resample_scores({"system": [counts]}, micro_f1, _RESAMPLES)["system"])

    def summary() -> object:
        return scoring.summary(Resampling(_RESAMPLES, 0))

    return {
        "sentences": len(gold),
        "resamples": _RESAMPLES,
        "bootstrap_interval": bootstrap(),
        "bootstrap_seconds": _median_seconds(bootstrap),
        "summary_seconds": _median_seconds(summary),
    }


def _median_seconds(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def report_of_seqeval_strict(turns: Turns, settings: Settings) -> dict[str, Any]:
    """seqeval's `classification_report` in strict mode."""
    from seqeval.scheme import IOB2

    return _score_with_seqeval(turns, settings, {"mode": "strict", "scheme": IOB2})


def report_of_seqeval(turns: Turns, settings: Settings) -> dict[str, Any]:
    """seqeval's `classification_report` as it comes."""
    return _score_with_seqeval(turns, settings, {})


def f1_of_seqeval(turns: Turns, settings: Settings) -> dict[str, Any]:
    """seqeval's `f1_score` as it comes: micro F1 and nothing else."""
    from seqeval.metrics import f1_score

    def numbers(gold: Tags, predicted: Tags) -> Numbers:
        return {"micro": {"f1": float(f1_score(gold, predicted))}}

    return _score(turns, settings, numbers, "f1_score")


def _score_with_seqeval(turns: Turns, settings: Settings, arguments: Mapping[str, Any]) -> dict[str, Any]:
    from seqeval.metrics import classification_report

    def numbers(gold: Tags, predicted: Tags) -> Numbers:
        scored = classification_report(gold, predicted, output_dict=True, zero_division=0, **arguments)
        scored = {name: {key: float(value) for key, value in row.items()} for name, row in scored.items()}
        rows = {
            name.removesuffix(" avg"): {"f1": row.pop("f1-score"), **row}
            for name, row in scored.items()
            if name != "weighted avg"
        }
        return {**rows, "macro": {"f1": rows["macro"]["f1"]}}

    return _score(turns, settings, numbers, " ".join(["classification_report", *arguments]))


def check_same_numbers(facts: Mapping[str, dict[str, Any]]) -> None:
    """Raises: AssertionError: a side gives a number that differs from the first side's."""
    ours, *others = facts
    expected = facts[ours]["numbers"]
    for other in others:
        for name, row in facts[other]["numbers"].items():
            for key, value in row.items():
                difference = abs(value - expected[name][key])
                assert difference <= _TOLERANCE, f"{name} {key}: {expected[name][key]} ({ours}), {value} ({other})"


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description="Entity scores: domainbert against seqeval")
    parser.add_argument("--tokens", type=int, default=1_000_000, help="words to score")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each side; the median counts")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "evaluate.json")
    options = parser.parse_args()
    settings = Settings(options.tokens)
    sides = [
        Side("domainbert", score_with_domainbert, settings),
        Side("seqeval, strict", report_of_seqeval_strict, settings),
        Side("seqeval, default", report_of_seqeval, settings),
        Side("seqeval, micro F1 alone", f1_of_seqeval, settings),
    ]
    rounds = Rounds(options.rounds, 1, 1, settle=0)
    print(f"{settings.tokens:,} words, {num_cores()} cores")
    measurements, facts = measure(sides, rounds, CACHE / "logs")
    check_same_numbers(facts)
    report(options.out, "words", {**asdict(settings), "rounds": asdict(rounds)}, _PACKAGES, measurements, facts)
    ours = facts["domainbert"]
    low, high = ours["bootstrap_interval"]
    print(
        f"F1 {ours['numbers']['micro']['f1']:.4f}, the same on all sides; not in the above: 95 % interval "
        f"[{low:.4f}, {high:.4f}] from {_RESAMPLES:,} resamples of {ours['sentences']:,} sentences in "
        f"{ours['bootstrap_seconds']:.2f} s; all that `evaluate` prints in {ours['summary_seconds']:.2f} s"
    )


if __name__ == "__main__":
    main()
