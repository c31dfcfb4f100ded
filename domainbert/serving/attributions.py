"""Attribute predictions to words with integrated gradients (Sundararajan et al. 2017); the baseline is all [MASK]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from domainbert.base.errors import DomainbertError, needs_package
from domainbert.data.packing import collate
from domainbert.encoders.packed import Packed
from domainbert.labelled.contents import UnreadableContents
from domainbert.serving.predictor import load_predictor
from domainbert.tasks.capabilities import AttributionTarget
from domainbert.tasks.predictor import Predictor
from domainbert.tokenization.align import AlignedText
from domainbert.tokenization.splitting import align_raw

if TYPE_CHECKING:
    from captum.attr import IntegratedGradients

STEPS = (32, 64, 128, 256, 512)
"""Numbers of integration steps, tried in order until the error is at most 1 %."""

_MAX_ERROR = 0.01
_MAX_TOKENS = 4_096  # tokens whose gradients are computed at a time


@dataclass(frozen=True)
class WordAttribution:
    """A word of a text, characters `start` to `end` (exclusive), with its contribution to a prediction."""

    text: str
    start: int
    end: int
    value: float
    """The contribution, in the `unit` of the `Attribution`."""


@dataclass(frozen=True)
class Attribution:
    """Contribution of each word to a prediction. All `value`s add up to `output - baseline_output`, with the relative
    difference `error`."""

    label: str
    text: str
    """The text after the task's preprocessing."""
    start: int | None
    """First character of the labelled span, and its `end` (exclusive); None if the label is for the whole text."""
    end: int | None
    words: tuple[WordAttribution, ...]
    output: float
    """Output of the model for the label, in `unit`: a log probability, or the predicted number."""
    baseline_output: float
    """The same output for the baseline: every piece replaced by [MASK], except special tokens."""
    unit: str
    steps: int
    """Number of integration steps."""

    @property
    def error(self) -> float:
        """Relative difference between the sum of all values and `output - baseline_output`; 0 if they are equal."""
        total = self.output - self.baseline_output
        difference = abs(sum(word.value for word in self.words) - total)
        if not difference:
            return 0.0
        return difference / abs(total) if total else float("inf")


def attributions(model: Predictor[Any] | Path | str, text: str) -> list[Attribution]:
    """Return an `Attribution` for each predicted entity, label or class, computed in full precision; [] without any.

    Needs `pip install 'domainbert[attribution]'`.

    >>> from domainbert import attributions
    >>> [(found.label in ("civil", "criminal"), len(found.words)) for found in attributions("classifier", "The court.")]
    [(True, 3)]

    Args:
        model: a model folder, as for `load_predictor`, or a predictor.
        text: a text that fits into one window.

    Raises:
        DomainbertError: captum is not installed; the model is not a tagger or a classifier of single texts, uses 16
            bits or is exported; the text is longer than a window or has no words.
    """
    integrated_gradients = _import_captum()
    predictor = model if isinstance(model, Predictor) else load_predictor(model, "32-true")
    encoded = _EncodedText(predictor, text)
    return [encoded.attribute(target, integrated_gradients) for target in encoded.targets()]


def _import_captum() -> type[IntegratedGradients]:
    try:
        from captum.attr import IntegratedGradients
    except ImportError as error:
        raise DomainbertError(f"attributions: {needs_package('captum', 'attribution')}") from error
    return IntegratedGradients


class _EncodedText:
    """A text and its model: one packed row of tokens, its embeddings, and the embeddings of the baseline."""

    def __init__(self, predictor: Predictor[Any], text: str) -> None:
        """Tokenize the text, and embed it and its baseline, in which all pieces are [MASK]."""
        predictor.runtime.need_gradients()
        self.task, self.model = predictor.task, predictor.model
        if self.task.explainer is None:
            raise DomainbertError(
                f"attributions: the model is for {self.task.name}; expected a model that tags words or labels a text"
            )
        self.explainer = self.task.explainer
        try:
            (example,) = self.task.encode_contents([text], predictor.tokenizer, predictor.max_length)
        except UnreadableContents as error:
            raise DomainbertError(f"attributions: {error.problem_by_index[0]}") from error
        self.text = self.explainer.text_to_tokenize(self.task, text)
        # the same pieces as in `example`, with their words
        (self.words,) = align_raw(predictor.tokenizer, [self.text], self.task.word_splitting)
        _check_one_window(self.words, [window.input_ids for window in example.windows], predictor.max_length)
        batch = collate([example], [0], predictor.tokenizer)
        self.batch = {name: torch.from_numpy(values).to(predictor.runtime.device) for name, values in batch.items()}
        self.tokens = Packed.of(self.batch)
        masked_ids = self.tokens.input_ids.clone()
        masked_ids[0, 1 : 1 + len(self.words.input_ids)] = predictor.tokenizer.mask_id  # position 0 is [CLS]
        with torch.no_grad():
            self.embedded = self.model.encoder.embed(self.tokens)  # (1, S, H)
            self.baseline = self.model.encoder.embed(self.tokens._replace(input_ids=masked_ids))

    def logits(self, embedded: Tensor) -> Tensor:
        """Compute the logits (K, N, C) of C labels at the N output positions of the text, for each of K variants of its
        embeddings, (K, S, H)."""
        count, length = embedded.shape[:2]
        # input ids, positions and segments, without token types, which are part of the embeddings
        tokens = Packed(*(values.expand(count, length) for values in self.tokens[:3]))
        first_row = self.batch["positions"]  # output positions in the first variant
        positions = (first_row + length * torch.arange(count, device=first_row.device).unsqueeze(-1)).flatten()
        states = self.model.head_states(self.model.encoder.from_embedded(embedded, tokens), tokens, positions)
        return self.model.logits(states).unflatten(0, (count, -1))

    def targets(self) -> list[AttributionTarget]:
        """Return the predictions to explain: entities, labels or a class."""
        with torch.no_grad():
            (logits,) = self.logits(self.embedded)  # of the only variant
            return self.explainer.explanations(self.task, logits, self.batch)

    def attribute(self, target: AttributionTarget, integrated_gradients: type[IntegratedGradients]) -> Attribution:
        """Return the attribution of one prediction, with the first number of `STEPS` that is accurate enough, or with
        the last if none is."""

        def target_outputs(embedded: Tensor) -> Tensor:
            """Return the output of the model for the target (K,), for K variants (K, S, H) of the embeddings."""
            return torch.stack([target.score(logits) for logits in self.logits(embedded)])

        with torch.no_grad():
            output, baseline_output = float(target_outputs(self.embedded)), float(target_outputs(self.baseline))
        attribute = integrated_gradients(target_outputs).attribute
        for steps in STEPS:
            values = self._integrated_gradients(attribute, steps)
            attribution = self._attribution(target, values, (output, baseline_output), steps)
            if attribution.error <= _MAX_ERROR:
                break
        return attribution

    def _integrated_gradients(self, attribute: Callable[..., Tensor], steps: int) -> NDArray[np.float64]:
        """Return the contribution of each piece of the text (n,): its integrated gradients, summed over the embedding
        dimensions. `attribute` is the method of captum."""
        batch_size = max(_MAX_TOKENS // self.embedded.shape[1], 1)
        gradients = attribute(self.embedded, self.baseline, n_steps=steps, internal_batch_size=batch_size)
        piece_gradients = gradients[0, 1 : 1 + len(self.words.input_ids)]  # without special tokens
        values: NDArray[np.float64] = piece_gradients.double().sum(dim=-1).detach().cpu().numpy()
        return values

    def _attribution(
        self, target: AttributionTarget, values: NDArray[np.float64], outputs: tuple[float, float], steps: int
    ) -> Attribution:
        """Return the attribution of a prediction; `values` (n,) are the contributions of the pieces, and `outputs` the
        output of the model and its output for the baseline."""
        offsets = self.words.word_offsets  # (first character, end) of each word
        sums = np.bincount(self.words.word_index, weights=values, minlength=len(offsets)).tolist()
        words = [
            WordAttribution(self.text[start:end], start, end, value)
            for (start, end), value in zip(offsets, sums, strict=True)
        ]
        span_start, span_end = None, None
        if target.words is not None:
            first_word, end_word = target.words
            span_start, _ = offsets[first_word]
            _, span_end = offsets[end_word - 1]
        return Attribution(target.label, self.text, span_start, span_end, tuple(words), *outputs, target.unit, steps)


def _check_one_window(words: AlignedText, windows: list[NDArray[np.int64]], max_length: int) -> None:
    """Raise `DomainbertError` if there are no words, or if they do not fit into one window.

    `windows` are the token ids of the windows into which the task has divided the text.
    """
    if not words.input_ids:
        raise DomainbertError("attributions: the text has no words; expected at least one word")
    if len(windows) != 1 or windows[0].tolist() != words.input_ids:
        count, limit = len(words.input_ids), max_length - words.extra
        raise DomainbertError(f"attributions: the text has {count:,} pieces; expected at most {limit:,} (one window)")
