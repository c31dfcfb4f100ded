"""Checks the arguments under `trainer:` against `lightning.Trainer` without importing it, which would take 5 s.

Values are plain: Lightning looks strategies, accelerators and profilers up in tables of its own by a single word, so
that nothing is imported because a YAML names it.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.ranges import Range
from domainbert.settings.tree import nearest
from domainbert.settings.yaml_files import Node

_LENGTH = "the length of training is budget (pretrain) or max_epochs (finetune)"
_LESS = "leaves out batches, so order and epochs would be others; expected a shorter training, or smaller files"
_BATCH = "write batch_size and micro_batch_size"
_VALIDATION = "write validate_every (pretrain)"
_OWN = "there is nothing to set"

RESERVED = {
    "max_steps": _LENGTH,
    "max_epochs": _LENGTH,
    "min_steps": _LENGTH,
    "min_epochs": _LENGTH,
    "reload_dataloaders_every_n_epochs": _OWN,
    "accumulate_grad_batches": _BATCH,
    "val_check_interval": _VALIDATION,
    "check_val_every_n_epoch": _VALIDATION,
    "precision": "write precision beside trainer",
    "logger": "write loggers beside trainer",
    "gradient_clip_val": "write optim.max_grad_norm",
    "gradient_clip_algorithm": "write optim.max_grad_norm",
    "default_root_dir": "write out",
    "callbacks": _OWN,
    "enable_checkpointing": _OWN,
    "enable_model_summary": _OWN,
    "enable_progress_bar": _OWN,
    "num_sanity_val_steps": _OWN,
    "use_distributed_sampler": _OWN,
    "plugins": _OWN,
    "model_registry": "models stay in out",
}
"""Arguments that domainbert sets itself, and what to write instead."""

REFUSED = {
    "max_time": f"ends a training before its schedule does; {_LENGTH}, and SIGTERM ends it so that it can be resumed",
    "fast_dev_run": _LESS,
    "overfit_batches": _LESS,
    "limit_train_batches": _LESS,
    "limit_val_batches": "leaves out batches, and a validation reads all of its set; expected a smaller file",
}
"""Arguments with which a result would not be what it is called, and the reason."""

SPEED_ONLY = frozenset({"accelerator", "devices", "num_nodes", "strategy", "log_every_n_steps", "profiler"})
"""Arguments that do not change what is learnt: a new value does not run a stage again."""

_UNUSED = ("", "_find_unused_parameters_false", "_find_unused_parameters_true")
_DDP = [f"ddp{way}{unused}" for way in ("", "_spawn", "_fork", "_notebook") for unused in _UNUSED]
_DEEPSPEED = [f"deepspeed_stage_{stage}" for stage in ("1", "2", "2_offload", "3", "3_offload", "3_offload_nvme")]

WORDS = {
    "accelerator": ("auto", "cpu", "cuda", "gpu", "mps", "tpu"),
    "strategy": (
        *("auto", "fsdp", "fsdp_cpu_offload", *_DDP, "deepspeed", *_DEEPSPEED),
        *("single_device", "single_tpu", "single_xla", "xla", "xla_debug"),
    ),
    "profiler": ("advanced", "pytorch", "simple", "xla"),
}
"""The names in the tables of Lightning, by argument."""

_SWITCHES = frozenset({"benchmark", "detect_anomaly", "deterministic", "inference_mode", "sync_batchnorm"})
_COUNTS = {"num_nodes": Range(1, 100_000), "log_every_n_steps": Range(0, 1_000_000_000)}
_NUMBERS = Range(0, 1_000_000_000)
_DEVICE_COUNT = Range(-1, 10_000)
_DEVICES = re.compile(r"-1|[1-9]\d{0,3}|\d{1,4}(,\d{1,4})+,?|\d{1,4},")
_WORD = re.compile(r"[A-Za-z]\w*")


@lru_cache
def trainer_arguments() -> tuple[str, ...]:
    """The argument names of the installed `lightning.Trainer`, in its order."""
    spec = importlib.util.find_spec("lightning")
    if spec is None or spec.origin is None:
        raise DomainbertError("lightning is not installed; expected lightning>=2.6.6 (pip install domainbert)")
    source = Path(spec.origin).parent / "pytorch" / "trainer" / "trainer.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    trainer = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Trainer")
    init = next(node for node in trainer.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    return tuple(argument.arg for argument in init.args.args[1:] + init.args.kwonlyargs)


def trainer_problems(node: Node, key: str) -> Iterator[tuple[Node, str, str]]:
    """The problems under `trainer:`, as (node, key, message)."""
    for name, child in node.value.items():
        if name in RESERVED:
            message = f"domainbert sets it; {RESERVED[name]}"
        elif name in REFUSED:
            message = REFUSED[name]
        elif name not in trainer_arguments():
            message = f"lightning.Trainer has no such argument; {nearest(name, trainer_arguments())}"
        elif (expected := _expected(name, child)) is not None:
            message = f"found {child.shown()}; expected {expected}"
        elif name in WORDS and child.value is not None and child.value not in WORDS[name]:
            message = f"lightning has no {name} {child.shown()}; {nearest(child.value, WORDS[name])}"
        else:
            continue
        yield child, f"{key}.{name}", message


def _expected(name: str, node: Node) -> str | None:
    """The kind of value that was expected; None if the value may be passed on unchanged."""
    value = node.plain()
    if name in WORDS:
        is_word = isinstance(value, str) and _WORD.fullmatch(value)
        return None if value is None or is_word else "a word, such as auto"
    if isinstance(value, (dict, list)) and name != "devices":
        return "a single value"
    if name in _SWITCHES:
        may_warn = name == "deterministic"
        fits = value is None or type(value) is bool or (may_warn and value == "warn")
        return None if fits else "true or false" + ", or warn" * may_warn
    if name == "devices":
        return None if _are_devices(value) else "a number of devices (-1 for all), a list of device numbers, or auto"
    limit = _COUNTS.get(name, _NUMBERS)
    if name in _COUNTS and type(value) is not int:
        return f"an integer {limit}"
    return f"a number {limit}" if type(value) in (int, float) and not limit.holds(value) else None


def _are_devices(value: Any) -> bool:
    if isinstance(value, list):
        return 0 < len(value) == len(set(map(str, value))) and all(type(item) is int and item >= 0 for item in value)
    if isinstance(value, str):
        return value == "auto" or _DEVICES.fullmatch(value) is not None
    return value is None or (type(value) is int and value != 0 and _DEVICE_COUNT.holds(value))
