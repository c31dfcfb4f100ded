"""A made-up treebank: short findings with their dependencies, in CoNLL-U."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import NamedTuple

from domainbert.samples.datasets import SPLITS, write_text
from domainbert.samples.vocabulary import Half, Vocabulary


class Word(NamedTuple):
    """A word of a tree; `head` counts words from 1, 0 is the root."""

    form: str
    tag: str
    head: int
    label: str


class TreeWriter:
    """Writes sentences as trees: a subject, a verb, an object or none, and phrases with a preposition."""

    def __init__(self, rng: Random, vocabulary: Vocabulary, half: Half) -> None:
        self._rng, self._vocabulary, self._half = rng, vocabulary, half
        self._domain = vocabulary.domains[0]
        self._words: list[Word] = []

    def sentence(self) -> list[Word]:
        """A sentence with its tree."""
        self._words, self._domain = [], self._rng.choice(self._vocabulary.domains)
        two_sided = self._rng.random() < 0.6
        subject = self._phrase(("intervention_quality", "instrument") if two_sided else ("outcome_quality", "gain"))
        verb = self._verb(self._rng.choice(("raised", "lowered") if two_sided else ("rose", "fell")))
        self._attach(subject, verb, "nsubj")
        if two_sided:
            self._attach(self._phrase(("outcome_quality", "gain")), verb, "obj")
        elif self._rng.random() < 0.7:
            self._with_preposition("after", ("intervention_quality", "instrument"), verb)
        if self._rng.random() < 0.5:
            self._with_preposition("among", ("population_quality", "people"), verb)
        self._words.append(Word(".", "PUNCT", verb, "punct"))
        first = self._words[0]
        self._words[0] = first._replace(form=first.form[0].upper() + first.form[1:])
        return self._words

    def _with_preposition(self, preposition: str, lists: tuple[str, str], verb: int) -> None:
        self._words.append(Word(preposition, "ADP", 0, "case"))
        place = len(self._words)
        head = self._phrase(lists)
        self._attach(place, head, "case")
        self._attach(head, verb, "obl")

    def _phrase(self, lists: tuple[str, str]) -> int:
        """Return the position of the head noun of a new phrase, its last word; the nouns before it depend on it."""
        quality, noun = lists
        parts = [("the", "DET", "det")] if self._rng.random() < 0.3 else []
        if self._rng.random() < 0.4:
            parts += [(word, "ADJ", "amod") for word in self._choose(quality)]
        if self._rng.random() < 0.4:
            parts += [(word, "NOUN", "compound") for word in self._choose("topic")]
        *before, last = self._choose(noun)
        parts += [(word, "NOUN", "compound") for word in before]
        place = len(self._words) + len(parts) + 1
        self._words += [Word(word, tag, place, label) for word, tag, label in parts]
        self._words.append(Word(last, "NOUN", 0, "dep"))
        return place

    def _verb(self, name: str) -> int:
        """Place of a new verb, the root; what belongs to it ("went up") follows."""
        verb, *particles = self._choose(name)
        self._words.append(Word(verb, "VERB", 0, "root"))
        place = len(self._words)
        self._words += [Word(word, "ADP", place, "compound:prt") for word in particles]
        return place

    def _attach(self, place: int, head: int, label: str) -> None:
        self._words[place - 1] = self._words[place - 1]._replace(head=head, label=label)

    def _choose(self, name: str) -> list[str]:
        return self._rng.choice(self._vocabulary.words(name, self._domain, self._half)).split()


def treebank(seed: int, sentences: dict[str, int]) -> dict[str, list[list[Word]]]:
    """`sentences[split]` trees by split; training has the familiar half of the words."""
    vocabulary = Vocabulary(seed)
    halves: dict[str, Half] = {split: "familiar" if split == "train" else "all" for split in SPLITS}
    writers = {split: TreeWriter(Random(f"{seed}/trees/{split}"), vocabulary, halves[split]) for split in SPLITS}
    return {split: [writers[split].sentence() for _ in range(sentences[split])] for split in SPLITS}


def write_conllu(path: Path, trees: Iterable[Iterable[Word]]) -> None:
    """Write trees as CoNLL-U: form, universal tag, head and relation; the other columns are empty."""
    blocks = [
        "".join(
            f"{number}\t{word.form}\t_\t{word.tag}\t_\t_\t{word.head}\t{word.label}\t_\t_\n"
            for number, word in enumerate(tree, start=1)
        )
        for tree in trees
    ]
    write_text(path, "\n".join(blocks) + "\n")
