"""Labelled examples and plain texts as token ids, with long inputs in overlapping windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from torch.utils.data import DataLoader, Dataset

from domainbert.base.errors import DomainbertError
from domainbert.data.batches import LabelledBatches, Share
from domainbert.data.packing import IGNORE_INDEX, Batch, Example, Ints, Window, collate, room_for_text
from domainbert.tokenization.align import AlignedWords, align_text
from domainbert.tokenization.load import DomainTokenizer


def window_bounds(word_starts: Sequence[int], num_pieces: int, room: int) -> list[tuple[int, int, int, int]]:
    """Return overlapping windows over the pieces of an input: (start, stop, owned start, owned end) of each.

    A window has at most `room` pieces, and begins about half of `room` after the previous window, at a word if possible
    (`word_starts`, ascending from 0). Each piece is owned, and so predicted, by one window: the window that maximises
    the smaller of its left and right context.

    >>> window_bounds(word_starts=[0, 2, 4, 6, 8], num_pieces=9, room=6)
    [(0, 6, 0, 5), (4, 9, 5, 9)]
    """
    if num_pieces <= room:
        return [(0, num_pieces, 0, num_pieces)]
    words = np.asarray(word_starts)
    window_starts = [0]
    while window_starts[-1] + room < num_pieces:
        earliest = min(window_starts[-1] + max(room // 2, 1), num_pieces - room)
        index = min(int(np.searchsorted(words, earliest)), len(words) - 1)
        next_word = int(words[index])  # the first word from `earliest` on, if there is one
        has_overlap = earliest <= next_word < window_starts[-1] + room  # with the window before
        window_starts.append(next_word if has_overlap else earliest)
    stops = [min(start + room, num_pieces) for start in window_starts]
    # The middle of an overlap has equal context in both windows.
    middles = [(stop + start + 1) // 2 for stop, start in zip(stops[:-1], window_starts[1:], strict=True)]
    return list(zip(window_starts, stops, [0, *middles], [*middles, num_pieces], strict=True))


def word_example(words: AlignedWords, labels: Sequence[int] | None, inside: Ints, max_length: int) -> Example:
    """Return the example of a sentence with one label per word.

    The head reads the first piece of every pre-token, as in raw text, whose words are pre-tokens: in "men's" with label
    B-population, `men` gets B-population, `'` and `s` get I-population. The label of a word is predicted at its first
    piece.

    Args:
        words: the pieces of the sentence with their words.
        labels: (words,) label ids; None for prediction.
        inside: (label ids,) label that continues each label: I-X for B-X; not used for prediction.
        max_length: maximum tokens of a window, special tokens included.
    """
    ids = np.asarray(words.input_ids, dtype=np.int64)
    word_of = np.asarray(words.word_index, dtype=np.int64)
    is_first = np.zeros(len(ids), dtype=bool)
    is_first[words.first_piece] = True
    read_positions = np.flatnonzero(np.asarray(words.starts_pretoken, dtype=bool) | is_first)
    windows = []
    bounds = window_bounds(words.first_piece, len(ids), room_for_text(max_length, words.extra))
    for start, stop, owned_start, owned_end in bounds:
        first, end = np.searchsorted(read_positions, (owned_start, owned_end))
        owned_positions = read_positions[first:end]
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
    """Return the example of each sentence from `word_example`.

    `tags` are the label ids of the words of each sentence (None for prediction), and `labels` the names of the ids. B-X
    is continued by I-X, or by itself if there is no such label, as in some models of other libraries.
    """
    id_of = {label: label_id for label_id, label in enumerate(labels)}
    names_inside = ["I-" + label[2:] if label.startswith("B-") else label for label in labels]
    inside = np.asarray([id_of.get(name, label_id) for label_id, name in enumerate(names_inside)], dtype=np.int64)
    sentence_tags = tags if tags is not None else [None] * len(aligned)
    return [word_example(words, ids, inside, max_length) for words, ids in zip(aligned, sentence_tags, strict=True)]


def text_example(words: AlignedWords, target: ArrayLike, max_length: int) -> Example:
    """Return the example of a text; the head reads the first special token of each window. `target` is a label id,
    `IGNORE_INDEX`, or an array, which has the same shape for all texts of a task."""
    return _cls_example(words, target, room_for_text(max_length, words.extra), words.extra)


def pair_example(first: AlignedWords, second: AlignedWords, target: ArrayLike, max_length: int, extra: int) -> Example:
    """Return the example of a pair of texts with `extra` special tokens. Each window of a long pair contains the whole
    first text and part of the second, like a question and part of a document.

    Raise `DomainbertError` if the pair needs several windows and the first text takes more than half of the room.
    """
    room = room_for_text(max_length, extra)
    first_size, second_size = len(first.input_ids), len(second.input_ids)
    needs_windows = first_size + second_size > room
    if needs_windows and first_size > room / 2:
        raise DomainbertError(
            f"the first text of this pair has {first_size:,} tokens, the second {second_size:,}",
            expected=f"a first text of at most {room // 2:,} tokens, half of the room in a window "
            "(max_length), or a larger max_length",
        )
    return _cls_example(second, target, room - first_size, extra, np.asarray(first.input_ids, dtype=np.int64))


def _cls_example(words: AlignedWords, target: ArrayLike, room: int, extra: int, first: Ints | None = None) -> Example:
    """Return the example of a text in windows of at most `room` pieces, besides `extra` special tokens and the pieces
    `first` of the first text of a pair (None: no pair). The head reads the first special token of each window."""
    ids = np.asarray(words.input_ids, dtype=np.int64)
    position = np.asarray([-1], dtype=np.int64)  # the special token before the text, such as [CLS]
    output = np.zeros(1, dtype=np.int64)
    targets = np.asarray(target)[np.newaxis]
    bounds = window_bounds(words.first_piece, len(ids), room)
    windows = [Window(ids[start:stop], position, output, targets, extra, first) for start, stop, _, _ in bounds]
    return Example(tuple(windows), 1)


def entry_ids(examples: Iterable[Example], tokenizer: DomainTokenizer) -> Ints:
    """Return the ids of the vocabulary entries that occur in batches of `examples`, special tokens included, ascending:
    (n,)."""
    specials = np.asarray([*tokenizer.template.special_ids, tokenizer.pad_id], dtype=np.int64)
    windows = [window for example in examples for window in example.windows]
    firsts = [window.first for window in windows if window.first is not None]
    return np.unique(np.concatenate([specials, *(window.input_ids for window in windows), *firsts]))


class TextBatches(Dataset[Batch]):
    """Batches of `batch_size` texts in order, dealt to the ranks one by one; each text is tokenized when it is read."""

    def __init__(
        self, texts: Sequence[str], tokenizer: DomainTokenizer, max_length: int, batch_size: int, share: Share
    ) -> None:
        self.texts, self.tokenizer, self.max_length = texts, tokenizer, max_length
        items_of_rank = np.arange(len(texts))[share.rank :: share.world_size].tolist()
        self.indices = [items_of_rank[start : start + batch_size] for start in range(0, len(items_of_rank), batch_size)]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Batch:
        items = self.indices[index]
        aligned = align_text(self.tokenizer, [self.texts[item] for item in items])
        return collate([text_example(words, IGNORE_INDEX, self.max_length) for words in aligned], items, self.tokenizer)


def packed_loader(
    texts: Sequence[str],
    tokenizer: DomainTokenizer,
    max_length: int = 512,
    batch_tokens: int = 8192,
    num_workers: int = 0,
) -> DataLoader[Batch]:
    """Return a DataLoader of packed batches of texts: several texts per row, without padding between them.

    A batch has `input_ids`, `position_ids` and `segment_ids` (rows, length), the inputs of `Packed.of`; `items`
    (texts,), the indices of its texts; `positions` (windows,), the index of the [CLS] of each window in the flattened
    tokens; and `example` (windows,), the index of the text of each window in `items`.

    >>> from domainbert import packed_loader, train_tokenizer
    >>> texts = ["The court of appeal.", "Courts of law.", "The high court and the lower courts."]
    >>> tokenizer = train_tokenizer(texts, vocab_size=128, min_frequency=1)
    >>> (batch,) = packed_loader(texts, tokenizer)
    >>> batch["input_ids"].shape[0], batch["items"].tolist()  # one row; the longest text comes first
    (1, [2, 0, 1])

    Args:
        texts: texts longer than `max_length` are read in overlapping windows.
        tokenizer: tokenizer of the encoder.
        max_length: maximum tokens of a window, special tokens included.
        batch_tokens: maximum tokens of a batch, unless a single text has more.
        num_workers: processes that build batches.
    """
    examples = [text_example(words, IGNORE_INDEX, max_length) for words in align_text(tokenizer, list(texts))]
    batches = LabelledBatches(examples, tokenizer, batch_tokens, Share())
    return DataLoader(batches, batch_size=None, num_workers=num_workers)
