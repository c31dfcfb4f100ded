"""From logits to predictions: what validation and inference share.

Imports neither Lightning nor torchmetrics, which take seconds to load.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from domainbert.encoders.crf import Crf, Sentences


def mean_over_windows(logits: Tensor, batch: Mapping[str, Any]) -> Tensor:
    """Logits (windows, labels) averaged over the windows of each text: (E, labels) in fp32."""
    example, size = batch["example"], len(batch["items"])
    summed = torch.zeros(size, logits.shape[-1], dtype=torch.float32, device=logits.device)
    counts = torch.bincount(example, minlength=size).unsqueeze(-1)
    return summed.index_add(0, example, logits.float()) / counts


def decode_words(
    logits: Tensor, batch: Mapping[str, Any], crf: Crf | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The best label of every word: for each example its label ids and their probabilities, both (words,).

    Args:
        logits: (N, labels) at the batch's `positions`.
        batch: with `items`, `example` and `outputs`.
        crf: decides together about the words of a sentence; probabilities are then its marginals.
    """
    scores, best = torch.softmax(logits.float(), dim=-1).max(dim=-1)
    if crf is not None and bool((batch["outputs"] >= 0).any()):
        scores, best = _decode_together(logits.float(), batch, crf)
    outputs, owners = batch["outputs"].cpu().numpy(), batch["example"].cpu().numpy()
    decides = outputs >= 0
    ids, probabilities = best.cpu().numpy()[decides], scores.cpu().numpy()[decides]
    order = np.lexsort((outputs[decides], owners[decides]))
    ends = np.cumsum(np.bincount(owners[decides], minlength=len(batch["items"])))
    return list(zip(np.split(ids[order], ends[:-1]), np.split(probabilities[order], ends[:-1]), strict=True))


def _decode_together(logits: Tensor, batch: Mapping[str, Any], crf: Crf) -> tuple[Tensor, Tensor]:
    """Marginal probabilities and labels (N,) of the best tag sequence of each sentence."""
    sentences = Sentences(batch["example"], batch["outputs"])
    emissions = sentences.fill(logits)
    best = crf.decode(emissions, sentences.lengths)
    marginals = crf.log_marginals(emissions, sentences.lengths).exp().gather(2, best.unsqueeze(2)).squeeze(2)
    zeros = torch.zeros(len(logits), device=logits.device)
    return sentences.put_back(marginals, zeros), sentences.put_back(best, zeros.long())
