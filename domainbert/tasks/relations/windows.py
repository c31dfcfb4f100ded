"""The one window in which a text is read: both entities are in it, with their markers."""

from __future__ import annotations

import reprlib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from domainbert.base.errors import DomainbertError
from domainbert.data.examples import Example, Window
from domainbert.data.packing import room_for_text
from domainbert.tasks.relations.marked import MarkedText, Markers
from domainbert.tokenization.align import AlignedText

AT_CLS = -1
"""Where the head reads the special token before the text."""


def centred(word_starts: Sequence[int], num_pieces: int, room: int, first: int, end: int) -> tuple[int, int]:
    """The pieces (start, stop) of a text that are read, at most `room`: those from `first` to `end` (exclusive) and as
    many before as behind them, if there are so many.

    It begins at a word, of which `first` is one; the starts of words ascend from 0. `end - first` is at most `room`.
    """
    if num_pieces <= room:
        return 0, num_pieces
    start = min(max(first - (room - (end - first)) // 2, 0), num_pieces - room)
    start = word_starts[bisect_left(word_starts, start)]
    return start, min(start + room, num_pieces)


def relation_example(
    marked: MarkedText, markers: Markers, words: AlignedText, target: ArrayLike, at_starts: bool, max_length: int
) -> Example:
    """A text as an example, read at the special token before it, or at the two markers that begin entities.

    Args:
        marked, markers: the text, and the markers that are written in it.
        words: its pieces, so written.
        target: of its outputs in the loss.
        at_starts: whether it has two outputs: at the marker before the head, and at that before the tail.
        max_length: tokens of a window, special ones included.

    Raises:
        DomainbertError: the two entities do not fit into a window.
    """
    _, begins = marked.written(markers)
    word_begins = [begin for begin, _ in words.word_offsets]
    at = [bisect_right(word_begins, begin) - 1 for begin in begins]  # the word that each marker begins in
    last = max(begin + len(marker) for begin, marker in zip(begins, markers, strict=True))
    following = bisect_left(word_begins, last)
    pieces = len(words.input_ids)
    end = words.first_piece[following] if following < len(word_begins) else pieces
    first, room = words.first_piece[min(at)], room_for_text(max_length, words.extra)
    if end - first > room:
        shown = marked.where or reprlib.repr(marked.text)
        raise DomainbertError(
            f"{shown}: the two entities and what is between them are {end - first} tokens; expected at most {room}, as "
            f"max_length is {max_length}"
        )
    start, stop = centred(words.first_piece, pieces, room, first, end)
    read = [words.first_piece[at[0]] - start, words.first_piece[at[2]] - start] if at_starts else [AT_CLS]
    positions, outputs = np.asarray(read, dtype=np.int64), np.arange(len(read))
    targets = np.repeat(np.asarray(target)[np.newaxis], len(read), axis=0)
    ids = np.asarray(words.input_ids[start:stop], dtype=np.int64)
    return Example((Window(ids, positions, outputs, targets, words.extra),), len(read))
