"""Languages of a corpus: their shares by the formula, and settings that contradict each other."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from domainbert.corpus.config import CorpusConfig, Select, Source
from domainbert.corpus.documents import read_documents
from domainbert.corpus.languages import Languages
from tests.refusals import refused


def test_shares_are_those_of_the_formula() -> None:
    """0.9^0.3 = 0.96888, 0.09^0.3 = 0.48559, 0.01^0.3 = 0.25119; their sum is 1.70566."""
    shares = Languages(0.3).shares({"en": 900, "fr": 90, "sw": 10})
    assert shares.sampled == pytest.approx({"en": 0.56804, "fr": 0.28469, "sw": 0.14727}, abs=5e-5)
    assert shares.lines("tokens")[2] == "language sw: 10 tokens, 1.00% of the corpus, 14.73% after sampling"
    assert shares.as_dict("bytes")["fr"] == {"bytes": 90, "share_read": shares.sampled["fr"]}


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=30), st.floats(0, 1))
@example([100_000_000, 1, 650], 1.0)
def test_alpha_lies_between_the_text_and_equality(sizes: list[int], alpha: float) -> None:
    named = {f"l{number}": size for number, size in enumerate(sizes)}
    found = list(Languages(alpha).shares(named).sampled.values())
    assert math.fsum(found) == pytest.approx(1)
    assert [share / found[0] for share in found] == pytest.approx(
        [(size / sizes[0]) ** alpha for size in sizes], rel=1e-6
    )
    whole = list(Languages(1.0).shares(named).sampled.values())
    assert whole == pytest.approx([size / sum(sizes) for size in sizes])
    assert list(Languages(0.0).shares(named).sampled.values()) == pytest.approx([1 / len(sizes)] * len(sizes))


def test_a_language_without_text_and_an_alpha_out_of_range_are_refused() -> None:
    with refused(where="corpus.languages", problem="no training text in 'sw', 'yo'"):
        Languages(0.3).shares({"en": 5, "sw": 0, "yo": 0})
    for alpha in (-0.1, 1.5, math.nan):
        with refused(where="alpha", expected="a number from 0 to 1"):
            Languages(alpha)


def test_languages_and_sources_have_to_fit() -> None:
    french = Source("fr.txt", language="fr")
    CorpusConfig([french], languages=Languages(1.0))
    with refused(where="sources[0].language", found="'fr' without languages"):
        CorpusConfig([french])
    with refused(where="sources[1].language", problem="missing with languages"):
        CorpusConfig([french, Source("en.txt")], languages=Languages(0.3))
    heavy = Source("en.txt", language="en", weight=2.0)
    with refused(where="sources[1].weight", found="2 next to languages, which sets..."):
        CorpusConfig([french, heavy], languages=Languages(0.3))
    with refused(where="like[0].language", found="'fr'"):
        Select([french], 0.5)
    for name in ("", "fr/ca", "a b"):
        with refused(where="language", expected="letters, digits, - and _..."):
            Source("fr.txt", language=name)


def test_a_document_has_the_language_of_the_source_that_has_it_first(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("les taux d\u2019int\u00e9r\u00eat ont mont\u00e9\nthe same line in both files\n")
    (tmp_path / "b.txt").write_text("the same line in both files\ninterest rates have risen\n")
    sources = [Source(str(tmp_path / f"{name}.txt"), documents="line", language=name) for name in "ab"]
    config = CorpusConfig(sources, languages=Languages(0.3))
    assert [document.language for document in read_documents(config)] == ["a", "a", "b"]
    assert config.language_names == ["a", "b"]
    assert config.language_shares({"a": 1, "b": 1}) == Languages(0.3).shares({"a": 1, "b": 1})
