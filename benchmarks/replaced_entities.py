"""Unlabelled text for a student: training sentences whose entities are replaced by others of their type.

    python benchmarks/replaced_entities.py TRAIN.conll OUT.jsonl [--replaced 10000] [--repair]
        [--corpus FILE ... --keep 0.3 --sentences 20000]

Each entity of a random training sentence is replaced, with a probability of 0.7, by a random entity of its type from
the training set. With `--corpus`, OUT also has as many sentences of these files, of the documents nearest to TRAIN, as
`select` and `max_unlabelled` of `distill-task` draw. docs/results-appendix.md has the results.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path

from domainbert.corpus.config import CorpusConfig, Select, Source
from domainbert.corpus.documents import read_documents
from domainbert.corpus.sentences import sample_sentences
from domainbert.labelled.entities import Sentence
from domainbert.labelled.formats import NerFormat
from domainbert.tasks.ner.files import read_ner

PROBABILITY = 0.7
DRAWS = 100  # for each wanted sentence, at most


def replaced_sentences(sentences: Sequence[Sentence], number: int) -> list[str]:
    """Return `number` different sentences with replaced entities, as words joined by spaces."""
    generator = random.Random(0)
    entities: dict[str, list[Sequence[str]]] = {}
    for sentence in sentences:
        for start, stop, entity_type in sentence.spans:
            entities.setdefault(entity_type, []).append(sentence.words[start:stop])
    original, texts = {" ".join(sentence.words) for sentence in sentences}, dict[str, None]()
    for _ in range(DRAWS * number):
        sentence = generator.choice(sentences)
        words: list[str] = []
        copied = 0
        for start, stop, entity_type in sentence.spans:
            words += sentence.words[copied:start]
            is_replaced = generator.random() < PROBABILITY
            words += generator.choice(entities[entity_type]) if is_replaced else sentence.words[start:stop]
            copied = stop
        text = " ".join([*words, *sentence.words[copied:]])
        if text not in original:
            texts[text] = None
        if len(texts) == number:
            return list(texts)
    raise SystemExit(f"--replaced: found {number:,}; expected at most {len(texts):,}, all that could be drawn")


def corpus_sentences(paths: Sequence[str], like: str, keep: float, number: int) -> list[str]:
    """Return sentences of the documents nearest to the file `like`, as `distill-task` draws them."""
    select = Select(like=[Source(path=like)], keep=keep)
    corpus = CorpusConfig(sources=[Source(path=path) for path in paths], select=select)
    texts = (document.text for document in read_documents(corpus))
    return list(sample_sentences(texts, number, seed=0)[0])


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description="Training sentences with other entities of the same types")
    parser.add_argument("train", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--replaced", type=int, default=10_000, help="number of sentences with replaced entities")
    parser.add_argument("--repair", action="store_true", help="repair invalid tags, as ECON-IE needs")
    parser.add_argument("--corpus", nargs="+", default=[], help="files with unlabelled text")
    parser.add_argument("--keep", type=float, default=0.3, help="share of the documents of --corpus")
    parser.add_argument("--sentences", type=int, default=20_000, help="number of sentences of --corpus")
    options = parser.parse_args()
    texts = replaced_sentences(read_ner(options.train, NerFormat(repair=options.repair)).sentences, options.replaced)
    if options.corpus:
        texts = corpus_sentences(options.corpus, str(options.train), options.keep, options.sentences) + texts
    random.Random(0).shuffle(texts)
    options.out.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    print(f"{options.out}: {len(texts):,} sentences")


if __name__ == "__main__":
    main()
