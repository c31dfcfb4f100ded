"""A corpus prepared in parts: too large to list, plan or hash it at each start of training.

`prepare` with `row_lengths` writes it, and `merge` combines several:

    prepared.json             the parts: counts, and the SHA-256 of each file
    tokenizer/                the tokenizer
    token_counts.npy          occurrences of each entry in training and validation: int64 (2, vocab_size)
    parts/00000/              one part per file of the corpus: a prepared folder without a tokenizer
        plans/train-512.arrow     the rows of 512 tokens, see `plan_files`
        token_counts.npy          as above, for the part

Rows do not cross parts, and the order of training (`WindowedOrder`) takes a window of parts at a time. So training
opens parts when it reaches them, and keeps arrays per part in memory, not per row or document.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.data.packing import Ints, RowPlan
from domainbert.data.plan_files import StoredPlan, read_plan
from domainbert.data.prepared_facts import SPLITS
from domainbert.data.remote_files import FileFacts, Files
from domainbert.data.splits import PreparedSplit
from domainbert.tokenization.load import DomainTokenizer

COUNTS_FILE = "token_counts.npy"
_MAX_SAMPLED_PARTS = 32  # for a sample of documents: each part may have to be fetched
Opened = TypeVar("Opened")


@dataclass(frozen=True)
class SplitOfPart:
    """One split of a part: its sizes and files."""

    documents: int
    tokens: int
    characters: int
    files: Sequence[FileFacts]
    rows: Mapping[int, int]  # by row length
    pieces: Mapping[int, int]  # by row length
    plans: Mapping[int, FileFacts]  # by row length

    @classmethod
    def from_facts(cls, folder: str, split: str, facts: Mapping[str, Any]) -> SplitOfPart:
        """Return a split from the facts in `prepared.json`; `folder` is the part, relative to the folder of the
        corpus."""
        plans = {int(length): plan for length, plan in facts["plans"].items()}
        return cls(
            facts["documents"],
            facts["tokens"],
            facts["characters"],
            files=[_file_facts(f"{folder}/{split}", file) for file in facts["files"]],
            rows={length: plan["rows"] for length, plan in plans.items()},
            pieces={length: plan["pieces"] for length, plan in plans.items()},
            plans={length: _file_facts(folder, plan["file"]) for length, plan in plans.items()},
        )


def _file_facts(folder: str, facts: Mapping[str, Any]) -> FileFacts:
    return FileFacts(f"{folder}/{facts['name']}", facts["bytes"], facts["sha256"])


class Parts:
    """One split of all parts, which are opened on demand; the most recently used ones stay open.

    Args:
        parts: the parts of the corpus, in order.
        files: returns local paths of files.
        window: number of parts that training mixes.
    """

    def __init__(self, parts: Sequence[SplitOfPart], files: Files, window: int) -> None:
        self.parts, self.files, self.window = parts, files, window
        self._opened: dict[Any, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickle, without open parts: worker processes open parts themselves."""
        return vars(self) | {"_opened": {}}

    def tokens(self, number: int) -> PreparedSplit:
        """Return the token stream of a part."""
        return self._open(number, lambda: PreparedSplit(map(self.files.path, self.parts[number].files)))

    def plan(self, length: int, number: int) -> StoredPlan:
        """Return the plan of the rows of `length` tokens of a part."""
        return self._open((length, number), lambda: read_plan(self.files.path(self.parts[number].plans[length])))

    def _open(self, key: Any, open_item: Callable[[], Opened]) -> Opened:
        """Return the opened item of a key from an LRU cache; open it if it is not in the cache.

        The cache holds two windows, over which a batch may extend, with a plan and tokens for each part.
        """
        self._opened[key] = self._opened.pop(key) if key in self._opened else open_item()
        if len(self._opened) > 4 * self.window:
            del self._opened[next(iter(self._opened))]
        return cast(Opened, self._opened[key])


class PartedSplit(PreparedSplit):
    """One split of a corpus in parts: a token stream whose parts are opened on demand.

    There is no list of documents: objectives that need it must use a corpus without parts.
    """

    def __init__(self, parts: Parts, token_counts: Ints) -> None:
        self.parts, self.sampling, self.languages = parts, None, None
        self._token_counts = token_counts
        tokens, documents = (
            np.array([getattr(part, name) for part in parts.parts]) for name in ("tokens", "documents")
        )
        self._stops, self._firsts = np.cumsum(tokens), np.cumsum(tokens) - tokens  # (parts,) positions in the stream
        self._first_documents = np.cumsum(documents) - documents  # (parts,)

    @override
    def __reduce__(self) -> tuple[Callable[..., PreparedSplit], tuple[Any, ...]]:
        return PartedSplit, (self.parts, self._token_counts)

    @property
    @override
    def num_documents(self) -> int:
        return sum(part.documents for part in self.parts.parts)

    @property
    @override
    def num_tokens(self) -> int:
        return int(self._stops[-1])

    @property
    @override
    def tokens_per_character(self) -> float:
        return self.num_tokens / sum(part.characters for part in self.parts.parts)

    @cached_property
    def document_offsets(self) -> NoReturn:
        """Not available: raises `DomainbertError`."""
        raise DomainbertError(
            "prepared: the objective cannot read a corpus in parts; expected a corpus prepared without row_lengths"
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
        """Iterate over the tokens of documents, about `enough` in total if there are more; then of evenly spaced
        parts."""
        sizes = np.diff(self._stops, prepend=0)
        numbers = range(0, len(sizes), -(-len(sizes) // _MAX_SAMPLED_PARTS) if self.num_tokens > enough else 1)
        share = min(1.0, enough / max(1, sum(sizes[number] for number in numbers)))
        targets = {number: max(1, math.ceil(share * sizes[number])) for number in numbers if sizes[number]}
        return (ids for number, target in targets.items() for ids in self.parts.tokens(number).documents(target))

    @override
    def token_counts(self, vocab_size: int) -> Ints:
        return self._token_counts

    @override
    def row_plan(self, tokenizer: DomainTokenizer, length: int) -> RowPlan:
        """Return the stored plan of rows; `length` must be one of `row_lengths`."""
        lengths = sorted(self.parts.parts[0].plans)
        if length not in lengths:
            raise DomainbertError(
                f"max_length: found {length}; expected one of the row_lengths of the prepared corpus, "
                f"{', '.join(map(str, lengths))}; or prepare it again"
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
        """Return what `take` returns for tokens `start` to `stop` (exclusive), concatenated over their parts."""
        if not 0 <= start <= stop <= self.num_tokens:
            raise IndexError(f"tokens {start} to {stop} of {self.num_tokens}")
        first, last = self._parts_of(np.array([start, max(stop - 1, start)])).tolist()
        pieces = []
        for number in range(first, last + 1):
            begin, end = int(self._firsts[number]), int(self._stops[number])
            if begin < end:
                pieces.append(take(self.parts.tokens(number), max(start, begin) - begin, min(stop, end) - begin))
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _parts_of(self, positions: Ints) -> Ints:
        """Return the indices of the parts that contain the tokens at positions `positions` (N,)."""
        return np.minimum(np.searchsorted(self._stops, positions, side="right"), len(self._stops) - 1)


class PartedPlan(RowPlan):
    """Row plan of a corpus in parts, whose arrays are read part by part on demand."""

    def __init__(self, parts: Parts, length: int, extra: int) -> None:
        rows, pieces = (np.array([getattr(part, name)[length] for part in parts.parts]) for name in ("rows", "pieces"))
        first_pieces = np.cumsum(pieces) - pieces
        tokens = np.array([part.tokens for part in parts.parts])
        plans = partial(parts.plan, length)
        super().__init__(
            starts=_lazy_array(pieces, partial(_plan_column, plans, "starts"), np.cumsum(tokens) - tokens),
            lengths=_lazy_array(pieces, partial(_plan_column, plans, "lengths")),
            maskable=np.zeros(0, np.int64),  # unused: `maskable_tokens` is stored
            row_offsets=_lazy_array(rows, partial(_plan_column, plans, "row_offsets"), first_pieces, offsets=True),
            row_length=length,
            extra=extra,
        )
        columns = {
            name: _lazy_array(rows, partial(_plan_column, plans, name)) for name in ("text_tokens", "maskable_tokens")
        }
        sizes = {"rows_of_parts": rows, "window": parts.window}
        totals = {"pieces": int(pieces.sum()), "tokens": int(tokens.sum())}
        vars(self).update(sizes | totals | columns)  # the dataclass is frozen

    rows_of_parts: Ints  # (parts,)
    window: int
    pieces: int
    tokens: int

    @property
    @override
    def num_rows(self) -> int:
        return int(self.rows_of_parts.sum())

    @property
    @override
    def fullness(self) -> float:
        return (self.tokens + self.extra * self.pieces) / max(self.num_rows * self.row_length, 1)


def _plan_column(plans: Callable[[int], StoredPlan], name: str, number: int) -> Ints:
    """Return the array `name` of the plan of part `number`."""
    column: Ints = getattr(plans(number), name)
    return column


def _lazy_array(sizes: Ints, read: Callable[[int], Ints], shifts: Ints | None = None, offsets: bool = False) -> Ints:
    return cast(Ints, _LazyArray(sizes, read, np.zeros_like(sizes) if shifts is None else shifts, offsets))


class _LazyArray:
    """Concatenation of the arrays of all parts, read on demand; indexed by a number or an array of numbers.

    Args:
        sizes: (parts,) length of the array of each part.
        read: returns the array of a part.
        shifts: (parts,) added to the values of each part.
        offsets: whether each array begins with 0, which then is not read.
    """

    def __init__(self, sizes: Ints, read: Callable[[int], Ints], shifts: Ints, offsets: bool) -> None:
        self.firsts, self.read, self.shifts, self.offsets = np.cumsum(sizes) - sizes, read, shifts, offsets

    def __getitem__(self, index: Any) -> Any:
        positions = np.atleast_1d(np.asarray(index))
        part_indices = np.searchsorted(self.firsts, positions, side="right") - 1
        index_in_part = positions - self.firsts[part_indices]
        values = self.shifts[part_indices].astype(np.int64)  # complete for the first offset of a part, which is 0
        must_be_read = index_in_part > 0 if self.offsets else np.ones(len(positions), np.bool_)
        for number in np.unique(part_indices[must_be_read]).tolist():
            selected = must_be_read & (part_indices == number)
            values[selected] += self.read(number)[index_in_part[selected]]
        return values if np.ndim(index) else int(values[0])


def split_parts(parts: Sequence[Mapping[str, Any]], files: Files, window: int, token_counts: Ints) -> list[PartedSplit]:
    """Return the training and the validation split of a corpus; `parts` is the list of parts in `prepared.json`."""
    splits = []
    for split, counts in zip(SPLITS, token_counts, strict=True):
        split_of_parts = [SplitOfPart.from_facts(part["folder"], split, part["splits"][split]) for part in parts]
        splits.append(PartedSplit(Parts(split_of_parts, files, window), counts))
    return splits
