from __future__ import annotations

import random

from domainbert.tokenization.kinds.wordpiece.kind import bert_backend
from domainbert.tokenization.words import WordCounter, normalized_words, plain_words

_DOCUMENTS = [f"document{number} " + "filler " * 100 for number in range(2000)]


def _sample(sample_bytes: int, documents: list[str]) -> tuple[WordCounter, set[str]]:
    counter = WordCounter(sample_bytes)
    for document in documents:
        counter.add(document)
    return counter, set(counter.words(str.split))


def test_the_sample_is_by_hash_and_of_the_size_asked() -> None:
    total = sum(map(len, _DOCUMENTS))
    everything, _ = _sample(total, _DOCUMENTS)
    assert (everything.documents, everything.bytes) == (2000, total)
    counter, words = _sample(total // 5, _DOCUMENTS)
    assert (counter.documents_read, counter.bytes_read) == (2000, total)
    assert total // 10 < counter.bytes <= total // 5
    assert counter.documents == len(words) - 1 == counter.words(str.split)["filler"] // 100
    assert _sample(total // 10, _DOCUMENTS)[1] < words


def test_the_sample_does_not_depend_on_the_order() -> None:
    shuffled = random.Random(0).sample(_DOCUMENTS, len(_DOCUMENTS))
    assert _sample(200_000, shuffled)[1] == _sample(200_000, _DOCUMENTS)[1]


def test_where_all_documents_are_larger_than_the_sample_some_are_kept() -> None:
    large = [f"once upon a time {number} " * 50 for number in range(30)]
    samples = [_sample(100, random.Random(seed).sample(large, len(large))) for seed in range(20)]
    assert len({(counter.documents, frozenset(words)) for counter, words in samples}) == 1
    assert 1 <= samples[0][0].documents < 30


def test_memory_is_bounded_and_what_is_forgotten_is_counted() -> None:
    counter = WordCounter(10**9, max_distinct=100)
    for number in range(1000):
        counter.add(f"often seen once{number}")
    words = counter.words(str.split)
    assert words["often"] == words["seen"] == 1000
    assert counter.forgotten + words.total() == 3000
    assert len(words) < 1000


def test_text_without_spaces_is_sampled_not_reduced_to_repeated_lines() -> None:
    counter = WordCounter(10**9, max_distinct=100)
    for number in range(4000):
        counter.add(f"\u4e00{number}" if number % 20 else "\u5b57\u5b57")
    assert 50 < counter.documents < 200 + 3800 / 20, "the copies of a document have one level"
    assert sum(counter.words(str.split).values()) == counter.documents, "no string of the sample is lost"
    assert counter.forgotten == 0


def test_a_tokenizer_may_have_no_normalizer_and_no_pre_tokenizer(make_tokenizer) -> None:
    backend = make_tokenizer().backend
    assert normalized_words(backend)("The bank\u00e9s'") == ["the", "bankes", "'"]
    backend.normalizer = None
    assert normalized_words(backend)("The bank\u00e9s'") == ["The", "bank\u00e9s", "'"]
    backend.pre_tokenizer = None
    assert normalized_words(backend)("The bank\u00e9s'") == ["The bank\u00e9s'"]


def test_words_are_those_of_the_tokenizer_or_plain() -> None:
    counter = WordCounter(10**6)
    counter.add("The\x00 bank's CAFÉ\n\n\tthe\u00a0bank, -- 中国 5%")
    uncased = normalized_words(bert_backend({}, {}))
    expected = {"the": 2, "bank": 2, "'": 1, "s": 1, "cafe": 1, ",": 1, "-": 2, "中": 1, "国": 1, "5": 1, "%": 1}
    assert counter.words(uncased) == expected
    plain = {"The\x00": 1, "the": 1, "bank": 2, "s": 1, "CAFÉ": 1, "中国": 1, "5": 1}
    assert counter.words(plain_words()) == plain
