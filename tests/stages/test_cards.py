"""Cards of the folders that stages write, and those with test scores that `evaluate` writes beside its metrics."""

from __future__ import annotations

import json
import shutil

import pytest
from huggingface_hub import ModelCard

from domainbert import load_predictor
from domainbert.base.freshness import output_names
from domainbert.models.card import split_card
from tests.model_cards import run_card
from tests.refusals import refused


def head_of(folder):
    return split_card((folder / "README.md").read_text(encoding="utf-8"))[0]


def test_each_folder_says_what_it_is_for(runs):
    assert head_of(runs / "pretrain") == {
        "pipeline_tag": "fill-mask",
        "library_name": "transformers",
        "tags": ["domainbert"],
    }
    for task, tag in {"ner": "token-classification", "classification": "text-classification"}.items():
        (result,) = head_of(runs / f"{task}-pretrained/seed-2")["model-index"][0]["results"]
        (metric,) = result["metrics"]
        scores = json.loads((runs / f"{task}-pretrained/seeds.json").read_text())["validation_f1"]
        assert metric["value"] == round(scores["seed-2"], 4) and result["task"]["type"] == tag
        assert result["dataset"]["name"] == runs.labelled(task, "validation").name
        assert head_of(runs / f"{task}-scratch/seed-1")["pipeline_tag"] == tag


@pytest.mark.parametrize("task", ["ner", "classification"])
def test_the_python_of_a_card_predicts(runs, task):
    folder = runs / f"{task}-pretrained/seed-1"
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert run_card(folder).strip() == str(load_predictor(folder).predict(["A text."]))
    assert ("| decoding | the most probable valid tags; transformers takes the best tag of" in card) == (task == "ner")


def test_test_scores_stand_on_cards_of_their_own(runs):
    metrics = json.loads((runs / "ner/metrics.json").read_text())
    for name, system in metrics["systems"].items():
        folder = runs / "ner/cards" / name
        head, body = split_card((folder / "README.md").read_text(encoding="utf-8"))
        best = json.loads((runs / f"ner-{name}/seeds.json").read_text())["best"]
        own, own_body = split_card((runs / f"ner-{name}" / best / "README.md").read_text(encoding="utf-8"))
        assert {**head, "model-index": None} == {**own, "model-index": None} and body.startswith(own_body)
        validation, test = head["model-index"][0]["results"]
        assert validation == own["model-index"][0]["results"][0]
        (metric,) = test["metrics"]
        assert test["dataset"] == {"type": "custom", "name": "test.conll", "split": "test"}
        assert (metric["value"], metric["name"]) == (round(system["f1"], 4), "entity F1, mean of 2 seeds")
        assert metric["args"]["interval_95"] == [round(bound, 4) for bound in system["interval"]]
        low, high = (100 * bound for bound in system["interval"])
        row = f"| entity F1 | {100 * system['f1']:.2f} | [{low:.2f}, {high:.2f}] | mean of 2 seeds | test.conll |"
        raw = [f"{100 * system['raw_text'][key]:.2f}" for key in ("f1", "argmax_f1", "pipeline_f1")]
        text = f"F1 on printed text {raw[0]}; with the best label of each word {raw[1]}; transformers.pipeline {raw[2]}"
        assert body.splitlines()[-3:-1] == [row, ""] and body.splitlines()[-1].startswith(text)
        assert len(ModelCard.load(folder / "README.md").data.eval_results) == 2
    assert not [name for name in output_names(runs / "ner") if "README" in name], "cards may be edited"


def test_what_the_user_says_is_on_the_card_and_changes_no_key(runs, tmp_path):
    card = {"license": "cc-by-4.0", "language": ["en"], "datasets": ["owner/set"], "tags": ["law"]}
    out = runs.finetune(str(tmp_path / "tagger"), "ner", seeds=(1,), max_epochs=1, card=card)
    head = head_of(out / "seed-1")
    assert (head["license"], head["language"], head["datasets"]) == ("cc-by-4.0", ["en"], ["owner/set"])
    assert head["tags"] == ["domainbert", "law"] and head["model-index"][0]["name"] == "Fine-tuned domain model"
    made_from = json.loads((out / "seed-1/training.json").read_text())["made_from"]
    assert "max_epochs" in made_from and not [name for name in made_from if name.startswith("card")]


@pytest.mark.parametrize("stage", ["evaluate", "finetune"])
def test_a_card_that_would_be_refused_is_refused_before_the_work(runs, tmp_path, stage):
    model = shutil.copytree(runs / "ner-pretrained/seed-1", tmp_path / "model")
    (model / "README.md").write_text("---\nlicense: mit\ntags: &a [*a]\n---\n")
    with refused(file="README.md", problem="more than 100 levels..."):
        if stage == "evaluate":
            runs.evaluate(str(tmp_path / "out"), "ner", {"a": model})
        else:
            runs.finetune(str(tmp_path / "out"), "ner", model=model, seeds=(1,), max_epochs=1)
    assert not list((tmp_path / "out").rglob("*.safetensors")) and not list((tmp_path / "out").glob("predictions/*/*"))
