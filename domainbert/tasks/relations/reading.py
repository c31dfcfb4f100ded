"""How a model reads a text with two entities: its markers, and the single window that contains both entities."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from domainbert.base.errors import DomainbertError
from domainbert.base.fields import field_types, read_field
from domainbert.data.packing import Example, Window, room_for_text
from domainbert.labelled.contents import UnreadableContents
from domainbert.tasks.relations.config import RelationFormat
from domainbert.tasks.relations.marked import MarkedText, Markers
from domainbert.tokenization.align import AlignedText
from domainbert.tokenization.load import DomainTokenizer

ADDED_MARKERS = ("[E1]", "[/E1]", "[E2]", "[/E2]")
"""Added vocabulary entries, with the names of Baldini Soares et al. 2019, in the order of `Markers`."""

CLS_POSITION = -1
"""Position of the special token before the text, counted from the first piece of the text."""

_KEY = "domainbert_relations"  # of config.json
_FORMAT_FIELDS = ("head_key", "tail_key", "head_markers", "tail_markers")


@dataclass(frozen=True)
class MarkerReading:
    """How a model reads the entities of a text."""

    kind: Literal["text", "tokens"]
    """See `Relations.markers`."""
    format: RelationFormat
    """Keys and markers of files."""

    @classmethod
    def from_model_folder(cls, fields: Mapping[str, Any]) -> MarkerReading:
        """Return the marker reading in a `config.json`; raise `DomainbertError` if it is missing or invalid."""
        facts = read_field(fields, _KEY, dict[str, Any])
        if set(facts) != {"markers", *_FORMAT_FIELDS}:
            expected = f"an object with the keys markers, {', '.join(_FORMAT_FIELDS)}"
            raise DomainbertError(where=_KEY, found=f"{facts!r:.200}", expected=expected)
        kind = read_field(facts, "markers", Literal["text", "tokens"])
        hints = field_types(RelationFormat)
        values = {name: read_field(facts, name, hints[name]) for name in _FORMAT_FIELDS}
        markers = {name: tuple(values[name]) for name in ("head_markers", "tail_markers")}
        return cls(kind, RelationFormat(**values | markers))

    def model_config_fields(self) -> dict[str, Any]:
        """Return the `config.json` entry that `from_model_folder` reads."""
        facts = asdict(self.format)
        return {_KEY: {"markers": self.kind, **{name: facts[name] for name in _FORMAT_FIELDS}}}

    @property
    def markers(self) -> Markers:
        """Return the markers that the model reads."""
        return ADDED_MARKERS if self.kind == "tokens" else self.format.markers

    @property
    def added_tokens(self) -> Sequence[str]:
        """Return the markers that must be vocabulary entries; () if markers are plain text."""
        return ADDED_MARKERS if self.kind == "tokens" else ()

    def text_to_read(self, text: MarkedText) -> tuple[str, list[int]]:
        """Return a text as the model reads it, and the start of each of the four markers."""
        return text.with_markers(self.markers, spaced=self.kind == "tokens")

    def check(self, tokenizer: DomainTokenizer, texts: Sequence[MarkedText]) -> None:
        """Raise `DomainbertError` if the vocabulary cannot distinguish markers, or a text contains an added marker."""
        all_ids = tokenizer.encode(self.markers)
        for marker, ids in zip(self.markers, all_ids, strict=True):
            is_split = self.kind == "tokens" and len(ids) > 1  # an added marker is one token
            is_unknown = is_split or tokenizer.unk_id in ids
            if is_unknown or all_ids.count(ids) > 1:
                found = "is not in the vocabulary" if is_unknown else "has the same tokens as another marker"
                raise DomainbertError(
                    f"{marker!r} {found}",
                    where="markers",
                    expected="other format.head_markers and format.tail_markers, or `markers: tokens`, which adds "
                    "tokens to the vocabulary",
                )
        problems = {
            index: DomainbertError(
                f"the text contains {token!r}, which the model adds as a marker", expected="a text without it"
            )
            for index, text in enumerate(texts)
            for token in self.added_tokens
            if token in text.text
        }
        if problems:
            raise UnreadableContents(problems)


class PiecePositions(NamedTuple):
    """Piece indices: the range `first` to `end` (exclusive) that the window must contain, and the pieces in which the
    markers before head and tail begin."""

    first: int
    end: int
    head_marker: int
    tail_marker: int


def locate_entities(
    text: MarkedText, reading: MarkerReading, words: AlignedText, marker_ids: Sequence[int]
) -> PiecePositions:
    """Return the range of pieces from the first marker of a text to the last, and the markers before head and tail.

    `marker_ids` are the token ids of the added markers, or empty if markers are plain text. A marker of plain text
    begins in the first piece of its word, which may also contain the space before the word.
    """
    _, marker_starts = reading.text_to_read(text)
    word_starts = [start for start, _ in words.word_offsets]
    # the first piece of the word in which each of the four markers begins
    pieces = [words.first_piece[bisect_right(word_starts, start) - 1] for start in marker_starts]
    # the first piece after the last marker
    markers_end = max(start + len(marker) for start, marker in zip(marker_starts, reading.markers, strict=True))
    next_word = bisect_left(word_starts, markers_end)
    end = words.first_piece[next_word] if next_word < len(word_starts) else len(words.input_ids)
    before_head, _after_head, before_tail, _after_tail = pieces
    if marker_ids:  # an added marker may follow other pieces of its word
        before_head = words.input_ids.index(marker_ids[0], before_head)
        before_tail = words.input_ids.index(marker_ids[2], before_tail)
    return PiecePositions(min(pieces), end, before_head, before_tail)


def centred_window(word_starts: Sequence[int], num_pieces: int, room: int, first: int, end: int) -> tuple[int, int]:
    """Return a window (start, stop) of at most `room` pieces with `first` to `end` (exclusive) near its centre.

    The window starts at a word. `word_starts` ascend from 0 and include `first`; `end - first` is at most `room`.
    """
    if num_pieces <= room:
        return 0, num_pieces
    room_before = (room - (end - first)) // 2
    earliest_start = min(max(first - room_before, 0), num_pieces - room)
    start = word_starts[bisect_left(word_starts, earliest_start)]
    return start, min(start + room, num_pieces)


def relation_example(
    words: AlignedText, entities: PiecePositions, target: ArrayLike, at_markers: bool, max_length: int
) -> Example:
    """Return an example with one window around both entities.

    The model's output layer reads the special token before the text; with `at_markers`, the two markers before the
    entities. `target` is the target of each position that it reads. The window has at most `max_length` tokens,
    including special tokens. Raise `DomainbertError` if both entities do not fit in a window.
    """
    room = room_for_text(max_length, words.extra)
    if entities.end - entities.first > room:
        raise DomainbertError(
            f"the two entities and the text between them have {entities.end - entities.first} tokens",
            expected=f"at most {room}, as max_length is {max_length}",
        )
    start, stop = centred_window(words.first_piece, len(words.input_ids), room, entities.first, entities.end)
    # counted from the first piece of the window, before which the special token is at -1
    read_positions = [entities.head_marker - start, entities.tail_marker - start] if at_markers else [CLS_POSITION]
    positions = np.asarray(read_positions, dtype=np.int64)
    outputs = np.zeros_like(positions)  # all positions belong to output 0, the only one
    targets = np.repeat(np.asarray(target)[np.newaxis], len(positions), axis=0)
    ids = np.asarray(words.input_ids[start:stop], dtype=np.int64)
    return Example((Window(ids, positions, outputs, targets, words.extra),), num_outputs=1)
