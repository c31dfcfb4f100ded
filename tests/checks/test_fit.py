"""Bits per word and pieces per word by hand; the sample, and the results on real corpora."""

import json
import math
import re
from collections import Counter
from pathlib import Path

import pytest

from domainbert.checks.corpus_fit import compare_corpora, format_corpus_fit, sample_documents
from domainbert.corpus.config import CorpusConfig, Select, Source
from domainbert.corpus.documents import read_documents
from domainbert.corpus.ngrams import words_of_text
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer
from tests.refusals import refused

ABSTRACTS = [
    "Der Effekt der Therapie war klein: n = 12.",
    "The effect of aspirin on pain was small; the effect on fever was not.",
    "The trial of aspirin. The trial of ibuprofène.",
    "Pain",
]


def tokenizer(words: list[str]) -> DomainTokenizer:
    pieces = [
        *SPECIAL_TOKENS.values(),
        *dict.fromkeys(words),
        *"0123456789.<>&",
        *(f"##{one}" for one in "abcdefghijklmnopqrstuvwxyz"),
    ]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    return DomainTokenizer(bert_backend(vocab, {"strip_accents": False}))


def corpus(folder: Path, name: str, texts: list[str], **settings: object) -> CorpusConfig:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return CorpusConfig([Source(str(path))], min_characters=1, **settings)  # type: ignore[arg-type]


def test_a_fit_is_that_of_as_many_words_of_each_corpus(tmp_path: Path) -> None:
    """Add-one smoothing over the words of both corpora and of the task."""
    texts = [f"{text} No. {number}" for number in range(30) for text in ABSTRACTS]
    speeches = [f"Rates rose {number} times, said the bank." for number in range(40)]
    corpora = {"far": corpus(tmp_path, "b", speeches), "near": corpus(tmp_path, "a", texts)}
    task = ["The effect on pain was cle\u0301ar.", "…", "Aspirin, twice", "Ibuprofène"]
    found = compare_corpora(corpora, task)
    words = words_of_text("The effect on pain was cléar. Aspirin, twice Ibuprofène")
    train = [document.text for document in read_documents(corpora["far"]) if document.split == "train"]
    size = sum(len(words_of_text(text)) for text in train)
    assert (found["words"], found["task_words"], found["task_texts"], found["task"]) == (size, 9, 4, {})
    assert list(found["corpora"]) == ["near", "far"]
    counts = {
        name: Counter(words_of_text(" ".join(sample_documents(config, 10**6, name)))[:size])
        for name, config in corpora.items()
    }
    distinct = {*words, *counts["near"], *counts["far"]}
    for name, facts in found["corpora"].items():
        bits = [-math.log2((counts[name][word] + 1) / (size + len(distinct))) for word in words]
        assert facts["bits_per_word"] == pytest.approx(sum(bits) / 9)
        assert facts["unseen_share"] == sum(word not in counts[name] for word in words) / 9
    json.dumps(found)


def test_pieces_of_the_task_and_of_corpora_are_those_of_their_words(tmp_path: Path) -> None:
    letters, task = tokenizer(["the", "pain"]), ["The effect on pain, on pain.", "中国"]
    near = corpus(tmp_path, "a", ABSTRACTS * 2, deduplicate=False, validation_fraction=0.0)
    found = compare_corpora({"near": near}, task, letters)
    for facts, texts in ((found["task"], task), (found["corpora"]["near"], ABSTRACTS * 2)):
        words = [word for text in texts for word in re.findall(r"\w+", text)]
        pieces = [letters.encode([word])[0] for word in words]
        assert facts["pieces_per_word"] == pytest.approx(sum(map(len, pieces)) / len(words))
        assert facts["unknown_share"] == pytest.approx(sum(letters.unk_id in ids for ids in pieces) / len(words))
    assert found["task"]["unknown_share"] > 0 and compare_corpora({}, task, letters)["task"] == found["task"]


def test_what_is_printed() -> None:
    corpora = {
        "near": {"bits_per_word": 9.026, "unseen_share": 0.0476, "pieces_per_word": 1.2344, "unknown_share": 0.0},
        "far": {"bits_per_word": 11.451, "unseen_share": 0.1, "pieces_per_word": 1.5, "unknown_share": 0.001},
    }
    facts = {"words": 2_775_328, "task_words": 114_429, "task": {"pieces_per_word": 1.1, "unknown_share": 0.0002}}
    assert format_corpus_fit({**facts, "corpora": corpora}).split("\n") == [
        "the task's 114,429 words, predicted from 2,775,328 words of each corpus:",
        "bits a word   unseen  pieces a word  with [UNK]  text",
        "                             1.1000      0.02 %  the task",
        "       9.03   4.76 %         1.2344      0.00 %  near",
        "      11.45  10.00 %         1.5000      0.10 %  far",
    ]
    assert format_corpus_fit({**facts, "corpora": {}}) == (
        "the task's 114,429 words: 1.10 pieces a word, 0.02 % of the words with [UNK]"
    )
    without = {name: {key: row[key] for key in ("bits_per_word", "unseen_share")} for name, row in corpora.items()}
    assert format_corpus_fit({**facts, "task": {}, "corpora": without}).split("\n")[2:] == [
        "       9.03   4.76 %                             near",
        "      11.45  10.00 %                             far",
    ]


def test_a_sample_is_of_the_documents_whose_hashes_come_first(tmp_path: Path) -> None:
    """Whatever their order, and a smaller sample is a part of a larger one; only training documents are in it."""
    texts = [f"{number} words of text number {number}" * (number % 3 + 1) for number in range(200)]
    forward = corpus(tmp_path, "a", texts, validation_fraction=0.3)
    backward = corpus(tmp_path, "b", texts[::-1], validation_fraction=0.3)
    train = {document.text for document in read_documents(forward) if document.split == "train"}
    whole = sample_documents(forward, 10**6, "a")
    assert set(whole) == train and len(whole) == len(train)
    for most in (1, 50, 500):
        sample = sample_documents(forward, most, "a")
        assert sample == sample_documents(backward, most, "b") == whole[: len(sample)]
        sizes = [len(words_of_text(text)) for text in sample]
        assert sum(sizes) >= most > sum(sizes[:-1])
    found = compare_corpora({"a": forward, "b": backward}, ["words of text"], most_words=300)
    assert found["words"] == 300 and found["corpora"]["a"]["bits_per_word"] == found["corpora"]["b"]["bits_per_word"]


def test_a_selected_corpus_fits_better(tmp_path: Path) -> None:
    texts = [f"{text} No. {number}" for number in range(60) for text in (ABSTRACTS[1], "Rates rose, said the bank.")]
    whole = corpus(tmp_path, "a", texts)
    (tmp_path / "task.txt").write_text("The effect of aspirin on pain.")
    wanted = Select([Source(str(tmp_path / "task.txt"))], 0.3)
    found = compare_corpora(
        {"whole": whole, "part": corpus(tmp_path, "a", texts, select=wanted)}, ["effect of aspirin on fever"]
    )
    assert list(found["corpora"]) == ["part", "whole"]


def test_nothing_to_measure_is_an_error(tmp_path: Path) -> None:
    fine, empty = corpus(tmp_path, "a", ["Some words."] * 50, deduplicate=False), corpus(tmp_path, "b", ["…!"] * 3)
    with refused(where="labelled", problem="the labelled texts have no words"):
        compare_corpora({"a": fine}, ["", "…"])
    with refused(where="corpus 'empty'", problem="the training documents contain no words"):
        compare_corpora({"a": fine, "empty": empty}, ["text"])


@pytest.mark.slow
def test_abstracts_of_trials_are_nearer_to_economics_papers_than_speeches_of_the_federal_reserve(
    econ_data: Path, bio_data: Path
) -> None:
    corpora = {
        "speeches": CorpusConfig([Source(str(econ_data / "corpus.jsonl.gz"))]),
        "biomedical": CorpusConfig([Source(str(bio_data / "corpus.jsonl.gz"))]),
        "trials": CorpusConfig([Source(str(bio_data / "pico/train.conll"))]),
    }
    task = [document.text for document in read_documents(CorpusConfig([Source(str(econ_data / "ner/train.conll"))]))]
    found = compare_corpora(corpora, task)
    bits = {name: round(facts["bits_per_word"], 2) for name, facts in found["corpora"].items()}
    assert (bits, found["words"]) == ({"trials": 11.27, "speeches": 11.45, "biomedical": 11.73}, 199_739)
