"""Labelled examples as token ids: windows of long inputs, and batches of whole examples packed in rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from domainbert.base.errors import DomainbertError
from domainbert.data.packing import Text, fill_rows, pack_lengths, room_for_text, text_ids
from domainbert.data.types import IGNORE_INDEX, Batch
from domainbert.tokenization.align import AlignedWords
from domainbert.tokenization.load import DomainTokenizer

Ints = NDArray[np.int64]

_SHORTEST_ROW = 64  # tokens
_LENGTH_STEP, _NUM_LENGTHS = 16, 5  # candidate row lengths: five multiples of 16, which suit matrix products
_LINEAR_COST = 850  # linear layers of a token cost as much as its attention to 850 tokens: measured with MiniLM on CPU


@dataclass(frozen=True)
class Window:
    """One input of the encoder: a part of an example that fits into its positions, or the whole example."""

    input_ids: Ints  # (n,) pieces without special tokens
    positions: Ints  # (k,) positions that the head reads, relative to the first piece; -1: the special token before it
    outputs: Ints  # (k,) output of the example (word, or 0) of each position; -1: none
    targets: NDArray[Any]  # (k,) label ids, `IGNORE_INDEX` if unknown; or (k, ...) other targets
    extra: int  # number of special tokens
    first: Ints | None = None  # (m,) pieces of the first text of a pair, `input_ids` being the second; None: no pair

    @property
    def text(self) -> Text:
        """Pieces of the text, or of both texts of a pair."""
        return self.input_ids if self.first is None else (self.first, self.input_ids)

    @property
    def num_tokens(self) -> int:
        """Number of tokens, special tokens included."""
        return len(self.input_ids) + self.extra + (0 if self.first is None else len(self.first))


@dataclass(frozen=True)
class Example:
    """A sentence with `num_outputs` words to label, or a text with one label."""

    windows: tuple[Window, ...]
    num_outputs: int

    @property
    def num_tokens(self) -> int:
        """Number of tokens of all windows, special tokens included."""
        return sum(window.num_tokens for window in self.windows)


def window_bounds(word_starts: Sequence[int], num_pieces: int, room: int) -> list[tuple[int, int, int, int]]:
    """Return overlapping windows over the pieces of an input: (start, stop, first owned, end of owned) of each.

    Windows have at most `room` pieces, advance by half of it and begin at words (`word_starts`, ascending from 0). A
    piece is owned by the window that maximises the smaller of its left and right context, so that each piece is
    predicted exactly once.
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
    # The middle of an overlap has equal context in both windows.
    middles = [(stop + start + 1) // 2 for stop, start in zip(stops[:-1], bounds[1:], strict=True)]
    return list(zip(bounds, stops, [0, *middles], [*middles, num_pieces], strict=True))


def word_example(words: AlignedWords, labels: Sequence[int] | None, inside: Ints, max_length: int) -> Example:
    """Return the example of a sentence with one label per word: label ids (words,), or None for prediction.

    The head reads the first piece of every pre-token, as in raw text, whose words are pre-tokens: in "men's" with label
    B-population, `men` gets B-population, `'` and `s` get I-population. The label of a word is predicted at its first
    piece. `inside` (label ids,) maps each label to the label that continues it (B-X to I-X). A window has at most
    `max_length` tokens, special tokens included.
    """
    ids = np.asarray(words.input_ids, dtype=np.int64)
    word_of = np.asarray(words.word_index, dtype=np.int64)
    is_first = np.zeros(len(ids), dtype=bool)
    is_first[words.first_piece] = True
    read_positions = np.flatnonzero(np.asarray(words.starts_pretoken, dtype=bool) | is_first)
    windows = []
    for start, stop, first, end in window_bounds(words.first_piece, len(ids), room_for_text(max_length, words.extra)):
        owned_positions = read_positions[slice(*np.searchsorted(read_positions, (first, end)))]
        outputs = np.where(is_first[owned_positions], word_of[owned_positions], -1)
        targets = np.full(len(owned_positions), IGNORE_INDEX, dtype=np.int64)
        if labels is not None:
            word_labels = np.asarray(labels, dtype=np.int64)[word_of[owned_positions]]
            targets = np.where(is_first[owned_positions], word_labels, inside[word_labels])
        windows.append(Window(ids[start:stop], owned_positions - start, outputs, targets, words.extra))
    return Example(tuple(windows), len(words.first_piece))


def encode_words(
    aligned: Sequence[AlignedWords], tags: Sequence[Sequence[int]] | None, labels: Sequence[str], max_length: int
) -> list[Example]:
    """Return the examples of sentences (see `word_example`); `tags` are label ids of words, `labels` the names of the
    ids."""
    index = {label: number for number, label in enumerate(labels)}
    continued = ["I-" + label[2:] if label.startswith("B-") else label for label in labels]
    inside = np.asarray([index[label] for label in continued], dtype=np.int64)
    sentence_tags = tags if tags is not None else [None] * len(aligned)
    return [word_example(words, ids, inside, max_length) for words, ids in zip(aligned, sentence_tags, strict=True)]


def text_example(words: AlignedWords, target: ArrayLike, max_length: int) -> Example:
    """Return the example of a text, whose windows are read at their first special token. The target is a label id,
    `IGNORE_INDEX`, or an array of the same shape for all texts."""
    return _whole_example(words, target, room_for_text(max_length, words.extra), words.extra)


def pair_example(first: AlignedWords, second: AlignedWords, target: ArrayLike, max_length: int, extra: int) -> Example:
    """Return the example of a pair of texts with `extra` special tokens. Each window of a long pair contains the whole
    first text and part of the second, like a question and part of a document.

    `DomainbertError` if the pair needs several windows and the first text takes more than half of the room.
    """
    room = room_for_text(max_length, extra)
    first_size, second_size = len(first.input_ids), len(second.input_ids)
    if first_size + second_size > room and 2 * first_size > room:
        raise DomainbertError(
            f"a pair of {first_size:,} and {second_size:,} tokens; a window (max_length) has room for {room:,}; "
            f"expected a first text of at most {room // 2:,} tokens, because each window contains all of it"
        )
    return _whole_example(second, target, room - first_size, extra, np.asarray(first.input_ids, dtype=np.int64))


def _whole_example(words: AlignedWords, target: ArrayLike, room: int, extra: int, first: Ints | None = None) -> Example:
    """Return the example of a text in windows of at most `room` pieces, read at their first special token."""
    ids = np.asarray(words.input_ids, dtype=np.int64)
    position, output = (np.asarray([value], dtype=np.int64) for value in (-1, 0))
    targets = np.asarray(target)[np.newaxis]
    bounds = window_bounds(words.first_piece, len(ids), room)
    windows = [Window(ids[start:stop], position, output, targets, extra, first) for start, stop, _, _ in bounds]
    return Example(tuple(windows), 1)


def entry_ids(examples: Iterable[Example], tokenizer: DomainTokenizer) -> Ints:
    """Return the vocabulary entries that occur in batches of `examples`, ascending: (n,)."""
    specials = np.asarray([*tokenizer.template.special_ids, tokenizer.pad_id], dtype=np.int64)
    windows = [window for example in examples for window in example.windows]
    firsts = [window.first for window in windows if window.first is not None]
    return np.unique(np.concatenate([specials, *(window.input_ids for window in windows), *firsts]))


def _cheapest_rows(lengths: Ints) -> tuple[int, list[list[int]]]:
    """Return the row length with the lowest cost, and the indices of the texts in each row.

    Longer rows can have less padding, so that linear layers cost less; but attention costs more.
    """
    if lengths.sum() <= _SHORTEST_ROW:
        length = _round_up(int(lengths.sum()), 8)
        return length, pack_lengths(lengths, length)
    shortest = _round_up(max(int(lengths.max()), _SHORTEST_ROW), _LENGTH_STEP)
    best, least_cost = (0, list[list[int]]()), math.inf
    for length in range(shortest, shortest + _LENGTH_STEP * _NUM_LENGTHS, _LENGTH_STEP):
        cost = length * (_LINEAR_COST + length)  # of a row
        if -(-int(lengths.sum()) // length) * cost < least_cost:  # lower bound of the number of rows
            rows = pack_lengths(lengths, length)
            best, least_cost = min((best, least_cost), ((length, rows), len(rows) * cost), key=lambda plan: plan[1])
    return best


def _round_up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple


def collate(
    examples: Sequence[Example], items: Sequence[int], tokenizer: DomainTokenizer, global_indices: Ints | None = None
) -> Batch:
    """Return a batch of whole examples packed in rows; `items` are the indices of the examples in the data set.

    Returns:
        `input_ids`, `position_ids`, `segment_ids` (R, S), for pairs also `token_type_ids`; `items` (E,); and for every
        position that the head reads (N,): `positions` in the flattened tokens, `example` (index in this batch),
        `outputs` and `targets` (see `Window`). With `global_indices` (E,), the indices in the global batch of training,
        also `texts` from `text_ids`, and `longest`, the maximum number of outputs of an example.
    """
    windows = [(number, window) for number, example in enumerate(examples) for window in example.windows]
    texts = [window.text for _, window in windows]
    lengths = np.asarray([window.num_tokens for _, window in windows], dtype=np.int64)
    length, rows = _cheapest_rows(lengths)
    packed = fill_rows([[texts[i] for i in row] for row in rows], length, tokenizer.template, tokenizer.pad_id)
    window_order = [i for row in rows for i in row]
    ordered_windows = [windows[i] for i in window_order]  # in the order of the packed rows
    num_positions = [len(window.positions) for _, window in ordered_windows]
    batch: Batch = {
        "input_ids": packed.input_ids,
        "position_ids": packed.position_ids,
        "segment_ids": packed.segment_ids,
        "items": np.asarray(items, dtype=np.int64),
        "positions": np.concatenate([window.positions for _, window in ordered_windows])
        + np.repeat(packed.first_positions + 1, num_positions),
        "example": np.repeat([number for number, _ in ordered_windows], num_positions),
        "outputs": np.concatenate([window.outputs for _, window in ordered_windows]),
        "targets": np.concatenate([window.targets for _, window in ordered_windows]),
    }
    if any(window.first is not None for _, window in windows):
        batch["token_type_ids"] = packed.token_type_ids
    if global_indices is not None:
        batch["texts"] = text_ids(global_indices, [len(example.windows) for example in examples])[window_order]
        batch["longest"] = max(example.num_outputs for example in examples)
    return batch
