"""Cleaning of one document: line breaks, control characters, Unicode normal form C."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

# everything that Unicode calls a line or page break, so that deleting control characters never joins two words
_LINE_BREAK = re.compile("\r\n?|[\x0b\x0c\x1c-\x1f\x85\u2028\u2029]")
# C0 and C1 without tab and line feed, halves of surrogate pairs (no character: JSON's "\ud800"), byte order marks.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x9f\ud800-\udfff\ufeff]+")


@dataclass(frozen=True)
class Cleaned:
    """A cleaned text, and the changes made to it."""

    text: str
    line_breaks: bool  # whether others than line feeds were replaced by line feeds
    control_characters: int  # removed
    normalized: bool  # whether it was not in Unicode normal form C


def clean(text: str) -> Cleaned:
    r"""Make breaks `\n`, remove control characters, compose to NFC (Unicode Annex 15), strip.

    >>> clean("cafe\u0301\r\n\x00").text
    'café'
    """
    broken = _LINE_BREAK.sub("\n", text)
    controlled = _CONTROL.sub("", broken)
    normalized = controlled
    if not controlled.isascii() and not unicodedata.is_normalized("NFC", controlled):
        normalized = unicodedata.normalize("NFC", controlled)
    return Cleaned(
        text=normalized.strip(),
        line_breaks=broken != text,
        control_characters=len(broken) - len(controlled),
        normalized=normalized != controlled,
    )
