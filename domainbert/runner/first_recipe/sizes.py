"""Choose the numbers of a first recipe, each with a short reason.

The reason cites docs/results.md, docs/speed.md or a recipe in configs/ if the number was measured there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from domainbert.runner.first_recipe.machine import Machine

RATES = {
    ("modernbert-small", 128): 13_446,
    ("medium", 128): 7_634,
    ("medium", 512): 5_371,
    ("base", 128): 1_577,
    ("base", 512): 1_149,
}
"""Tokens per second of pretraining on two cores with fast bf16, by encoder and row length: docs/speed.md."""

FINE_TUNING_RATE = 5_352
"""Tokens per second of fine-tuning 6 x 384 on this machine: 160 sentences of ECON-IE per second in docs/speed.md."""

_MIN_STEPS = 600  # after 80 steps, the loss of a large model at a low rate has hardly changed
_TOKENS_PER_WORD = 1.3  # with punctuation; 1.154 without it in docs/results.md
_WINDOWS = (128, 256, 512)


class Chosen(NamedTuple):
    """A value of the recipe and its reason."""

    value: Any
    reason: str


class Size(NamedTuple):
    """Name and hidden size of an encoder."""

    name: str
    hidden: int


_ENCODERS = ((1e6, Size("tiny", 128)), (30e6, Size("modernbert-small", 256)), (300e6, Size("medium", 384)))
_SMALL = ((5e3, 512), (20e3, 1024), (100e3, 2048))  # 2,685 words of English have 819 pieces, 33,718 words have 2,934
_BASE = Size("base", 768)


def vocab_size(words: int, size: str) -> Chosen:
    """Choose the vocabulary size from the number of words of the corpus."""
    small = next((entries for limit, entries in _SMALL if words < limit), None)
    if small is not None:
        return Chosen(small, f"{size}: {small:,} entries; few other pieces occur at least twice in so little text")
    if words < 1e6:
        return Chosen(4096, f"{size}: 4,096 entries, as in the demo for 0.5 M words")
    if words < 3e6:
        return Chosen(8192, f"{size}: between 4,096 in the demo and 16,384 for 4.7 M words in docs/results.md")
    if words < 50e6:
        return Chosen(16384, f"{size}: 16,384 entries, as for 4.7 M words in docs/results.md")
    return Chosen(32768, f"{size}: about as many entries as BERT and SciBERT, which read billions of words")


def encoder(words: int, size: str, machine: Machine) -> tuple[Size, Chosen]:
    """Choose the largest encoder that has enough text and that the machine can train."""
    best = next((encoder for limit, encoder in _ENCODERS if words < limit), _BASE)
    if best == _BASE and machine.gpu is None:
        best = _ENCODERS[-1][1]
        return best, Chosen(best.name, f"{size} are enough for base, but base needs a GPU: 1,577 tokens/s on two cores")
    reasons = {
        "tiny": "2 x 128; too little text for a larger encoder",
        "modernbert-small": "6 x 256 (7.6 M parameters), as for 4.7 M words in docs/results.md",
        "medium": "6 x 384; enough text for more than small",
        "base": "12 x 768, for a GPU",
    }
    return best, Chosen(best.name, f"{size}: {reasons[best.name]}")


def pretraining_rate(hidden: int) -> Chosen:
    """Choose optimiser and learning rate for pretraining from random weights."""
    if hidden < 256:
        return Chosen({"name": "muon", "lr": 2e-3}, "as in the demo for this encoder")
    if hidden < 384:
        return Chosen({"name": "muon", "lr": 4e-3}, "as in docs/results.md")
    return Chosen({"name": "muon", "lr": 2e-3}, "lower for a larger encoder; not measured")


def passes(words: int) -> Chosen:
    """Choose the number of pretraining epochs."""
    if words < 3e6:
        return Chosen(10, "passes; little text needs more passes, and validation shows whether they help")
    if words < 50e6:
        return Chosen(5, "passes; docs/results.md has two, to save time")
    return Chosen(2 if words < 500e6 else 1, "passes: there is enough text, so the time is the limit")


def rows(words: int) -> Chosen:
    """Choose the number of rows per optimiser step of pretraining."""
    if words < 1e6:
        return Chosen(16, "rows per step: small, so that little text gives some thousand steps")
    return Chosen(32, "rows per step, as in docs/results.md") if words < 30e6 else Chosen(64, "rows per step")


def window(lengths: Sequence[int], measured: bool, longest: int, whole: bool = False) -> Chosen:
    """Choose the smallest usual window, in tokens, that holds 99 % of the texts, or all texts if `whole`.

    `lengths` are counted by a tokenizer if `measured`, otherwise estimated; `longest` is the limit of the encoder.
    """
    share = 1 if whole else 0.99
    length = sorted(lengths)[int(share * (len(lengths) - 1))]
    size = next((window for window in _WINDOWS if window >= length), _WINDOWS[-1])
    reason = f"{100 * share:.0f} % of the texts have at most {'' if measured else 'about '}{length:,} tokens"
    if longest < size:
        return Chosen(longest, f"{reason}; the encoder has {longest:,} positions, longer texts are split into windows")
    return Chosen(size, reason + ("" if length <= size else "; longer texts are split into windows"))


def epochs(items: int) -> Chosen:
    """Choose the number of fine-tuning epochs; the best epoch on validation is kept."""
    return _epochs(items, 8)


def teacher_epochs(items: int) -> Chosen:
    """Choose the number of epochs for a large model, with a lower minimum than `epochs`."""
    return _epochs(items, 5)


def _epochs(items: int, minimum: int) -> Chosen:
    if items >= 20_000:
        return Chosen(
            4 if items < 200_000 else 2, f"{items:,} items: a few epochs are many steps; the best epoch is kept"
        )
    steps = -(-items // batch(items).value)
    passes = max(minimum, -(-_MIN_STEPS // steps))
    return Chosen(
        passes, f"{items:,} items: {passes * steps:,} steps (docs/results.md, training length); the best epoch is kept"
    )


def batch(items: int) -> Chosen:
    """Choose the number of texts per optimiser step of fine-tuning."""
    if items < 4000:
        return Chosen(16, f"{items:,} items: more steps than with the default 32 (docs/results.md, training length)")
    return Chosen(32, "the default")


def rate(hidden: int, many_targets: bool) -> Chosen:
    """Choose the learning rate for fine-tuning an encoder."""
    if hidden < 256:
        return Chosen(5e-4, "as in the demo for this encoder")
    if hidden >= 512:
        value = 5e-5 if many_targets else 2e-5
        return Chosen(value, "usual for encoders of this size (Devlin et al. 2019); not measured here")
    if hidden < 384:
        reason = "as from random weights in docs/results.md; twice the rate of pretrained weights"
        return Chosen(1e-3 if many_targets else 5e-4, reason)
    if many_targets:
        return Chosen(3e-4, "as for entities with 6 x 384 in docs/results.md")
    return Chosen(1e-4, "as for texts with 6 x 384 in docs/results.md; at two or three times this rate, seeds failed")


def seeds(items: int) -> Chosen:
    """Choose the seeds of fine-tuning."""
    if items < 50_000:
        return Chosen([1, 2, 3], "the confidence intervals include the spread between seeds")
    return Chosen([1], f"{items:,} items: seeds differ little, and a training is long; use [1, 2, 3] for intervals")


def estimated_tokens(words: int) -> int:
    """Estimate the number of tokens before a vocabulary exists."""
    return round(_TOKENS_PER_WORD * words)


def fine_tuning_duration(tokens: float, layers: int, hidden: int, machine: Machine) -> str:
    """Return a sentence with the estimated time of fine-tuning on `tokens`, or with the reason for no estimate.

    The measured rate of 6 x 384 is scaled by the number of layer parameters, proportional to `layers * hidden**2`.
    """
    if not _is_measured(machine):
        return "no estimate of the time: docs/speed.md has no fine-tuning rate for this kind of machine"
    rate = FINE_TUNING_RATE * 6 * 384**2 / (layers * hidden**2)
    return f"fine-tuning: {_rounded(tokens / rate)} at {rate:,.0f} tokens/s (docs/speed.md: two cores, fast bf16)"


def duration(tokens: int, passes: float, name: str, length: int, machine: Machine) -> str:
    """Return a sentence with the estimated time of pretraining, or with the reason for no estimate."""
    rate = RATES.get((name, 128 if length == 128 else 512))
    if rate is None or not _is_measured(machine):
        return "no estimate of the time: docs/speed.md has no rate for this encoder on this kind of machine"
    about = _rounded(tokens * passes / rate)
    return f"pretraining: {about} at the {rate:,} tokens/s of docs/speed.md (two cores, fast bf16), plus fine-tuning"


def _is_measured(machine: Machine) -> bool:
    return machine.gpu is None and machine.bf16 and machine.cores >= 2


def _rounded(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600)):
        if seconds >= 1.5 * length:
            return f"about {seconds / length:.0f} {unit}"
    return f"about {10 * round(seconds / 600)} minutes" if seconds >= 600 else "some minutes"
