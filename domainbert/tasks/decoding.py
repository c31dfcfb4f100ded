"""From logits to predictions: what validation and inference share.

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
    """Logits (windows, labels) averaged over the windows of each text: (E, labels) in fp32."""
    return output_logits(logits, batch["example"], len(batch["items"]))


def output_logits(logits: Tensor, index: Tensor, num_outputs: int) -> Tensor:
    """Logits (N, C) at positions as those of outputs (words, or texts), the mean where several windows decide one.

    `index` (N,) is an `output_index`, and `num_outputs` counts those of all examples.
    """
    place = index.where(index >= 0, num_outputs)  # a place behind the last output: a GPU need not be waited for
    summed = torch.zeros(num_outputs + 1, logits.shape[-1], dtype=torch.float32, device=logits.device)
    counts = torch.zeros_like(summed[:, :1]).index_add(0, place, torch.ones_like(logits[:, :1], dtype=torch.float32))
    return (summed.index_add(0, place, logits.float()) / counts.clamp(min=1))[:num_outputs]


def valid_field(labels: Sequence[str]) -> Crf:
    """A CRF that scores all sequences alike that the tag scheme of `labels` allows, to decode a linear head with."""
    field = Crf(len(labels)).requires_grad_(False)
    field.constrain(labels)
    return field


def decode_labels(
    logits: Tensor, batch: Mapping[str, Any], crf: Crf | None = None, valid: Crf | None = None
) -> list[Ints]:
    """The best label ids of every word: (words,) for each example; the arguments are those of `decode_words`."""
    best = _best_labels(logits, batch, crf, valid)
    (ids,) = _by_example(batch, best)
    return ids


@torch.no_grad()
def decode_words(
    logits: Tensor, batch: Mapping[str, Any], crf: Crf | None = None, valid: Crf | None = None
) -> list[tuple[Ints, NDArray[np.float32]]]:
    """The best label of every word: for each example its label ids and their probabilities, both (words,).

    Args:
        logits: (N, labels) at the batch's `positions`.
        batch: with `items`, `example` and `outputs`.
        crf: of a CRF head: the words of a sentence are decoded together, and probabilities are its marginals.
        valid: from `valid_field`, for a linear head: a sentence whose best labels, word by word, are not valid gets the
            valid labels with the highest product of probabilities. None leaves the best labels as they are.
    """
    best = _best_labels(logits, batch, crf, valid)
    if crf is not None and bool((batch["outputs"] >= 0).any()):
        sentences = WordGrid(batch["example"], batch["outputs"])
        marginals = crf.log_marginals(sentences.fill(logits.float()), sentences.lengths).exp()
        probabilities = sentences.put_back(marginals, logits.float())
    else:
        probabilities = torch.softmax(logits.float(), dim=-1)
    scores = probabilities.gather(1, best.unsqueeze(1)).squeeze(1)
    return list(zip(*_by_example(batch, best, scores), strict=True))


def _by_example(batch: Mapping[str, Any], *values: Tensor) -> list[list[Any]]:
    """Values (N,) of the positions that decide words: of each a list with an array (words,) for every example."""
    outputs, owners = batch["outputs"].cpu().numpy(), batch["example"].cpu().numpy()
    decides = outputs >= 0
    order = np.lexsort((outputs[decides], owners[decides]))
    ends = np.cumsum(np.bincount(owners[decides], minlength=len(batch["items"])))
    return [np.split(one.cpu().numpy()[decides][order], ends[:-1]) for one in values]


def _best_labels(logits: Tensor, batch: Mapping[str, Any], crf: Crf | None, valid: Crf | None) -> Tensor:
    """The labels (N,) of positions, see `decode_words`."""
    best = logits.float().argmax(dim=-1)
    if not bool((batch["outputs"] >= 0).any()):
        return best
    sentences = WordGrid(batch["example"], batch["outputs"])
    if crf is not None:
        return sentences.put_back(crf.decode(sentences.fill(logits.float()), sentences.lengths), best)
    return best if valid is None else _decode_invalid(logits.float(), best, sentences, valid)


def _decode_invalid(logits: Tensor, best: Tensor, sentences: WordGrid, valid: Crf) -> Tensor:
    """The best labels (N,), with those of each sentence that are not valid decoded anew.

    Where the best labels are valid they are the best valid ones, so only the few other sentences need Viterbi.
    """
    labels = sentences.fill(best)  # (E, L)
    invalid = ~valid.allows(labels, sentences.lengths)
    if not bool(invalid.any()):
        return best
    labels[invalid] = valid.decode(sentences.fill(logits)[invalid], sentences.lengths[invalid])
    return sentences.put_back(labels, best)
