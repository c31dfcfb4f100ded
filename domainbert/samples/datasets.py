"""The labelled sets and the raw corpus of one run, no sentence of one in another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from domainbert.base.errors import DomainbertError
from domainbert.samples.grammar import HELD_OUT_TYPES
from domainbert.samples.vocabulary import Vocabulary
from domainbert.samples.writer import DIRECTIONS, Direction, Memory, Sentence, Writer, natural_text

Abstract = list[Sentence]

SPLITS = ("train", "validation", "test")
HELD_OUT_SHARE = {"ner": 0.5, "classification": 0.3}
"""Share of noun phrases and verbs in validation and test text that are written with held-out words."""
NER_RECALL = 0.7
"""Share of the other entities in validation and test text that are entities of the training text."""

CORPUS_RECALL = 0.1
"""Share of the corpus's entities that are entities of the NER sets, so that held-out ones occur there, unlabelled."""

_ATTEMPTS = 1000


@dataclass(frozen=True)
class LabelledText:
    """A few sentences and the direction of what they report."""

    text: str
    label: Direction


class SampleData:
    """All data that belong to one seed. Labelled sets come first: the corpus avoids their sentences.

    Args:
        seed: the same seed gives the same data, to the byte.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._vocabulary = Vocabulary(seed)
        self._labelled: set[str] = set()
        self._entities: Memory = {}

    def ner(self, sentences: dict[str, int]) -> dict[str, list[Abstract]]:
        """Abstracts by split, `sentences[split]` sentences in all (the last abstract ends where that is reached)."""
        abstracts: dict[str, list[Abstract]] = {}
        memory: Memory | None = None
        for split in SPLITS:
            writer = self._writer(f"ner/{split}", split, memory)
            abstracts[split] = self._abstracts(writer, self._rng(f"ner/{split}/directions"), sentences[split])
            memory = writer.written if split == "train" else memory
            self._remember(writer.written)
        return abstracts

    def classification(self, texts: dict[str, int]) -> dict[str, list[LabelledText]]:
        """`texts[split]` texts by split, the three directions equally likely."""
        examples: dict[str, list[LabelledText]] = {}
        for split in SPLITS:
            writer, rng = (
                self._writer(f"classification/{split}", split),
                self._rng(f"classification/{split}/directions"),
            )
            examples[split] = [self._labelled_text(writer, rng) for _ in range(texts[split])]
        return examples

    def corpus(self, documents: int) -> Iterator[Abstract]:
        """Abstracts with a conclusion and all words; make the labelled sets before."""
        writer = Writer(self._rng("corpus"), self._vocabulary, None, self._entities, CORPUS_RECALL)
        rng = self._rng("corpus/directions")
        for _ in range(documents):
            writer.start()
            yield [self._new_sentence(writer, rule) for rule in writer.plan(rng.choice(DIRECTIONS), conclude=True)]

    def _remember(self, written: Memory) -> None:
        for rule, entities in written.items():
            self._entities.setdefault(rule, []).extend(entities)

    def _rng(self, part: str) -> Random:
        return Random(f"{self._seed}/{part}")

    def _writer(self, part: str, split: str, memory: Memory | None = None) -> Writer:
        share = 0.0 if split == "train" else HELD_OUT_SHARE[part.split("/")[0]]
        return Writer(self._rng(part), self._vocabulary, share, memory, NER_RECALL)

    def _abstracts(self, writer: Writer, rng: Random, sentences: int) -> list[Abstract]:
        abstracts: list[Abstract] = []
        missing = sentences
        while missing:
            writer.start()
            rules = list(writer.plan(rng.choice(DIRECTIONS), conclude=True))[:missing]
            abstracts.append([self._new_sentence(writer, rule, keep=True) for rule in rules])
            missing -= len(rules)
        return abstracts

    def _labelled_text(self, writer: Writer, rng: Random) -> LabelledText:
        """A finding, usually with text before or after it that does not affect the label."""
        writer.start()
        label = rng.choice(DIRECTIONS)
        rules = [*rng.choice(([], ["aim"], ["design"])), f"finding_{label}", *rng.choice(([], ["context"]))]
        sentences = [self._new_sentence(writer, rule, keep=True) for rule in rules]
        return LabelledText(" ".join(map(natural_text, sentences)), label)

    def _new_sentence(self, writer: Writer, rule: str, keep: bool = False) -> Sentence:
        """A sentence that no labelled set holds; with `keep` it is then part of one."""
        for _ in range(_ATTEMPTS):
            sentence = writer.sentence(rule)
            text = natural_text(sentence)
            if text not in self._labelled:
                if keep:
                    self._labelled.add(text)
                return sentence
        raise DomainbertError(f"no new sentence of the kind {rule!r} in {_ATTEMPTS:,} attempts; ask for fewer")


def entity_strings(abstracts: list[Abstract]) -> dict[str, list[str]]:
    """Every entity's words by type, lowercase, in order of appearance, repeated as they recur."""
    strings: dict[str, list[str]] = {}
    for sentence in (sentence for abstract in abstracts for sentence in abstract):
        for start, token in enumerate(sentence):
            if token.tag.startswith("B-"):
                stop = start + 1
                while stop < len(sentence) and sentence[stop].tag.startswith("I-"):
                    stop += 1
                words = " ".join(token.word for token in sentence[start:stop])
                strings.setdefault(token.tag[2:], []).append(words.lower())
    return strings


def unseen_strings(train: list[Abstract], other: list[Abstract]) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Distinct (type, words) of `other` of the types that are held out, and those of them that `train` lacks."""
    of_train, of_other = (
        {
            (kind, words)
            for kind, found in entity_strings(abstracts).items()
            if kind in HELD_OUT_TYPES
            for words in found
        }
        for abstracts in (train, other)
    )
    return of_other, of_other - of_train
