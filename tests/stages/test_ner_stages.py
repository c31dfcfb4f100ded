"""Models of BIOES through every stage, and entities predicted for annotation tools."""

from __future__ import annotations

import json

import pytest

from domainbert.distillation.prediction_config import HardTargets, SoftTargets
from domainbert.distillation.student_config import StudentConfig
from domainbert.labelled.tag_schemes import find_violations, labels_of_types, to_iob2
from domainbert.serving.loaders import load_tagger
from domainbert.stages.distill_task import distill_task
from domainbert.stages.export import export
from domainbert.stages.predict import predict
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.files import read_ner
from domainbert.training.config import OptimConfig
from tests.refusals import refused

TEXTS = ["Cash transfers raised school attendance of girls by 9 %.", "The farmers' co-operatives' incomes rose.", ""]
TYPES = ("coreference", "effect_size", "intervention", "outcome", "population")


@pytest.fixture(autouse=True)
def quick(one_thread):
    pass


def taught(runs, name, teacher, **changes):
    files = {split: runs.labelled("ner", split) for split in ("train", "validation")}
    usual = {"teachers": [teacher], "task": Ner(scheme="BIOES"), "student": StudentConfig(first_layers=1), **files}
    usual |= {"losses": [SoftTargets(), HardTargets()], "batch_size": 16, "max_epochs": 1, "unlabelled": runs.corpus}
    usual |= {"optim": OptimConfig(lr=1e-3), "max_unlabelled": 50, "unlabelled_batch_size": 8}
    return runs.run(name, distill_task, **{**runs.training, **usual, **changes})


@pytest.mark.usefixtures("torch_for_onnx")
def test_bioes_through_every_stage(runs):
    pytest.importorskip("onnxscript")
    task = Ner(head="crf", scheme="BIOES")
    teacher = runs.finetune("bioes", "ner", task=task, seeds=(1,), max_epochs=3)
    config = json.loads((teacher / "seed-1/config.json").read_text())
    assert config["domainbert_tags"] == "BIOES"
    assert [config["id2label"][str(number)] for number in range(21)] == labels_of_types(TYPES, "BIOES")
    scored = runs.evaluate("bioes-scores", "ner", {"m": teacher}, test=runs.labelled("ner", "validation"))
    system = json.loads((scored / "metrics.json").read_text())["systems"]["m"]
    validation = runs.results["bioes"]["seeds"][0]["validation"]
    noted = validation["f1"]
    assert config["domainbert_min_score"] == round(validation["min_score"], 2)
    assert system["f1"] == pytest.approx(noted, abs=1e-6) and noted > 0 and system["repaired_tags"] == 0
    tagger = load_tagger(teacher, "32-true")
    tags = tagger.predict_words([text.split() for text in TEXTS if text])
    assert all(to_iob2(one) == one for one in tags) and [len(one) for one in tags] == [10, 5]
    raw = [
        tags for tags, _ in tagger._decode_examples(tagger.task.encode_contents(TEXTS, tagger.tokenizer, 64)).values()
    ]
    assert raw and all(not find_violations(one, "BIOES") for one in raw)
    student = taught(runs, "bioes-student", teacher)
    assert json.loads((student / "seed-1/config.json").read_text())["domainbert_tags"] == "BIOES"
    assert load_tagger(student, "32-true").labels == tagger.labels
    found = tagger.predict_entities(TEXTS)
    folder = runs.run("bioes-exported", export, model=teacher)
    exported = load_tagger(folder, "32-true").predict_entities(TEXTS)
    assert [[one.text for one in row] for row in exported] == [[one.text for one in row] for row in found]
    ours, theirs = ([one.score for row in rows for one in row] for rows in (found, exported))
    assert theirs == pytest.approx(ours, abs=1e-4) and all(0 < one <= 1 for one in ours)


def test_a_teacher_of_another_scheme_is_refused(runs):
    with refused(problem="...has the labels O, B-coreference, I-coreference, B-...", expected="the labels of the..."):
        taught(runs, "bioes-of-iob2", runs / "ner-pretrained")


@pytest.mark.parametrize("format", ["prodigy", "label_studio", "brat"])
def test_predictions_for_annotation_tools(runs, tmp_path, format):
    """What predict writes is a labelled file; Label Studio's once a person has taken the predictions over."""
    texts = [" ".join(sentence.words) for sentence in read_ner(runs.labelled("ner", "train")).sentences[:8]]
    path = tmp_path / "a.txt"
    path.write_text("\n".join(texts) + "\n")
    out = runs.run(f"predicted-{format}", predict, model=runs / "ner-pretrained", input=path, output_format=format)
    (written,) = out.iterdir()
    if format == "label_studio":
        tasks = json.loads(written.read_text())
        for one in tasks:
            one["annotations"] = one.pop("predictions")
        written.write_text(json.dumps(tasks))
    found = load_tagger(runs / "ner-pretrained", "32-true").predict_entities(texts)
    read = read_ner(written)
    assert [one.labels for one in read.sentences] == [[entity.type for entity in row] for row in found]
    assert read.num_spans > 0


def test_formats_that_a_task_does_not_have(runs, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("Nothing\n")
    with refused(where="output_format", found="'brat'", expected="jsonl, as the model is for classification"):
        runs.run("wrong-format", predict, model=runs / "classification-pretrained", input=path, output_format="brat")
