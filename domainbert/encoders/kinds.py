"""Kinds of head that are one of a family's with more on top: no family has to know of them. Free of torch."""

from __future__ import annotations

TOKENS, SEQUENCE = "tokens", "sequence"
"""A label for each of some tokens; a label for each text, from its [CLS]."""

CRF = "crf"
"""A linear-chain CRF over the words that a token head labels."""

_ON_TOP_OF = {CRF: TOKENS}


def has_labels(kind: str | None) -> bool:
    """Whether the outputs of a kind are labels."""
    return family_kind(kind) in (TOKENS, SEQUENCE)


def has_more(kind: str | None) -> bool:
    """Whether a kind is one of a family's with more on top."""
    return kind in _ON_TOP_OF


def family_kind(kind: str | None) -> str | None:
    """The kind of head that a family makes for it."""
    return kind if kind is None else _ON_TOP_OF.get(kind, kind)


def all_kinds(of_family: list[str]) -> list[str]:
    """Those of a family, and those with more on top of them."""
    return [*of_family, *(kind for kind, base in _ON_TOP_OF.items() if base in of_family)]
