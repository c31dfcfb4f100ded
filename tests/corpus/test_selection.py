"""`select`: which documents are kept, against importance weights by brute force; the report."""

import json
import math
import re
from collections import Counter
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest

from domainbert.corpus.config import CorpusConfig, Select, Source
from domainbert.corpus.documents import Document, read_documents
from domainbert.corpus.ngrams import hash_ngrams, hash_words, words_of_text
from domainbert.corpus.report import CorpusReport
from domainbert.corpus.selection import BUCKETS, select
from tests.refusals import refused

MASK = 2**64 - 1
ODD = 0x9E3779B97F4A7C15

MEDICAL = ["Aspirin dämpft Schmerz.", "The trial of aspirin: pain, 12 weeks.", "Aspirin for pain — no trial"]
OTHER = ["Rates rose; the bank was “patient”.", "Inflation, inflation.", "The committee raised rates by 25 points!"]
TASK = ["aspirin for pain", "a trial of 12 weeks", "Schmerz ohne Aspirin"]


def hashed(words: list[str]) -> int:
    """SplitMix64 of a polynomial of the words' BLAKE2, in whole numbers of Python."""
    state = 0
    for place, word in enumerate(words):
        value = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")
        state = (state + value * pow(ODD, place + 1)) & MASK
    state = (ODD + (state + 1) * ODD) & MASK
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = ((state ^ state >> shift) * factor) & MASK
    return state ^ state >> 31


def features(text: str) -> list[int]:
    words = re.findall(r"\w+", text.lower()) or [""]
    alone = [int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little") for word in words]
    pairs = [hashed(words[at : at + 2]) for at in range(len(words) - 1)]
    return [one % BUCKETS for one in alone + pairs]


def weights_by_hand(like: list[str], texts: list[str]) -> list[float]:
    """The definition: the mean, over n-grams, of log(p / q): shares of buckets in the task and in the corpus.

    One n-gram is added to each bucket of the corpus, and to the task as many, spread as in the corpus.
    """
    near = Counter(one for text in like for one in features(text))
    far = Counter(one for text in texts for one in features(text))

    def log_weight(one: int) -> float:
        q = (far[one] + 1) / (far.total() + BUCKETS)
        p = (near[one] + BUCKETS * q) / (near.total() + BUCKETS)
        return round(math.log(p / q) * 2**32) / 2**32

    return [sum(map(log_weight, features(text))) / len(features(text)) for text in texts]


def test_hashes_of_ngrams_are_those_of_their_definition() -> None:
    words = words_of_text("Été d'été: x_1, 2,5 %  ÉTÉ")
    assert words == ["été", "d", "été", "x_1", "2", "5", "été"]
    for size in (2, 3, 7):
        expected = [hashed(words[at : at + size]) for at in range(len(words) - size + 1)]
        assert hash_ngrams(hash_words(words), size).tolist() == expected
    assert len(hash_ngrams(hash_words(words), 8)) == len(hash_ngrams(hash_words([]), 2)) == 0


def test_words_of_other_scripts() -> None:
    """Marks that write vowels belong to their word; Chinese and Japanese characters are words."""
    assert words_of_text("हिन्दी में दर बढ़ी।") == ["हिन्दी", "में", "दर", "बढ़ी"]
    assert words_of_text("e\u0301te\u0301, \u0301a") == ["e\u0301te\u0301", "a"]
    assert words_of_text("央行2019年加息。インフレ") == ["央", "行", "2019", "年", "加", "息", *"インフレ"]
    assert words_of_text("금리는 올랐다") == ["금리는", "올랐다"]


def test_weights_are_those_of_the_definition_and_the_highest_are_kept() -> None:
    texts = [*OTHER, *MEDICAL, "…!"]
    found = select(TASK, lambda: texts, 0.43)
    expected = weights_by_hand(TASK, texts)
    assert found.weights.tolist() == pytest.approx(expected, abs=1e-12)
    best = sorted(expected, reverse=True)[:3]  # 3.01 of 7, rounded
    assert found.kept.tolist() == [weight in best for weight in expected] == [False] * 3 + [True] * 3 + [False]
    assert found.mean(kept=True) == pytest.approx(sum(best) / 3)
    assert found.mean(kept=False) == pytest.approx((sum(expected) - sum(best)) / 4)


def test_the_length_of_a_document_does_not_decide() -> None:
    """Ten times the same words are as near as once, give or take the pairs at the seams."""
    texts = [MEDICAL[1], " ".join([MEDICAL[1]] * 10), OTHER[2], " ".join([OTHER[2]] * 10)]
    found = select(TASK, lambda: texts, 0.5)
    assert found.kept.tolist() == [True, True, False, False]


@pytest.mark.parametrize(("keep", "count"), [(1.0, 6), (0.5, 3), (0.42, 3), (0.41, 2), (1e-9, 1)])
def test_how_many_are_kept_and_that_the_first_of_equal_ones_are(keep: float, count: int) -> None:
    found = select(TASK, lambda: ["word"] * 6, keep)
    assert found.kept.tolist() == [True] * count + [False] * (6 - count)
    assert (found.mean(kept=False) is None) == (count == 6)


def test_nothing_to_be_like_is_an_error_and_nothing_to_choose_from_is_not() -> None:
    with refused(where="select.like", found="no words"):
        select(["…", ""], lambda: OTHER, 0.5)
    assert len(select(TASK, lambda: [], 0.5).kept) == 0


def written(folder: Path, texts: list[str]) -> Source:
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (folder / "task.conll").write_text("-DOCSTART- O\n\naspirin O\nfor O\npain B-x\n\ntrial O\n")
    return Source(str(folder / "corpus.jsonl"))


def read(config: CorpusConfig) -> tuple[list[Document], CorpusReport]:
    report = CorpusReport()
    return list(read_documents(config, report)), report


def numbered(folder: Path) -> tuple[Source, Select]:
    texts = [f"Text {number} of {kind}" for number in range(100) for kind in ("aspirin for pain", "rates and banks")]
    return written(folder, texts), Select([Source(str(folder / "task.conll"))], 0.3)


def test_the_training_side_is_selected_and_the_validation_side_left_as_it_is(tmp_path: Path) -> None:
    source, wanted = numbered(tmp_path)
    whole, _ = read(CorpusConfig([source], validation_fraction=0.2))
    documents, report = read(CorpusConfig([source], validation_fraction=0.2, select=wanted))
    sides = {split: [one for one in whole if one.split == split] for split in ("train", "validation")}
    assert [one for one in documents if one.split == "validation"] == sides["validation"]
    train = [one for one in documents if one.split == "train"]
    weights = weights_by_hand(["aspirin for pain", "trial"], [one.text for one in sides["train"]])
    order = sorted(range(len(weights)), key=lambda number: (-weights[number], number))  # many are equally near
    assert train == [sides["train"][number] for number in sorted(order[: len(train)])]
    assert len(train) == round(0.3 * len(sides["train"])) and all("aspirin" in one.text for one in train)
    assert report.sources[0].dropped == {"not selected": len(sides["train"]) - len(train)}
    assert report.read == len(documents) + report.dropped.total() == 200


def test_the_report_tells_what_was_kept(tmp_path: Path) -> None:
    source, wanted = numbered(tmp_path)
    _, report = read(CorpusConfig([source], validation_fraction=0.2, select=wanted))
    facts = json.loads(json.dumps(report.as_dict()))["selection"]
    means = facts["mean_log_weight"]
    assert facts["like"] == [str(tmp_path / "task.conll")] and means["kept"] > means["dropped"] > 0
    assert report.lines()[-1] == (
        f"select: kept {facts['kept']} of {facts['documents']} training documents, most similar to "
        f"{tmp_path / 'task.conll'}; mean log weight of an n-gram {means['kept']:+.3f} kept, "
        f"{means['dropped']:+.3f} dropped"
    )
    _, report = read(CorpusConfig([source]))
    assert "selection" not in report.as_dict()


def test_weights_of_sources_copy_and_thin_out_what_was_selected(tmp_path: Path) -> None:
    source, wanted = numbered(tmp_path)
    once = {one.text for one in read(CorpusConfig([source], select=wanted))[0] if one.split == "train"}
    twice, report = read(CorpusConfig([Source(source.path, weight=2)], select=wanted))
    train = Counter(one.text for one in twice if one.split == "train")
    assert train == dict.fromkeys(once, 2)
    assert report.read + report.sources[0].copies == len(twice) + report.dropped.total()


def test_several_texts_to_be_like_count_together(tmp_path: Path) -> None:
    source, _ = numbered(tmp_path)
    (tmp_path / "more.txt").write_text("rates and banks\n")
    both = Select([Source(str(tmp_path / name)) for name in ("task.conll", "more.txt")], 0.5)
    _, report = read(CorpusConfig([source], select=both))
    assert report.selection is not None and len(report.selection["like"]) == 2
    assert both.input_files() == [tmp_path / "task.conll", tmp_path / "more.txt"]
    assert both.input_files(without={str(tmp_path / "more.txt")}) == [tmp_path / "task.conll"]


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    source, _ = numbered(tmp_path)
    with refused(where="keep", found="0"):
        Select([source], 0)
    with refused(where="like[0].weight", found="2"):
        Select([Source("a.txt", weight=2)], 0.5)
    with refused(where="select.like[0].path", found="'absent.conll', which neither exists..."):
        read(CorpusConfig([source], select=Select([Source("absent.conll")], 0.5)))


def test_files_that_grow_while_they_are_read_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, wanted = numbered(tmp_path)
    true = select

    def grown(like: list[str], texts: object, keep: float) -> object:
        found = true(like, texts, keep)  # type: ignore[arg-type]
        return type(found)(found.weights[:-1], found.kept[:-1])

    monkeypatch.setattr("domainbert.corpus.selection.select", grown)
    with refused(problem="files have changed while `select` read them"):
        read(CorpusConfig([source], select=wanted))


@pytest.mark.slow
def test_real_abstracts_are_chosen_for_a_task_on_abstracts(econ_data: Path, bio_data: Path) -> None:
    """The documents of two corpora that are most similar to disease abstracts are biomedical."""
    speeches = Source(str(econ_data / "corpus.jsonl.gz"), weight=0.05)
    wanted = Select([Source(str(bio_data / "ner/ncbi-disease/train.txt"))], 0.2)
    _, report = read(CorpusConfig([speeches, Source(str(bio_data / "corpus.jsonl.gz"))], select=wanted))
    assert [source.documents["train"] for source in report.sources] == [0, 2_643]
    assert np.isfinite(list(report.selection["mean_log_weight"].values())).all() if report.selection else False
