"""configs/presets: each runs unchanged after the quickstart, or with the user's own teacher."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import domainbert
from domainbert.base.choices import choices_of
from domainbert.cli import main
from domainbert.distillation.config import LossConfig
from domainbert.runner.recipe import read_recipe
from domainbert.stages.sample import sample
from domainbert.tokenization.words import WordCounter

PRESETS = sorted((Path(domainbert.__file__).parent.parent / "configs" / "presets").glob("*.yaml"))
FROM_SCRATCH = ["vocab", "prepare", "pretrain"]
STAGES = {
    "albert": FROM_SCRATCH,
    "best-small-model": ["finetune", "distill-task", "finetune", "evaluate"],
    "deberta-v3": FROM_SCRATCH,
    "distilbert": ["prepare", "distill"],
    "econberta": FROM_SCRATCH,
    "electra": FROM_SCRATCH,
    "minilm-v1": ["prepare", "distill"],
    "minilm-v2": ["prepare", "distill"],
    "modernbert": FROM_SCRATCH,
    "pkd": ["distill-task"],
    "roberta": FROM_SCRATCH,
    "tinybert": ["prepare", "distill", "distill-task", "distill-task"],
    "transformers-tagger": ["finetune", "distill-task", "evaluate"],
    "xlm-r": FROM_SCRATCH,
    "xlm-t": ["prepare", "pretrain", "finetune"],
    "xtremedistil": ["finetune", *["distill-task"] * 3],
}
USED = {
    "best-small-model": {"SoftTargets", "HardTargets"},
    "distilbert": {"SoftTargets", "HardTargets", "HiddenCosine"},
    "minilm-v1": {"AttentionKL", "Relations"},
    "minilm-v2": {"Relations"},
    "pkd": {"HardTargets", "SoftTargets", "PatientCLS"},
    "tinybert": {"AttentionMSE", "HiddenMSE", "SoftTargets"},
    "transformers-tagger": {"SoftTargets", "HardTargets"},
    "xtremedistil": {"HiddenMSE", "LogitMSE", "HardTargets"},
}


def options(runs, text: str) -> list[tuple[str, str]]:
    """The variables of a preset, at the folders of the tests."""
    places = {
        "teacher": runs / "pretrain",
        **dict.fromkeys(("model", "base", "small"), runs / "pretrain"),
        "tagger": runs / "ner-pretrained",
        "classifier": runs / "classification-pretrained",
        "corpus": runs / "sample" / "corpus.jsonl",
        "data": runs / "data",
    }
    task = "classification" if "classifier:" in text else "ner"
    places |= {split: runs.labelled(task, split) for split in ("train", "validation", "test")}
    return [
        (f"vars.{name}", str(path)) for name, path in places.items() if f"\n  {name}:" in text.partition("\nstages:")[0]
    ]


@pytest.fixture
def any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """The teachers of the tests have fewer positions than a preset asks for."""
    monkeypatch.setattr("domainbert.stages.early_checks.StageArguments.check_max_length", lambda *_: None)


@pytest.fixture(autouse=True, scope="module")
def tweets(runs) -> None:
    """Labelled tweets in four languages, a line each."""
    draw = random.Random(0)
    for language in ("arabic", "english", "french", "german"):
        (folder := runs / "data" / "tweets" / language).mkdir(parents=True, exist_ok=True)
        for split, count in {"train": 60, "dev": 12}.items():
            lines = [" ".join(f"{language[:2]}{draw.randrange(40)}" for _ in range(12)) for _ in range(count)]
            (folder / f"{split}_text.txt").write_text("\n".join(lines) + "\n")
            (folder / f"{split}_labels.txt").write_text("".join(f"{number % 3}\n" for number in range(count)))


@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)
@pytest.mark.usefixtures("any_length")
def test_a_preset_takes_a_teacher_or_a_corpus_of_ones_own(runs, preset, tmp_path):
    text = preset.read_text()
    recipe = read_recipe(preset, [("out", str(tmp_path)), *options(runs, text)], environment={})
    stages = [job.stage.name for job in recipe.jobs.values()]
    assert [name for name in stages if name != "check"] == STAGES[preset.stem] and stages.count("check") == 1
    used = {type(loss).__name__ for job in recipe.jobs.values() for loss in job.settings.arguments.get("losses", [])}
    assert used == USED.get(preset.stem, set())


@pytest.fixture(scope="module")
def demo_words(tmp_path_factory: pytest.TempPathFactory) -> WordCounter:
    """Return the word counts of the corpus of `make demo`."""
    folder, counter = tmp_path_factory.mktemp("demo"), WordCounter(10**9)
    sample(out=folder / "sample")
    for line in (folder / "sample" / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
        counter.add(json.loads(line)["text"])
    return counter


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, stages in STAGES.items() if stages == FROM_SCRATCH])
def test_the_corpus_of_the_demo_is_enough_for_the_vocabulary_of_a_preset(name, demo_words, runs):
    (preset,) = (path for path in PRESETS if path.stem == name)
    recipe = read_recipe(preset, options(runs, preset.read_text()), environment={})
    read = {"min_character_count": 10} | recipe.jobs["vocab"].settings.arguments
    kind = read["kind"].build()
    words = kind.select(demo_words, kind.lowercases, read["min_character_count"])
    assert kind.train(words, read["vocab_size"], kind.lowercases, 2).get_vocab_size() == read["vocab_size"]


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)
@pytest.mark.usefixtures("any_length")
def test_a_preset_runs(runs, preset, tmp_path, monkeypatch):
    """Shortened, from the command line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("domainbert.training.throughput.measured_peak_flops", lambda *_: 1e12)
    own = options(runs, preset.read_text())
    recipe = read_recipe(preset, own, environment={})
    limits = {
        "distill": {"budget.max_epochs": 0.2, "max_length": 64},
        "distill-task": {"max_epochs": 1},
        "finetune": {"max_epochs": 1, "max_length": 64},
        "vocab": {"vocab_size": 512},
        "pretrain": {"budget": "{max_steps: 2, max_epochs: null}", "batch_size": 8, "max_length": 64},
    }
    words = [word for key, value in own for word in (f"--{key}", value)]
    for name, job in recipe.jobs.items():
        for key, value in limits.get(job.stage.name, {}).items():
            words += [f"--stages.{name}.{key}", str(value)]
    assert main(["run", str(preset), "--out", str(tmp_path / "out"), *words]) == 0
    *_, last = (name for name, job in recipe.jobs.items() if job.stage.name != "evaluate")
    assert list((tmp_path / "out" / last).rglob("model.safetensors"))


def test_there_are_fifteen_and_together_they_use_every_loss():
    assert [path.stem for path in PRESETS] == sorted(STAGES)
    assert set().union(*USED.values()) == set(choices_of(LossConfig))
