"""`exclude`: sentences that hold known texts are left out, against a search by lists of words."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from domainbert.checks.checked_corpus import scan_corpus
from domainbert.checks.corpus_rules import RULES
from domainbert.checks.finding import apply_rules
from domainbert.checks.labelled_set import CheckedSet
from domainbert.cli import main
from domainbert.corpus.config import CorpusConfig, Source
from domainbert.corpus.documents import Document, read_documents
from domainbert.corpus.known_texts import KnownTexts
from domainbert.corpus.ngrams import words_of_text
from domainbert.corpus.readers import read_conll
from domainbert.corpus.report import CorpusReport
from domainbert.corpus.sentences import cut_sentences, split_sentences
from domainbert.tasks.classification.config import Classification
from tests.refusals import command_refused, refused

WORDS = [*"abcdefghijklmnopqrstuvwxyz", "é", "naïve", "Straße", "κόσμος"]


def line(draw: random.Random, least: int = 3, most: int = 25) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(least, most))).capitalize() + "."


def jsonl(path: Path, texts: list[str], **more: Any) -> Path:
    path.write_text("".join(json.dumps({"text": text, **more}) + "\n" for text in texts))
    return path


def read(config: CorpusConfig) -> tuple[list[Document], CorpusReport]:
    report = CorpusReport()
    return list(read_documents(config, report)), report


def touched(parts: list[str], known: list[str]) -> set[int]:
    """The parts of a text that hold a word of a run of a known one, by comparing lists of words."""
    words = [(word, number) for number, one in enumerate(parts) for word in words_of_text(one)]
    found = set()
    for other in known:
        wanted = words_of_text(other)
        size = min(len(wanted), 13)
        runs = {tuple(wanted[start : start + size]) for start in range(len(wanted) - size + 1)}
        for start in range(len(words) - size + 1 if size >= 8 else 0):
            run = words[start : start + size]
            if tuple(word for word, _ in run) in runs:
                found |= {number for _, number in run}
    return found


def test_sentences_are_found_as_by_lists_of_words() -> None:
    draw = random.Random(0)
    texts = [" \n".join(line(draw) for _ in range(6)) for _ in range(80)]
    known = [line(draw, 5, 30) for _ in range(40)]
    for text in texts[:60]:  # from within a sentence, and across the end of one
        words = words_of_text(text)
        start = draw.randrange(max(len(words) - 8, 1))
        known.append(" ".join(words[start : start + draw.randint(6, 20)]).upper() + "!")
    found = KnownTexts(known)
    parts = [cut_sentences(text) for text in texts]
    assert ["".join(one) for one in parts] == texts
    wanted = [touched(one, known) for one in parts]
    assert [found.overlapping_parts(one) for one in parts] == wanted
    assert 30 < sum(map(bool, wanted)) < 70 and max(map(len, wanted)) > 1
    assert found.num_indexed == sum(len(words_of_text(one)) >= 8 for one in known)


def test_documents_lose_the_sentences_and_keep_their_side(tmp_path: Path) -> None:
    """`check` no longer finds any of the texts."""
    draw = random.Random(1)
    known = [line(draw, 8, 20) for _ in range(30)]
    texts = []
    for number in range(60):
        lines = [line(draw, 8, 20) for _ in range(3)]
        lines.insert(draw.randrange(4), known[number % 30].lower())
        texts.append("\n".join(lines))
    texts += [*known[:2], "too short to be looked for"]
    test = jsonl(tmp_path / "test.jsonl", [*known, "too short to be"], label="a")
    corpus = Source(str(jsonl(tmp_path / "corpus.jsonl", texts)))
    before, _ = read(CorpusConfig([corpus], validation_fraction=0.3))
    after, report = read(CorpusConfig([corpus], validation_fraction=0.3, exclude=[Source(str(test))]))
    assert len(after) == 61 and report.sources[0].dropped == {"excluded as a whole": 2}
    sides, lowered = {one.id: one.split for one in before}, [one.lower() for one in known]
    for one, text in zip(after, [*texts[:60], texts[-1]], strict=True):
        assert sides[one.id] == one.split
        others = [own for own in text.split("\n") if own.lower() not in lowered]
        assert one.text.split("\n") == others
    assert (
        report.sources[0].changed == {"without excluded sentences": 60} and report.sources[0].excluded_sentences == 62
    )
    assert "60 without excluded sentences (62 excluded sentences)" in "\n".join(report.lines())
    assert report.sources[0].as_dict()["excluded_sentences"] == 62
    checked = CheckedSet("test", Classification().read(test))
    configs = [CorpusConfig([corpus], exclude=exclude) for exclude in (None, [Source(str(test))])]
    rules = [{one.rule for one in apply_rules(RULES, scan_corpus(config, checked), {})} for config in configs]
    assert ["labelled-text-in-corpus" in one for one in rules] == [True, False]


def test_a_text_with_its_translation_is_left_out_as_a_whole(tmp_path: Path) -> None:
    known = "one two three four five six seven eight"
    rows = [{"text": "uno dos tres", "fr": f"et {known} encore"}, {"text": "quatre cinq", "fr": "fünf sechs sieben"}]
    corpus = tmp_path / "pairs.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = Source(str(corpus), translation_key="fr")
    documents, report = read(CorpusConfig([pairs], exclude=[Source(str(jsonl(tmp_path / "test.jsonl", [known])))]))
    assert [one.sides for one in documents] == [("quatre cinq", "fünf sechs sieben")]
    assert report.dropped == {"excluded as a whole": 1}


def test_sentences_of_conll_are_texts(tmp_path: Path) -> None:
    test, corpus = tmp_path / "test.conll", tmp_path / "corpus.txt"
    sentence = ["The", "rate", "was", "not", "changed", "in", "May", "."]
    longer = "".join(f"w{number}\tO\n" for number in range(9))
    test.write_text("".join(f"{word}\tO\n" for word in sentence) + f"\nIt\tO\nrose\tO\n\n{longer}")
    corpus.write_text("It rose, and this line stays.\nThe rate was not changed in May 2009.\nThe rate was changed.\n")
    (document,), _ = read(CorpusConfig([Source(str(corpus))], exclude=[Source(str(test))]))
    assert (
        document.text == "It rose, and this line stays.\nThe rate was not changed in May 2009.\nThe rate was changed."
    )
    test.write_text("".join(f"{word}\tO\n" for word in [*sentence[:-1], "2009"]) + "\n")
    (document,), _ = read(CorpusConfig([Source(str(corpus))], exclude=[Source(str(test))]))
    assert document.text == "It rose, and this line stays.\nThe rate was changed."


def test_what_it_means_nothing_for_is_refused(tmp_path: Path) -> None:
    with refused(where="exclude[0].weight", found="2"):
        CorpusConfig([Source("a.txt")], exclude=[Source("b.txt", weight=2)])
    words = ["prepare", "--out", str(tmp_path / "out"), "--tokenizer", str(tmp_path), "--corpus.sources", "a.txt"]
    jsonl(tmp_path / "corpus.jsonl", ["a b c"])
    words[-1] = str(tmp_path / "corpus.jsonl")
    command_refused(
        *words,
        "--corpus.exclude",
        "absent.jsonl",
        where="exclude[0].path",
        found="'absent.jsonl', which neither exists...",
    )


@pytest.mark.slow
def test_the_fed_has_no_sentence_of_stance_any_more(econ_data: Path) -> None:
    exclude = [Source(str(econ_data / "stance" / "test.jsonl"))]
    _, report = read(CorpusConfig([Source(str(econ_data / "corpus.jsonl.gz"))], exclude=exclude))
    assert report.sources[0].excluded_sentences >= 491


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("It rose. {} It fell.", "It rose. It fell."),
        ("It rose.\n\n{}\nIt fell.", "It rose.\n\nIt fell."),
        ("It rose. {}\n\nIt fell.", "It rose. \n\nIt fell."),
        ('{}\nIt rose. "{}" And so on (e.g. here)', "It rose. And so on (e.g. here)"),
    ],
)
def test_the_rest_of_a_document_stays_as_it_is(tmp_path: Path, text: str, left: str) -> None:
    known = "The rate of 2.5 per cent was not changed in May!"
    test, corpus = (jsonl(tmp_path / name, [one]) for name, one in (("a.jsonl", known), ("b.jsonl", text)))
    jsonl(corpus, [text.replace("{}", known)])
    (document,), _ = read(CorpusConfig([Source(str(corpus))], min_characters=1, exclude=[Source(str(test))]))
    assert document.text == left
    assert [" ".join(part.split()) for part in cut_sentences(left) if part.strip()] == list(split_sentences(left))


def test_lines_of_plain_text_are_looked_for_and_files_of_other_kinds_are_counted(tmp_path: Path) -> None:
    """A line of eight words or more is a text; `documents` may say that a text has several."""
    short = [f"The {word} line has its own eight words" for word in ("first", "second")]
    corpus = jsonl(tmp_path / "corpus.jsonl", [f"Before it. {one}. Behind it all." for one in short])
    (tmp_path / "known").mkdir()
    (tmp_path / "known/a.txt").write_text("\n".join(short) + "\n\nOther\n")
    for name in ("b.tsv", "c.bio"):
        (tmp_path / "known" / name).write_text("x\ty\n")
    known = str(tmp_path / "known")
    documents, report = read(CorpusConfig([Source(str(corpus))], 1, exclude=[Source(known)]))
    assert [one.text for one in documents] == ["Before it. Behind it all."]
    assert report.exclusion == {"texts": [known], "num_texts": 2, "too_short": 1, "files_ignored": 2}
    assert (
        f"exclude: texts of {known}: 2 (ignored files of other kinds: 2); ignored texts of fewer than 8 words: 1"
        in report.lines()[-1]
    )
    whole = Source(known, documents="blank_line")
    _, report = read(CorpusConfig([Source(str(corpus))], 1, exclude=[whole]))
    assert report.exclusion == {"texts": [known], "num_texts": 1, "too_short": 1, "files_ignored": 2}


def test_documents_that_are_equal_without_what_is_excluded_are_one(tmp_path: Path) -> None:
    """And stand on one side of the split."""
    draw = random.Random(5)
    known = [line(draw, 8, 12) for _ in range(40)]
    test = jsonl(tmp_path / "test.jsonl", known)
    corpus = jsonl(tmp_path / "corpus.jsonl", [f"This sentence stays as it is.\n{one}" for one in known])
    config = CorpusConfig([Source(str(corpus))], validation_fraction=0.3, exclude=[Source(str(test))])
    documents, report = read(config)
    assert [one.text for one in documents] == ["This sentence stays as it is."]
    assert report.dropped == {"exact duplicates": 39}


def test_what_is_left_may_stand_together_anew(tmp_path: Path) -> None:
    first, second = "A b c d e f g. H i j k l m n.", "O p q r s t u v w."
    test = jsonl(tmp_path / "test.jsonl", [first, second])
    text = first.replace(" H", f" {second} H")
    corpus = jsonl(tmp_path / "corpus.jsonl", [f"It fell. {text}"])
    (document,), report = read(CorpusConfig([Source(str(corpus))], min_characters=1, exclude=[Source(str(test))]))
    assert document.text == "It fell." and report.sources[0].excluded_sentences == 3


def test_texts_to_exclude_are_counted_and_some_have_to_be_long_enough(tmp_path: Path) -> None:
    test, corpus = (
        jsonl(tmp_path / "test.jsonl", ["too short", "a b c d e f g h i"]),
        jsonl(tmp_path / "a.jsonl", ["x y z"]),
    )
    config = CorpusConfig([Source(str(corpus))], min_characters=1, exclude=[Source(str(test))])
    _, report = read(config)
    assert f"exclude: texts of {test}: 1; ignored texts of fewer than 8 words: 1" in report.lines()
    assert report.sources[0].changed == {}, "nothing was left out, and nothing is said"
    assert report.as_dict()["exclusion"] == {"texts": [str(test)], "num_texts": 1, "too_short": 1}
    jsonl(test, ["too short"])
    with refused(where="corpus.exclude", found="no text of 8 words or more in ..."):
        read(config)
    treebank = tmp_path / "test.conll"
    treebank.write_text("1\tIt\t_\n2\tfell\t_\n")
    with refused(file="test.conll", line=1, problem="column 0 holds word numbers"):
        read(CorpusConfig([Source(str(corpus))], exclude=[Source(str(treebank))]))


def test_sentences_of_a_treebank_are_excluded_by_their_words(tmp_path: Path) -> None:
    words = ["The", "bank", "raised", "the", "rate", "of", "the", "euro", "again"]
    rest = "\t_" * 8
    rows = "".join(f"{number}\t{word}{rest}\n" for number, word in enumerate(words, start=1))
    range_of_two, empty_node = f"1-2\tThebank{rest}\n", f"3.1\traised{rest}\n"
    treebank = tmp_path / "test.conll"
    treebank.write_text(f"# sent_id = 1\n# text = The bank\n{range_of_two}{rows}{empty_node}\n# one\n1\tYes{rest}\n\n")
    assert [text for _, text in read_conll(treebank, Source(str(treebank)))] == [" ".join(words), "Yes"]
    corpus = jsonl(tmp_path / "a.jsonl", [f"It fell. {' '.join(words)}. It rose."])
    (document,), report = read(CorpusConfig([Source(str(corpus))], min_characters=1, exclude=[Source(str(treebank))]))
    assert document.text == "It fell. It rose." and report.sources[0].excluded_sentences == 1


def test_brackets_and_contractions_of_a_treebank_are_those_of_raw_text(tmp_path: Path) -> None:
    test, corpus = (
        tmp_path / "test.conll",
        jsonl(tmp_path / "a.jsonl", ["It fell. Rates (of banks) don't move in May."]),
    )
    words = ["Rates", "-LRB-", "of", "banks", "-RRB-", "do", "n't", "move", "in", "May", "."]
    test.write_text("".join(f"{word}\tO\n" for word in words))
    (document,), _ = read(CorpusConfig([Source(str(corpus))], min_characters=1, exclude=[Source(str(test))]))
    assert document.text == "It fell."


@pytest.mark.parametrize("words", [[f"w{number}" for number in range(400)], [chr(0x4E00 + n) for n in range(400)]])
def test_a_text_without_capitals_loses_only_what_is_near(tmp_path: Path, words: list[str]) -> None:
    join, stop = (" ", ". ") if words[0] == "w0" else ("", "\u3002")
    text = stop.join(join.join(words[start : start + 20]) for start in range(0, 400, 20))
    test, corpus = jsonl(tmp_path / "test.jsonl", [join.join(words[200:220])]), jsonl(tmp_path / "a.jsonl", [text])
    (document,), _ = read(CorpusConfig([Source(str(corpus))], exclude=[Source(str(test))]))
    assert 300 <= len(words_of_text(document.text)) < 400 and words[210] not in document.text


def test_parts_are_made_again_when_what_they_exclude_has_changed(tmp_path: Path, runs: Any) -> None:
    draw = random.Random(6)
    known = [line(draw, 9, 12) for _ in range(6)]
    test = jsonl(tmp_path / "test.jsonl", known[:2])
    corpus = jsonl(tmp_path / "corpus.jsonl", [f"{line(draw)} {one} {line(draw)}" for one in known * 2])
    recipe = tmp_path / "recipe.yaml"
    settings = {
        "corpus": {"sources": str(corpus), "exclude": str(test), "validation_fraction": 0.3},
        "tokenizer": str(runs / "vocab"),
    }
    settings |= {"row_lengths": [32], "num_workers": 0}
    recipe.write_text(json.dumps({"out": str(tmp_path / "run"), "stages": {"prepare": settings}}))

    def excluded() -> int:
        assert main(["run", str(recipe)]) == 0
        (part,) = (tmp_path / "run/prepare").rglob("00000/prepared.json")
        return int(json.loads(part.read_text())["report"]["sources"][0]["excluded_sentences"])

    before = excluded()
    jsonl(test, known)
    assert (before, excluded()) == (4, 12)
