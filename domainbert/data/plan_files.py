"""Row plans in memory-mapped files, so that a corpus is not planned again at each start of training."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from domainbert.base.errors import DomainbertError
from domainbert.data.packing import Ints, RowPlan

# columns of the file: lists with a value per piece, and values of rows
_PER_PIECE = {"starts": pa.int64(), "lengths": pa.int32()}
_PER_ROW = {"maskable_tokens": pa.int32(), "text_tokens": pa.int32()}


class StoredPlan(NamedTuple):
    """Arrays of a `RowPlan`, as views of a mapped file."""

    row_offsets: Ints  # (rows + 1,)
    starts: Ints  # (pieces,)
    lengths: Ints  # (pieces,)
    maskable_tokens: Ints  # (rows,)
    text_tokens: Ints  # (rows,)


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


def read_plan(path: Path) -> StoredPlan:
    """Return a plan as a memory-mapped file; `DomainbertError` if it cannot be read."""
    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
            batch = stream.read_next_batch()
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise DomainbertError(f"{path}: not a readable row plan ({error}); run `prepare` again") from error
    arrays = [batch.column(name).flatten() for name in _PER_PIECE] + [batch.column(name) for name in _PER_ROW]
    offsets = np.asarray(batch.column("starts").offsets)
    return StoredPlan(offsets, *(array.to_numpy(zero_copy_only=True) for array in arrays))
