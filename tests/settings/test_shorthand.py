"""A text or a list for a whole configuration: a corpus of one path, an encoder by its size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import domainbert
from domainbert.base.choices import named_files
from domainbert.base.errors import Problems
from domainbert.corpus.config import CorpusConfig, Source
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import EncoderConfig
from domainbert.runner.stage_table import load_stage
from domainbert.settings.reader import read_settings
from domainbert.settings.tree import read_config
from domainbert.stages.pretrain import pretrain
from domainbert.stages.vocab import vocab
from domainbert.tokenization.config import TokenizerKindConfig
from tests.refusals import fact_rows

ROOT = Path(domainbert.__file__).parent


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.jsonl.gz", "b.txt"):
        Path(name).write_bytes(b"")
    Path("folder").mkdir()
    Path("folder/c.txt").write_text("x")


def read(
    text: str, *options: tuple[str, str], function: Callable[..., Any] = vocab, key: str = "corpus"
) -> tuple[Any, list[str]]:
    Path("t.yaml").write_text(text)
    problems = Problems("test")
    settings = read_settings(function, read_config([Path("t.yaml")], options), problems)
    return settings.arguments.get(key), fact_rows(problems.errors)


ONE = CorpusConfig([Source("a.jsonl.gz")])
TWO = CorpusConfig([Source("a.jsonl.gz"), Source("b.txt", weight=2.0)])


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("corpus: a.jsonl.gz", [], ONE),
        ("corpus: [a.jsonl.gz]", [], ONE),
        ("corpus: {sources: [a.jsonl.gz]}", [], ONE),
        ("corpus: {sources: a.jsonl.gz}", [], ONE),
        ("corpus: {sources: [{path: a.jsonl.gz}]}", [], ONE),
        ("corpus: [a.jsonl.gz, {path: b.txt, weight: 2}]", [], TWO),
        ("corpus: 'folder/*.txt'", [], CorpusConfig([Source("folder/*.txt")])),
        ("corpus: hub:me/data", [], CorpusConfig([Source("hub:me/data")])),
        ("corpus: b.txt", [("corpus", "a.jsonl.gz")], ONE),
        ("corpus: b.txt", [("corpus", "[a.jsonl.gz]")], ONE),
        ("corpus: a.jsonl.gz", [("corpus.min_characters", "5")], CorpusConfig([Source("a.jsonl.gz")], 5)),
        ("corpus: [a.jsonl.gz]", [("corpus.min_characters", "5")], CorpusConfig([Source("a.jsonl.gz")], 5)),
        ("corpus: a.jsonl.gz", [("corpus.sources", "[b.txt]")], CorpusConfig([Source("b.txt")])),
        ("corpus: corpus.yaml", [], TWO),
        ("{}", [("corpus", "corpus.yaml")], TWO),
        ("{}", [("corpus", "corpus.yml"), ("corpus.min_characters", "20")], TWO),
    ],
)
def test_a_corpus_in_short(text: str, options: list[tuple[str, str]], expected: CorpusConfig) -> None:
    for name in ("corpus.yaml", "corpus.yml"):
        Path(name).write_text("sources: [a.jsonl.gz, {path: b.txt, weight: 2}]\n")
    assert read(text + "\n", *options) == (expected, [])


@pytest.mark.parametrize(
    ("text", "where", "problem"),
    [
        ("corpus: nope.txt", "corpus.sources[0].path", "found 'nope.txt', which neither exists"),
        ("corpus: [b.txt, nope.txt]", "corpus.sources[1].path", "found 'nope.txt', which neither exists"),
        ("corpus: []", "corpus.sources", "found []"),
        ("corpus: ''", "corpus.sources[0].path", "found ''"),
        ("corpus: 5", "corpus", "found 5"),
        ("corpus: none.yaml", "", "file none.yaml does not exist"),
        ("corpus: {class_path: b.txt}", "corpus.class_path", "unknown key"),
    ],
)
def test_a_corpus_that_is_none(text: str, where: str, problem: str) -> None:
    corpus, problems = read(text + "\n")
    found = [row[2] for row in problems if row[:2] == ("t.yaml:1", where)]
    assert corpus is None and any(one.startswith(problem) for one in found), problems


@pytest.mark.parametrize(
    ("stage", "key"), [("prepare", "corpus"), ("transfer", "corpus"), ("distill-task", "unlabelled")]
)
def test_everywhere_a_corpus_is_taken(stage: str, key: str) -> None:
    for text in (f"{key}: a.jsonl.gz\n", f"{key}: [a.jsonl.gz]\n"):
        problems = read(text, function=load_stage(stage).function)[1]
        assert problems and [row for row in problems if row[1].startswith(key)] == []


SMALL = BertConfig(256, 4, 4, 1024, max_position_embeddings=512)


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("encoder: small", [], SMALL),
        ("{}", [("encoder", "small")], SMALL),
        ("encoder: small", [("encoder.hidden_size", "128")], BertConfig(128, 4, 4, 1024)),
        ("encoder: small", [("encoder", "BertConfig")], BertConfig()),
        ("encoder: small.yaml", [], BertConfig(32, 2, 2, 64)),
    ],
)
def test_an_encoder_by_its_size(text: str, options: list[tuple[str, str]], expected: BertConfig) -> None:
    Path("small.yaml").write_text(
        "class_path: BertConfig\nhidden_size: 32\nnum_hidden_layers: 2\nnum_attention_heads: 2\nintermediate_size: 64\n"
    )
    Path("prepared").mkdir()
    rest = "prepared: prepared\nbudget: {max_steps: 1}\n"
    assert read(f"{rest}{text if text != '{}' else ''}\n", *options, function=pretrain, key="encoder") == (expected, [])


def test_a_size_that_there_is_not() -> None:
    problems = read("encoder: smal\n", function=pretrain)[1]
    place = ("t.yaml:1", "encoder.class_path")
    assert (*place, "'smal' is not allowed", "did you mean 'small'?") in problems
    problems = read("encoder: deberta\n", function=pretrain)[1]
    meant = "'deberta-v3-base' or 'deberta-v3-small' or 'deberta-v3-tiny'"
    assert (*place, "'deberta' is not allowed", f"did you mean {meant}?") in problems
    # as a class it is none: a mapping names classes only
    problems = read("encoder: {class_path: small}\n", function=pretrain)[1]
    assert any(
        row[:3] == (*place, "'small' is not allowed") and row[3].startswith("encoder: small") for row in problems
    )


def test_these_names_have_files() -> None:
    sizes = named_files(EncoderConfig)
    families = ["albert", "deberta-v3", "electra", "modernbert", "mpnet", "roberta", "xlm-roberta"]
    named = [f"{family}-{size}" for family in families for size in ("base", "small", "tiny")]
    assert sorted(sizes) == sorted(["base", "large", "medium", "small", "tiny", *named])
    layouts = named_files(TokenizerKindConfig)
    assert sorted(layouts) == ["albert", "bert", "deberta-v2", "electra", "modernbert", "roberta", "xlm-roberta"]


def test_there_is_one_copy_of_each_size() -> None:
    folder = ROOT.parent / "configs" / "encoders"
    if not folder.exists():
        pytest.skip("not a checkout")
    assert folder.resolve() == (ROOT / "encoders" / "sizes").resolve()
