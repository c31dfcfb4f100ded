from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path

import pytest

from domainbert import load_tagger
from domainbert.labelled.tag_schemes import spans_from_tags
from domainbert.stages.predict import predict
from domainbert.tasks.ner.files import read_ner
from domainbert.tokenization.align import basic_words
from tests.refusals import command_refused, refused


def rows_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "predictions.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def run(runs, tmp_path):
    """Predicts with a fine-tuned model and gives the rows."""
    numbers = itertools.count()

    def predicted(input: Path, model: str = "ner-pretrained", **arguments) -> list[dict]:
        out = str(tmp_path / f"predict-{next(numbers)}")
        arguments = {"precision": "32-true", **arguments}
        return rows_of(runs.run(out, predict, model=runs / model, input=input, **arguments))

    return predicted


@pytest.fixture
def texts(runs) -> list[str]:
    """The words of the test sentences, some with what tokenizers like to stumble over."""
    sentences = [" ".join(one.words) for one in read_ner(runs.labelled("ner", "test")).sentences]
    return ["", "\u00a0 Caf\u00e9 loans\u200b raised  income.", *sentences[:60], "\u4e2d\u56fd [SEP] \U0001f600"]


def test_words_give_the_entities_that_evaluate_scored(runs, run):
    rows = run(runs.labelled("ner", "test"))
    written = read_ner(runs / "ner/predictions/pretrained" / f"{runs.results['ner-pretrained']['best']}.conll")
    assert len(rows) == 110 and sum(len(row["entities"]) for row in rows) > 50
    for row, sentence in zip(rows, written.sentences, strict=True):
        assert row.keys() == {"text", "entities"} and row["text"] == " ".join(sentence.words)
        starts = [len(" ".join([*sentence.words[:number], ""])) for number in range(len(sentence.words))]
        ends = [start + len(word) for start, word in zip(starts, sentence.words, strict=True)]
        wanted = [(starts[first], ends[last - 1], kind) for first, last, kind in spans_from_tags(sentence.tags)]
        assert [(one["start"], one["end"], one["type"]) for one in row["entities"]] == wanted
        assert all(one["text"] == row["text"][one["start"] : one["end"]] for one in row["entities"])
        assert all(0 < one["score"] <= 1 for one in row["entities"])


def test_rows_keep_order_and_keys_whatever_the_chunk(runs, run, texts, tmp_path, monkeypatch):
    given = [{"id": number, "body": text, "words": 3, "deep": {"a": [None]}} for number, text in enumerate(texts)]
    path = tmp_path / "given.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("\n".join(map(json.dumps, given)) + "\n\n")
    at_once = run(path, text_key="body")
    assert [{key: row[key] for key in given[0]} for row in at_once] == given
    assert at_once[0]["entities"] == [] and sum(len(row["entities"]) for row in at_once) > 20
    for size in (5, 32):
        monkeypatch.setattr("domainbert.stages.predict._CHUNK_SIZE", size)
        for one, other in zip(run(path, text_key="body"), at_once, strict=True):
            scores = [
                [entity.pop("score") for entity in row["entities"]] for row in (one, json.loads(json.dumps(other)))
            ]
            assert scores[0] == pytest.approx(scores[1], abs=1e-5)
            without = [{k: v for k, v in entity.items() if k != "score"} for entity in other["entities"]]
            assert one == other | {"entities": without}


def test_lines_of_text_give_what_jsonl_gives(run, texts, tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    (tmp_path / "a.dat").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    assert run(tmp_path / "a.txt") == run(tmp_path / "a.dat", format="jsonl")


def test_conll_called_txt_is_read_as_finetune_reads_it_and_it_is_said(runs, run, tmp_path, capsys):
    """Its columns were tagged as if they were text."""
    path = tmp_path / "a.txt"
    path.write_bytes(runs.labelled("ner", "test").read_bytes())
    assert run(path) == run(runs.labelled("ner", "test"))
    width = len(path.read_text(encoding="utf-8").split("\n")[0].split())
    assert f"{path}: read as CoNLL ({width} columns)\n" in capsys.readouterr().out
    assert run(path, format="lines")[0]["text"] == path.read_text(encoding="utf-8").split("\n")[0]
    assert f"{path}: read as lines of text\n" in capsys.readouterr().out


def test_what_predict_writes_is_a_labelled_file_that_its_model_scores_in_full(runs, run, texts, tmp_path):
    """The entities are at the same characters; on the raw text the model agrees with itself in full."""
    given = [*texts, "Cafe\u0301 \u0e01\u0e34\u0e01\u0e34. \U0001f600\r\nraised loans\u200b."]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in given))
    rows = run(tmp_path / "a.jsonl")
    written = tmp_path / "predict-0/predictions.jsonl"
    file = read_ner(written)
    assert file.num_spans == sum(len(row["entities"]) for row in rows) > 20
    for row, sentence, places in zip(rows, file.sentences, basic_words(given), strict=True):
        found = [(places[first][0], places[last - 1][1], kind) for first, last, kind in sentence.spans]
        assert found == [(one["start"], one["end"], one["type"]) for one in row["entities"]]
    best = runs / "ner-pretrained" / runs.results["ner-pretrained"]["best"]
    runs.evaluate(str(tmp_path / "scored"), "ner", {"itself": best}, test=written)
    scored = json.loads((tmp_path / "scored/metrics.json").read_text())
    assert (scored["gold"], scored["systems"]["itself"]["raw_text"]["f1"]) == (file.num_spans, 1)


def test_the_splitting_is_chosen_or_as_recorded(runs, run, tmp_path):
    texts = [" ".join(one.words) for one in read_ner(runs.labelled("ner", "test")).sentences]
    (tmp_path / "a.txt").write_text("\n".join(text.replace(" .", ".") for text in texts), encoding="utf-8")
    tagger = load_tagger(runs / "ner-pretrained", "32-true")
    recorded = tagger.task.word_splitting
    assert isinstance(recorded, dict)  # neither of the others
    found = {}
    for splitting in ("recorded", "punctuation", "whitespace"):
        tagger.task.word_splitting = recorded if splitting == "recorded" else splitting
        found[splitting] = [row["entities"] for row in run(tmp_path / "a.txt", splitting=splitting)]
        entities = tagger.predict([row["text"] for row in run(tmp_path / "a.txt", splitting=splitting)])
        assert found[splitting] == [tagger.as_json(row)["entities"] for row in entities]
    assert found["recorded"] != found["punctuation"] != found["whitespace"] != found["recorded"]
    assert found["recorded"] == [row["entities"] for row in run(tmp_path / "a.txt")]


def test_keys_of_the_input_are_kept_beside_the_prediction_and_it_is_said(runs, run, capsys):
    path = runs.labelled("classification", "test")
    rows = run(path, "classification-pretrained")
    written = (
        runs / "classification/predictions/pretrained" / f"{runs.results['classification-pretrained']['best']}.jsonl"
    )
    wanted = [json.loads(line) for line in written.read_text().splitlines()]
    assert [(row["text"], row["predicted_label"]) for row in rows] == [
        (one["text"], one["predicted"]) for one in wanted
    ]
    assert [row["label"] for row in rows] == [json.loads(line)["label"] for line in path.read_text().splitlines()]
    for row, other in zip(rows, wanted, strict=True):
        assert row["scores"] == pytest.approx(other["scores"], abs=1e-5)
        assert sum(row["scores"].values()) == pytest.approx(1)
        assert row["predicted_label"] == max(row["scores"], key=row["scores"].get)
    assert (
        "texts with a key 'label', which is kept: 40; the prediction is under 'predicted_label'"
        in capsys.readouterr().out
    )


def test_a_file_of_empty_texts(run, tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n{"text": " \\u200b"}\n')
    assert [row["entities"] for row in run(tmp_path / "a.jsonl")] == [[], []]
    assert len(run(tmp_path / "a.jsonl", "classification-pretrained")) == 2
    assert "texts without a character other than white space: 1; predicted like the others" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content", "arguments", "line", "where", "problem", "expected"),
    [
        ("a.jsonl", '{"text": "a"}\n{"text": \n', {}, 2, "...", "not JSON...", "..."),
        ("a.jsonl", '{"text": "a"}\n["a"]\n', {}, 2, "...", "a JSON list", "an object..."),
        ("a.jsonl", '{"text": "a"}\n{"txt": "a"}\n', {}, 2, "...", "no string under 'text'", "..."),
        ("a.jsonl", '{"text": null}\n', {}, 1, "...", "no string under 'text'", "..."),
        ("a.jsonl", "", {}, "", "...", "nothing to predict", "at least one text"),
        ("a.csv", "txt,label\na,b\n", {}, 1, "...", "no column 'text'", "the header names..."),
        ("a.conll", "a O\nb\n", {}, 2, "...", "1 column separated by spaces", "..."),
        ("a.conll", "a O\n", {"token_column": 5}, "", "token_column", "no column 5", "..."),
    ],
)
def test_a_bad_file_is_named(run, tmp_path, name, content, arguments, line, where, problem, expected):
    (tmp_path / name).write_text(content)
    with refused(file=name, line=line, where=where, problem=problem, expected=expected):
        run(tmp_path / name, **arguments)


def test_bytes_that_are_no_text_are_named(run, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\ntw\xff\n")
    with refused(file="a.txt", line=2, problem="byte 3 of the line, 0xff, is not UTF-8"):
        run(tmp_path / "a.txt")


def test_a_model_without_a_trained_head_is_named(run, tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    with refused(file="pretrain", problem="no trained task head"):
        run(tmp_path / "a.txt", "pretrain")
    with refused(file="vocab", problem="no config.json", expected="a model folder"):
        run(tmp_path / "a.txt", "vocab")
    with refused(problem="no config.json", expected="a model folder, such as /..."):
        run(tmp_path / "a.txt", "")


def test_on_the_command_line_nothing_stays_behind(runs, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n' * 5 + "{\n")
    words = ["--model", str(runs / "ner-pretrained"), "--input", str(tmp_path / "a.jsonl")]
    out = ("--out", tmp_path / "out")
    command_refused("predict", *words, *out, file=tmp_path / "a.jsonl", line=6, problem="not JSON...")
    (tmp_path / "folder").mkdir()
    folder = {"context": "--input", "file": tmp_path / "folder", "problem": "cannot be read (Is a directory)"}
    for path, facts in (("folder", folder), ("no.txt", {"problem": "...does not exist"})):
        command_refused("predict", *words[:3], tmp_path / path, *out, **facts, expected="a file")
    assert not (tmp_path / "out").exists()
