"""Rules on a corpus: a fault is planted, and its rule finds it, and no other rule finds anything."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from domainbert.checks.checked_corpus import RepeatedLines, corpus_facts, scan_corpus
from domainbert.checks.corpus_rules import RULES
from domainbert.checks.finding import Finding, apply_rules
from domainbert.checks.labelled_set import CheckedSet
from domainbert.checks.rules import read_checked
from domainbert.corpus.config import CorpusConfig, Source
from domainbert.corpus.ngrams import words_of_text
from domainbert.tasks.classification.config import Classification, ClassificationFormat

WORDS = [
    "Zinsen",
    "fielen",
    "the",
    "bank",
    "café",
    "rate",
    "prévu",
    "Rose",
    "on",
    "Tuesday",
    "while",
    "prices",
    "stayed",
]


def texts(count: int = 200, words: int = 40) -> list[str]:
    draw = random.Random(1)
    return [" ".join(draw.choice(WORDS) for _ in range(words)) + ". 5 < 6 & 7 > 4" for _ in range(count)]


def written(folder: Path, *sources: list[str]) -> CorpusConfig:
    paths = [folder / f"{number}.jsonl" for number in range(len(sources))]
    for path, rows in zip(paths, sources, strict=True):
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in rows), encoding="utf-8")
    return CorpusConfig([Source(str(path)) for path in paths])


def labelled(folder: Path, rows: list[str]) -> CheckedSet:
    path = folder / "test.jsonl"
    path.write_text("".join(json.dumps({"text": text, "label": f"{len(text) % 2}"}) + "\n" for text in rows))
    found, problems = read_checked(Classification(), "test", path)
    assert found is not None and not problems
    return found


def found(config: CorpusConfig, test: CheckedSet | None = None) -> list[Finding]:
    return list(apply_rules(RULES, scan_corpus(config, test), {}))


UNSEEN = ["A text of thirteen words or more that does not stand in the corpus anywhere.", "Rates rose."]


def test_nothing_is_found_in_a_sound_corpus(tmp_path: Path) -> None:
    assert found(written(tmp_path, texts()), labelled(tmp_path, UNSEEN)) == []


def with_part(part: str, every: int) -> list[str]:
    return [f"{text} {part}" if number % every == 0 else text for number, text in enumerate(texts())]


def line_in(every: int) -> list[str]:
    line = "© 2019 Board of Governors — all rights reserved"
    return [f"{line}\n{text}" if number % every == 0 else text for number, text in enumerate(texts())]


FAULTS: dict[str, tuple[Callable[[], list[str]], int, str]] = {
    "repeated-lines": (
        lambda: line_in(10),
        1,
        "1 line is repeated in many documents; the line '© 2019 Board of Governors — all rights reserved' "
        "is in 20 of 200",
    ),
    "broken-characters-in-corpus": (
        lambda: with_part("prÃ©vu", 100),
        2,
        "2 of 200 documents have broken characters",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_and_nothing_else(tmp_path: Path, name: str) -> None:
    make, count, message = FAULTS[name]
    (one,) = found(written(tmp_path, make()), labelled(tmp_path, UNSEEN))
    assert (one.rule, one.severity, one.count, one.message) == (name, "warning", count, message)


def test_places_are_files_and_lines(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    written(tmp_path / "a", texts())
    rows = with_part("prÃ©vu", 20)
    (tmp_path / "b" / "whole.txt").write_text("A <p>whole</p> file is a document " + rows[0])
    config = CorpusConfig(
        [*written(tmp_path / "b", rows).sources, Source(str(tmp_path / "b")), Source(str(tmp_path / "a/*.jsonl"))],
        deduplicate=False,
    )
    (one,) = found(config)
    assert (one.rule, one.count) == ("broken-characters-in-corpus", 21)
    assert str(one.places[0]).startswith(f"{tmp_path}/b/0.jsonl:1: 'Ã©' in: ")
    assert [spot.line for spot in one.places[:3]] == [1, 21, 41] and len(one.places) == 20


def test_a_file_without_lines_has_a_place(tmp_path: Path) -> None:
    for number, text in enumerate(with_part("prÃ©vu", 50)):
        (tmp_path / f"{number}.txt").write_text(text)
    (one,) = found(CorpusConfig([Source(str(tmp_path))]))
    assert [(spot.path, spot.line) for spot in one.places] == [
        (str(tmp_path / f"{number}.txt"), None) for number in (0, 100, 150, 50)
    ]


def overlaps_by_sets(corpus: list[str], rows: list[str]) -> list[int]:
    """Texts of which a run of 13 words, or all 8 to 12, are in the corpus."""

    def runs(words: list[str], size: int) -> set[tuple[str, ...]]:
        return {tuple(words[at : at + size]) for at in range(len(words) - size + 1)}

    met = []
    for number, row in enumerate(rows):
        words = words_of_text(row)
        size = min(13, len(words))
        if size >= 8 and any(runs(words, size) & runs(words_of_text(text), size) for text in corpus):
            met.append(number)
    return met


def test_texts_of_a_test_set_are_found_as_by_sets_of_runs(tmp_path: Path) -> None:
    draw, corpus = random.Random(3), texts(60)
    rows = []
    for _ in range(150):
        words = words_of_text(draw.choice(corpus))
        start, size = draw.randrange(20), draw.randrange(5, 20)
        changed = words[start : start + size]
        if draw.random() < 0.4:
            changed[draw.randrange(len(changed))] = "anders"
        rows.append(" ".join(changed).upper() + "!")
    expected = overlaps_by_sets(corpus, rows)
    assert 40 < len(expected) < 130
    test = labelled(tmp_path, rows)
    config = written(tmp_path, corpus)
    scanned = scan_corpus(config, test)
    assert sorted(scanned.found_items) == expected
    num_searched = scanned.num_searched
    assert num_searched == sum(len(words_of_text(row)) >= 8 for row in rows)
    (one,) = found(config, test)
    assert one.rule == "labelled-text-in-corpus" and one.count == len(expected)
    assert one.message.startswith(f"{len(expected)} of {num_searched} texts of test with 8 words or more")
    assert [spot.line for spot in one.places] == [number + 1 for number in expected[:20]]
    assert one.places[0].text == rows[expected[0]]


def test_each_text_of_a_pair_is_searched_for(tmp_path: Path) -> None:
    corpus = texts(3)
    sides = [("These words stand nowhere in any text of the corpus.", " ".join(corpus[1].split()[:10])), ("A.", "B.")]
    pairs = [{"text": first, "text_pair": second, "label": "x"} for first, second in sides]
    (tmp_path / "test.jsonl").write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
    config = Classification(format=ClassificationFormat(text_pair_key="text_pair"))
    test, _ = read_checked(config, "test", tmp_path / "test.jsonl")
    (one,) = found(written(tmp_path, corpus), test)
    assert one.message.startswith("1 of 1 texts of test with 8 words or more occur in the corpus")
    assert [spot.line for spot in one.places] == [1]


def test_thresholds_of_the_user_take_the_place_of_ours(tmp_path: Path) -> None:
    corpus = scan_corpus(written(tmp_path, with_part("prÃ©vu", 40)))
    assert list(apply_rules(RULES, corpus, {"broken-characters-in-corpus": 0.03})) == []
    (one,) = apply_rules(RULES, corpus, {"broken-characters-in-corpus": 0.02})
    assert one.threshold == 0.02


def test_facts_are_counts(tmp_path: Path) -> None:
    config = written(tmp_path, [*texts(50), "short", texts()[0]], ["Прогноз инфляции на следующий год"])
    facts = corpus_facts(scan_corpus(config))
    assert facts["documents"] == 51
    assert facts["words"] == sum(len(words_of_text(text)) for text in texts(50)) + 5
    assert facts["dropped"] == {"exact duplicates": 1, "shorter than 20 characters": 1}
    assert [one["documents"] for one in facts["sources"]] == [50, 1]
    assert facts["characters"] == sum(map(len, texts(50))) + 33
    json.dumps(facts)


def test_lines_are_counted_in_bounded_memory() -> None:
    lines = RepeatedLines(max_lines=50)
    for number in range(1_000):
        lines.add(
            f"0:{number}",
            f"a line that all of them have\nline number {number} of its own\n\na line that all of them have",
        )
    (one,) = lines.lines_in_more_than(10)
    assert (one.text, one.first_document, one.documents) == ("a line that all of them have", "0:0", 1_000)


def test_every_rule_is_told_apart() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES) == 3


@pytest.mark.slow
def test_the_test_sentences_of_stance_stand_in_the_speeches(econ_data: Path) -> None:
    test, _ = read_checked(Classification(), "test", econ_data / "stance/test.jsonl")
    assert test is not None
    findings = found(CorpusConfig([Source(str(econ_data / "corpus.jsonl.gz"))]), test)
    assert {one.rule: one.count for one in findings} == {
        "labelled-text-in-corpus": 491,
        "repeated-lines": 15,
        "broken-characters-in-corpus": 244,
    }


def test_an_excerpt_is_bounded_and_counts_what_it_leaves(tmp_path: Path) -> None:
    config = written(tmp_path, texts(200), texts(100))
    whole = scan_corpus(config)
    size = sum(source.read_characters for source in whole.report.sources)
    part = scan_corpus(config, max_characters=size // 10)
    read = [source.read_characters for source in part.report.sources]
    assert all(read) and size // 20 < sum(read) <= size // 10 + 400
    assert [source.files_cut for source in part.report.sources] == [1, 1]
    (tmp_path / "0.jsonl").write_text("")
    config = CorpusConfig([Source(str(tmp_path / "0.jsonl")), *config.sources])
    assert corpus_facts(scan_corpus(config, max_characters=10 * size)) == corpus_facts(scan_corpus(config))
