"""Attribution to words: integrated gradients (Sundararajan et al. 2017), from the text with pieces hidden."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from domainbert.base.errors import DomainbertError
from domainbert.data.examples import collate
from domainbert.encoders.packed import Packed
from domainbert.labelled.contents import UnreadableContents
from domainbert.serving.predictor import load_predictor
from domainbert.tasks.claims import Claim
from domainbert.tasks.predictor import Predictor
from domainbert.tokenization.align import AlignedText
from domainbert.tokenization.splitting import align_raw

if TYPE_CHECKING:
    from captum.attr import IntegratedGradients

STEPS = (32, 64, 128, 256, 512)
"""Points of the path that gradients are taken at: as many as it takes for an error of 1 %, or the last."""

_ENOUGH = 0.01
_MAX_TOKENS = 4_096  # whose gradients are computed at once


@dataclass(frozen=True)
class WordAttribution:
    """A word of a text, characters `start` to `end` (exclusive), and what it gave to a prediction."""

    text: str
    start: int
    end: int
    value: float


@dataclass(frozen=True)
class Attribution:
    """Contribution of each word to one prediction: `value`s add up to `output - hidden`, but for the `error`."""

    label: str
    text: str
    """The text as it was read."""
    start: int | None
    """The characters that the label is said of, `end` exclusive; None where it is the whole text."""
    end: int | None
    words: tuple[WordAttribution, ...]
    output: float
    """Strength of the claim, in `unit`: the logarithm of the probability, or the number that it gives a text."""
    hidden: float
    """The same with [MASK] in place of every piece, special tokens apart."""
    unit: str
    steps: int

    @property
    def error(self) -> float:
        """The part that the values lack to add up to `output - hidden`, as a share of that: completeness has 0."""
        whole = self.output - self.hidden
        missed = abs(sum(word.value for word in self.words) - whole)
        return missed / abs(whole) if whole else float("inf") if missed else 0.0


def attributions(model: Predictor[Any] | Path | str, text: str) -> list[Attribution]:
    """Find the words that made each entity, label or class that a model predicts for a text; in full precision.

    Needs `pip install 'domainbert[attribution]'`.

    >>> from domainbert import attributions
    >>> [(found.label in ("civil", "criminal"), len(found.words)) for found in attributions("classifier", "The court.")]
    [(True, 3)]

    Args:
        model: a folder, as `load_predictor` takes it, or a predictor.
        text: fits into one window.

    Raises:
        DomainbertError: captum is not installed; a model of another kind than a tagger or a classifier of one text, in
            16 bits or exported; a text that is longer than a window, or has no words.
    """
    integrated_gradients = _captum()
    predictor = model if isinstance(model, Predictor) else load_predictor(model, "32-true")
    reading = _Reading(predictor, text)
    return [reading.attribute(claim, integrated_gradients) for claim in reading.claims()]


def _captum() -> type[IntegratedGradients]:
    try:
        from captum.attr import IntegratedGradients
    except ImportError as error:
        raise DomainbertError("attributions need captum; pip install 'domainbert[attribution]'") from error
    return IntegratedGradients


class _Reading:
    """A text as a model reads it: one packed row, and its embeddings with the pieces and without."""

    def __init__(self, predictor: Predictor[Any], text: str) -> None:
        predictor.runtime.need_gradients()
        self.task, self.model = predictor.task, predictor.model
        if self.task.explaining is None:
            raise DomainbertError(
                f"attributions: the model is for {self.task.name}; expected a model that tags words or labels a text"
            )
        self.explaining = self.task.explaining
        try:
            (example,) = self.task.encode_contents([text], predictor.tokenizer, predictor.max_length)
        except UnreadableContents as error:
            raise DomainbertError(f"attributions: {error.found[0]}") from error
        self.text = self.explaining.text_read(self.task, text)
        (self.words,) = align_raw(predictor.tokenizer, [self.text], self.task.word_splitting)
        _check(self.words, [window.input_ids for window in example.windows], predictor.max_length)
        batch = collate([example], [0], predictor.tokenizer)
        self.batch = {name: torch.from_numpy(values).to(predictor.runtime.device) for name, values in batch.items()}
        self.tokens = Packed.of(self.batch)
        hidden = self.tokens.input_ids.clone()
        hidden[0, 1 : 1 + len(self.words.input_ids)] = predictor.tokenizer.mask_id
        with torch.no_grad():
            self.embedded = self.model.encoder.embed(self.tokens)  # (1, S, H)
            self.baseline = self.model.encoder.embed(self.tokens._replace(input_ids=hidden))

    def logits(self, embedded: Tensor) -> Tensor:
        """Logits (K, N, C) at the N positions that the head reads, of embeddings (K, S, H)."""
        count, length = embedded.shape[:2]
        ids, places, segments = (part.expand(count, length) for part in self.tokens[:3])
        tokens, own = Packed(ids, places, segments), self.batch["positions"]
        positions = (own + length * torch.arange(count, device=own.device).unsqueeze(-1)).flatten()
        states = self.model.states(self.model.encoder.from_embedded(embedded, tokens), tokens, positions)
        return self.model.read(states).unflatten(0, (count, -1))

    def claims(self) -> list[Claim]:
        """The claims that the model makes."""
        with torch.no_grad():
            return self.explaining.explanations(self.task, self.logits(self.embedded)[0], self.batch)

    def attribute(self, claim: Claim, integrated_gradients: type[IntegratedGradients]) -> Attribution:
        """The values of all words, with as many steps as it takes."""

        def strength(embedded: Tensor) -> Tensor:
            return torch.stack([claim.strength(logits) for logits in self.logits(embedded)])

        with torch.no_grad():
            output, hidden = (float(strength(one)) for one in (self.embedded, self.baseline))
        explainer = integrated_gradients(strength)
        for steps in STEPS:
            values = self._integrated(explainer.attribute, steps)
            found = self._attribution(claim, values, (output, hidden), steps)
            if found.error <= _ENOUGH:
                break
        return found

    def _integrated(self, attribute: Callable[..., Tensor], steps: int) -> NDArray[np.float64]:
        """The value of each piece (n,): the sum over its embedding."""
        rows = max(_MAX_TOKENS // self.embedded.shape[1], 1)
        of_embedding = attribute(self.embedded, self.baseline, n_steps=steps, internal_batch_size=rows)
        pieces = of_embedding[0, 1 : 1 + len(self.words.input_ids)]
        found: NDArray[np.float64] = pieces.double().sum(dim=-1).detach().cpu().numpy()
        return found

    def _attribution(
        self, claim: Claim, values: NDArray[np.float64], outputs: tuple[float, float], steps: int
    ) -> Attribution:
        places = self.words.word_offsets
        of_word = np.bincount(self.words.word_index, values, minlength=len(places)).tolist()
        words = [WordAttribution(self.text[a:b], a, b, value) for (a, b), value in zip(places, of_word, strict=True)]
        start, end = (None, None)
        if claim.words is not None:
            first, behind = claim.words
            start, end = places[first][0], places[behind - 1][1]
        return Attribution(claim.label, self.text, start, end, tuple(words), *outputs, claim.unit, steps)


def _check(words: AlignedText, windows: list[NDArray[np.int64]], max_length: int) -> None:
    """`DomainbertError` unless a model reads these words in one window."""
    if not words.input_ids:
        raise DomainbertError("attributions: the text has no words; expected some")
    if len(windows) != 1 or windows[0].tolist() != words.input_ids:
        found, room = len(words.input_ids), max_length - words.extra
        raise DomainbertError(f"attributions: the text has {found:,} pieces; expected at most {room:,}, one window")
