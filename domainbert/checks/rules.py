"""All rules on labelled sets, and the check that applies them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

from domainbert.checks import entity_rules, label_rules, pieces_rules, reading, split_rules, text_rules
from domainbert.checks.finding import Finding, Rule, with_thresholds
from domainbert.checks.labelled_set import CheckedSet, TwoSets
from domainbert.checks.pieces_rules import TokenizedSet
from domainbert.checks.split_rules import PAIRS, with_pair_name

if TYPE_CHECKING:
    from domainbert.tokenization.load import DomainTokenizer

LABELLED_SET_RULES: list[Rule[Any]] = [
    *reading.RULES,
    *(with_pair_name(rule, *pair) for rule in split_rules.OVERLAP_RULES for pair in PAIRS),
    *split_rules.LABEL_RULES,
    *label_rules.TRAINING_RULES,
    *label_rules.RULES,
    *entity_rules.RULES,
    *text_rules.RULES,
    *pieces_rules.RULES,
]


@dataclass(frozen=True)
class LabelledCheck:
    """Labelled sets to check, with an optional tokenizer and window length."""

    sets: Sequence[CheckedSet]
    """At most one per name, in the order training, validation, test."""
    unreadable: Sequence[reading.UnreadableFile] = ()
    """Files that cannot be read, which `sets` does not contain."""
    tokenizer: DomainTokenizer | None = None
    max_length: int | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """Override the default thresholds, by rule name."""

    def findings(self) -> Iterator[Finding]:
        """Yield the findings of all rules, in no particular order.

        The rules on labels skip the test set; the rules on texts and on overlap include it.
        """
        for file in self.unreadable:
            yield from self._apply(reading.RULES, file)
        for pair in combinations(self.sets, 2):
            yield from self._check_pair(TwoSets(*pair))
        for data in self.sets:
            yield from self._check_set(data)

    def _check_pair(self, sets: TwoSets) -> Iterator[Finding]:
        yield from self._apply([with_pair_name(rule, *sets.names) for rule in split_rules.OVERLAP_RULES], sets)
        if sets.first.name == "train":
            yield from self._apply(split_rules.LABEL_RULES, sets)

    def _check_set(self, data: CheckedSet) -> Iterator[Finding]:
        yield from self._apply(text_rules.RULES, data)
        if data.name == "train":
            yield from self._apply(label_rules.TRAINING_RULES, data)
        if data.name != "test":
            yield from self._apply(label_rules.RULES, data)
            if data.has_span_labels:
                yield from self._apply(entity_rules.RULES, data)
            if self.tokenizer is not None:
                yield from self._apply(pieces_rules.RULES, TokenizedSet(data, self.tokenizer, self.max_length))

    def _apply(self, rules: Sequence[Rule[Any]], subject: object) -> Iterator[Finding]:
        for rule in with_thresholds(rules, self.thresholds):
            yield from rule(subject)
