"""Writes abstracts: expands the rules of `grammar.py` with the words of a `Vocabulary`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from random import Random
from typing import Literal, NamedTuple

from domainbert.samples.grammar import HELD_OUT_TYPES, LABELS, MAIN, PHRASES, SENTENCES
from domainbert.samples.vocabulary import Half, Vocabulary

Direction = Literal["positive", "negative", "null"]
DIRECTIONS: tuple[Direction, ...] = ("positive", "negative", "null")

_CHOICE = re.compile(r"<([^<>]*)>")
_CLOSING = ",.;:)%'"  # no space before them
_REPEAT_SUBJECT = 0.5
_SAME_DOMAIN = 0.7

# Parts of an abstract: rule, least and largest number of sentences.
_BEFORE = (("background", 1, 2), ("aim", 1, 1), ("design", 1, 3))
_AFTER = (("context", 1, 2),)

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


Sentence = list[Token]
Memory = dict[str, list[Sentence]]


class Writer:
    """Writes abstracts and their parts.

    Args:
        rng: random number generator for all choices.
        vocabulary: the words.
        held_out_share: share of noun phrases with held-out words; None draws from all words.
        memory: entities of other texts, by rule, which this text may repeat.
        recall: share of the mentions without held-out words that repeat an entity of `memory`.
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
        self.written: Memory = defaultdict(list)
        self._domain = self._phrase_domain = vocabulary.domains[0]
        self._half: Half | None = None
        self._main: Memory = {}
        self._mentioned: set[str] = set()

    def start(self) -> None:
        """Begin an abstract: choose a domain and clear the subjects."""
        self._domain = self._rng.choice(self._vocabulary.domains)
        self._main = {}

    def sentence(self, rule: str) -> Sentence:
        """A sentence of the rule for the current abstract."""
        self._mentioned = set()
        first, *rest = self._symbol(rule)
        return [Token(first.word[0].upper() + first.word[1:], first.tag), *rest]

    def plan(self, direction: Direction, conclude: bool) -> Iterator[str]:
        """Rules of the sentences of an abstract, in order."""
        for rule, least, most in _BEFORE:
            yield from [rule] * self._rng.randint(least, most)
        yield from [f"finding_{direction}"] * self._rng.randint(1, 2)
        for rule, least, most in _AFTER:
            yield from [rule] * self._rng.randint(least, most)
        if conclude:
            yield f"conclusion_{direction}"

    def _symbol(self, name: str) -> Sentence:
        if name in _NUMBERS:
            return _outside(_NUMBERS[name](self._rng))
        if name in SENTENCES:
            return self._expand(self._rng.choice(SENTENCES[name]))
        if self._half is not None:
            return self._compose(name)
        return self._mention(name)

    def _mention(self, name: str) -> Sentence:
        """A noun phrase or verb; subjects of the abstract may be repeated, once per sentence."""
        if name in self._main and name not in self._mentioned and self._rng.random() < _REPEAT_SUBJECT:
            self._mentioned.add(name)
            return self._main[name][0]
        self._half = self._choose_half()
        same_domain = self._rng.random() < _SAME_DOMAIN
        self._phrase_domain = self._domain if same_domain else self._rng.choice(self._vocabulary.domains)
        tokens = _tagged(self._from_memory(name) or self._compose(name), LABELS.get(name))
        self._half = None
        if name in MAIN and name not in self._main:
            self._main[name] = [tokens]
            self._mentioned.add(name)
        if LABELS.get(name) in HELD_OUT_TYPES:
            self.written[name].append(tokens)
        return tokens

    def _choose_half(self) -> Half:
        if self._held_out_share is None:
            return "all"
        return "held_out" if self._rng.random() < self._held_out_share else "familiar"

    def _from_memory(self, name: str) -> Sentence | None:
        if self._half == "held_out" or name not in self._memory or self._rng.random() >= self._recall:
            return None
        return self._rng.choice(self._memory[name])

    def _compose(self, name: str) -> Sentence:
        if name in PHRASES:
            return self._expand(self._rng.choice(PHRASES[name]))
        words = self._vocabulary.words(name, self._phrase_domain, self._half or "all")
        if words is None:
            raise KeyError(f"the grammar uses {name!r}; expected the name of a rule or of a list of words")
        return _outside(self._rng.choice(words))

    def _expand(self, rule: str) -> Sentence:
        while "<" in rule:
            rule = _CHOICE.sub(lambda match: self._rng.choice(match[1].split("|")), rule)
        tokens: Sentence = []
        for word in rule.split():
            tokens += self._symbol(word[1:-1]) if word[0] == "{" and word[-1] == "}" else [Token(word, "O")]
        return tokens


def _outside(text: str) -> Sentence:
    return [Token(word, "O") for word in text.split()]


def _tagged(tokens: Sentence, label: str | None) -> Sentence:
    if label is None:
        return tokens
    return [Token(token.word, f"{'I' if index else 'B'}-{label}") for index, token in enumerate(tokens)]


def natural_text(sentence: Sentence) -> str:
    """Join words to a text without spaces before commas and inside brackets.

    >>> natural_text([Token(word, "O") for word in "Fees fell ( 12 % ) .".split()])
    'Fees fell (12%).'
    """
    return text_with_offsets(sentence)[0]


def text_with_offsets(sentence: Sentence) -> tuple[str, list[tuple[int, int]]]:
    """Text as from `natural_text`, and start and end (exclusive) of each word in its characters."""
    text, offsets = "", []
    for token in sentence:
        if text and token.word[0] not in _CLOSING and not text.endswith("("):
            text += " "
        offsets.append((len(text), len(text) + len(token.word)))
        text += token.word
    return text, offsets
