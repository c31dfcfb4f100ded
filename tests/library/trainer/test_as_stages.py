"""A Lightning Trainer with equal settings gives the weights of the stages, bit by bit, and the scores of `evaluate`."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import lightning
import pytest
import torch
from huggingface_hub import ModelCard
from lightning.pytorch.callbacks import ModelCheckpoint

from domainbert.corpus.config import CorpusConfig, Source
from domainbert.distillation.corpus_distillation import Distillation, DistillationData
from domainbert.distillation.hidden_config import HiddenMSE
from domainbert.distillation.prediction_config import HardTargets, SoftTargets
from domainbert.distillation.student_config import StudentConfig
from domainbert.distillation.task_distillation import TaskDistillation
from domainbert.distillation.transfer_data import TransferData
from domainbert.models.card import CardConfig, split_card
from domainbert.pretraining.module import Pretraining
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.pretraining.objectives.replaced_tokens.config import ReplacedTokens
from domainbert.pretraining.objectives.sentence_pairs.config import SentencePairs
from domainbert.serving.predictor import load_predictor
from domainbert.stages.distill import distill
from domainbert.stages.distill_task import distill_task
from domainbert.stages.evaluate import evaluate
from domainbert.stages.finetune import finetune
from domainbert.stages.pretrain import pretrain
from domainbert.tasks.finetuning import FineTuning
from domainbert.tasks.labelled_data import LabelledData
from domainbert.tokenization.load import load_tokenizer
from domainbert.training.config import Budget, OptimConfig
from domainbert.training.length_phases import LengthPhase
from tests.library.trainer.tiny_library import (
    BERT,
    DATA,
    OPTIM,
    TASK,
    Steps,
    about,
    copied,
    equal,
    files,
    trainer,
    weights,
)
from tests.model_cards import run_card

pytestmark = pytest.mark.usefixtures("one_thread")
PLAIN = {"precision": "32-true", "loggers": (), "trainer": {"accelerator": "cpu", "devices": 1}}
SETS = {name: DATA / f"ner-{name}.conll" for name in ("train", "validation")}
LABELLED = {**PLAIN, **SETS, "task": TASK, "batch_size": 8, "max_length": 24, "optim": OPTIM, "seeds": (1,)}


def best_of(module: FineTuning, data: LabelledData, out: Path, epochs: int, **arguments) -> FineTuning:
    """Train, and load the best epoch."""
    keeps = ModelCheckpoint(out / "checkpoints", monitor="validation/f1", mode="max")
    run = trainer(out, [keeps], max_epochs=epochs, enable_checkpointing=True, **arguments)
    run.fit(module, data)
    return type(module).load_from_checkpoint(keeps.best_model_path, weights_only=True)


def check_card(library: Path, stage: Path) -> dict:
    """The card from Python equals the card of the stage, except for the best epoch, which the module does not know."""
    ours, theirs = (split_card((folder / "README.md").read_text()) for folder in (library, stage))
    epoch = re.compile(r"\| (best epoch|warning) \| .*\n")
    assert ours[0] == theirs[0] and ours[0]["model-index"][0]["results"][0]["dataset"]["name"] == "ner-validation.conll"
    assert ours[1] == epoch.sub("", theirs[1]) != theirs[1] and "| validation entity F1 | " in ours[1]
    return ours[0]


def test_fine_tuning(tiny, tmp_path):
    whole = {"max_epochs": 3, "micro_batch_size": 4, "dropout": 0.2}
    finetune(out=tmp_path / "stage", model=tiny / "model", **LABELLED, **whole)
    module = tiny.module(dropout=0.2)
    best = best_of(module, tiny.data(), tmp_path, 3, accumulate_grad_batches=2)
    best.save_pretrained(tmp_path / "library")
    assert files(tmp_path / "library") == files(tmp_path / "stage" / "seed-1")
    assert load_predictor(tmp_path / "library").max_length == 24
    head = check_card(tmp_path / "library", tmp_path / "stage" / "seed-1")
    assert (head["license"], head["language"]) == ("mit", "en"), "from the card of the model at the start"
    best.save_pretrained(tmp_path / "mine", CardConfig(license="apache-2.0", datasets=("owner/set",)))
    mine, _ = split_card((tmp_path / "mine" / "README.md").read_text())
    assert mine == {**head, "license": "apache-2.0", "datasets": ["owner/set"]}


def test_testing_and_predicting(tiny, tmp_path):
    module, data = tiny.module(), tiny.data()
    run = trainer(max_epochs=12)
    run.fit(module, data)
    module.save_pretrained(tmp_path / "model")
    models = {"tagger": tmp_path / "model"}
    evaluate(out=tmp_path, task=TASK, models=models, test=DATA / "ner-test.conll", train=SETS["train"])
    wanted = json.loads((tmp_path / "metrics.json").read_text())["systems"]["tagger"]
    (found,) = run.test(module, data, verbose=False)
    assert 0 < found["test/f1"] == pytest.approx(wanted["f1"])
    assert found["test/f1/LOC"] == pytest.approx(wanted["per_type"]["LOC"]["f1"])
    predictor = load_predictor(tmp_path / "model", "32-true")  # as the trainer; `auto` may be bf16
    contents = data.labelled("test").contents
    wanted_predictions = [predictor.as_json(one) for one in predictor.predict(contents)]
    predicted = [one for batch in run.predict(module, data) for one in batch]
    assert about(predicted) == about(wanted_predictions) and any(one["entities"] for one in predicted)
    texts = ["Angela Merkel visited Paris .", ["Siemens", "of", "Munich"], ""]
    again = FineTuning.from_pretrained(tmp_path / "model", TASK)
    to_predict = LabelledData(again.task, predict=texts, tokenizer=again.tokenizer)
    (said,) = trainer().predict(again, to_predict)
    assert about(said) == about([predictor.as_json(one) for one in predictor.predict(texts)])
    assert trainer().test(again, tiny.data(tokenizer=again.tokenizer, max_length=None), verbose=False)[0] == found


def test_a_card_from_python_has_the_test_scores_of_a_card_of_evaluate(tiny, tmp_path):
    """But for the scores on printed text, which only `evaluate` predicts."""
    module, data = tiny.module(), tiny.data()
    run = trainer(max_epochs=12)
    run.fit(module, data)
    module.save_pretrained(tmp_path / "model")
    evaluate(out=tmp_path, task=TASK, models={"tagger": tmp_path / "model"}, test=DATA / "ner-test.conll")
    run.test(module, data, verbose=False)
    run.predict(module, data)
    module.save_pretrained(tmp_path / "tested")
    ours, theirs = (tmp_path / "tested/README.md").read_text(), (tmp_path / "cards/tagger/README.md").read_text()
    theirs, printed, _ = theirs.partition("\nF1 on printed text ")
    assert printed and ours == theirs.replace("name: tagger", "name: Fine-tuned domain model")
    results = {result.dataset_split: result for result in ModelCard(ours).data.eval_results}
    system = json.loads((tmp_path / "metrics.json").read_text())["systems"]["tagger"]
    assert (
        results["test"].metric_value == round(system["f1"], 4) > 0 and results["test"].dataset_name == "ner-test.conll"
    )
    assert results["test"].metric_args["interval_95"] == [round(bound, 4) for bound in system["interval"]]
    assert results["validation"].metric_type == "f1" and results["test"].task_type == "token-classification"
    run.test(module, data, verbose=False)
    with torch.no_grad():
        module.model.head.classifier.bias.add_(1.0)
    module.save_pretrained(tmp_path / "changed")
    assert ModelCard.load(tmp_path / "changed/README.md").data.eval_results is None


def test_scores_of_a_part_of_a_test_set_are_on_no_card(tiny, tmp_path):
    module = tiny.module()
    trainer(limit_test_batches=1).test(module, tiny.data(), verbose=False)
    module.save_pretrained(tmp_path)
    assert "Test scores" not in (tmp_path / "README.md").read_text()


def test_pretraining(tiny, tmp_path):
    lengths = (LengthPhase(16, until=0.5), LengthPhase(48))
    optim = OptimConfig(lr=5e-3, eps=1e-3)
    how = {"prepared": [tiny / "prepared"], "encoder": BERT, "batch_size": 16, "optim": optim}
    pretrain(out=tmp_path / "stage", budget=Budget(max_steps=6), max_length=lengths, validate_every=3, **how, **PLAIN)
    module = tiny.pretraining()
    run = trainer(max_steps=6)
    run.fit(module, data := tiny.rows(max_length=lengths, test=tiny / "prepared"))
    module.save_pretrained(tmp_path / "library")
    assert files(tmp_path / "library") == files(tmp_path / "stage")
    last = run.validate(module, data, verbose=False)[0]["validation/loss"]
    assert run.test(module, data, verbose=False)[0]["test/loss"] == pytest.approx(last)


@pytest.mark.parametrize("objective", [MaskedLM(), ReplacedTokens(), SentencePairs()], ids=lambda one: one.name)
def test_the_python_of_the_cards_of_a_pretraining_runs(tiny, tmp_path, objective):
    module = tiny.pretraining(objective=objective)
    trainer(max_steps=1).fit(module, tiny.rows(objective=objective))
    module.save_pretrained(tmp_path)
    cards = sorted(tmp_path.rglob("README.md"))
    assert len(cards) == len(module.built) >= 1
    for card in cards:
        run_card(card.parent)
    module.save_pretrained(tmp_path, CardConfig(license="mit"))
    assert [ModelCard.load(card).data.license for card in cards] == ["mit"] * len(cards)


def test_pretraining_goes_on_from_a_checkpoint_and_from_a_folder(tiny, tmp_path):
    keeps = ModelCheckpoint(tmp_path, every_n_train_steps=3, save_top_k=-1, filename="{step}")
    whole = tiny.pretraining()
    trainer(callbacks=[keeps, first := Steps()], max_steps=8, enable_checkpointing=True).fit(whole, tiny.rows())
    again = tiny.pretraining()
    run = trainer(callbacks=[second := Steps()], max_steps=8)
    run.fit(again, tiny.rows(), ckpt_path=str(tmp_path / "step=3.ckpt"), weights_only=True)
    assert second.losses == first.losses[3:] and equal(weights(whole), weights(again))
    loaded = Pretraining.load_from_checkpoint(tmp_path / "step=6.ckpt", weights_only=True)
    loaded.save_pretrained(tmp_path / "model")
    (one,), (other,) = (
        trainer().validate(module, tiny.rows(), verbose=False)
        for module in (loaded, Pretraining.from_pretrained(tmp_path / "model"))
    )
    assert one == pytest.approx(other) and one["validation/loss"] > 0


def test_a_pretraining_checkpoint_needs_no_tokenizer_folder(tiny, tmp_path):
    vocabulary = copied(tiny / "vocab", tmp_path / "vocab")
    module = tiny.pretraining(tokenizer=vocabulary)
    run = trainer(tmp_path, max_steps=1)
    run.fit(module, tiny.rows())
    run.save_checkpoint(tmp_path / "last.ckpt")
    assert module.hparams["tokenizer"] == str(vocabulary)
    shutil.rmtree(vocabulary)
    loaded = Pretraining.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    for again in (module, loaded):
        trainer(max_steps=2).fit(again, tiny.rows())
    assert equal(weights(loaded), weights(module))
    loaded.save_pretrained(tmp_path / "model")
    assert load_tokenizer(tmp_path / "model").fingerprint == load_tokenizer(tiny / "vocab").fingerprint


def test_a_pretraining_checkpoint_has_the_licence_of_the_first_model(tiny, tmp_path):
    run = trainer(tmp_path, max_steps=1)
    run.fit(Pretraining.from_pretrained(copied(tiny / "model", tmp_path / "first")), tiny.rows())
    run.save_checkpoint(tmp_path / "last.ckpt")
    shutil.rmtree(tmp_path / "first")
    Pretraining.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True).save_pretrained(tmp_path / "model")
    assert "\nlicense: mit\nlanguage: en\n" in (tmp_path / "model/README.md").read_text(encoding="utf-8")


def test_a_training_runs_compiled_losses(tiny, monkeypatch):
    calls = []
    monkeypatch.setattr(torch, "compile", lambda losses, **_: lambda *inputs: calls.append(1) or losses(*inputs))
    trainer(max_steps=2).fit(tiny.pretraining(compile=True), tiny.rows())
    assert len(calls) == 2


def test_saving_leaves_the_model_to_train_on(tiny, tmp_path):
    class Saves(lightning.Callback):
        def on_train_batch_end(self, trainer, module, *_):
            module.save_pretrained(tmp_path / f"step-{trainer.global_step}")

    first, second = (tiny.pretraining(objective=ReplacedTokens()) for _ in range(2))
    trainer(max_steps=3).fit(first, tiny.rows(objective=ReplacedTokens()))
    trainer(max_steps=3, callbacks=[Saves()]).fit(second, tiny.rows(objective=ReplacedTokens()))
    assert equal(weights(first), weights(second))
    first.save_pretrained(tmp_path / "last")
    assert files(tmp_path / "last") == files(tmp_path / "step-3")


def test_distillation(tiny, tmp_path):
    losses, student = [SoftTargets(), HardTargets(weight=0.5), HiddenMSE()], StudentConfig(layers=[0])
    how = {"optim": OptimConfig(lr=5e-3), "unfreeze_every": 2}
    sizes = {"max_length": 32, "batch_size": 8}
    whole = {"teachers": [tiny / "model"], "losses": losses, "student": student, **how, **sizes, **PLAIN}
    distill(out=tmp_path / "stage", prepared=[tiny / "prepared"], budget=Budget(max_steps=5), **whole)
    module = Distillation([tiny / "model"], losses, student=student, **how)
    keeps = ModelCheckpoint(tmp_path, filename="last")
    run = trainer(callbacks=[keeps], max_steps=5, enable_checkpointing=True)
    run.fit(module, data := DistillationData(tiny / "prepared", **sizes, test=tiny / "prepared"))
    module.save_pretrained(tmp_path / "library")
    assert files(tmp_path / "library") == files(tmp_path / "stage")
    run_card(tmp_path / "library")
    module.save_pretrained(tmp_path / "mine", CardConfig(tags=("law",)))
    assert ModelCard.load(tmp_path / "mine/README.md").data.tags == ["domainbert", "distillation", "law"]
    (found,) = run.test(module, data, verbose=False)
    assert found["test/HardTargets"] == pytest.approx(float(run.callback_metrics["test/HardTargets"]))
    loaded = Distillation.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    loaded.save_pretrained(tmp_path / "again")
    assert files(tmp_path / "again") == files(tmp_path / "library")


@pytest.mark.parametrize("cached", [False, True])
def test_distillation_on_a_task(tiny, tmp_path, cached):
    finetune(out=tmp_path / "teacher", model=tiny / "model", max_epochs=2, **LABELLED)
    teachers = [tmp_path / "teacher"]
    losses = [SoftTargets(temperature=2.0), HardTargets()] + ([] if cached else [HiddenMSE()])
    corpus = CorpusConfig([Source(str(DATA / "corpus.jsonl"))])
    student = StudentConfig(layers=[1])
    cache = str(tmp_path / "cache") if cached else None
    whole = {"teachers": teachers, "losses": losses, "student": student, "max_epochs": 2, "cache": cache}
    more = {"unlabelled": corpus, "max_unlabelled": 12, "unlabelled_batch_size": 4}
    distill_task(out=tmp_path / "stage", **whole, **more, **LABELLED)
    more |= {"teachers": teachers, "cache": cache, "precision": "32-true", "tokenizer": tiny / "vocab"}
    data = TransferData(TASK, **SETS, batch_size=8, max_length=24, **more)
    module = TaskDistillation(data.teachers, data.task, losses, student=student, optim=OPTIM, max_length=24)
    best = best_of(module, data, tmp_path, 2)
    best.save_pretrained(tmp_path / "library")
    assert files(tmp_path / "library") == files(tmp_path / "stage" / "seed-1")
    check_card(tmp_path / "library", tmp_path / "stage" / "seed-1")
    (found,) = trainer().test(best, tiny.data(), verbose=False)
    assert 0 <= found["test/f1"] <= 1
    described = data.describe(0)
    assert len(described["lines"]) == 8 and len(described["unlabelled"]) == 4
    assert {*described["unlabelled"]} < {" ".join(words) for words in data.text.sentences}
