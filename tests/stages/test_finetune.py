from __future__ import annotations

import json
import re

import pytest
from safetensors.torch import load_file

from domainbert.models.loading import load_model
from domainbert.serving.loaders import load_classifier, load_tagger
from domainbert.stages.early_checks import StageArguments
from domainbert.tasks.classification.config import Classification
from domainbert.tasks.ner.config import Ner
from domainbert.training.config import OptimConfig
from tests.refusals import command_refused, refused


@pytest.mark.parametrize("task", ["ner", "classification"])
@pytest.mark.parametrize("start", ["pretrained", "scratch"])
def test_the_saved_model_is_that_of_the_best_epoch(runs, task, start):
    """Scored again from its folder, each seed has the F1 that was noted for its best epoch."""
    result = json.loads(json.dumps(runs.results[f"{task}-{start}"]))
    folder = runs / f"{task}-{start}"
    out = runs.evaluate(f"{task}-{start}-again", task, {"m": folder}, test=runs.labelled(task, "validation"))
    scored = json.loads((out / "metrics.json").read_text())["systems"]["m"]["f1_by_seed"]
    noted = {f"seed-{row['seed']}": row["validation"]["f1"] for row in result["seeds"]}
    assert scored == pytest.approx(noted, abs=1e-6) and set(noted) == {"seed-1", "seed-2"}
    for row in result["seeds"]:
        assert row["validation"]["f1"] == max(one["f1"] for one in row["history"])
        assert row["validation"] == row["history"][row["best_epoch"] - 1]
        assert len(row["history"]) == (5 if task == "ner" else 2)
    assert json.loads((folder / "seeds.json").read_text()) == {
        "best": max(noted, key=noted.get),
        "metric": "validation/f1",
        "direction": "maximize",
        "validation_f1": noted,
    }
    assert result["validation_f1"] == pytest.approx(sum(noted.values()) / 2)
    assert result["best"] == max(noted, key=noted.get)


def test_labels_stand_in_the_model_folder(runs):
    types = ("coreference", "effect_size", "intervention", "outcome", "population")
    tags = ["O", *(f"{prefix}-{kind}" for kind in types for prefix in "BI")]
    for task, head, labels in (
        ("ner", "Token", tags),
        ("classification", "Sequence", ["negative", "null", "positive"]),
    ):
        config = json.loads((runs / f"{task}-scratch/seed-1/config.json").read_text())
        assert config["architectures"] == [f"BertFor{head}Classification"]
        assert [config["id2label"][str(number)] for number in range(len(labels))] == labels
        assert config["label2id"] == {label: number for number, label in enumerate(labels)}


def test_random_weights_are_none_of_the_model(runs):
    name = "bert.encoder.layer.0.attention.self.query.weight"
    from safetensors.torch import load_file

    loaded = {run: load_file(runs / run / "model.safetensors")[name] for run in ("pretrain", "ner-scratch/seed-1")}
    loaded["ner-pretrained"] = load_file(runs / "ner-pretrained/seed-1/model.safetensors")[name]
    distance = {run: float((tensor - loaded["pretrain"]).norm()) for run, tensor in loaded.items()}
    assert distance["ner-scratch/seed-1"] > 1.5 * distance["ner-pretrained"] > 0


def test_the_window_of_training_is_that_of_prediction(runs):
    """Going on from a tagger with its own labels keeps its head; inputs longer than the window are read in several."""
    slow = {"max_epochs": 1, "seeds": (3,), "optim": OptimConfig(lr=1e-5, head_lr=1e-5)}
    folder = runs.finetune("windows", "ner", model=runs / "ner-pretrained", max_length=24, **slow)
    assert json.loads((folder / "seed-3/tokenizer_config.json").read_text())["model_max_length"] == 24
    assert load_tagger(folder, "32-true").max_length == 24
    out = runs.evaluate("windows-again", "ner", {"m": folder}, test=runs.labelled("ner", "validation"))
    noted = runs.results["windows"]["seeds"][0]["validation"]["f1"]
    assert json.loads((out / "metrics.json").read_text())["systems"]["m"]["f1"] == pytest.approx(noted, abs=1e-6) != 0


def test_from_a_tokenizer_and_an_architecture(runs):
    changes = {"init": "random", "encoder": runs.encoder, "max_epochs": 1, "seeds": (7,)}
    folder = runs.finetune("from-tokenizer", "classification", model=runs / "vocab", **changes)
    assert set(load_classifier(folder, "32-true").predict_texts(["No effect."])[0].scores) == {
        "negative",
        "null",
        "positive",
    }
    # random weights, with the architecture and the tokenizer of a fine-tuned model
    changes |= {"encoder": None, "model": folder}
    again = runs.finetune("from-finetuned", "classification", **changes)
    weights = [(one / "seed-7/model.safetensors").read_bytes() for one in (folder, again)]
    assert weights[0] == weights[1]


def test_all_parameters_are_told(runs, capsys):
    """Trained parameters, and parameters of words that do not occur, which are not trained."""
    out = runs.finetune("parameters", "classification", seeds=(1,), max_epochs=1)
    unused = r"\(([\d,]+) more, of vocabulary entries that the texts do not contain, stay unchanged\)"
    found = re.search(rf"seed 1: ([\d,]+) parameters {unused}; ", capsys.readouterr().out)
    trained, parked = (int(number.replace(",", "")) for number in found.groups())
    model, _, _ = load_model(out / "seed-1", "sequence")
    assert trained + parked == sum(parameter.numel() for parameter in model.parameters())
    assert parked % 64 == 0 < parked


def test_training_stops_when_it_no_longer_improves(runs):
    still = OptimConfig(lr=1e-12, head_lr=1e-12)
    runs.finetune("patient", "classification", seeds=(1,), max_epochs=9, patience=2, optim=still)
    (row,) = runs.results["patient"]["seeds"]
    assert (len(row["history"]), row["best_epoch"]) == (3, 1)


def test_bad_settings_are_named(runs, tmp_path):
    for number, (changes, where, problem, expected) in enumerate(
        [
            ({"seeds": (1, 2, 1)}, "seeds", "found [1, 2, 1]", "a list of one or more different items..."),
            ({"seeds": ()}, "seeds", "found []", "..."),
            ({"max_length": 97}, "max_length", "found 97", "at most 96, the number of positions of the encoder"),
            ({"encoder": runs.encoder}, "encoder", "found with init: pretrained", "..."),
            ({"model": runs / "vocab"}, "", "no config.json", "a model folder..."),
            ({"micro_batch_size": 3}, "micro_batch_size", "found 3", "a divisor of batch_size, 8"),
            ({"train": tmp_path / "none.conll"}, "train", "...none.conll' does not exist", "a file or folder..."),
        ]
    ):
        with refused(where=where, problem=problem, expected=expected):
            runs.finetune(str(tmp_path / str(number)), "ner", **changes)


def test_a_label_of_validation_alone_is_named_and_nothing_stays_behind(runs, tmp_path):
    validation = tmp_path / "validation.conll"
    validation.write_text("A\tO\nloan\tB-intervention\n\nin\tO\nKenya\tB-place\n")
    facts = {"file": validation, "line": 4, "problem": "label 'place' (count 1, first here) was not in training"}
    facts |= {"expected": "a training label: 'coreference', 'effect_size', ..."}
    with refused(**facts):
        runs.finetune(str(tmp_path / "stage"), "ner", validation=validation)
    words = ["--model", str(runs / "pretrain"), "--task", "Ner", "--train", str(runs.labelled("ner", "train"))]
    words += ["--validation", str(validation), "--out", str(tmp_path / "out")]
    command_refused("finetune", *words, **facts)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "task"), [("linear", Ner()), ("crf", Ner(head="crf")), ("classes", Classification())])
def test_micro_batches_change_nothing(runs, name, task):
    """With texts of several windows, and a batch that ends one pass and begins the next."""
    kind = "classification" if name == "classes" else "ner"
    changes = {"task": task, "max_length": 16, "batch_size": 32, "max_epochs": 2, "seeds": (1,), "dropout": 0.0}
    changes["select_by"] = "loss"  # by F1, a rounding error may change one label and so the epoch that is saved
    changes["optim"] = OptimConfig(lr=1e-3, eps=1e-4)  # a large eps: Adam divides rounding errors by tiny moments
    folders = [runs.finetune(f"micro-{name}-{n}", kind, **changes, micro_batch_size=n) for n in (None, 8)]
    whole, part = [load_file(folder / "seed-1/model.safetensors") for folder in folders]
    moved = load_file(runs / "pretrain/model.safetensors")
    shared = next(key for key in whole if key.endswith("layer.0.output.dense.weight"))
    assert float((whole[shared] - moved[shared]).abs().max()) > 1e-3
    assert max(float((whole[key] - part[key]).abs().max()) for key in whole) < 2e-5


def test_labels_of_the_task_decide_which_labels_a_file_may_have(tmp_path):
    """Validation may have a label of the task without an item in training; training may have no other label."""
    files = {"train": "ab", "validation": "abc"}
    for name, labels in files.items():
        (tmp_path / f"{name}.csv").write_text("text,label\n" + "".join(f"text {label},{label}\n" for label in labels))
    paths = {name: tmp_path / f"{name}.csv" for name in files}

    def check(*labels):
        arguments = StageArguments({"task": Classification(labels=labels or None), **paths})
        arguments.check_training_files()
        return arguments.training_labels(), [(key, error.line) for key, error in arguments.problems]

    assert check("a", "b", "c") == (("a", "b", "c"), [])
    assert check() == (("a", "b"), [("validation", 4)])
    assert check("a", "c") == (("a", "c"), [("train", 3), ("validation", 3)])
