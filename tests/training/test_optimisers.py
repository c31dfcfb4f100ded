from __future__ import annotations

import io
from itertools import chain
from types import SimpleNamespace

import pytest
import torch
from torch.optim import AdamW, Muon

from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.deberta_v2.config import DebertaV2Config
from domainbert.encoders.families import build_model
from domainbert.encoders.layers import StackedLinear
from domainbert.encoders.modernbert.config import ModernBertConfig
from domainbert.training import optimisers
from domainbert.training.config import OptimConfig, ScheduleConfig
from domainbert.training.optimisers import CombinedOptimizer, PortableMuon, build_optimizer, build_schedule
from tests.refusals import refused
from tests.tiny_training import masked_lm_module

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
MODERNBERT = ModernBertConfig(**SIZES, max_position_embeddings=16)
DEBERTA = DebertaV2Config(**SIZES, max_position_embeddings=16, relative_attention=True, pos_att_type="c2p|p2c")
MATRICES = ["attention.query_key_value", "attention.output", "feed_forward.expand", "feed_forward.contract"]
HIDDEN = {f"encoder.layers.{layer}.{name}.weight" for layer in range(3) for name in MATRICES}


def settings_by_name(model, optimizer):
    """Parameter name -> (learning rate, weight decay); every parameter is in one group."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = [(group, parameter) for group in optimizer.param_groups for parameter in group["params"]]
    assert len(groups) == len({id(parameter) for _, parameter in groups})
    return {names[id(parameter)]: (group["lr"], group["weight_decay"]) for group, parameter in groups}


@pytest.mark.parametrize("name", ["adamw", "muon"])
@pytest.mark.parametrize(("head", "decaying"), [("masked_lm", "dense"), ("tokens", "classifier")])
def test_what_decays_and_at_which_rate_it_learns(make_model, name, head, decaying):
    model = make_model(head, 3)
    config = OptimConfig(name, lr=1e-3, head_lr=5e-3, layer_decay=0.5, weight_decay=0.1, betas=(0.8, 0.9), eps=1e-7)
    optimizer = build_optimizer([model], config)
    found = settings_by_name(model, optimizer)
    assert found.keys() == dict(model.named_parameters()).keys()
    assert {name for name, (_, decay) in found.items() if decay} == HIDDEN | {f"head.{decaying}.weight"}
    assert {decay for _, decay in found.values()} == {0.0, 0.1}
    rates = {"head.": 5e-3, "encoder.embeddings.": 1.25e-4}
    rates |= {f"encoder.layers.{layer}.": 1e-3 * 0.5 ** (2 - layer) for layer in range(3)}
    for name, (rate, _) in found.items():
        assert rate == next(wanted for prefix, wanted in rates.items() if name.startswith(prefix)), name
    groups = [group for group in optimizer.param_groups if "betas" in group]
    assert {(*group["betas"], group["eps"], group["fused"]) for group in groups} == {(0.8, 0.9, 1e-7, True)}


def test_defaults_give_one_rate(make_model):
    model = make_model("masked_lm")
    assert {rate for rate, _ in settings_by_name(model, build_optimizer([model], OptimConfig(lr=3e-4))).values()} == {
        3e-4
    }


def test_muon_takes_exactly_the_hidden_matrices(make_model):
    model = make_model("masked_lm")
    optimizer = build_optimizer([model], OptimConfig("muon"))
    assert isinstance(optimizer, CombinedOptimizer)
    muon, adamw = optimizer.optimizers
    assert isinstance(muon, Muon) and isinstance(adamw, AdamW)
    assert settings_by_name(model, muon).keys() == HIDDEN
    assert settings_by_name(model, adamw).keys() == dict(model.named_parameters()).keys() - HIDDEN


def test_frozen_parameters_are_left_out(make_model):
    model = make_model("tokens", 2)
    model.encoder.requires_grad_(False)
    optimizer = build_optimizer([model], OptimConfig("muon"))
    assert isinstance(optimizer, AdamW)
    assert settings_by_name(model, optimizer).keys() == {"head.classifier.weight", "head.classifier.bias"}


def steps(model, optimizer, schedule, count):
    for step in range(count):
        optimizer.zero_grad()
        for number, parameter in enumerate(model.parameters()):
            parameter.grad = torch.sin(parameter.detach() * 10 + number + step)
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_restored_optimiser_goes_on_as_the_first_would_have(make_model, name):
    def start(model):
        optimizer = build_optimizer([model], OptimConfig(name, lr=1e-2))
        return optimizer, build_schedule(optimizer, ScheduleConfig(warmup_steps=2), 20)

    model = make_model("masked_lm")
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    optimizer, schedule = start(model)
    steps(model, optimizer, schedule, 3)
    assert not any(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    other = make_model("masked_lm")
    other.load_state_dict(model.state_dict())
    restored, other_schedule = start(other)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    restored.load_state_dict(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
    other_schedule.load_state_dict(schedule.state_dict())
    steps(model, optimizer, schedule, 3)
    steps(other, restored, other_schedule, 3)
    rates = [group["lr"] for group in restored.param_groups]
    assert rates == [group["lr"] for group in optimizer.param_groups] == pytest.approx([1e-2 * 14 / 18] * len(rates))
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[key]), key


@pytest.mark.parametrize(("precision", "fused"), [("32-true", True), ("bf16-mixed", True), ("16-mixed", False)])
def test_gradients_are_unscaled_before_they_are_clipped(reader, make_model, precision, fused):
    module = masked_lm_module(reader, make_model("masked_lm"))
    trainer = SimpleNamespace(precision=precision, estimated_stepping_batches=10)
    module.trainer = trainer
    optimizer = module.configure_optimizers()["optimizer"]
    assert {group["fused"] for group in optimizer.param_groups} == {fused}


@pytest.mark.parametrize(
    ("changes", "where", "found", "expected"),
    [
        ({"lr": 0.0}, "lr", "0.0", "a number above 0 and up to 1"),
        ({"layer_decay": -1.0}, "layer_decay", "-1.0", "a number above 0 and up to 1"),
        ({"weight_decay": -0.1}, "weight_decay", "-0.1", "a number from 0 to 1"),
        ({"max_grad_norm": -1.0}, "max_grad_norm", "-1.0", "a number from 0 to..."),
    ],
)
def test_numbers_that_make_no_sense(changes, where, found, expected):
    with refused(where=where, found=found, expected=expected):
        OptimConfig(**changes)


def orthogonalised(gradient):
    """Five steps of Newton-Schulz with the coefficients of Jordan et al. (2024), in fp64."""
    wide = gradient.double() if gradient.shape[0] <= gradient.shape[1] else gradient.double().T
    x = wide / wide.norm()
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x if gradient.shape[0] <= gradient.shape[1] else x.T


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_muon_of_one_matrix_is_torch_s_but_for_the_order_of_sums(monkeypatch, dtype):
    """Wide, tall and square matrices, momentum, decay, a parameter without gradient; with fast and slow bf16."""
    monkeypatch.setattr(optimisers, "autocast_dtype", lambda *_: dtype)
    draw = torch.Generator().manual_seed(0)
    shapes = [(8, 40), (40, 8), (24, 24), (3, 5)]
    ours, theirs = ([torch.nn.Parameter(torch.ones(shape)) for shape in shapes] for _ in range(2))
    settings = {"lr": 0.1, "weight_decay": 0.2}
    optimizers = PortableMuon(ours, **settings), Muon(theirs, adjust_lr_fn="match_rms_adamw", **settings)
    for _ in range(3):
        for one, other in list(zip(ours, theirs, strict=True))[:-1]:
            one.grad = other.grad = torch.randn(one.shape, generator=draw)
        for optimizer in optimizers:
            optimizer.step()
    for one, other in zip(ours[:-1], theirs[:-1], strict=True):
        change, wanted = (0.98**3 - matrix.detach() for matrix in (one, other))
        assert float((change - wanted).norm() / wanted.norm()) < 0.01 < float(wanted.norm())
    states = [optimizer.state_dict()["state"] for optimizer in optimizers]
    assert states[0].keys() == states[1].keys() == {0, 1, 2} and torch.equal(ours[3], theirs[3])
    assert all(torch.equal(states[0][key]["momentum_buffer"], states[1][key]["momentum_buffer"]) for key in states[0])


@pytest.mark.parametrize(("config", "counts"), [(MODERNBERT, {3, 2}), (DEBERTA, {3, 2})])
def test_muon_separates_the_matrices_of_a_weight(config, counts):
    """Query, key and value, gate and up, projections of distances: as if each matrix were a parameter. The state is
    the state of one matrix, so older checkpoints load."""
    model = build_model(config, VocabularyFacts(50, 0), "masked_lm")
    stacked = [module for module in model.modules() if isinstance(module, StackedLinear)]
    assert {module.num_matrices for module in stacked} == counts
    optimizer = build_optimizer([model], OptimConfig("muon", lr=1e-2, weight_decay=0.1))
    muon, _ = optimizer.optimizers
    parts = [[part.detach().clone() for part in module.weight.chunk(module.num_matrices)] for module in stacked]
    alone = PortableMuon([torch.nn.Parameter(part) for part in chain(*parts)], lr=1e-2, weight_decay=0.1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        for module, matrices in zip(stacked, as_lists(alone, parts), strict=True):
            module.weight.grad = torch.randn(module.weight.shape, generator=generator)
            module.weight.grad[: len(module.weight) // module.num_matrices] *= 10
            for matrix, grad in zip(matrices, module.weight.grad.chunk(module.num_matrices), strict=True):
                matrix.grad = grad
        muon.step()
        alone.step()
    for module, matrices in zip(stacked, as_lists(alone, parts), strict=True):
        torch.testing.assert_close(module.weight.detach(), torch.cat([matrix.detach() for matrix in matrices]))
    assert all(set(group) == set(alone.param_groups[0]) for group in muon.param_groups)
    assert muon.state[stacked[0].weight]["momentum_buffer"].shape == stacked[0].weight.shape


def as_lists(optimizer, parts):
    """Return the parameters of an optimizer, grouped as `parts`."""
    parameters = iter(optimizer.param_groups[0]["params"])
    return [[next(parameters) for _ in matrices] for matrices in parts]


def test_muon_s_updates_have_the_size_of_adamw_s(make_model):
    """Liu et al. (2025), arXiv:2502.16982, eq. 4: 0.2 sqrt(max(rows, columns)) times the orthogonal matrix, beside
    decoupled weight decay; so the root mean square of every update is about 0.2 times the learning rate."""
    model, rate, decay = make_model("masked_lm"), 1e-2, 0.5
    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    optimizer = build_optimizer([model], OptimConfig("muon", lr=rate, weight_decay=decay))
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    optimizer.step()
    shapes = set()
    for name in HIDDEN:
        found = before[name] * (1 - rate * decay) - model.get_parameter(name).detach()
        num_matrices = 3 if "query_key_value" in name else 1
        rows, columns = found.shape[0] // num_matrices, found.shape[1]
        matrices = [orthogonalised(gradient) for gradient in gradients[name].chunk(num_matrices)]
        wanted = (0.2 * rate * max(rows, columns) ** 0.5 * torch.cat(matrices)).float()
        assert float((found - wanted).norm() / wanted.norm()) < 0.05, f"{name}: torch computes it in bf16"
        assert float(found.square().mean().sqrt()) == pytest.approx(0.2 * rate, rel=0.2)
        shapes.add((rows, columns))
    assert len(shapes) == 3, "wide, tall and square ones"
