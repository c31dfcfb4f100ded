"""The numbers of a first recipe, each with the reason for it in a few words.

Where docs/results.md, docs/speed.md or a recipe in configs/ has measured a number, the reason says so.
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
"""Tokens a second of pretraining on two cores with fast bf16, by encoder and row length: docs/speed.md."""

FINE_TUNING_RATE = 5_352
"""Tokens a second of fine-tuning 6 x 384 on such a machine: 160 sentences a second of ECON-IE in docs/speed.md."""

_LEAST_STEPS = 600  # a large model at a low rate has hardly begun to learn after 80
_TOKENS_PER_WORD = 1.3  # punctuation among them: 1.154 without it, on docs/results.md
_WINDOWS = (128, 256, 512)


class Chosen(NamedTuple):
    """A value of the recipe, and the reason for it."""

    value: Any
    reason: str


class Size(NamedTuple):
    """An encoder by its name, and its hidden size."""

    name: str
    hidden: int


_ENCODERS = ((1e6, Size("tiny", 128)), (30e6, Size("modernbert-small", 256)), (300e6, Size("medium", 384)))
_FEW = ((5e3, 512), (20e3, 1024), (100e3, 2048))  # English of 2,685 words has 819 pieces, of 33,718 words 2,934
_BASE = Size("base", 768)


def vocab_size(words: int, size: str) -> Chosen:
    """Entries of a vocabulary, by the words of its corpus."""
    few = next((entries for most, entries in _FEW if words < most), None)
    if few is not None:
        return Chosen(few, f"{size}: {few:,} entries; so little text has not many more pieces that occur twice")
    if words < 1e6:
        return Chosen(4096, f"{size}: 4,096 entries, as the demo has for 0.5 M")
    if words < 3e6:
        return Chosen(8192, f"{size}: between the demo's 4,096 and the 16,384 for 4.7 M words in docs/results.md")
    if words < 50e6:
        return Chosen(16384, f"{size}: 16,384 entries, as for 4.7 M in docs/results.md")
    return Chosen(32768, f"{size}: about as many entries as BERT and SciBERT have, which saw billions")


def encoder(words: int, size: str, machine: Machine) -> tuple[Size, Chosen]:
    """The encoder that a corpus fills and a machine can train."""
    found = next((one for most, one in _ENCODERS if words < most), _BASE)
    if found == _BASE and machine.gpu is None:
        found = _ENCODERS[-1][1]
        return found, Chosen(found.name, f"{size} would fill base, which takes a GPU: 1,577 tokens/s on two cores")
    why = {
        "tiny": "2 x 128; little text does not fill more",
        "modernbert-small": "6 x 256 (7.6 M parameters), as for 4.7 M words in docs/results.md",
        "medium": "6 x 384; enough text for more than small",
        "base": "12 x 768, for a GPU",
    }
    return found, Chosen(found.name, f"{size}: {why[found.name]}")


def pretraining_rate(hidden: int) -> Chosen:
    """Optimiser of pretraining an encoder from random weights, with its learning rate."""
    if hidden < 256:
        return Chosen({"name": "muon", "lr": 2e-3}, "as the demo has for this encoder")
    if hidden < 384:
        return Chosen({"name": "muon", "lr": 4e-3}, "as in docs/results.md")
    return Chosen({"name": "muon", "lr": 2e-3}, "lower for a larger encoder; not measured")


def passes(words: int) -> Chosen:
    """Passes of pretraining over the corpus."""
    if words < 3e6:
        return Chosen(10, "passes; little text is read more often, validation shows whether it still helps")
    if words < 50e6:
        return Chosen(5, "passes; docs/results.md has two, for want of time")
    return Chosen(2 if words < 500e6 else 1, "passes: there is text enough, so time decides")


def rows(words: int) -> Chosen:
    """Rows of an optimiser step of pretraining."""
    if words < 1e6:
        return Chosen(16, "rows a step: little text, so that there are some thousand steps")
    return Chosen(32, "rows a step, as in docs/results.md") if words < 30e6 else Chosen(64, "rows a step")


def window(lengths: Sequence[int], measured: bool, longest: int, whole: bool = False) -> Chosen:
    """Tokens of a window: the shortest usual one that takes 99 of 100 texts, or all where a task refuses longer ones,
    of those that the encoder has."""
    share = 1 if whole else 0.99
    length = sorted(lengths)[int(share * (len(lengths) - 1))]
    found = next((one for one in _WINDOWS if one >= length), _WINDOWS[-1])
    what = f"{100 * share:.0f} % of the texts have at most {'' if measured else 'about '}{length:,} tokens"
    if longest < found:
        return Chosen(longest, f"{what}; the encoder has positions for {longest:,}, longer texts are read in windows")
    return Chosen(found, what + ("" if length <= found else "; longer texts are read in windows"))


def epochs(items: int) -> Chosen:
    """Passes of fine-tuning over the training set; the best on validation is kept."""
    return _epochs(items, 8)


def teacher_epochs(items: int) -> Chosen:
    """Passes of fine-tuning a large model: as many steps as for a small model, but fewer passes of a large set."""
    return _epochs(items, 5)


def _epochs(items: int, least: int) -> Chosen:
    if items >= 20_000:
        return Chosen(
            4 if items < 200_000 else 2, f"{items:,} items: few passes are many steps; the best epoch is kept"
        )
    steps = -(-items // batch(items).value)
    passes = max(least, -(-_LEAST_STEPS // steps))
    return Chosen(
        passes, f"{items:,} items: {passes * steps:,} steps (docs/results.md, training length); the best epoch is kept"
    )


def batch(items: int) -> Chosen:
    """Texts of an optimiser step of fine-tuning."""
    if items < 4000:
        return Chosen(16, f"{items:,} items: more steps than with 32, the default (docs/results.md, training length)")
    return Chosen(32, "the default")


def rate(hidden: int, many_targets: bool) -> Chosen:
    """Learning rate of fine-tuning an encoder."""
    if hidden < 256:
        return Chosen(5e-4, "as the demo has for this encoder")
    if hidden >= 512:
        value = 5e-5 if many_targets else 2e-5
        return Chosen(value, "usual for encoders of this size (Devlin et al. 2019); not measured here")
    if hidden < 384:
        return Chosen(1e-3 if many_targets else 5e-4, "as from scratch in docs/results.md; twice that where pretrained")
    if many_targets:
        return Chosen(3e-4, "as for entities with 6 x 384 in docs/results.md")
    return Chosen(1e-4, "as for texts with 6 x 384 in docs/results.md; at two or three times as much seeds failed")


def seeds(items: int) -> Chosen:
    """Seeds of fine-tuning."""
    if items < 50_000:
        return Chosen([1, 2, 3], "the spread between trainings is part of the intervals")
    return Chosen([1], f"{items:,} items: seeds differ little, and a training is long; [1, 2, 3] for intervals")


def estimated_tokens(words: int) -> int:
    """Tokens of a text that no vocabulary has been made for yet, about."""
    return round(_TOKENS_PER_WORD * words)


def fine_tuning_duration(tokens: float, layers: int, hidden: int, machine: Machine) -> str:
    """Estimate the time of fine-tuning on `tokens`, as a sentence, or give the reason why there is no estimate.

    The rate of 6 x 384 is divided by the parameters of the layers, which grow with `layers * hidden**2`.
    """
    if not _is_measured(machine):
        return "no estimate of the time: docs/speed.md has no rate of fine-tuning on such a machine"
    rate = FINE_TUNING_RATE * 6 * 384**2 / (layers * hidden**2)
    return f"fine-tuning: {_about(tokens / rate)} at {rate:,.0f} tokens/s (docs/speed.md: two cores, fast bf16)"


def duration(tokens: int, times: float, name: str, length: int, machine: Machine) -> str:
    """About how long a pretraining takes, in a sentence with the rate it is computed with; or why that is not told."""
    rate = RATES.get((name, 128 if length == 128 else 512))
    if rate is None or not _is_measured(machine):
        return "no estimate of the time: docs/speed.md has no rate for this encoder on such a machine"
    about = _about(tokens * times / rate)
    return f"pretraining: {about} at the {rate:,} tokens/s of docs/speed.md (two cores, fast bf16); fine-tuning besides"


def _is_measured(machine: Machine) -> bool:
    return machine.gpu is None and machine.bf16 and machine.cores >= 2


def _about(seconds: float) -> str:
    """The order of a duration."""
    for unit, length in (("days", 86400), ("hours", 3600)):
        if seconds >= 1.5 * length:
            return f"about {seconds / length:.0f} {unit}"
    return f"about {10 * round(seconds / 600)} minutes" if seconds >= 600 else "some minutes"
