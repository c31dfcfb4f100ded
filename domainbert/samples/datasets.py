"""The labelled sets and the raw corpus of one seed, and their files; no two of them share a sentence."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, takewhile
from pathlib import Path
from random import Random
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.samples.vocabulary import Vocabulary
from domainbert.samples.writer import DIRECTIONS, HELD_OUT_TYPES, Direction, Memory, Sentence, Writer, natural_text

Abstract = list[Sentence]
"""The sentences of one synthetic abstract."""

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
    """A text of a few sentences; its label is the direction of their finding."""

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
        self._labelled_sentences: set[str] = set()
        self._ner_entities: Memory = {}

    def ner(self, num_sentences: dict[str, int]) -> dict[str, list[Abstract]]:
        """Return abstracts by split, with `num_sentences[split]` sentences in total; the last abstract of a split may
        be cut short."""
        abstracts: dict[str, list[Abstract]] = {}
        train_entities: Memory | None = None
        for split in SPLITS:
            writer = self._writer("ner", split, train_entities)
            abstracts[split] = self._abstracts(writer, self._rng(f"ner/{split}/directions"), num_sentences[split])
            if split == "train":
                train_entities = writer.entities  # which validation and test may repeat
            for rule, entities in writer.entities.items():
                self._ner_entities.setdefault(rule, []).extend(entities)
        return abstracts

    def classification(self, num_texts: dict[str, int]) -> dict[str, list[LabelledText]]:
        """Return `num_texts[split]` labelled texts by split; the three directions are equally likely."""
        examples: dict[str, list[LabelledText]] = {}
        for split in SPLITS:
            writer = self._writer("classification", split)
            rng = self._rng(f"classification/{split}/directions")
            examples[split] = [self._labelled_text(writer, rng) for _ in range(num_texts[split])]
        return examples

    def corpus(self, num_documents: int) -> Iterator[Abstract]:
        """Yield abstracts with words of both halves; call it after `ner` and `classification`."""
        memory = self._ner_entities
        writer = Writer(self._rng("corpus"), self._vocabulary, held_out_share=None, memory=memory, recall=CORPUS_RECALL)
        rng = self._rng("corpus/directions")
        for _ in range(num_documents):
            writer.start_abstract()
            yield [self._new_sentence(writer, rule) for rule in writer.sentence_rules(rng.choice(DIRECTIONS))]

    def _rng(self, part: str) -> Random:
        return Random(f"{self._seed}/{part}")

    def _writer(self, task: str, split: str, memory: Memory | None = None) -> Writer:
        # only validation and test text has held-out words
        held_out_share = 0.0 if split == "train" else HELD_OUT_SHARE[task]
        return Writer(self._rng(f"{task}/{split}"), self._vocabulary, held_out_share, memory, NER_RECALL)

    def _abstracts(self, writer: Writer, rng: Random, num_sentences: int) -> list[Abstract]:
        abstracts: list[Abstract] = []
        while num_sentences:
            writer.start_abstract()
            rules = list(writer.sentence_rules(rng.choice(DIRECTIONS)))[:num_sentences]
            abstracts.append([self._new_sentence(writer, rule, is_labelled=True) for rule in rules])
            num_sentences -= len(rules)
        return abstracts

    def _labelled_text(self, writer: Writer, rng: Random) -> LabelledText:
        """Return a finding with its direction as the label, often with a sentence before or after it that does not
        affect the label."""
        writer.start_abstract()
        label = rng.choice(DIRECTIONS)
        rules = [*rng.choice(([], ["aim"], ["design"])), f"finding_{label}", *rng.choice(([], ["context"]))]
        sentences = [self._new_sentence(writer, rule, is_labelled=True) for rule in rules]
        return LabelledText(" ".join(map(natural_text, sentences)), label)

    def _new_sentence(self, writer: Writer, rule: str, is_labelled: bool = False) -> Sentence:
        for _ in range(_ATTEMPTS):
            sentence = writer.write_sentence(rule)
            text = natural_text(sentence)
            if text not in self._labelled_sentences:
                if is_labelled:
                    self._labelled_sentences.add(text)
                return sentence
        expected = "smaller numbers of sentences, texts and documents, such as train_texts"
        raise DomainbertError(f"cannot write more sentences of the kind {rule!r} that all differ", expected=expected)


def entity_strings(abstracts: list[Abstract]) -> list[tuple[str, str]]:
    """Return (entity type, lowercase text) of each entity mention, in order of appearance."""
    strings: list[tuple[str, str]] = []
    for sentence in chain.from_iterable(abstracts):
        for start, token in enumerate(sentence):
            if token.tag.startswith("B-"):
                following = takewhile(lambda token: token.tag.startswith("I-"), sentence[start + 1 :])
                words = [token.word, *(token.word for token in following)]
                strings.append((token.tag.removeprefix("B-"), " ".join(words).lower()))
    return strings


def unseen_strings(train: list[Abstract], other: list[Abstract]) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Return two sets of (entity type, text), both only of `HELD_OUT_TYPES`: the entities of `other`, and the entities
    of `other` that do not occur in `train`."""
    entities = {(entity_type, text) for entity_type, text in entity_strings(other) if entity_type in HELD_OUT_TYPES}
    return entities, entities.difference(entity_strings(train))


def write_conll(path: Path, abstracts: Iterable[Iterable[Sentence]]) -> None:
    """Write abstracts as CoNLL: a word, a tab and its tag per line, a blank line between sentences, and `-DOCSTART-`
    before an abstract."""
    blocks: list[str] = []
    for abstract in abstracts:
        blocks.append("-DOCSTART-\tO\n")
        blocks += ["".join(f"{token.word}\t{token.tag}\n" for token in sentence) for sentence in abstract]
    write_text(path, "\n".join(blocks))


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write each row as a JSON object on one line (JSON Lines)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text with `\\n` line ends on every system."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8"))
