"""Base classes of tasks with a tag or label for each word: loss, prediction and scoring."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.data.packing import IGNORE_INDEX, Example
from domainbert.encoders.crf import Crf, SizedGrid, crf_of
from domainbert.labelled.char_spans import Stretch, join_words
from domainbert.labelled.contents import Content, as_contents, words_of_content
from domainbert.labelled.tagged_files import TaggedFile, TaggedSentence
from domainbert.tasks.capabilities import DistillationTargets
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.predictor import Predictor
from domainbert.tasks.scoring import Scoring
from domainbert.tasks.task import Batch, Task
from domainbert.tokenization.align import AlignedText, AlignedWords, align_words
from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.splitting import WordSplitting, align_raw

_PART = 100_000  # characters: a longer text is encoded in parts
_CUT = re.compile(r"(?<=[^\W_]) (?=[^\W_])")  # a space, where every pre-tokenizer begins a new word, between two words
Item = TypeVar("Item")
Part = TypeVar("Part")
"""A part of a predicted text, such as an entity or a labelled word."""


class TaggedWords(NamedTuple):
    """Tags of the words of a sentence, and the probability of each tag."""

    tags: list[str]
    scores: list[float]


def aligned_contents(
    tokenizer: DomainTokenizer, contents: Sequence[Content], splitting: WordSplitting | None
) -> list[AlignedWords]:
    """Return the pieces and words of each content, in order; `splitting` defines the words of a text."""
    texts = [content for content in contents if isinstance(content, str)]
    words = [words_of_content(content) for content in contents if not isinstance(content, str)]
    if all(len(text) <= _PART for text in texts):
        from_texts: Iterator[AlignedText] = iter(align_raw(tokenizer, texts, splitting))
    else:
        from_texts = (_align_long(tokenizer, text, splitting) for text in texts)
    from_words = iter(align_words(tokenizer, words))
    # back in the order of the contents
    return [next(from_texts) if isinstance(content, str) else next(from_words) for content in contents]


def _align_long(tokenizer: DomainTokenizer, text: str, splitting: WordSplitting | None) -> AlignedText:
    """Return the pieces and words of a text; of a long text in arrays, which need less memory than lists.

    The words that begin in `begin:end` are a part. It is encoded with a further word on either side, `context_begin` to
    `context_end`, so that its pieces are the same as in the whole text.
    """

    if len(text) <= _PART:
        (encoded,) = align_raw(tokenizer, [text], splitting)
        return encoded

    def next_cut(position: int) -> int:
        cut = _CUT.search(text, position)
        return cut.start() if cut else len(text)

    parts: list[tuple[Any, ...]] = []
    context_begin = begin = num_pieces = 0  # num_pieces: of the parts before
    while begin < len(text):
        next_context_begin = next_cut(begin + _PART)
        end = next_cut(next_context_begin + 1)
        context_end = next_cut(end + 1)
        (encoded,) = align_raw(tokenizer, [text[context_begin:context_end]], splitting)
        offsets = np.asarray(encoded.word_offsets, dtype=np.int32).reshape(-1, 2) + context_begin
        words = slice(*np.searchsorted(offsets[:, 0], (begin, end)))  # of the part, without its context
        first_pieces = np.asarray([*encoded.first_piece, len(encoded.input_ids)])
        pieces = slice(first_pieces[words.start], first_pieces[words.stop])
        ids = np.asarray(encoded.input_ids, dtype=np.int32)[pieces]
        starts_pretoken = np.asarray(encoded.starts_pretoken)[pieces]
        parts.append((ids, starts_pretoken, first_pieces[words] - pieces.start + num_pieces, offsets[words]))
        context_begin, begin, num_pieces = next_context_begin, end, num_pieces + len(ids)
    joined: list[Any] = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
    all_ids, all_starts, first_piece, all_offsets = joined
    word_of: Any = np.repeat(np.arange(len(first_piece)), np.diff(first_piece, append=len(all_ids)))
    num_special = tokenizer.template.num_special_tokens()
    return AlignedText(all_ids, word_of, all_starts, first_piece, num_special, all_offsets)


def text_and_offsets(content: Content, words: AlignedWords) -> tuple[str, list[Stretch]]:
    """Return the text of a content and the character ranges of its words; a list of words is joined by spaces."""
    if isinstance(words, AlignedText) and isinstance(content, str):
        return content, words.word_offsets if isinstance(words.word_offsets, list) else words.word_offsets.tolist()
    return join_words(words_of_content(content))


class WordTask(Task[Item, list[Part]]):
    """A task with a linear or CRF head on the first piece of each word.

    Attributes:
        crf: the CRF of the head; None for a linear head.
    """

    head = "tokens"
    loss_divisor = "num_targets"
    distillation_targets: ClassVar[DistillationTargets[Any]] = DistillationTargets()
    crf: Crf | None = None

    @override
    def card_facts(self) -> dict[str, str]:
        crf = {"decoding": "the most probable labels under the CRF, which transformers does not apply"}
        return super().card_facts() | (crf if self.head == "crf" else {})

    @override
    def attach_head(self, head: nn.Module) -> None:
        """Store the CRF of the head, or None for a linear head."""
        self.crf = crf_of(head)

    @abstractmethod
    def encode_aligned(self, aligned: Sequence[AlignedWords], max_length: int) -> list[Example]:
        """Return sentences that are split into pieces as examples without targets, for prediction."""

    @override
    def encode_contents(
        self, contents: Sequence[Content], tokenizer: DomainTokenizer, max_length: int
    ) -> list[Example]:
        """Return contents as token ids, for prediction; `word_splitting` defines the words of a text."""
        return self.encode_aligned(aligned_contents(tokenizer, contents, self.word_splitting), max_length)

    @override
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the loss summed over a micro-batch, a scalar, from logits (N, labels) at the positions.

        For a linear head, it is the cross-entropy of all pre-tokens. For a CRF, it is the negative log-likelihood of
        the words' labels, plus the cross-entropy of the positions that continue a word: they are not part of the CRF's
        sequence.
        """
        targets, outputs = batch["targets"], batch["outputs"]
        if self.crf is None:
            return _cross_entropy(logits, targets)
        is_word = outputs >= 0  # False at positions that continue a word
        with torch.autocast(logits.device.type, enabled=False):
            continuations = _cross_entropy(logits, targets.masked_fill(is_word, IGNORE_INDEX))
            # in words; at least 1, as a CRF reads a first word of each sentence, even if no sentence has words
            longest = batch.get("longest") or int(functional.pad(outputs, (0, 1)).max()) + 1
            labelled_outputs = outputs.masked_fill(targets == IGNORE_INDEX, -1)  # the sequence has only labelled words
            grid = SizedGrid(batch["example"], labelled_outputs, len(batch["items"]), longest)
            emissions, labels = grid.fill(logits.float()), grid.fill(targets)
            losses = self.crf.log_partition(emissions, grid.lengths) - self.crf.score(emissions, labels, grid.lengths)
        return continuations + losses.where(grid.lengths > 0, 0.0).sum()


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(logits.float(), targets, ignore_index=IGNORE_INDEX, reduction="sum")


class WordPredictor(Predictor[list[Part]]):
    """Predictor for the pre-tokens of raw text, or for lists of words, which are joined by single spaces."""

    task: WordTask[Any, Part]

    @abstractmethod
    def build(self, text: str, offsets: Sequence[Stretch], tagged: TaggedWords) -> list[Part]:
        """Return the prediction for a text from the character ranges and the tags of its words."""

    @override
    def _predict(self, texts: Sequence[Content]) -> list[list[Part]]:
        aligned = aligned_contents(self.tokenizer, texts, self.task.word_splitting)
        predictions = []
        for content, words, tagged in zip(texts, aligned, self._tag(aligned), strict=True):
            text, offsets = text_and_offsets(content, words)
            predictions.append(self.build(text, offsets, tagged))
        return predictions

    def predict_words(self, sentences: Iterable[Sequence[str]]) -> list[list[str]]:
        """Return the tags of the words of each sentence."""
        return [tagged.tags for tagged in self.tag_words(sentences)]

    def tag_words(self, sentences: Iterable[Sequence[str]]) -> list[TaggedWords]:
        """Return the tags of the words of each sentence, and the probability of each tag."""
        return self._tag(align_words(self.tokenizer, as_contents(sentences, only_words=True)))

    def _tag(self, aligned: Sequence[AlignedWords]) -> list[TaggedWords]:
        decoded = self._decode_examples(self.task.encode_aligned(aligned, self.max_length))
        return [decoded.get(index, TaggedWords([], [])) for index in range(len(aligned))]


class TaggedScoring(Scoring):
    """Scoring of sentences in documents; predictions are tags of words from `tag_words` of a predictor."""

    test: TaggedFile[Any]

    def __init__(self, config: TaskConfig, test: TaggedFile[Any], train: TaggedFile[Any] | None = None) -> None:
        super().__init__(config, test, train)
        self.suffix = ".conll" if test.kind == "conll" and test.fits_columns else ".jsonl"

    def predict(self, predictor: Any) -> list[TaggedWords]:
        """Return the tags of every sentence; a sentence without words has none and is not given to the model."""
        sentences = self.test.items
        empty = TaggedWords([], [])
        of_nonempty = iter(predictor.tag_words([sentence.words for sentence in sentences if sentence.words]))
        # a predictor that returns too few is an error below
        tagged: list[TaggedWords] = [next(of_nonempty, empty) if sentence.words else empty for sentence in sentences]
        for index, (sentence, (tags, _)) in enumerate(zip(sentences, tagged, strict=True)):
            if len(sentence.words) != len(tags):
                place, expected = self.test.location(index), f"{len(sentence.words)}, one for each word"
                raise DomainbertError(where=place, found=f"{len(tags)} predicted tags", expected=expected)
        return tagged

    @override
    def row(self, item: TaggedSentence, prediction: TaggedWords) -> dict[str, Any]:
        return {"tokens": item.words, "gold": item.tags, "predicted": prediction.tags}

    def write(self, path: Path, predictions: Sequence[TaggedWords]) -> None:
        """Write CoNLL for conlleval if the test set is CoNLL and all its sentences fit columns, otherwise JSONL."""
        if self.suffix == ".conll":
            self.test.write(path, [prediction.tags for prediction in predictions])
        else:
            super().write(path, predictions)
