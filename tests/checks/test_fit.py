"""Bits per word against a model of plain dictionaries; what is sampled, and what is found on real corpora."""

import json
import math
import random
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from domainbert.base.errors import DomainbertError
from domainbert.checks.corpus_fit import WordModel, compare_corpora, discount, format_corpus_fit, sample_documents
from domainbert.corpus.config import CorpusConfig, Select, Source
from domainbert.corpus.documents import read_documents
from domainbert.corpus.ngrams import words_of_text

ABSTRACTS = [
    "Der Effekt der Therapie war klein: n = 12.",
    "The effect of aspirin on pain was small; the effect on fever was not.",
    "The trial of aspirin. The trial of ibuprofène.",
    "Pain",
]


class ByHand:
    """Kneser-Ney word by word, as the docstring of `WordModel` has it."""

    def __init__(self, documents: list[list[str]]) -> None:
        self.words = Counter(word for words in documents for word in words)
        self.pairs = Counter(pair for words in documents for pair in pairwise(words))
        self.kinds_after, self.kinds_before = defaultdict(set), defaultdict(set)
        self.after: Counter[str] = Counter()
        for (v, w), count in self.pairs.items():
            self.kinds_after[v].add(w)
            self.kinds_before[w].add(v)
            self.after[v] += count
        self.different = {w: len(before) for w, before in self.kinds_before.items()}

    def discount(self, counts: dict) -> float:
        ones, twos = (sum(value == number for value in counts.values()) for number in (1, 2))
        return (ones + 1) / (ones + 1 + 2 * (twos + 0.5))

    def share(self, word: str, counts: dict[str, int]) -> float:
        if not counts:
            return 2**-20
        d, total = self.discount(counts), sum(counts.values())
        return max(counts.get(word, 0) - d, 0) / total + d * len(counts) / total * 2**-20

    def probability(self, before: str | None, word: str) -> float:
        if before is None:
            return self.share(word, self.words)
        after_any = self.share(word, self.different)
        if not self.after[before]:
            return after_any
        d, total = self.discount(self.pairs), self.after[before]
        kinds = len(self.kinds_after[before])
        return max(self.pairs[before, word] - d, 0) / total + d * kinds / total * after_any

    def bits(self, words: list[str]) -> float:
        return -sum(math.log2(self.probability(*pair)) for pair in zip([None, *words], words, strict=False))


@pytest.mark.parametrize("seed", range(5))
def test_bits_are_those_of_the_definition(seed: int) -> None:
    draw = random.Random(seed)
    documents = [[draw.choice("aabcdé") * draw.choice([1, 1, 2]) for _ in range(draw.randrange(12))] for _ in range(9)]
    model, by_hand = WordModel(documents), ByHand(documents)
    for _ in range(30):
        words = [draw.choice(["a", "b", "c", "é", "aa", "ü", "unbekannt"]) for _ in range(draw.randrange(1, 9))]
        found = model.predict(words)
        assert found.bits == pytest.approx(by_hand.bits(words), rel=1e-12)
        assert (found.words, found.unknown) == (len(words), sum(word not in by_hand.words for word in words))
        assert found.seen_pairs == sum(pair in by_hand.pairs for pair in pairwise(words))


def test_probabilities_of_all_words_sum_to_one() -> None:
    """Of the corpus' words, and of the million that an unknown one is among."""
    documents = [words_of_text(text) for text in ABSTRACTS]
    model, known = WordModel(documents), sorted({word for words in documents for word in words})

    def likely(before: list[str], word: str) -> float:
        return 2 ** -(model.predict([*before, word]).bits - (model.predict(before).bits if before else 0))

    for before in ([], ["the"], ["aspirin"], ["pain"], ["unbekannt"]):
        unknown = likely(before, "unbekannt")
        assert sum(likely(before, word) - unknown for word in known) + 2**20 * unknown == pytest.approx(1)


@pytest.mark.parametrize("documents", [[], [[]], [["one"]], [["one"], ["two"]]])
def test_corpora_without_pairs_have_words_still(documents: list[list[str]]) -> None:
    for words in (["one"], ["one", "two", "x"]):
        assert WordModel(documents).predict(words).bits == pytest.approx(ByHand(documents).bits(words))


def test_what_is_taken_from_a_count() -> None:
    import numpy as np

    assert discount(np.array([1, 1, 1, 2, 5, 0, 0])) == 4 / 7
    assert discount(np.array([3, 4])) == 1 / 2


def corpus(folder: Path, name: str, texts: list[str], **settings: object) -> CorpusConfig:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return CorpusConfig([Source(str(path))], min_characters=1, **settings)  # type: ignore[arg-type]


def test_a_fit_is_that_of_as_many_words_of_each_corpus(tmp_path: Path) -> None:
    texts = [f"{text} No. {number}" for number in range(30) for text in ABSTRACTS]
    speeches = [f"Rates rose {number} times, said the bank." for number in range(40)]
    corpora = {"near": corpus(tmp_path, "a", texts), "far": corpus(tmp_path, "b", speeches)}
    task = ["The effect on pain was cle\u0301ar.", "…", "Aspirin, twice", "Ibuprofène"]
    found = compare_corpora(corpora, task)
    cut = [words_of_text(text) for text in ("The effect on pain was cléar.", "Aspirin, twice", "Ibuprofène")]
    train = [document.text for document in read_documents(corpora["far"]) if document.split == "train"]
    assert found["words"] == sum(len(words_of_text(text)) for text in train)
    assert (found["task_words"], found["task_texts"]) == (9, 3)
    assert list(found["corpora"]) == ["near", "far"] and found["corpora"]["near"]["above_nearest"] is None

    bits = {}
    for name, config in corpora.items():
        left, documents = found["words"], []
        for text in sample_documents(config, 10**6, name):
            documents.append(words_of_text(text)[:left])
            left -= len(documents[-1])
        model, facts = ByHand(documents), found["corpora"][name]
        bits[name] = [model.bits(words) for words in cut]
        assert facts["bits_per_word"] == pytest.approx(sum(bits[name]) / 9)
        assert facts["unknown_share"] == sum(word not in model.words for words in cut for word in words) / 9
        pairs = [pair for words in cut for pair in pairwise(words)]
        assert facts["seen_pairs_share"] == sum(pair in model.pairs for pair in pairs) / 6

    above = found["corpora"]["far"]["above_nearest"]
    each = [far - near for near, far in zip(bits["near"], bits["far"], strict=True)]
    mean = sum(each) / 9
    error = math.sqrt(sum((one - mean * len(words)) ** 2 for one, words in zip(each, cut, strict=True))) / 9
    assert above["bits_per_word"] == pytest.approx(mean)
    assert above["interval"] == pytest.approx([mean - 1.959964 * error, mean + 1.959964 * error])
    json.dumps(found)


def test_what_is_printed() -> None:
    shares = {"unknown_share": 0.0476, "seen_pairs_share": 1.0}
    above = {"bits_per_word": 0.4249, "interval": [0.361, 0.488]}
    corpora = {
        "near": {"bits_per_word": 9.026, **shares, "above_nearest": None},
        "far": {"bits_per_word": 11.451, **shares, "above_nearest": above},
    }
    assert format_corpus_fit(
        {"words": 2_775_328, "task_words": 114_429, "task_texts": 4_632, "corpora": corpora}
    ).split("\n") == [
        "the task's 114,429 words, predicted from 2,775,328 words of each corpus:",
        "bits a word  unknown  pairs seen  corpus",
        "       9.03   4.76 %    100.00 %  near",
        "      11.45   4.76 %    100.00 %  far  +0.42 [0.36, 0.49]",
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
    with pytest.raises(DomainbertError, match="labelled: the labelled texts have no words; expected at least one word"):
        compare_corpora({"a": fine}, ["", "…"])
    with pytest.raises(DomainbertError, match="corpus 'empty': the training documents contain no words; expected"):
        compare_corpora({"a": fine, "empty": empty}, ["text"])


def test_speeches_of_the_federal_reserve_are_further_from_economics_papers_than_biomedical_abstracts(
    econ_data: Path, bio_data: Path
) -> None:
    corpora = {
        "speeches": CorpusConfig([Source(str(econ_data / "corpus.jsonl.gz"))]),
        "biomedical": CorpusConfig([Source(str(bio_data / "corpus.jsonl.gz"))]),
        "trials": CorpusConfig([Source(str(bio_data / "pico/train.conll"))]),
    }
    task = [document.text for document in read_documents(CorpusConfig([Source(str(econ_data / "ner/train.conll"))]))]
    found = compare_corpora(corpora, task)
    assert list(found["corpora"]) == ["trials", "biomedical", "speeches"]
    bits = {name: round(facts["bits_per_word"], 2) for name, facts in found["corpora"].items()}
    assert (bits, found["words"]) == ({"trials": 11.22, "biomedical": 11.95, "speeches": 12.04}, 199_739)
