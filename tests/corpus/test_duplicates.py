import random

import pytest

from domainbert.corpus.duplicates import ExactDuplicates, NearDuplicates


def test_exact_duplicates_are_found_in_a_cache_smaller_than_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("domainbert.corpus.duplicates._CACHE_KIB", 64)
    digests = [random.Random(number % 15_000).randbytes(16) for number in range(20_000)]
    with ExactDuplicates() as exact:
        assert [exact.add_if_new(digest) for digest in digests] == [number < 15_000 for number in range(20_000)]


def test_near_duplicates_are_those_above_the_threshold() -> None:
    pytest.importorskip("datasketch", reason="the extra near-duplicates is not installed")
    generator = random.Random(0)
    words = [f"word{generator.randrange(5_000)}" for _ in range(400)]
    close = [*words[:200], "changed", *words[201:]]  # 5 of 396 five-word runs differ: similarity 391 / 401
    far = words[:200] + words[:100:-1]  # half of the runs are shared: similarity near 0.4
    with NearDuplicates(0.8) as near:
        answers = [near.add_if_new(" ".join(text)) for text in (words, words, close, far, far[::-1])]
    assert answers == [True, False, False, True, True]
    chinese = [chr(0x4E00 + generator.randrange(5_000)) for _ in range(400)]  # without spaces
    with NearDuplicates(0.8) as near:
        assert [near.add_if_new("".join(text)) for text in (chinese, [*chinese[:399], "x"])] == [True, False]
    with NearDuplicates(1.0) as equal:
        assert [equal.add_if_new(" ".join(text)) for text in (words, close, words)] == [True, True, False]
