"""Additional losses: adversarial training and R-Drop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from domainbert.encoders.packed import text_ids
from domainbert.tasks.capabilities import OutputComparison

_SMALLEST = 1e-20  # avoids division by 0; the squares of smaller gradients are 0


@contextmanager
def perturbed_embeddings(embeddings: nn.Embedding, perturbation: Tensor) -> Iterator[None]:
    """Return a context manager that adds `perturbation` (B, S, E) to the word embeddings of a model."""
    handle = embeddings.register_forward_hook(lambda _module, _inputs, output: output + perturbation)
    try:
        yield
    finally:
        handle.remove()


def fgm_perturbation(gradient: Tensor, segment_ids: Tensor, epsilon: float) -> Tensor:
    """Return adversarial perturbations (B, S, E) of word embeddings: epsilon g / ||g||_2, with the norm over a text.

    Source: Miyato et al. 2017, arXiv:1605.07725, section 3; they normalise embeddings first, while BERT normalises them
    afterwards. Each window of a long text counts as a text. `segment_ids` (B, S): see `Packed`.
    """
    texts = text_ids(segment_ids).flatten()
    squares = gradient.square().sum(dim=-1).flatten()
    norms = squares.new_zeros(int(segment_ids.numel() + segment_ids.shape[0])).index_add(0, texts, squares).sqrt()
    return epsilon * gradient / norms.clamp(min=_SMALLEST)[texts].view(*segment_ids.shape, 1)


def symmetric_divergence(output_comparison: OutputComparison, first: Tensor, second: Tensor) -> Tensor:
    """Return (KL(p || q) + KL(q || p)) / 2 of two predictions with logits (N, C), summed over N.

    Source: Wu et al. 2021, arXiv:2106.14448, equation 2.
    """
    if output_comparison.divergence is not None:
        return (output_comparison.divergence(first, second) + output_comparison.divergence(second, first)).sum() / 2
    log_p, log_q = (logits.float().log_softmax(dim=-1) for logits in (first, second))
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum() / 2
