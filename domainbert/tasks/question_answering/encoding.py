"""Questions with windows of their contexts as token ids: where the head reads, and what it is compared with."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from domainbert.base.errors import DomainbertError
from domainbert.data.examples import Example, Window, window_bounds
from domainbert.data.types import IGNORED
from domainbert.labelled.contents import TextPair
from domainbert.labelled.stretches import Stretch
from domainbert.tokenization.load import DomainTokenizer

Ints = NDArray[np.int64]

STARTS, ENDS, FIRST, BEHIND = range(4)
"""Columns of `targets`: whether the answer starts at a position, and whether it ends there (0, 1 or
`IGNORED`); of the context the first character of the piece, and the one behind its last."""


@dataclass(frozen=True)
class Pieces:
    """The pieces of a context."""

    ids: Ints  # (pieces,)
    word_starts: list[int]  # (words,) the first piece of each
    characters: NDArray[np.int32]  # (pieces, 2) what each covers, white space apart, end exclusive
    read: Ints  # (visible,) the pieces that cover more than white space: where an answer may start and end


def context_pieces(tokenizer: DomainTokenizer, contexts: Sequence[str]) -> list[Pieces]:
    """The pieces of each context, with the characters that they cover."""
    encodings = tokenizer.encode_with_offsets(contexts)
    return [_pieces(context, encoding) for context, encoding in zip(contexts, encodings, strict=True)]


def _pieces(context: str, encoding: Encoding) -> Pieces:
    covered = [_visible(context, *offsets) for offsets in encoding.offsets]
    characters = np.asarray(covered, dtype=np.int32).reshape(-1, 2)
    words = np.asarray(encoding.word_ids, dtype=np.int64)
    starts = np.flatnonzero(np.diff(words, prepend=-1)).tolist()
    return Pieces(np.asarray(encoding.ids), starts, characters, np.flatnonzero(characters[:, 0] < characters[:, 1]))


def _visible(text: str, start: int, end: int) -> Stretch:
    """The characters of a piece without white space around them, and with the non-spacing marks behind them: the
    normalizer of an uncased vocabulary drops these, and leaves them out of its offsets."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    while start < end < len(text) and unicodedata.category(text[end]) == "Mn":
        end += 1
    return start, end


class PairEncoder:
    """Encodes questions with their contexts; see `encode`.

    `DomainbertError` if windows have no room for a context beside the longest question.
    """

    def __init__(self, tokenizer: DomainTokenizer, max_length: int, max_question_length: int) -> None:
        self.tokenizer, self.most = tokenizer, max_question_length
        self.extra, self.between = tokenizer.template.extra(pair=True), tokenizer.template.between
        self.room = max_length - self.extra
        if self.room <= max_question_length:
            raise DomainbertError(
                f"max_length: found {max_length}, which leaves no room for the context after a question of "
                f"max_question_length {max_question_length} and {self.extra} special tokens; expected a larger "
                "max_length, or a smaller max_question_length"
            )

    def encode(self, pairs: Sequence[TextPair], answers: Sequence[Sequence[Stretch]] | None) -> list[Example]:
        """A question stands before each window of its context, which takes what room it leaves. Outputs of an example
        are its [CLS], number 0, and the pieces of the context.

        Windows advance by half of their room, so that an answer of up to so many pieces is whole in one of them.
        `answers` are those that are learnt, one or none of each pair, or None where they are to be predicted.
        """
        contexts = list(dict.fromkeys(pair.second for pair in pairs))
        pieces = dict(zip(contexts, context_pieces(self.tokenizer, contexts), strict=True))
        asked = list(dict.fromkeys(pair.first for pair in pairs))
        questions = {
            text: np.asarray(ids[: self.most], dtype=np.int64)
            for text, ids in zip(asked, self.tokenizer.encode(asked), strict=True)
        }
        spans = [None] * len(pairs) if answers is None else answers
        return [
            self._example(questions[pair.first], pieces[pair.second], span)
            for pair, span in zip(pairs, spans, strict=True)
        ]

    def too_long(self, questions: Sequence[str]) -> dict[str, int]:
        """The questions of which only the beginning is read, and how many pieces they have."""
        different = list(dict.fromkeys(questions))
        lengths = map(len, self.tokenizer.encode(different))
        return {text: length for text, length in zip(different, lengths, strict=True) if length > self.most}

    def _example(self, question: Ints, context: Pieces, answers: Sequence[Stretch] | None) -> Example:
        span = answer_pieces(context, answers[0]) if answers else None
        bounds = window_bounds(context.word_starts, len(context.ids), self.room - len(question))
        windows = [self._window(question, context, bound[:2], span, answers is not None) for bound in bounds]
        return Example(tuple(windows), len(context.ids) + 1)

    def _window(self, question: Ints, context: Pieces, bounds: Stretch, span: Stretch | None, known: bool) -> Window:
        start, stop = bounds
        here = context.read[slice(*np.searchsorted(context.read, bounds))]
        positions = np.concatenate([[-1], here - start + len(question) + self.between])
        targets = np.zeros((len(positions), 4), dtype=np.int32)
        targets[1:, FIRST:] = context.characters[here]
        if not known:
            targets[:, [STARTS, ENDS]] = IGNORED
        elif span is not None and start <= span[0] and span[1] < stop:
            targets[1:, STARTS], targets[1:, ENDS] = here == span[0], here == span[1]
        else:
            targets[0, [STARTS, ENDS]] = 1
        outputs = np.concatenate([[0], here + 1])
        return Window(context.ids[start:stop], positions, outputs, targets, self.extra, question)


def answer_pieces(context: Pieces, answer: Stretch) -> Stretch | None:
    """The first and last piece that hold some of an answer; None where none does, as of characters that are dropped."""
    inside = (context.characters[:, 1] > answer[0]) & (context.characters[:, 0] < answer[1])
    found = context.read[inside[context.read]]
    return (int(found[0]), int(found[-1])) if len(found) else None


def is_learnt(example: Example) -> bool:
    """Whether some window holds the answer whole."""
    return any(bool((window.targets[1:, STARTS] == 1).any()) for window in example.windows)
