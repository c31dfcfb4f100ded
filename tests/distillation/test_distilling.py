from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lightning.pytorch.strategies import SingleDeviceStrategy

from domainbert.base.errors import DomainbertError
from domainbert.data.batches import GlobalOrder, Share
from domainbert.data.packing import IGNORE_INDEX
from domainbert.distillation.attention_config import AttentionMSE
from domainbert.distillation.batches import CountedRows, batch_counts
from domainbert.distillation.corpus_distillation import Distillation
from domainbert.distillation.hidden_config import HiddenMSE, PatientCLS
from domainbert.distillation.losses import Outputs
from domainbert.distillation.module import frozen_parameters
from domainbert.distillation.prediction_config import HardTargets, SoftTargets
from domainbert.distillation.task_distillation import TaskDistillation
from domainbert.distillation.weighted import WeightedLosses, mean_outputs, sizes_of
from domainbert.encoders.layers import Dropout
from domainbert.pretraining.batches import TrainRows, ValidationRows
from domainbert.tasks.ner.config import Ner
from tests.ready_made import CorpusDistillation
from tests.refusals import refused

CONFIGS = [SoftTargets(), SoftTargets(positions="all"), HardTargets(), HiddenMSE(), AttentionMSE(), PatientCLS()]


def tensors(batch):
    return {name: torch.from_numpy(np.asarray(value)) for name, value in batch.items()}


def make_module(make_model, configs=CONFIGS) -> CorpusDistillation:
    student, teacher = make_model("masked_lm"), make_model("masked_lm")
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.1)
    torch.manual_seed(2)
    losses = WeightedLosses(configs, sizes_of(student.encoder), sizes_of(teacher.encoder))
    return CorpusDistillation(student, [teacher.train()], losses)


def test_counts_of_the_global_batch_are_those_of_its_parts(reader):
    order = GlobalOrder(reader.plan.num_rows, 8, seed=0)
    for share in ((1, 1), (2, 1), (2, 2)):
        found = []
        for rank in range(share[0]):
            batches = CountedRows(TrainRows(reader, order, Share(rank, *share), range(10)))
            found += [tensors(batches[index]) for index in range(share[1])]
        for name in ("num_segments", "num_real_tokens", "num_pairs"):
            parts = [batch_counts(batch["position_ids"], batch["segment_ids"])[name] for batch in found]
            assert int(sum(parts)) == int(found[0][name]) > 0


def test_padding_is_left_out_of_every_loss(reader, make_model):
    """Rows with further padding, which student and teacher make different things of, have the same losses."""
    module = make_module(make_model).eval()
    batch = tensors(ValidationRows(reader, 5, Share())[0])
    rows, length = batch["input_ids"].shape
    wider = dict(batch)
    for name, high in (("input_ids", 20), ("position_ids", 1), ("segment_ids", 1)):
        wider[name] = torch.cat([batch[name], torch.arange(7).expand(rows, 7) % high], dim=1)
    wider["positions"] = batch["positions"] // length * (length + 7) + batch["positions"] % length
    with torch.no_grad():
        wanted, found = ({name: float(loss) for name, loss in module._loss_sums(b).items()} for b in (batch, wider))
    assert found == pytest.approx(wanted, rel=1e-5) and all(value > 0 for value in wanted.values())


def test_each_validation_starts_from_nothing(reader, make_model, monkeypatch):
    """Two validations of one training, over different rows and with other weights: each has its own means."""
    module, logged = make_module(make_model).eval(), {}
    monkeypatch.setattr(module, "log", lambda name, value, **_: logged.update({name: value}))
    batches = [tensors(ValidationRows(reader, 5, Share())[index]) for index in range(3)]
    for chosen in (batches[:2], batches[2:]):
        module.on_validation_epoch_start()
        with torch.no_grad():
            for index, batch in enumerate(chosen):
                module.validation_step(batch, index)
            module.on_validation_epoch_end()
            parts = [module._loss_sums(batch) for batch in chosen]
        targets = sum(int((batch["targets"] != IGNORE_INDEX).sum()) for batch in chosen)
        tokens = sum(int((batch["segment_ids"] > 0).sum()) for batch in chosen)
        segments = sum(int(row.max()) for batch in chosen for row in batch["segment_ids"])
        sizes = [torch.bincount(row)[1:] for batch in chosen for row in batch["segment_ids"]]
        pairs = sum(int((size**2).sum()) for size in sizes)
        units = {"SoftTargets": targets, "SoftTargets-2": tokens, "HardTargets": targets, "HiddenMSE": tokens}
        units |= {"AttentionMSE": pairs, "PatientCLS": segments}
        wanted = {name: sum(float(part[name]) for part in parts) / count for name, count in units.items()}
        assert {name: float(logged[f"validation/{name}"]) for name in wanted} == pytest.approx(wanted, rel=1e-5)
        assert float(logged["validation/loss"]) == pytest.approx(sum(wanted.values()), rel=1e-5)
        with torch.no_grad():
            for parameter in module.model.parameters():
                parameter.mul_(1.3)


def test_the_teacher_stays_outside_and_as_it_is(reader, make_model):
    module = make_module(make_model)
    (teacher,) = module.teachers
    before = {name: tensor.clone() for name, tensor in teacher.state_dict().items()}
    module.train()
    assert not any(part.training for part in teacher.modules()) and any(
        isinstance(p, Dropout) for p in teacher.modules()
    )
    assert not any("teacher" in name for name in module.state_dict())
    owned = {id(parameter) for parameter in module.parameters()}
    assert not any(id(parameter) in owned for parameter in teacher.parameters())
    batches = CountedRows(TrainRows(reader, GlobalOrder(reader.plan.num_rows, 8, 0), Share(), range(10)))
    batch = tensors(batches[0])
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        means = module.losses.means(module._loss_sums(batch), batch | {"num_outputs": batch["num_targets"]})
        loss = module.losses.total(means)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[2] < losses[0]
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in teacher.state_dict().items())


def test_a_head_that_no_loss_reads_does_not_learn(make_model):
    assert not any(p.requires_grad for p in make_module(make_model, [HiddenMSE()]).model.head.parameters())
    assert all(p.requires_grad for p in make_module(make_model, [HardTargets()]).model.head.parameters())


def test_names_tell_losses_of_a_kind_apart(make_model):
    module = make_module(make_model, [SoftTargets(), HiddenMSE(), SoftTargets(positions="all", weight=0.5)])
    assert module.losses.names == ["SoftTargets", "HiddenMSE", "SoftTargets-2"]
    means = {name: torch.tensor(value) for name, value in zip(module.losses.names, (1.0, 2.0, 4.0), strict=True)}
    assert float(module.losses.total(means)) == 5.0


def test_the_encoder_thaws_from_the_top(make_model):
    encoder = make_model("masked_lm").encoder
    everything, layers = len(list(encoder.parameters())), [len(list(layer.parameters())) for layer in encoder.blocks()]
    rest = everything - sum(layers)
    counts = [len(frozen_parameters(encoder, step, 2)) for step in range(12)]
    assert counts == [everything] * 2 + [rest + sum(layers[:2])] * 2 + [rest + layers[0]] * 2 + [rest] * 2 + [0] * 4
    assert frozen_parameters(encoder, 0, 0) == []
    learning = {id(p) for p in encoder.parameters()} - {id(p) for p in frozen_parameters(encoder, 2, 2)}
    assert learning == {id(p) for p in encoder.blocks()[2].parameters()}


def test_teachers_go_where_the_training_is(make_model):
    module = make_module(make_model)
    strategy = SingleDeviceStrategy(torch.device("meta"))
    module.trainer = SimpleNamespace(precision="32-true", strategy=strategy)
    module.setup("fit")
    assert {parameter.device.type for parameter in module.teachers[0].parameters()} == {"meta"}
    assert {parameter.device.type for parameter in module.parameters()} == {"cpu"}


def test_an_ensemble_says_the_mean_of_the_logits_that_are_read():
    first, second = torch.randn(2, 5, 3)
    for names in (["logits"], ["all_logits"], ["logits", "all_logits"]):
        parts = [Outputs([], {}, **dict.fromkeys(names, logits.bfloat16())) for logits in (first, second)]
        found = mean_outputs(parts)
        wanted = (first.bfloat16().float() + second.bfloat16().float()) / 2
        for name in ("logits", "all_logits"):
            value = getattr(found, name)
            assert torch.equal(value, wanted) if name in names else value is None
        assert mean_outputs(parts[:1]) is parts[0]


def test_all_losses_that_cannot_compare_are_named_at_once(make_model):
    configs = [AttentionMSE(student_layers=(9,), teacher_layers=(1,)), SoftTargets(), PatientCLS(student_layers=(7, 8))]
    with pytest.raises(DomainbertError) as caught:
        make_module(make_model, configs)
    assert "losses[0]: found 9 in student_layers; expected" in str(caught.value)
    assert "losses[2]: student_layers has length 2 and" in str(caught.value) and "losses[1]" not in str(caught.value)


def test_what_a_list_of_losses_needs(make_model):
    """One loss that looks into the teacher is enough to need its inside; one that looks at it, to need it at all."""

    def needs(*configs):
        losses = make_module(make_model, configs).losses
        return losses.needs_teacher, losses.needs_hidden, losses.reads

    assert needs(HardTargets()) == (False, False, {"hard"})
    assert needs(HardTargets(), SoftTargets()) == (True, False, {"hard", "predicted"})
    assert needs(SoftTargets(positions="all"), HiddenMSE()) == (True, True, {"all"})
    assert needs(AttentionMSE()) == (True, True, set())


def test_no_teacher_is_an_error_even_if_no_loss_compares_with_one():
    with refused(where="teachers", found="none"):
        Distillation([], [HardTargets()])
    for model in (None, "model"):
        with refused(where="teachers", found="none"):
            TaskDistillation([], Ner(), [HardTargets()], model=model)
