from __future__ import annotations

import hashlib
import json
import os
import signal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from domainbert.encoders.student_config import StudentConfig
from domainbert.errors import DomainbertError, TrainingStopped
from domainbert.objectives.config import OptimConfig
from domainbert.objectives.distillation.attention_config import AttentionMSE
from domainbert.objectives.distillation.hidden_config import HiddenMSE, PatientCLS
from domainbert.objectives.distillation.prediction_config import HardTargets, LogitMSE, SoftTargets
from domainbert.stages.distill_task import distill_task

BOTH = (SoftTargets(), HardTargets())


def arguments(runs, task, losses, **changes):
    usual = {"teachers": [runs / f"{task}-pretrained"], "task": runs.tasks[task], "losses": list(losses)}
    usual |= {split: runs.labelled(task, split) for split in ("train", "validation")}
    usual |= {"student": StudentConfig(first=1), "batch_size": 16, "max_epochs": 2, "unlabelled_batch_size": 8}
    usual |= {"optim": OptimConfig(lr=1e-3), "max_unlabelled": 200}
    if "model" in changes:
        usual.pop("student")
    return {**runs.training, **usual, **changes}


def run(runs, name, task, losses=BOTH, **changes):
    return runs.run(name, distill_task, **arguments(runs, task, losses, **changes))


@pytest.fixture(autouse=True)
def quick(one_thread):
    pass


def weights(folder):
    return load_file(folder / "seed-1" / "model.safetensors")


def assert_equal(one, other):
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("task", ["ner", "classification"])
def test_a_student_of_a_task(runs, task):
    """Scored as finetune's folders are; its teacher is untouched."""
    teacher = runs / f"{task}-pretrained" / "seed-1" / "model.safetensors"
    before = hashlib.sha256(teacher.read_bytes()).hexdigest()
    losses = [SoftTargets(temperature=1.0), HardTargets(weight=0.5), HiddenMSE(projection="none"), AttentionMSE()]
    out = run(runs, f"{task}-student", task, losses, unlabelled=runs.corpus, seeds=(1, 2))
    assert hashlib.sha256(teacher.read_bytes()).hexdigest() == before
    result = runs.results[f"{task}-student"]
    assert [row["seed"] for row in result["seeds"]] == [1, 2] and len(result["seeds"][0]["history"]) == 2
    assert json.loads((out / "seeds.json").read_text())["best"] == result["best"]
    scored = runs.evaluate(f"{task}-student-scores", task, {"s": out}, test=runs.labelled(task, "validation"))
    by_seed = json.loads((scored / "metrics.json").read_text())["systems"]["s"]["f1_by_seed"]
    assert by_seed == pytest.approx({f"seed-{r['seed']}": r["validation"]["f1"] for r in result["seeds"]}, abs=1e-6)


@pytest.mark.parametrize("task", ["ner", "classification"])
def test_cached_logits_are_those_of_the_teacher(runs, task, tmp_path):
    """The same training with the teacher asked before and asked at every step, but for half precision."""
    changes = {"unlabelled": runs.corpus, "max_epochs": 1, "optim": OptimConfig(lr=1e-3, eps=1e-3), "dropout": 0.0}
    losses, cache = [SoftTargets(), LogitMSE()], str(tmp_path / "cache")
    asked = run(runs, f"{task}-asked", task, losses, **changes)
    cached = run(runs, f"{task}-cached", task, losses, cache=cache, **changes)
    (folder,) = (tmp_path / "cache").iterdir()
    assert np.load(folder / "logits.npy").dtype == np.float16
    one, other = weights(asked), weights(cached)
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=2e-3, rtol=0)
    again = run(runs, f"{task}-cached-again", task, losses, cache=cache, **changes)
    assert_equal(other, weights(again))
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_an_ensemble_is_the_mean_of_its_logits(runs, tmp_path):
    """Two teachers asked while training, or before: the same; and other than one of them alone."""
    teachers = [runs / "ner-pretrained" / name for name in ("seed-1", "seed-2")]
    changes = {"max_epochs": 1, "optim": OptimConfig(lr=1e-3, eps=1e-3), "dropout": 0.0}
    both = run(runs, "ner-ensemble", "ner", [LogitMSE()], teachers=teachers, **changes)
    cached = run(runs, "ner-ensemble-cached", "ner", [LogitMSE()], teachers=teachers, cache=str(tmp_path), **changes)
    alone = run(runs, "ner-one", "ner", [LogitMSE()], teachers=teachers[:1], **changes)
    name = "classifier.weight"
    torch.testing.assert_close(weights(both)[name], weights(cached)[name], atol=2e-3, rtol=0)
    assert not torch.equal(weights(both)[name], weights(alone)[name])
    with pytest.raises(DomainbertError, match="teachers: 2, with losses between layers"):
        run(runs, "ner-ensemble-layers", "ner", [HiddenMSE()], teachers=teachers)


def test_an_intermediate_stage_keeps_its_last_epoch_and_feeds_the_next(runs):
    first = run(runs, "ner-intermediate", "ner", [HiddenMSE(), AttentionMSE()])
    assert runs.results["ner-intermediate"]["seeds"][0]["best_epoch"] == 2
    best = runs.results["ner-pretrained"]["best"]
    teacher = load_file(runs / "ner-pretrained" / best / "model.safetensors")["classifier.weight"]
    assert torch.equal(weights(first)["classifier.weight"], teacher), "nothing trains the head it was given"
    second = run(runs, "ner-prediction", "ner", [SoftTargets()], model=first, unfreeze_every=3)
    assert not torch.equal(weights(second)["classifier.weight"], teacher)


def test_layers_thaw_from_the_top(runs):
    """A training that ends before the first layer thaws has changed the head alone."""
    out = run(runs, "direction-frozen", "classification", unfreeze_every=1000)
    best = runs.results["classification-pretrained"]["best"]
    teacher = load_file(runs / "classification-pretrained" / best / "model.safetensors")
    changed = {name for name, tensor in weights(out).items() if not torch.equal(tensor, teacher[name])}
    assert changed == {f"{part}.{kind}" for part in ("classifier", "bert.pooler.dense") for kind in ("weight", "bias")}


def test_another_vocabulary(runs, tmp_path):
    """The student reads other pieces; words carry the teacher's logits over."""
    from domainbert.stages.prepare import prepare
    from domainbert.stages.vocab import vocab
    from domainbert.training.config import Budget

    runs.run("vocab-small", vocab, corpus=runs.corpus, vocab_size=400, model_max_length=96)
    runs.run("prepare-small", prepare, corpus=runs.corpus, tokenizer=runs / "vocab-small", num_workers=0)
    runs.pretrain("pretrain-small", 2, prepared=[runs / "prepare-small"], budget=Budget(max_steps=2))
    changes = {"model": runs / "pretrain-small", "unlabelled": runs.corpus, "max_epochs": 1}
    run(runs, "ner-other-words", "ner", [SoftTargets(), HardTargets()], cache=str(tmp_path), **changes)
    with pytest.raises(DomainbertError, match="cache: missing; a teacher with another vocabulary is asked before"):
        run(runs, "ner-other-words-1", "ner", [SoftTargets()], **changes)
    with pytest.raises(DomainbertError, match="losses: some compare hidden states or attention, but the student has"):
        run(runs, "ner-other-words-2", "ner", [SoftTargets(), PatientCLS(student_layers=(1,), teacher_layers=(1,))],
            cache=str(tmp_path), **changes)  # fmt: skip


def test_a_stopped_one_goes_on_exactly(runs, monkeypatch):
    from domainbert.objectives.distillation.modules import TaskDistillation

    losses = [SoftTargets(), HardTargets(), HiddenMSE()]
    changes = {"unlabelled": runs.corpus, "checkpoint_every": 100}
    whole = run(runs, "ner-whole", "ner", losses, **changes)
    step = TaskDistillation.training_step

    def stop_in_the_eleventh(self, batch, index):
        if self.trainer.global_step == 10:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, batch, index)

    monkeypatch.setattr(TaskDistillation, "training_step", stop_in_the_eleventh)
    with pytest.raises(TrainingStopped):
        run(runs, "ner-stopped", "ner", losses, **changes)
    monkeypatch.setattr(TaskDistillation, "training_step", step)
    distill_task(out=runs / "ner-stopped", **arguments(runs, "ner", losses, **changes))
    assert_equal(weights(whole), weights(runs / "ner-stopped"))


def test_teachers_of_another_task_or_with_other_labels(runs, tmp_path):
    with pytest.raises(DomainbertError, match="is for classification; expected a model of the task"):
        run(runs, "wrong-task", "ner", teachers=[runs / "classification-pretrained"])
    with pytest.raises(DomainbertError, match="losses: SoftTargets with positions: all is for distill; expected"):
        run(runs, "wrong-positions", "ner", [SoftTargets(positions="all")])
    few = tmp_path / "train.conll"
    few.write_text("the O\nbank B-outcome\n")
    with pytest.raises(DomainbertError, match=r"has the labels O, B-coreference.*; the training set has O, B-outcome"):
        run(runs, "wrong-labels", "ner", train=few, validation=few)


def test_a_random_field_teaches_by_its_marginals(runs, tmp_path):
    """Fine-tuned with one, saved, scored again, loaded by transformers without it; asked before or while training."""
    import transformers

    from domainbert.inference import load_tagger
    from domainbert.objectives.task_config import Ner

    teacher = runs.finetune("ner-crf", "ner", task=Ner(head="crf"), seeds=(1,), max_epochs=2)
    scored = runs.evaluate("ner-crf-scores", "ner", {"m": teacher}, test=runs.labelled("ner", "validation"))
    noted = runs.results["ner-crf"]["seeds"][0]["validation"]["f1"]
    by_seed = json.loads((scored / "metrics.json").read_text())["systems"]["m"]["f1_by_seed"]
    assert by_seed["seed-1"] == pytest.approx(noted, abs=1e-6)
    tagger = load_tagger(teacher)
    tagger.predict_words([["cash", "raised", "school", "attendance"]] * 3)
    assert tagger.num_repaired == 0 and tagger.crf is not None and tagger.crf.transitions.abs().max() > 0
    transformers.AutoModelForTokenClassification.from_pretrained(teacher / "seed-1")
    changes = {"teachers": [teacher], "max_epochs": 1, "optim": OptimConfig(lr=1e-3, eps=1e-3), "dropout": 0.0}
    asked = run(runs, "ner-of-crf", "ner", [SoftTargets(temperature=1.0)], **changes)
    cached = run(runs, "ner-of-crf-cached", "ner", [SoftTargets(temperature=1.0)], cache=str(tmp_path), **changes)
    for name, tensor in weights(asked).items():
        torch.testing.assert_close(tensor, weights(cached)[name], atol=2e-3, rtol=0)
