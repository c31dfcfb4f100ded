"""The one window in which a text is read: both entities are in it, with their markers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from domainbert.base.errors import DomainbertError
from domainbert.data.examples import Example, Window
from domainbert.data.packing import room_for_text
from domainbert.tasks.relations.marked import MarkedText
from domainbert.tasks.relations.reading import Reading
from domainbert.tokenization.align import AlignedText

AT_CLS = -1
"""Place at which the head reads the special token before the text."""


class Places(NamedTuple):
    """Pieces of a text: the first and the one after the last that have to be read, and those that begin with the
    markers before the head and before the tail."""

    first: int
    end: int
    head: int
    tail: int


def places_of(text: MarkedText, reading: Reading, words: AlignedText, entries: Sequence[int]) -> Places:
    """Places of the entities of a text among its pieces; `entries` are the ids of markers that are entries.

    A marker that is none begins in the first piece of its word, and so does the space before it.
    """
    _, begins = reading.written(text)
    word_begins = [begin for begin, _ in words.word_offsets]
    firsts = [words.first_piece[bisect_right(word_begins, begin) - 1] for begin in begins]
    last = max(begin + len(marker) for begin, marker in zip(begins, reading.markers, strict=True))
    following = bisect_left(word_begins, last)
    end = words.first_piece[following] if following < len(word_begins) else len(words.input_ids)
    starts = [words.input_ids.index(entries[one], firsts[one]) if entries else firsts[one] for one in (0, 2)]
    return Places(min(firsts), end, *starts)


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
    words: AlignedText, places: Places, target: ArrayLike, at_starts: bool, max_length: int
) -> Example:
    """A text as an example, read at the special token before it; or, with `at_starts`, at the two markers that begin
    entities, which decide its output together.

    A window has at most `max_length` tokens, special ones included. `target` is that of its outputs in the loss.
    `DomainbertError` if both entities do not fit into a window.
    """
    room = room_for_text(max_length, words.extra)
    if places.end - places.first > room:
        raise DomainbertError(
            f"the two entities and the text between them have {places.end - places.first} tokens; expected at most "
            f"{room}, as max_length is {max_length}"
        )
    start, stop = centred(words.first_piece, len(words.input_ids), room, places.first, places.end)
    read = [places.head - start, places.tail - start] if at_starts else [AT_CLS]
    targets = np.repeat(np.asarray(target)[np.newaxis], len(read), axis=0)
    ids, positions = (np.asarray(one, dtype=np.int64) for one in (words.input_ids[start:stop], read))
    return Example((Window(ids, positions, np.zeros(len(read), dtype=np.int64), targets, words.extra),), 1)
