"""A corpus of several languages goes through vocab, prepare and pretrain."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from domainbert.cli import main
from domainbert.corpus.config import CorpusConfig, Source
from domainbert.corpus.languages import Languages
from domainbert.data.prepared import open_prepared
from domainbert.pretraining.batches import validation_reader
from domainbert.pretraining.objective import Key
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.stages.prepare import prepare
from domainbert.stages.pretrain import pretrain
from domainbert.stages.vocab import count_words
from domainbert.tokenization.load import load_tokenizer
from domainbert.training.config import Budget
from tests.refusals import refused

DOCUMENTS = {"en": 300, "fr": 60, "sw": 12}
ENCODER = {"class_path": "BertConfig", "init_args": {"hidden_size": 32, "num_hidden_layers": 1}}
ENCODER["init_args"] |= {"num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 64}


def sources(folder: Path) -> list[dict[str, str]]:
    draw, found = random.Random(0), []
    for name, count in DOCUMENTS.items():
        words = [name + "".join(draw.choices("abcd\u00e9", k=4)) for _ in range(60)]
        texts = [" ".join(draw.choices(words, k=draw.randint(10, 40))) for _ in range(count)]
        (folder / f"{name}.txt").write_text("\n".join(texts), encoding="utf-8")
        found.append({"path": str(folder / f"{name}.txt"), "documents": "line", "language": name})
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run a recipe of three stages and return its folder."""
    folder = tmp_path_factory.mktemp("languages")
    corpus = {"sources": sources(folder), "languages": {"alpha": 0.3}, "validation_fraction": 0.15}
    training = {"encoder": ENCODER, "budget": {"max_epochs": 6}, "batch_size": 16, "max_length": 32}
    stages: dict[str, Any] = {
        "vocab": {"corpus": corpus, "vocab_size": 320, "min_character_count": 2},
        "prepare": {"corpus": corpus, "tokenizer": "@vocab", "num_workers": 0},
        "pretrain": {"prepared": ["@prepare"], **training},
    }
    recipe = {"out": str(folder / "run"), "stages": stages}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("domainbert.training.throughput.measured_peak_flops", lambda *_: 1e12)
        assert main(["run", str(folder / "recipe.yaml")]) == 0
    return folder


def metrics(run: Path, stage: str) -> dict[str, Any]:
    return json.loads((run / "run" / stage / "run.json").read_text())["metrics"]


def test_prepare_records_the_shares(run: Path) -> None:
    found = metrics(run, "prepare")["languages"]
    sizes = {name: one["tokens"] for name, one in found.items()}
    assert sum(sizes.values()) == metrics(run, "prepare")["splits"]["train"]["tokens"]
    assert {name: one["share_read"] for name, one in found.items()} == Languages(0.3).shares(sizes).sampled
    written = json.loads((run / "run/prepare/prepared.json").read_text())
    assert written["languages"] == {"alpha": 0.3, "tokens": sizes}


def test_a_training_says_how_often_it_reads_each_language_and_warns_above_ten(run: Path) -> None:
    found = metrics(run, "pretrain")
    passes = {name: one["passes"] for name, one in found["languages"].items()}
    tokens = {name: one["tokens"] for name, one in found["languages"].items()}
    read = sum(passes[name] * tokens[name] for name in tokens)
    assert found["tokens_seen"] == round(read)
    for name, one in found["languages"].items():
        assert passes[name] == pytest.approx(one["share_read"] * read / tokens[name], rel=0.02)
    assert passes["en"] < 6 < 10 < passes["sw"]
    assert any(warning.startswith("language 'sw': its text is read") for warning in found["warnings"])
    assert not any(warning.startswith("language en") for warning in found["warnings"])


def test_the_loss_of_validation_is_that_of_its_languages_together(run: Path) -> None:
    corpus = open_prepared([run / "run/prepare"])
    reader = validation_reader(corpus, MaskedLM().build(load_tokenizer(corpus.tokenizer_folder)), 32)
    parts = reader.by_language().items()
    keys = {name: Key(0, 0, part.rows * 0, part.rows) for name, part in parts}
    targets = {name: reader.objective.counts(reader.plan, key)["num_targets"] for name, key in keys.items()}
    last = metrics(run, "pretrain")["validation"]
    together = sum(last[f"{name}_loss"] * count for name, count in targets.items()) / sum(targets.values())
    assert last["loss"] == pytest.approx(together, rel=1e-5)
    assert len({last[f"{name}_loss"] for name in targets}) == len(targets) > 1
    assert {name for name in last if name.endswith("unigram_entropy")} == {"unigram_entropy"}


def test_another_alpha_makes_all_of_it_anew(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(run / "recipe.yaml"), "--dry-run"]) == 0
    capsys.readouterr()
    assert main(["run", str(run / "recipe.yaml"), "--dry-run", "--stages.prepare.corpus.languages.alpha", "0.5"]) == 0
    printed = capsys.readouterr().out
    assert "languages" in printed and "0.3" in printed and "0.5" in printed


def test_a_held_out_text_is_not_called_like_a_language(run: Path, tmp_path: Path) -> None:
    from domainbert.encoders.bert.config import BertConfig

    encoder = BertConfig(**ENCODER["init_args"])
    with refused(where="held_out", problem="a language of the corpus has the name 'fr'", hint="rename..."):
        pretrain(
            tmp_path,
            prepared=[run / "run/prepare"],
            encoder=encoder,
            budget=Budget(max_steps=1),
            max_length=32,
            held_out={"fr": run / "run/prepare"},
        )


def corpus(folder: Path, alpha: float) -> CorpusConfig:
    return CorpusConfig([Source(**one) for one in sources(folder)], languages=Languages(alpha), validation_fraction=0.1)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("sample_bytes", [10**9, 6_000])
def test_the_sample_of_a_vocabulary_has_each_language_in_its_share(
    tmp_path: Path, alpha: float, sample_bytes: int, capsys: pytest.CaptureFixture[str]
) -> None:
    config = corpus(tmp_path, alpha)
    counters = count_words(config, sample_bytes, ["train", "validation"])
    strings = counters["train"].words(lambda string: [string])
    sizes = dict.fromkeys(DOCUMENTS, 0)
    for string, count in strings.items():
        sizes[string[1:3]] += count * len(string.encode())
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("language ")]
    assert len(lines) == 3 and " bytes, " in lines[0]
    there = {line.split(":")[0].split()[1]: int(line.split()[2].replace(",", "")) for line in lines}
    wanted = Languages(alpha).shares(there).sampled
    found = {name: size / sum(sizes.values()) for name, size in sizes.items()}
    assert found == pytest.approx(wanted, abs=0.015)
    assert counters["train"].bytes <= sample_bytes
    if alpha == 1 and sample_bytes == 10**9:
        plain = CorpusConfig([Source(one.path, documents="line") for one in config.sources], validation_fraction=0.1)
        assert strings == count_words(plain, sample_bytes, ["train"])["train"].words(lambda string: [string])


def test_a_language_that_is_left_with_nothing_is_an_error(run: Path, tmp_path: Path) -> None:
    (tmp_path / "yo.txt").write_text("too short\n")
    config = corpus(tmp_path, 0.3)
    empty = Source(str(tmp_path / "yo.txt"), documents="line", language="yo")
    config = CorpusConfig([*config.sources, empty], languages=config.languages, validation_fraction=0.1)
    with refused(where="corpus.languages", problem="no training text in 'yo'", hint="add text in each"):
        prepare(tmp_path / "out", corpus=config, tokenizer=run / "run/vocab", num_workers=0)
    assert not (tmp_path / "out/prepared.json").exists()
