from __future__ import annotations

import subprocess
import sys
import textwrap
from copy import copy

import numpy as np
import pytest
import torch

from domainbert.base.errors import DomainbertError
from domainbert.data.batches import GlobalOrder, Share
from domainbert.encoders.layers import segment_boundaries
from domainbert.pretraining.batches import TrainRows, ValidationRows
from domainbert.pretraining.phases import PhasedRows, RowPhase
from domainbert.training.loaders import (
    SPARE,
    EqualLengthBatches,
    PrefetchLoader,
    WithBoundaries,
    reraise_worker_error,
)
from tests.forked import SECONDS
from tests.ready_made import ReadyBatches, rank_of_trainer
from tests.refusals import refused


@pytest.mark.parametrize(("num_workers", "first"), [(0, 2), (2, 2), (0, 0)])
def test_loaders_give_the_rank_its_batches_from_the_next_step_on_whatever_the_workers(readers, num_workers, first):
    order = GlobalOrder(readers[0].plan.num_rows, 8, seed=2)
    data = ReadyBatches(
        lambda share, steps: TrainRows(readers[0], order, share, steps),
        [lambda share: ValidationRows(readers[1], 4, share)],
        5,
        num_workers,
    )
    steps = {"global_step": first, "fetched": 2 * first, "estimated_stepping_batches": 5}
    data.trainer = rank_of_trainer(global_rank=1, world_size=2, accumulate_grad_batches=2, **steps)
    share = Share(1, 2, 2)
    wanted = TrainRows(readers[0], order, share, range(first, 5))
    loader = data.train_dataloader()
    assert not loader.loader().pin_memory
    found = list(loader)
    assert "boundaries" not in found[0]
    assert len(loader) == 2 * 5 and len(found) == 2 * (5 - first)
    assert [(batch["step"], batch["micro_batch"]) for batch in found[-3:]] == [(3, 1), (4, 0), (4, 1)]
    for index, batch in enumerate(found):
        assert batch.keys() == wanted[index].keys() and batch["num_targets"] == wanted[index]["num_targets"]
        for name in ("input_ids", "position_ids", "segment_ids", "positions", "targets"):
            assert torch.equal(batch[name], torch.from_numpy(wanted[index][name]))
    assert len(list(data.val_dataloader()[0])) == len(ValidationRows(readers[1], 4, share))


@pytest.mark.parametrize("world_size", [1, 2, 3, 7, 40])
def test_each_process_validates_as_many_batches_and_each_row_counts_once(readers, world_size):
    """Where models are sharded all compute together; with several sets, one may have fewer rows than there are
    processes."""
    few = copy(readers[1])
    few.rows = readers[1].rows[:2]
    validations = [lambda share: ValidationRows(readers[1], 2, share), lambda share: ValidationRows(few, 2, share)]
    shares = [Share(rank, world_size) for rank in range(world_size)]
    for rows, validation in zip((readers[1].rows, few.rows), validations, strict=True):
        every = [EqualLengthBatches(validation(share), validation(shares[0])) for share in shares]
        assert len({len(one) for one in every}) == 1 and len(every[0]) >= 1
        batches = [one[index] for one in every for index in range(len(one))]
        counted = [batch["input_ids"] for batch in batches if SPARE not in batch]
        assert sum(map(len, counted)) == len(rows) and all(len(batch["input_ids"]) for batch in batches)
    assert any(SPARE in batch for batch in batches) == (world_size > 2)
    data = ReadyBatches(lambda share, steps: None, validations, 5, num_workers=0)
    data.trainer = rank_of_trainer(global_rank=world_size - 1, world_size=world_size)
    assert [len(loader) for loader in data.val_dataloader()] == [len(one(shares[0])) for one in validations]
    data.validations = validations[1:]
    if world_size > 2:
        with refused(where="validation", found=f"fewer items than devices ({world_size})", hint="use fewer..."):
            data.val_dataloader()


def test_what_goes_to_a_gpu_is_pinned_and_its_texts_are_counted(readers):
    data = ReadyBatches(
        lambda share, steps: TrainRows(readers[0], GlobalOrder(readers[0].plan.num_rows, 8, seed=2), share, steps),
        [lambda share: ValidationRows(readers[1], 4, share)],
        5,
        num_workers=0,
    )
    data.trainer = rank_of_trainer("cuda", estimated_stepping_batches=5)
    for batches in (data.train_dataloader(), *data.val_dataloader()):
        loader = batches.loader()
        batch, plain = loader.dataset[0], loader.dataset.batches[0]
        assert loader.pin_memory and loader.num_workers == 0
        assert batch.keys() - plain.keys() == {"boundaries"}
        assert torch.equal(batch["boundaries"], segment_boundaries(torch.from_numpy(plain["segment_ids"])))
    phases = PhasedRows(
        [RowPhase(range(5), readers[0], GlobalOrder(readers[0].plan.num_rows, 8, 2))], Share(), range(5)
    )
    texts = np.diff(readers[0].plan.row_offsets)
    most = 8 + sum(sorted(texts.tolist())[-8:])  # the fullest rows, and padding behind each
    assert phases.most_texts == most
    rooms = {len(WithBoundaries(phases)[index]["boundaries"]) for index in range(5)}
    assert rooms == {1 + (1 << (most - 1).bit_length())}, "one shape"
    data.num_workers = None
    every = (data.train_dataloader(), *data.val_dataloader())
    assert all(isinstance(batches.loader(), PrefetchLoader) for batches in every)
    data.trainer = rank_of_trainer(estimated_stepping_batches=5)
    assert not isinstance(data.train_dataloader().loader(), PrefetchLoader)


class Counting(torch.utils.data.Dataset):
    """Notes which batches were built."""

    def __init__(self, size, broken=-1):
        self.size, self.broken, self.built = size, broken, []

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if index == self.broken:
            raise DomainbertError(f"part {index}: missing")
        self.built.append(index)
        return {"number": index}


def test_a_thread_builds_two_batches_ahead_in_order():
    batches = Counting(6)
    loader = PrefetchLoader(batches, batch_size=None)
    seen = []
    for batch in loader:
        seen.append(batch["number"])
        assert len(batches.built) <= min(6, len(seen) + 2)
    assert seen == batches.built == list(range(6)) and len(loader) == 6
    assert [batch["number"] for batch in loader] == list(range(6)), "again"


def test_an_error_of_the_thread_comes_where_the_batch_would_and_leaving_early_ends_it():
    loader, seen = PrefetchLoader(Counting(6, broken=2), batch_size=None), []
    with refused(problem="part 2: missing"):
        seen.extend(batch["number"] for batch in loader)
    batches = Counting(6)
    for batch in PrefetchLoader(batches, batch_size=None):
        assert batch == {"number": 0}
        break
    assert len(batches.built) <= 3


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_of_a_worker_is_told_as_one_sentence(num_workers):
    """Also one of several lines, as `Problems` have them."""

    class Refuses(torch.utils.data.Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            raise DomainbertError("part 3: missing; expected 12 bytes\n  part 4: missing")

    loader = torch.utils.data.DataLoader(Refuses(), batch_size=None, num_workers=num_workers)
    with refused(problem="part 3: missing; expected 12 bytes\n  part 4: missing"), reraise_worker_error():
        next(iter(loader))


@pytest.mark.slow
def test_a_process_kills_waiting_workers_at_its_end_and_no_other_child():
    """Workers ignore SIGTERM, by which multiprocessing ends daemonic children."""
    code = """
        import multiprocessing, signal, sys, time
        from torch.utils.data import DataLoader
        from domainbert.base.process import ignore_stop_signals
        from domainbert.training.loaders import Batches

        def wait():
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("ended by SIGTERM", flush=True)))
            started.set()
            time.sleep(9999)

        context = multiprocessing.get_context("fork")
        started = context.Event()
        context.Process(target=wait, daemon=True).start()
        started.wait()
        how = {"num_workers": 1, "persistent_workers": True, "worker_init_fn": ignore_stop_signals}
        loader = DataLoader([1, 2], batch_size=None, **how)
        print(next(iter(Batches(lambda: loader, 2))), flush=True)
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=SECONDS, check=True
    )
    assert (result.stdout, result.stderr) == ("1\nended by SIGTERM\n", "")
