"""Strict, lenient and partial scores of entities as `torchmetrics.Metric`, as in `domainbert.metrics.modules`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from domainbert.base.errors import DomainbertError
from domainbert.base.fields import as_plain_list
from domainbert.labelled.tag_schemes import spans_from_tags, split_tag
from domainbert.metrics.counts import IntArray, micro_f1, scores_by_name
from domainbert.metrics.entities import Span, count_entities, count_lenient, entity_scores, lenient_and_partial
from domainbert.metrics.modules import StoredRows, SummedCounts

Entities = Sequence[Sequence[str]] | Sequence[Sequence[Span]]
"""Tags of each sentence (IOB1, IOB2, BIOES or BILOU), or its spans (start, end, type), `end` exclusive."""

MIN_SCORES = tuple(number / 20 for number in range(11))
"""Candidates for the least score of a predicted entity: 0 to 0.5."""


class EntityF1(StoredRows):
    """Strict entity precision, recall and F1; optionally also by type and lenient.

    Micro scores are equal to seqeval's with `mode="strict"`; invalid tags are read as in `conlleval`. `macro_f1` is the
    mean over the types that occur. Types need not be known in advance.

    >>> from domainbert import EntityF1
    >>> f1 = EntityF1(per_type=True, lenient=True)
    >>> f1.update([["B-court", "I-court", "O"]], [["B-court", "I-court", "B-law"]])  # predicted, gold
    >>> f1.update([[(0, 1, "law")]], [[(0, 2, "law")]])  # spans
    >>> {name: round(float(score), 2) for name, score in f1.compute().items() if name.endswith(("f1", "f1/law"))}
    {'f1': 0.4, 'macro_f1': 0.5, 'lenient_f1': 0.8, 'partial_f1': 0.6, 'f1/law': 0.0}

    Args:
        per_type: add `precision/TYPE`, `recall/TYPE` and `f1/TYPE`.
        lenient: add `lenient_` scores, for which an overlap with the same type is correct, and `partial_` scores, for
            which an inexact overlap counts half. The spans of a sentence must then not overlap each other.
    """

    dtype = torch.int64

    def __init__(self, per_type: bool = False, lenient: bool = False) -> None:
        # flat numbers, which torchmetrics can gather from ranks with different types; for each type: length of its
        # name, characters of its name, tp, fp, fn, lenient matches
        super().__init__(width=1)
        self.per_type, self.lenient = per_type, lenient

    def update(self, predicted: Entities, gold: Entities) -> None:
        """Add sentences, given by their tags or spans.

        Raises:
            DomainbertError: different numbers of sentences or tags, a tag of an unknown scheme, or, for lenient scores,
                overlapping spans in a sentence.
        """
        predicted, gold = ([as_plain_list(sentence) for sentence in side] for side in (predicted, gold))
        if len(predicted) != len(gold):
            raise DomainbertError(
                where="predicted", found=f"length {len(predicted):,}", expected=f"{len(gold):,}, as in gold"
            )
        for number, (tags, gold_tags) in enumerate(zip(predicted, gold, strict=True)):
            if len(tags) != len(gold_tags) and _are_tags(tags) and _are_tags(gold_tags):
                raise DomainbertError(
                    f"length {len(tags)}", where=f"predicted[{number}]", expected=f"{len(gold_tags)}, as in gold"
                )
        spans, gold_spans = ([_as_spans(sentence) for sentence in side] for side in (predicted, gold))
        if self.lenient:
            _check_disjoint("predicted", spans)
            _check_disjoint("gold", gold_spans)
        types = sorted({span[2] for side in (spans, gold_spans) for sentence in side for span in sentence})
        counts = count_entities(gold_spans, spans, types).sum(axis=0)
        matches = count_lenient(gold_spans, spans, types) if self.lenient else np.zeros(len(types), dtype=np.int64)
        for name, row, matched in zip(types, counts.tolist(), matches.tolist(), strict=True):
            self.add(np.array([len(name), *map(ord, name), *row, matched], dtype=np.int64))  # see `__init__`

    def scores(self, records: IntArray) -> dict[str, Any]:
        """Return the scores of the records (numbers, 1) of all batches."""
        types, counts, matched = _totals(records.ravel().tolist())
        scores: dict[str, Any] = entity_scores(counts)
        if self.lenient:
            for prefix, values in zip(("lenient", "partial"), lenient_and_partial(counts, matched), strict=True):
                scores |= {f"{prefix}_{key}": value for key, value in values.items()}
        if self.per_type:
            for name, row in scores_by_name(types, counts).items():
                scores |= {f"{key}/{name}": value for key, value in row.items() if key != "support"}
        return scores


class LikelyEntityF1(SummedCounts):
    """Strict entity scores at the least score of an entity, `min_score`, with the highest F1; and `min_score`.

    The default candidates end at 0.5, because higher values are selected by chance if there are few entities, and
    entities that are more probable than not are worth predicting.

    >>> from domainbert.metrics.entity_modules import LikelyEntityF1
    >>> f1 = LikelyEntityF1(["law"])
    >>> f1.update([[((0, 1, "law"), 0.2), ((3, 4, "law"), 0.9)]], [[(3, 4, "law")]])  # predicted, gold
    >>> {name: round(float(score), 2) for name, score in f1.compute().items() if name in ("f1", "min_score")}
    {'f1': 1.0, 'min_score': 0.25}

    Args:
        types: names of the entity types.
        min_scores: the candidates, in ascending order; `(0.0,)` counts all entities.
    """

    def __init__(self, types: Sequence[str], min_scores: Sequence[float] = MIN_SCORES) -> None:
        super().__init__(len(min_scores), len(types), 3)  # tp, fp, fn
        self.types, self.min_scores = tuple(types), tuple(min_scores)

    def update(self, predicted: Sequence[Sequence[tuple[Span, float]]], gold: Sequence[Sequence[Span]]) -> None:
        """Add sentences: their predicted spans, each with its score, and their gold spans."""
        counts = []
        for min_score in self.min_scores:
            likely = [[span for span, score in sentence if score >= min_score] for sentence in predicted]
            counts.append(count_entities(gold, likely, self.types).sum(axis=0))
        self.add(np.stack(counts))

    def scores(self, counts: IntArray) -> dict[str, Any]:
        """Return the scores at the `min_score` with the highest F1, of equal ones the lowest."""
        best = int(micro_f1(counts).argmax())
        return {**entity_scores(counts[best]), "min_score": self.min_scores[best]}


def _totals(records: Sequence[int]) -> tuple[list[str], IntArray, IntArray]:
    """Return the types, their strict counts (types, 3) of tp, fp and fn, and their lenient matches (types,)."""
    by_type: dict[str, IntArray] = defaultdict(lambda: np.zeros(4, dtype=np.int64))
    numbers = iter(records)
    for length in numbers:  # of the name, the first number of a record
        name = "".join(chr(next(numbers)) for _ in range(length))
        by_type[name] += [next(numbers) for _ in range(4)]
    types = sorted(by_type)
    counts = np.array([by_type[name] for name in types], dtype=np.int64).reshape(-1, 4)
    return types, counts[:, :3], counts[:, 3]


def _check_disjoint(name: str, sentences: Sequence[Sequence[Span]]) -> None:
    for number, spans in enumerate(sentences):
        for left, right in pairwise(spans):  # sorted
            if right[0] < left[1]:
                raise DomainbertError(
                    f"the spans {left} and {right} overlap",
                    where=f"{name}[{number}]",
                    expected="spans that do not overlap, for lenient scores",
                    hint="set lenient=False for nested entities",
                )


def _are_tags(sentence: Sequence[Any]) -> bool:
    return bool(sentence) and isinstance(sentence[0], str)


def _as_spans(sentence: Sequence[Any]) -> list[Span]:
    if not _are_tags(sentence):
        return sorted((int(start), int(end), name) for start, end, name in sentence)
    for tag in set(sentence):
        split_tag(tag)  # raises an error for an invalid tag
    return spans_from_tags(sentence)
