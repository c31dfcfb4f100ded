"""Settings and classes that earlier versions had: what to use instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Removed:
    """A setting or class that no longer exists."""

    instead: str
    """What to do instead: the rest of a sentence in the imperative."""
    default: Any = None
    """Default in earlier versions; a result that was made with it is still up to date."""


_OWN_STEP = "override training_step of FineTuning, as in docs/how-to/improve-fine-tuning.md"
_FALLING_SHARE = "use mlm_probability: 0.3 and final_mlm_probability: 0.15, which scored better (docs/results.md)"
_WORD_TABLE = "read the table that check prints with a tokenizer, which has pieces per word and words with [UNK]"
_COMMANDS = "run the same command several times at once, for each GPU with its CUDA_VISIBLE_DEVICES"

REMOVED = {
    "Check.unknown-words": Removed(_WORD_TABLE),
    "Check.unknown-words-in-corpus": Removed(_WORD_TABLE),
    "Check.words-in-many-pieces": Removed(_WORD_TABLE),
    "Finetune.adversarial": Removed(_OWN_STEP),
    "Finetune.r_drop": Removed(_OWN_STEP),
    "MaskingConfig.frequency_power": Removed(_FALLING_SHARE, default=0.0),
    "MaskingConfig.spans": Removed(_FALLING_SHARE),
    "ObjectiveConfig.CausalMix": Removed("use MaskedLM, or CausalLM as a phase before it"),
    "ReplacedTokens.spans": Removed("use whole_word: true"),
    "TuneConfig.gpus": Removed(_COMMANDS),
    "TuneConfig.parallel": Removed(_COMMANDS),
}
"""Removed settings by class and name, removed classes by abstract class and name, and removed rules of `Check`."""


def removed_hint(cls: type, name: str) -> str:
    """Return the part of an error message about a removed setting of a dataclass, or about a removed subclass of an
    abstract class; "" if there was none of this name."""
    removed = removed_settings(cls).get(name)
    return "" if removed is None else f"was removed; {removed.instead}"


def removed_settings(cls: type) -> dict[str, Removed]:
    """Return the removed settings of a dataclass, by name."""
    owners = {base.__name__ for base in cls.__mro__}
    settings = {}
    for key, removed in REMOVED.items():
        owner, _, name = key.partition(".")
        if owner in owners:
            settings[name] = removed
    return settings
