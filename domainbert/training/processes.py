"""Processes of a distributed training: agreement, process groups, lost processes, and cleanup after Lightning."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from domainbert.base.errors import TrainingFailed
from domainbert.base.process import LAUNCH, launch_id, launched_externally, launched_world_size, process_rank

_WATCH_SECONDS = 1.0  # between two checks of the parent process
_MEETING_SECONDS = 1800.0  # as long as torch waits for the other processes of a group
_POLL_SECONDS = 0.1  # between two looks into the store
_GLOO_ERROR = re.compile(r"\bgloo\b")
_SOURCE_LOCATION = re.compile(r"^\[\S+\]\s*")  # prefix of a library's message
_MAX_CHARACTERS = 200  # characters of a library's message


def all_reduce_max(value: int) -> int:
    """Return the maximum of `value` over all processes; a collective operation."""
    import torch
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return value
    maximum = torch.tensor(value)
    group = _group_on_cpu(id(distributed.group.WORLD))  # no operation waits for a GPU; the id is only a cache key
    distributed.all_reduce(maximum, distributed.ReduceOp.MAX, group=group)
    return int(maximum)


@contextmanager
def first_process_writes() -> Iterator[bool]:
    """Yield whether this process writes files: True in the first process, otherwise False.

    The other processes leave the context when the first has finished; all must enter it.
    """
    try:
        yield process_rank() == 0
    finally:
        all_reduce_max(0)


def join_torchrun(backend: str) -> None:
    """Initialise the process group of a torchrun launch; do nothing for other launches, or if a group exists.

    When torchrun restarts the processes, its store still has the addresses of the previous processes, whose ports are
    closed. So the keys get a prefix that is new at each start. The restart count cannot be the prefix, because torchrun
    counts per node.
    """
    from torch import distributed

    by_torchrun = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and launched_world_size() > 1
    if not by_torchrun or distributed.is_initialized():
        return
    store, rank, size = next(distributed.rendezvous("env://"))
    keys = distributed.PrefixStore(agree_on_prefix(store, rank, size), store)
    distributed.init_process_group(backend, store=keys, rank=rank, world_size=size)


def agree_on_prefix(store: Any, rank: int, size: int, seconds: float = _MEETING_SECONDS) -> str:
    """Return a key prefix that all running processes share and that no earlier process used: the name of process 0.

    Each process stores a random name. Process 0 publishes its own name, followed by the names that it reads, some of
    which may belong to ended processes, until each of the other processes has found its name and confirmed it.

    Raises:
        TrainingFailed: a process did not join within `seconds`.
    """
    name, others, end = uuid.uuid4().hex, range(1, size), time.monotonic() + seconds
    if rank != 0:
        store.set(f"domainbert/name/{rank}", name)
    confirmed = [f"domainbert/{name}/{other}" for other in others]
    while time.monotonic() < end:
        if rank == 0:
            if store.check(confirmed):
                return name
            names = [name, *(_stored_text(store, f"domainbert/name/{other}") for other in others)]
            store.set("domainbert/names", " ".join(names))
        else:
            published = _stored_text(store, "domainbert/names").split()
            if name in published:
                store.set(f"domainbert/{published[0]}/{rank}", "confirmed")
                return published[0]
        time.sleep(_POLL_SECONDS)
    raise TrainingFailed(
        f"rank {rank} of {size} processes has waited {seconds:,.0f} s for others", hint="read their output, restart all"
    )


def _stored_text(store: Any, key: str) -> str:
    return str(store.get(key).decode()) if store.check([key]) else ""


@lru_cache(maxsize=1)
def _group_on_cpu(world: int) -> Any:
    """Return a gloo group for values on the CPU, so that no operation waits for a GPU. None, which stands for the
    default group, if that is a gloo group. `world`, the id of the default group, is only the key of the cache."""
    from torch import distributed

    return None if distributed.get_backend() == "gloo" else distributed.new_group(backend="gloo")


@contextmanager
def report_lost_rank() -> Iterator[None]:
    """Inside the context, convert an error of the communication between processes to `TrainingFailed`."""
    try:
        yield
    except RuntimeError as error:  # gloo has no specific exception type
        reason = " ".join(str(error).split())
        # by name: some builds of torch have no `DistError`
        is_dist_error = any(base.__name__ == "DistError" for base in type(error).__mro__)
        if not is_dist_error and not _GLOO_ERROR.search(reason):
            raise
        cause = _SOURCE_LOCATION.sub("", reason).partition(". ")[0][:_MAX_CHARACTERS]
        raise TrainingFailed(
            f"another process of the training ended early ({cause})",
            hint="its own messages give the reason; run the same command again to resume from the last checkpoint",
        ) from error


def end_with_parent() -> None:
    """Start a thread that ends this process soon after its parent has ended, instead of half an hour later.

    No data is lost: only the first process writes, and it starts the others.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def command_of_other_processes(arguments: Sequence[str]) -> Iterator[None]:
    """Make Lightning start the other local processes as `domainbert` with these arguments, and clean up afterwards.

    By default Lightning repeats the command line of this process, which may run a whole recipe. After a stage it leaves
    environment variables and the process group, with which the next stage would act as one of several processes.

    If a launcher started all processes, the group is kept for the next stage: torchrun's store still holds the
    addresses of the first group, so a second group could not be initialised.
    """
    argv, environment = sys.argv, dict(os.environ)
    sys.argv = [argv[0], *arguments]
    os.environ[LAUNCH] = launch_id() or uuid.uuid4().hex
    try:
        yield
    finally:
        sys.argv = argv
        if "torch" in sys.modules and not launched_externally(environment):
            _leave_process_group()
        for name in set(os.environ) - set(environment):
            del os.environ[name]
        os.environ.update(environment)


def _leave_process_group() -> None:
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
        _group_on_cpu.cache_clear()
