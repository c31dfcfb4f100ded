"""Entities in words or in raw text, by a fine-tuned model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from domainbert.data.examples import encode_words
from domainbert.labelled.contents import Content, as_contents
from domainbert.labelled.tag_schemes import Span, spans_from_tags, to_iob2
from domainbert.tasks.decoding import decode_labels
from domainbert.tasks.predictor import Predictor
from domainbert.tasks.words import TaggedWords, aligned_contents, placed_words
from domainbert.tokenization.align import AlignedWords, align_words

if TYPE_CHECKING:
    from torch import Tensor

    from domainbert.tasks.ner.task import NerTask
    from domainbert.tasks.task import Batch


@dataclass(frozen=True)
class Entity:
    """An entity in a text: characters `start` to `end` (exclusive), which are `text`.

    `score` is the probability that exactly these words are an entity of this type, among all valid taggings of the
    text: under the CRF, or of a linear head by the product of its words' probabilities.
    """

    start: int
    end: int
    type: str
    text: str
    score: float


class Tagger(Predictor[list[Entity]]):
    """Finds entities in raw text, or in lists of words as if single spaces stood between them."""

    task: NerTask
    kind = "a tagger with the labels"
    loader = "load_tagger"
    num_repaired = 0
    """Tags of the last `tag_words` that were read as others."""

    def _predict(self, texts: Sequence[Content]) -> list[list[Entity]]:
        aligned = aligned_contents(self.tokenizer, texts, self.task.word_splitting)
        return [
            [_entity(content, words, span, scores) for span in spans_from_tags(tags)]
            for content, words, (tags, scores) in zip(texts, aligned, self._tag(aligned), strict=True)
        ]

    def predict_words(self, sentences: Iterable[Sequence[str]]) -> list[list[str]]:
        """IOB2 tags of words, whatever the model's own scheme.

        A folder that `finetune` wrote is decoded into valid tags. One from elsewhere may have another tag scheme, so
        there the best label of each word is read as conlleval reads it: an I-X (E-X, L-X) that nothing begins becomes
        B-X, and `num_repaired` counts those of the last call.
        """
        return [one.tags for one in self.tag_words(sentences)]

    def tag_words(self, sentences: Iterable[Sequence[str]]) -> list[TaggedWords]:
        """As `predict_words`; with the probability of the entity that a word is in, or that it is in none."""
        raw = self._tag(align_words(self.tokenizer, as_contents(sentences, only_words=True)))
        valid = [TaggedWords(to_iob2(tags), scores) for tags, scores in raw]
        self.num_repaired = sum(
            one[0] in "IEL" and other[0] == "B"
            for a, b in zip(raw, valid, strict=True)
            for one, other in zip(a.tags, b.tags, strict=True)
        )
        return valid

    def predict_entities(self, texts: Iterable[str]) -> list[list[Entity]]:
        """The entities of raw texts, whose words are the tokenizer's pre-tokens."""
        return self.predict(texts)

    def predict_spans(self, sentences: Iterable[Sequence[str]]) -> list[list[Entity]]:
        """The entities of words; offsets count characters of the words joined by single spaces."""
        return self.predict(as_contents(sentences, only_words=True))

    @override
    def as_json(self, prediction: list[Entity]) -> dict[str, Any]:
        return {"entities": [asdict(entity) for entity in prediction]}

    def argmax_labels(self, aligned: Sequence[AlignedWords]) -> list[list[str]]:
        """The most probable label of each word by itself, without a tag scheme or a CRF."""

        def names(logits: Tensor, batch: Batch) -> list[list[str]]:
            return [[self.labels[label] for label in ids.tolist()] for ids in decode_labels(logits, batch)]

        decoded = self._decoded(encode_words(aligned, None, self.labels, self.max_length), names)
        return [decoded.get(number, []) for number in range(len(aligned))]

    def _tag(self, aligned: Sequence[AlignedWords]) -> list[TaggedWords]:
        tagged = self._decoded(self.task.encode_aligned(aligned, self.max_length))
        empty = TaggedWords([], [])
        return [self.task.of_words(tagged.get(number, empty), words) for number, words in enumerate(aligned)]


def _entity(content: Content, words: AlignedWords, span: Span, scores: Sequence[float]) -> Entity:
    text, offsets = placed_words(content, words)
    first, last, kind = span
    start, end = offsets[first][0], offsets[last - 1][1]
    return Entity(start, end, kind, text[start:end], scores[first])
