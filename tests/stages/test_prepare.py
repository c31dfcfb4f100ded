import json
import subprocess
import sys
from pathlib import Path

import pytest

from domainbert.base.errors import DomainbertError
from domainbert.corpus.config import CorpusConfig, Source
from domainbert.data.prepared import open_prepared
from domainbert.stages.prepare import prepare
from domainbert.tokenization.bert import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer


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
    assert "dropped: 1 exact duplicates" in printed and "dropped: 1 documents without a single token" in printed
    assert "unknown tokens: 0.510 %" in printed


@pytest.mark.parametrize(
    ("fraction", "advice"), [(0.0, "none for validation .* raise"), (0.999999, "none for train .* lower")]
)
def test_a_split_without_documents_is_refused(tmp_path: Path, tokenizer: Path, fraction: float, advice: str) -> None:
    sources = write(tmp_path, [f"document number {number}" for number in range(20)]).sources
    corpus = CorpusConfig(sources, min_characters=1, validation_fraction=fraction)
    (out := tmp_path / "out").mkdir()
    with pytest.raises(DomainbertError, match=rf"corpus: 20 documents for .*{advice} corpus\.validation_fraction"):
        prepare(out, corpus=corpus, tokenizer=tokenizer, num_workers=0)
    assert not (out / "prepared.json").exists()


def test_errors_of_the_corpus_come_through_with_workers(tmp_path: Path, tokenizer: Path) -> None:
    corpus = write(tmp_path, ["document number 1"] * 3)
    (tmp_path / "a.txt").write_bytes(b"document\nnumber \xff\n")
    (out := tmp_path / "out").mkdir()
    with pytest.raises(DomainbertError, match=r"a\.txt:2: byte 8 of the line, 0xff"):
        prepare(out, corpus=corpus, tokenizer=tokenizer, num_workers=1)
    with pytest.raises(DomainbertError, match=r"tokenizer: .*absent does not exist"):
        prepare(out, corpus=corpus, tokenizer=tmp_path / "absent")
    with pytest.raises(DomainbertError, match="num_workers: found -1; expected an integer from 0 to"):
        prepare(out, corpus=corpus, tokenizer=tokenizer, num_workers=-1)


def test_importing_the_stage_is_light() -> None:
    heavy = {"torch", "lightning", "datasets", "pyarrow", "numpy", "transformers", "pandas"}
    code = f"import sys, domainbert.stages.prepare; print(sorted({heavy} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.slow
def test_the_econ_corpus_is_prepared_whole(tmp_path: Path, tokenizer: Path, econ_data: Path) -> None:
    (out := tmp_path / "out").mkdir()
    prepare(out, corpus=CorpusConfig([Source(str(econ_data / "corpus.jsonl.gz"))]), tokenizer=tokenizer)
    corpus = open_prepared([out])
    assert corpus.train.num_documents + corpus.validation.num_documents == 1_316 - 4
    assert corpus.train.num_characters.sum() + corpus.validation.num_characters.sum() == 30_435_272
