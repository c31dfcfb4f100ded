from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from domainbert.tuning.trial_process import TrialProcess, trial_environment


def test_a_trial_has_the_gpus_of_its_worker_and_no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    launcher = ("SLURM_PROCID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "TORCHELASTIC_RUN_ID")
    for name in launcher:
        monkeypatch.setenv(name, "1")
    environment = trial_environment()
    assert environment["CUDA_VISIBLE_DEVICES"] == "3" and environment["PATH"] == os.environ["PATH"]
    assert not {*launcher} & set(environment)


def test_trials_do_not_get_what_opens_the_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGPASSWORD", "DOMAINBERT_STORAGE_URL"):
        monkeypatch.setenv(name, "not-to-be-shown")
    assert "not-to-be-shown" not in trial_environment().values()


def test_the_log_of_a_trial_is_utf_8_on_any_console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "cp1252")
    process = TrialProcess([[sys.executable, "-c", "print('label é 東')"]], tmp_path, trial_environment())
    assert process.wait() == 0
    assert (tmp_path / "output.log").read_text(encoding="utf-8") == "label é 東\n"
