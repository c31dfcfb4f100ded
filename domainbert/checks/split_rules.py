"""Rules on two labelled sets of a task: what they share, and in what they differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from domainbert.checks.finding import Finding, Place, Rule, rule
from domainbert.checks.labelled_set import SetName, TwoSets
from domainbert.checks.similar import similar_pairs
from domainbert.checks.text_rules import LEAST_CHARACTERS

PAIRS: tuple[tuple[SetName, SetName], ...] = (("train", "validation"), ("train", "test"), ("validation", "test"))


@rule("error", threshold=0.05)
def same_text(two: TwoSets, rule: Rule[TwoSets]) -> Iterator[Finding]:
    """Texts stand in both sets; case, punctuation and white space do not count. It is a warning up to this share of the
    second set.

    Take them out of the first: a model is asked what it was told.
    """
    first: dict[object, int] = {}
    for number, identity in enumerate(two.first.identities):
        first.setdefault(identity, number)
    shared = [(first[one], number) for number, one in enumerate(two.second.identities) if one in first]
    both = [pair for pair in shared if sum(map(len, two.second.words[pair[1]])) >= LEAST_CHARACTERS]
    if not both:
        return
    other = sum(two.first.items[one].target != two.second.items[number].target for one, number in both)
    labelled = f", {other:,} of them labelled otherwise there" if other else ""
    share = f"{len(both):,} of {len(two.second.items):,} texts of {two.second.name}"
    message = f"{share} stand in {two.first.name}, too{labelled}"
    few = len(both) <= rule.limit * len(two.second.items)
    found = rule.finding(message, (_beside(two, *pair) for pair in both), len(both))
    yield replace(found, severity="warning") if few else found


def _beside(two: TwoSets, first: int, second: int) -> Place:
    """The place of a text of the second set, with that of the one like it in the first."""
    there = two.first.place(first)
    return two.second.place(second, f"(and {there.path}:{there.line}) {two.second.texts[second]}")


@rule("warning", threshold=0.8)
def near_same_text(two: TwoSets, rule: Rule[TwoSets]) -> Iterator[Finding]:
    """Texts of at least ten words are almost the same in both sets: the Jaccard similarity of their runs of three words
    is at least this, and they are not the same.

    Read some: versions of one text belong into one set.
    """
    copies = set(two.first.identities)
    new = [number for number, identity in enumerate(two.second.identities) if identity not in copies]
    pairs = similar_pairs(two.first.words, [two.second.words[number] for number in new], rule.limit)
    near = [(first, new[second]) for first, second, _ in pairs]
    near = [(first, second) for first, second in near if two.first.words[first] != two.second.words[second]]
    if near:
        share = f"{len(near):,} of {len(two.second.items):,} texts of {two.second.name}"
        yield rule.finding(
            f"{share} are almost the same in {two.first.name}", (_beside(two, *pair) for pair in near), len(near)
        )


@rule("warning")
def same_document(two: TwoSets, rule: Rule[TwoSets]) -> Iterator[Finding]:
    """A document has parts in both sets: sentences below one mark, pairs of entities in one text, questions on one
    context.

    Divide by documents: parts of one are far more alike than new text will be.
    """
    known = {item.document_name for item in two.first.items if item.document_name}
    first = {item.document_name: number for number, item in reversed(list(enumerate(two.second.items)))}
    both = sorted(number for name, number in first.items() if name in known)
    if both and not _only_numbered(two):
        share = f"{len(both):,} of {len(first):,} documents of {two.second.name}"
        yield rule.finding(f"{share} have parts in {two.first.name}, too", two.second.places(both))


def _only_numbered(two: TwoSets) -> bool:
    """Whether documents are called 0, 1, 2, ... in each file, which identifies none."""
    names = {item.document_name for one in (two.first, two.second) for item in one.items}
    return all(name.strip("()").isdecimal() and int(name.strip("()")) <= len(names) for name in names)


@rule("error")
def unknown_label(two: TwoSets, rule: Rule[TwoSets]) -> Iterator[Finding]:
    """A label of validation or test does not occur in training, so that no model can predict it.

    Correct its name, add examples of it to training, or take it out.
    """
    for label in sorted(two.second.label_counts.keys() - two.first.label_counts.keys()):
        places = [number for number, item in enumerate(two.second.items) if label in item.labels]
        count = two.second.label_counts[label]
        message = f"the label {label!r} of {two.second.name} ({count:,} times) does not occur in {two.first.name}"
        yield rule.finding(message, two.second.places(places), count)


@rule("warning")
def unseen_label(two: TwoSets, rule: Rule[TwoSets]) -> Iterator[Finding]:
    """A label of training does not occur in validation or test, so that nothing tells how well it is learnt.

    Divide the set so that each part has it.
    """
    missing = sorted(two.first.label_counts.keys() - two.second.label_counts.keys())
    if missing and two.second.label_counts:
        message = f"{two.second.name} has none of {len(missing):,} labels of {two.first.name}: {', '.join(missing[:8])}"
        yield rule.finding(message, count=len(missing))


SHARED = [same_text, near_same_text, same_document]
"""Of each two sets, by names of their own: see `for_pair`."""


def for_pair(one: Rule[TwoSets], first: SetName, second: SetName) -> Rule[TwoSets]:
    """A rule on what two sets share, named after them, so that one pair can be ignored without the others."""
    named = replace(one, name=f"{one.name}-in-{first}-and-{second}")
    flatters_a_choice_alone = one is same_text and first == "validation"
    return replace(named, severity="warning") if flatters_a_choice_alone else named


FROM_TRAINING = [unknown_label, unseen_label]
"""Of training and another set."""
