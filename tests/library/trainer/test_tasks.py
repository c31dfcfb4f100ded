"""Every labelled task in a Lightning Trainer: fit, checkpoint, test, predict, save."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from safetensors.torch import load_file, save_file

from domainbert.base.errors import DomainbertError
from domainbert.serving.predictor import load_predictor
from domainbert.tasks.classification.config import Classification, ClassificationFormat
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.finetuning import FineTuning
from domainbert.tasks.labelled_data import LabelledData
from domainbert.tasks.multi_label.config import MultiLabel
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.parsing.config import Parsing
from domainbert.tasks.question_answering.config import QuestionAnswering
from domainbert.tasks.regression.config import Regression
from domainbert.tasks.relations.config import Relations
from domainbert.tasks.token_labels.config import TokenLabels
from tests.interface.current import metric_names
from tests.interface.snapshot import check_interface
from tests.library.trainer.tiny_library import BERT, DATA, OPTIM, about, equal, trainer, weights
from tests.model_cards import run_card
from tests.samples.task_data import write_task_data

pytestmark = pytest.mark.usefixtures("one_thread")
SIZES = {"train": 24, "validation": 8, "test": 8}
TASKS = {
    "ner": (Ner(head="crf"), DATA / "ner-{}.conll"),
    "classification": (Classification(), DATA / "classes-{}.jsonl"),
    "multi_label": (MultiLabel(), "labels/{}.jsonl"),
    "regression": (Regression(), "numbers/{}.jsonl"),
    "relations": (Relations(markers="tokens", head="starts"), "relations/{}.jsonl"),
    "pairs": (Classification(format=ClassificationFormat(text_pair_key="text_pair")), "pairs/{}.jsonl"),
    "token_labels": (TokenLabels(head="crf"), "token_labels/{}.conll"),
    "parsing": (Parsing(), "trees/{}.conllu"),
    "question_answering": (QuestionAnswering(max_question_length=32), "questions/{}.json"),
}


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labelled files of all tasks."""
    out = tmp_path_factory.mktemp("sets")
    write_task_data(out, 0, SIZES, SIZES)
    for name, values in {"labels": (["a"], ["b"], ["a", "b"], []), "numbers": (0.5, 1.5, 4.0, 2.0)}.items():
        (out / name).mkdir()
        for split, count in SIZES.items():
            key = "labels" if name == "labels" else "label"
            rows = [{"text": f"text {i % 4} of {i % 3}", key: values[i % 4]} for i in range(count)]
            (out / name / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return out


@pytest.mark.parametrize("name", TASKS)
def test_a_task(tiny, sets, tmp_path, name):
    task, pattern = TASKS[name]
    files = {split: sets / str(pattern).format(split) for split in SIZES}
    encoder = BERT.resized(BERT.sizes.__class__(**{**vars(BERT.sizes), "max_length": 256}))
    data = LabelledData(task, **files, tokenizer=tiny / "vocab", batch_size=8, max_length=256)
    module = FineTuning(tiny / "vocab", data.task, init="random", encoder=encoder, optim=OPTIM, max_length=256)
    keeps = ModelCheckpoint(tmp_path, filename="last")
    run = trainer(callbacks=[keeps], max_epochs=2, enable_checkpointing=True)
    run.fit(module, data)
    headline, logged = task.headline, {*run.callback_metrics}
    assert headline.monitor in logged
    (scores,) = run.test(module, data, verbose=False)
    assert f"test/{headline.key}" in scores
    test_set = LabelledData(module.task, validation=files["test"], tokenizer=module.tokenizer)
    (validated,) = run.validate(module, test_set, verbose=False)
    assert validated[headline.monitor] == pytest.approx(scores[f"test/{headline.key}"], abs=1e-6)
    check_interface("metrics", metric_names(logged | scores.keys()), name)
    loaded = FineTuning.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    assert trainer().test(loaded, data, verbose=False)[0] == pytest.approx(scores, abs=1e-5)
    module.save_pretrained(tmp_path / "model")
    loaded.save_pretrained(tmp_path / "loaded")
    assert (tmp_path / "model/config.json").read_text() == (tmp_path / "loaded/config.json").read_text()
    assert run_card(tmp_path / "model")
    predictor, contents = load_predictor(tmp_path / "model", "32-true"), data.labelled("test").contents
    predicted = [one for batch in run.predict(module, data) for one in batch]
    assert about(predicted) == about([predictor.as_json(one) for one in predictor.predict(contents)])
    opened = FineTuning.from_pretrained(tmp_path / "model", task)
    tested = LabelledData(opened.task, test=files["test"], tokenizer=opened.tokenizer)
    again = trainer().test(opened, tested, verbose=False)[0]
    assert again[f"test/{headline.key}"] == pytest.approx(scores[f"test/{headline.key}"], abs=1e-5)


LEARNED = {
    "classification": Classification(class_weights="balanced"),
    "multi_label": MultiLabel(pos_weight="balanced"),
    "regression": Regression(),
    "ner": Ner(),
}


@pytest.mark.parametrize("is_trained", [False, True], ids=["new head", "trained head"])
@pytest.mark.parametrize("name", LEARNED)
def test_a_task_from_settings_trains_as_the_task_of_the_data_does(tiny, sets, tmp_path, name, is_trained):
    """With the class weights, the units and the splitting of words of the training set."""
    task, files = LEARNED[name], {split: sets / str(TASKS[name][1]).format(split) for split in ("train", "validation")}
    start = started(tiny / "model", task, files)
    named = {"ner": ("LOC", "ORG", "PER"), "regression": None}.get(name, start.task.labels)
    folder, labels = tiny / "model", replace(task, labels=named)
    if is_trained:
        folder, labels = tmp_path / "model", task
        trainer(max_steps=2).fit(start, LabelledData(task, **files, tokenizer=tiny / "model"))
        start.save_pretrained(folder)
    shared = {"tokenizer": folder, "batch_size": 8}
    data = LabelledData(task, **files, **shared)
    trained = {
        "data": (FineTuning(folder, data.task, optim=OPTIM), data),
        "settings": (FineTuning(folder, labels, optim=OPTIM), data),
    }
    module = FineTuning(folder, labels, optim=OPTIM)
    trained["module"] = (module, LabelledData(module.task, **files, **shared))
    for one, given in trained.values():
        trainer(max_steps=3).fit(one, given)
    learned = {
        key: {entry: getattr(one.task, entry) for entry in one.task.learned} for key, (one, _) in trained.items()
    }
    assert learned["settings"] == learned["module"] == learned["data"] and learned["data"]["has_learned"]
    assert equal(weights(trained["settings"][0]), weights(trained["data"][0]))
    assert equal(weights(trained["module"][0]), weights(trained["data"][0]))


def with_labels_reversed(folder: Path, out: Path) -> Path:
    """A copy of a model whose labels, and the rows of its head, are in the opposite order."""
    shutil.copytree(folder, out)
    fields, tensors = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
    labels = [fields["id2label"][str(number)] for number in range(len(fields["id2label"]))][::-1]
    fields |= {"id2label": dict(enumerate(labels)), "label2id": {name: number for number, name in enumerate(labels)}}
    dimensions = {"classifier.weight": [0], "classifier.bias": [0], "biaffine.label": [0]}
    dimensions |= {"crf.start": [0], "crf.end": [0], "crf.transitions": [0, 1]}
    reversed_tensors = {name: tensors[name].flip(where) for name, where in dimensions.items() if name in tensors}
    assert labels != sorted(labels) and reversed_tensors
    save_file(tensors | reversed_tensors, out / "model.safetensors", {"format": "pt"})
    (out / "config.json").write_text(json.dumps(fields))
    return out


def started(model: Path, task: TaskConfig, files: dict[str, Path], **arguments) -> FineTuning:
    """A module before a training, with the task of a training set."""
    return FineTuning(model, LabelledData(task, **files).task, **arguments)


@pytest.mark.parametrize("name", [name for name in TASKS if name not in ("regression", "question_answering")])
def test_a_head_with_its_labels_in_another_order_is_taken_over(tiny, sets, tmp_path, name):
    """As public taggers have them."""
    task, pattern = TASKS[name]
    files = {split: sets / str(pattern).format(split) for split in SIZES}
    encoder = BERT.resized(BERT.sizes.__class__(**{**vars(BERT.sizes), "max_length": 256}))
    module = started(tiny / "vocab", task, files, init="random", encoder=encoder, max_length=256)
    with torch.no_grad():
        for parameter in module.model.head.parameters():
            parameter.add_(torch.randn_like(parameter))
    module.save_pretrained(tmp_path / "model")
    other = with_labels_reversed(tmp_path / "model", tmp_path / "other")
    same, moved = (started(folder, task, files) for folder in (tmp_path / "model", other))
    assert moved.task.labels == module.task.labels and equal(weights(moved), weights(same))
    contents = task.read(files["test"]).contents
    assert moved.predictor.predict(contents) == same.predictor.predict(contents)
    if name in ("ner", "classification"):  # also with the labels of the folder
        ours, theirs = (one.predictor for one in (FineTuning.from_pretrained(other, task), same))
        found, wanted = (about([one.as_json(said) for said in one.predict(contents)]) for one in (ours, theirs))
        assert sorted(ours.labels) == sorted(theirs.labels) and found == wanted


def test_a_head_that_does_not_fit_is_new_and_named_once(tiny, capsys):
    rows = [{"tokens": ["Bonn"], "tags": [f"B-{kind}"]} for kind in ("LOC", "ORG")]
    files = {"train": rows, "validation": rows}
    for task in (Ner(head="linear"), Ner(head="linear"), Ner(head="crf")):
        started(tiny / "tagger", task, files)
    lines = [line for line in capsys.readouterr().out.splitlines() if "the head is new" in line]
    labels = ["'O', 'B-LOC', 'I-LOC', 'B-ORG', 'I-ORG'", "'B-PER', 'I-PER'"]
    assert lines == [
        f"{tiny / 'tagger'}: the head is new: found the labels {', '.join(labels)}; expected {labels[0]}",
        f"{tiny / 'tagger'}: the head is new: found the head tokens; expected crf",
    ]
    started(tiny / "model", Ner(head="linear"), files)
    assert "the head is new" not in capsys.readouterr().out, "an encoder that was only pretrained has no labels"


def test_what_is_learnt_on_validation_is_saved(tiny, tmp_path):
    """The temperature of a classifier, also from a checkpoint."""
    task = Classification(calibrate=True)
    sets = {split: DATA / f"classes-{split}.jsonl" for split in ("train", "validation")}
    data = LabelledData(task, **sets, tokenizer=tiny / "model", batch_size=8)
    module = FineTuning(tiny / "model", data.task, optim=OPTIM)
    keeps = ModelCheckpoint(tmp_path, filename="last")
    run = trainer(callbacks=[keeps], max_epochs=2, enable_checkpointing=True)
    run.fit(module, data)
    loaded = FineTuning.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    module.save_pretrained(tmp_path / "model")
    loaded.save_pretrained(tmp_path / "loaded")
    fields = json.loads((tmp_path / "model/config.json").read_text())
    (temperature,) = [value for key, value in fields.items() if "temperature" in key]
    assert temperature == pytest.approx(float(run.callback_metrics["validation/temperature"]), rel=1e-5)
    assert fields == json.loads((tmp_path / "loaded/config.json").read_text())
    tested = LabelledData(loaded.task, test=DATA / "classes-test.jsonl", tokenizer=loaded.tokenizer)
    (scores,) = trainer().test(loaded, tested, verbose=False)
    assert scores["test/calibration/temperature"] == pytest.approx(temperature)
    assert scores["test/calibration/ece"] != scores["test/calibration/uncalibrated/ece"]
    assert "test/calibration/seeds" not in scores


def test_a_second_fit_replaces_what_was_learnt_on_validation(tiny, tmp_path):
    """The temperature of the new training is saved and predicts, also after a test of an earlier checkpoint."""
    task = Classification(calibrate=True)
    sets = {split: DATA / f"classes-{split}.jsonl" for split in ("train", "validation", "test")}
    data = LabelledData(task, **sets, tokenizer=tiny / "model", batch_size=8)
    module = FineTuning(tiny / "model", data.task, optim=OPTIM)
    first = trainer(callbacks=[ModelCheckpoint(tmp_path, filename="first")], max_epochs=1, enable_checkpointing=True)
    first.fit(module, data)
    earlier = module.predictor.task.temperature
    first.test(module, data, ckpt_path=str(tmp_path / "first.ckpt"), weights_only=True, verbose=False)
    trainer(max_epochs=2).fit(module, data)
    temperature = module.scores["temperature"]
    assert temperature != pytest.approx(earlier, rel=1e-3)
    assert module.predictor.task.temperature == pytest.approx(temperature, rel=1e-5)
    module.save_pretrained(tmp_path / "model")
    fields = json.loads((tmp_path / "model/config.json").read_text())
    assert fields["domainbert_temperature"] == pytest.approx(temperature, rel=1e-5)


def test_steps_after_the_last_validation_leave_its_threshold_out_everywhere(tiny, tmp_path, capsys):
    """In a test, in predictions, and in the saved folder. The sanity check of the Trainer is not a validation."""
    rows = [{"text": f"Prices rose in {year}.", "labels": ["ab"[year % 2], "c"][: 1 + year % 3]} for year in range(40)]
    data = LabelledData(MultiLabel(), rows, rows[:9], rows[9:], tokenizer=tiny / "model", batch_size=8)
    module = FineTuning(tiny / "model", data.task, optim=OPTIM)
    run = trainer(max_steps=5, val_check_interval=3)
    run.fit(module, data)
    assert module.scores["threshold"] != 0.5
    module.save_pretrained(tmp_path / "model")
    assert "no scores and no validated `domainbert_threshold`" in capsys.readouterr().out
    saved = load_predictor(tmp_path / "model")
    assert saved.task.threshold == module.predictor.task.threshold == 0.5
    (tested,) = run.test(module, data, verbose=False)
    (of_folder,) = trainer().test(FineTuning(tmp_path / "model", MultiLabel()), data, verbose=False)
    assert tested == of_folder
    run.validate(module, data, verbose=False)
    assert module.predictor.task.threshold == pytest.approx(module.scores["threshold"])

    unchecked = FineTuning(tiny / "model", data.task, optim=OPTIM)
    trainer(max_steps=2, val_check_interval=3, num_sanity_val_steps=1).fit(unchecked, data)
    assert unchecked.scores == {} and unchecked.predictor.task.threshold == 0.5


def test_a_checkpoint_of_regression_in_a_module_with_other_units(tiny, tmp_path):
    """A model folder and a loaded module have the units of the files, and a checkpoint the units of its training."""
    task, numbers = Regression(), (900.0, 1000.0, 1200.0)
    rows = [{"text": f"Prices rose in {year}.", "label": numbers[year % 3]} for year in range(24)]
    data = LabelledData(task, rows, rows, rows, tokenizer=tiny / "model", batch_size=8)
    module, path = FineTuning(tiny / "model", data.task, optim=OPTIM), tmp_path / "last.ckpt"
    run = trainer(callbacks=[ModelCheckpoint(tmp_path, filename="last")], max_epochs=1, enable_checkpointing=True)
    run.fit(module, data)
    module.save_pretrained(tmp_path / "model")
    (scores,) = run.test(module, data, verbose=False)
    assert scores["test/mae"] < 300
    for other in (
        module,
        FineTuning.load_from_checkpoint(path, weights_only=True),
        FineTuning.from_pretrained(tmp_path / "model", task),
    ):
        tested = LabelledData(task, validation=rows, test=rows, tokenizer=tmp_path / "model")
        (again,) = trainer().test(other, tested, ckpt_path=str(path), weights_only=True, verbose=False)
        # The predictions are close together: correlations are ill-conditioned.
        assert again == pytest.approx(scores, rel=1e-3)
        (validated,) = trainer().validate(other, tested, ckpt_path=str(path), weights_only=True, verbose=False)
        assert validated["validation/mae"] == pytest.approx(scores["test/mae"], rel=1e-4)
        # the loss has the units of the training, which a model folder does not have
        assert ("validation/loss" in validated) == other.task.has_learned
    assert not other.task.has_learned


def test_rows_and_datasets_are_labelled_sets(tiny, tmp_path):
    from datasets import Dataset

    rows = [{"text": f"Prices {word} in {year}.", "label": word} for word in ("rose", "fell") for year in range(8)]
    given = {"tokenizer": tiny / "model", "batch_size": np.int64(4)}
    data = LabelledData(Classification(), rows, Dataset.from_list(rows[:4]), **given)
    module = FineTuning(tiny / "model", data.task, optim=OPTIM)
    run = trainer(max_epochs=1)
    run.fit(module, data)
    assert module.task.labels == ("fell", "rose") and run.global_step == 4
    arrays = LabelledData(Classification(), np.array(rows, dtype=object), **given)
    run.fit(again := FineTuning(tiny / "model", arrays.task, optim=OPTIM), arrays)
    assert again.task.labels == ("fell", "rose")
    to_predict = LabelledData(module.task, predict=np.array(["Prices rose.", "Prices fell."]), **given)
    (answers,) = run.predict(module, to_predict)
    for texts in (("Prices rose.", "Prices fell."), (f"Prices {word}." for word in ("rose", "fell"))):
        assert run.predict(module, LabelledData(module.task, predict=texts, **given)) == [answers]
    assert [answer["label"] for answer in answers] == [
        wanted.label for wanted in module.predictor.predict(np.array(["Prices rose.", "Prices fell."]))
    ]
    for change in ({"train": np.array(3)}, {"train": np.array(["a.conll"])}, {"max_length": np.array([5, 6])}):
        with pytest.raises(DomainbertError, match=r"^(train: found int|max_length: found|a\.conll)"):
            trainer(max_steps=1).fit(module, LabelledData(Classification(), **{"train": rows, **change}))
    to_test = LabelledData(module.task, test=rows, predict=[{"text": "Prices rose."}], **given)
    assert 0 <= run.test(module, to_test, verbose=False)[0]["test/accuracy"] <= 1
    (((found,),), wanted) = run.predict(module, to_test), module.predictor.predict(["Prices rose."])[0]
    assert found["label"] == wanted.label
