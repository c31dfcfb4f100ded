"""F1 of a tagger with and without the least score of an entity, which validation selects.

    python benchmarks/min_score.py FOLDER ... --data econ|ncbi|sample [--pipeline] [--small 20 125 500]
        [--validation_only]

FOLDER are the seeds of one system, such as `seed-1` of a `finetune` stage. Each seed has its own least score; the
last line has the means, and the 95 % interval of the difference.

`--pipeline` scores the groups of `transformers.pipeline` on the joined words instead, with a least score up to 0.95.
`--small` selects the least score on random parts of the validation set of these sizes, and prints the mean gain on the
other sentences: among 0 to 0.5, as domainbert does, among 0 to 0.95, and 0.5 for all.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pipeline_f1 import SPLITS, characters, counts, f1, interval, pipeline_of, sentences
from prepared_corpus import NER_DATA

from domainbert import load_tagger
from domainbert.labelled.tag_schemes import spans_from_tags
from domainbert.metrics.entity_modules import MIN_SCORES

_ALL = [number / 20 for number in range(20)]
_PARTS = 300  # random parts of the validation set


def counts_by_min_score(folder: Path, data: str, split: str, use_pipeline: bool) -> np.ndarray:
    """Common, predicted and gold entities by least score and sentence: (scores, sentences, 3)."""
    items = sentences(data, split)
    if use_pipeline:
        groups = pipeline_of(folder)([" ".join(one.words) for one in items])
        scored = [[((one["start"], one["end"], one["entity_group"]), one["score"]) for one in row] for row in groups]
        gold = [characters(one.words, one.spans) for one in items]
    else:
        tagger = load_tagger(folder)
        tagger.task.min_score = 0.0
        tagged = tagger.tag_words([one.words for one in items])
        scored = [[(span, one.scores[span[0]]) for span in spans_from_tags(one.tags)] for one in tagged]
        gold = [one.spans for one in items]
    return np.stack([counts(gold, [[s for s, score in row if score >= least] for row in scored]) for least in _ALL])


def best(by_score: np.ndarray, num_scores: int) -> int:
    """Index of the least score with the highest F1, from counts (scores, sentences, 3)."""
    return int(np.argmax([f1(one) for one in by_score[:num_scores]]))


def gain_of_small_sets(by_score: np.ndarray, size: int) -> str:
    """Mean gain on the sentences that did not select the least score."""
    random, gains = np.random.default_rng(0), []
    for _ in range(_PARTS):
        order = random.permutation(by_score.shape[1])
        selecting, others = by_score[:, order[:size]], by_score[:, order[size:]]
        chosen = [best(selecting, len(MIN_SCORES)), best(selecting, len(_ALL)), len(MIN_SCORES) - 1]
        gains.append([f1(others[index]) - f1(others[0]) for index in chosen])
    capped, free, fixed = np.mean(gains, axis=0)
    return f"{size:,} sentences: up to 0.5 {capped:+.2f}, up to 0.95 {free:+.2f}, always 0.5 {fixed:+.2f}"


def main() -> None:
    """Score each folder, and print the differences."""
    parser = argparse.ArgumentParser(description="F1 with and without the least score of an entity")
    parser.add_argument("--data", choices=NER_DATA, default="econ")
    parser.add_argument("--pipeline", action="store_true", help="score transformers.pipeline")
    parser.add_argument("--small", type=int, nargs="+", default=[], help="numbers of validation sentences")
    parser.add_argument("--validation_only", action="store_true", help="do not open the test set")
    parser.add_argument("folders", type=Path, nargs="+")
    options = parser.parse_args()
    splits: Sequence[str] = SPLITS[:1] if options.validation_only else SPLITS
    pairs: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {split: [] for split in splits}
    for folder in options.folders:
        tables = {split: counts_by_min_score(folder, options.data, split, options.pipeline) for split in splits}
        index = best(tables["validation"], len(_ALL if options.pipeline else MIN_SCORES))
        for split, table in tables.items():
            pairs[split].append((table[index], table[0]))
        scores = [f"{split} {f1(table[0]):.2f} -> {f1(table[index]):.2f}" for split, table in tables.items()]
        print(f"{folder}: min_score {_ALL[index]:.2f}, {', '.join(scores)}", flush=True)
        for size in options.small:
            print(f"  {gain_of_small_sets(tables['validation'], size)}")
    for split, tables_of_split in pairs.items():
        low, high = interval(tables_of_split)
        with_it, without = (np.mean([f1(pair[side]) for pair in tables_of_split]) for side in (0, 1))
        print(f"{split}: {without:.2f} -> {with_it:.2f}, {with_it - without:+.2f} [{low:+.2f}, {high:+.2f}]")


if __name__ == "__main__":
    main()
