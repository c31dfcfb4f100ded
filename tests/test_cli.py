from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import domainbert
from domainbert.cli import _COMMANDS, command_module, main
from domainbert.runner.stage_command import stage_help
from domainbert.runner.stage_table import STAGES, load_stage
from domainbert.settings.schema import defaults_of
from tests.refusals import command_refused


def test_errors_go_to_standard_error_with_exit_code_2(
    fake_stages: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = {
        ("mke",): "no command or stage 'mke'; did you mean 'make'?",
        ("make", "a.yaml"): "found 'a.yaml' without an option; expected -c FILE or --KEY VALUE",
        ("make", "-c", "none.yaml"): "none.yaml: cannot be read (No such file or directory); expected a YAML file",
        ("make", "--words", "[a]"): "--out: missing; expected the folder to write",
        ("make", "--words", "[a]", "--out", "o", "--siz", "1"): "--siz: unknown key; did you mean 'size'?",
        (
            "m\x1b[2J",
        ): r"no command or stage 'm\x1b[2J'; expected one of make, use, score, run, demo, init, tune, runs, report, "
        "push",
        ("make", "--\x1b]0;x\x07", "1", "--out", "o", "--words", "[a]"): (
            r"--\x1b]0;x\x07: unknown key; expected one of words, size, num_workers, texts"
        ),
        ("tune",): "tune: expected a YAML file after -c: domainbert tune -c FILE",
        ("run",): "run: expected exactly one recipe, without -c: domainbert run recipe.yaml",
    }
    for words, message in cases.items():
        assert main(words) == 2
        captured = capsys.readouterr()
        assert (captured.out, captured.err) == ("", f"domainbert: {message}\n")


def test_json_has_the_facts_of_an_error(
    fake_stages: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def facts(*words: str) -> dict[str, Any]:
        assert main([*words, "--json"]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        return dict(json.loads(captured.err))

    one = facts("make", "--words", "[a]", "--out", "o", "--size", "x")
    assert one.pop("message") == "--size: found 'x'; expected an integer"
    assert one == {"where": "--size", "found": "'x'", "expected": "an integer"}
    file = tmp_path / "a.yaml"
    file.write_text("words: [a]\nsize: x\nsiz: 1\n", encoding="utf-8")
    errors = facts("make", "-c", str(file), "--out", "o")["errors"]
    places = [(error["file"], error["line"], error["where"]) for error in errors]
    assert sorted(places) == [(str(file), 2, "size"), (str(file), 3, "siz")]
    assert facts("runs", str(tmp_path / "none")).keys() >= {"message", "problem"}


@pytest.mark.parametrize(
    ("error", "code", "facts"),
    [
        (
            PermissionError(errno.EACCES, "Permission denied", "/data/ru\nns"),
            2,
            {"message": "/data/ru\\nns: Permission denied", "file": "/data/ru\\nns", "problem": "Permission denied"},
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            2,
            {"message": "output: No space left on device", "file": "output", "problem": "No space left on device"},
        ),
        (
            UnicodeEncodeError("utf-8", "a\udcff", 1, 2, "surrogates not allowed"),
            2,
            {
                "message": "'a\\udcff': this name is not UTF-8; rename it",
                "file": "'a\\udcff'",
                "problem": "this name is not UTF-8",
                "hint": "rename it",
            },
        ),
        (KeyboardInterrupt(), 130, {"message": "interrupted"}),
    ],
)
def test_json_has_errors_of_the_system_too(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    facts: dict[str, str],
) -> None:
    """They were sentences, also with --json."""

    def fail(arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr("domainbert.cli._dispatch", fail)
    assert main(["demo", "--json"]) == code
    assert json.loads(capsys.readouterr().err) == facts
    assert main(["demo"]) == code
    assert capsys.readouterr().err == f"domainbert: {facts['message']}\n"


def test_a_rank_that_is_no_number_is_an_error_of_the_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "abc")
    assert main(["--version"]) == 2
    assert capsys.readouterr().err.startswith("domainbert: environment variable RANK: found 'abc'; expected an integer")


def test_help_lists_stages_and_settings(fake_stages: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "  make         Write words to a file.\n  use          Read what" in capsys.readouterr().out
    assert main(["use", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--optim.lr LR Learning rate. (a number; default: 0.001)" in text
    assert "default: muon" in text and "--out FOLDER folder to write, empty or new (required) --resume auto" in text
    assert "Read what `make` has written. options:" in text and "(a path; required)" in text
    assert main(["use", "--shape.help", "Circle"]) == 0
    assert "From the middle to the rim." in capsys.readouterr().out
    assert main(["use", "--shape.help"]) == 0
    assert "one of Circle, Square" in capsys.readouterr().out
    assert main(["use", "--steps.help"]) == 2


def test_help_of_a_group_has_the_defaults_of_the_stage(capsys: pytest.CaptureFixture[str]) -> None:
    """The same defaults as in `--help`, not the defaults of the class."""
    for words in (["finetune", "--help"], ["finetune", "--optim.help"]):
        assert main(words) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert re.search(r"--optim\.lr LR [^-]*default: 0\.0001\)", text), words


def test_print_config_is_a_template(fake_stages: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["use", "--print_config", "--optim.lr", "1e-5", "--shape", "Square"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("out: null\nsource: null\nshape:\n")
    assert "optim:\n  lr: 1.0e-05\n  name: muon\nsteps: 10\n" in text


def test_a_warning_of_a_library_says_nothing_of_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    assert main(["--version"]) == 0
    line = warnings.formatwarning("GPU available but\n  not used", UserWarning, "/lib/site-packages/lightning/a.py", 3)
    assert line == "warning: GPU available but not used\n"


def test_dry_run_prints_the_plan_and_does_nothing(
    fake_stages: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"out: {tmp_path}/run\nstages:\n  make: {{words: [a]}}\n  use: {{source: '@make'}}\n")
    assert main(["run", str(recipe), "--dry-run", "--only", "make"]) == 0
    assert capsys.readouterr().out == (f"run   make (never run) -> {tmp_path}/run/make\n")
    assert not (tmp_path / "run").exists() and fake_stages.CALLS == []


def test_help_of_every_stage_imports_nothing_heavy() -> None:
    words = [[name, "--help"] for name in STAGES] + [["--help"], ["run", "--help"], ["tune", "--help"]]
    words += [["pretrain", "--encoder.help", "BertConfig"], ["distill", "--losses.help", "Relations"]]
    words += [["vocab", "--corpus.help"], ["finetune", "--task.help", "Ner"]]
    heavy = ["torch", "lightning", "datasets", "numpy", "pyarrow", "optuna", "tokenizers"]
    code = (
        "import sys, domainbert.cli as c\n"
        f"codes = [c.main(one) for one in {words!r}]\n"
        f"print(codes, [name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stderr.strip() == f"{[0] * (len(STAGES) + 7)} []"
    for said in ("--optim.lr LR", "(a number above 0 and up to 1; default: 0.0005)", "--losses.relation_heads"):
        assert said in " ".join(result.stdout.split()), said


def test_every_setting_is_in_the_help_with_its_docstring() -> None:
    for name in STAGES:
        stage = load_stage(name)
        text = " ".join(stage_help(stage).split())
        for key in defaults_of(stage.settings):
            assert f"--{key} " in text, f"{name}: {key}"
        assert " (a" in text and " ()" not in text
        undocumented = re.findall(r"--([\w.]+) [A-Z_]+ \(", text)
        assert undocumented == [], f"{name}: {undocumented}"


def test_the_package_says_its_version_and_runs_as_a_module() -> None:
    assert domainbert.__version__ == version("domainbert")
    words = [sys.executable, "-m", "domainbert"]
    result = subprocess.run([*words, "--version"], capture_output=True, text=True, check=True)
    assert result.stdout == f"domainbert {domainbert.__version__}\n"
    result = subprocess.run([*words, "mke"], capture_output=True, text=True, check=False)
    assert result.returncode == 2 and "no command or stage 'mke'" in result.stderr


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["--only", "make", "--only", "use"], "--only"),
        (["--stages.make.help"], "--stages.make.help"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(
    fake_stages: ModuleType,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
    where: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.yaml").write_text("out: runs\nstages: {make: {words: [a]}}\n")
    assert main(["run", "r.yaml", *words]) == 2
    assert where in capsys.readouterr().err and not Path("runs").exists()


def test_help_of_a_command_lists_its_flags() -> None:
    missing = []
    for name in _COMMANDS:
        command = command_module(name)
        words = set(re.findall(r"--([\w-]+)", command.HELP))
        missing += [(name, flag) for flag in command.FLAGS if not {flag, flag.replace("_", "-")} & words]
    assert missing == []


def test_configuration_errors_come_without_torch(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("vocab_siz: 5\ncorpus: {sources: [{path: nope.txt}]}\nlowercase: maybe\n")
    code = (
        f"import sys, domainbert.cli as c; code = c.main(['vocab', '-c', {str(tmp_path / 'bad.yaml')!r}])\n"
        "sys.exit(code if 'torch' not in sys.modules else 'torch')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    for expected in (
        "bad.yaml:1: vocab_siz: unknown key; did you mean 'vocab_size'?",
        "nope.txt",
        "lowercase",
        "--out",
    ):
        assert expected in result.stderr


@pytest.mark.parametrize("out", ["''", "' '"])
def test_an_empty_out_is_no_folder(
    fake_stages: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    out: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = {
        "make": f"words: [a]\nout: {out}\n",
        "run": f"stages: {{make: {{words: [a]}}}}\nout: {out}\n",
        "tune": f"stage: learn\nsettings: {{}}\nspace: {{x: {{low: 0, high: 1}}}}\nout: {out}\n",
    }
    for command, text in texts.items():
        Path("t.yaml").write_text(text)
        words = (command, *(["-c"] if command != "run" else []), "t.yaml")
        command_refused(*words, file="t.yaml", line=len(text.splitlines()), where="out")
    words = ("make", "--words", "[a]", "--out", out.strip("'"))
    command_refused(*words, where="--out", found="''", expected="a folder...")
    assert [path.name for path in tmp_path.iterdir()] == ["t.yaml"] and fake_stages.CALLS == []


@pytest.mark.parametrize(
    "words",
    [
        ["make", "--words", "[a]"],
        ["init", "--labelled", "a.conll", "--model", "p"],
        ["report", "p"],
        ["report", "p", "--attend", "A word"],
    ],
    ids=lambda words: " ".join(words[:1] + words[2:3]),
)
def test_no_folder_is_called_like_the_home_of_a_user(
    words: list[str], fake_stages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell does not replace the `~` of `--out=~/x.yaml`."""
    monkeypatch.chdir(tmp_path)
    command_refused(*words, "--out=~/x.yaml", where="--out", found="'~/x.yaml'", expected="the whole path...")
    assert not list(tmp_path.iterdir()) and fake_stages.CALLS == []


WRONG = """\
out: run
stages:
  pretrain:
    prepared: [p]
    encoder: small
    budget: {max_epochs: 0}
    batch_size: -3
    max_length: 2
    num_workers: 100000000
    checkpoint_every: 0
    optim:
      lr: .nan
      betas: [1, 1]
      eps: 1e38
      head_lr: .inf
  tagger:
    stage: finetune
    model: p
    task: Ner
    train: p
    validation: p
    seeds: [-1]
    max_epochs: 0
    max_length: 0
    num_workers: -1
    batch_size: 0
    trainer: {devices: a}
  other:
    stage: finetune
    model: p
    task: Ner
    train: p
    validation: p
    seeds: []
  vocab:
    corpus: [{path: p, weight: 1e12}]
    vocab_size: 1e20
"""
SAID = {
    6: "stages.pretrain.budget.max_epochs: found 0",
    7: "stages.pretrain.batch_size: found -3",
    8: "stages.pretrain.max_length: found 2",
    9: "stages.pretrain.num_workers: found 100000000",
    10: "stages.pretrain.checkpoint_every: found 0",
    12: "stages.pretrain.optim.lr: found nan",
    14: "stages.pretrain.optim.eps: found 1e+38",
    15: "stages.pretrain.optim.head_lr: found inf",
    22: "stages.tagger.seeds[0]: found -1",
    23: "stages.tagger.max_epochs: found 0",
    24: "stages.tagger.max_length: found 0",
    25: "stages.tagger.num_workers: found -1",
    26: "stages.tagger.batch_size: found 0",
    27: "stages.tagger.trainer.devices: found 'a'",
    34: "stages.other.seeds: found []",
    36: "stages.vocab.corpus.sources[0].weight: found 1000000000000.0",
    37: "stages.vocab.vocab_size: found 1e+20",
}


def test_every_number_out_of_range_is_told_by_dry_run_at_once_without_torch(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "r.yaml").write_text(WRONG)
    code = (
        "import sys, domainbert.cli as c\n"
        "try: c.main(['run', 'r.yaml', '--dry-run'])\n"
        "finally: print([name for name in ('torch', 'numpy', 'lightning') if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(domainbert.__file__).parent.parent)}
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    lines = result.stderr.splitlines()
    assert result.stdout == "[]\n" and lines[0] == f"domainbert: r.yaml: {len(SAID) + 2} problems"
    for number, said in SAID.items():
        assert any(line.startswith(f"  r.yaml:{number}: {said}; expected a") for line in lines), (said, lines)
    assert sum("r.yaml:13: stages.pretrain.optim.betas[" in line for line in lines) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p", "r.yaml"]


def test_what_settings_have_to_be_together_is_told_by_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p").mkdir()
    ner = "model: p, task: Ner, train: p, validation: p"
    texts = {
        "pretrain: {prepared: p, budget: {max_steps: 1}}": "encoder, init_from: found neither; expected",
        "pretrain: {prepared: p, budget: {max_steps: 1}, encoder: small, max_length: 100000}": (
            "stages.pretrain.max_length: found 100000; expected at most 512, the number of positions of the encoder"
        ),
        "pretrain: {prepared: p, budget: {max_steps: 1, max_epochs: 1}, encoder: small}": "budget: found 2 of",
        f"finetune: {{{ner}, encoder: small}}": "encoder: found with init: pretrained",
        f"finetune: {{{ner}, init: random, encoder: small, max_length: 513}}": "max_length: found 513; expected",
        f"distill-task: {{{ner}, teachers: p, losses: HardTargets, student: {{first_layers: 1}}}}": "student: found",
        "distill: {teachers: p, prepared: p, losses: HardTargets, budget: {max_steps: 1}, student: {encoder: tiny},"
        " max_length: 1000}": "max_length: found 1000; expected at most 512, the number of positions",
        f"distill-task: {{{ner}, teachers: p, losses: HardTargets, cache: ~/kept}}": "cache: found '~/kept'; expected",
        "transfer: {model: p, corpus: {sources: p}}": "tokenizer, extend: found neither; expected",
        "export: {model: p, task: Ner}": "task: only used with a labelled set in 'check'; set check",
        "evaluate: {models: {a: p}, task: Classification, test: p, train: p}": "train: the scores of classification",
    }
    (tmp_path / "p" / "a.txt").write_text("x")
    for text, said in texts.items():
        Path("r.yaml").write_text(f"out: run\nstages:\n  {text}\n")
        assert main(["run", "r.yaml", "--dry-run"]) == 2
        message = capsys.readouterr().err
        assert message.startswith("domainbert: r.yaml:3: stages.") and said in message, message


@pytest.mark.parametrize("words", [("--corpus", "texts/caf\udce9.txt"), ("--out", "caf\udce9"), ("--corpus", "texts")])
def test_names_that_are_not_utf8_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, str]
) -> None:
    """As arguments, and in the folder of a corpus."""
    monkeypatch.chdir(tmp_path)
    Path("texts").mkdir()
    Path("texts/caf\udce9.txt").write_text("Loans rose.\n")
    settings = {"--corpus": "texts", "--out": "vocabulary", "--vocab_size": "512"} | {words[0]: words[1]}
    assert main(["vocab", *(word for pair in settings.items() for word in pair)]) == 2
    said = capsys.readouterr().err
    assert r"caf\udce9" in said and "this name is not UTF-8; rename" in said and said.count("\n") == 1


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "ascii"])
def test_a_console_that_cannot_show_a_label_stops_no_stage(tmp_path: Path, encoding: str) -> None:
    """The label 東 is escaped in the output, and unchanged in the files."""
    (tmp_path / "train.conll").write_text("".join(f"w{n}\tB-東\n\n" for n in range(9)), encoding="utf-8")
    words = ["check", "--task", "Ner", "--labelled.train", "train.conll", "--out", "out"]
    result = subprocess.run(
        [sys.executable, "-m", "domainbert", *words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    shown = "東" if encoding == "utf-8" else r"\u6771"
    assert result.returncode == 0, result.stderr
    assert f"labels of train occur less than 50 times: '{shown}' 9" in result.stdout.decode(encoding)
    report = json.loads((tmp_path / "out" / "check.json").read_text(encoding="utf-8"))
    assert report["data"]["train"]["labels"] == {"東": 9}


def test_a_file_that_may_not_grow_is_told_in_one_sentence(tmp_path: Path) -> None:
    """As under `ulimit -f`."""
    code = (
        "import resource, sys\n"
        "from domainbert.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))\n"
        "sys.exit(main(['sample', '--out', 'sample']))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 2 and result.stderr.startswith("domainbert: ")
    assert "File too large (stage sample had written" in result.stderr and result.stderr.count("\n") == 1
    assert result.stderr.endswith("no output was kept; raise the file size limit (ulimit -f) and run the stage again\n")
