"""Losses beside a task's own: adversarial training and R-Drop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from domainbert.encoders.packed import text_numbers
from domainbert.tasks.capabilities import Comparing

_SMALLEST = 1e-20  # a gradient of 0 moves nothing; the squares of smaller ones are 0


@contextmanager
def moved(embeddings: nn.Embedding, by: Tensor) -> Iterator[None]:
    """While this lasts, `by` (B, S, E) is added to the word embeddings that a model reads."""
    handle = embeddings.register_forward_hook(lambda _module, _inputs, output: output + by)
    try:
        yield
    finally:
        handle.remove()


def steepest_move(gradient: Tensor, segment_ids: Tensor, epsilon: float) -> Tensor:
    """Moves (B, S, E) of the word embeddings of texts, each of norm epsilon: epsilon g / ||g||_2 of its own gradient g,
    over all its tokens (Miyato et al. 2017, arXiv:1605.07725, section 3; they normalise the embeddings beforehand, as
    BERT and its like do behind them). A window of a long text is a text. `segment_ids` (B, S) are those of `Packed`."""
    texts = text_numbers(segment_ids).flatten()
    squares = gradient.square().sum(dim=-1).flatten()
    norms = squares.new_zeros(int(segment_ids.numel() + segment_ids.shape[0])).index_add(0, texts, squares).sqrt()
    return epsilon * gradient / norms.clamp(min=_SMALLEST)[texts].view(*segment_ids.shape, 1)


def symmetric_divergence(comparing: Comparing, one: Tensor, other: Tensor) -> Tensor:
    """Half of the divergences of two predictions (N, C) from each other, KL(p || q) + KL(q || p), summed over N (Wu et
    al. 2021, arXiv:2106.14448, equation 2)."""
    if comparing.divergence is not None:
        return (comparing.divergence(one, other) + comparing.divergence(other, one)).sum() / 2
    left, right = (logits.float().log_softmax(dim=-1) for logits in (one, other))
    return ((left.exp() - right.exp()) * (left - right)).sum() / 2
