"""Labelled examples as token ids: windows of long inputs, and batches of whole examples packed into rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from domainbert.base.errors import DomainbertError
from domainbert.data.packing import Text, fill_rows, pack_lengths, room_for_text, text_numbers
from domainbert.data.types import IGNORED, Batch
from domainbert.tokenization.align import AlignedWords
from domainbert.tokenization.load import DomainTokenizer

Ints = NDArray[np.int64]

_SHORTEST_ROW = 64
_STEP, _TRIED = 16, 5  # rows of five lengths are tried, all multiples of what matrix products like
_ELSE = 850  # a token's layers take as long as its attention to so many others: measured with MiniLM on a CPU


@dataclass(frozen=True)
class Window:
    """A stretch of an example that the encoder reads at once."""

    input_ids: Ints  # (n,) pieces without special tokens
    positions: Ints  # (k,) where the head reads: tokens counted from the first piece; -1 is the special token before
    outputs: Ints  # (k,) which output of the example (word, or 0) each of them decides; -1 for none
    targets: NDArray[Any]  # (k,) label ids, `IGNORED` where unknown; or (k, ...) what else outputs are compared with
    extra: int  # special tokens around the pieces
    first: Ints | None = None  # (m,) pieces of the first text of a pair, of which `input_ids` are the second

    @property
    def text(self) -> Text:
        """Its pieces, or those of both texts of a pair."""
        return self.input_ids if self.first is None else (self.first, self.input_ids)

    @property
    def num_tokens(self) -> int:
        """Tokens, special ones included."""
        return len(self.input_ids) + self.extra + (0 if self.first is None else len(self.first))


@dataclass(frozen=True)
class Example:
    """A sentence or text; `num_outputs` labels are predicted for it (one a word, or one)."""

    windows: tuple[Window, ...]
    num_outputs: int

    @property
    def num_tokens(self) -> int:
        """Tokens of all windows, special ones included."""
        return sum(window.num_tokens for window in self.windows)


def window_bounds(word_starts: Sequence[int], num_pieces: int, room: int) -> list[tuple[int, int, int, int]]:
    """Overlapping windows over the pieces of a long input: (start, stop, first owned, end of owned) of each.

    Windows take at most `room` pieces, advance by half of that and begin at words, whose starts ascend from 0. A piece
    is owned by the window in which it has the most context on its poorer side, so that nothing is cut and nothing is
    predicted twice.
    """
    if num_pieces <= room:
        return [(0, num_pieces, 0, num_pieces)]
    starts = np.asarray(word_starts)
    bounds = [0]
    while bounds[-1] + room < num_pieces:
        target = min(bounds[-1] + max(room // 2, 1), num_pieces - room)
        next_word = int(starts[min(int(np.searchsorted(starts, target)), len(starts) - 1)])
        bounds.append(next_word if target <= next_word < bounds[-1] + room else target)
    stops = [min(start + room, num_pieces) for start in bounds]
    # The middle of an overlap is equally far from the end of one window and the beginning of the next.
    middles = [(stop + start + 1) // 2 for stop, start in zip(stops[:-1], bounds[1:], strict=True)]
    return list(zip(bounds, stops, [0, *middles], [*middles, num_pieces], strict=True))


def word_example(words: AlignedWords, labels: Sequence[int] | None, inside: Ints, max_length: int) -> Example:
    """A sentence whose words get a label each; `labels` are their ids (words,), or None when they are to be predicted.

    The head reads the first piece of every pre-token, so that raw text, where pre-tokens are the words, is what the
    model was trained on: in "men's" labelled B-population, `men` gets B-population, `'` and `s` I-population. Only the
    first piece of a word decides the word's own label. `inside` (label ids,) is the tag that continues each (I-X for
    B-X). A window has at most `max_length` tokens, special ones included.
    """
    ids = np.asarray(words.input_ids, dtype=np.int64)
    word_of = np.asarray(words.word_index, dtype=np.int64)
    is_first = np.zeros(len(ids), dtype=bool)
    is_first[words.first_piece] = True
    read = np.flatnonzero(np.asarray(words.starts_pretoken, dtype=bool) | is_first)
    windows = []
    for start, stop, own, end in window_bounds(words.first_piece, len(ids), room_for_text(max_length, words.extra)):
        here = read[slice(*np.searchsorted(read, (own, end)))]
        outputs = np.where(is_first[here], word_of[here], -1)
        targets = np.full(len(here), IGNORED, dtype=np.int64)
        if labels is not None:
            of_word = np.asarray(labels, dtype=np.int64)[word_of[here]]
            targets = np.where(is_first[here], of_word, inside[of_word])
        windows.append(Window(ids[start:stop], here - start, outputs, targets, words.extra))
    return Example(tuple(windows), len(words.first_piece))


def encode_words(
    aligned: Sequence[AlignedWords], tags: Sequence[Sequence[int]] | None, labels: Sequence[str], max_length: int
) -> list[Example]:
    """Sentences as examples, see `word_example`; `tags` are the label ids of their words, of the names `labels`."""
    number = {label: index for index, label in enumerate(labels)}
    going_on = ["I-" + label[2:] if label.startswith("B-") else label for label in labels]
    inside = np.asarray([number[label] for label in going_on], dtype=np.int64)
    of_sentence = tags if tags is not None else [None] * len(aligned)
    return [word_example(words, ids, inside, max_length) for words, ids in zip(aligned, of_sentence, strict=True)]


def text_example(words: AlignedWords, target: ArrayLike, max_length: int) -> Example:
    """A text that is labelled as a whole, read at the first special token of each of its windows. The target is a label
    id, or `IGNORED`; or what else a task compares its outputs with, of one shape for all texts."""
    return _read_whole(words, target, room_for_text(max_length, words.extra), words.extra)


def pair_example(first: AlignedWords, second: AlignedWords, target: ArrayLike, max_length: int, extra: int) -> Example:
    """As `text_example`, a pair of texts with `extra` special tokens. A long pair is read in windows over the second
    text alone, each of which holds the whole first one, as a question beside the parts of its document.

    `DomainbertError` if it is too long for one window, and the first text leaves the second less than half the room.
    """
    room = room_for_text(max_length, extra)
    taken, left = len(first.input_ids), len(second.input_ids)
    if taken + left > room and 2 * taken > room:
        raise DomainbertError(
            f"a pair of {taken:,} and {left:,} tokens, for which a window (max_length) has room for {room:,}; expected "
            f"a first text of at most {room // 2:,}, as it stands whole beside each part of the second"
        )
    return _read_whole(second, target, room - taken, extra, np.asarray(first.input_ids, dtype=np.int64))


def _read_whole(words: AlignedWords, target: ArrayLike, room: int, extra: int, beside: Ints | None = None) -> Example:
    """A text in windows of at most `room` pieces, each of which the head reads at the special token before it."""
    ids = np.asarray(words.input_ids, dtype=np.int64)
    first, output = (np.asarray([value], dtype=np.int64) for value in (-1, 0))
    targets = np.asarray(target)[np.newaxis]
    bounds = window_bounds(words.first_piece, len(ids), room)
    windows = [Window(ids[start:stop], first, output, targets, extra, beside) for start, stop, _, _ in bounds]
    return Example(tuple(windows), 1)


def entry_ids(examples: Iterable[Example], tokenizer: DomainTokenizer) -> Ints:
    """(n,) the vocabulary entries that occur in batches of `examples`, ascending."""
    specials = np.asarray([*tokenizer.template.special_ids, tokenizer.pad_id], dtype=np.int64)
    windows = [window for example in examples for window in example.windows]
    firsts = [window.first for window in windows if window.first is not None]
    return np.unique(np.concatenate([specials, *(window.input_ids for window in windows), *firsts]))


def _rows(lengths: Ints) -> tuple[int, list[list[int]]]:
    """The length of the rows that are computed soonest, and the texts in each.

    Longer rows can be fuller, so that linear layers have fewer tokens; but each token is compared with its whole row.
    """
    if lengths.sum() <= _SHORTEST_ROW:
        length = _up(int(lengths.sum()), 8)
        return length, pack_lengths(lengths, length)
    shortest = _up(max(int(lengths.max()), _SHORTEST_ROW), _STEP)
    best, least = (0, list[list[int]]()), math.inf
    for length in range(shortest, shortest + _STEP * _TRIED, _STEP):
        cost = length * (_ELSE + length)  # of a row
        if -(-int(lengths.sum()) // length) * cost < least:  # as few rows as there can be
            rows = pack_lengths(lengths, length)
            best, least = min((best, least), ((length, rows), len(rows) * cost), key=lambda plan: plan[1])
    return best


def _up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple


def collate(
    examples: Sequence[Example], items: Sequence[int], tokenizer: DomainTokenizer, places: Ints | None = None
) -> Batch:
    """Pack whole examples, whose numbers in the data set are `items`, into rows.

    Returns:
        `input_ids`, `position_ids`, `segment_ids` (R, S), of pairs `token_type_ids` too; `items` (E,); and for every
        position that the head reads (N,): `positions` in the flattened tokens, `example` (its place in this batch),
        `outputs` and `targets` (see `Window`). With `places` (E,) in the global batch, for training, also `texts`, from
        `text_numbers`, and `longest`, the most outputs of an example.
    """
    windows = [(number, window) for number, example in enumerate(examples) for window in example.windows]
    texts = [window.text for _, window in windows]
    lengths = np.asarray([window.num_tokens for _, window in windows], dtype=np.int64)
    length, rows = _rows(lengths)
    packed = fill_rows([[texts[i] for i in row] for row in rows], length, tokenizer.template, tokenizer.pad_id)
    order = [i for row in rows for i in row]
    placed = [windows[i] for i in order]
    reads = [len(window.positions) for _, window in placed]
    batch: Batch = {
        "input_ids": packed.input_ids,
        "position_ids": packed.position_ids,
        "segment_ids": packed.segment_ids,
        "items": np.asarray(items, dtype=np.int64),
        "positions": np.concatenate([window.positions for _, window in placed])
        + np.repeat(packed.first_positions + 1, reads),
        "example": np.repeat([number for number, _ in placed], reads),
        "outputs": np.concatenate([window.outputs for _, window in placed]),
        "targets": np.concatenate([window.targets for _, window in placed]),
    }
    if any(window.first is not None for _, window in windows):
        batch["token_type_ids"] = packed.token_type_ids
    if places is not None:
        batch["texts"] = text_numbers(places, [len(example.windows) for example in examples])[order]
        batch["longest"] = max(example.num_outputs for example in examples)
    return batch
