"""Question answering goes through every stage, on made-up questions that a tiny model can learn."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from domainbert.cli import main
from domainbert.labelled.contents import TextPair
from domainbert.serving.predictor import load_predictor
from domainbert.tasks.question_answering.config import QuestionAnswering
from domainbert.tasks.question_answering.files import read as read_questions
from domainbert.tasks.question_answering.task import QuestionAnsweringTask
from tests.metrics.test_answers import official_scores
from tests.refusals import refused

NAMES = ["Zoë Müller", "Anna Grün", "José Núñez", "Mary Okoro"]
PLACES = ["Zürich", "Nairobi", "São Paulo", "Lima"]
FILLERS = ["the bank raised the rate", "prices fell", "cash transfers were paid", "the effect was large", "loans grew"]


def paragraph(draw: random.Random, number: int) -> dict[str, Any]:
    """A context that mostly names a person, a place and a year, and a question on each."""
    facts = {
        "who": f"by {draw.choice(NAMES)}",
        "where": f"in {draw.choice(PLACES)}",
        "when": f"of {draw.randint(1980, 1999)}",
    }
    given = {kind: fact for kind, fact in facts.items() if draw.random() < 0.75}
    parts = [*given.values(), *draw.choices(FILLERS, k=draw.randint(2, 9))]
    draw.shuffle(parts)
    context, qas = " , ".join(parts), []
    for kind in facts:
        answers = []
        if kind in given:
            text = given[kind].partition(" ")[2]
            answers = [{"text": text, "answer_start": context.index(given[kind]) + len(given[kind]) - len(text)}] * 2
        qas.append(
            {"id": f"{number}-{kind}", "question": f"{kind} ?", "answers": answers, "is_impossible": not answers}
        )
    return {"context": context, "qas": qas}


@pytest.fixture(scope="module")
def asked_of(runs: Any) -> Path:
    folder: Path = runs / "questions"
    folder.mkdir()
    draw = random.Random(0)
    for split, count in {"train": 150, "validation": 30, "test": 40}.items():
        paragraphs = [paragraph(draw, number) for number in range(count)]
        whole = json.dumps({"version": "v2.0", "data": [{"title": split, "paragraphs": paragraphs}]}, indent=1)
        (folder / f"{split}.json").write_text(whole)
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("torch_for_onnx")
def test_it_goes_through_every_stage(runs: Any, asked_of: Path, tmp_path: Path, one_thread: None, capsys: Any) -> None:
    pytest.importorskip("onnxscript")
    test = read_questions(QuestionAnswering(), asked_of / "test.json")
    with open(tmp_path / "rows.jsonl", "w") as file:
        for one in test.items:
            file.write(json.dumps({"question": one.question, "context": one.context, "id": one.id}) + "\n")
    training = f"""
      task: {{class_path: QuestionAnswering, init_args: {{max_question_length: 4, max_answer_length: 12, n_best: 5}}}}
      train: {asked_of}/train.json
      validation: {asked_of}/validation.json
      max_length: 48
      batch_size: 16
      max_epochs: 7
      optim: {{lr: 3e-3, head_lr: 3e-3}}
      precision: 32-true
      loggers: [jsonl]
      trainer: {{accelerator: cpu, devices: 1}}"""
    (tmp_path / "recipe.yaml").write_text(f"""
out: {tmp_path}/run
stages:
  reader:
      stage: finetune
      model: {runs / "pretrain"}
      seeds: [3]{training}
  student:
      stage: distill-task
      teachers: ["@reader"]
      student: {{first_layers: 1}}
      losses: [SoftTargets, HardTargets]
      cache: {tmp_path}/cache{training}
  scores:
      stage: evaluate
      models: {{teacher: "@reader", student: "@student"}}
      task: QuestionAnswering
      test: {asked_of}/test.json
      bootstrap_resamples: 200
  said: {{stage: predict, model: "@reader", precision: 32-true, input: {tmp_path}/rows.jsonl}}
  onnx: {{stage: export, model: "@reader", check: {asked_of}/validation.json}}
""")
    recipe = ["run", str(tmp_path / "recipe.yaml")]
    other = ["--stages.scores.task.class_path", "QuestionAnswering", "--stages.scores.task.max_answer_length", "13"]
    assert main([*recipe, *other]) == 2
    assert "max_answer_length: found 13, but models.teacher was trained with 12" in capsys.readouterr().err
    assert main(recipe) == 0
    run, best = tmp_path / "run", tmp_path / "run/reader/seed-3"
    fields = json.loads((best / "config.json").read_text())
    facts = fields["domainbert_answers"]
    assert (fields["domainbert_task"], fields["architectures"]) == ("question_answering", ["BertForQuestionAnswering"])
    assert fields["id2label"] == {"0": "start", "1": "end"} and facts.pop("threshold") < 10
    assert facts == {"max_question_length": 4, "max_answer_length": 12, "n_best": 5}
    the_scores(run, test)
    predictor = load_predictor(run / "reader", "32-true")
    the_predictions(run, test, predictor)
    like_transformers(best, test, predictor)


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def the_scores(run: Path, test: Any) -> None:
    """Scores equal the official script on the predictions in its format, and are well above never answering."""
    metrics = json.loads((run / "scores/metrics.json").read_text())
    assert (metrics["gold"], metrics["bootstrap"]["unit"], metrics["bootstrap"]["units"]) == (120, "contexts", 40)
    assert metrics["paired"][0]["exact_interval"][0] <= metrics["paired"][0]["exact_difference"]
    for system, seed in (("teacher", "seed-3"), ("student", "seed-1")):
        answers = json.loads((run / f"scores/predictions/{system}/{seed}.json").read_text())
        each = np.asarray([official_scores(2, one.texts, answers[one.id]) for one in test.items])
        found, bare = metrics["systems"][system], np.asarray([not one.answers for one in test.items])
        assert (found["exact"], found["f1"]) == pytest.approx(each.mean(axis=0), abs=1e-9)
        for kind, chosen in (("answerable", ~bare), ("unanswerable", bare)):
            wanted = dict(zip(("exact", "f1"), each[chosen].mean(axis=0), strict=True), support=chosen.sum())
            assert found["by_answer"][kind] == pytest.approx(wanted, abs=1e-9)
        assert found["interval"][0] < found["f1"] < found["interval"][1] and found["best_f1"] >= found["f1"] - 1e-9
        assert found["f1"] > bare.mean() + 0.2, "never answering gets the share of questions without an answer"
        assert found["by_answer"]["answerable"]["f1"] > 0.4


def the_predictions(run: Path, test: Any, predictor: Any) -> None:
    """An answer is a stretch of its context, whatever reads the model, and none is predicted above the threshold."""
    threshold = predictor.task.threshold
    scored, said = rows(run / "scores/predictions/teacher/seed-3.jsonl"), rows(run / "said/predictions.jsonl")
    exported = load_predictor(run / "onnx", "32-true").predict(test.contents)
    lengths = [len(ids) for ids in predictor.tokenizer.encode([one.context for one in test.items])]
    assert sum(length > 41 for length in lengths) > 10, "some are read in several windows"
    for item, one, other, third in zip(test.items, scored, said, exported, strict=True):
        assert one["id"] == other["id"] == item.id and one["gold"] == item.texts
        assert (one["predicted"] == "") is (one["margin"] > threshold) is (one["start"] is None)
        assert one["predicted"] == other["answer"] == third.answer
        assert one["start"] is None or item.context[one["start"] : one["end"]] == one["predicted"]
        assert third.margin == pytest.approx(one["margin"], abs=1e-4) and 0 < one["score"] <= 1
        shares = [candidate["score"] for candidate in other["candidates"]]
        assert shares == sorted(shares, reverse=True) and len(shares) <= 5 and sum(shares) < 1
        for candidate in other["candidates"]:
            assert item.context[candidate["start"] : candidate["end"]] == candidate["text"]
    assert any("ü" in one["predicted"] for one in scored)
    nothing = predictor.answer("who ?", "\u200b")
    assert (nothing.answer, nothing.start, nothing.margin, nothing.candidates) == ("", None, None, [])
    first = test.items[0]
    assert predictor.answer(first.question, first.context).answer == scored[0]["predicted"]


def like_transformers(folder: Path, test: Any, predictor: Any) -> None:
    """Its class for question answering gives the logits, and so the margin, of a context in one window."""
    transformers = pytest.importorskip("transformers")
    item = min(test.items, key=lambda one: len(one.context))
    theirs, loading = transformers.AutoModelForQuestionAnswering.from_pretrained(folder, output_loading_info=True)
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    encoded = transformers.AutoTokenizer.from_pretrained(folder)(item.question, item.context, return_tensors="pt")
    assert encoded["token_type_ids"].any()
    with torch.inference_mode():
        output = theirs.eval()(**encoded)
    start, end = output.start_logits[0], output.end_logits[0]
    first = int(encoded["token_type_ids"][0].argmax())
    spans = (start[first:-1, None] + end[None, first:-1]).triu().tril(diagonal=11)
    allowed = torch.ones_like(spans, dtype=torch.bool).triu().tril(diagonal=11)
    margin = float(start[0] + end[0] - spans[allowed].max())
    assert predictor.answer(item.question, item.context).margin == pytest.approx(margin, abs=1e-4)


def test_settings_that_cannot_be_are_refused_early(asked_of: Path, tmp_path: Path, capsys: Any) -> None:
    words = ["distill-task", "--out", str(tmp_path / "a"), "--teachers", f"[{tmp_path}]", "--task", "QuestionAnswering"]
    words += ["--train", f"{asked_of}/train.json", "--validation", f"{asked_of}/validation.json"]
    assert main([*words, "--losses", "[LogitMSE]", "--max_length", "67"]) == 2
    said = capsys.readouterr().err
    assert (
        "which leaves no room for the context after a question of max_question_length 64; expected more than 67, or"
        in said
    )


def test_rows_to_predict_have_a_question_and_a_context() -> None:
    task = QuestionAnsweringTask(QuestionAnswering())
    row = {"question": "who ?", "context": "by Zoë", "text": "unread"}
    assert task.inputs.content_of(task, row, "text") == TextPair("who ?", "by Zoë")
    with refused(problem="no key 'context'; found 'question'"):
        task.inputs.content_of(task, {"question": "who ?"}, "text")
