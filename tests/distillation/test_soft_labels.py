from __future__ import annotations

import errno
import multiprocessing
import os
import sys
import time

import numpy as np
import pytest

from domainbert.distillation.batches import output_index
from domainbert.distillation.soft_labels import cached_labels, mean_logits
from tests.refusals import refused

SIZES = (3, 1, 0, 4)
LOGITS = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32) * 3


def blocks():
    yield np.array([7, 0, 3]), LOGITS[[7, 0, 3]]
    yield np.array([1, 2, 4, 5, 6]), LOGITS[[1, 2, 4, 5, 6]]


def softmax(x):
    return np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)


def test_rows_are_the_logits_in_half_precision(tmp_path):
    labels = cached_labels(tmp_path / "cache", {"a": 1}, SIZES, 6, 64, blocks)
    assert isinstance(labels.logits, np.memmap) and labels.logits.dtype == np.float16
    assert np.array_equal(labels.logits_of([3, 0]), LOGITS[[4, 5, 6, 7, 0, 1, 2]].astype(np.float16).astype(np.float32))
    assert labels.logits_of([2, 1]).tolist() == LOGITS[[3]].astype(np.float16).astype(np.float32).tolist()


def test_they_are_made_once_for_the_same_key(tmp_path):
    calls = []

    def ask():
        calls.append(1)
        return blocks()

    for key in ({"a": 1}, {"a": 1}, {"a": 2}):
        cached_labels(tmp_path, key, SIZES, 6, 64, ask)
    assert len(calls) == 2 and len(list(tmp_path.glob("[!.]*"))) == 2


def test_how_many_are_kept_is_part_of_the_key(tmp_path):
    """As far as there are as many labels: one cache serves runs with different `top_k`."""
    rows = [cached_labels(tmp_path, {}, SIZES, 6, top_k, blocks).logits_of([0, 1, 3]) for top_k in (2, 3, 6, 64)]
    assert [len(np.unique(row[0])) for row in rows] == [3, 4, 6, 6] and len(list(tmp_path.glob("[!.]*"))) == 3
    assert np.array_equal(rows[2], rows[3])


def test_an_interrupted_one_is_made_again(tmp_path):
    def interrupted():
        yield np.array([7]), LOGITS[[7]]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_labels(tmp_path, {}, SIZES, 6, 64, interrupted)
    assert np.allclose(cached_labels(tmp_path, {}, SIZES, 6, 64, blocks).logits_of([1]), LOGITS[[3]], atol=2e-3)
    assert len(list(tmp_path.glob("[!.]*"))) == 1


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system cannot ask for room beforehand")
def test_a_full_disk_is_told_before_a_teacher_is_asked(tmp_path, monkeypatch):
    """Written through a mapping, it would kill the process."""

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def computed():
        yield pytest.fail("computed")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with refused(problem="...No space left on device: ... bytes are free..."):
        cached_labels(tmp_path, {}, SIZES, 6, 64, computed)
    assert [path.name for path in tmp_path.iterdir()] == [".locked"], "what was written takes room on the full disk"


def test_of_several_processes_one_asks_and_the_others_wait(tmp_path):
    def want():
        def ask():
            (tmp_path / f"computed-{os.getpid()}").touch()
            time.sleep(0.3)
            return blocks()

        rows = cached_labels(tmp_path / "cache", {}, SIZES, 6, 64, ask).logits_of([0, 1, 2, 3])
        sys.exit(0 if np.allclose(rows, LOGITS, atol=5e-3) else 1)

    processes = [multiprocessing.get_context("fork").Process(target=want) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(list(tmp_path.glob("computed-*"))) == 1


def test_the_largest_keep_their_probability_and_the_others_share_the_rest(tmp_path):
    rows = cached_labels(tmp_path, {}, SIZES, 6, 2, blocks).logits_of([0, 1, 3])
    found, wanted = softmax(rows), softmax(LOGITS)
    order = np.argsort(-LOGITS, axis=1)
    for kept in (0, 1):
        place = order[:, kept : kept + 1]
        np.testing.assert_allclose(np.take_along_axis(found, place, 1), np.take_along_axis(wanted, place, 1), atol=2e-3)
    others = np.take_along_axis(found, order[:, 2:], 1)
    assert np.ptp(others, axis=1).max() < 1e-6
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)


def test_an_ensemble_is_the_mean_of_logits(tmp_path):
    def doubled():
        yield np.arange(8), 2 * LOGITS

    both = [cached_labels(tmp_path, {"a": n}, SIZES, 6, 64, ask) for n, ask in enumerate([blocks, doubled])]
    assert np.allclose(mean_logits(both, [3, 1]), 1.5 * LOGITS[[4, 5, 6, 7, 3]], atol=1e-2)
    assert mean_logits(both[:1], [3]).tolist() == both[0].logits_of([3]).tolist()


@pytest.mark.parametrize("name", ["logits.npy", "labels.npy", "rest.npy", "soft_labels.json"])
def test_damaged_ones_are_made_again(tmp_path, capsys, name):
    """Also damage that leaves the size of the file unchanged."""
    rows = cached_labels(tmp_path, {}, SIZES, 6, 2, blocks).logits_of([0, 1, 3])
    (folder,) = tmp_path.glob("[!.]*")
    content = bytearray((folder / name).read_bytes())
    if name == "soft_labels.json":
        content = content.replace(b'"num_outputs": 8', b'"num_outputs": 9')
    else:
        content[-4:] = bytes(4)
    (folder / name).write_bytes(content)
    assert np.array_equal(cached_labels(tmp_path, {}, SIZES, 6, 2, blocks).logits_of([0, 1, 3]), rows)
    assert capsys.readouterr().out == f"{folder}: {name} has changed; computing the logits of the teacher again\n"
    cached_labels(tmp_path, {}, SIZES, 6, 2, lambda: pytest.fail("computed"))


def test_output_index_counts_through_the_examples():
    index = output_index(np.array([0, 0, 1, 0, 3]), np.array([0, -1, 0, 2, 0]), SIZES)
    assert index.tolist() == [0, -1, 3, 2, 4]
