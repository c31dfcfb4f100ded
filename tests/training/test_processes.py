from __future__ import annotations

import pytest
from torch.distributed import DistBackendError

from domainbert.base.errors import TrainingFailed
from domainbert.training.processes import told_if_lost

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
    with pytest.raises(TrainingFailed) as caught, told_if_lost():
        raise error
    assert str(caught.value).startswith(f"the training lost another of its processes ({said}")
    assert "--resume auto, to go on from the last checkpoint" in str(caught.value) and "\n" not in str(caught.value)


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught, told_if_lost():
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    assert type(caught.value) is RuntimeError
