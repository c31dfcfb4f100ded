"""Labelled sets of relations, pairs, labels of words, questions and trees, with the grammar of `domainbert sample`.

python -m tests.samples.task_data FOLDER      writes the sets that configs/tasks.yaml reads
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from domainbert.samples.datasets import SPLITS, Abstract, SampleData, write_conll, write_jsonl, write_text
from domainbert.samples.vocabulary import Vocabulary
from domainbert.samples.writer import DIRECTIONS, Sentence, Token, Writer, text_with_offsets
from tests.tasks import treebank

Row = dict[str, Any]

HELD_OUT_SHARE = 0.3
"""Share of noun phrases and verbs in validation and test text that are written with held-out words."""

RELATIONS = {"improves": "better", "worsens": "worse", "no_effect": "no_change", "none": "aim"}
"""Labels of an intervention and an outcome, and the rule of the sentences that hold both."""

WORD_LABELS = ("intervention", "outcome", "population")
"""Types whose words are labelled, each as I-type: as in EBM-NLP no word is marked as the first."""

_UNANSWERABLE = 0.25
_UNRELATED = 1 / 3


class TaskData:
    """All these sets of one seed; the same seed and sizes give the same data, to the byte."""

    def __init__(self, seed: int) -> None:
        self._seed, self._vocabulary = seed, Vocabulary(seed)

    def relations(self, texts: dict[str, int]) -> dict[str, list[Row]]:
        """`text`, `head` (an intervention), `tail` (an outcome) and their `label`, for each split."""
        return self._different("relations", texts, _relation)

    def pairs(self, texts: dict[str, int]) -> dict[str, list[Row]]:
        """`text`, a finding, and `text_pair`, a conclusion that follows from it, contradicts it or is about else."""
        return self._different("pairs", texts, _pair)

    def questions(self, texts: dict[str, int]) -> dict[str, Row]:
        """Return abstracts with at least `texts[split]` questions for each split, in the format of SQuAD 2.0."""
        made = {}
        for split in SPLITS:
            writer, rng = self._writer("questions", split)
            paragraphs: list[Row] = []
            while sum(len(one["qas"]) for one in paragraphs) < texts[split]:
                made_up = _paragraph(writer, rng, f"{split}-{len(paragraphs)}")
                paragraphs += [made_up] if made_up["qas"] else []
            made[split] = {"version": "v2.0", "data": [{"title": "synthetic", "paragraphs": paragraphs}]}
        return made

    def _different(
        self, part: str, texts: dict[str, int], make: Callable[[Writer, Random], Row]
    ) -> dict[str, list[Row]]:
        """Rows by split, no text of them twice."""
        seen: set[str] = set()
        made: dict[str, list[Row]] = {}
        for split in SPLITS:
            writer, rng = self._writer(part, split)
            rows = made.setdefault(split, [])
            while len(rows) < texts[split]:
                writer.start_abstract()
                row = make(writer, rng)
                if row["text"] not in seen:
                    seen.add(row["text"])
                    rows.append(row)
        return made

    def _writer(self, part: str, split: str) -> tuple[Writer, Random]:
        rng = Random(f"{self._seed}/{part}/{split}")
        return Writer(rng, self._vocabulary, 0.0 if split == "train" else HELD_OUT_SHARE), rng


def word_labels(abstracts: list[Abstract]) -> list[Abstract]:
    """The same abstracts with a label for each word of some entities, in place of IOB2."""
    return [[[_word_label(token) for token in sentence] for sentence in abstract] for abstract in abstracts]


def _word_label(token: Token) -> Token:
    kind = token.tag[2:]
    return Token(token.word, f"I-{kind}" if kind in WORD_LABELS else "O")


def _relation(writer: Writer, rng: Random) -> Row:
    label = rng.choice(list(RELATIONS))
    found = None
    while found is None:
        found = _one_of_each(writer.write_sentence(RELATIONS[label]))
    text, head, tail = found
    ends = {"head": ("intervention", head), "tail": ("outcome", tail)}
    places = {name: {"start": start, "end": end, "type": kind} for name, (kind, (start, end)) in ends.items()}
    return {"text": text, **places, "label": label}


def _pair(writer: Writer, rng: Random) -> Row:
    found, concluded = rng.choice(DIRECTIONS), rng.choice(DIRECTIONS)
    text = text_with_offsets(writer.write_sentence(f"finding_{found}"))[0]
    if rng.random() < _UNRELATED:
        return {"text": text, "text_pair": text_with_offsets(writer.write_sentence("context"))[0], "label": "neutral"}
    label = "entailment" if found == concluded else "contradiction"
    return {
        "text": text,
        "text_pair": text_with_offsets(writer.write_sentence(f"conclusion_{concluded}"))[0],
        "label": label,
    }


def _paragraph(writer: Writer, rng: Random, name: str) -> Row:
    """An abstract, with a question for each sentence that has one outcome and one intervention, named nowhere else."""
    writer.start_abstract()
    context, places = "", []
    for rule in writer.sentence_rules(rng.choice(DIRECTIONS)):
        if rule.startswith("conclusion"):
            break
        sentence = writer.write_sentence(rule)
        begin = len(context) + 1 if context else 0
        found = _one_of_each(sentence)
        context = f"{context} {text_with_offsets(sentence)[0]}" if context else text_with_offsets(sentence)[0]
        if found is not None:
            places.append([(begin + start, begin + end) for start, end in found[1:]])
    questions = []
    for number, (intervention, outcome) in enumerate(places):
        what, answer = (context[slice(*place)] for place in (intervention, outcome))
        if context.count(what) > 1:  # it goes with something else, too
            continue
        row: Row = {"id": f"{name}-{number}", "question": f"What is said to go with {what}?"}
        row |= {"is_impossible": False, "answers": [{"text": answer, "answer_start": outcome[0]}]}
        questions.append(row)
    if rng.random() < _UNANSWERABLE:
        question = "What is said to go with the weather of that year?"
        questions.append({"id": f"{name}-none", "question": question, "is_impossible": True, "answers": []})
    return {"context": context, "qas": questions}


def _one_of_each(sentence: Sentence) -> tuple[str, tuple[int, int], tuple[int, int]] | None:
    """The text of a sentence, and where its intervention and its outcome stand; None unless it has one of each."""
    text, offsets = text_with_offsets(sentence)
    places: dict[str, list[tuple[int, int]]] = {"intervention": [], "outcome": []}
    for (start, end), token in zip(offsets, sentence, strict=True):
        if token.tag[2:] in places:
            found = places[token.tag[2:]]
            if token.tag[0] == "B":
                found.append((start, end))
            else:
                found[-1] = (found[-1][0], end)
    if [len(found) for found in places.values()] != [1, 1]:
        return None
    return text, places["intervention"][0], places["outcome"][0]


def write_task_data(out: Path, seed: int, sentences: dict[str, int], texts: dict[str, int]) -> None:
    """Write the sets of five tasks; sizes are by split, of `sentences` for words and trees."""
    data, ner = TaskData(seed), SampleData(seed).ner(sentences)
    relations, pairs, questions = data.relations(texts), data.pairs(texts), data.questions(texts)
    for number, split in enumerate(SPLITS):
        write_jsonl(out / "relations" / f"{split}.jsonl", relations[split])
        write_jsonl(out / "pairs" / f"{split}.jsonl", pairs[split])
        write_text(out / "questions" / f"{split}.json", json.dumps(questions[split], indent=1) + "\n")
        write_conll(out / "token_labels" / f"{split}.conll", word_labels(ner[split]))
        (out / "trees").mkdir(exist_ok=True)
        treebank.write(out / "trees" / f"{split}.conllu", sentences[split], len(SPLITS) * seed + number)


if __name__ == "__main__":
    SIZES = {"train": 1000, "validation": 300, "test": 1000}
    write_task_data(Path(sys.argv[1]), 0, {**SIZES, "train": 600}, SIZES)
