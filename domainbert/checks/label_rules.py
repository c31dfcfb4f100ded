"""Rules on the labels of one labelled set, of any task."""

from __future__ import annotations

from collections.abc import Iterator

from domainbert.base.errors import counted
from domainbert.checks.finding import Finding, Rule, rule
from domainbert.checks.labelled_set import CheckedSet

_LISTED = 8  # labels in a message


@rule("error")
def only_one_label(data: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """All training texts have the same class or the same number, or no sentence has an entity: nothing to learn.

    Check `label_key` and the file; the file may be only a part of the set.
    """
    if data.has_span_labels and not data.label_counts:
        yield rule.finding(f"the {len(data.items):,} sentences of {data.name} have no entities")
    if data.one_label_each and len(data.label_counts) == 1:
        yield rule.finding(f"all {len(data.items):,} texts of {data.name} have the label {data.items[0].labels[0]!r}")
    targets = {item.target for item in data.items}
    number = next(iter(targets), None)
    if len(targets) == 1 and isinstance(number, float):  # a regression
        yield rule.finding(f"all {len(data.items):,} texts of {data.name} have the number {number:g}")


@rule("warning", threshold=50)
def rare_label(data: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """A label occurs in training less often than the threshold, too rarely to learn it well.

    Label more examples, merge it with a similar label, or drop it; its scores will be uncertain.
    """
    rare = sorted((count, label) for label, count in data.label_counts.items() if count < rule.limit)
    if rare:
        first_items = [data.indices_with_label(label)[0] for _, label in rare]
        listing = ", ".join(f"{label!r} {count:,}" for count, label in rare[:_LISTED])
        more = f" and {len(rare) - _LISTED:,} more" if len(rare) > _LISTED else ""
        share = f"{len(rare):,} of {len(data.label_counts):,} labels of {data.name}"
        message = f"{share} occur less than {rule.limit:g} times: {listing}{more}"
        yield rule.finding(message, data.places(first_items))


@rule("warning", threshold=20)
def imbalanced_labels(data: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """The most frequent class of training is more than this many times as frequent as the rarest class.

    Set `class_weights` of the task, and read macro F1 as well as accuracy.
    """
    if data.one_label_each and len(data.label_counts) > 1:
        (most, most_count), *_, (least, least_count) = data.label_counts.most_common()
        if most_count > rule.limit * least_count:
            message = f"{most!r} is {most_count / least_count:.0f} times as frequent in {data.name} as {least!r}"
            yield rule.finding(f"{message} ({most_count:,} and {least_count:,} times)", count=1)


@rule("warning")
def same_text_other_label(data: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """A text occurs several times in a set, with different labels.

    Decide which label is right and correct the others: contradictory labels cannot be learned.
    """
    by_text: dict[object, dict[object, int]] = {}  # text and marks -> annotation -> index of the first item
    for index, (text, item) in enumerate(zip(data.texts, data.items, strict=True)):
        same_text = by_text.setdefault((" ".join(text.split()), item.marks), {})
        same_text.setdefault(item.target, index)
    contradictory = [items for items in by_text.values() if len(items) > 1]
    if contradictory:
        indices = sorted(index for items in contradictory for index in items.values())
        verb = "occurs" if len(contradictory) == 1 else "occur"
        texts = f"{counted(len(contradictory), 'texts')} of {data.name}"
        message = f"{texts} {verb} several times, with different labels"
        yield rule.finding(message, data.places(indices), len(contradictory))


TRAINING_RULES = [only_one_label, rare_label, imbalanced_labels]
"""Rules for training sets."""

RULES = [same_text_other_label]
"""Rules for training and validation sets."""
