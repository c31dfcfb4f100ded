"""Validates the arguments under `trainer:`. Imports Lightning, which takes seconds, only for a name not listed here.

Values are plain: Lightning looks up strategies, accelerators and profilers by name in its own registries, so a YAML
cannot cause an import.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field

from domainbert.base.errors import DomainbertError, suggest_name
from domainbert.base.fields import Count, Items, Range, describe_type, parse_plain
from domainbert.settings.yaml_files import Node

_LENGTH = "set the length of training with budget (pretrain, distill) or max_epochs (finetune, distill-task)"
_LESS = "skips batches, which changes the order and the epochs; use a shorter training or smaller files"
_BATCH = "set batch_size and micro_batch_size"
_VALIDATION = "set validate_every (pretrain, distill); finetune and distill-task validate after each epoch"
_FIXED = "remove it, because its value cannot be changed"

RESERVED = {
    "max_steps": _LENGTH,
    "max_epochs": _LENGTH,
    "min_steps": _LENGTH,
    "min_epochs": _LENGTH,
    "reload_dataloaders_every_n_epochs": _FIXED,
    "accumulate_grad_batches": _BATCH,
    "val_check_interval": _VALIDATION,
    "check_val_every_n_epoch": _VALIDATION,
    "precision": "set precision, outside of trainer",
    "logger": "set loggers, outside of trainer",
    "gradient_clip_val": "set optim.max_grad_norm",
    "gradient_clip_algorithm": "set optim.max_grad_norm",
    "default_root_dir": "set out",
    "callbacks": _FIXED,
    "enable_checkpointing": _FIXED,
    "enable_model_summary": _FIXED,
    "enable_progress_bar": _FIXED,
    "num_sanity_val_steps": _FIXED,
    "use_distributed_sampler": _FIXED,
    "plugins": _FIXED,
    "model_registry": "remove it, because models are saved in the folder of out",
}
"""Arguments that domainbert sets itself, with the setting to use instead."""

REFUSED = {
    "max_time": f"ends a training before its schedule does; {_LENGTH}, or stop it with SIGTERM and resume it later",
    "fast_dev_run": _LESS,
    "overfit_batches": _LESS,
    "limit_train_batches": _LESS,
    "limit_val_batches": "skips batches, but a validation must read its whole set; use a smaller validation set",
}
"""Arguments that would make a result misleading, with the reason."""

SPEED_ONLY = frozenset({"accelerator", "devices", "num_nodes", "strategy", "log_every_n_steps", "profiler"})
"""Arguments that do not change the trained model: a stage does not run again for a new value."""

ALLOWED_NAMES = {
    "accelerator": ("auto", "cpu", "cuda", "gpu", "mps"),
    # without the strategies that train in spawned processes: a stage reads the results of the training in its own
    "strategy": (
        *("auto", "single_device", "fsdp"),
        *("ddp", "ddp_find_unused_parameters_false", "ddp_find_unused_parameters_true"),
    ),
    "profiler": ("advanced", "pytorch", "simple"),
}
"""Allowed names by argument, among the names in the registries of Lightning."""

_DEVICES = Annotated[str, Field(pattern=r"^(auto|-1|[1-9]\d{0,3}|\d{1,4}(,\d{1,4})+,?|\d{1,4},)$")]
_TYPES: dict[str, Any] = {
    "devices": Annotated[int, Range(1, 10_000)]
    | Literal[-1]
    | Annotated[list[Annotated[int, Range(0, 10_000)]], Items(unique=True)]
    | _DEVICES
    | None,
    "num_nodes": Annotated[int, Range(1, 100_000)],
    "log_every_n_steps": Count,
    "deterministic": bool | Literal["warn"] | None,
    **dict.fromkeys(("benchmark", "detect_anomaly", "inference_mode", "sync_batchnorm"), bool | None),
}
_OTHER_TYPE = Annotated[float, Range(0, 1_000_000_000)] | bool | str | None
VALIDATED = (*ALLOWED_NAMES, *_TYPES)
"""Arguments whose values are validated here; other arguments of `lightning.Trainer` accept any single value."""


@cache
def trainer_arguments() -> tuple[str, ...]:
    """Return the argument names of the installed `lightning.Trainer`, in its order. Importing Lightning takes
    seconds."""
    from lightning import Trainer

    return tuple(inspect.signature(Trainer).parameters)


def trainer_problems(node: Node, key: str) -> Iterator[tuple[Node, str, DomainbertError]]:
    """Yield (node, key, error) for each argument under `trainer:` that is not allowed; `key` is the key of `node`."""
    for name, child in node.value.items():
        if (error := _problem(name, child)) is not None:
            yield child, f"{key}.{name}", error


def _problem(name: str, node: Node) -> DomainbertError | None:
    value = node.plain()
    hint = _TYPES.get(name, _OTHER_TYPE)
    if name in RESERVED:
        return DomainbertError("domainbert sets it", hint=RESERVED[name])
    if name in REFUSED:
        return DomainbertError(REFUSED[name])
    if name in ALLOWED_NAMES:
        if value is None or value in ALLOWED_NAMES[name]:
            return None
        return DomainbertError(found=node.short_text(), **suggest_name(str(value), ALLOWED_NAMES[name]))
    if name not in _TYPES and name not in trainer_arguments():
        return DomainbertError("lightning.Trainer has no such argument", **suggest_name(name, trainer_arguments()))
    try:
        parse_plain(value, hint)
    except ValueError:
        devices = "a number of devices, -1 or auto for all, or a list of device numbers such as [0, 1]"
        return DomainbertError(found=node.short_text(), expected=devices if name == "devices" else describe_type(hint))
    return None
