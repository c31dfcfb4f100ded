"""Every labelled task in a Lightning Trainer: fit, checkpoint, test, predict, save."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lightning.pytorch.callbacks import ModelCheckpoint

from domainbert.serving.predictor import load_predictor
from domainbert.tasks.classification.config import Classification, ClassificationFormat
from domainbert.tasks.finetuning import FineTuning
from domainbert.tasks.labelled_data import LabelledData
from domainbert.tasks.multi_label.config import MultiLabel
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.parsing.config import Parsing
from domainbert.tasks.question_answering.config import QuestionAnswering
from domainbert.tasks.regression.config import Regression
from domainbert.tasks.relations.config import Relations
from domainbert.tasks.token_labels.config import TokenLabels
from tests.library.trainer.tiny_library import BERT, DATA, OPTIM, about, trainer
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
    data = LabelledData(task, **files, model=tiny / "vocab", batch_size=8)
    module = FineTuning(tiny / "vocab", task, init="random", encoder=encoder, optim=OPTIM)
    keeps = ModelCheckpoint(tmp_path, filename="last")
    run = trainer(callbacks=[keeps], max_epochs=2, enable_checkpointing=True)
    run.fit(module, data)
    headline = task.headline
    assert headline.monitor in run.callback_metrics and "validation/loss" in run.callback_metrics
    (scores,) = run.test(module, data, verbose=False)
    assert f"test/{headline.key}" in scores
    loaded = FineTuning.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    assert trainer().test(loaded, data, verbose=False)[0] == pytest.approx(scores, abs=1e-5)
    module.save_pretrained(tmp_path / "model")
    loaded.save_pretrained(tmp_path / "loaded")
    assert (tmp_path / "model/config.json").read_text() == (tmp_path / "loaded/config.json").read_text()
    predictor, contents = load_predictor(tmp_path / "model", "32-true"), data.labelled("test").contents
    predicted = [one for batch in run.predict(module, data) for one in batch]
    assert about(predicted) == about([predictor.as_json(one) for one in predictor.predict(contents)])
    tested = LabelledData(task, test=files["test"], model=tmp_path / "model")
    again = trainer().test(FineTuning.from_pretrained(tmp_path / "model", task), tested, verbose=False)[0]
    assert again[f"test/{headline.key}"] == pytest.approx(scores[f"test/{headline.key}"], abs=1e-5)


def test_what_is_learnt_on_validation_is_saved(tiny, tmp_path):
    """The temperature of a classifier, also from a checkpoint."""
    task = Classification(calibrate=True)
    sets = {split: DATA / f"classes-{split}.jsonl" for split in ("train", "validation")}
    module = FineTuning(tiny / "model", task, optim=OPTIM)
    keeps = ModelCheckpoint(tmp_path, filename="last")
    run = trainer(callbacks=[keeps], max_epochs=2, enable_checkpointing=True)
    run.fit(module, LabelledData(task, **sets, batch_size=8))
    loaded = FineTuning.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    module.save_pretrained(tmp_path / "model")
    loaded.save_pretrained(tmp_path / "loaded")
    fields = json.loads((tmp_path / "model/config.json").read_text())
    (temperature,) = [value for key, value in fields.items() if "temperature" in key]
    assert temperature == pytest.approx(float(run.callback_metrics["validation/temperature"]), rel=1e-5)
    assert fields == json.loads((tmp_path / "loaded/config.json").read_text())
    tested = LabelledData(task, test=DATA / "classes-test.jsonl")
    (scores,) = trainer().test(loaded, tested, verbose=False)
    assert scores["test/calibration/temperature"] == pytest.approx(temperature)
    assert scores["test/calibration/ece"] != scores["test/calibration/uncalibrated/ece"]
    assert "test/calibration/seeds" not in scores


def test_a_second_fit_replaces_what_was_learnt_on_validation(tiny, tmp_path):
    """The temperature of the new training is saved and predicts, also after a test of an earlier checkpoint."""
    task = Classification(calibrate=True)
    sets = {split: DATA / f"classes-{split}.jsonl" for split in ("train", "validation", "test")}
    data, module = LabelledData(task, **sets, batch_size=8), FineTuning(tiny / "model", task, optim=OPTIM)
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


def test_a_checkpoint_of_regression_in_a_module_with_other_units(tiny, tmp_path):
    """A model folder and a loaded module have the units of the files, and a checkpoint the units of its training."""
    task, numbers = Regression(), (900.0, 1000.0, 1200.0)
    rows = [{"text": f"Prices rose in {year}.", "label": numbers[year % 3]} for year in range(24)]
    data = LabelledData(task, rows, rows, rows, batch_size=8)
    module, path = FineTuning(tiny / "model", task, optim=OPTIM), tmp_path / "last.ckpt"
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
        tested = LabelledData(task, validation=rows, test=rows, model=tmp_path / "model")
        (again,) = trainer().test(other, tested, ckpt_path=str(path), weights_only=True, verbose=False)
        assert again == pytest.approx(scores, rel=1e-4)
        (validated,) = trainer().validate(other, tested, ckpt_path=str(path), weights_only=True, verbose=False)
        assert validated["validation/mae"] == pytest.approx(scores["test/mae"], rel=1e-4)


def test_rows_and_datasets_are_labelled_sets(tiny, tmp_path):
    from datasets import Dataset

    rows = [{"text": f"Prices {word} in {year}.", "label": word} for word in ("rose", "fell") for year in range(8)]
    data = LabelledData(Classification(), rows, Dataset.from_list(rows[:4]), model=tiny / "model", batch_size=4)
    module = FineTuning(tiny / "model", Classification(), optim=OPTIM)
    run = trainer(max_epochs=1)
    run.fit(module, data)
    assert module.task.labels == ("fell", "rose") and run.global_step == 4
    asked = LabelledData(Classification(), test=rows, predict=[{"text": "Prices rose."}], model=tiny / "model")
    assert 0 <= run.test(module, asked, verbose=False)[0]["test/accuracy"] <= 1
    (((found,),), wanted) = run.predict(module, asked), module.predictor.predict(["Prices rose."])[0]
    assert found["label"] == wanted.label
