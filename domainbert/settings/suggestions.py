"""Suggestions for an unknown key: a similar key, a nested key, or the equivalent of a setting of transformers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, get_origin

from domainbert.base.choices import choices_of, is_choice
from domainbert.base.errors import Advice, suggest_name
from domainbert.base.fields import field_types, strip_ranges
from domainbert.settings.schema import groups_in
from domainbert.settings.trainer_arguments import VALIDATED

TRANSFORMERS_SETTINGS = {
    "adam_beta1": ("optim.betas",),
    "adam_beta2": ("optim.betas",),
    "adam_epsilon": ("optim.eps",),
    "bf16": ("precision",),
    "block_size": ("max_length",),
    "config_name": ("encoder",),
    "dataloader_num_workers": ("num_workers",),
    "early_stopping_patience": ("patience",),
    "eval_steps": ("validate_every",),
    "fp16": ("precision",),
    "gradient_accumulation_steps": ("micro_batch_size",),
    "gradient_checkpointing": ("activation_checkpointing",),
    "learning_rate": ("optim.lr",),
    "logging_steps": ("trainer.log_every_n_steps",),
    "lr_scheduler_type": ("schedule.name",),
    "max_seq_length": ("max_length",),
    "max_steps": ("budget.max_steps", "max_epochs"),
    "mlm_probability": ("masking.mlm_probability",),
    "model_name_or_path": ("model", "init_from", "models"),
    "n_gpus": ("trainer.devices",),
    "num_train_epochs": ("max_epochs", "budget.max_epochs"),
    "output_dir": ("out",),
    "per_device_eval_batch_size": ("micro_batch_size",),
    "per_device_train_batch_size": ("batch_size",),
    "report_to": ("loggers",),
    "save_steps": ("checkpoint_every",),
    "test_file": ("test",),
    "tokenizer_name": ("tokenizer",),
    "torch_compile": ("compile",),
    "train_batch_size": ("batch_size",),
    "train_file": ("train",),
    "validation_file": ("validation",),
    "warmup_ratio": ("schedule.warmup_fraction",),
}
"""Settings of `transformers` and its example scripts, with the possible names here; each stage has some of these."""


def suggest_key(name: str, hints: Mapping[str, Any], prefix: str, in_recipe: bool = False) -> Advice:
    """Return the advice of an error on the unknown key `name`: a similar valid key, or the list of valid keys.

    `hints` are the types of the valid keys, and `prefix` is their prefix, such as `task.`. A stage in a recipe has no
    key `out`.
    """
    equivalents = TRANSFORMERS_SETTINGS.get(name, ())
    means_out = name == "out" or "out" in equivalents
    if means_out and in_recipe and not prefix:
        hint = "a stage of a recipe writes to the folder with its name below the recipe's out; remove this key"
        return {"hint": hint}
    siblings = [*hints, *([] if prefix or in_recipe else ["out"])]
    # last part of each key here and below, by dotted key
    last_parts = {f"{prefix}{path}": path.rpartition(".")[2] for path in (*siblings, *keys_below(hints))}

    # the equivalent of a setting of transformers, or a key with the last part `name`
    matches = [path for path in equivalents if path in last_parts]
    matches += sorted((path for path, last in last_parts.items() if last == name), key=lambda path: path.count("."))
    if matches:
        return {"hint": f"did you mean '{matches[0]}'?"}
    # a similar key here
    if get_close_matches(name, siblings, n=1):
        return suggest_name(name, siblings)
    # a key with a similar last part
    close = get_close_matches(name, list(last_parts.values()), n=1, cutoff=0.8)
    first_match = next((path for path, last in last_parts.items() if last in close), None)
    return suggest_name(name, hints) if first_match is None else {"hint": f"did you mean '{first_match}'?"}


def keys_below(hints: Mapping[str, Any]) -> Iterator[str]:
    """Yield the dotted keys of nested settings, such as `optim.lr`, given the types of the outer settings by name; the
    keys of a group precede the keys of its subgroups."""
    for name, hint in hints.items():
        if name == "trainer":
            yield from (f"trainer.{argument}" for argument in VALIDATED)
        for cls in _dataclasses(hint):
            fields = field_types(cls)
            yield from (f"{name}.{field}" for field in fields)
            yield from (f"{name}.{path}" for path in keys_below(fields))


def _dataclasses(hint: Any) -> list[type]:
    if get_origin(strip_ranges(hint)) in (list, tuple, dict):
        return []
    classes: list[type] = []
    for group in groups_in(hint):
        classes += choices_of(group).values() if is_choice(group) else [group]
    return classes
