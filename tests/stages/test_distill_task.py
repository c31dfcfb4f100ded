from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from domainbert.base.errors import TrainingStopped
from domainbert.distillation.attention_config import AttentionMSE
from domainbert.distillation.hidden_config import HiddenMSE, PatientCLS
from domainbert.distillation.prediction_config import HardTargets, LogitMSE, SoftTargets
from domainbert.distillation.student_config import StudentConfig
from domainbert.encoders.packed import Packed
from domainbert.models.loading import load_model
from domainbert.serving.loaders import load_tagger
from domainbert.serving.predictor import load_predictor
from domainbert.stages.distill_task import _check_vocabularies, distill_task
from domainbert.stages.early_checks import StageArguments
from domainbert.tasks.parsing.config import Parsing
from domainbert.tasks.task import task_from_training_set
from domainbert.training.config import OptimConfig
from tests.refusals import refused

BOTH = (SoftTargets(), HardTargets())
TASKS = ["ner", pytest.param("classification", marks=pytest.mark.slow)]


def arguments(runs, task, losses, **changes):
    usual = {"teachers": [runs / f"{task}-pretrained"], "task": runs.tasks[task], "losses": list(losses)}
    usual |= {split: runs.labelled(task, split) for split in ("train", "validation")}
    usual |= {"student": StudentConfig(first_layers=1), "batch_size": 16, "max_epochs": 2, "unlabelled_batch_size": 8}
    usual |= {"optim": OptimConfig(lr=1e-3), "max_unlabelled": 60}
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


def assert_close(one, other):
    """But for the half precision of a cache."""
    for name, tensor in weights(one).items():
        torch.testing.assert_close(tensor, weights(other)[name], atol=2e-3, rtol=0, msg=name)


@pytest.mark.parametrize("task", TASKS)
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
    system = json.loads((scored / "metrics.json").read_text())["systems"]["s"]
    by_seed = system["f1_by_seed"]
    assert system["cost"]["teachers"] == [f"{task}-pretrained"]
    again = runs.finetune(f"{task}-student-again", task, model=out, seeds=(1,), max_epochs=1)
    assert load_predictor(again, "32-true").runtime.teachers == (f"{task}-pretrained",), "it has not lost its teacher"
    assert load_predictor(runs / f"{task}-pretrained", "32-true").runtime.teachers == ()
    assert by_seed == pytest.approx({f"seed-{r['seed']}": r["validation"]["f1"] for r in result["seeds"]}, abs=1e-6)


@pytest.mark.parametrize(("task", "family"), [("ner", "distilbert"), ("classification", "bert")])
def test_transformers_gives_a_student_s_logits(runs, task, family):
    import transformers

    out = (
        run(runs, f"{task}-{family}", task, max_epochs=1, student=StudentConfig(family=family, first_layers=1))
        / "seed-1"
    )
    kind = {"ner": "TokenClassification", "classification": "SequenceClassification"}[task]
    theirs = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(out).eval()
    assert type(theirs).__name__ == {"bert": "Bert", "distilbert": "DistilBert"}[family] + f"For{kind}"
    ours, _, made = load_model(out, {"ner": "tokens", "classification": "sequence"}[task])
    ids = torch.arange(5, 25).view(1, 20)
    places = torch.arange(20)
    with torch.inference_mode():
        read = places if task == "ner" else places[:1]
        found = ours.eval()(Packed(ids, places.view(1, 20), torch.ones_like(ids)), read)
        torch.testing.assert_close(found, theirs(ids).logits.flatten(0, -2), atol=1e-5, rtol=0)
    assert made == []


def test_a_teacher_in_half_precision(runs):
    """Asked before, without gradients, and at every step, with its hidden states."""
    for number, losses in enumerate([[SoftTargets()], [SoftTargets(), HiddenMSE(), AttentionMSE()]]):
        changes = {"precision": "bf16-mixed", "max_epochs": 1, "unlabelled": runs.corpus}
        run(runs, f"ner-half-{number}", "ner", losses, cache=None if number else str(runs / "half"), **changes)
        history = runs.results[f"ner-half-{number}"]["seeds"][0]["history"]
        assert all(np.isfinite(value) for value in history[0].values())


@pytest.mark.parametrize("task", TASKS)
def test_cached_logits_are_those_of_the_teacher(runs, task, tmp_path, capsys):
    """The same training with the teacher asked before and asked at every step, but for half precision."""
    changes = {"unlabelled": runs.corpus, "max_epochs": 1, "optim": OptimConfig(lr=1e-3, eps=1e-3), "dropout": 0.0}
    losses, cache = [SoftTargets(), LogitMSE()], str(tmp_path / "cache")
    asked = run(runs, f"{task}-asked", task, losses, **changes)
    capsys.readouterr()
    cached = run(runs, f"{task}-cached", task, losses, cache=cache, **changes)
    assert re.search(r"run teacher 1 of 1: ([\d,]+)/\1 \(100 %\) tokens", capsys.readouterr().err)
    (folder,) = (tmp_path / "cache").glob("[!.]*")
    assert np.load(folder / "logits.npy").dtype == np.float16
    assert_close(asked, cached)
    again = run(runs, f"{task}-cached-again", task, losses, cache=cache, **changes)
    assert_equal(weights(cached), weights(again))
    assert len(list((tmp_path / "cache").glob("[!.]*"))) == 1


def test_no_cache_is_filled_for_a_loss_without_predictions(runs, tmp_path):
    run(runs, "ner-hard-cached", "ner", [HardTargets()], cache=str(tmp_path / "cache"), seeds=[1])
    assert not list(tmp_path.rglob("*"))


def test_an_ensemble_is_the_mean_of_its_logits(runs, tmp_path):
    """Asked before or while training; twice the same teacher is that teacher. Each is asked once for all ensembles."""
    teachers = [runs / "ner-pretrained" / name for name in ("seed-1", "seed-2")]
    changes = {"max_epochs": 1, "optim": OptimConfig(lr=1e-3, eps=1e-3), "dropout": 0.0}
    numbers = []
    for number, some in enumerate([teachers[:1], teachers, teachers[1:]]):
        run(runs, f"ner-ensemble-{number}", "ner", [LogitMSE()], teachers=some, cache=str(tmp_path), **changes)
        numbers.append(len(list(tmp_path.glob("[!.]*"))))
    assert numbers == [1, 2, 2]
    one, other = (np.load(folder / "logits.npy").astype(np.float32) for folder in tmp_path.glob("[!.]*"))
    assert np.abs(one - other).max() > 0.1
    both = run(runs, "ner-ensemble", "ner", [LogitMSE()], teachers=teachers, **changes)
    assert_close(both, runs / "ner-ensemble-1")
    twice = run(runs, "ner-twice", "ner", [LogitMSE()], teachers=teachers[:1] * 2, **changes)
    assert_close(twice, runs / "ner-ensemble-0")
    with refused(where="teachers", found="2 with losses on layers"):
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
    out = run(runs, "ner-other-words", "ner", [SoftTargets(), HardTargets()], cache=str(tmp_path), **changes)
    own = load_file(runs / "pretrain-small" / "model.safetensors")["bert.embeddings.word_embeddings.weight"]
    assert weights(out)["bert.embeddings.word_embeddings.weight"].shape == own.shape
    found = np.load(next(tmp_path.glob("[!.]*")) / "logits.npy").argmax(axis=1)
    tagger = load_tagger(runs / "ner-pretrained", "32-true")
    # the best label of each word, as in the teacher's logits
    tagger.task.valid, tagger.task.min_score = None, 0.0
    sentences = [item.words for item in runs.tasks["ner"].read(runs.labelled("ner", "train")).items]
    words = sum(map(len, sentences))
    said = [tag for tags in tagger.predict_words(sentences) for tag in tags]
    agreed = np.mean([tagger.labels[place][1:] == tag[1:] for place, tag in zip(found[:words], said, strict=True)])
    assert agreed > 0.97, "each word has what its teacher said of it, but for half precision and repaired B-"
    with refused(where="cache", problem="missing", expected="a folder, because a teacher with another vocabulary..."):
        run(runs, "ner-other-words-1", "ner", [SoftTargets()], **changes)
    with refused(where="losses", found="losses on layers, but the student has..."):
        run(runs, "ner-other-words-2", "ner", [SoftTargets(), PatientCLS(student_layers=(1,), teacher_layers=(1,))],
            cache=str(tmp_path), **changes)  # fmt: skip


@pytest.mark.parametrize(
    ("model", "teachers", "problem"),
    [
        (
            "other",
            ["pretrain"],
            ("model", "found another vocabulary in teachers[0] than in model; expected models with the same"),
        ),
        (None, ["pretrain", "other"], ("teachers", "found another vocabulary in teachers[1] than in teachers[0]; ")),
        (
            None,
            ["missing", "other", "pretrain"],
            ("teachers", "found another vocabulary in teachers[2] than in teachers[1]; "),
        ),
        ("pretrain", ["pretrain", "missing"], None),
    ],
)
def test_another_vocabulary_of_a_parser_is_told_before_anything_runs(runs, tmp_path, model, teachers, problem):
    shutil.copytree(runs / "pretrain", tmp_path / "pretrain")
    shutil.copytree(runs / "pretrain", tmp_path / "other")
    tokenizer = tmp_path / "other" / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace('"##a"', '"##0a"', 1))
    folders = {"model": model and tmp_path / model, "teachers": [tmp_path / name for name in teachers]}
    for losses, wanted in (([SoftTargets()], problem), ([HardTargets()], None)):
        given = StageArguments(
            {"task": Parsing(), "losses": losses, **folders}, {str(tmp_path / "missing"): StageArguments({})}
        )
        _check_vocabularies(given)
        assert len(given.problems) == (wanted is not None)
        for key, error in given.problems:
            assert key == problem[0] and str(error).startswith(problem[1])


def test_a_stopped_one_goes_on_exactly(runs, monkeypatch):
    from domainbert.distillation.task_distillation import TaskDistillation

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


def test_numbers_that_make_no_sense(runs, tmp_path):
    for name, number in (("top_k", 0), ("max_unlabelled", 0), ("unlabelled_batch_size", -1), ("unfreeze_every", -1)):
        with refused(where=name, found=number, expected="an integer from ... to..."):
            run(runs, f"wrong-{name}", "ner", **{name: number})
    longer = [runs / "ner-pretrained" / "seed-1", short_teacher(runs / "ner-pretrained" / "seed-2", tmp_path / "short")]
    with refused(where="max_length", found="64", expected="at most 32, the number of positions...", hint="for a..."):
        run(runs, "wrong-length", "ner", teachers=longer, max_length=64)


def short_teacher(folder, short):
    """A copy of a model folder with fewer positions."""
    shutil.copytree(folder, short)
    config = json.loads((short / "config.json").read_text())
    (short / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 32}))
    tensors = load_file(short / "model.safetensors")
    name = "bert.embeddings.position_embeddings.weight"
    save_file({**tensors, name: tensors[name][:32].clone()}, short / "model.safetensors", {"format": "pt"})
    return short


def test_teachers_of_another_task_or_with_other_labels(runs, tmp_path):
    with refused(problem="...is for classification", expected="a model for ner"):
        run(runs, "wrong-task", "ner", teachers=[runs / "classification-pretrained"])
    with refused(where="losses[0].positions", found="'all', only for distill"):
        run(runs, "wrong-positions", "ner", [SoftTargets(positions="all")])
    few = tmp_path / "train.conll"
    few.write_text("the O\nbank B-outcome\n")
    with refused(problem="...has the labels O, B-coreference...", expected="the labels of the training set, O,..."):
        run(runs, "wrong-labels", "ner", train=few, validation=few)


def test_a_random_field_teaches_by_its_marginals(runs, tmp_path):
    """Fine-tuned with one, saved, scored again, loaded by transformers without it; asked before or while training."""
    import transformers

    from domainbert.tasks.ner.config import Ner

    teacher = runs.finetune("ner-crf", "ner", task=Ner(head="crf"), seeds=(1,), max_epochs=2)
    scored = runs.evaluate("ner-crf-scores", "ner", {"m": teacher}, test=runs.labelled("ner", "validation"))
    noted = runs.results["ner-crf"]["seeds"][0]["validation"]["f1"]
    by_seed = json.loads((scored / "metrics.json").read_text())["systems"]["m"]["f1_by_seed"]
    assert by_seed["seed-1"] == pytest.approx(noted, abs=1e-6)
    tagger = load_tagger(teacher, "32-true")
    tagger.predict_words([["cash", "raised", "school", "attendance"]] * 3)
    assert tagger.num_repaired == 0 and tagger.task.crf is not None and tagger.task.crf.transitions.abs().max() > 0
    transformers.AutoModelForTokenClassification.from_pretrained(teacher / "seed-1")
    changes = {"teachers": [teacher], "max_epochs": 1, "optim": OptimConfig(lr=1e-3, eps=1e-3), "dropout": 0.0}
    asked = run(runs, "ner-of-crf", "ner", [SoftTargets(temperature=1.0)], **changes)
    cached = run(runs, "ner-of-crf-cached", "ner", [SoftTargets(temperature=1.0)], cache=str(tmp_path), **changes)
    assert_close(asked, cached)
    with_crf = arguments(runs, "ner", [SoftTargets(temperature=1.0)], cache=str(tmp_path), **changes)
    runs.run("ner-crf-of-crf-cached", distill_task, **with_crf | {"task": Ner(head="crf")})  # reads the same marginals
    assert len(list(tmp_path.glob("*/logits.npy"))) == 1
    for name, of in {"teacher": {"teachers": [teacher]}, "student": {"task": Ner(head="crf")}}.items():
        with refused(where="losses", problem="LogitMSE compares the logits of all labels, but a CRF has no such..."):
            runs.run(f"ner-logits-crf-{name}", distill_task, **{**arguments(runs, "ner", [LogitMSE()]), **of})


def test_students_begin_with_the_teachers_whole_weights_in_half_precision_too(runs):
    from domainbert.distillation.teachers import load_teachers
    from domainbert.tasks.ner.task import NerTask

    folder = runs / "ner-pretrained"
    teacher = load_teachers([folder], NerTask(load_tagger(folder, "32-true").labels), "bf16-mixed", None, 8).predictors[
        0
    ]
    assert teacher.dtype == torch.bfloat16
    whole = load_tagger(folder, "32-true").model.state_dict()
    assert_equal(teacher.model.state_dict(), whole)


def test_a_teacher_whose_logits_are_not_finite_is_named(runs, tmp_path):
    from domainbert.distillation.teachers import TransferText, load_teachers
    from domainbert.tasks.ner.task import NerTask

    folder, file = runs / "ner-pretrained", runs.tasks["ner"].read(runs.labelled("ner", "train"))
    task = NerTask(load_tagger(folder, "32-true").labels)
    teachers = load_teachers([folder], task, "32-true", tmp_path, 8)
    text = TransferText(replace(file, items=file.items[:4]), [])
    examples = text.encode(task, teachers.predictors[0].tokenizer, 48)
    assert teachers.check(examples) is teachers
    with torch.no_grad():
        teachers.predictors[0].model.head.classifier.weight[0, 0] = torch.nan
    for ask in (teachers.check, lambda given: teachers.soft_labels(text, task, [one.num_outputs for one in given])):
        with refused(file="ner-pretrained/seed-...", problem="the logits of the model are NaN..."):
            ask(examples)


@pytest.mark.parametrize("task", ["ner", "classification"])
def test_what_a_teacher_says_is_kept_in_the_order_of_the_texts(runs, task, tmp_path):
    """Labelled and then unlabelled, some of two windows, one without a word: each as the teacher says of it alone."""
    from domainbert.distillation.soft_labels import mean_logits
    from domainbert.distillation.teachers import TransferText, load_teachers

    file = runs.tasks[task].read(runs.labelled(task, "train"))
    items, fitted = file.items, task_from_training_set(runs.tasks[task], file)
    words = ["cash", "raised", "school", "attendance", "while", "the", "central", "bank", "lowered", "rates"]
    sentences = [" ".join(words[n:] * (13 if n % 3 == 1 else 1)) for n in range(7)] + ["\x00"] * (task == "ner")
    text = TransferText(replace(file, items=items[:9]), sentences)
    asked = load_teachers([runs / f"{task}-pretrained"], fitted, "32-true", tmp_path, 64)
    (teacher,) = asked.predictors
    with torch.no_grad():  # the few steps of the fixtures tell texts little apart
        for parameter in teacher.model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    examples = text.encode(fitted, teacher.tokenizer, teacher.max_length)
    assert len({min(len(one.windows), 2) for one in examples}) == 2
    labels = asked.soft_labels(text, fitted, [one.num_outputs for one in examples])
    firsts = []
    for number, example in enumerate(examples):
        if not example.num_outputs:
            continue
        ((batch, logits),) = teacher.logits([example])
        outputs, values = batch["outputs"].numpy(), logits.float().numpy()
        alone = np.stack([values[outputs == output].mean(axis=0) for output in range(example.num_outputs)])
        np.testing.assert_allclose(mean_logits(labels, [number]), alone, atol=5e-3, rtol=2e-3)
        firsts.append(alone[0])
    apart = np.abs(np.stack(firsts)[:, None] - np.stack(firsts)).max(axis=-1)
    assert np.median(apart[~np.eye(len(firsts), dtype=bool)]) > 0.02, "in another order it would be noticed"
