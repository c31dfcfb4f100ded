"""Scores as a person reads them."""

from __future__ import annotations

from collections.abc import Sequence


def shown_score(score: float | None, percent: bool, sign: str = "") -> str:
    """A share in percent with two digits; another score with four, for correlations differ in the third.

    >>> shown_score(0.8765, percent=True), shown_score(0.8765, percent=False, sign="+"), shown_score(None, percent=True)
    ('87.65', '+0.8765', 'undefined')
    """
    if score is None:
        return "undefined"
    return f"{100 * score:{sign}.2f}" if percent else f"{score:{sign}.4f}"


def shown_interval(bounds: Sequence[float] | None, percent: bool, sign: str = "") -> str:
    """Both ends of an interval of scores, in brackets; empty without one."""
    if bounds is None:
        return ""
    low, high = (shown_score(bound, percent, sign) for bound in bounds)
    return f"[{low}, {high}]"
