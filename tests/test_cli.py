from __future__ import annotations

import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import ModuleType

import pytest

from domainbert.cli import main


def test_errors_go_to_standard_error_with_exit_code_2(
    fake_stages: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = {
        ("mke",): "mke: no such command; did you mean 'make'?",
        ("make", "a.yaml"): "a.yaml: found a word alone; expected --key value, or -c FILE",
        ("make", "-c", "none.yaml"): "none.yaml: cannot be read (No such file or directory); expected a YAML file",
        ("make", "--words", "[a]"): "--out: missing; expected the folder to write",
        ("make", "--words", "[a]", "--out", "o", "--siz", "1"): "--siz: unknown key; did you mean 'size'?",
        ("tune",): "tune: expected a YAML: domainbert tune -c FILE",
        ("run",): "run: expected exactly one recipe: domainbert run recipe.yaml",
    }
    for words, message in cases.items():
        assert main(words) == 2
        captured = capsys.readouterr()
        assert (captured.out, captured.err) == ("", f"domainbert: {message}\n")


def test_help_lists_stages_and_settings(fake_stages: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "  make       Write words to a file.\n  use        Read what" in capsys.readouterr().out
    assert main(["use", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--optim.lr LR Learning rate. (type: float, default: 0.001)" in text
    assert (
        "default: muon" in text and "--out FOLDER folder to write; empty, or none yet (required) --resume auto" in text
    )
    assert "Read what `make` has written. options:" in text and "(required, type: Path)" in text
    assert main(["use", "--shape.help", "Circle"]) == 0
    assert "From the middle to the rim." in capsys.readouterr().out
    assert main(["use", "--shape.help"]) == 0
    assert "one of Circle, Square" in capsys.readouterr().out
    assert main(["use", "--steps.help"]) == 2


def test_print_config_is_a_template(fake_stages: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["use", "--print_config", "--optim.lr", "1e-5", "--shape", "Square"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("out: null\nsource: null\nshape:\n")
    assert "optim:\n  lr: 1.0e-05\n  name: muon\nsteps: 10\n" in text


def test_a_warning_of_a_library_says_nothing_of_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    assert main(["--version"]) == 0
    told = warnings.formatwarning("GPU available but\n  not used", UserWarning, "/lib/site-packages/lightning/a.py", 3)
    assert told == "warning: GPU available but not used\n"


def test_dry_run_prints_the_plan_and_does_nothing(
    fake_stages: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"out: {tmp_path}/run\nstages:\n  make: {{words: [a]}}\n  use: {{source: '@make'}}\n")
    assert main(["run", str(recipe), "--dry-run", "--only", "make"]) == 0
    assert capsys.readouterr().out == (f"run   make (never run) -> {tmp_path}/run/make\n")
    assert not (tmp_path / "run").exists() and fake_stages.CALLS == []


@pytest.mark.parametrize("words", [["--help"], ["vocab", "--help"], ["run", "--help"], ["tune", "--help"]])
def test_help_comes_in_under_a_second_without_torch(words: list[str]) -> None:
    code = f"import sys, domainbert.cli as c; code = c.main({words!r}); sys.exit(code or 'torch' in sys.modules)"
    seconds = []
    for _ in range(3):  # the best of three: the machine may be busy
        start = time.monotonic()
        subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.monotonic() - start)
    assert min(seconds) < 1


def test_configuration_errors_come_in_under_two_seconds_without_torch(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("vocab_siz: 5\ncorpus: {sources: [{path: nope.txt}]}\nlowercase: maybe\n")
    code = (
        f"import sys, domainbert.cli as c; code = c.main(['vocab', '-c', {str(tmp_path / 'bad.yaml')!r}])\n"
        "sys.exit(code if 'torch' not in sys.modules else 'torch')"
    )
    start = time.monotonic()
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert time.monotonic() - start < 2
    assert result.returncode == 2
    for expected in (
        "bad.yaml:1: vocab_siz: unknown key; did you mean 'vocab_size'?",
        "nope.txt",
        "lowercase",
        "--out",
    ):
        assert expected in result.stderr
