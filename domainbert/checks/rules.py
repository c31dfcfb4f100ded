"""All rules on labelled sets, in the order in which they look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

from domainbert.checks import entity_rules, label_rules, pieces_rules, reading, split_rules, text_rules
from domainbert.checks.finding import Finding, Rule, with_thresholds
from domainbert.checks.labelled_set import CheckedSet, TwoSets
from domainbert.checks.pieces_rules import SetInPieces
from domainbert.checks.split_rules import PAIRS, for_pair

if TYPE_CHECKING:
    from domainbert.tokenization.load import DomainTokenizer

OF_LABELLED_SETS: list[Rule[Any]] = [
    *reading.RULES,
    *(for_pair(one, *pair) for one in split_rules.SHARED for pair in PAIRS),
    *split_rules.FROM_TRAINING,
    *label_rules.TRAINING_RULES,
    *label_rules.RULES,
    *entity_rules.RULES,
    *text_rules.RULES,
    *pieces_rules.RULES,
]


@dataclass(frozen=True)
class LabelledCheck:
    """Things to look at: sets, and perhaps the vocabulary and the window that will read them."""

    sets: Sequence[CheckedSet]
    """Each once, training before validation before test."""
    unread: Sequence[reading.UnreadFile] = ()
    tokenizer: DomainTokenizer | None = None
    max_length: int | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """By the names of rules, in place of theirs."""

    def findings(self) -> Iterator[Finding]:
        """The findings of the rules, in no order that means anything.

        A test set is compared with the others, and its texts are looked at; its labels are only counted.
        """
        for file in self.unread:
            yield from self._found(reading.RULES, file)
        for pair in combinations(self.sets, 2):
            yield from self._of_two(TwoSets(*pair))
        for one in self.sets:
            yield from self._of_one(one)

    def _of_two(self, two: TwoSets) -> Iterator[Finding]:
        yield from self._found([for_pair(one, *two.names) for one in split_rules.SHARED], two)
        if two.first.name == "train":
            yield from self._found(split_rules.FROM_TRAINING, two)

    def _of_one(self, one: CheckedSet) -> Iterator[Finding]:
        yield from self._found(text_rules.RULES, one)
        if one.name == "train":
            yield from self._found(label_rules.TRAINING_RULES, one)
        if one.name != "test":
            yield from self._found(label_rules.RULES, one)
            if one.labels_stretches:
                yield from self._found(entity_rules.RULES, one)
            if self.tokenizer is not None:
                yield from self._found(pieces_rules.RULES, SetInPieces(one, self.tokenizer, self.max_length))

    def _found(self, rules: Sequence[Rule[Any]], subject: object) -> Iterator[Finding]:
        for one in with_thresholds(rules, self.thresholds):
            yield from one(subject)
