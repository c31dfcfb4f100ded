"""Choose the numbers of a first recipe for this machine, each with a short reason.

Published results are in docs/results.md; a reason does not name the file, which an installed package does not have.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from domainbert.base.process import num_cores

_MIN_STEPS = 600  # after 80 steps, the loss of a large model at a low rate has hardly changed
TOKENS_PER_WORD = 1.3  # estimate with punctuation, before a vocabulary exists; 1.154 without (docs/results-appendix.md)
_LOW_MEMORY_GIB = 8
# that gave the gain of adapting a model of 6 x 384 (docs/results-appendix.md); tokens of both phases
_ADAPTATION_WORDS, _ADAPTATION_TOKENS = 5e6, (5_600_000, 1_400_000)
_WINDOWS = (128, 256, 512)
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container


@dataclass(frozen=True)
class Machine:
    """Hardware that limits a training."""

    cores: int
    memory_gib: float
    gpu: str | None  # name of the GPU; None if torch cannot use any
    bf16: bool  # whether matrix products in bf16 are fast, as `precision: auto` decides

    def describe(self) -> str:
        """Return a line for the user: cores, memory, GPU, bf16."""
        cores = f"{self.cores} core{'' if self.cores == 1 else 's'}"
        gpu = self.gpu or "no GPU"
        return f"{cores}, {self.memory_gib:.0f} GiB of memory, {gpu}, {'fast' if self.bf16 else 'no fast'} bf16"


def this_machine() -> Machine:
    """Return the cores, memory and GPU that this process may use; imports torch."""
    import torch

    from domainbert.training.precision import resolve_precision

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return Machine(num_cores(), _memory_bytes() / 2**30, gpu, resolve_precision("auto") == "bf16-mixed")


def _memory_bytes() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _MEMORY_LIMIT.read_text().strip() if _MEMORY_LIMIT.is_file() else "max"
    return min(total, int(limit)) if limit.isdecimal() else total


class Choice(NamedTuple):
    """A value of the recipe and its reason, which is written as a comment."""

    value: Any
    reason: str


# limit in words of the corpus, name and hidden size of the encoder for smaller corpora, and the reason
_ENCODERS = (
    (1e6, "tiny", 128, "2 x 128; too little text for a larger encoder"),
    (30e6, "modernbert-small", 256, "6 x 256 (7.6 M parameters), as for 4.7 M words in the published results"),
    (300e6, "medium", 384, "6 x 384; enough text for more than small"),
)
_FEW_PIECES = "few other pieces occur at least twice in so little text"
# limit in words of the corpus, entries, and the reason: 2,685 words of English have 819 pieces, 33,718 words have 2,934
_VOCABULARIES = (
    (5e3, 512, f"512 entries; {_FEW_PIECES}"),
    (20e3, 1024, f"1,024 entries; {_FEW_PIECES}"),
    (100e3, 2048, f"2,048 entries; {_FEW_PIECES}"),
    (1e6, 4096, "4,096 entries, as in the demo for 0.5 M words"),
    (3e6, 8192, "between 4,096 in the demo and 16,384 for 4.7 M words in the published results"),
    (50e6, 16384, "16,384 entries, as for 4.7 M words in the published results"),
    (math.inf, 32768, "about as many entries as BERT and SciBERT, which read billions of words"),
)


def vocab_size(words: int, size: str) -> Choice:
    """Choose the vocabulary size from the number of words of the corpus.

    `size` is the number of words as text for the reason, such as `4.7 M words`.
    """
    entries, reason = next((entries, reason) for limit, entries, reason in _VOCABULARIES if words < limit)
    return Choice(entries, f"{size}: {reason}")


def encoder(words: int, size: str, machine: Machine) -> tuple[int, Choice]:
    """Return the hidden size and the name of the largest encoder that has enough text and that the machine can train.

    `size` is the number of words as text for the reason, such as `4.7 M words`.
    """
    for limit, name, hidden, reason in _ENCODERS:
        if words < limit:
            return hidden, Choice(name, f"{size}: {reason}")
    if machine.gpu is not None:
        return 768, Choice("base", f"{size}: 12 x 768, for a GPU")
    _, name, hidden, _ = _ENCODERS[-1]
    return hidden, Choice(name, f"{size} are enough for base, but base needs a GPU: 1,577 tokens/s on two cores")


def pretraining_optim(hidden: int) -> Choice:
    """Choose optimiser and learning rate for pretraining from random weights."""
    if hidden < 384:
        return Choice({"name": "muon", "lr": 2e-3}, "the best of 1.4e-3 to 8e-3 in 2,000 steps of 6 x 256")
    return Choice({"name": "muon", "lr": 2e-3}, "lower for a larger encoder; not measured")


def pretraining_budget(words: int) -> Choice:
    """Choose the number of passes over the corpus."""
    if words < 3e6:
        return Choice({"max_epochs": 10}, "little text needs more passes, and validation shows whether they help")
    if words < 50e6:
        return Choice({"max_epochs": 5}, "passes; the published results have two, to save time")
    return Choice({"max_epochs": 2 if words < 500e6 else 1}, "passes: there is enough text, so the time is the limit")


def adaptation_budgets(words: int, small: bool) -> list[Choice]:
    """Choose the lengths of both phases that adapt a general model to a corpus; `small` is at most 6 x 384."""
    name, lengths, reason = "max_epochs", (0.8, 0.2), "one pass in both phases, as in the published results"
    if small and words > _ADAPTATION_WORDS:
        name, lengths = "max_tokens", _ADAPTATION_TOKENS
        reason = "5 M words in both phases: 12 M more added nothing measurable in the published results"
    constant, decay = lengths
    return [Choice({name: constant}, reason), Choice({name: decay}, "while the rate decays")]


def pretraining_batch_size(words: int) -> Choice:
    """Choose the number of rows per optimiser step of pretraining."""
    if words < 1e6:
        return Choice(16, "rows per step: small, so that little text gives some thousand steps")
    return Choice(32, "rows per step, as in the published results") if words < 30e6 else Choice(64, "rows per step")


def micro_batch_size(hidden: int, machine: Machine) -> Choice | None:
    """Choose how many rows are computed at a time; None is all rows of a step."""
    if hidden < 384:
        return None
    if machine.gpu is not None:
        return Choice("auto", "as many rows at a time as fit in memory")
    return Choice(8, "rows at a time, for little memory") if machine.memory_gib < _LOW_MEMORY_GIB else None


def window(lengths: Sequence[int], measured: bool, max_length: int, whole_texts: bool = False) -> Choice:
    """Choose the smallest usual window, in tokens, that holds 99 % of the texts, or all texts if `whole_texts`.

    `lengths` are counted by a tokenizer if `measured`, otherwise estimated; `max_length` is the limit of the encoder.
    """
    share = 1 if whole_texts else 0.99
    num_held = math.ceil(share * len(lengths))
    length = sorted(lengths)[num_held - 1]  # of the longest text that the window holds
    size = next((usual for usual in _WINDOWS if usual >= length), _WINDOWS[-1])
    about = "" if measured else "about "
    reason = f"{100 * share:.0f} % of the texts have at most {about}{length:,} tokens"
    if max_length < size:
        reason += f"; the encoder has {max_length:,} positions, longer texts are split into windows"
    elif length > size:
        reason += "; longer texts are split into windows"
    return Choice(min(size, max_length), reason)


def fine_tuning_epochs(items: int, minimum: int = 8) -> Choice:
    """Choose the number of epochs: at least `minimum`, and enough for `_MIN_STEPS` steps; fewer for many items.

    The best epoch on validation is kept.
    """
    if items >= 20_000:
        epochs = 4 if items < 200_000 else 2
        return Choice(epochs, f"{items:,} items: a few epochs are many steps; the best epoch is kept")
    steps_per_epoch = -(-items // fine_tuning_batch_size(items).value)  # rounded up
    epochs = max(minimum, -(-_MIN_STEPS // steps_per_epoch))
    steps = f"{epochs * steps_per_epoch:,} steps, at least {_MIN_STEPS}"
    return Choice(epochs, f"{items:,} items: {steps}; the best epoch is kept")


def fine_tuning_batch_size(items: int) -> Choice:
    """Choose the number of texts per optimiser step of fine-tuning."""
    if items < 4000:
        return Choice(16, f"{items:,} items: more steps than with the default 32")
    return Choice(32, "the default")


def fine_tuning_lr(hidden: int, many_targets: bool) -> Choice:
    """Choose the learning rate for fine-tuning an encoder with this hidden size.

    `many_targets` is true for tasks with a target for each word, such as entities, and false for one target per text.
    """
    if hidden < 256:
        return Choice(5e-4, "as in the demo for this encoder")
    if hidden < 384:
        reason = "as from random weights in the published results; pretrained weights had twice this rate"
        return Choice(1e-3 if many_targets else 5e-4, reason)
    if hidden < 512:
        if many_targets:
            return Choice(3e-4, "as for entities with 6 x 384 in the published results")
        return Choice(
            1e-4, "as for texts with 6 x 384 in the published results; at two or three times this rate, seeds failed"
        )
    value = 5e-5 if many_targets else 2e-5
    return Choice(value, "usual for encoders of this size (Devlin et al. 2019); not measured here")


def seeds(items: int) -> Choice:
    """Choose the seeds of fine-tuning."""
    if items < 50_000:
        return Choice([1, 2, 3], "the confidence intervals include the spread between seeds")
    return Choice([1], f"{items:,} items: seeds differ little, and a training is long; use [1, 2, 3] for intervals")
