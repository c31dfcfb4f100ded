"""A corpus prepared in parts: too large to list, plan or hash it at each start of training.

`prepare` with `row_lengths` writes it, and `merge` combines several:

    prepared.json             the parts: counts, and the SHA-256 of each file
    tokenizer/                the tokenizer
    token_counts.npy          occurrences of each entry in training and validation: int64 (2, vocab_size)
    parts/00000/              one part per file of the corpus: a prepared folder without a tokenizer
        plans/train-512.arrow     the rows of 512 tokens, see `write_plan`
        token_counts.npy          as above, for the part

Rows do not cross parts, and the order of training (`WindowedOrder`) takes a window of parts at a time. So training
opens parts when it reaches them, and keeps arrays per part in memory, not per row or document.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.data.packing import Ints, RowPlan
from domainbert.data.prepared_facts import SPLITS
from domainbert.data.remote_files import FileFacts, Files
from domainbert.data.splits import PreparedSplit
from domainbert.tokenization.load import DomainTokenizer

COUNTS_FILE = "token_counts.npy"
_MAX_SAMPLED_PARTS = 32  # for a sample of documents: each part may have to be fetched
# columns of a plan file: lists with a value per piece, and values of rows
_PER_PIECE = {"starts": pa.int64(), "lengths": pa.int32()}
_PER_ROW = {"maskable_tokens": pa.int32(), "text_tokens": pa.int32()}


class Parts:
    """One split of all parts, which are opened on demand; the most recently used ones stay open.

    Args:
        split: name of the split.
        facts: counts, files and plans of each part, as in `prepared.json`, and its `folder`.
        files: returns local paths of files.
        window: number of parts that training mixes.
    """

    def __init__(self, split: str, facts: Sequence[Mapping[str, Any]], files: Files, window: int) -> None:
        self.split, self.facts, self.files, self.window = split, facts, files, window
        # a batch may extend over two windows
        self.tokens = lru_cache(maxsize=2 * window)(self._open_tokens)
        self.plan = lru_cache(maxsize=2 * window)(self._open_plan)

    def __reduce__(self) -> tuple[type[Parts], tuple[Any, ...]]:
        """Pickle without open parts: worker processes open parts themselves."""
        return Parts, (self.split, self.facts, self.files, self.window)

    def counts(self, name: str) -> Ints:
        """Return the number of `documents`, `tokens` or `characters` of each part: (parts,)."""
        return np.array([part[name] for part in self.facts])

    @property
    def row_lengths(self) -> list[int]:
        """Row lengths of the stored plans, ascending."""
        return sorted(map(int, self.facts[0]["plans"]))

    def plan_counts(self, length: int, name: str) -> Ints:
        """Return the number of `rows` or `pieces` of each part in the plans of rows of `length` tokens: (parts,)."""
        return np.array([part["plans"][str(length)][name] for part in self.facts])

    def _open_tokens(self, number: int) -> PreparedSplit:
        part = self.facts[number]
        folder = f"{part['folder']}/{self.split}"
        return PreparedSplit(self._path(folder, file) for file in part["files"])

    def _open_plan(self, length: int, number: int) -> dict[str, Ints]:
        part = self.facts[number]
        return read_plan(self._path(part["folder"], part["plans"][str(length)]["file"]))

    def _path(self, folder: str, file: Mapping[str, Any]) -> Path:
        return self.files.path(FileFacts(f"{folder}/{file['name']}", file["bytes"], file["sha256"]))


class PartedSplit(PreparedSplit):
    """One split of a corpus in parts: a token stream whose parts are opened on demand.

    There is no list of documents: objectives that need it must use a corpus without parts.
    """

    def __init__(self, parts: Parts, token_counts: Ints) -> None:
        self.parts, self.sampling, self.languages = parts, None, None
        self._token_counts = token_counts
        tokens, documents = parts.counts("tokens"), parts.counts("documents")
        self._stops, self._firsts = np.cumsum(tokens), np.cumsum(tokens) - tokens  # (parts,) positions in the stream
        self._first_documents = np.cumsum(documents) - documents  # (parts,)

    @override
    def __reduce__(self) -> tuple[Callable[..., PreparedSplit], tuple[Any, ...]]:
        return PartedSplit, (self.parts, self._token_counts)

    @property
    @override
    def num_documents(self) -> int:
        return int(self.parts.counts("documents").sum())

    @property
    @override
    def num_tokens(self) -> int:
        return int(self._stops[-1])

    @property
    @override
    def tokens_per_character(self) -> float:
        return self.num_tokens / int(self.parts.counts("characters").sum())

    @cached_property
    def document_offsets(self) -> NoReturn:
        """Not available: raises `DomainbertError`."""
        raise DomainbertError(
            "this objective reads no corpus with row_lengths",
            where="prepared",
            hint="use MaskedLM, or `prepare` without row_lengths",
        )

    @override
    def documents_at(self, positions: Ints) -> Ints:
        documents, part_indices = np.empty_like(positions), self._parts_of(positions)
        for number in np.unique(part_indices).tolist():
            selected = part_indices == number
            index_in_part = self.parts.tokens(number).documents_at(positions[selected] - self._firsts[number])
            documents[selected] = self._first_documents[number] + index_in_part
        return documents

    @override
    def documents(self, enough: int) -> Iterator[np.ndarray]:
        """Iterate over the tokens of each document. If the split has more than `enough` tokens, iterate over a sample
        of about `enough` tokens, from at most 32 evenly spaced parts."""
        sizes = np.diff(self._stops, prepend=0)
        step = math.ceil(len(sizes) / _MAX_SAMPLED_PARTS) if self.num_tokens > enough else 1
        sampled_parts = [number for number in range(0, len(sizes), step) if sizes[number]]
        share = min(1.0, enough / max(1, sum(sizes[number] for number in sampled_parts)))
        for number in sampled_parts:
            yield from self.parts.tokens(number).documents(enough=max(1, math.ceil(share * sizes[number])))

    @override
    def token_counts(self, vocab_size: int) -> Ints:
        return self._token_counts

    @override
    def row_plan(self, tokenizer: DomainTokenizer, length: int, pairs: bool = False) -> RowPlan:
        """Return the stored plan of rows; `length` must be one of `row_lengths`. No plan of pairs is stored."""
        if pairs:
            return super().row_plan(tokenizer, length, pairs)  # raises `DomainbertError`: it needs a list of documents
        if length not in self.parts.row_lengths:
            raise DomainbertError(
                where="max_length",
                found=length,
                expected=f"{' or '.join(map(str, self.parts.row_lengths))} (row_lengths of `prepare`)",
                hint=f"to use {length}, add it to row_lengths and run `prepare` again",
            )
        return PartedPlan(self.parts, length, tokenizer.template.num_special_tokens())

    @override
    def take(self, start: int, stop: int) -> np.ndarray:
        return self._take_from_parts(start, stop, PreparedSplit.take)

    @override
    def take_starts(self, start: int, stop: int) -> np.ndarray:
        return self._take_from_parts(start, stop, PreparedSplit.take_starts)

    def _take_from_parts(
        self, start: int, stop: int, take: Callable[[PreparedSplit, int, int], np.ndarray]
    ) -> np.ndarray:
        """Concatenate the results of `take(split, start, stop)`, an array of the tokens of a part, over the parts."""
        if not 0 <= start <= stop <= self.num_tokens:
            raise IndexError(f"found tokens {start} to {stop}; expected a range from 0 to {self.num_tokens}")
        first_part, last_part = self._parts_of(np.array([start, max(stop - 1, start)])).tolist()
        pieces = []
        for number in range(first_part, last_part + 1):
            part_start, part_stop = int(self._firsts[number]), int(self._stops[number])
            if part_start < part_stop:  # the part is not empty
                begin, end = max(start, part_start) - part_start, min(stop, part_stop) - part_start
                pieces.append(take(self.parts.tokens(number), begin, end))
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _parts_of(self, positions: Ints) -> Ints:
        # the end of the stream, as the position of an empty range, is in the last part
        return np.minimum(np.searchsorted(self._stops, positions, side="right"), len(self._stops) - 1)


def write_plan(path: Path, plan: RowPlan) -> None:
    """Write a plan as an Arrow stream, one Arrow row per row of the plan."""
    offsets = pa.array(plan.row_offsets, pa.int32())
    columns: dict[str, pa.Array] = {
        name: pa.ListArray.from_arrays(offsets, pa.array(getattr(plan, name), dtype))
        for name, dtype in _PER_PIECE.items()
    }
    batch = pa.record_batch(columns | {name: pa.array(getattr(plan, name), dtype) for name, dtype in _PER_ROW.items()})
    path.parent.mkdir(exist_ok=True)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, batch.schema) as stream:
        stream.write_batch(batch)


def read_plan(path: Path) -> dict[str, Ints]:
    """Return `starts` and `lengths` (pieces,), `row_offsets` (rows + 1,), `maskable_tokens` and `text_tokens` (rows,)
    of a `RowPlan`, as views of a mapped file. Raise `DomainbertError` if the file cannot be read."""
    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
            batch = stream.read_next_batch()
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise DomainbertError(f"not a readable row plan ({error})", file=path, hint="run `prepare` again") from error
    columns = {name: batch.column(name).flatten() for name in _PER_PIECE}
    columns |= {name: batch.column(name) for name in _PER_ROW}
    arrays = {name: column.to_numpy(zero_copy_only=True) for name, column in columns.items()}
    return {"row_offsets": np.asarray(batch.column("starts").offsets), **arrays}


class PartedPlan(RowPlan):
    """Row plan of a corpus in parts, whose arrays are read part by part on demand."""

    rows_of_parts: Ints  # (parts,)
    window: int
    pieces: int
    tokens: int

    def __init__(self, parts: Parts, length: int, extra: int) -> None:
        rows, pieces = parts.plan_counts(length, "rows"), parts.plan_counts(length, "pieces")
        tokens = parts.counts("tokens")
        column: Callable[..., Any] = partial(_StoredColumn, parts, length)  # Any: it is used in place of an array
        super().__init__(
            # positions in the stream and indices of pieces are stored per part: add the tokens and pieces before it
            starts=column("starts", pieces, shifts=np.cumsum(tokens) - tokens),
            lengths=column("lengths", pieces),
            maskable=np.zeros(0, np.int64),  # unused: `maskable_tokens` is stored
            row_offsets=column("row_offsets", rows, shifts=np.cumsum(pieces) - pieces),
            row_length=length,
            extra=extra,
        )
        vars(self).update(  # not by assignment, because the dataclass is frozen
            {name: column(name, rows) for name in _PER_ROW},
            rows_of_parts=rows,
            window=parts.window,
            pieces=int(pieces.sum()),
            tokens=int(tokens.sum()),
        )

    @property
    @override
    def num_rows(self) -> int:
        return int(self.rows_of_parts.sum())

    @override
    def most_pieces(self, num_rows: int) -> int:
        """Return the mean number of pieces in `num_rows` rows: the number of each row is not in memory."""
        return -(-self.pieces * num_rows // self.num_rows)  # rounded up

    @property
    @override
    def fullness(self) -> float:
        used = self.tokens + self.extra * self.pieces  # text and special tokens
        return used / max(self.num_rows * self.row_length, 1)


class _StoredColumn:
    """An array of the stored plans of all parts, concatenated; indexed by a number or an array of numbers.

    A part is read when an index lies in it.

    Args:
        parts, length: parts, and the length of the planned rows.
        name: array of a plan, see `read_plan`.
        sizes: (parts,) number of elements of each part.
        shifts: (parts,) added to the elements of each part; None adds nothing.
    """

    def __init__(self, parts: Parts, length: int, name: str, sizes: Ints, shifts: Ints | None = None) -> None:
        self.parts, self.length, self.name = parts, length, name
        self.firsts = np.cumsum(sizes) - sizes  # (parts,) index of the first element of each part
        self.shifts = np.zeros_like(sizes) if shifts is None else shifts

    def __getitem__(self, index: Any) -> Any:
        """Return the element at an index, or the elements (N,) at an array (N,) of indices: the value in its part plus
        the shift of this part."""
        positions = np.atleast_1d(np.asarray(index))
        part_indices = np.searchsorted(self.firsts, positions, side="right") - 1
        index_in_part = positions - self.firsts[part_indices]
        values = self.shifts[part_indices].astype(np.int64)
        # the first offset of a part is 0, so its element is the shift: the part need not be opened for it
        must_be_read = index_in_part > 0 if self.name == "row_offsets" else np.ones(len(positions), np.bool_)
        for number in np.unique(part_indices[must_be_read]).tolist():
            selected = must_be_read & (part_indices == number)
            values[selected] += self.parts.plan(self.length, number)[self.name][index_in_part[selected]]
        return values if np.ndim(index) else int(values[0])


def split_parts(parts: Sequence[Mapping[str, Any]], files: Files, window: int, token_counts: Ints) -> list[PartedSplit]:
    """Return the training and the validation split of a corpus; `parts` is the list of parts in `prepared.json`, and
    `token_counts` (2, vocab_size) the content of `COUNTS_FILE`."""
    splits = []
    for split, counts in zip(SPLITS, token_counts, strict=True):
        facts = [part["splits"][split] | {"folder": part["folder"]} for part in parts]
        splits.append(PartedSplit(Parts(split, facts, files, window), counts))
    return splits
