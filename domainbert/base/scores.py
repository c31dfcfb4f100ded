"""Formatting of scores."""

from __future__ import annotations

from collections.abc import Sequence


def format_score(score: float | None, percent: bool, sign: str = "") -> str:
    """Format a share in percent with two decimals, or another score (`percent=False`) with four; None is "undefined".

    >>> format_score(0.8765, percent=True), format_score(0.8765, False, sign="+"), format_score(None, percent=True)
    ('87.65', '+0.8765', 'undefined')
    """
    if score is None:
        return "undefined"
    return f"{100 * score:{sign}.2f}" if percent else f"{score:{sign}.4f}"


def format_interval(bounds: Sequence[float] | None, percent: bool, sign: str = "") -> str:
    """Format a confidence interval as `[low, high]`, each bound as by `format_score`; empty for None."""
    if bounds is None:
        return ""
    low, high = (format_score(bound, percent, sign) for bound in bounds)
    return f"[{low}, {high}]"
