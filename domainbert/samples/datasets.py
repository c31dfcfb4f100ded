"""The labelled sets and the raw corpus of one seed; no two of them share a sentence."""

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
"""Share of noun phrases and verbs in validation and test text that use held-out words."""
NER_RECALL = 0.7
"""Share of the other entities in validation and test text that also occur in the training text."""

CORPUS_RECALL = 0.1
"""Share of the corpus's entities that come from the NER sets, so that held-out ones occur there without labels."""

_ATTEMPTS = 1000


@dataclass(frozen=True)
class LabelledText:
    """A few sentences and the direction of their finding."""

    text: str
    label: Direction


class SampleData:
    """Generates the data of one seed. Generate the labelled sets first, because the corpus avoids their sentences.

    Args:
        seed: equal seeds give identical data.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._vocabulary = Vocabulary(seed)
        self._labelled: set[str] = set()
        self._entities: Memory = {}

    def ner(self, sentences: dict[str, int]) -> dict[str, list[Abstract]]:
        """Abstracts by split, with `sentences[split]` sentences in total; the last abstract may be cut short."""
        abstracts: dict[str, list[Abstract]] = {}
        memory: Memory | None = None
        for split in SPLITS:
            writer = self._writer(f"ner/{split}", split, memory)
            abstracts[split] = self._abstracts(writer, self._rng(f"ner/{split}/directions"), sentences[split])
            memory = writer.written if split == "train" else memory
            self._remember(writer.written)
        return abstracts

    def classification(self, texts: dict[str, int]) -> dict[str, list[LabelledText]]:
        """Texts by split, `texts[split]` each; the three directions are equally likely."""
        examples: dict[str, list[LabelledText]] = {}
        for split in SPLITS:
            part = f"classification/{split}"
            writer, rng = self._writer(part, split), self._rng(f"{part}/directions")
            examples[split] = [self._labelled_text(writer, rng) for _ in range(texts[split])]
        return examples

    def corpus(self, documents: int) -> Iterator[Abstract]:
        """Abstracts with a conclusion, from all words; generate the labelled sets before."""
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
        """A finding, often with text before or after it that does not affect the label."""
        writer.start()
        label = rng.choice(DIRECTIONS)
        rules = [*rng.choice(([], ["aim"], ["design"])), f"finding_{label}", *rng.choice(([], ["context"]))]
        sentences = [self._new_sentence(writer, rule, keep=True) for rule in rules]
        return LabelledText(" ".join(map(natural_text, sentences)), label)

    def _new_sentence(self, writer: Writer, rule: str, keep: bool = False) -> Sentence:
        """A sentence that is in no labelled set; `keep` adds it to the labelled sentences."""
        for _ in range(_ATTEMPTS):
            sentence = writer.sentence(rule)
            text = natural_text(sentence)
            if text not in self._labelled:
                if keep:
                    self._labelled.add(text)
                return sentence
        raise DomainbertError(f"no new sentence of rule {rule!r} in {_ATTEMPTS:,} attempts; expected a smaller size")


def entity_strings(abstracts: list[Abstract]) -> dict[str, list[str]]:
    """Lowercase words of all entity mentions by type, in order of appearance, with repetitions."""
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
    """Distinct (type, words) of `other` with held-out types, and the subset that does not occur in `train`."""
    in_train, in_other = (
        {
            (entity_type, words)
            for entity_type, strings in entity_strings(abstracts).items()
            if entity_type in HELD_OUT_TYPES
            for words in strings
        }
        for abstracts in (train, other)
    )
    return in_other, in_other - in_train
