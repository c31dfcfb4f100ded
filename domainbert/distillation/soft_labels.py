"""Cache of teacher logits on disk.

A folder, named by a hash of the facts that determine the logits, holds

    soft_labels.json    record: number of outputs, number of labels, and number of logits kept per output
    logits.npy          (outputs, kept) half precision, memory-mapped; the largest, if not all logits are kept
    labels.npy          (outputs, kept) labels of these logits; only if not all are kept
    rest.npy            (outputs,) log of the total probability of the other labels; only if not all are kept

An output is a word or a text. With only the largest k logits, the other labels share the remaining probability equally.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domainbert.base.files import folder_lock, hash_json, report_full_disk
from domainbert.base.freshness import Freshness

_RECORD = "soft_labels.json"
_LOCKS = ".locked"

Block = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Indices of outputs (n,), and their logits (n, labels)."""


class SoftLabels:
    """Logits of one teacher for all outputs of a list of items, read from a folder of `cached_labels`.

    Args:
        folder: folder of the logits.
        facts: `num_outputs`, `num_labels`, and `kept`, the number of logits per output in the folder.
        sizes: number of outputs of each item.
    """

    def __init__(self, folder: Path, facts: dict[str, Any], sizes: Sequence[int]) -> None:
        self.facts = facts
        self.logits = np.load(folder / "logits.npy", mmap_mode="r", allow_pickle=False)
        self.labels = self.rest = None
        if facts["kept"] < facts["num_labels"]:
            self.labels = np.load(folder / "labels.npy", mmap_mode="r", allow_pickle=False)
            self.rest = np.load(folder / "rest.npy", mmap_mode="r", allow_pickle=False)
        self.starts = np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))])

    def logits_of(self, items: Sequence[int]) -> NDArray[np.float32]:
        """Return the logits of the outputs of some items, in the order of `items`: (outputs, labels).

        If the folder has only the largest logits, the other labels get equal logits.
        """
        outputs = np.concatenate([np.arange(self.starts[item], self.starts[item + 1]) for item in items])
        largest = self.logits[outputs].astype(np.float32)
        if self.labels is None or self.rest is None:  # the folder has all logits
            return largest
        # each of the other labels has an equal share of the remaining probability
        num_others = self.facts["num_labels"] - self.facts["kept"]
        log_share = self.rest[outputs].astype(np.float32)[:, None] - np.float32(np.log(num_others))
        logits = np.repeat(log_share, self.facts["num_labels"], axis=1)
        np.put_along_axis(logits, self.labels[outputs].astype(np.int64), largest, axis=1)
        return logits


def mean_logits(teachers: Sequence[SoftLabels], items: Sequence[int]) -> NDArray[np.float32]:
    """Return the logits of some items, in the order of `items`, as the mean over the teachers: (outputs, labels).

    The softmax of the mean is the geometric mean of the teachers' distributions (Hinton et al. 2015, section 2).
    """
    return np.mean([teacher.logits_of(items) for teacher in teachers], axis=0, dtype=np.float32)


def cached_labels(
    cache: Path,
    made_from: dict[str, Any],
    sizes: Sequence[int],
    num_labels: int,
    top_k: int,
    compute: Callable[[], Iterable[Block]],
) -> SoftLabels:
    """Return the soft labels of some items, from the cache or, if they are missing or damaged, from `compute`.

    If several processes need the same labels, one process computes them and the others wait.

    Args:
        cache: folder of the cache; created if it does not exist.
        made_from: facts that determine the logits, in addition to `sizes`: teacher, data, window.
        sizes: number of outputs of each item.
        num_labels: labels of an output.
        top_k: number of logits to keep per output.
        compute: yields each output exactly once, in any order.
    """
    kept = min(top_k, num_labels)
    facts = {"num_outputs": int(sum(sizes)), "num_labels": num_labels, "kept": kept}
    freshness = Freshness({**made_from, **facts, "sizes": hash_json(list(sizes))})
    folder = cache / freshness.key[:32]
    with folder_lock(cache / _LOCKS / folder.name):
        record, reason = freshness.read_if_current(folder / _RECORD)
        if record is None:
            if reason:
                print(f"{folder}: {reason}; computing the logits of the teacher again", flush=True)
            unfinished = folder.with_name(folder.name + ".partial")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            try:
                with report_full_disk(cache):
                    _write_blocks(unfinished, **facts, blocks=compute())
                    freshness.record(unfinished / _RECORD, facts)
                shutil.rmtree(folder, ignore_errors=True)
                unfinished.rename(folder)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    return SoftLabels(folder, facts, sizes)


def _write_blocks(folder: Path, num_outputs: int, num_labels: int, kept: int, blocks: Iterable[Block]) -> None:
    """Write the logits of each output to logits.npy: all of them if `kept` is `num_labels`.

    Otherwise only the `kept` largest are written, as log-probabilities; their labels are written to labels.npy, and the
    log of the remaining probability to rest.npy. A block has the indices of outputs and their logits (outputs, labels).
    """
    is_cut = kept < num_labels
    arrays = [_create_array(folder / "logits.npy", "float16", (num_outputs, kept))]
    if is_cut:
        arrays.append(_create_array(folder / "labels.npy", "uint32", (num_outputs, kept)))
        arrays.append(_create_array(folder / "rest.npy", "float16", (num_outputs,)))
    num_written = 0
    for outputs, values in blocks:
        num_written += len(outputs)
        values_by_array = _largest_log_probabilities(values, kept) if is_cut else (values,)
        for array, array_values in zip(arrays, values_by_array, strict=True):
            array[outputs] = array_values
    assert num_written == num_outputs, f"{num_written} of {num_outputs} outputs"
    for array in arrays:
        array.flush()


def _create_array(path: Path, dtype: str, shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    array = np.lib.format.open_memmap(path, "w+", np.dtype(dtype), shape)
    if hasattr(os, "posix_fallocate"):  # otherwise writing to the map on a full disk kills the process
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
    return array


def _largest_log_probabilities(
    values: NDArray[np.float32], kept: int
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return three values for logits (n, labels): the `kept` largest log-probabilities of each row (n, kept), their
    labels (n, kept), and the log of the remaining probability (n,)."""
    highest = values.max(axis=1, keepdims=True)  # subtracted, so that exp does not overflow
    log_probabilities = values - (highest + np.log(np.exp(values - highest).sum(axis=1, keepdims=True)))
    labels = np.argsort(-values, axis=1, kind="stable")[:, :kept]
    largest = np.take_along_axis(log_probabilities, labels, axis=1)
    rest = np.maximum(1 - np.exp(largest).sum(axis=1), 1e-7)  # not 0, whose log is infinite
    return largest, labels, np.log(rest)
