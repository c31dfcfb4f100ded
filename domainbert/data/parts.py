"""A corpus prepared in parts, for what is too large to be listed, planned or hashed at each start of a training.

`prepare` with `row_lengths` writes it, and `merge` makes one of several:

    prepared.json             the parts: how much each holds, and the SHA-256 of each of its files, as it was written
    tokenizer/                the tokenizer that made the ids
    token_counts.npy          tokens of each entry, in training and in validation: int64 (2, vocab_size)
    parts/00000/              a part, one for each file of the corpus: a folder as `prepare` writes it without
                              `row_lengths`, but for the tokenizer
        plans/train-512.arrow     the rows of 512 tokens, see `plan_files`
        token_counts.npy          as above, of the part

Rows do not cross parts, and the order of training (`WindowedOrder`) takes a window of parts at a time. So a training
opens parts as it comes to them, and holds numbers of parts, never of rows or documents.
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
_PARTS_OPENED = 32  # for some documents: each may have to be fetched
Opened = TypeVar("Opened")


@dataclass(frozen=True)
class SplitOfPart:
    """One split of a part: its sizes and files."""

    documents: int
    tokens: int
    characters: int
    files: Sequence[FileFacts]
    rows: Mapping[int, int]  # by the length of rows that was asked for
    pieces: Mapping[int, int]
    plans: Mapping[int, FileFacts]

    @classmethod
    def of(cls, folder: str, split: str, facts: Mapping[str, Any]) -> SplitOfPart:
        """One of a part in a folder, named from the corpus' own, by the facts in `prepared.json`."""
        plans = {int(length): plan for length, plan in facts["plans"].items()}
        return cls(
            facts["documents"],
            facts["tokens"],
            facts["characters"],
            files=[_file(f"{folder}/{split}", one) for one in facts["files"]],
            rows={length: plan["rows"] for length, plan in plans.items()},
            pieces={length: plan["pieces"] for length, plan in plans.items()},
            plans={length: _file(folder, plan["file"]) for length, plan in plans.items()},
        )


def _file(folder: str, facts: Mapping[str, Any]) -> FileFacts:
    return FileFacts(f"{folder}/{facts['name']}", facts["bytes"], facts["sha256"])


class Parts:
    """One split of all parts, opened as they are read: the last ones stay open.

    Args:
        parts: of the corpus, in order.
        files: gives the path of a file on this machine.
        window: parts that a training mixes.
    """

    def __init__(self, parts: Sequence[SplitOfPart], files: Files, window: int) -> None:
        self.parts, self.files, self.window = parts, files, window
        self._opened: dict[Any, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        """A worker process of a loader opens parts itself."""
        return vars(self) | {"_opened": {}}

    def tokens(self, number: int) -> PreparedSplit:
        """The tokens of a part."""
        return self._open(number, lambda: PreparedSplit(map(self.files.path, self.parts[number].files)))

    def plan(self, length: int, number: int) -> StoredPlan:
        """The rows of a part that have a length."""
        return self._open((length, number), lambda: read_plan(self.files.path(self.parts[number].plans[length])))

    def _open(self, key: Any, opened: Callable[[], Opened]) -> Opened:
        """Give what was opened before, or is now; of the rest the least recently used is let go. A batch may span two
        windows, and each part of it has a plan and tokens."""
        found = self._opened.pop(key) if key in self._opened else opened()
        self._opened[key] = found
        if len(self._opened) > 4 * self.window:
            del self._opened[next(iter(self._opened))]
        return cast(Opened, found)


class PartedSplit(PreparedSplit):
    """One split of a corpus in parts: a token stream like any other, of which parts are opened as they are read.

    Documents have no list: what asks for one is told that it needs a corpus prepared as a whole.
    """

    def __init__(self, parts: Parts, token_counts: Ints) -> None:
        self.parts, self.sampling, self.languages = parts, None, None
        self._token_counts = token_counts
        tokens, documents = (
            np.array([getattr(part, name) for part in parts.parts]) for name in ("tokens", "documents")
        )
        self._stops, self._firsts = np.cumsum(tokens), np.cumsum(tokens) - tokens  # (parts,) tokens of the stream
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
        """No such list."""
        needed = "expected one prepared without row_lengths"
        raise DomainbertError(f"prepared: a corpus in parts, which the objective reads as a whole; {needed}")

    @override
    def documents_at(self, places: Ints) -> Ints:
        found, owners = np.empty_like(places), self._parts_of(places)
        for number in np.unique(owners).tolist():
            here = owners == number
            within = self.parts.tokens(number).documents_at(places[here] - self._firsts[number])
            found[here] = self._first_documents[number] + within
        return found

    @override
    def documents(self, enough: int) -> Iterator[np.ndarray]:
        """The documents; of a corpus with too many tokens, those of some parts, evenly spread."""
        sizes = np.diff(self._stops, prepend=0)
        numbers = range(0, len(sizes), -(-len(sizes) // _PARTS_OPENED) if self.num_tokens > enough else 1)
        share = min(1.0, enough / max(1, sum(sizes[number] for number in numbers)))
        wanted = {number: max(1, math.ceil(share * sizes[number])) for number in numbers if sizes[number]}
        return (ids for number, some in wanted.items() for ids in self.parts.tokens(number).documents(some))

    @override
    def token_counts(self, vocab_size: int) -> Ints:
        """Counts of each token, as `prepare` stored them."""
        return self._token_counts

    @override
    def row_plan(self, tokenizer: DomainTokenizer, length: int) -> RowPlan:
        """The plan of rows that `prepare` stored, for one of `row_lengths`."""
        lengths = sorted(self.parts.parts[0].plans)
        if length not in lengths:
            found = f"{length}; the corpus is prepared in parts with row_lengths {', '.join(map(str, lengths))}"
            raise DomainbertError(f"max_length: {found}: expected one of them, or prepare it again")
        return PartedPlan(self.parts, length, tokenizer.template.extra())

    @override
    def take(self, start: int, stop: int) -> np.ndarray:
        return self._joined(start, stop, PreparedSplit.take)

    @override
    def take_starts(self, start: int, stop: int) -> np.ndarray:
        return self._joined(start, stop, PreparedSplit.take_starts)

    def _joined(self, start: int, stop: int, take: Callable[[PreparedSplit, int, int], np.ndarray]) -> np.ndarray:
        if not 0 <= start <= stop <= self.num_tokens:
            raise IndexError(f"tokens {start} to {stop} of {self.num_tokens}")
        first, last = self._parts_of(np.array([start, max(stop - 1, start)])).tolist()
        pieces = []
        for number in range(first, last + 1):
            begin, end = int(self._firsts[number]), int(self._stops[number])
            if begin < end:
                pieces.append(take(self.parts.tokens(number), max(start, begin) - begin, min(stop, end) - begin))
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _parts_of(self, places: Ints) -> Ints:
        """The parts that hold the tokens at some places (N,)."""
        return np.minimum(np.searchsorted(self._stops, places, side="right"), len(self._stops) - 1)


class PartedPlan(RowPlan):
    """Plan of the rows of a corpus in parts, whose arrays are read part by part where they are asked for."""

    def __init__(self, parts: Parts, length: int, extra: int) -> None:
        rows, pieces = (np.array([getattr(part, name)[length] for part in parts.parts]) for name in ("rows", "pieces"))
        first_pieces = np.cumsum(pieces) - pieces
        tokens = np.array([part.tokens for part in parts.parts])
        plans = partial(parts.plan, length)
        super().__init__(
            starts=_as_array(pieces, partial(_column, plans, "starts"), np.cumsum(tokens) - tokens),
            lengths=_as_array(pieces, partial(_column, plans, "lengths")),
            maskable=np.zeros(0, np.int64),  # is summed by row, see `maskable_tokens`
            row_offsets=_as_array(rows, partial(_column, plans, "row_offsets"), first_pieces, offsets=True),
            row_length=length,
            extra=extra,
        )
        columns = {name: _as_array(rows, partial(_column, plans, name)) for name in ("text_tokens", "maskable_tokens")}
        own = {"rows_of_parts": rows, "window": parts.window, "pieces": int(pieces.sum()), "tokens": int(tokens.sum())}
        vars(self).update(own | columns)  # the dataclass is frozen

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


def _column(plans: Callable[[int], StoredPlan], name: str, number: int) -> Ints:
    found: Ints = getattr(plans(number), name)
    return found


def _as_array(sizes: Ints, read: Callable[[int], Ints], shifts: Ints | None = None, offsets: bool = False) -> Ints:
    """Values of all parts, one part after the other, as `RowPlan` indexes them: by a number or an array of numbers."""
    return cast(Ints, _Joined(sizes, read, np.zeros_like(sizes) if shifts is None else shifts, offsets))


class _Joined:
    """The values of parts as one array that is never made.

    Args:
        sizes: (parts,) values of each.
        read: gives those of a part.
        shifts: (parts,) is added to those of each.
        offsets: whether they begin with 0 in each part, so that the end of one is known without opening the next.
    """

    def __init__(self, sizes: Ints, read: Callable[[int], Ints], shifts: Ints, offsets: bool) -> None:
        self.firsts, self.read, self.shifts, self.offsets = np.cumsum(sizes) - sizes, read, shifts, offsets

    def __getitem__(self, index: Any) -> Any:
        places = np.atleast_1d(np.asarray(index))
        owners = np.searchsorted(self.firsts, places, side="right") - 1
        within = places - self.firsts[owners]
        found = self.shifts[owners].astype(np.int64)
        unread = within > 0 if self.offsets else np.ones(len(places), np.bool_)
        for number in np.unique(owners[unread]).tolist():
            here = unread & (owners == number)
            found[here] += self.read(number)[within[here]]
        return found if np.ndim(index) else int(found[0])


def split_parts(parts: Sequence[Mapping[str, Any]], files: Files, window: int, token_counts: Ints) -> list[PartedSplit]:
    """Both splits of a corpus, by what its `prepared.json` says of the parts."""
    splits = []
    for split, counts in zip(SPLITS, token_counts, strict=True):
        described = [SplitOfPart.of(part["folder"], split, part["splits"][split]) for part in parts]
        splits.append(PartedSplit(Parts(described, files, window), counts))
    return splits
