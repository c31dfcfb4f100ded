"""Logits of teachers for a set of texts, on disk, so that they need not be asked again.

A folder, named by what made it, holds

    soft_labels.json    the record: number of outputs, of labels, and how many of these are kept
    logits.npy          (outputs, kept) half precision, memory-mapped; the largest first where not all are kept
    labels.npy          (outputs, kept) which labels these are; only where not all are kept
    rest.npy            (outputs,) log-probability of all the others together; likewise

An output is a word or a text. With the largest k logits alone the other labels share what probability is left evenly.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domainbert.base.files import folder_lock, told_if_full
from domainbert.base.freshness import Freshness
from domainbert.base.hashes import hash_json

_RECORD = "soft_labels.json"
_LOCKS = ".locked"

Block = tuple[NDArray[np.int64], NDArray[np.float32]]
"""The places of some outputs, (n,), and their logits, (n, labels)."""


class SoftLabels:
    """The logits of every output of a list of items, of so many outputs each, in a folder of `cached_labels`."""

    def __init__(self, folder: Path, facts: dict[str, Any], sizes: Sequence[int]) -> None:
        self.facts = facts
        self.logits = np.load(folder / "logits.npy", mmap_mode="r", allow_pickle=False)
        self.labels = self.rest = None
        if facts["kept"] < facts["num_labels"]:
            self.labels = np.load(folder / "labels.npy", mmap_mode="r", allow_pickle=False)
            self.rest = np.load(folder / "rest.npy", mmap_mode="r", allow_pickle=False)
        self.starts = np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))])

    def rows(self, items: Sequence[int]) -> NDArray[np.float32]:
        """The logits of the outputs of some items, one item after the other: (outputs, labels)."""
        places = np.concatenate([np.arange(self.starts[item], self.starts[item + 1]) for item in items])
        kept = self.logits[places].astype(np.float32)
        if self.labels is None or self.rest is None:
            return kept
        others = self.facts["num_labels"] - self.facts["kept"]
        log_other = self.rest[places].astype(np.float32)[:, None] - np.float32(np.log(others))
        whole = np.repeat(log_other, self.facts["num_labels"], axis=1)
        np.put_along_axis(whole, self.labels[places].astype(np.int64), kept, axis=1)
        return whole


class MeanLabels:
    """The mean logits of an ensemble, whose softmax is the geometric mean of its distributions (Hinton et al. 2015,
    section 2): of each teacher its soft labels."""

    def __init__(self, teachers: Sequence[SoftLabels]) -> None:
        self.teachers = teachers

    def rows(self, items: Sequence[int]) -> NDArray[np.float32]:
        """Mean logits of the outputs of some items, one item after the other: (outputs, labels)."""
        return np.mean([teacher.rows(items) for teacher in self.teachers], axis=0, dtype=np.float32)


def cached_labels(
    cache: Path,
    made_from: dict[str, Any],
    sizes: Sequence[int],
    num_labels: int,
    top_k: int,
    ask: Callable[[], Iterable[Block]],
) -> SoftLabels:
    """The soft labels of some items: those on disk, or, where there are none made of the same, those `ask` gives.

    Of several processes that want the same, one asks and the others wait for it. Damaged ones are made again.

    Args:
        cache: folder of such folders; made if absent.
        made_from: the facts that decide them beside sizes: teachers, data, tokens of a window.
        sizes: outputs of each item.
        num_labels: labels of an output.
        top_k: how many logits to keep of each.
        ask: gives every output once, in any order.
    """
    kept = min(top_k, num_labels)
    facts = {"num_outputs": int(sum(sizes)), "num_labels": num_labels, "kept": kept}
    freshness = Freshness({**made_from, **facts, "sizes": hash_json(list(sizes))})
    folder = cache / freshness.key[:32]
    with folder_lock(cache / _LOCKS / folder.name):
        found, reason = freshness.look(folder / _RECORD)
        if found is None:
            if reason:
                print(f"{folder}: {reason}; computing the logits of the teacher again", flush=True)
            partial = folder.with_name(folder.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            with told_if_full(cache):
                _write(partial, **facts, blocks=ask())
                freshness.record(partial / _RECORD, facts)
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
    return SoftLabels(folder, facts, sizes)


def _write(folder: Path, num_outputs: int, num_labels: int, kept: int, blocks: Iterable[Block]) -> None:
    def table(name: str, dtype: str, *shape: int) -> np.memmap[Any, Any]:
        found = np.lib.format.open_memmap(folder / name, "w+", np.dtype(dtype), (num_outputs, *shape))
        if hasattr(os, "posix_fallocate"):  # else a disk that is full kills the process when it writes there
            with open(folder / name, "r+b") as file:
                os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
        return found

    arrays = [table("logits.npy", "float16", kept)]
    if kept < num_labels:
        arrays += [table("labels.npy", "uint32", kept), table("rest.npy", "float16")]
    written = 0
    for places, values in blocks:
        written += len(places)
        rows = _largest(values, kept) if kept < num_labels else (values,)
        for array, row in zip(arrays, rows, strict=True):
            array[places] = row
    assert written == num_outputs, f"{written} of {num_outputs} outputs"
    for array in arrays:
        array.flush()


def _largest(values: NDArray[np.float32], kept: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The largest log-probabilities of each row of logits, the labels that they are of, and that of all others."""
    highest = values.max(axis=1, keepdims=True)
    log_probabilities = values - (highest + np.log(np.exp(values - highest).sum(axis=1, keepdims=True)))
    order = np.argsort(-values, axis=1, kind="stable")[:, :kept]
    largest = np.take_along_axis(log_probabilities, order, axis=1)
    return largest, order, np.log(np.maximum(1 - np.exp(largest).sum(axis=1), 1e-7))
