"""Labelled sets in which no rule finds anything, and faults to plant in them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

Rows = dict[str, list[dict[str, Any]]]
"""The rows of train, validation and test."""

SIZES = {"train": 240, "validation": 60, "test": 60}
_SYLLABLES = ["ba", "né", "ti", "lo", "mu", "sar", "ken", "dri", "pol", "gau"]
LEXICON = [one + other + third for one in _SYLLABLES for other in _SYLLABLES for third in ("n", "rt", "ß", "l")]
SURFACES = [["Zika", "virus"], ["Ébola"], ["Morbus", "Crohn"], ["Röteln"]]


def sentence(draw: random.Random) -> list[str]:
    """Twelve words or more, which no other sentence has in this order."""
    return draw.choices(LEXICON, k=draw.randrange(12, 18))


def classes() -> Rows:
    """Texts of two classes, "down" and "up", each half of a set."""
    draw = random.Random(1)
    return {
        name: [{"text": " ".join(sentence(draw)), "label": ("down", "up")[number % 2]} for number in range(size)]
        for name, size in SIZES.items()
    }


def entities() -> Rows:
    """Sentences as lists of words; two in three have one disease of four, which is tagged everywhere."""
    draw = random.Random(2)
    return {name: [_tagged(draw, number) for number in range(size)] for name, size in SIZES.items()}


def _tagged(draw: random.Random, number: int) -> dict[str, Any]:
    words, begin = sentence(draw), draw.randrange(3, 8)
    surface = SURFACES[number % 4] if number % 3 else []
    tags = ["O"] * begin + ["B-disease", "I-disease"][: len(surface)] + ["O"] * (len(words) - begin)
    return {"tokens": words[:begin] + surface + words[begin:], "tags": tags}


TASKS: Mapping[str, Callable[[], Rows]] = {"Classification": classes, "Ner": entities}


class Fault(NamedTuple):
    """A fault: the rule that finds it, the task, how it gets into the sets, and how often it is found."""

    rule: str
    task: str
    plant: Callable[[Rows], None]
    count: int
    thresholds: Mapping[str, float] = {}


def planted(fault: Fault) -> Rows:
    """The sets with a fault in them."""
    rows = deepcopy(TASKS[fault.task]())
    fault.plant(rows)
    return rows


def written(folder: Path, rows: Rows) -> dict[str, Path]:
    """The files of the sets."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.jsonl" for name in rows}
    for name, path in paths.items():
        path.write_text("".join(json.dumps(row) + "\n" for row in rows[name]), encoding="utf-8")
    return paths


def _text(name: str, number: int, change: Callable[[str], str]) -> Callable[[Rows], None]:
    def plant(rows: Rows) -> None:
        rows[name][number]["text"] = change(rows[name][number]["text"])

    return plant


def _copied(count: int, to: str, change: Callable[[str], str] = str.upper) -> Callable[[Rows], None]:
    """Copies of texts of training at the same places of another set, whose labels are the same."""

    def plant(rows: Rows) -> None:
        for number in range(count):
            rows[to][number]["text"] = change(rows["train"][number]["text"])

    return plant


def _last_word_changed(text: str) -> str:
    return f"{text.rpartition(' ')[0]} anders"


def _labels(change: Callable[[int], str | None], name: str = "train") -> Callable[[Rows], None]:
    """Other labels for some items of a set, by their numbers."""

    def plant(rows: Rows) -> None:
        for number, row in enumerate(rows[name]):
            row["label"] = change(number) or row["label"]

    return plant


def _several_copies(rows: Rows) -> None:
    for number in (5, 7, 9):
        rows["train"][number]["text"] = f"{rows['train'][1]['text']}."


def _two_labels(rows: Rows) -> None:
    rows["validation"][3]["text"] = rows["validation"][0]["text"]


def _untagged(rows: Rows) -> None:
    rows["train"][1]["tags"] = ["O"] * len(rows["train"][1]["tags"])


def _with_comma(rows: Rows) -> None:
    row = rows["train"][1]
    end = max(number for number, tag in enumerate(row["tags"]) if tag != "O") + 1
    row["tokens"].insert(end, ","), row["tags"].insert(end, "I-disease")


def _articles(rows: Rows) -> None:
    """The article before each tenth entity belongs to it."""
    for number, row in enumerate(rows["train"]):
        if "B-disease" in row["tags"]:
            begin = row["tags"].index("B-disease")
            row["tokens"].insert(begin, "the")
            row["tags"][begin : begin + 1] = ["B-disease", "I-disease"] if number % 5 == 1 else ["O", "B-disease"]


def _without(rows: Rows) -> None:
    for row in rows["validation"]:
        row["label"] = "up"
    rows["validation"] = rows["validation"][:10]  # so few that their shares mean nothing


def _third_label(rows: Rows) -> None:
    rows["test"][4]["label"] = "sideways"


def _mostly_up(number: int) -> str:
    return "up" if number % 8 else "down"


FAULTS = [
    Fault("same-text-in-train-and-validation", "Classification", _copied(4, "validation"), 4),
    Fault("same-text-in-train-and-test", "Classification", _copied(2, "test"), 2),
    Fault("near-same-text-in-train-and-validation", "Classification", _copied(2, "validation", _last_word_changed), 2),
    Fault("near-same-text-in-train-and-test", "Classification", _copied(3, "test", _last_word_changed), 3),
    Fault("unknown-label", "Classification", _third_label, 1),
    Fault("unseen-label", "Classification", _without, 1),
    Fault("rare-label", "Classification", _labels(lambda number: "down" if number % 8 else "up"), 1),
    Fault(
        "imbalanced-labels",
        "Classification",
        _labels(lambda n: "down" if n % 40 else "up"),
        1,
        {"rare-label": 0},
    ),
    Fault("same-text-other-label", "Classification", _two_labels, 1, {"duplicates": 1}),
    Fault("punctuation-at-edge", "Ner", _with_comma, 1),
    Fault("surface-missed", "Ner", _untagged, 1),
    Fault("boundary-habits", "Ner", _articles, 32),
    Fault("broken-characters", "Classification", _text("test", 3, lambda text: f"{text} cafÃ©"), 1),
    Fault("markup-in-text", "Classification", _text("test", 3, lambda text: f"{text}<br/>A &amp; B"), 1),
    Fault("personal-data", "Classification", _text("train", 0, lambda text: f"{text} anna.müller@example.org"), 1),
    Fault("long-word", "Classification", _text("train", 0, lambda text: f"{text} {'x' * 101}"), 1),
    Fault("duplicates", "Classification", _several_copies, 3),
]
