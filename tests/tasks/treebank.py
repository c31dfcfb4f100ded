"""A made-up treebank: a grammar writes sentences with their trees, which a small model can learn."""

from __future__ import annotations

import random
from pathlib import Path

_WORDS = {
    "DET": ["the", "a", "each"],
    "ADJ": ["poor", "large", "Süd", "local"],
    "NOUN": ["bank", "rate", "school", "market", "café"],
    "VERB": ["rose", "helped", "cut", "gave"],
    "ADP": ["of", "in", "with"],
}
Word = tuple[str, str, int, str]  # form, tag, head, label


def phrase(draw: random.Random, first: int, depth: int = 0) -> tuple[list[Word], int]:
    """A noun phrase whose words are numbered from `first`: its words, the head of the noun left 0, and its noun."""
    tags = ["DET"] + ["ADJ"] * draw.choice([0, 0, 1, 2]) + ["NOUN"]
    noun = first + len(tags) - 1
    labels = {"DET": "det", "ADJ": "amod", "NOUN": ""}
    words = [(draw.choice(_WORDS[tag]), tag, noun if tag != "NOUN" else 0, labels[tag]) for tag in tags]
    if depth < 2 and draw.random() < 0.3:
        inner, other = phrase(draw, noun + 2, depth + 1)
        words.append((draw.choice(_WORDS["ADP"]), "ADP", other, "case"))
        words += hung(inner, noun + 2, other, noun, "nmod")
    return words, noun


def hung(words: list[Word], first: int, noun: int, head: int, label: str) -> list[Word]:
    """A phrase whose noun hangs on a head."""
    return [
        (form, tag, head, label) if number == noun else (form, tag, other, own)
        for number, (form, tag, other, own) in enumerate(words, first)
    ]


def sentence(draw: random.Random) -> list[Word]:
    """Subject, verb, perhaps an object, full stop."""
    subject, noun = phrase(draw, 1)
    verb = len(subject) + 1
    passive = draw.random() < 0.2
    words = hung(subject, 1, noun, verb, "nsubj:pass" if passive else "nsubj")
    words.append(("taken" if passive else draw.choice(_WORDS["VERB"]), "VERB", 0, "root"))
    if draw.random() < 0.6:
        found, noun = phrase(draw, verb + 1)
        words += hung(found, verb + 1, noun, verb, "obj")
    return [*words, (".", "PUNCT", verb, "punct")]


def conllu(sentences: list[list[Word]], documents: int = 0) -> str:
    """Return CoNLL-U text with `documents` sentences per document."""
    written = []
    for number, words in enumerate(sentences):
        rows = [f"# newdoc id = {number // documents}"] if documents and number % documents == 0 else []
        rows.append(f"# text = {' '.join(word[0] for word in words)}")
        for place, (form, tag, head, label) in enumerate(words, 1):
            rows.append("\t".join([str(place), form, "_", tag, "_", "_", str(head), label, f"{head}:{label}", "_"]))
        written.append("\n".join(rows) + "\n\n")
    return "".join(written)


def write(path: Path, count: int, seed: int, documents: int = 0) -> Path:
    """Write a treebank of `count` sentences."""
    draw = random.Random(seed)
    path.write_text(conllu([sentence(draw) for _ in range(count)], documents), encoding="utf-8")
    return path
