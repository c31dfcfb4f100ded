"""The processes of a training: what they agree on, and what Lightning leaves behind in the one that started them."""

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
from domainbert.base.ranks import LAUNCH, laid_out, launch_id, started_together

_WATCH_SECONDS = 1.0
_MEETING_SECONDS = 1800.0  # as long as torch waits for the other processes of a group
_POLL_SECONDS = 0.1
_OF_GLOO = re.compile(r"\bgloo\b")
_PLACE = re.compile(r"^\[\S+\]\s*")  # in a library's source
_SHOWN = 200  # characters of a library's reason


def highest(value: int) -> int:
    """The highest of the values that the processes of a training have; all of them have to ask at the same time."""
    import torch
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return value
    agreed = torch.tensor(value)
    distributed.all_reduce(agreed, distributed.ReduceOp.MAX, group=_group_on_cpu(id(distributed.group.WORLD)))
    return int(agreed)


def join_torchrun(backend: str) -> None:
    """Form the process group of a launch by torchrun under new keys of its store; does nothing otherwise, or if there
    is a group already.

    torchrun keeps its store when it restarts the processes. The store still holds the addresses of the previous ones:
    a process that starts first would connect to a port on which nobody listens any more. The restart count cannot tell
    them apart, because torchrun counts per node.
    """
    from torch import distributed

    by_torchrun = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and started_together() > 1
    if not by_torchrun or distributed.is_initialized():
        return
    store, rank, size = next(distributed.rendezvous("env://"))
    keys = distributed.PrefixStore(agreed_prefix(store, rank, size), store)
    distributed.init_process_group(backend, store=keys, rank=rank, world_size=size)


def agreed_prefix(store: Any, rank: int, size: int, seconds: float = _MEETING_SECONDS) -> str:
    """Return a text that all running processes have in common, and that no process which ended before has had.

    Every process announces itself with a random name. The first one repeats the names that it reads, which may be of
    ended processes, until each of the others has found its own name and confirmed it.

    Raises:
        TrainingFailed: another process has not come within `seconds`.
    """
    name, others, end = uuid.uuid4().hex, range(1, size), time.monotonic() + seconds
    if rank:
        store.set(f"domainbert/name/{rank}", name)
    confirmed = [f"domainbert/{name}/{other}" for other in others]
    while time.monotonic() < end:
        if rank and name in (names := _value(store, "domainbert/names").split()):
            store.set(f"domainbert/{names[0]}/{rank}", "confirmed")
            return names[0]
        if not rank and store.check(confirmed):
            return name
        if not rank:
            store.set(
                "domainbert/names", " ".join([name, *(_value(store, f"domainbert/name/{one}") for one in others)])
            )
        time.sleep(_POLL_SECONDS)
    raise TrainingFailed(f"process {rank} of {size} has waited {seconds:,.0f} s for the others; expected all to start")


def _value(store: Any, key: str) -> str:
    return str(store.get(key).decode()) if store.check([key]) else ""


@lru_cache(maxsize=1)
def _group_on_cpu(world: int) -> Any:
    """A group for numbers that are on the CPU anyway, so that no GPU is waited for."""
    from torch import distributed

    return None if distributed.get_backend() == "gloo" else distributed.new_group(backend="gloo")


@contextmanager
def told_if_lost() -> Iterator[None]:
    """While this lasts, that the processes of a training cannot reach each other is a `TrainingFailed`."""
    try:
        yield
    except RuntimeError as error:  # gloo has no type of its own
        reason = " ".join(str(error).split())
        if not _OF_GLOO.search(reason) and not any(base.__name__ == "DistError" for base in type(error).__mro__):
            raise
        said = _PLACE.sub("", reason).partition(". ")[0][:_SHOWN]
        raise TrainingFailed(
            f"the training lost another of its processes ({said}), whose own messages say why; expected all of them to "
            "run to the end: run the same again to go on from the last checkpoint"
        ) from error


def end_with_parent() -> None:
    """End this process soon after the one that started it, however that ended: it might wait for it for half an hour.

    Nothing is lost: only the first process writes, and it is the one that starts the others.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def command_of_other_processes(arguments: Sequence[str]) -> Iterator[None]:
    """While this lasts, Lightning starts the other processes of a machine as `domainbert` with these arguments.

    Lightning repeats the command line of this process otherwise, which may be a whole recipe. It also leaves its
    environment variables and the process group behind: the next stage would take itself for one of several processes.
    Where all processes were started together, the group is that of the next stage as well: torchrun's store still holds
    the addresses of the first group, with which a second one would never come about.
    """
    argv, environment = sys.argv, dict(os.environ)
    sys.argv = [argv[0], *arguments]
    os.environ[LAUNCH] = launch_id() or uuid.uuid4().hex
    try:
        yield
    finally:
        sys.argv = argv
        if "torch" in sys.modules and not laid_out(environment):
            _leave_process_group()
        for name in set(os.environ) - set(environment):
            del os.environ[name]
        os.environ.update(environment)


def _leave_process_group() -> None:
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
        _group_on_cpu.cache_clear()
