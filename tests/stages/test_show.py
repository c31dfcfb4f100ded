"""`--show N`: it prints the input of the training, and writes nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from domainbert.cli import main
from domainbert.data.batches import GlobalOrder, Share
from domainbert.data.packing import IGNORE_INDEX
from domainbert.data.prepared import open_prepared
from domainbert.pretraining.batches import PackedRowsReader, TrainRows
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.objective import Key
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.pretraining.phases import RowPhase, format_rows
from domainbert.tasks.multi_label.files import LabelledText
from domainbert.tasks.multi_label.task import MultiLabelTask
from domainbert.tasks.ner.files import read_ner
from domainbert.tasks.regression.files import NumberedText
from domainbert.tasks.regression.task import RegressionTask
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from mine.random_tokens.config import RandomTokens
from tests.refusals import command_refused

TEXT = "Prices in Zürich 🍰 fell by 9 % in ☃ 東京, and the naïve cafe\u0301s closed\x1b[2J."


def shown(capsys: pytest.CaptureFixture[str], *words: object) -> list[str]:
    capsys.readouterr()
    assert main(list(map(str, words))) == 0
    out = capsys.readouterr().out
    assert all(line.isprintable() for line in out.splitlines())
    return out.splitlines()


def below(lines: list[str], header: str) -> list[list[str]]:
    """The cells of the table whose header begins so."""
    first = next(number for number, line in enumerate(lines) if line.split()[:1] == [header])
    rows = []
    for line in lines[first + 1 :]:
        if not line.startswith("  "):
            break
        rows.append(re.split(" {2,}", line.strip()))
    return rows


def files(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_documents_are_shown_with_the_characters_that_are_unknown(runs, in_folder, capsys):
    rows = [{"text": TEXT}, {"text": "Prices fell, and rose again."}, {"text": "Another text, of no importance."}]
    Path("c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    there = files(in_folder)
    words = ("prepare", "--corpus", "c.jsonl", "--tokenizer", runs / "vocab", "--show", 2)
    lines = shown(capsys, *words)
    assert shown(capsys, *words) == lines and files(in_folder) == there
    assert [line.split(",")[1] for line in lines if line.startswith("document")] == [" c.jsonl:1", " c.jsonl:2"]
    tokenizer = load_tokenizer(runs / "vocab")
    from domainbert.corpus.documents import clean

    text = clean(TEXT).text
    pieces = [tokenizer.tokens[number] for number in tokenizer.encode([text])[0]]
    second = lines.index(next(line for line in lines if line.startswith("document 2")))
    body = [line for line in lines[1:second] if not re.match(r"  \[UNK\] is ", line)]
    assert " ".join(body).split() == pieces
    unknown = [re.fullmatch(r"  \[UNK\] is (.*), characters (\d+)-(\d+)", line) for line in lines]
    places = [(found[1], text[int(found[2]) : int(found[3])]) for found in unknown if found]
    assert all(said == actual for said, actual in places)
    assert {"🍰", "☃", "東", "京"} <= {said for said, _ in places}
    assert len(places) == pieces.count("[UNK]") + tokenizer.encode([rows[1]["text"]])[0].count(tokenizer.unk_id)


FALLING_RATE = MaskedLM(MaskingConfig(0.4, whole_word=True, final_mlm_probability=0.1))


@pytest.mark.parametrize(
    "objective", [MaskedLM(), FALLING_RATE, RandomTokens()], ids=["masked_lm", "falling rate", "replaced"]
)
def test_rows_are_those_of_the_first_step(runs, objective):
    corpus = open_prepared([runs / "prepare"])
    tokenizer = load_tokenizer(corpus.tokenizer_folder)
    reader = PackedRowsReader(corpus.train, objective.build(tokenizer), 32)
    order = GlobalOrder(reader.plan.num_rows, 4, 7)
    lines = format_rows([RowPhase(range(2), reader, order)], 6)
    heads = [number for number, line in enumerate(lines) if line.startswith("row ")]
    parts = [lines[first:last] for first, last in zip(heads, [*heads[1:], len(lines)], strict=True)]
    batches = TrainRows(reader, order, Share(), range(2))
    trained = [(batches[step], row) for step in range(2) for row in range(4)][:6]
    for part, (batch, row) in zip(parts, trained, strict=True):
        ids, segments = batch["input_ids"][row], batch["segment_ids"][row]
        table = next((number for number, line in enumerate(part) if line.split()[:1] == ["token"]), None)
        read = " ".join(part[1:table]).split()
        assert read == [tokenizer.tokens[one] for one in ids[segments > 0]]
        token_rows = below(part, "token") if table else []
        assert all(tokenizer.tokens[ids[int(place)]] == piece for place, _, piece, *_ in token_rows)
        if isinstance(objective, MaskedLM):
            assert [(int(place), note) for place, _, _, note in token_rows] == list(notes(batch, row, tokenizer))
        else:
            replaced = batch["positions"][batch["targets"] == 1] - row * len(ids)
            assert [int(place) for place, *_ in token_rows] == [one for one in replaced if 0 <= one < len(ids)]


def notes(batch: Any, row: int, tokenizer: DomainTokenizer) -> Any:
    """Return the expected notes on the tokens of a row, by the batch that is trained on."""
    length = batch["input_ids"].shape[1]
    for place, target in zip(batch["positions"], batch["targets"], strict=True):
        if target != IGNORE_INDEX and place // length == row:
            read = batch["input_ids"].ravel()[place]
            done = {tokenizer.mask_id: "hidden", target: "kept"}.get(read, "random")
            yield place - row * length, f"{done}; the target is {tokenizer.tokens[target]}"


def test_an_objective_that_says_nothing_has_notes_of_what_it_replaced(runs):
    corpus = open_prepared([runs / "prepare"])
    objective = RandomTokens().build(load_tokenizer(corpus.tokenizer_folder))
    reader = PackedRowsReader(corpus.train, objective, 32)
    rows = objective.read(corpus.train, reader.plan, Key(0, 0, np.zeros(2, np.int64), np.arange(2)))
    changed = rows.packed.input_ids.copy()
    written = objective.tokenizer.tokens[changed[1, 3]]
    changed[1, 3] += 1
    notes = objective.notes(rows, {"input_ids": changed})
    assert notes[1][3] == f"replaces {written}" and sum(bool(note) for row in notes for note in row) == 1


def test_pretrain_shows_rows_and_writes_nothing(runs, in_folder, capsys):
    words = ("pretrain", "--prepared", runs / "prepare", "--encoder", "tiny", "--budget.max_steps", 1, "--show", 2)
    lines = shown(capsys, *words, "--out", "new")
    assert shown(capsys, *words) == lines
    assert sum(line.startswith("row ") for line in lines) == 2 and not Path("new").exists()


def ner(runs: Any, *more: object) -> tuple[object, ...]:
    sets = [("--train", runs.labelled("ner", "train")), ("--validation", runs.labelled("ner", "validation"))]
    return ("finetune", "--model", runs / "pretrain", "--task", "Ner", *(word for one in sets for word in one), *more)


def test_words_are_shown_with_their_labels(runs, in_folder, capsys):
    lines = shown(capsys, *ner(runs, "--show", 3))
    assert shown(capsys, *ner(runs, "--show", 3)) == lines and files(in_folder) == set()
    sentences = {sentence.line: sentence for sentence in read_ner(runs.labelled("ner", "train")).items}
    heads = [number for number, line in enumerate(lines) if line.startswith("example ")]
    assert len(heads) == 3
    for head in heads:
        line = int(lines[head].split(":")[1])
        of_words = [(row[3], row[2]) for row in below(lines[head:], "token") if len(row) > 3]
        assert of_words == list(zip(sentences[line].words, sentences[line].tags, strict=True))


def test_windows_decide_each_word_once(runs, in_folder, capsys):
    whole, cut = (shown(capsys, *ner(runs, "--show", 1, *more)) for more in ((), ("--max_length", 12)))
    windows = [number for number, line in enumerate(cut) if line.startswith("  window ")]
    assert len(windows) > 1
    rows = []
    for first, last in zip(windows, [*windows[1:], len(cut)], strict=True):
        rows += [row[1:] for row in below(cut[first + 1 : last], "token")]
    assert rows == [row[1:] for row in below(whole, "token")]


def test_problems_are_told_and_other_stages_show_nothing(runs, in_folder, capsys):
    for words, where, problem, expected in [
        (("vocab", "--show", "1"), "--show", "the stage vocab has no examples", "use prepare, pretrain or finetune"),
        (ner(runs, "--show", "0"), "--show", "found '0'", "a number of examples from 1 to 10,000"),
        (ner(runs, "--show", "2", "--train", "no.conll"), "...", "...no.conll...", "..."),
    ]:
        command_refused(*words, where=where, problem=problem, expected=expected)
    assert main(["finetune", "--help"]) == 0
    assert "--show N" in capsys.readouterr().out
    assert main(["vocab", "--help"]) == 0
    assert "--show" not in capsys.readouterr().out


def test_targets_of_texts_in_words(runs):
    tokenizer = load_tokenizer(runs / "vocab")
    numbers = [NumberedText("a", number=number, line=1) for number in (2.0, 6.0)]
    of_numbers = RegressionTask([""])
    of_numbers.mean, of_numbers.deviation = 4.0, 2.0
    (example,) = of_numbers.encode(numbers[1:], tokenizer, 32)
    assert of_numbers.example_formatter.notes(of_numbers, numbers[1], example.windows[0]) == [
        ("the whole text", "6, standardised +1.000")
    ]
    several = [LabelledText("b", labels=("x", "z"), line=1), LabelledText("c", labels=(), line=2)]
    of_labels = MultiLabelTask(["x", "y", "z"])
    said = [
        of_labels.example_formatter.notes(of_labels, item, example.windows[0])[0][1]
        for item, example in zip(several, of_labels.encode(several, tokenizer, 32), strict=True)
    ]
    assert said == ["x, z", "no label"]


def test_an_answer_is_shown_with_its_characters(runs, in_folder, capsys):
    context = "Im Cafe\u0301 Zürich 🍰 sat the women of the village."
    start = context.index("women")
    end = start + len("women of the village")
    answers = {"text": [context[start:end]], "answer_start": [start]}
    row = {"question": "Who sat there?", "context": context, "answers": answers}
    Path("q.jsonl").write_text(json.dumps(row) + "\n")
    words = ("finetune", "--model", runs / "pretrain", "--task", "QuestionAnswering", "--train", "q.jsonl")
    more = ("--task.max_question_length", 20, "--validation", "q.jsonl", "--show", 1)
    rows = below(shown(capsys, *words, *more), "token")
    places = [re.fullmatch(r"'(.*)', characters (\d+)-(\d+)", row[3]) for row in (rows[0], rows[-1])]
    assert [(int(place[2]), int(place[3])) for place in places] == [
        (start, start + len(places[0][1])),
        (end - len(places[1][1]), end),
    ]
    assert [row[2] for row in (rows[0], rows[-1])] == ["start", "end"]
    assert [context[int(place[2]) : int(place[3])] for place in places] == [place[1] for place in places]
