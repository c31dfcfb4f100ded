"""The stage `export` on fine-tuned models, and what the other stages do with its folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from domainbert.base.errors import DomainbertError
from domainbert.cli import main
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.crf import crf_of
from domainbert.models.folder import ModelFolder, open_model
from domainbert.models.loading import load_model
from domainbert.models.saving import save_model
from domainbert.serving.loaders import load_classifier, load_tagger
from domainbert.serving.onnx.parity import TOLERANCE
from domainbert.serving.predictor import load_predictor
from domainbert.stages.export import _card, export
from domainbert.tasks.classification.config import Classification
from domainbert.tasks.classification.task import Classifier
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.files import read_ner
from domainbert.tasks.ner.tagger import Tagger
from tests.interface.snapshot import check_folder
from tests.model_cards import run_card
from tests.refusals import refused

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def best(runs, name: str) -> Path:
    return runs / name / runs.results[name]["best"]


@pytest.fixture(scope="module")
def tagger_folder(runs) -> Path:
    """A tagger exported in both ways, and checked on its validation set."""
    check = runs.labelled("ner", "validation")
    return runs.run("export-ner", export, model=runs / "ner-pretrained", quantize="int8", check=check)


@pytest.fixture(scope="module")
def classifier_folder(runs) -> Path:
    """A classifier exported in full precision, and compared on made-up texts alone."""
    return runs.run("export-classification", export, model=runs / "classification-pretrained")


@pytest.fixture(scope="module")
def sentences(runs) -> list[list[str]]:
    return [one.words for one in read_ner(runs.labelled("ner", "test")).sentences]


def test_what_it_writes_and_says(runs, tagger_folder):
    check_folder("export", tagger_folder)
    report = json.loads((tagger_folder / "metrics.json").read_text())
    assert report == runs.results["export-ner"]
    assert report["source"] == runs.results["ner-pretrained"]["best"] and report["head"] == "tokens"
    assert report["texts_compared"] > 40 + 8
    exact, small = report["files"]["model.onnx"], report["files"]["model.int8.onnx"]
    for name, facts in report["files"].items():
        assert facts["bytes"] == (tagger_folder / name).stat().st_size
    assert 0 < exact["max_logit_difference"] < TOLERANCE < 1e-3 < small["max_logit_difference"] < 5
    assert exact["largest_logit"] == small["largest_logit"] > 1
    assert exact["bytes"] > 2 * small["bytes"]
    card = (tagger_folder / "README.md").read_text()
    assert "| decoding | the most probable valid tags; transformers takes the best tag of each word |" in card
    assert "| improbable entities | omitted if less probable than domainbert_min_score of config.json |" in card
    assert f"{100 * report['f1']:.2f}" in card and f"{100 * small['f1']:.2f} ({100 * small['f1_change']:+.2f}" in card
    theirs, ours = (
        json.loads((one / "config.json").read_text()) for one in (best(runs, "ner-pretrained"), tagger_folder)
    )
    assert ours == theirs


def test_the_scores_are_those_of_evaluate(runs, tagger_folder):
    """On the same file, through the public way: the torch folder, the exported one, and the int8 file in it."""
    files = {"torch": best(runs, "ner-pretrained"), "onnx": tagger_folder, "int8": tagger_folder / "model.int8.onnx"}
    out = runs.evaluate("evaluate-export", "ner", files, test=runs.labelled("ner", "validation"))
    systems = json.loads((out / "metrics.json").read_text())["systems"]
    report = runs.results["export-ner"]
    assert systems["torch"]["f1"] == systems["onnx"]["f1"] == report["f1"] == report["files"]["model.onnx"]["f1"] > 0.05
    assert systems["int8"]["f1"] == report["files"]["model.int8.onnx"]["f1"]
    assert report["files"]["model.onnx"]["f1_change"] == 0 and report["files"]["model.onnx"]["interval"] == [0, 0]
    change = report["files"]["model.int8.onnx"]["f1_change"]
    assert change == pytest.approx(systems["int8"]["f1"] - systems["torch"]["f1"])
    low, high = report["files"]["model.int8.onnx"]["interval"]
    assert low <= change <= high
    costs = {name: system["cost"] for name, system in systems.items()}
    assert len({cost["parameters"] for cost in costs.values()}) == 1
    others = sum(path.stat().st_size for path in tagger_folder.iterdir() if path.suffix != ".onnx")
    for name, file in (("onnx", "model.onnx"), ("int8", "model.int8.onnx")):
        assert costs[name]["folder_bytes"] == others + (tagger_folder / file).stat().st_size


def test_tags_and_entities_are_those_of_torch(runs, tagger_folder, sentences):
    """Long texts in windows, empty ones and odd characters too."""
    torch_tagger, tagger = load_tagger(runs / "ner-pretrained", "32-true"), load_tagger(tagger_folder, "32-true")
    assert (
        isinstance(load_predictor(tagger_folder, "32-true"), Tagger)
        and tagger.max_length == torch_tagger.max_length == 96
    )
    long = [word for words in sentences[:40] for word in words]
    given = [*sentences, [], ["\x00"], long, ["the"]]
    assert tagger.predict_words(given) == torch_tagger.predict_words(given)
    assert tagger.num_repaired == torch_tagger.num_repaired
    texts = ["", "\u00a0 Caf\u00e9 loans\u200b raised  income.", " ".join(long), *map(" ".join, sentences[:20])]
    found, wanted = tagger.predict_entities(texts), torch_tagger.predict_entities(texts)
    spans = [[(one.start, one.end, one.type, one.text) for one in entities] for entities in found]
    assert spans == [[(one.start, one.end, one.type, one.text) for one in entities] for entities in wanted]
    assert sum(map(len, spans)) > 20
    ours, theirs = ([one.score for entities in all_of for one in entities] for all_of in (found, wanted))
    assert ours == pytest.approx(theirs, abs=1e-4)


def test_int8_gives_nearly_the_same_tags_and_always_the_same(runs, tagger_folder, sentences):
    exact = load_tagger(tagger_folder, "32-true").predict_words(sentences)
    small = [load_tagger(tagger_folder / "model.int8.onnx", "32-true").predict_words(sentences) for _ in range(2)]
    assert small[0] == small[1]
    pairs = [(a, b) for one, other in zip(exact, small[0], strict=True) for a, b in zip(one, other, strict=True)]
    assert len(pairs) > 1000 and np.mean([a == b for a, b in pairs]) > 0.95


@pytest.mark.slow
def test_classes_of_long_texts_are_those_of_torch(runs, classifier_folder):
    report = runs.results["export-classification"]
    assert report["head"] == "sequence" and "f1" not in report and list(report["files"]) == ["model.onnx"]
    classifier, theirs = (
        load_predictor(classifier_folder, "32-true"),
        load_classifier(runs / "classification-pretrained", "32-true"),
    )
    assert isinstance(classifier, Classifier)
    lines = runs.labelled("classification", "test").read_text().splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    texts += [" ".join(texts[:10]), "", "a"]
    for one, other in zip(classifier.predict_texts(texts), theirs.predict_texts(texts), strict=True):
        assert one.label == other.label and one.scores == pytest.approx(other.scores, abs=1e-4)


def test_an_exported_classifier_divides_by_its_temperature(runs, classifier_folder, tmp_path):
    texts, said = ["Attendance of girls rose.", "No effect of the loans was found."], []
    for name, folder in (("torch", best(runs, "classification-pretrained")), ("onnx", classifier_folder)):
        shutil.copytree(folder, tmp_path / name)
        config = json.loads((folder / "config.json").read_text()) | {"domainbert_temperature": 2.5}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        said.append([one.scores for one in load_predictor(tmp_path / name, "32-true").predict(texts)])
    for ours, theirs in zip(*said, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)
    plain = load_predictor(classifier_folder, "32-true").predict(texts)
    assert all(max(one.scores.values()) > max(scores.values()) for one, scores in zip(plain, said[1], strict=True))


def test_as_the_card_says(runs, tagger_folder, sentences, monkeypatch):
    """The lines of Python in the model card, run in the folder, against torch's logits."""
    transformers = pytest.importorskip("transformers")
    run_card(tagger_folder)
    card = (tagger_folder / "README.md").read_text()
    lines = card.partition("```python\n")[2].partition("\n```")[0]
    assert lines.splitlines()[0] == "import onnxruntime" and "session.run" in lines
    monkeypatch.chdir(tagger_folder)
    names: dict = {}
    exec(lines, names)
    encoded = transformers.AutoTokenizer.from_pretrained(best(runs, "ner-pretrained"))(
        ["A text.", "Another one."], padding=True, return_tensors="pt"
    )
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(best(runs, "ner-pretrained")).eval()
    real = encoded["attention_mask"].bool().numpy()
    wanted = theirs(**encoded).logits.detach().numpy()
    assert names["output"].shape == wanted.shape
    np.testing.assert_allclose(names["output"][real], wanted[real], atol=1e-5)


@pytest.mark.slow
def test_a_random_field_decodes_what_the_file_emits(runs, sentences, tmp_path):
    folder = runs.finetune("ner-crf-exported", "ner", task=Ner(head="crf"), seeds=(1,), max_epochs=3)
    check = runs.labelled("ner", "validation")
    out = runs.run("export-crf", export, model=folder, quantize="int8", check=check, task=Ner())
    report = runs.results["export-crf"]
    check_folder("export of a CRF", out)
    assert report["head"] == "crf" and report["files"]["model.onnx"]["f1"] == report["f1"] > 0
    assert "emissions of a CRF; crf.json has its transitions" in (out / "README.md").read_text()
    ours, theirs = load_tagger(out, "32-true"), load_tagger(folder, "32-true")
    assert ours.task.crf is not None and theirs.task.crf is not None and theirs.task.crf.transitions.abs().max() > 0
    given = [*sentences, [], [word for words in sentences[:20] for word in words]]
    assert ours.predict_words(given) == theirs.predict_words(given)
    again = tmp_path / "again"
    shutil.copytree(out, again)
    export(again, model=runs / "classification-pretrained")
    assert not {"crf.json", "model.int8.onnx"} & {file.name for file in again.iterdir()}, "of the other model"
    (out / "crf.json").unlink()
    with pytest.raises(DomainbertError, match=r"crf\.json: not the CRF of an exported tagger"):
        load_tagger(out, "32-true")


@pytest.mark.slow
def test_masked_lm_and_an_encoder_alone(runs, tmp_path):
    runs.run("export-lm", export, model=runs / "pretrain", quantize="int8")
    report = runs.results["export-lm"]
    assert report["head"] == "masked_lm" and report["files"]["model.onnx"]["max_logit_difference"] < TOLERANCE
    model, folder, _ = load_model(runs / "pretrain", "masked_lm")
    save_model(tmp_path / "bare", model, folder.config, folder.tokenizer(), None, "card")
    out = runs.run("export-encoder", export, model=tmp_path / "bare")
    assert (
        runs.results["export-encoder"]["head"] is None
        and "# Encoder for ONNX Runtime" in (out / "README.md").read_text()
    )
    session = onnxruntime.InferenceSession(str(out / "model.onnx"))
    assert [one.name for one in session.get_outputs()] == ["last_hidden_state"]
    for name in ("export-lm", "export-encoder"):
        with pytest.raises(DomainbertError, match="no trained task head"):
            load_predictor(runs / name, "32-true")


@pytest.mark.slow
def test_on_the_command_line(runs, tmp_path, capsys):
    words = ["export", "--model", str(runs / "classification-scratch"), "--out", str(tmp_path / "out")]
    words += ["--check", str(runs.labelled("classification", "validation")), "--task", "Classification"]
    assert main([*words, "--quantize", "int8"]) == 0
    assert "\nmacro F1 on validation.jsonl: torch " in capsys.readouterr().out
    manifest = json.loads((tmp_path / "out/run.json").read_text())
    assert manifest["stage"] == "export" and set(manifest["metrics"]["files"]) == {"model.onnx", "model.int8.onnx"}
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n')
    words[4:7:2] = [str(tmp_path / "bad"), str(tmp_path / "bad.jsonl")]
    assert main(words) == 2
    assert f"{tmp_path / 'bad.jsonl'}:1: no key 'label'; found 'text'" in capsys.readouterr().err
    assert not (tmp_path / "bad").exists()


def test_logits_that_are_not_those_of_torch_are_an_error(runs, classifier_folder, tmp_path, monkeypatch):
    from domainbert.serving.onnx import graph

    def disturbed(path, model):
        shutil.copy(classifier_folder / "model.onnx", path)
        model.head.classifier.bias.data[0] += 0.01

    monkeypatch.setattr(graph, "write_onnx", disturbed)
    with refused(
        where="model.onnx",
        problem="its logits differ from torch's by up to 0.01",
        expected="at most 0.0001 of the largest...",
    ):
        export(tmp_path, model=runs / "classification-pretrained")


def test_what_cannot_be_exported_or_checked_is_named(runs, tmp_path, tagger_folder):
    ner, classification = runs.labelled("ner", "validation"), runs.labelled("classification", "validation")
    scratch = {"model": runs / "ner-scratch"}
    only = "only used with a labelled set in 'check'"
    for arguments, facts in [
        ({"model": runs / "vocab"}, {"file": runs / "vocab", "problem": "no config.json"}),
        ({"model": tagger_folder}, {"file": "model.onnx", "problem": "exported for ONNX Runtime"}),
        (
            {"model": runs / "pretrain", "check": ner},
            {"where": "check", "problem": "...pretrain has no trained task head"},
        ),
        ({**scratch, "task": Ner()}, {"where": "task", "problem": only, "hint": "set check..."}),
        (
            {**scratch, "check": classification, "task": Classification()},
            {"where": "task", "found": "classification", "expected": "ner, the task of..."},
        ),
        ({**scratch, "check": runs / "nowhere.conll"}, {"problem": "...nowhere.conll..."}),
    ]:
        with refused(**facts):
            export(tmp_path, **arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_head_without_weights_is_named(runs, tmp_path):
    shutil.copytree(runs / "pretrain", tmp_path / "model")
    config = json.loads((tmp_path / "model/config.json").read_text())
    config |= {"architectures": ["BertForTokenClassification"], "id2label": {"0": "O", "1": "B-x"}}
    (tmp_path / "model/config.json").write_text(json.dumps(config))
    with refused(problem="the head has no weights for classifier..."):
        export(tmp_path, model=tmp_path / "model")


def test_an_exported_model_neither_learns_nor_teaches(runs, tagger_folder):
    from domainbert.distillation.teachers import load_teachers
    from domainbert.tasks.ner.task import NerTask

    with refused(file="model.onnx", problem="exported for ONNX Runtime", expected="the model folder..."):
        runs.finetune("finetune-exported", "ner", model=tagger_folder)
    task = NerTask(load_tagger(tagger_folder, "32-true").labels)
    with refused(where="teachers", problem="...export-ner is exported for ONNX Runtime", expected="a model folder..."):
        load_teachers([tagger_folder], task, "32-true", None, 0)
    with refused(where="precision", found="bf16-mixed", expected="32-true or auto: ...model.onnx has a fixed..."):
        load_predictor(tagger_folder, "bf16-mixed")
    assert open_model(tagger_folder).onnx == tagger_folder / "model.onnx"
    assert crf_of(load_tagger(tagger_folder, "32-true").model.head) is None


@pytest.mark.parametrize(
    ("head", "fields", "kind"),
    [
        ("sequence", {}, "Text classifier"),
        ("sequence", {"problem_type": "regression"}, "Model"),
        ("tokens", {"id2label": {"0": "NOUN"}}, "Model"),
        ("masked_lm", {}, "Masked language model"),
        (None, {}, "Encoder"),
    ],
)
def test_a_card_says_what_the_model_is_for(head: str | None, fields: dict[str, object], kind: str) -> None:
    labels = ("a", "b") if head in ("tokens", "sequence") else ()
    folder = ModelFolder(Path("model"), BertConfig(), 100, head, labels, fields)
    card = _card({"source": "model", "texts_compared": 1, "files": {}}, folder, False, [])
    assert f"# {kind} for ONNX Runtime" in card
