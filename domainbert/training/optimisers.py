"""Optimisers (parameter groups, AdamW, and Muon for the hidden matrices) and learning-rate schedules."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW, Muon, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from domainbert.base.errors import DomainbertError
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.layers import StackedLinear
from domainbert.training.config import OptimConfig, ScheduleConfig
from domainbert.training.precision import autocast_dtype

ParameterGroup = dict[str, Any]
NamedParameter = tuple[EncoderWithHead, str, nn.Parameter]


class PortableMuon(Muon):
    """Muon of torch, for weights that are several matrices, such as query, key and value, and for slow bf16.

    Each of the `num_matrices` of a weight, one below the other, is orthogonalised alone; weights that are not in
    `num_matrices` are one matrix. torch computes the Newton-Schulz iteration in bf16 on every device; a CPU without
    bf16 instructions takes 7 to 19 times as long for it as in fp32. The fp32 products here are rounded to bf16, so only
    the order of sums differs.
    """

    def __init__(self, params: Any, num_matrices: Mapping[Tensor, int] = MappingProxyType({}), **settings: Any) -> None:
        super().__init__(params, adjust_lr_fn="match_rms_adamw", **settings)
        self._num_matrices = num_matrices  # not in the parameter groups, which are stored in checkpoints

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters; return the loss of `closure`, or None without it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)
        return loss

    def _update(self, parameter: Tensor, grad: Tensor, group: ParameterGroup) -> None:
        """Update a parameter, as torch does with Nesterov momentum and `match_rms_adamw`."""
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(grad)
        momentum, rate = state["momentum_buffer"], float(group["lr"])
        momentum.lerp_(grad, 1 - group["momentum"])
        update = grad.lerp(momentum, group["momentum"])
        whole = update.full_tensor() if isinstance(update, DTensor) else update
        matrices = whole.unflatten(0, (self._num_matrices.get(parameter, 1), -1))  # (matrices, rows, columns)
        scale = 0.2 * math.sqrt(max(matrices.shape[1:]))
        change = _orthogonalize(matrices, group["ns_coefficients"], group["ns_steps"]).flatten(0, 1)
        if isinstance(update, DTensor):  # each process computes the whole matrix, and takes its part
            replicated = DTensor.from_local(change, update.device_mesh, [Replicate()] * update.device_mesh.ndim)
            change = replicated.redistribute(placements=update.placements)
        parameter.mul_(1 - rate * group["weight_decay"])
        parameter.add_(change, alpha=-rate * scale)


def _orthogonalize(matrices: Tensor, coefficients: tuple[float, float, float], num_steps: int) -> Tensor:
    """Return the result of Muon's Newton-Schulz iteration for each of the matrices (N, rows, columns), in the dtype of
    these; each intermediate result is rounded to bf16."""
    a, b, c = coefficients
    is_fast = autocast_dtype("auto", matrices.device.type) == torch.bfloat16

    def rounded(values: Tensor) -> Tensor:
        return values if is_fast else values.bfloat16().float()

    is_tall = matrices.shape[1] > matrices.shape[2]
    result = (matrices.mT if is_tall else matrices).bfloat16()
    result = result / result.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    result = result if is_fast else result.float()
    for _ in range(num_steps):
        gram = rounded(result @ result.mT)
        polynomial = rounded(torch.baddbmm(gram, gram, gram, beta=b, alpha=c))
        result = rounded(torch.baddbmm(result, polynomial, result, beta=a))
    return (result.mT if is_tall else result).to(matrices.dtype)


class CombinedOptimizer(Optimizer):
    """Several optimisers as a single one, for Lightning and learning-rate schedules."""

    def __init__(self, optimizers: list[Optimizer]) -> None:
        self.optimizers = optimizers
        groups = [{"params": group["params"]} for optimizer in optimizers for group in optimizer.param_groups]
        super().__init__(groups, defaults={})
        self.share_groups()

    def share_groups(self) -> None:
        """Refer to the parameter groups of all optimisers, so that schedules change their learning rates.

        Call it again after a state is loaded, which replaces the groups.
        """
        self.param_groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step each optimiser; return the loss of `closure`, or None without it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the optimisers, in order."""
        return {"optimizers": [optimizer.state_dict() for optimizer in self.optimizers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a result of `state_dict`."""
        for optimizer, state in zip(self.optimizers, state_dict["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        self.share_groups()


def build_optimizer(
    models: Sequence[EncoderWithHead], config: OptimConfig, fused: bool = True, extra: Sequence[nn.Parameter] = ()
) -> Optimizer:
    """Return the optimiser for models that are trained together.

    Muon (Jordan et al. 2024; its updates scaled to the size of AdamW's as in Liu et al. 2025, arXiv:2502.16982, section
    2.2) takes the weight matrices of the layers, each matrix of a `StackedLinear` alone; AdamW (with its `fused`
    kernel) takes the rest, or all parameters. Weight decay applies only to weight matrices, not to biases and norms
    (fewer than two dimensions) and embeddings.
    Learning rates follow `head_lr` and `layer_decay`: in layer d of N, lr * layer_decay^(N - d) (Howard and Ruder 2018,
    arXiv:1801.06146, section 3.2; ELECTRA's code has N + 2 - d, and its `lr` is the rate of the head). A shared
    parameter has the learning rate of the first model; parameters in `extra` have the rate of heads.
    """
    hidden: list[NamedParameter] = []
    others: list[NamedParameter] = []
    # the first model with a shared parameter owns it: reversed, because the last entry of a dict wins
    owners = {parameter: model for model in reversed(models) for parameter in model.parameters()}
    for model in models:
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and owners[parameter] is model:
                uses_muon = config.name == "muon" and parameter.ndim == 2 and _depth(model, name) > 0
                group = hidden if uses_muon else others
                group.append((model, name, parameter))
    # a name that begins with "head." selects the rate of heads
    others += [(models[0], f"head.extra.{number}", parameter) for number, parameter in enumerate(extra)]
    adamw = AdamW(_parameter_groups(others, config), betas=config.betas, eps=config.eps, fused=fused)
    if not hidden:
        return adamw
    stacked = [module for model in models for module in model.modules() if isinstance(module, StackedLinear)]
    num_matrices: dict[Tensor, int] = {module.weight: module.num_matrices for module in stacked}
    muon = PortableMuon(_parameter_groups(hidden, config), num_matrices)
    return CombinedOptimizer([muon, adamw])


def _parameter_groups(named: Sequence[NamedParameter], config: OptimConfig) -> list[ParameterGroup]:
    groups: dict[tuple[float, float], ParameterGroup] = {}
    models = {model for model, _, _ in named}
    submodules = [module for model in models for module in model.modules()]
    embedding_weights = {module.weight for module in submodules if isinstance(module, nn.Embedding)}
    for model, name, parameter in named:
        decay = config.weight_decay if parameter.ndim >= 2 and parameter not in embedding_weights else 0.0
        rate = _learning_rate(model, name, config)
        group = groups.setdefault((rate, decay), {"params": [], "lr": rate, "weight_decay": decay})
        group["params"].append(parameter)
    return list(groups.values())


def _learning_rate(model: EncoderWithHead, name: str, config: OptimConfig) -> float:
    if name.startswith("head."):
        return config.lr if config.head_lr is None else config.head_lr
    return config.lr * config.layer_decay ** (model.encoder.num_hidden_layers - _depth(model, name))


def _depth(model: EncoderWithHead, name: str) -> int:
    """Return 0 for embeddings and for parameters outside the encoder; layers count from 1."""
    return model.encoder.depth_of(name.removeprefix("encoder.")) if name.startswith("encoder.") else 0


def warmup_steps(config: ScheduleConfig, num_steps: int) -> int:
    """Return the number of warm-up steps. Raises `DomainbertError` if no step is left after them."""
    steps = config.warmup_steps if config.warmup_steps is not None else round(config.warmup_fraction * num_steps)
    if steps >= num_steps:
        key = "warmup_fraction" if config.warmup_steps is None else "warmup_steps"
        raise DomainbertError(
            where=f"schedule.{key}",
            found=f"{steps:,} warm-up steps",
            expected=f"fewer than the {num_steps:,} training steps",
        )
    return steps


def lr_factor(step: int, num_steps: int, config: ScheduleConfig) -> float:
    """Return the learning rate of optimiser step `step` (from 0 to num_steps - 1) as a fraction of the peak.

    `wsd` is warm-up, stable, decay with 1 - sqrt (Hägele et al. 2024, arXiv:2405.18392, section 3).
    """
    warmup = warmup_steps(config, num_steps)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    progress = (step - warmup) / max(num_steps - warmup, 1)
    if config.name == "linear":
        shape = 1 - progress
    elif config.name == "cosine":
        shape = 0.5 * (1 + math.cos(math.pi * progress))
    elif config.name == "wsd":
        decay_steps = min(max(round(config.decay_fraction * num_steps), 1), num_steps - warmup)
        decay_start = num_steps - decay_steps
        shape = 1 - math.sqrt(max(0, step - decay_start) / decay_steps)
    else:
        shape = 1.0
    return config.min_lr_ratio + (1 - config.min_lr_ratio) * shape


def build_schedule(optimizer: Optimizer, config: ScheduleConfig, num_steps: int) -> LambdaLR:
    """Return a torch scheduler; step it after every optimiser step."""
    # torch also asks for the rate after the last step
    return LambdaLR(optimizer, lambda step: lr_factor(min(step, num_steps - 1), num_steps, config))


def clip_gradient(optimizer: Optimizer, parameters: Iterable[nn.Parameter], max_norm: float | None) -> Tensor:
    """Clip the gradient of those `parameters` that an optimizer trains to `max_norm`; None and 0 disable clipping.
    Return its norm () before clipping."""
    optimized = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    trained = [parameter for parameter in parameters if parameter in optimized]
    norm = clip_grad_norm_(trained, max_norm or float("inf"))
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def skip_step(optimizer: Optimizer, skipped: Tensor) -> None:
    """Make the next step of an optimizer change no weight if the tensor `skipped` () is True."""
    if skips_steps_itself(optimizer):
        optimizer.found_inf = skipped.float()  # type: ignore[attr-defined]
    elif bool(skipped):
        optimizer.zero_grad(set_to_none=True)


def skips_steps_itself(optimizer: Optimizer) -> bool:
    """Return whether an optimiser itself skips a step if its attribute `found_inf` is 1.

    Fused AdamW with unsharded parameters on a GPU does so: weights, moments and step counts stay unchanged, and the
    caller need not wait for the GPU to know whether the gradients are finite.
    """
    if not isinstance(optimizer, AdamW):
        return False
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    fused = all(group["fused"] for group in optimizer.param_groups)
    return fused and all(_on_one_gpu(parameter) for parameter in parameters)


def _on_one_gpu(parameter: Tensor) -> bool:
    return parameter.device.type == "cuda" and not isinstance(parameter, DTensor)
