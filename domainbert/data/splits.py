"""Splits of a prepared corpus: token ids in memory-mapped files."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from domainbert.base.errors import DomainbertError
from domainbert.corpus.languages import Languages
from domainbert.data.packing import Ints, RowPlan, best_fit_decreasing, room_for_text
from domainbert.tokenization.load import DomainTokenizer

_CHUNK_TOKENS = 1_000_000


class LanguageSampling(NamedTuple):
    """Names of the languages of a corpus, and how often each is sampled."""

    names: Sequence[str]
    languages: Languages


class PreparedSplit:
    """The token stream of a split: its documents back to back, in the order of the Arrow files.

    `sampling` is None if the corpus was prepared without `languages`. `DomainbertError` if a file is broken or missing.
    """

    def __init__(self, files: Iterable[Path], sampling: LanguageSampling | None = None) -> None:
        self.files, self.sampling = list[Path](), sampling
        batches = list[pa.RecordBatch]()
        for file in files:  # open each file before the next is fetched: a cache may delete a copy after some seconds
            self.files.append(file)
            batches += _read_batches(file)
        ids = [batch.column("input_ids") for batch in batches]
        self._chunks = [column.flatten().to_numpy(zero_copy_only=True) for column in ids]  # views of the mapped files
        self._bits = [_bits(batch.column("starts_word")) for batch in batches]
        self._chunk_starts = [0, *itertools.accumulate(map(len, self._chunks))]  # bisect is faster on a list

        # (documents,) tokens, int64; the empty arrays here and below are for a split without documents
        self.lengths = np.concatenate([np.zeros(0, np.int64), *(np.diff(column.offsets.to_numpy()) for column in ids)])
        characters = (batch.column("num_characters").to_numpy() for batch in batches)
        # (documents,) characters, int32
        self.num_characters = np.concatenate([np.zeros(0, np.int32), *characters])
        # (documents,) index of the language in `sampling.names`
        self.languages = None if sampling is None else _language_indices(batches, sampling.names)

    def __reduce__(self) -> tuple[Callable[..., PreparedSplit], tuple[list[Path], LanguageSampling | None]]:
        """Pickle only the paths: worker processes map the files themselves."""
        return PreparedSplit, (self.files, self.sampling)

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return len(self.lengths)

    @property
    def num_tokens(self) -> int:
        """Number of tokens of all documents together."""
        return self._chunk_starts[-1]

    @property
    def tokens_per_character(self) -> float:
        """Mean number of tokens per character: the factor from a loss per token to a loss per character."""
        return self.num_tokens / int(self.num_characters.sum(dtype=np.int64))

    def tokens_per_character_of(self, name: str) -> float:
        """Return the mean number of tokens per character of the documents in the language `name`."""
        assert self.sampling is not None
        selected = self.languages == self.sampling.names.index(name)
        return int(self.lengths[selected].sum()) / int(self.num_characters[selected].sum(dtype=np.int64))

    @cached_property
    def document_offsets(self) -> np.ndarray:
        """First token of each document, and the end of the last document: int64 (documents + 1,)."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    def documents_at(self, positions: Ints) -> Ints:
        """Return the documents (N,) of the tokens at positions `positions` (N,) of the stream."""
        return (np.searchsorted(self.document_offsets, positions, side="right") - 1).astype(np.int64)

    def token_counts(self, vocab_size: int) -> Ints:
        """Return the number of occurrences of each entry of the vocabulary: (vocab_size,)."""
        counts = np.zeros(vocab_size, dtype=np.int64)
        for start in range(0, self.num_tokens, _CHUNK_TOKENS):
            counts += np.bincount(self.take(start, min(start + _CHUNK_TOKENS, self.num_tokens)), minlength=vocab_size)
        return counts

    def row_plan(self, tokenizer: DomainTokenizer, length: int, pairs: bool = False) -> RowPlan:
        """Return a plan that packs the documents in rows of `length` tokens, each piece with the special tokens of a
        text or, with `pairs`, of a pair. If the corpus has languages, each row has only one language."""
        return plan_rows(
            self.document_offsets,
            self.take,
            self.take_starts,
            tokenizer.vocab_size,
            tokenizer.special_ids,
            length,
            extra=tokenizer.template.num_special_tokens(pairs),
            groups=self.languages,
        )

    def take(self, start: int, stop: int) -> np.ndarray:
        """Return tokens `start` to `stop` (exclusive) of the stream: uint16 or uint32 (stop - start,).

        The result is a view of the file, or a copy if the range extends over several record batches of about a million
        tokens.
        """
        pieces = [self._chunks[number][first:last] for number, first, last in self._ranges(start, stop)]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def take_starts(self, start: int, stop: int) -> np.ndarray:
        """Return whether each of the tokens `start` to `stop` (exclusive) begins a word: bool (stop - start,)."""
        pieces = [_unpack_bits(self._bits[number], first, last) for number, first, last in self._ranges(start, stop)]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _ranges(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield (chunk, first token, end) for each chunk with some of the tokens `start` to `stop`, an empty range of a
        chunk if there are none; the tokens are counted within the chunk. The split must have documents."""
        if not 0 <= start <= stop <= self._chunk_starts[-1]:
            raise IndexError(f"found tokens {start} to {stop}; expected a range from 0 to {self.num_tokens}")
        first_chunk = min(bisect_right(self._chunk_starts, start), len(self._chunks)) - 1  # min: `start` may be the end
        last_chunk = max(bisect_left(self._chunk_starts, stop) - 1, first_chunk)  # max: the range may be empty
        for number in range(first_chunk, last_chunk + 1):
            chunk_start = self._chunk_starts[number]
            yield number, max(start - chunk_start, 0), min(stop - chunk_start, len(self._chunks[number]))

    def documents(self, enough: int) -> Iterator[np.ndarray]:
        """Iterate over the tokens of each document. If the split has more than `enough` tokens, take only every second
        document, or every third, and so on, so that there are about `enough` tokens."""
        step = max(1, math.ceil(self.num_tokens / enough))
        return map(self.document, range(0, self.num_documents, step))

    def document(self, number: int) -> np.ndarray:
        """Return the tokens of a document."""
        return self.take(int(self.document_offsets[number]), int(self.document_offsets[number + 1]))


@dataclass(frozen=True)
class PreparedCorpus:
    """One or several prepared folders as one corpus; see `open_prepared`."""

    tokenizer_folder: Path
    tokenizer_fingerprint: str
    vocab_size: int
    train: PreparedSplit
    validation: PreparedSplit


def _language_indices(batches: Sequence[pa.RecordBatch], names: Sequence[str]) -> np.ndarray:
    languages = [np.zeros(0, np.int64)]  # concatenate needs an array
    for batch in batches:
        column = batch.column("language").dictionary_encode()
        name_indices = np.array([names.index(name) for name in column.dictionary.to_pylist()], np.int64)
        languages.append(name_indices[column.indices.to_numpy()])
    return np.concatenate(languages)


def _read_batches(path: Path) -> list[pa.RecordBatch]:
    # the record batches are views of the mapped file
    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
            return list(stream)
    except (pa.ArrowException, OSError) as error:
        raise DomainbertError(
            f"not a readable Arrow stream ({error})", file=path, hint="run `prepare` again"
        ) from error


def _bits(column: pa.ListArray) -> np.ndarray:
    """Return the bytes of a column of lists of booleans, lowest bit first, as a view of the file."""
    values = column.flatten()
    _, bits = values.buffers()  # the first buffer marks missing values
    return np.frombuffer(bits, np.uint8, count=math.ceil(len(values) / 8))


def _unpack_bits(bits: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Return bits `start` to `stop` (exclusive) of bytes from `_bits`, as booleans: (stop - start,)."""
    first_byte, end_byte = start // 8, math.ceil(stop / 8)
    unpacked = np.unpackbits(bits[first_byte:end_byte], bitorder="little")
    num_skipped = start - 8 * first_byte
    return unpacked[num_skipped : num_skipped + stop - start].view(np.bool_)


def plan_rows(
    document_offsets: Ints,
    take: Callable[[int, int], NDArray[np.integer]],
    take_starts: Callable[[int, int], NDArray[np.bool_]],
    vocab_size: int,
    special_ids: Iterable[int],
    length: int,
    extra: int,
    groups: Ints | None = None,
) -> RowPlan:
    """Return a plan that cuts documents into pieces at word boundaries and packs them in rows of `length` tokens.

    Every token is in exactly one piece. `document_offsets` (documents + 1,) are the positions of the documents in the
    token stream; `take(start, stop)` returns its tokens, and `take_starts(start, stop)` whether each begins a word.
    `special_ids`, which include [UNK], are never masked. A piece gets `extra` special tokens. With `groups`
    (documents,), a row has documents of only one group.
    """
    room = room_for_text(length, extra)
    is_maskable = np.ones(vocab_size, dtype=np.int64)  # 1 or 0 by token id
    is_maskable[list(special_ids)] = 0

    # cut the documents into pieces
    starts: list[int] = []  # of the pieces
    stops: list[int] = []
    maskable: list[int] = []
    pieces_per_document: list[int] = []
    for begin, end in itertools.pairwise(document_offsets.tolist()):
        if begin == end:
            pieces_per_document.append(0)
            continue
        cuts = [0, end - begin] if end - begin <= room else _cut_positions(take_starts(begin, end), room)
        pieces_per_document.append(len(cuts) - 1)
        starts.extend(begin + cut for cut in cuts[:-1])
        stops.extend(begin + cut for cut in cuts[1:])
        maskable.extend(np.add.reduceat(is_maskable[take(begin, end)], cuts[:-1]).tolist())

    # pack the pieces, and sort them by row
    piece_starts = np.asarray(starts, dtype=np.int64)
    lengths = np.asarray(stops, dtype=np.int64) - piece_starts
    group_of_piece = np.zeros_like(lengths) if groups is None else np.repeat(groups, pieces_per_document)
    rows = _pack_groups(lengths + extra, length, group_of_piece)
    order = np.argsort(rows, kind="stable")
    row_offsets = np.concatenate([[0], np.cumsum(np.bincount(rows))]).astype(np.int64)
    maskable_counts = np.asarray(maskable, dtype=np.int64)
    return RowPlan(piece_starts[order], lengths[order], maskable_counts[order], row_offsets, length, extra)


def _pack_groups(lengths: Ints, capacity: int, groups: Ints) -> Ints:
    rows, num_rows = np.empty_like(lengths), 0  # rows of earlier groups
    for group in np.unique(groups):
        selected = groups == group
        rows[selected] = num_rows + best_fit_decreasing(lengths[selected], capacity)
        num_rows = int(rows[selected].max()) + 1
    return rows


def _cut_positions(starts_word: NDArray[np.bool_], room: int) -> list[int]:
    """Return the positions at which to cut a document, with its begin and end. The positions are at most `room` tokens
    apart. They are word boundaries, except in a word of more than `room` tokens. `starts_word` is (tokens,)."""
    size = len(starts_word)
    last_start = np.maximum.accumulate(np.where(starts_word, np.arange(size), 0))  # last word start up to each token
    cuts = [0]
    while size - cuts[-1] > room:
        limit = cuts[-1] + room
        word_start = int(last_start[limit])
        is_in_reach = word_start > cuts[-1]  # False within a word of more than `room` tokens
        cuts.append(word_start if is_in_reach else limit)
    return [*cuts, size]
