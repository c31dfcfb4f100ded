"""Windows of contexts: token ids, output positions and targets of questions, and the best answer spans."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from tokenizers import Encoding
from torch import Tensor

from domainbert.base.errors import DomainbertError
from domainbert.data.examples import window_bounds
from domainbert.data.packing import IGNORE_INDEX, Example, Window
from domainbert.labelled.char_spans import Stretch, strip_span
from domainbert.labelled.contents import TextPair
from domainbert.metrics.counts import FloatArray
from domainbert.tokenization.load import DomainTokenizer

Ints = NDArray[np.int64]

CLS = 0
"""Index of the output at [CLS], which is the first of each window."""

STARTS, ENDS, FIRST_CHAR, CHAR_END = range(4)
"""Columns of `Window.targets`: whether the answer starts or ends at the position (0, 1 or `IGNORE_INDEX`), and the
first character and the end (exclusive) of the piece in the context."""


@dataclass(frozen=True)
class Pieces:
    """The pieces (subword tokens) of a context."""

    ids: Ints  # (pieces,)
    word_starts: list[int]  # (words,) first piece of each word
    characters: NDArray[np.int32]  # (pieces, 2) character range without surrounding white space, end exclusive
    visible: Ints  # (visible,) indices of pieces with visible characters, at which an answer may start or end


def context_pieces(tokenizer: DomainTokenizer, contexts: Sequence[str]) -> list[Pieces]:
    """Return the pieces of each context, with their character ranges."""
    encodings = tokenizer.encode_with_offsets(contexts)
    return [_build_pieces(context, encoding) for context, encoding in zip(contexts, encodings, strict=True)]


def _build_pieces(context: str, encoding: Encoding) -> Pieces:
    ranges = [_visible_range(context, *offsets) for offsets in encoding.offsets]
    characters = np.asarray(ranges, dtype=np.int32).reshape(-1, 2)
    words = np.asarray(encoding.word_ids, dtype=np.int64)
    word_starts = np.flatnonzero(np.diff(words, prepend=-1)).tolist()  # pieces with another word than the piece before
    visible = np.flatnonzero(characters[:, 0] < characters[:, 1])
    return Pieces(np.asarray(encoding.ids), word_starts, characters, visible)


def _visible_range(text: str, start: int, end: int) -> Stretch:
    """Return a character range without surrounding white space, extended by following non-spacing marks. The normalizer
    of an uncased vocabulary removes these marks and excludes them from its offsets."""
    start, end = strip_span(text, start, end)
    while start < end < len(text) and unicodedata.category(text[end]) == "Mn":
        end += 1
    return start, end


class PairEncoder:
    """Encoder of questions with their contexts, see `encode`.

    The constructor raises `DomainbertError` if windows have no room for a context after the longest question.
    """

    def __init__(self, tokenizer: DomainTokenizer, max_length: int, max_question_length: int) -> None:
        self.tokenizer, self.max_question_length = tokenizer, max_question_length
        self.num_special = tokenizer.template.num_special_tokens(pair=True)
        self.num_separators = len(tokenizer.template.separators)  # between question and context
        self.room = max_length - self.num_special
        if self.room <= max_question_length:
            raise DomainbertError(
                where="max_length",
                found=f"{max_length}, which leaves no room for the context after a question of "
                f"max_question_length {max_question_length} and {self.num_special} special tokens",
                expected=f"at least {max_question_length + self.num_special + 1}, or a smaller max_question_length",
            )

    def encode(self, pairs: Sequence[TextPair], answers: Sequence[Sequence[Stretch]] | None) -> list[Example]:
        """Return an example for each pair; each window has the question, and as many pieces of the context as fit.

        The outputs of an example are [CLS], with index 0, and the pieces of the context. A window starts half of its
        context pieces after the window before, so an answer of up to this number of pieces is complete in a window.
        `answers` has, for each pair, a list with the character range of one answer, or an empty list; None for
        prediction.
        """
        contexts = list(dict.fromkeys(pair.second for pair in pairs))
        pieces = dict(zip(contexts, context_pieces(self.tokenizer, contexts), strict=True))
        texts = list(dict.fromkeys(pair.first for pair in pairs))
        questions = {
            text: np.asarray(ids[: self.max_question_length], dtype=np.int64)
            for text, ids in zip(texts, self.tokenizer.encode(texts), strict=True)
        }
        spans = [None] * len(pairs) if answers is None else answers
        return [
            self._build_example(questions[pair.first], pieces[pair.second], span)
            for pair, span in zip(pairs, spans, strict=True)
        ]

    def truncated_questions(self, questions: Sequence[str]) -> dict[str, int]:
        """Return the number of pieces of each question that `encode` truncates, by question."""
        texts = list(dict.fromkeys(questions))
        lengths = zip(texts, map(len, self.tokenizer.encode(texts)), strict=True)
        return {text: length for text, length in lengths if length > self.max_question_length}

    def _build_example(self, question: Ints, context: Pieces, answers: Sequence[Stretch] | None) -> Example:
        span = answer_pieces(context, answers[0]) if answers else None
        labelled = answers is not None
        bounds = window_bounds(context.word_starts, len(context.ids), self.room - len(question))
        windows = [self._build_window(question, context, (start, stop), span, labelled) for start, stop, _, _ in bounds]
        return Example(tuple(windows), num_outputs=len(context.ids) + 1)  # the pieces and [CLS]

    def _build_window(
        self, question: Ints, context: Pieces, bounds: Stretch, span: Stretch | None, labelled: bool
    ) -> Window:
        """Return the window with the pieces `bounds` (end exclusive) of a context; its outputs are [CLS] and the
        visible pieces.

        `span` has the first and last piece of the answer; None if there is no answer. If not `labelled`, the answer is
        unknown, and the targets are `IGNORE_INDEX`.
        """
        start, stop = bounds
        first, end = np.searchsorted(context.visible, bounds)
        pieces = context.visible[first:end]  # indices in the context
        # in the window, counted from the token after [CLS], which is at -1
        positions = np.concatenate([[-1], pieces - start + len(question) + self.num_separators])
        targets = np.zeros((len(positions), 4), dtype=np.int32)
        targets[1:, [FIRST_CHAR, CHAR_END]] = context.characters[pieces]
        if not labelled:
            targets[:, [STARTS, ENDS]] = IGNORE_INDEX
        elif span is not None and start <= span[0] and span[1] < stop:
            targets[1:, STARTS] = pieces == span[0]
            targets[1:, ENDS] = pieces == span[1]
        else:  # no answer in this window: its start and end are [CLS]
            targets[0, [STARTS, ENDS]] = 1
        outputs = np.concatenate([[CLS], pieces + 1])  # indices in all outputs of the example, [CLS] first
        return Window(context.ids[start:stop], positions, outputs, targets, self.num_special, question)


def answer_pieces(context: Pieces, answer: Stretch) -> Stretch | None:
    """Return the first and last piece that overlap an answer; None if the tokenizer drops all its characters."""
    overlaps = (context.characters[:, 1] > answer[0]) & (context.characters[:, 0] < answer[1])
    pieces = context.visible[overlaps[context.visible]]
    return (int(pieces[0]), int(pieces[-1])) if len(pieces) else None


def has_answer_in_window(example: Example) -> bool:
    """Whether a window of the example contains the whole answer: then the target of a piece, not of [CLS], is 1."""
    return any(bool((window.targets[1:, STARTS] == 1).any()) for window in example.windows)


@dataclass(frozen=True)
class Spans:
    """The best answer spans of a context, with scores."""

    null_score: float
    """Score of no answer: start plus end at [CLS], the minimum over windows, as in the official script of BERT."""

    scores: FloatArray
    """(n,) start plus end logits, in descending order."""

    characters: NDArray[np.int64]
    """(n, 2) character ranges in the context, end exclusive."""

    @property
    def margin(self) -> float:
        """Return the score of no answer minus the best score; infinite without spans."""
        return self.null_score - float(self.scores[0]) if len(self.scores) else float("inf")


def window_indices(outputs: Tensor) -> Tensor:
    """Return the window index of each position (N,) of a batch; each window begins with [CLS]."""
    return (outputs == CLS).cumsum(0) - 1


def log_probabilities(logits: Tensor, window: Tensor) -> Tensor:
    """Return the log-softmax of logits (N, 2) over the positions of each window; `window` (N,) has the window of each
    position, ascending."""
    logits = logits.float()
    index = window.unsqueeze(1).expand_as(logits)
    largest = logits.new_full((int(window[-1]) + 1, 2), -torch.inf)  # of each window, for start and end
    largest = largest.scatter_reduce(0, index, logits.detach(), "amax")
    shifted = logits - largest[window]  # no overflow of the exponential
    summed = torch.zeros_like(largest).index_add(0, window, shifted.exp())
    return shifted - summed.log()[window]


def best_spans(logits: Tensor, batch: Mapping[str, Any], max_pieces: int, count: int) -> list[Spans]:
    """Return the `count` best spans of at most `max_pieces` pieces for each example of a batch, over all windows.

    A span in several windows is scored once, in the window with the most context around it, see `_best_in_context`.
    """
    values = logits.detach().double().cpu().numpy()
    outputs, examples, targets = (batch[name].cpu().numpy() for name in ("outputs", "example", "targets"))
    window_starts = np.flatnonzero(outputs == CLS)
    windows_by_example: list[list[Any]] = [[] for _ in range(len(batch["items"]))]
    for start, stop in pairwise([*window_starts.tolist(), len(outputs)]):
        window = values[start:stop], outputs[start:stop], targets[start:stop]
        windows_by_example[examples[start]].append(window)
    return [_best_in_context(windows, max_pieces, count) for windows in windows_by_example]


def _best_in_context(
    windows: list[tuple[FloatArray, NDArray[Any], NDArray[Any]]], max_pieces: int, count: int
) -> Spans:
    """Return the best spans of a context over its windows; a window of k positions has logits (k, 2), outputs (k,) and
    targets (k, 4), which have the characters of the pieces.

    Each window scores the spans whose middle is between two limits. The limit between two windows is halfway between
    the end of the first and the start of the second, where a span has as much context in one as in the other.
    """
    null_score = min(float(logits[0].sum()) for logits, *_ in windows)  # position 0 is [CLS]
    windows = [window for window in windows if len(window[1]) > 1]  # with pieces of the context after [CLS]
    windows.sort(key=lambda window: int(window[1][1]))  # by the first piece
    # limits are doubled, as doubled middles of spans (start + end) are integers
    inner_limits = [int(left[-1]) + int(right[1]) for (_, left, _), (_, right, _) in pairwise(windows)]
    limits = pairwise([0, *inner_limits, np.inf])  # of each window; one pair if there is no window
    scores = [np.empty(0)]  # so that arrays can be concatenated if there is no window
    characters = [np.empty((0, 2), dtype=np.int64)]
    for (logits, outputs, targets), (low, high) in zip(windows, limits, strict=False):
        window_scores, starts, ends = _best_in_window(logits[1:], outputs[1:], max_pieces, count, low, high)
        scores.append(window_scores)
        characters.append(np.stack([targets[1 + starts, FIRST_CHAR], targets[1 + ends, CHAR_END]], axis=1))
    all_scores = np.concatenate(scores)
    order = np.argsort(-all_scores, kind="stable")[:count]
    return Spans(null_score, all_scores[order], np.concatenate(characters)[order])


def _best_in_window(
    logits: FloatArray, outputs: NDArray[Any], max_pieces: int, count: int, low: float, high: float
) -> tuple[FloatArray, NDArray[np.int64], NDArray[np.int64]]:
    """Return the scores, starts and ends, each (n,), of the best spans of a window with low <= start + end < high.

    The limits compare the `outputs` of the first and last piece; the returned starts and ends are indices in `outputs`.
    All spans are compared, while published scripts combine the 20 best starts and ends.
    """
    size, width = len(logits), min(max_pieces, len(logits))
    # tables (size, width) of all spans: row s, column n is the span from s to s + n, perhaps beyond the window
    starts, ends = np.arange(size)[:, None], np.arange(size)[:, None] + np.arange(width)
    start_logits, end_logits = logits[:, :1], np.concatenate([logits[:, 1], np.full(width - 1, -np.inf)])
    scores = (start_logits + sliding_window_view(end_logits, width)).ravel()
    doubled_middles = outputs[starts] + outputs[np.minimum(ends, size - 1)]
    allowed = np.flatnonzero((ends < size) & (doubled_middles >= low) & (doubled_middles < high))
    best = allowed[np.argsort(-scores[allowed], kind="stable")[:count]]  # indices in the flattened tables
    return scores[best], best // width, ends.ravel()[best]
