from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import DistBackendError, HashStore

from domainbert.base.errors import TrainingFailed
from domainbert.training.processes import agree_on_prefix, report_lost_rank

GLOO = "[/src/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:16295. This is typ"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError(GLOO), "Connection closed by peer [127.0.0.1]:16295"),
        (
            DistBackendError("NCCL error in: nccl.cpp:12, remote process exited"),
            "NCCL error in: nccl.cpp:12, remote pr",
        ),
    ],
)
def test_the_end_of_another_process_is_told_in_a_sentence(error: RuntimeError, said: str) -> None:
    with pytest.raises(TrainingFailed) as caught, report_lost_rank():
        raise error
    assert str(caught.value).startswith(f"another process of the training ended early ({said}")
    assert "run the same command again to resume from the last checkpoint" in str(caught.value) and "\n" not in str(
        caught.value
    )


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught, report_lost_rank():
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    assert type(caught.value) is RuntimeError


@pytest.mark.parametrize("delays", [(0.0, 0.3, 0.6), (0.6, 0.0, 0.3)], ids=["first early", "first late"])
def test_restarted_processes_meet_under_keys_of_their_own_however_far_apart_they_start(delays: Sequence[float]) -> None:
    """All restarts share the store, which keeps the keys of ended processes."""
    store = HashStore()

    def start(rank: int) -> str:
        time.sleep(delays[rank])
        return agree_on_prefix(store, rank, len(delays), seconds=20)

    def launch() -> set[str]:
        with ThreadPoolExecutor(len(delays)) as pool:
            return set(pool.map(start, range(len(delays))))

    launches = [launch() for _ in range(3)]
    with pytest.raises(TrainingFailed, match="rank 1 of 3 processes has waited 0 s for others"):
        agree_on_prefix(store, 1, 3, seconds=0.2)  # killed, or its others are: the next ones do not take it for alive
    launches.append(launch())
    assert [len(prefixes) for prefixes in launches] == [1, 1, 1, 1]
    assert len(set.union(*launches)) == 4
