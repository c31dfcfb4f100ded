"""Plans of rows on disk, memory-mapped: what is planned once need not be planned at each start of a training."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from domainbert.base.errors import DomainbertError
from domainbert.data.packing import Ints, RowPlan

_PER_PIECE = {"starts": pa.int64(), "lengths": pa.int32()}
_PER_ROW = {"maskable_tokens": pa.int32(), "text_tokens": pa.int32()}


class StoredPlan(NamedTuple):
    """The arrays of a `RowPlan`, views of a mapped file."""

    row_offsets: Ints  # (rows + 1,)
    starts: Ints  # (pieces,)
    lengths: Ints  # (pieces,)
    maskable_tokens: Ints  # (rows,)
    text_tokens: Ints  # (rows,)


def write_plan(path: Path, plan: RowPlan) -> None:
    """Write a plan as an Arrow stream with a row for each of its rows."""
    offsets = pa.array(plan.row_offsets, pa.int32())
    lists = {
        name: pa.ListArray.from_arrays(offsets, pa.array(getattr(plan, name), kind))
        for name, kind in _PER_PIECE.items()
    }
    batch = pa.record_batch(lists | {name: pa.array(getattr(plan, name), kind) for name, kind in _PER_ROW.items()})
    path.parent.mkdir(exist_ok=True)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, batch.schema) as stream:
        stream.write_batch(batch)


def read_plan(path: Path) -> StoredPlan:
    """Map a plan; `DomainbertError` if the file cannot be read."""
    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
            batch = stream.read_next_batch()
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise DomainbertError(f"{path}: not a plan of rows that can be read ({error})") from error
    arrays = {name: batch.column(name).flatten() for name in _PER_PIECE} | {
        name: batch.column(name) for name in _PER_ROW
    }
    views = {name: array.to_numpy(zero_copy_only=True) for name, array in arrays.items()}
    return StoredPlan(row_offsets=np.asarray(batch.column("starts").offsets), **views)
