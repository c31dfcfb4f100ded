"""Tag schemes of entity recognition: detection, validation, conversion, and spans.

A span is `(start, end, type)` in words, `end` exclusive. Tags are read into spans in one way, that of the `conlleval`
script (Tjong Kim Sang and Buchholz, 2000), which gives every sequence a meaning; what a scheme forbids is found
beforehand by `find_violations`.
"""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from domainbert.base.errors import DomainbertError
from domainbert.labelled.label_names import is_visible

Scheme = Literal["IOB1", "IOB2", "BIOES", "BILOU"]
ModelScheme = Literal["IOB2", "BIOES"]
Span = tuple[int, int, str]

PREFIXES: dict[Scheme, str] = {"IOB1": "IB", "IOB2": "BI", "BIOES": "BIES", "BILOU": "BILU"}
_STARTING = frozenset("BSU")
_ENDING = frozenset("ESLU")
_KNOWN = frozenset("BIESLU")
UNNAMED = "_"
"""The type of entities in a file whose tags are `B`, `I` and `O` alone; seqeval calls it so, too."""


@dataclass(frozen=True)
class Violation:
    """The tag at word `index` cannot stand there; `reason` completes "path:line: ", and `expected` is the valid tag."""

    index: int
    reason: str
    expected: str


@functools.lru_cache(maxsize=4096)
def split_tag(tag: str) -> tuple[str, str]:
    """`B-outcome` gives `("B", "outcome")`, `O` gives `("O", "")`; `DomainbertError` for what is no tag."""
    if tag == "O":
        return "O", ""
    found = f"tag {reprlib.repr(tag)}; expected"
    if len(tag) < 3 or tag[1] != "-" or tag[0] not in _KNOWN:
        raise DomainbertError(f"unknown {found} O, B-TYPE or I-TYPE (or E-, S-, L-, U-TYPE)")
    if not is_visible(tag[2:]):
        raise DomainbertError(f"{found} a type of visible characters without white space around it")
    return tag[0], tag[2:]


def is_without_types(tags: Iterable[str]) -> bool:
    """Whether tags are prefixes alone, such as `B`, `I` and `O`, and not all of them `O`."""
    prefixes = set(tags) - {"O"}
    return bool(prefixes) and prefixes <= _KNOWN


def spans_from_tags(tags: Sequence[str]) -> list[Span]:
    """The entities of one sentence, in order, by the lenient reading of conlleval.

    I-X (E-X, L-X) after O, after another type or after a closed entity starts an entity. Tags of all four schemes are
    understood; on valid tags this is the exact reading.
    """
    spans: list[Span] = []
    start, kind = -1, ""  # the open entity; start is -1 when there is none
    for index, tag in enumerate(tags):
        if tag == "O":
            if start >= 0:
                spans.append((start, index, kind))
                start = -1
            continue
        prefix, new_kind = tag[0], tag[2:]
        if start < 0 or prefix in _STARTING or new_kind != kind:
            if start >= 0:
                spans.append((start, index, kind))
            start, kind = index, new_kind
        if prefix in _ENDING:
            spans.append((start, index + 1, kind))
            start = -1
    if start >= 0:
        spans.append((start, len(tags), kind))
    return spans


def goes_on(tag: str, following: str) -> bool:
    """Whether a tag goes on with the entity that the tag before it is part of, by the reading of `spans_from_tags`."""
    closed = tag == "O" or tag[0] in _ENDING
    return not closed and following[0] in "IEL" and following[2:] == tag[2:]


def tags_from_spans(spans: Iterable[Span], num_words: int, scheme: ModelScheme = "IOB2") -> list[str]:
    """Tags of `num_words` words, the inverse of `spans_from_tags`; `ValueError` if spans overlap or do not fit."""
    tags = ["O"] * num_words
    for start, end, kind in spans:
        if not 0 <= start < end <= num_words or any(tag != "O" for tag in tags[start:end]):
            raise ValueError(f"span {(start, end, kind)} is empty, outside {num_words} words, or overlaps another")
        tags[start:end] = tags_of_entity(kind, end - start, scheme)
    return tags


def tags_of_entity(kind: str, num_words: int, scheme: ModelScheme) -> list[str]:
    """The tags of one entity: `B-x I-x I-x` in IOB2; `B-x I-x E-x` in BIOES, or `S-x` of one word."""
    if scheme == "BIOES":
        prefixes = "S" if num_words == 1 else "B" + "I" * (num_words - 2) + "E"
    else:
        prefixes = "B" + "I" * (num_words - 1)
    return [f"{prefix}-{kind}" for prefix in prefixes]


def to_iob2(tags: Sequence[str]) -> list[str]:
    """Tags of any scheme as valid IOB2, by the reading of `spans_from_tags`."""
    return tags_from_spans(spans_from_tags(tags), len(tags))


def detect_scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """The scheme that a file's tags follow, or break least.

    E- or S- means BIOES, L- or U- BILOU. With B- and I- only, IOB2 starts every entity with B-, IOB1 only one that
    touches another of its type: the more frequent start decides, so that a few stray tags do not. Tags of both BIOES
    and BILOU raise `DomainbertError`.
    """
    prefixes: set[str] = set()
    starts = {"B": 0, "I": 0}
    for tags in sentences:
        previous = ("O", "")
        for tag in tags:
            prefix, kind = split_tag(tag)
            prefixes.add(prefix)
            # A B- that touches its own type is right in both schemes and tells nothing.
            if prefix in starts and kind != previous[1]:
                starts[prefix] += 1
            previous = (prefix, kind)
    bioes, bilou = prefixes & set("ES"), prefixes & set("LU")
    if bioes and bilou:
        found = ", ".join(f"{prefix}-" for prefix in sorted(bioes | bilou))
        raise DomainbertError(f"tags with {found} in one file; expected one scheme (BIOES or BILOU)")
    if bioes or bilou:
        return "BIOES" if bioes else "BILOU"
    return "IOB1" if starts["I"] > starts["B"] else "IOB2"


def find_violations(tags: Sequence[str], scheme: Scheme) -> list[Violation]:
    """Violations of `scheme` in the tags of one sentence: those that the scheme writes otherwise for the same spans."""
    violations = []
    around = ["", *tags, ""]
    for index, (tag, expected) in enumerate(
        zip(tags, _in_scheme(spans_from_tags(tags), len(tags), scheme), strict=True)
    ):
        if tag == expected:
            continue
        before, after = around[index], around[index + 2]
        if tag[0] not in PREFIXES[scheme]:
            reason = f"{tag} is not a tag of {scheme}"
        elif (tag[0] in _STARTING) == (expected[0] in _STARTING):
            reason = f"{tag} {f'stands before {after}' if after else 'ends the sentence'}, which {scheme} forbids"
        else:
            reason = f"{tag} {f'follows {before}' if before else 'begins the sentence'}, which {scheme} forbids"
        violations.append(Violation(index, reason, expected))
    return violations


def _in_scheme(spans: Sequence[Span], num_words: int, scheme: Scheme) -> list[str]:
    """The tags of spans in any scheme."""
    tags = tags_from_spans(spans, num_words, "BIOES" if scheme in ("BIOES", "BILOU") else "IOB2")
    if scheme == "BILOU":
        return [{"E": "L", "S": "U"}.get(tag[0], tag[0]) + tag[1:] for tag in tags]
    if scheme == "IOB1":
        pairs = pairwise(["O", *tags])
        return [f"I{tag[1:]}" if tag[0] == "B" and before[1:] != tag[1:] else tag for before, tag in pairs]
    return tags


def entity_types(labels: Iterable[str]) -> list[str]:
    """The sorted entity types of tags or of a model's labels: `O, B-b, I-b, B-a` gives `a, b`."""
    return sorted({split_tag(label)[1] for label in labels} - {""})


def labels_of_types(types: Iterable[str], scheme: ModelScheme = "IOB2") -> list[str]:
    """The labels of a tagging head: `O`, then `B-x` and `I-x` of each type in sorted order, in BIOES the other two."""
    return ["O"] + [f"{prefix}-{kind}" for kind in sorted(set(types)) for prefix in PREFIXES[scheme]]


def scheme_of_labels(labels: Sequence[str]) -> ModelScheme | None:
    """The scheme of which labels are those that `labels_of_types` makes of some types, in that order, if any."""
    types = [label[2:] for label in labels if label.startswith("B-")]
    schemes: tuple[ModelScheme, ...] = ("IOB2", "BIOES")
    return next((scheme for scheme in schemes if types and list(labels) == labels_of_types(types, scheme)), None)
