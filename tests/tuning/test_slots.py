from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from domainbert.base.errors import DomainbertError
from domainbert.tuning.config import check_gpus
from domainbert.tuning.trial_process import TrialProcess, slot_environment


def test_each_slot_has_its_gpu_and_its_cores_and_no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name in ("SLURM_PROCID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "1")
    assert "OMP_NUM_THREADS" not in slot_environment(0, 1, None)
    second = slot_environment(1, 2, (4, 6))
    assert second["CUDA_VISIBLE_DEVICES"] == "6" and int(second["OMP_NUM_THREADS"]) >= 1
    assert not {"SLURM_PROCID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "TORCHELASTIC_RUN_ID"} & set(second)
    assert second["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(("outer", "seen"), [("2,3", "3"), ("GPU-a, GPU-b", "GPU-b")])
def test_gpus_are_among_those_that_the_worker_was_given(monkeypatch: pytest.MonkeyPatch, outer: str, seen: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", outer)
    check_gpus((0, 1))
    assert slot_environment(1, 2, (0, 1))["CUDA_VISIBLE_DEVICES"] == seen
    assert slot_environment(1, 2, None)["CUDA_VISIBLE_DEVICES"] == outer
    with pytest.raises(DomainbertError, match=r"gpus: found 2; expected indices below the number of GPUs .*: 2"):
        check_gpus((0, 2))


def test_without_an_outer_choice_gpus_are_those_of_the_machine() -> None:
    check_gpus((7,), {})
    for hidden in ("", "-1", "-1,0"):
        with pytest.raises(DomainbertError, match=r"gpus: found 0; expected indices below the number of GPUs .*: 0"):
            check_gpus((0,), {"CUDA_VISIBLE_DEVICES": hidden})


def test_trials_do_not_get_what_opens_the_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGPASSWORD", "DOMAINBERT_STORAGE_URL"):
        monkeypatch.setenv(name, "not-to-be-shown")
    assert "not-to-be-shown" not in slot_environment(0, 1, None).values()


def test_the_log_of_a_trial_is_utf_8_on_any_console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "cp1252")
    process = TrialProcess([[sys.executable, "-c", "print('label é 東')"]], tmp_path, slot_environment(0, 1, None))
    assert process.wait() == 0
    assert (tmp_path / "output.log").read_text(encoding="utf-8") == "label é 東\n"
