import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from domainbert.base.errors import DomainbertError, Problems
from domainbert.corpus.config import CorpusConfig, Select, Source
from domainbert.data.prepared import open_prepared
from domainbert.settings.facts import hashes_of_inputs
from domainbert.settings.reader import read_settings
from domainbert.settings.yaml_files import to_node
from domainbert.stages.prepare import Prepare, prepare
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer
from tests.refusals import refused


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    vocab = {
        token: number for number, token in enumerate([*SPECIAL_TOKENS.values(), "document", "number", *"0123456789"])
    }
    vocab |= {f"##{digit}": len(vocab) + digit for digit in range(10)}
    DomainTokenizer(bert_backend(vocab, {})).save(tmp_path / "tokenizer", 512)
    return tmp_path / "tokenizer"


def write(folder: Path, texts: list[str]) -> CorpusConfig:
    (folder / "a.txt").write_text("\n".join(texts))
    return CorpusConfig([Source(str(folder / "a.txt"), documents="line")], min_characters=1, validation_fraction=0.2)


def test_prepare_writes_counts_and_prints(tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = write(
        tmp_path, [*(f"document number {number}" for number in range(100)), "document number 7", "\u200b", "why?"]
    )
    (out := tmp_path / "out").mkdir()
    metrics = json.loads(json.dumps(prepare(out, corpus=corpus, tokenizer=tokenizer, num_workers=0)))
    opened = open_prepared([out])
    splits = metrics["splits"]
    assert splits["train"]["documents"] + splits["validation"]["documents"] == 101
    assert (opened.train.num_documents, opened.train.num_tokens) == (
        splits["train"]["documents"],
        splits["train"]["tokens"],
    )
    assert splits["train"]["tokens"] + splits["validation"]["tokens"] == 10 * 3 + 90 * 4 + 2
    assert metrics["unknown_share"] == pytest.approx(2 / 392)
    assert metrics["documents_without_tokens"] == 1
    assert metrics["corpus"]["sources"][0]["dropped"] == {"exact duplicates": 1}
    printed = capsys.readouterr().out
    assert "dropped: 1 exact duplicates" in printed and "dropped: 1 documents without tokens" in printed
    assert "unknown tokens: 0.510 %" in printed


@pytest.mark.parametrize(
    ("fraction", "advice"),
    [(1e-9, r"validation \(20 for train, .* raise"), (0.999999, r"train \(20 for validation, .* lower")],
)
def test_a_split_without_documents_is_refused(tmp_path: Path, tokenizer: Path, fraction: float, advice: str) -> None:
    sources = write(tmp_path, [f"document number {number}" for number in range(20)]).sources
    corpus = CorpusConfig(sources, min_characters=1, validation_fraction=fraction)
    (out := tmp_path / "out").mkdir()
    with pytest.raises(DomainbertError, match=rf"corpus: found no document for {advice} corpus\.validation_fraction"):
        prepare(out, corpus=corpus, tokenizer=tokenizer, num_workers=0)
    assert not (out / "prepared.json").exists()


def test_a_corpus_without_validation_is_refused_before_it_is_read() -> None:
    with refused(where="corpus.validation_fraction", found="0", expected="a positive value..."):
        Prepare(corpus=CorpusConfig([Source("a.txt")], validation_fraction=0), tokenizer=Path("vocab"))


def test_errors_of_the_corpus_come_through_with_workers(tmp_path: Path, tokenizer: Path) -> None:
    corpus = write(tmp_path, ["document number 1"] * 3)
    (tmp_path / "a.txt").write_bytes(b"document\nnumber \xff\n")
    (out := tmp_path / "out").mkdir()
    with refused(file="a.txt", line=2, problem="byte 8 of the line, 0xff..."):
        prepare(out, corpus=corpus, tokenizer=tokenizer, num_workers=1)
    with refused(where="tokenizer", problem="...absent' does not exist"):
        prepare(out, corpus=corpus, tokenizer=tmp_path / "absent")
    with refused(where="num_workers", found="-1", expected="an integer from 0 to..."):
        prepare(out, corpus=corpus, tokenizer=tokenizer, num_workers=-1)


def selected(folder: Path) -> CorpusConfig:
    """Two hundred documents, half of which are like the labelled text."""
    corpus = write(folder, [f"{kind} {number}" for number in range(100) for kind in ("document", "number")])
    (folder / "labelled.conll").write_text("document O\n1 B-x\n\ndocument O\n")
    return replace(corpus, select=Select([Source(str(folder / "labelled.conll"))], 0.25))


def test_a_selected_corpus_is_the_same_with_any_number_of_workers(
    tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, made = selected(tmp_path), {}
    for workers in (0, 4):
        out = tmp_path / f"{workers} workers"
        metrics = prepare(out, corpus=corpus, tokenizer=tokenizer, num_workers=workers)
        made[workers] = {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert made[0] == made[4] and len(made[0]) > 5
    chosen = metrics["corpus"]["selection"]
    assert chosen["kept"] == metrics["splits"]["train"]["documents"] == round(chosen["documents"] / 4)
    assert f"select: kept {chosen['kept']} of {chosen['documents']} training documents" in capsys.readouterr().out
    prepare(tmp_path / "whole", corpus=replace(corpus, select=None), tokenizer=tokenizer)
    whole, part = open_prepared([tmp_path / "whole"]), open_prepared([tmp_path / "0 workers"])
    assert np.array_equal(
        part.validation.take(0, part.validation.num_tokens), whole.validation.take(0, part.validation.num_tokens)
    )
    assert part.validation.num_documents == whole.validation.num_documents
    words = part.train.take(0, part.train.num_tokens)
    assert 5 in words and 6 not in words  # "document" and "number"


def test_what_is_selected_by_is_an_input(tmp_path: Path, tokenizer: Path) -> None:
    corpus, problems = selected(tmp_path), Problems("prepare")
    text = {"sources": str(tmp_path / "a.txt"), "select": {"like": str(tmp_path / "labelled.conll"), "keep": 0.25}}
    settings = read_settings(prepare, to_node({"corpus": text, "tokenizer": tokenizer}, "here"), problems)
    problems.raise_if_any()
    assert settings.instance.corpus.select == corpus.select
    assert set(settings.inputs) == {tokenizer, tmp_path / "a.txt", tmp_path / "labelled.conll"}
    before = hashes_of_inputs(settings)
    (tmp_path / "labelled.conll").write_text("number O\n")
    after = hashes_of_inputs(settings)
    assert {name for name in before if before[name] != after[name]} == {str(tmp_path / "labelled.conll")}
    for wrong, message in (
        ({"keep": 1.5}, r"select\.keep: .*1\.5"),
        ({"like": "absent"}, r"select\.like\[0\]\.path: found 'absent"),
    ):
        corpus = {**text, "select": {**text["select"], **wrong}}
        read_settings(prepare, to_node({"corpus": corpus, "tokenizer": tokenizer}, "here"), problems)
        with pytest.raises(DomainbertError, match=message):
            problems.raise_if_any()
        problems.messages.clear()


@pytest.mark.slow
def test_the_econ_corpus_is_prepared_whole(tmp_path: Path, tokenizer: Path, econ_data: Path) -> None:
    (out := tmp_path / "out").mkdir()
    prepare(out, corpus=CorpusConfig([Source(str(econ_data / "corpus.jsonl.gz"))]), tokenizer=tokenizer)
    corpus = open_prepared([out])
    assert corpus.train.num_documents + corpus.validation.num_documents == 1_316 - 4
    assert corpus.train.num_characters.sum() + corpus.validation.num_characters.sum() == 30_435_272
