"""All rules on labelled sets, and the check that reads the sets and applies the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any, get_args

from domainbert.base.errors import DomainbertError, counted
from domainbert.checks import entity_rules, label_rules, split_rules, text_rules
from domainbert.checks.finding import Finding, Rule, apply_rules, problem_place, rule
from domainbert.checks.labelled_set import CheckedSet, SetName, TwoSets
from domainbert.checks.split_rules import with_pair_name
from domainbert.checks.text_rules import TokenizedSet
from domainbert.labelled.items import Labelled
from domainbert.labelled.sets import LabelledSet, Single, files_of, read_set
from domainbert.tasks.config import TaskConfig

if TYPE_CHECKING:
    from domainbert.tokenization.load import DomainTokenizer


@dataclass(frozen=True)
class UnreadableFile:
    """A labelled file that cannot be read."""

    name: SetName  # of the set with the file
    file: Single
    errors: Sequence[DomainbertError]


def read_checked(
    task: TaskConfig,
    name: SetName,
    labelled_set: LabelledSet,
    read: Callable[[TaskConfig, LabelledSet], Labelled[Any]] = read_set,
) -> tuple[CheckedSet | None, list[UnreadableFile]]:
    """Read the files of a labelled set with `read`, one at a time.

    Returns:
        The set of all readable files, or None if there are none; and the unreadable files.
    """
    unreadable_files, readable_files, contents = [], [], []
    for file in files_of(labelled_set):
        try:
            contents.append(read(task, file))
            readable_files.append(file)
        except DomainbertError as error:
            unreadable_files.append(UnreadableFile(name, file, error.errors))
    if not contents:
        return None, unreadable_files
    labelled = contents[0] if len(contents) == 1 else read(task, readable_files)  # several files are read as one set
    return CheckedSet(name, labelled, tuple(task.labels or ())), unreadable_files


@rule("error")
def unreadable(file: UnreadableFile, rule: Rule[UnreadableFile]) -> Iterator[Finding]:
    """A labelled file cannot be read: wrong columns, tags that the scheme forbids, invalid labels or characters,
    stretches outside of the text, ...

    Correct the lines; the other rules skip this file.
    """
    places = [problem_place(error.file or str(file.file), error.line, error.text) for error in file.errors]
    yield rule.finding(f"{file.file} ({file.name}) cannot be read: {counted(len(places), 'problems')}", places)


LABELLED_SET_RULES: list[Rule[Any]] = [
    unreadable,
    *(with_pair_name(rule, *pair) for rule in split_rules.OVERLAP_RULES for pair in combinations(get_args(SetName), 2)),
    *split_rules.LABEL_RULES,
    *label_rules.TRAINING_RULES,
    *label_rules.RULES,
    *entity_rules.RULES,
    *text_rules.RULES,
    *text_rules.PIECES_RULES,
]


@dataclass(frozen=True)
class LabelledCheck:
    """Labelled sets to check, with an optional tokenizer and window length."""

    sets: Sequence[CheckedSet]
    """At most one per name, in the order training, validation, test."""
    unreadable: Sequence[UnreadableFile] = ()
    """Files that cannot be read, which `sets` does not contain."""
    tokenizer: DomainTokenizer | None = None
    max_length: int | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """Override the default thresholds, by rule name."""

    def findings(self) -> Iterator[Finding]:
        """Yield the findings of all rules, in no particular order."""
        for rules, subject in self._rules_with_subjects():
            yield from apply_rules(rules, subject, self.thresholds)

    def _rules_with_subjects(self) -> Iterator[tuple[Sequence[Rule[Any]], object]]:
        """Yield lists of rules and their subject; of rules on one set, only `text_rules.RULES` read the test set."""
        for file in self.unreadable:
            yield [unreadable], file
        for first, second in combinations(self.sets, 2):
            sets = TwoSets(first, second)
            yield [with_pair_name(rule, first.name, second.name) for rule in split_rules.OVERLAP_RULES], sets
            if first.name == "train":
                yield split_rules.LABEL_RULES, sets
        for data in self.sets:
            yield text_rules.RULES, data
            if data.name == "train":
                yield label_rules.TRAINING_RULES, data
            if data.name != "test":
                yield label_rules.RULES, data
                if data.has_span_labels:
                    yield entity_rules.RULES, data
                if self.tokenizer is not None:
                    yield text_rules.PIECES_RULES, TokenizedSet(data, self.tokenizer, self.max_length)
