"""Tag schemes of entity recognition: detection, validation, conversion, and spans.

An entity is a `Span` of words. Tags are converted to spans like in the `conlleval` script (Tjong Kim Sang and Buchholz,
2000), which interprets every sequence; `find_violations` finds invalid tags before that.
"""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from domainbert.base.errors import DomainbertError
from domainbert.labelled.row_values import is_visible

Scheme = Literal["IOB1", "IOB2", "BIOES", "BILOU"]
ModelScheme = Literal["IOB2", "BIOES"]
Span = tuple[int, int, str]
"""An entity: `(start, end, type)` in words, `end` exclusive."""

PREFIXES: dict[Scheme, str] = {"IOB1": "IB", "IOB2": "BI", "BIOES": "BIES", "BILOU": "BILU"}
"""Prefixes of the tags of entities in each scheme."""

_STARTING = frozenset("BSU")  # prefixes of tags at which an entity always starts
_ENDING = frozenset("ESLU")  # prefixes of tags at which an entity always ends
_WITH_TYPE = frozenset("BIESLU")
UNNAMED = "_"
"""Entity type in files whose tags have no type (`B`, `I`, `O`); same name as in seqeval."""


@dataclass(frozen=True)
class Violation:
    """An invalid tag at word `index`; `reason` continues "path:line: ", `expected` is the valid tag."""

    index: int
    reason: str
    expected: str


@functools.lru_cache(maxsize=4096)
def split_tag(tag: str) -> tuple[str, str]:
    """Return the prefix and the type of a tag: `("B", "outcome")` for `B-outcome`, `("O", "")` for `O`."""
    if tag == "O":
        return "O", ""
    if len(tag) < 3 or tag[1] != "-" or tag[0] not in _WITH_TYPE:
        expected = "O, B-TYPE or I-TYPE (or E-, S-, L-, U-TYPE)"
        raise DomainbertError(f"unknown tag {reprlib.repr(tag)}", expected=expected)
    if not is_visible(tag[2:]):
        expected = "a type of visible characters after the hyphen, without white space around it"
        raise DomainbertError(f"tag {reprlib.repr(tag)}", expected=expected)
    return tag[0], tag[2:]


def is_without_types(tags: Iterable[str]) -> bool:
    """Whether all tags are prefixes without a type, such as `B`, `I` and `O`, and not all are `O`."""
    prefixes = set(tags) - {"O"}
    return bool(prefixes) and prefixes <= _WITH_TYPE


def spans_from_tags(tags: Sequence[str]) -> list[Span]:
    """Return the entities of one sentence, in order, read as leniently as by conlleval: I-X (E-X, L-X) after O, after
    another type or after a closed entity starts an entity."""
    spans: list[Span] = []
    start, open_type = -1, ""  # the open entity; start is -1 if there is none
    for index, tag in enumerate(tags):
        if tag == "O":
            if start >= 0:
                spans.append((start, index, open_type))
                start = -1
            continue
        prefix, entity_type = tag[0], tag[2:]
        if start < 0 or prefix in _STARTING or entity_type != open_type:
            if start >= 0:
                spans.append((start, index, open_type))
            start, open_type = index, entity_type
        if prefix in _ENDING:
            spans.append((start, index + 1, open_type))
            start = -1
    if start >= 0:
        spans.append((start, len(tags), open_type))
    return spans


def continues_entity(tag: str, following: str) -> bool:
    """Whether `following` continues the entity of `tag`, as in `spans_from_tags`."""
    closed = tag == "O" or tag[0] in _ENDING
    return not closed and following[0] in "IEL" and following[2:] == tag[2:]


def tags_from_spans(spans: Iterable[Span], num_words: int, scheme: Scheme = "IOB2") -> list[str]:
    """Return a tag for each of `num_words` words; raise `ValueError` if spans overlap or are outside of the sentence.

    IOB2 gives `B-x I-x I-x`; BIOES gives `B-x I-x E-x`, or `S-x` for a single word, which BILOU calls `B-x I-x L-x` and
    `U-x`. IOB1 gives `I-x I-x I-x`, and begins with `B-x` only after another entity of the type; spans are in order.
    """
    tags = ["O"] * num_words
    for span in spans:
        start, end, entity_type = span
        if not 0 <= start < end <= num_words or any(tag != "O" for tag in tags[start:end]):
            raise ValueError(f"span {span} is empty, outside {num_words} words, or overlaps another span")
        prefixes = "B" + "I" * (end - start - 1)
        if scheme in ("BIOES", "BILOU"):
            last, single = PREFIXES[scheme][2], PREFIXES[scheme][3]
            prefixes = single if end - start == 1 else prefixes[:-1] + last
        elif scheme == "IOB1" and (start == 0 or tags[start - 1][2:] != entity_type):
            prefixes = "I" * (end - start)
        tags[start:end] = [f"{prefix}-{entity_type}" for prefix in prefixes]
    return tags


def to_iob2(tags: Sequence[str]) -> list[str]:
    """Return tags of any scheme as valid IOB2, interpreted as in `spans_from_tags`."""
    return tags_from_spans(spans_from_tags(tags), len(tags))


def select_types(tags: Sequence[str], keeps: Callable[[str], bool]) -> list[str]:
    """Return the IOB2 tags of one sentence without the entities of types that `keeps` rejects."""
    return tags_from_spans([span for span in spans_from_tags(tags) if keeps(span[2])], len(tags))


def detect_scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """Return the scheme that the tags of a file follow, or violate least.

    E- or S- indicates BIOES, L- or U- BILOU. With B- and I- only, the more frequent start of entities decides: IOB2
    starts every entity with B-, IOB1 only an entity that touches another of its type. A few stray tags do not change
    the result. Raise `DomainbertError` if tags of both BIOES and BILOU occur.
    """
    prefixes: set[str] = set()
    starts = {"B": 0, "I": 0}
    for tags in sentences:
        previous_type = ""  # as of the tag O
        for tag in tags:
            prefix, entity_type = split_tag(tag)
            prefixes.add(prefix)
            # B- after the same type is valid in both schemes
            if prefix in starts and entity_type != previous_type:
                starts[prefix] += 1
            previous_type = entity_type
    bioes, bilou = prefixes & set("ES"), prefixes & set("LU")
    if bioes and bilou:
        mixed = ", ".join(f"{prefix}-" for prefix in sorted(bioes | bilou))
        raise DomainbertError(f"tags with {mixed} in one file", expected="E- and S- (BIOES), or L- and U- (BILOU)")
    if bioes or bilou:
        return "BIOES" if bioes else "BILOU"
    return "IOB1" if starts["I"] > starts["B"] else "IOB2"


def find_violations(tags: Sequence[str], scheme: Scheme) -> list[Violation]:
    """Return the tags of one sentence that differ from the tags that `scheme` has for the same spans."""
    violations = []
    expected_tags = tags_from_spans(spans_from_tags(tags), len(tags), scheme)
    padded = ["", *tags, ""]
    for index, (tag, expected) in enumerate(zip(tags, expected_tags, strict=True)):
        if tag == expected:
            continue
        before, after = padded[index], padded[index + 2]
        starts_alike = (tag[0] in _STARTING) == (expected[0] in _STARTING)
        if starts_alike:  # so the tag is wrong about the end of the entity
            context = f"is followed by {after}" if after else "ends the sentence"
        else:
            context = f"follows {before}" if before else "begins the sentence"
        is_tag = tag[0] in PREFIXES[scheme]
        reason = f"{tag} {context}, which {scheme} forbids" if is_tag else f"{tag} is not a tag of {scheme}"
        violations.append(Violation(index, reason, expected))
    return violations


def entity_types(labels: Iterable[str]) -> list[str]:
    """Return the sorted entity types of tags or model labels: `O, B-b, I-b, B-a` gives `a, b`."""
    return sorted({split_tag(label)[1] for label in labels} - {""})


def labels_of_types(types: Iterable[str], scheme: ModelScheme = "IOB2") -> list[str]:
    """Return the labels of a tagging head: `O`, then `B-x` and `I-x` (BIOES: also `E-x`, `S-x`) of each sorted type."""
    return ["O"] + [f"{prefix}-{name}" for name in sorted(set(types)) for prefix in PREFIXES[scheme]]


def scheme_of_labels(labels: Sequence[str]) -> ModelScheme | None:
    """Return the scheme for which `labels_of_types` gives exactly these labels, in this order; None if none does."""
    types = [label[2:] for label in labels if label.startswith("B-")]
    schemes: tuple[ModelScheme, ...] = ("IOB2", "BIOES")
    return next((scheme for scheme in schemes if types and list(labels) == labels_of_types(types, scheme)), None)
