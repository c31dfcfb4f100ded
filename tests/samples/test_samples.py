from __future__ import annotations

import re
from collections import Counter
from random import Random

import pytest

from domainbert.samples.datasets import SPLITS, SampleData, entity_strings, unseen_strings
from domainbert.samples.vocabulary import NAME_COUNTS, Vocabulary, read_data_file
from domainbert.samples.writer import Token, Writer, natural_text, text_with_offsets

SIZES = {"train": 600, "validation": 100, "test": 400}


@pytest.fixture(scope="module")
def data() -> SampleData:
    return SampleData(seed=3)


@pytest.fixture(scope="module")
def ner(data):
    return data.ner(SIZES)


@pytest.fixture(scope="module")
def corpus(data, ner):
    return list(data.corpus(500))


def test_no_word_of_the_lexicons_has_two_meanings():
    data = read_data_file("words.yaml")
    lists = [words for part in (data["general"], *data["domains"].values()) for words in part.values()]
    counts = Counter(word for words in lists for word in words.split(", "))
    assert [word for word, count in counts.items() if count > 1] == []
    assert len(counts) > 950


def test_every_rule_can_be_written():
    writer = Writer(Random(0), Vocabulary(0), None)
    writer.start_abstract()
    grammar = read_data_file("grammar.yaml")
    parts = ("background", "aim", "design", "context", "finding")
    rules = [rule for rule in grammar["sentences"] if rule.split("_")[0] in parts]
    for rule in rules * 300:
        sentence = writer.write_sentence(rule)
        assert not any(character in token.word for token in sentence for character in "{}<>|")
    assert len(rules) == 7
    assert set(grammar["subjects"]) - set(grammar["phrases"]) <= set(NAME_COUNTS)
    assert set(grammar["labels"]) <= set(grammar["phrases"])


def test_halves_and_names_do_not_overlap():
    vocabulary = Vocabulary(0)
    familiar, held_out, both = (vocabulary.words("gain", "health", half) for half in ("familiar", "held_out", "all"))
    assert set(familiar) | set(held_out) == set(both) and not set(familiar) & set(held_out)
    names = [name for kind in NAME_COUNTS for name in vocabulary.words(kind, "health", "all")]
    assert len(names) == len(set(names)) == sum(NAME_COUNTS.values())


def test_sizes_and_tags(ner):
    assert {split: sum(map(len, abstracts)) for split, abstracts in ner.items()} == SIZES
    for sentence in (sentence for abstracts in ner.values() for abstract in abstracts for sentence in abstract):
        for before, token in zip(["O", *(token.tag for token in sentence)], sentence, strict=False):
            assert not token.tag.startswith("I-") or before[2:] == token.tag[2:]
    types = {entity_type for entity_type, _ in entity_strings(ner["train"])}
    assert types == {"intervention", "outcome", "population", "coreference", "effect_size"}


def test_no_sentence_in_two_splits_or_in_the_corpus(data, ner, corpus):
    labelled = [natural_text(sentence) for split in SPLITS for abstract in ner[split] for sentence in abstract]
    texts = [example.text for examples in data.classification(SIZES).values() for example in examples]
    raw = {natural_text(sentence) for abstract in corpus for sentence in abstract}
    assert len(labelled) == len(set(labelled)) and len(texts) == len(set(texts))
    assert not raw & set(labelled)


def test_test_entities_are_mostly_unseen_but_in_the_corpus(ner, corpus):
    strings, unseen = unseen_strings(ner["train"], ner["test"])
    raw = set(entity_strings(corpus))
    assert 0.5 < len(unseen) / len(strings) < 0.8
    words, raw_words = ({word for _, text in found for word in text.split()} for found in (unseen, raw))
    assert len(words - raw_words) / len(words) < 0.05


def test_one_noun_is_an_outcome_and_part_of_another_entity(corpus):
    found = entity_strings(corpus)
    outcomes, interventions = ({text for kind, text in found if kind == name} for name in ("outcome", "intervention"))
    ends = {text.split()[-1] for text in outcomes}
    inside = {word for text in interventions for word in text.split()[:-1]}
    assert len(ends & inside) > 50
    assert len(outcomes & interventions) >= 20


def test_a_most_frequent_tag_is_far_from_enough(ner):
    """Words alone do not solve the task: a tag a word gets most entities wrong, even for words of the training text."""
    counts: dict[str, Counter[str]] = {}
    for token in (token for abstract in ner["train"] for sentence in abstract for token in sentence):
        counts.setdefault(token.word.lower(), Counter())[token.tag] += 1
    total = right = 0
    for sentence in (sentence for abstract in ner["test"] for sentence in abstract):
        known = [counts.get(token.word.lower()) for token in sentence]
        guess = [found.most_common(1)[0][0] if found else "O" for found in known]
        for token, tag in zip(sentence, guess, strict=True):
            total += token.tag != "O"
            right += token.tag != "O" and token.tag == tag
    assert 0.2 < right / total < 0.6


def test_no_frequent_word_tells_a_positive_from_a_negative_finding():
    texts = SampleData(1).classification({"train": 3000, "validation": 1, "test": 1})["train"]
    assert min(Counter(example.label for example in texts).values()) > 900
    counts: dict[str, Counter[str]] = {}
    for example in texts:
        for word in set(re.findall(r"[a-z]+", example.text.lower())):
            counts.setdefault(word, Counter())[example.label] += 1
    frequent = {word: found for word, found in counts.items() if found["positive"] + found["negative"] >= 80}
    shares = {word: found["positive"] / (found["positive"] + found["negative"]) for word, found in frequent.items()}
    assert len(shares) > 50 and {"not", "although", "fears"} <= set(shares)
    assert {word: share for word, share in shares.items() if not 0.25 < share < 0.75} == {}


def test_natural_text():
    words = ["Smallholders", "'", "vouchers", "(", "12", "%", ";", "SD", ")", "helped", ",", "it", "seems", "."]
    assert natural_text([Token(word, "O") for word in words]) == "Smallholders' vouchers (12%; SD) helped, it seems."


def test_places_of_words_are_those_of_the_natural_text(corpus):
    for sentence in (sentence for abstract in corpus[:100] for sentence in abstract):
        text, offsets = text_with_offsets(sentence)
        assert text == re.sub(r" (?=[,.;:)%'])|(?<=\() ", "", " ".join(token.word for token in sentence))
        assert [text[start:end] for start, end in offsets] == [token.word for token in sentence]
