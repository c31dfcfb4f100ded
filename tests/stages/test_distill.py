from __future__ import annotations

import hashlib
import json

import pytest
import torch
from safetensors.torch import load_file

from domainbert.base.errors import DomainbertError, TrainingStopped
from domainbert.distillation.attention_config import AttentionKL, AttentionMSE, Relations
from domainbert.distillation.hidden_config import HiddenCosine, HiddenMSE
from domainbert.distillation.prediction_config import HardTargets, SoftTargets
from domainbert.distillation.student_config import StudentConfig
from domainbert.encoders.packed import Packed
from domainbert.stages.distill import distill
from domainbert.training.config import Budget, OptimConfig
from domainbert.training.length_phases import LengthPhase
from tests.refusals import refused

DISTILBERT = [SoftTargets(weight=5.0, positions="all"), HardTargets(weight=2.0), HiddenCosine()]


def run(runs, name, losses=DISTILBERT, steps=12, **changes):
    usual = {"teachers": [runs / "pretrain"], "prepared": [runs / "prepare"], "losses": list(losses)}
    usual |= {"student": StudentConfig(family="distilbert", layers=(1,)), "budget": Budget(max_steps=steps)}
    usual |= {"max_length": 64, "batch_size": 16, "optim": OptimConfig(lr=2e-3)}
    return runs.run(name, distill, **{**runs.training, **usual, **changes})


@pytest.fixture(autouse=True)
def quick(one_thread, monkeypatch):
    monkeypatch.setattr("domainbert.training.throughput.measured_peak_flops", lambda *_: 1e12)


def digest(folder) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def test_a_student_learns_and_loads_in_transformers(runs):
    import transformers

    before = digest(runs / "pretrain")
    student = StudentConfig(family="distilbert", layers=(1,), init="random")
    out = run(runs, "distil-general", student=student)
    history = runs.results["distil-general"]["history"]
    assert history[-1]["loss"] < history[0]["loss"]
    assert history[-1]["loss"] == pytest.approx(
        5 * history[-1]["SoftTargets"] + 2 * history[-1]["HardTargets"] + history[-1]["HiddenCosine"], rel=1e-5
    )
    assert digest(runs / "pretrain") == before
    config = json.loads((out / "config.json").read_text())
    assert config["architectures"] == ["DistilBertForMaskedLM"] and config["n_layers"] == 1
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(out).eval()
    from domainbert.models.loading import load_model

    model, _, made = load_model(out, "masked_lm")
    ids = torch.arange(5, 25).view(1, 20)
    places = torch.arange(20)
    with torch.inference_mode():
        found = model.eval()(Packed(ids, places.view(1, 20), torch.ones_like(ids)), places)
        torch.testing.assert_close(found, theirs(ids).logits[0], atol=1e-5, rtol=0)
    assert made == []


def test_a_stopped_distillation_goes_on_exactly(runs, monkeypatch):
    """Stopped by a signal, resumed: the weights are equal to an undisturbed run bit for bit; no teacher is saved."""
    from domainbert.distillation.corpus_distillation import Distillation

    losses = [SoftTargets(), HiddenMSE(), Relations(relation_heads=4), AttentionMSE(), AttentionKL(weight=0.1)]
    whole = run(runs, "distil-whole", losses, steps=5, checkpoint_every=100)
    step = Distillation.training_step
    out = runs / "distil-stopped"

    def stop_in_the_third(self, batch, index):
        if self.trainer.global_step == 2:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, batch, index)

    monkeypatch.setattr(Distillation, "training_step", stop_in_the_third)
    with pytest.raises(TrainingStopped):
        run(runs, "distil-stopped", losses, steps=5, checkpoint_every=100)
    monkeypatch.setattr(Distillation, "training_step", step)
    state = max((out / "checkpoints").rglob("*.ckpt"))
    names = list(torch.load(state, weights_only=True)["state_dict"])
    assert any("losses.losses.1.projections" in name for name in names) and not any("teacher" in n for n in names)
    arguments = {"teachers": [runs / "pretrain"], "prepared": [runs / "prepare"], "losses": losses}
    arguments |= {"student": StudentConfig(family="distilbert", layers=(1,)), "budget": Budget(max_steps=5)}
    arguments |= {"max_length": 64, "batch_size": 16, "optim": OptimConfig(lr=2e-3), "checkpoint_every": 100}
    distill(out=out, **runs.training, **arguments)
    one, other = (load_file(folder / "model.safetensors") for folder in (whole, out))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_accumulation_changes_nothing(runs):
    """In both phases."""
    losses = [SoftTargets(), HardTargets(), HiddenMSE(projection="none"), AttentionMSE(), AttentionKL()]
    student = StudentConfig(first_layers=1, encoder=None)
    optim = OptimConfig(lr=1e-3, eps=1e-4)
    changes = {"student": student, "optim": optim, "dropout": 0.0, "steps": 3}
    changes["max_length"] = (LengthPhase(16, until=0.4), LengthPhase(64))
    folders = [run(runs, f"distil-micro-{size}", losses, micro_batch_size=size, **changes) for size in (None, 4)]
    one, other = (load_file(folder / "model.safetensors") for folder in folders)
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=1e-5, rtol=0)


def test_without_a_teacher_it_is_masked_lm(runs):
    out = run(runs, "distil-alone", [HardTargets()], steps=4)
    assert runs.results["distil-alone"]["teacher_parameters"] == [] and (out / "config.json").is_file()


def test_positions_are_counted_from_the_padding_of_the_tokenizer(runs, tmp_path):
    """A BERT's config.json may have another padding id, which does not change its own positions."""
    from domainbert.models.loading import load_model

    teacher = tmp_path / "teacher"
    teacher.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (teacher / name).write_bytes((runs / "pretrain" / name).read_bytes())
    config = json.loads((teacher / "config.json").read_text())
    (teacher / "config.json").write_text(json.dumps(config | {"pad_token_id": config["pad_token_id"] + 1}))
    still, whole = OptimConfig(lr=1e-9), StudentConfig(family="roberta")
    out = run(runs, "distil-padding", steps=1, teachers=[teacher], student=whole, optim=still)
    ids, places = torch.arange(5, 25).view(1, 20), torch.arange(20)
    tokens = Packed(ids, places.view(1, 20), torch.ones_like(ids))
    with torch.inference_mode():
        of_student, of_teacher = (load_model(path, "masked_lm")[0].eval()(tokens, places) for path in (out, teacher))
    torch.testing.assert_close(of_student, of_teacher, atol=1e-4, rtol=0)


def test_the_encoder_alone_is_saved_where_no_head_is_trained(runs):
    from domainbert.encoders.bert.config import BertConfig

    encoder = BertConfig(32, 2, 2, 64, max_position_embeddings=96)
    out = run(runs, "distil-narrow", [Relations()], steps=3, student=StudentConfig(encoder=encoder))
    assert json.loads((out / "config.json").read_text())["architectures"] == ["BertModel"]
    assert not any("cls." in name for name in load_file(out / "model.safetensors"))


def test_what_is_refused(runs, tmp_path):
    from domainbert.encoders.bert.config import BertConfig

    narrow = StudentConfig(encoder=BertConfig(32, 1, 4, 64, max_position_embeddings=96))
    with pytest.raises(DomainbertError) as caught:
        run(runs, "distil-refused-1", [HiddenCosine(), SoftTargets(), AttentionKL()], student=narrow)
    assert [problem.partition(" is ")[0] for problem in caught.value.problems] == [
        "losses[0]: the hidden_size",
        "losses[2]: the num_attention_heads",
    ]
    with refused(where="teachers", found="2 with losses on layers"):
        run(runs, "distil-refused-2", teachers=[runs / "pretrain"] * 2)
    with refused(where="losses", found="a loss on predictions, but the teacher ... has no..."):
        run(runs, "distil-refused-3", teachers=[runs / "ner-pretrained"])
