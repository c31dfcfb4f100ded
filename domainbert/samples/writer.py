"""Writes abstracts: expands the rules of `grammar.yaml` with the words of a `Vocabulary`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from random import Random
from typing import Literal, NamedTuple

from domainbert.samples.vocabulary import Half, Vocabulary, read_data_file

Direction = Literal["positive", "negative", "null"]
DIRECTIONS: tuple[Direction, ...] = ("positive", "negative", "null")

HELD_OUT_TYPES: frozenset[str] = frozenset({"intervention", "outcome", "population"})
"""Entity types whose words in validation and test text may not occur in training text."""

_CHOICE = re.compile(r"<([^<>]*)>")
_CLOSING = ",.;:)%'"  # no space before them
_REPEAT_SUBJECT = 0.5  # probability that a subject of the abstract is repeated, not a new phrase
_SAME_DOMAIN = 0.7  # probability that a phrase uses words of the abstract's domain

# Parts of an abstract before its conclusion: rule, smallest and largest number of sentences.
_PARTS = (("background", 1, 2), ("aim", 1, 1), ("design", 1, 3), ("finding_{direction}", 1, 2), ("context", 1, 2))

# Functions that return a random number as text, by name in the grammar.
_NUMBERS: dict[str, Callable[[Random], str]] = {
    "decimal": lambda rng: f"{rng.randint(2, 99) / 100:.2f}",
    "small": lambda rng: f"{rng.randint(1, 900) / 1000:.3f}",
    "number": lambda rng: f"{rng.randint(2, 60)}" if rng.random() < 0.5 else f"{rng.randint(11, 480) / 10:.1f}",
    "low": lambda rng: f"{rng.randint(2, 19)}",
    "high": lambda rng: f"{rng.randint(20, 60)}",
    "interval": lambda rng: f"{rng.randint(2, 40) / 100:.2f} to {rng.randint(41, 99) / 100:.2f}",
    "amount": lambda rng: f"{rng.randint(2, 90)}",
    "count": lambda rng: f"{rng.randint(40, 9900):,}",
    "year": lambda rng: f"{rng.randint(1994, 2023)}",
}


class Token(NamedTuple):
    """A word and its IOB2 tag."""

    word: str
    tag: str


class WordSource(NamedTuple):
    """Where the words of a phrase come from: the lists of a domain, and a half of each list."""

    domain: str
    half: Half


Sentence = list[Token]
Memory = dict[str, list[Sentence]]
"""Tokens of phrases by the name of their rule."""


class Writer:
    """Writes abstracts and their parts.

    Args:
        rng: random number generator for all choices.
        vocabulary: the words.
        held_out_share: share of noun phrases with held-out words; None draws from all words.
        memory: entities of other texts, by rule, which this text may repeat.
        recall: share of the mentions without held-out words that repeat an entity of `memory`.

    Attributes:
        entities: all entities of `HELD_OUT_TYPES` that have been written, by rule, with repetitions.
    """

    def __init__(
        self,
        rng: Random,
        vocabulary: Vocabulary,
        held_out_share: float | None,
        memory: Memory | None = None,
        recall: float = 1.0,
    ) -> None:
        self._rng, self._vocabulary = rng, vocabulary
        self._held_out_share, self._memory, self._recall = held_out_share, memory or {}, recall
        self._grammar = read_data_file("grammar.yaml")
        self.entities: Memory = defaultdict(list)
        self._domain = vocabulary.domains[0]  # until `start_abstract` chooses a domain
        self._subjects: dict[str, Sentence] = {}  # of the current abstract, by rule
        self._mentioned_subjects: set[str] = set()  # rules of the subjects in the current sentence

    def start_abstract(self) -> None:
        """Begin an abstract: choose a domain and clear the subjects."""
        self._domain = self._rng.choice(self._vocabulary.domains)
        self._subjects = {}

    def write_sentence(self, rule: str) -> Sentence:
        """Return a sentence of the rule for the current abstract, with a capital letter at the start."""
        self._mentioned_subjects = set()
        first, *others = self._expand_name(rule)
        return [Token(first.word[0].upper() + first.word[1:], first.tag), *others]

    def sentence_rules(self, direction: Direction) -> Iterator[str]:
        """Yield the rule of each sentence of an abstract, in order; the last sentence states the direction."""
        for rule, min_sentences, max_sentences in _PARTS:
            yield from [rule.format(direction=direction)] * self._rng.randint(min_sentences, max_sentences)
        yield f"conclusion_{direction}"

    def _expand_name(self, name: str, source: WordSource | None = None) -> Sentence:
        """Return the tokens for a name in the grammar: a number, rule or list of words; in a phrase, from `source`."""
        if name in _NUMBERS:
            return _untagged(_NUMBERS[name](self._rng))
        if name in self._grammar["sentences"]:
            return self._expand_rule(self._rng.choice(self._grammar["sentences"][name]), source)
        return self._write_phrase(name) if source is None else self._compose_phrase(name, source)

    def _write_phrase(self, name: str) -> Sentence:
        """Return a noun phrase or verb of the rule `name`, with its tags.

        By chance this is a subject of an earlier sentence of the abstract that this sentence does not mention yet.
        Another phrase is recorded as subject if its rule is one, and as entity if its type is in `HELD_OUT_TYPES`.
        """
        is_repeatable = name in self._subjects and name not in self._mentioned_subjects
        if is_repeatable and self._rng.random() < _REPEAT_SUBJECT:
            self._mentioned_subjects.add(name)
            return self._subjects[name]

        half = self._choose_half()
        same_domain = self._rng.random() < _SAME_DOMAIN
        domain = self._domain if same_domain else self._rng.choice(self._vocabulary.domains)
        entity_type = self._grammar["labels"].get(name)
        tokens = self._recall_entity(name, half) or self._compose_phrase(name, WordSource(domain, half))
        tokens = _tagged(tokens, entity_type)

        if name in self._grammar["subjects"] and name not in self._subjects:
            self._subjects[name] = tokens
            self._mentioned_subjects.add(name)
        if entity_type in HELD_OUT_TYPES:
            self.entities[name].append(tokens)
        return tokens

    def _choose_half(self) -> Half:
        if self._held_out_share is None:
            return "all"
        return "held_out" if self._rng.random() < self._held_out_share else "familiar"

    def _recall_entity(self, name: str, half: Half) -> Sentence | None:
        if half == "held_out" or name not in self._memory or self._rng.random() >= self._recall:
            return None
        return self._rng.choice(self._memory[name])

    def _compose_phrase(self, name: str, source: WordSource) -> Sentence:
        if name in self._grammar["phrases"]:
            return self._expand_rule(self._rng.choice(self._grammar["phrases"][name]), source)
        return _untagged(self._rng.choice(self._vocabulary.words(name, *source)))

    def _expand_rule(self, rule: str, source: WordSource | None) -> Sentence:
        """Return the tokens of a rule: make its choices `<a|b>`, and expand each `{name}`."""
        while "<" in rule:  # innermost choices first: a choice may contain choices
            rule = _CHOICE.sub(lambda match: self._rng.choice(match[1].split("|")), rule)
        tokens: Sentence = []
        for word in rule.split():
            is_name = word[0] == "{" and word[-1] == "}"
            tokens += self._expand_name(word[1:-1], source) if is_name else [Token(word, "O")]
        return tokens


def _untagged(text: str) -> Sentence:
    return [Token(word, "O") for word in text.split()]


def _tagged(tokens: Sentence, label: str | None) -> Sentence:
    if label is None:
        return tokens
    return [Token(token.word, f"{'I' if index else 'B'}-{label}") for index, token in enumerate(tokens)]


def natural_text(sentence: Sentence) -> str:
    """Return the words of a sentence as text, without spaces before commas and inside brackets.

    >>> natural_text([Token(word, "O") for word in "Fees fell ( 12 % ) .".split()])
    'Fees fell (12%).'
    """
    return text_with_offsets(sentence)[0]


def text_with_offsets(sentence: Sentence) -> tuple[str, list[tuple[int, int]]]:
    """Return the text of a sentence, without spaces before commas and inside brackets, and the character offsets
    (start, end) of each word."""
    text, offsets = "", []
    for token in sentence:
        if text and token.word[0] not in _CLOSING and not text.endswith("("):
            text += " "
        offsets.append((len(text), len(text) + len(token.word)))
        text += token.word
    return text, offsets
