"""Selection of the single window of a text, which contains both entities with their markers."""

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
from domainbert.tasks.relations.reading import MarkerReading
from domainbert.tokenization.align import AlignedText

CLS_POSITION = -1
"""Position of the special token before the text."""


class PiecePositions(NamedTuple):
    """Piece indices: the range `first` to `end` (exclusive) that the window must contain, and the pieces in which the
    markers before head and tail begin."""

    first: int
    end: int
    head: int
    tail: int


def locate_entities(
    text: MarkedText, reading: MarkerReading, words: AlignedText, marker_ids: Sequence[int]
) -> PiecePositions:
    """Return the positions of the entities of a text among its pieces; `marker_ids` are the token ids of added markers.

    A marker that is plain text, and the space before it, begin in the first piece of its word.
    """
    _, marker_starts = reading.text_to_read(text)
    word_starts = [start for start, _ in words.word_offsets]
    firsts = [words.first_piece[bisect_right(word_starts, start) - 1] for start in marker_starts]
    last_char = max(start + len(marker) for start, marker in zip(marker_starts, reading.markers, strict=True))
    following = bisect_left(word_starts, last_char)  # the first word after all markers
    end = words.first_piece[following] if following < len(word_starts) else len(words.input_ids)
    # markers 0 and 2 are before head and tail
    head, tail = (words.input_ids.index(marker_ids[k], firsts[k]) if marker_ids else firsts[k] for k in (0, 2))
    return PiecePositions(min(firsts), end, head, tail)


def centred_window(word_starts: Sequence[int], num_pieces: int, room: int, first: int, end: int) -> tuple[int, int]:
    """Return a window (start, stop) of at most `room` pieces with `first` to `end` (exclusive) in its centre.

    The window starts at a word. `word_starts` ascend from 0 and include `first`; `end - first` is at most `room`.
    """
    if num_pieces <= room:
        return 0, num_pieces
    start = min(max(first - (room - (end - first)) // 2, 0), num_pieces - room)
    start = word_starts[bisect_left(word_starts, start)]
    return start, min(start + room, num_pieces)


def relation_example(
    words: AlignedText, entities: PiecePositions, target: ArrayLike, at_markers: bool, max_length: int
) -> Example:
    """Return an example with one window, read at the special token before the text, or with `at_markers` at the markers
    before both entities.

    The window has at most `max_length` tokens, including special tokens. `target` is the target of each position.
    Raise `DomainbertError` if both entities do not fit in a window.
    """
    room = room_for_text(max_length, words.extra)
    if entities.end - entities.first > room:
        raise DomainbertError(
            f"the two entities and the text between them have {entities.end - entities.first} tokens; expected at most "
            f"{room}, as max_length is {max_length}"
        )
    start, stop = centred_window(words.first_piece, len(words.input_ids), room, entities.first, entities.end)
    positions = np.asarray(
        [entities.head - start, entities.tail - start] if at_markers else [CLS_POSITION], dtype=np.int64
    )
    targets = np.repeat(np.asarray(target)[np.newaxis], len(positions), axis=0)
    ids = np.asarray(words.input_ids[start:stop], dtype=np.int64)
    return Example((Window(ids, positions, np.zeros_like(positions), targets, words.extra),), 1)
