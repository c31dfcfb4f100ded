from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers

from domainbert.data.batches import GlobalOrder, Share
from domainbert.data.packing import IGNORE_INDEX
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.families import name_map
from domainbert.encoders.names import to_hugging_face
from domainbert.encoders.packed import Packed
from domainbert.pretraining.batches import TrainRows, ValidationRows
from domainbert.pretraining.objective import MODEL, ValidationText
from domainbert.training.config import OptimConfig
from tests.tiny_training import masked_lm_module


def tensors(batch):
    return {name: torch.from_numpy(np.asarray(value)) for name, value in batch.items()}


def global_batch(reader):
    return TrainRows(reader, GlobalOrder(reader.plan.num_rows, 8, seed=0), Share(), range(10))[0]


def test_golden_loss_curve(pretrain):
    """Ten steps in fp32 on one thread, without dropout.

    Relative tolerance 1e-4: sums in another order (two threads, another CPU) move these losses by about 1e-6. Another
    mask, order, initial weight, learning rate, clipping, weight decay or beta moves some of them by 2e-4 or more.
    """
    module, losses = pretrain()

    assert losses == pytest.approx(
        [2.954745, 3.000668, 2.982585, 2.952544, 2.720115, 2.727902, 2.70768, 2.714792, 2.912304, 2.79692], rel=1e-4
    )
    metrics = module.final_metrics
    assert metrics["validation/loss"] == pytest.approx(2.617938, rel=1e-4)
    assert metrics["validation/perplexity"] == pytest.approx(math.exp(metrics["validation/loss"]))
    assert metrics["validation/bits_per_character"] == pytest.approx(metrics["validation/loss"] / math.log(2) * 0.5)
    assert metrics["validation/unigram_entropy"] == 2.5


def test_muon_learns_too(pretrain):
    module, losses = pretrain(OptimConfig("muon", lr=2e-2))
    assert module.final_metrics["validation/loss"] < losses[0] - 0.1


@pytest.mark.parametrize("max_grad_norm", [0.0, 0.1])
def test_accumulation_changes_nothing(pretrain, max_grad_norm):
    # The gradient of a key's bias is 0 but for rounding; with the usual eps Adam would make steps of that noise.
    optim = OptimConfig(lr=5e-3, eps=1e-4, max_grad_norm=max_grad_norm)
    whole, losses = pretrain(optim, num_steps=3)
    parts, micro_losses = pretrain(optim, num_steps=3, micro_batch_size=2)
    # masked tokens are spread unevenly over the micro-batches, and yet the losses add up to the loss of the whole batch
    assert len(losses) == 3 and micro_losses == pytest.approx(losses, rel=1e-5)
    for name, tensor in whole.state_dict().items():
        torch.testing.assert_close(parts.state_dict()[name], tensor, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("num_rows", "step", "passes"), [(None, 0, 1), (20, 2, 2), (5, 1, 3)])
def test_training_step_over_ranks_and_micro_batches_is_the_gradient_of_the_mean(
    reader, make_model, monkeypatch, num_rows, step, passes
):
    """DDP averages over ranks and Lightning over micro-batches; the scale of the loss undoes both. Also where a pass
    over the corpus ends within the batch, and where a row is in it twice."""
    order = GlobalOrder(num_rows or reader.plan.num_rows, 8, seed=0)
    assert len(set(order.batch(step)[0].tolist())) == passes

    def gradients(world_size, accumulation):
        module = masked_lm_module(reader, make_model("masked_lm"))
        trainer = SimpleNamespace(world_size=world_size, accumulate_grad_batches=accumulation)
        module.trainer = trainer
        monkeypatch.setattr(module, "log", lambda *_, **__: None)
        for rank in range(world_size):
            batches = TrainRows(reader, order, Share(rank, world_size, accumulation), range(step, 10))
            for micro_batch in range(accumulation):
                loss = module.training_step(tensors(batches[micro_batch]), micro_batch)
                (loss / accumulation / world_size).backward()
        return [parameter.grad for parameter in module.parameters()]

    wanted = gradients(1, 1)
    for world_size, accumulation in ((2, 1), (2, 2), (4, 2)):
        for one, other in zip(gradients(world_size, accumulation), wanted, strict=True):
            torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


def test_loss_and_gradient_are_those_of_transformers(reader, make_model):
    model = make_model("masked_lm")
    config: BertConfig = BertConfig(
        hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32, max_position_embeddings=32
    )
    their_config = transformers.BertConfig(vocab_size=model.encoder.input_embeddings.num_embeddings, **vars(config))
    theirs = transformers.BertForMaskedLM(their_config).eval()
    theirs.load_state_dict(to_hugging_face(model.state_dict(), name_map(config, "masked_lm")), strict=False)
    batch = tensors(global_batch(reader))
    # one text a row, as transformers has them
    single = (batch["segment_ids"] == 1).long()
    labels = torch.full(single.shape, IGNORE_INDEX).flatten()
    labels[batch["positions"]] = batch["targets"]
    labels = labels.view_as(single).masked_fill(single == 0, IGNORE_INDEX)
    wanted = theirs(batch["input_ids"], attention_mask=single, labels=labels).loss
    positions = (labels.flatten() != IGNORE_INDEX).nonzero().flatten()
    targets = labels.flatten()[positions]
    alone = {**batch, "segment_ids": single, "positions": positions, "targets": targets}
    found = reader.objective.measure({MODEL: model}, alone)["loss"] / len(positions)
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)
    found.backward()
    wanted.backward()
    torch.testing.assert_close(
        model.encoder.input_embeddings.weight.grad, theirs.get_input_embeddings().weight.grad, atol=1e-7, rtol=1e-4
    )


def test_unused_slots_count_nothing(reader, make_model):
    model, batch = make_model("masked_lm"), tensors(global_batch(reader))
    used = batch["targets"] != IGNORE_INDEX
    assert (~used).any()
    trimmed = batch | {"positions": batch["positions"][used], "targets": batch["targets"][used]}
    one, other = (reader.objective.measure({MODEL: model}, one)["loss"] for one in (batch, trimmed))
    torch.testing.assert_close(one, other)


def test_each_validation_is_the_mean_over_all_its_masked_tokens(reader, make_model, monkeypatch):
    """The second, of other weights and fewer rows, carries nothing over; each held-out text has its own mean."""
    ratios = {"": 0.25, "other": 0.5}
    texts = [ValidationText("", 0.25, {"unigram_entropy": 3.0}), ValidationText("other", 0.5, {})]
    module = masked_lm_module(reader, make_model("masked_lm"), texts=texts)
    logged = {}
    monkeypatch.setattr(module, "log", lambda name, value, **_: logged.update({name: float(value)}))
    whole = tensors(ValidationRows(reader, 10_000, Share())[0])
    batches = ValidationRows(reader, 7, Share())  # the last batch is smaller
    last, first = len(batches) - 1, 0
    for chosen in ({"": range(len(batches)), "other": [first]}, {"": [last], "other": range(1, len(batches))}):
        module.on_validation_epoch_start()
        with torch.inference_mode():
            for text, indices in enumerate(chosen.values()):
                for index in indices:
                    module.validation_step(tensors(batches[index]), index, text)
            module.on_validation_epoch_end()
        logits = module.model(Packed.of(whole), whole["positions"]).detach()
        log_probabilities = logits.log_softmax(dim=-1).numpy()
        targets = whole["targets"].numpy()
        losses = -np.where(targets != IGNORE_INDEX, log_probabilities[np.arange(len(targets)), targets.clip(0)], np.nan)
        of_row = losses.reshape(len(whole["input_ids"]), -1)
        for name, indices in chosen.items():
            wanted = np.nanmean(np.concatenate([of_row[7 * index : 7 * index + 7] for index in indices]))
            prefix = f"validation/{name}_" if name else "validation/"
            assert logged[f"{prefix}loss"] == pytest.approx(wanted, rel=1e-5)
            assert logged[f"{prefix}bits_per_character"] == pytest.approx(wanted / math.log(2) * ratios[name], rel=1e-5)
        assert logged["validation/perplexity"] == pytest.approx(math.exp(logged["validation/loss"]))
        assert logged["validation/unigram_entropy"] == 3.0
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.mul_(1.5)


def test_a_loss_that_is_no_number_stays_none_over_a_validation(reader, make_model, monkeypatch):
    module = masked_lm_module(reader, make_model("masked_lm"))
    logged = {}
    monkeypatch.setattr(module, "log", lambda name, value, **_: logged.update({name: float(value)}))
    batches = ValidationRows(reader, 7, Share())
    losses, count = iter([torch.tensor(float("nan"))]), torch.tensor(3)
    measure = lambda *inputs: {"loss": next(losses, torch.tensor(1.0)), "targets": count}  # noqa: E731
    monkeypatch.setattr(module.validation_objective, "measure", measure)
    for index in range(len(batches)):
        module.validation_step(tensors(batches[index]), index)
    module.on_validation_epoch_end()
    assert len(batches) > 1 and math.isnan(logged["validation/loss"])


def test_each_weight_is_in_a_checkpoint_once(pretrain):
    module, _ = pretrain(num_steps=3)
    assert list(module.others) == []
    weights = [tensor.data_ptr() for name, tensor in module.state_dict().items() if not name.startswith("sums.")]
    tied = {tensor.data_ptr() for tensor in module.model.state_dict().values()}
    assert sorted(set(weights)) == sorted(tied) and len(weights) == len(module.model.state_dict())
