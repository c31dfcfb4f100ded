"""Rules on pairs of labelled sets of a task: overlap and missing labels."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from itertools import chain
from math import ceil
from typing import get_args

from domainbert.base.errors import counted
from domainbert.checks.finding import Finding, Place, Rule, rule
from domainbert.checks.labelled_set import SetName, TwoSets, first_indices

_RUN_WORDS = 3
_MIN_RUNS = 8  # of a text of ten words; shorter texts are skipped

Runs = frozenset[str]


@rule("error", threshold=0.05)
def same_text(sets: TwoSets, rule: Rule[TwoSets]) -> Iterator[Finding]:
    """Texts occur in both sets; case, punctuation and white space are ignored. A warning up to this share of the second
    set, an error above it.

    Remove them from the first set: the model has already seen the answers.
    """
    first = first_indices(sets.first.identities)
    # pairs of equal items: index in the first set, index in the second set
    shared = [(first[identity], index) for index, identity in enumerate(sets.second.identities) if identity in first]
    pairs = [(copy, index) for copy, index in shared if not sets.second.is_short(index)]
    if not pairs:
        return
    num_relabelled = sum(_is_relabelled(sets, *pair) for pair in pairs)
    labels = f", {num_relabelled:,} of them with other labels" if num_relabelled else ""
    share = f"{len(pairs):,} of {len(sets.second.items):,} texts of {sets.second.name}"
    message = f"{share} are also in {sets.first.name}{labels}"
    finding = rule.finding(message, (_place_of_pair(sets, *pair) for pair in pairs))
    is_small_share = len(pairs) <= rule.limit * len(sets.second.items)
    yield replace(finding, severity="warning") if is_small_share else finding


def _is_relabelled(sets: TwoSets, first: int, second: int) -> bool:
    """Texts that differ in punctuation are compared by their labels, if any: annotations may refer to words."""
    item, copy = sets.first.items[first], sets.second.items[second]
    has_equal_words = sets.first.texts[first].split() == sets.second.texts[second].split()
    if has_equal_words or not (item.labels or copy.labels):
        return item.target != copy.target
    return sorted(item.labels) != sorted(copy.labels)


def _place_of_pair(sets: TwoSets, first: int, second: int) -> Place:
    first_place = sets.first.place(first)
    return sets.second.place(second, f"(and {first_place.path}:{first_place.line}) {sets.second.texts[second]}")


@rule("warning", threshold=0.8)
def near_same_text(sets: TwoSets, rule: Rule[TwoSets]) -> Iterator[Finding]:
    """Texts of at least ten words are almost the same in both sets, but not equal: the Jaccard similarity of their word
    trigrams is at least this.

    Read some of them: versions of a text belong in the same set.
    """
    identities = set(sets.first.identities)
    no_copies = [index for index, identity in enumerate(sets.second.identities) if identity not in identities]
    similar = similar_pairs(sets.first.words, [sets.second.words[index] for index in no_copies], rule.limit)
    pairs = [(first, no_copies[position]) for first, position, _ in similar]
    # texts with equal words but different marks are neither copies nor versions of a text
    pairs = [(first, second) for first, second in pairs if sets.first.words[first] != sets.second.words[second]]
    if pairs:
        share = f"{len(pairs):,} of {len(sets.second.items):,} texts of {sets.second.name}"
        message = f"{share} are almost equal to texts of {sets.first.name}"
        yield rule.finding(message, (_place_of_pair(sets, *pair) for pair in pairs))


def similar_pairs(
    first: Sequence[Sequence[str]], second: Sequence[Sequence[str]], threshold: float
) -> Iterator[tuple[int, int, float]]:
    """Yield `(index in first, index in second, similarity)` of each text in `second` and its most similar text in
    `first`: the Jaccard similarity of their word trigrams ("runs").

    Texts are lists of words. Pairs below the threshold and texts of fewer than ten words are skipped.

    Only texts that share a rare run are compared: if the similarity of two sets is at least t, some member is among the
    rarest |x| - ceil(t |x|) + 1 members of both sets x (the prefix filter of Chaudhuri et al. 2006, "A primitive
    operator for similarity joins").
    """
    first_runs, second_runs = list(map(_runs, first)), list(map(_runs, second))
    counts = Counter(chain.from_iterable(chain(first_runs, second_runs)))
    texts_with_run: dict[str, list[int]] = defaultdict(list)  # indices in `first`
    for index, runs in enumerate(first_runs):
        for run in _rarest(runs, counts, threshold):
            texts_with_run[run].append(index)
    for index, runs in enumerate(second_runs):
        candidates = {text for run in _rarest(runs, counts, threshold) for text in texts_with_run.get(run, ())}
        similarities = {text: _jaccard(first_runs[text], runs) for text in sorted(candidates)}
        most_similar = max(similarities, key=similarities.__getitem__, default=None)  # ties: the first text
        if most_similar is not None and similarities[most_similar] >= threshold:
            yield most_similar, index, similarities[most_similar]


def _runs(words: Sequence[str]) -> Runs:
    runs = frozenset(" ".join(words[start : start + _RUN_WORDS]) for start in range(len(words) - _RUN_WORDS + 1))
    return runs if len(runs) >= _MIN_RUNS else frozenset()


def _rarest(runs: Runs, counts: Counter[str], threshold: float) -> list[str]:
    """Return the rarest runs by `counts`, as many as the prefix filter of `similar_pairs` needs; ties are in
    alphabetical order."""
    num_needed = len(runs) - ceil(threshold * len(runs)) + 1
    return sorted(runs, key=lambda run: (counts[run], run))[:num_needed]


def _jaccard(first: Runs, second: Runs) -> float:
    return len(first & second) / len(first | second)


@rule("warning")
def same_document(sets: TwoSets, rule: Rule[TwoSets]) -> Iterator[Finding]:
    """Parts of the same document are in both sets: its sentences, its pairs of entities, or questions on its text.

    Split by documents: parts of a document are far more similar to each other than to new text.
    """
    documents = {item.document_name for item in sets.first.items if item.document_name}
    other_documents = {item.document_name for item in sets.second.items if item.document_name}
    first_items = first_indices(item.document_name for item in sets.second.items)  # first item of each document
    shared = [index for document, index in first_items.items() if document in documents]
    if shared and not _are_documents_numbered(documents | other_documents):
        share = f"{len(shared):,} of {len(other_documents):,} documents of {sets.second.name}"
        yield rule.finding(f"{share} also have parts in {sets.first.name}", sets.second.places(shared))


def _are_documents_numbered(names: Set[str]) -> bool:
    """Whether documents are only numbered 0, 1, 2, ... in each file: equal numbers then do not mean equal documents."""
    return all(name.strip("()").isdecimal() and int(name.strip("()")) <= len(names) for name in names)


@rule("error")
def unknown_label(sets: TwoSets, rule: Rule[TwoSets]) -> Iterator[Finding]:
    """A label of validation or test does not occur in training, nor in `labels` of the task, so the model cannot
    predict it.

    Correct the name of the label, add training examples, or remove the label.
    """
    known_labels = {*sets.first.label_counts, *sets.first.model_labels}
    for label in sorted(sets.second.label_counts.keys() - known_labels):
        count = sets.second.label_counts[label]
        message = f"the label {label!r} of {sets.second.name} (count {count:,}) does not occur in {sets.first.name}"
        yield rule.finding(message, sets.second.places(sets.second.indices_with_label(label)), count)


@rule("warning")
def unseen_label(sets: TwoSets, rule: Rule[TwoSets]) -> Iterator[Finding]:
    """A label of training does not occur in validation or test, so its scores cannot be measured.

    Split the data so that each part has the label.
    """
    missing = sorted(sets.first.label_counts.keys() - sets.second.label_counts.keys())
    if missing and sets.second.label_counts:
        labels = f"{counted(len(missing), 'labels')} of {sets.first.name}: {', '.join(map(repr, missing[:8]))}"
        yield rule.finding(f"{sets.second.name} has no examples of {labels}", count=len(missing))


OVERLAP_RULES = [same_text, near_same_text, same_document]
"""Rules on texts, for each pair of sets; `with_pair_name` adds the pair to their names."""


def with_pair_name(rule: Rule[TwoSets], first: SetName, second: SetName) -> Rule[TwoSets]:
    """Return an overlap rule with the pair of sets in its name, so that it can be ignored for a single pair.

    `same_text` in validation and test only warns: the model has not learned from these texts.
    """
    renamed = replace(rule, name=f"{rule.name}-in-{first}-and-{second}")
    affects_only_model_selection = rule is same_text and first == "validation"
    return replace(renamed, severity="warning") if affects_only_model_selection else renamed


TEST_LEAK_RULES = frozenset(
    with_pair_name(rule, first, "test").name for rule in OVERLAP_RULES for first in get_args(SetName)
)
"""Names of the rules that find texts of the test set in another set."""

LABEL_RULES = [unknown_label, unseen_label]
"""Rules on labels, for the training set and another set."""
