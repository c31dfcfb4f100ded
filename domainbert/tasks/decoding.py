"""From logits to predictions: what validation and inference share.

Imports neither Lightning nor torchmetrics, which take seconds to load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from domainbert.encoders.crf import Crf, WordGrid


def mean_over_windows(logits: Tensor, batch: Mapping[str, Any]) -> Tensor:
    """Logits (windows, labels) averaged over the windows of each text: (E, labels) in fp32."""
    example, size = batch["example"], len(batch["items"])
    summed = torch.zeros(size, logits.shape[-1], dtype=torch.float32, device=logits.device)
    counts = torch.bincount(example, minlength=size).unsqueeze(-1)
    return summed.index_add(0, example, logits.float()) / counts


def iob2_field(labels: Sequence[str]) -> Crf:
    """A CRF that scores all valid IOB2 sequences of `labels` alike, with which a linear head is decoded."""
    field = Crf(len(labels)).requires_grad_(False)
    field.constrain(labels)
    return field


def decode_words(
    logits: Tensor, batch: Mapping[str, Any], crf: Crf | None = None, valid: Crf | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The best label of every word: for each example its label ids and their probabilities, both (words,).

    Args:
        logits: (N, labels) at the batch's `positions`.
        batch: with `items`, `example` and `outputs`.
        crf: of a CRF head: the words of a sentence are decoded together, and probabilities are its marginals.
        valid: from `iob2_field`, for a linear head: a sentence whose best labels, word by word, are not valid IOB2 gets
            the valid labels with the highest product of probabilities. None leaves the best labels as they are.
    """
    probabilities = torch.softmax(logits.float(), dim=-1)
    scores, best = probabilities.max(dim=-1)
    if bool((batch["outputs"] >= 0).any()):
        if crf is not None:
            scores, best = _decode_together(logits.float(), batch, crf)
        elif valid is not None:
            best = _decode_invalid(logits.float(), best, batch, valid)
            scores = probabilities.gather(1, best.unsqueeze(1)).squeeze(1)
    outputs, owners = batch["outputs"].cpu().numpy(), batch["example"].cpu().numpy()
    decides = outputs >= 0
    ids, probabilities = best.cpu().numpy()[decides], scores.cpu().numpy()[decides]
    order = np.lexsort((outputs[decides], owners[decides]))
    ends = np.cumsum(np.bincount(owners[decides], minlength=len(batch["items"])))
    return list(zip(np.split(ids[order], ends[:-1]), np.split(probabilities[order], ends[:-1]), strict=True))


def _decode_together(logits: Tensor, batch: Mapping[str, Any], crf: Crf) -> tuple[Tensor, Tensor]:
    """Marginal probabilities and labels (N,) of the best tag sequence of each sentence."""
    sentences = WordGrid(batch["example"], batch["outputs"])
    emissions = sentences.fill(logits)
    best = crf.decode(emissions, sentences.lengths)
    marginals = crf.log_marginals(emissions, sentences.lengths).exp().gather(2, best.unsqueeze(2)).squeeze(2)
    zeros = torch.zeros(len(logits), device=logits.device)
    return sentences.put_back(marginals, zeros), sentences.put_back(best, zeros.long())


def _decode_invalid(logits: Tensor, best: Tensor, batch: Mapping[str, Any], valid: Crf) -> Tensor:
    """The best labels (N,), with those of each sentence that are not valid decoded anew.

    Where the best labels are valid they are the best valid ones, so only the few other sentences need Viterbi.
    """
    sentences = WordGrid(batch["example"], batch["outputs"])
    labels = sentences.fill(best)  # (E, L)
    invalid = ~valid.allows(labels, sentences.lengths)
    if not bool(invalid.any()):
        return best
    labels[invalid] = valid.decode(sentences.fill(logits)[invalid], sentences.lengths[invalid])
    return sentences.put_back(labels, best)
