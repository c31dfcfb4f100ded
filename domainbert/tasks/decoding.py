"""Decoding of logits to predictions, shared by validation and inference.

Imports neither Lightning nor torchmetrics, which take seconds to load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from domainbert.encoders.crf import Crf, WordGrid

Ints = NDArray[np.int64]


def mean_over_windows(logits: Tensor, batch: Mapping[str, Any]) -> Tensor:
    """Return logits (windows, labels) averaged over the windows of each text: (texts, labels) in fp32."""
    return output_logits(logits, batch["example"], len(batch["items"]))


def output_logits(logits: Tensor, index: Tensor, num_outputs: int) -> Tensor:
    """Return logits (N, C) at positions averaged over the windows that decide an output, a word or a text: (M, C).

    `index` (N,) is the index of each position among the outputs of all examples, -1 for a position without output;
    `num_outputs` is M, the number of outputs of all examples.
    """
    row = index.where(index >= 0, num_outputs)  # an extra row collects the rest: a mask would synchronise the GPU
    zeros = torch.zeros(num_outputs + 1, logits.shape[-1], dtype=torch.float32, device=logits.device)
    sums = zeros.index_add(0, row, logits.float())
    ones = torch.ones_like(logits[:, :1], dtype=torch.float32)
    num_windows = torch.zeros_like(zeros[:, :1]).index_add(0, row, ones)  # of each output
    return (sums / num_windows.clamp(min=1))[:num_outputs]


def uniform_crf(labels: Sequence[str]) -> Crf:
    """Return a CRF that gives all valid tag sequences the same score, for decoding a linear head."""
    crf = Crf(len(labels)).requires_grad_(False)
    crf.constrain(labels)
    return crf


def decode_labels(
    logits: Tensor, batch: Mapping[str, Any], crf: Crf | None = None, valid: Crf | None = None
) -> list[Ints]:
    """Return the best label ids (words,) of each example.

    Args:
        logits: (N, labels) at the batch's `positions`.
        batch: with `items`, `example` and `outputs`.
        crf: CRF of the head; the words of a sentence are decoded jointly.
        valid: `uniform_crf(labels)`, for a linear head; an invalid sequence of best labels is replaced by the valid
            sequence with the highest product of probabilities. None does not check the sequence.
    """
    best = _best_labels(logits, batch, crf, valid)
    (ids,) = _split_by_example(batch, best)
    return ids


@torch.no_grad()
def decode_words(
    logits: Tensor, batch: Mapping[str, Any], crf: Crf | None = None
) -> list[tuple[Ints, NDArray[np.float32]]]:
    """Return the best label ids of the words of each example and their probabilities, both (words,).

    `logits` (N, labels) are at the positions of the batch. With the CRF of a head, probabilities are its marginals,
    otherwise a softmax of the logits.
    """
    best = _best_labels(logits, batch, crf)
    has_words = bool((batch["outputs"] >= 0).any())
    if crf is not None and has_words:
        sentences = WordGrid(batch["example"], batch["outputs"])
        marginals = crf.log_marginals(sentences.fill(logits.float()), sentences.lengths).exp()
        probabilities = sentences.scatter(marginals, logits.float())
    else:
        probabilities = torch.softmax(logits.float(), dim=-1)
    scores = probabilities.gather(1, best.unsqueeze(1)).squeeze(1)
    return list(zip(*_split_by_example(batch, best, scores), strict=True))


def _split_by_example(batch: Mapping[str, Any], *values: Tensor) -> list[list[Any]]:
    """Return, for each tensor of values (N,) at the positions, its values by example: arrays (words,) in word order."""
    outputs = batch["outputs"].cpu().numpy()  # index of the word of each position, or -1
    examples = batch["example"].cpu().numpy()
    has_output = outputs >= 0
    order = np.lexsort((outputs[has_output], examples[has_output]))  # by example, then by word
    ends = np.cumsum(np.bincount(examples[has_output], minlength=len(batch["items"])))
    return [np.split(tensor.cpu().numpy()[has_output][order], ends[:-1]) for tensor in values]


def _best_labels(logits: Tensor, batch: Mapping[str, Any], crf: Crf | None, valid: Crf | None = None) -> Tensor:
    """Return the best label ids (N,) at the positions of a batch, from logits (N, labels).

    With `crf`, the CRF of the head, the words of a sentence get its best label sequence. With `valid`, a CRF that
    gives all valid sequences the same score, an invalid sequence is replaced by the best valid one.
    """
    best = logits.float().argmax(dim=-1)
    if not bool((batch["outputs"] >= 0).any()):  # no words
        return best
    sentences = WordGrid(batch["example"], batch["outputs"])
    if crf is not None:
        return sentences.scatter(crf.decode(sentences.fill(logits.float()), sentences.lengths), best)
    if valid is not None:
        return _decode_invalid(logits.float(), best, sentences, valid)
    return best


def _decode_invalid(logits: Tensor, best: Tensor, sentences: WordGrid, valid: Crf) -> Tensor:
    """Return the labels `best` (N,), with each invalid sequence replaced by the sentence's best valid sequence. Best
    labels that form a valid sequence are the best valid sequence, so only few sentences need Viterbi."""
    labels = sentences.fill(best)  # (E, L)
    invalid = ~valid.allows(labels, sentences.lengths)
    if not bool(invalid.any()):
        return best
    labels[invalid] = valid.decode(sentences.fill(logits)[invalid], sentences.lengths[invalid])
    return sentences.scatter(labels, best)
