"""Rules on the labels of one labelled set, of any task."""

from __future__ import annotations

from collections.abc import Iterator

from domainbert.checks.finding import Finding, Rule, rule
from domainbert.checks.labelled_set import CheckedSet

_LISTED = 8  # labels in a message


@rule("error")
def only_one_label(one: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """All texts of training have one class or one number, or no sentence has an entity, so that nothing can be learnt.

    Look at `label_key` and at the file: perhaps it is a part of the set.
    """
    if one.labels_stretches and not one.label_counts:
        yield rule.finding(f"none of the {len(one.items):,} sentences of {one.name} has an entity")
    if one.one_label_each and len(one.label_counts) == 1:
        yield rule.finding(f"all {len(one.items):,} texts of {one.name} have the label {one.items[0].labels[0]!r}")
    numbers = {item.target for item in one.items}
    if len(numbers) == 1 and isinstance(number := numbers.pop(), float):
        yield rule.finding(f"all {len(one.items):,} texts of {one.name} have the number {number:g}")


@rule("warning", threshold=50)
def rare_label(one: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """A label occurs less often in training than the threshold, which is too little to learn it well.

    Label more of it, join it with a label like it, or leave it out; scores of it will be uncertain.
    """
    rare = sorted((count, label) for label, count in one.label_counts.items() if count < rule.limit)
    if rare:
        names = {label for _, label in rare}
        first = [_first_with(one, label) for _, label in rare]
        listed = ", ".join(f"{label} {count:,}" for count, label in rare[:_LISTED])
        more = f" and {len(rare) - _LISTED:,} more" if len(rare) > _LISTED else ""
        message = (
            f"{len(names):,} of {len(one.label_counts):,} labels of {one.name} occur less than {rule.limit:g} times"
        )
        yield rule.finding(f"{message}: {listed}{more}", one.places(first), len(rare))


def _first_with(one: CheckedSet, label: str) -> int:
    return next(number for number, item in enumerate(one.items) if label in item.labels)


@rule("warning", threshold=20)
def imbalanced_labels(one: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """The most frequent class of training is more than so many times as frequent as the rarest one.

    Set `class_weights` of the task, and look at macro F1 beside accuracy.
    """
    if one.one_label_each and len(one.label_counts) > 1:
        (most, often), *_, (least, seldom) = one.label_counts.most_common()
        if often > rule.limit * seldom:
            message = f"{most!r} is {often / seldom:.0f} times as frequent in {one.name} as {least!r}"
            yield rule.finding(f"{message} ({often:,} and {seldom:,} times)", count=1)


@rule("warning")
def same_text_other_label(one: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """A text stands in a set several times, labelled in different ways.

    Decide which is right; of the others a model learns that it cannot know.
    """
    by_text: dict[object, dict[object, int]] = {}
    for number, (text, item) in enumerate(zip(one.texts, one.items, strict=True)):
        by_text.setdefault((" ".join(text.split()), item.marks), {}).setdefault(item.target, number)
    found = sorted(number for numbers in by_text.values() if len(numbers) > 1 for number in numbers.values())
    texts = sum(len(numbers) > 1 for numbers in by_text.values())
    if found:
        yield rule.finding(f"{texts:,} texts of {one.name} are labelled in several ways", one.places(found), texts)


TRAINING_RULES = [
    only_one_label,
    rare_label,
    imbalanced_labels,
]
RULES = [same_text_other_label]
"""Of training and validation."""
