"""Encoding of questions with windows of their contexts: token ids, output positions and targets."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from domainbert.base.errors import DomainbertError
from domainbert.data.examples import window_bounds
from domainbert.data.packing import IGNORE_INDEX, Example, Window
from domainbert.labelled.char_spans import Stretch
from domainbert.labelled.contents import TextPair
from domainbert.tokenization.load import DomainTokenizer

Ints = NDArray[np.int64]

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
    visible = [_visible_range(context, *offsets) for offsets in encoding.offsets]
    characters = np.asarray(visible, dtype=np.int32).reshape(-1, 2)
    words = np.asarray(encoding.word_ids, dtype=np.int64)
    starts = np.flatnonzero(np.diff(words, prepend=-1)).tolist()
    return Pieces(np.asarray(encoding.ids), starts, characters, np.flatnonzero(characters[:, 0] < characters[:, 1]))


def _visible_range(text: str, start: int, end: int) -> Stretch:
    """Return a character range without surrounding white space, extended by following non-spacing marks, which the
    normalizer of an uncased vocabulary removes and excludes from its offsets."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
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
        self.num_separators = tokenizer.template.num_between  # between question and context
        self.room = max_length - self.num_special
        if self.room <= max_question_length:
            raise DomainbertError(
                f"max_length: found {max_length}, which leaves no room for the context after a question of "
                f"max_question_length {max_question_length} and {self.num_special} special tokens; expected a larger "
                "max_length, or a smaller max_question_length"
            )

    def encode(self, pairs: Sequence[TextPair], answers: Sequence[Sequence[Stretch]] | None) -> list[Example]:
        """Return an example for each pair; the question precedes each window of its context, which fills the rest.

        The outputs of an example are [CLS], with index 0, and the pieces of the context. Windows advance by half of the
        pieces that they hold, so an answer of up to this number of pieces is complete in one of them. `answers` has
        for each pair the character range of one answer or none, or is None for prediction.
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
        bounds = window_bounds(context.word_starts, len(context.ids), self.room - len(question))
        windows = [self._build_window(question, context, bound[:2], span, answers is not None) for bound in bounds]
        return Example(tuple(windows), len(context.ids) + 1)

    def _build_window(
        self, question: Ints, context: Pieces, bounds: Stretch, span: Stretch | None, labelled: bool
    ) -> Window:
        start, stop = bounds
        pieces = context.visible[slice(*np.searchsorted(context.visible, bounds))]
        # positions count from the token after [CLS], which is at -1
        positions = np.concatenate([[-1], pieces - start + len(question) + self.num_separators])
        targets = np.zeros((len(positions), 4), dtype=np.int32)
        targets[1:, FIRST_CHAR:] = context.characters[pieces]
        if not labelled:
            targets[:, [STARTS, ENDS]] = IGNORE_INDEX
        elif span is not None and start <= span[0] and span[1] < stop:
            targets[1:, STARTS], targets[1:, ENDS] = pieces == span[0], pieces == span[1]
        else:  # [CLS]: no answer in this window
            targets[0, [STARTS, ENDS]] = 1
        outputs = np.concatenate([[0], pieces + 1])
        return Window(context.ids[start:stop], positions, outputs, targets, self.num_special, question)


def answer_pieces(context: Pieces, answer: Stretch) -> Stretch | None:
    """Return the first and last piece that overlap an answer; None if the tokenizer drops all its characters."""
    overlaps = (context.characters[:, 1] > answer[0]) & (context.characters[:, 0] < answer[1])
    pieces = context.visible[overlaps[context.visible]]
    return (int(pieces[0]), int(pieces[-1])) if len(pieces) else None


def has_answer_in_window(example: Example) -> bool:
    """Whether a window of the example contains the whole answer, so that training sees it."""
    return any(bool((window.targets[1:, STARTS] == 1).any()) for window in example.windows)
