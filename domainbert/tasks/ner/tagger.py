"""Prediction of entities in words or raw text."""

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
from domainbert.tasks.words import TaggedWords, aligned_contents, text_and_offsets
from domainbert.tokenization.align import AlignedWords, align_words

if TYPE_CHECKING:
    from torch import Tensor

    from domainbert.tasks.ner.task import NerTask
    from domainbert.tasks.task import Batch


@dataclass(frozen=True)
class Entity:
    """An entity in a text: characters `start` to `end` (exclusive); `text` is the substring.

    `score` is the probability that exactly these words are an entity of this type, normalised over all valid tag
    sequences: under the CRF, or for a linear head with the product of the words' probabilities.
    """

    start: int
    end: int
    type: str
    text: str
    score: float


class Tagger(Predictor[list[Entity]]):
    """Predictor of entities in raw text, or in lists of words, which are joined by single spaces."""

    task: NerTask
    kind = "a tagger with the labels"
    loader = "load_tagger"
    num_repaired = 0
    """Number of tags that the last `tag_words` repaired."""

    def _predict(self, texts: Sequence[Content]) -> list[list[Entity]]:
        aligned = aligned_contents(self.tokenizer, texts, self.task.word_splitting)
        return [
            [_build_entity(content, words, span, scores) for span in spans_from_tags(tags)]
            for content, words, (tags, scores) in zip(texts, aligned, self._tag(aligned), strict=True)
        ]

    def predict_words(self, sentences: Iterable[Sequence[str]]) -> list[list[str]]:
        """Return IOB2 tags of words, regardless of the model's tag scheme.

        A folder from `finetune` is decoded into valid tags. Other folders may have another tag scheme, so the best
        label of each word is read as in conlleval: an I-X (E-X, L-X) without a beginning becomes B-X, and
        `num_repaired` is the number of these tags in the last call.
        """
        return [tagged.tags for tagged in self.tag_words(sentences)]

    def tag_words(self, sentences: Iterable[Sequence[str]]) -> list[TaggedWords]:
        """Return the tags of `predict_words`, each with the probability of the word's entity, or of O."""
        raw = self._tag(align_words(self.tokenizer, as_contents(sentences, only_words=True)))
        valid = [TaggedWords(to_iob2(tags), scores) for tags, scores in raw]
        self.num_repaired = sum(
            tag[0] in "IEL" and repaired[0] == "B"
            for (tags, _), (repaired_tags, _) in zip(raw, valid, strict=True)
            for tag, repaired in zip(tags, repaired_tags, strict=True)
        )
        return valid

    def predict_entities(self, texts: Iterable[str]) -> list[list[Entity]]:
        """Return the entities of raw texts, whose words are the tokenizer's pre-tokens."""
        return self.predict(texts)

    def predict_spans(self, sentences: Iterable[Sequence[str]]) -> list[list[Entity]]:
        """Return the entities of lists of words; offsets refer to the words joined by single spaces."""
        return self.predict(as_contents(sentences, only_words=True))

    @override
    def as_json(self, prediction: list[Entity]) -> dict[str, Any]:
        return {"entities": [asdict(entity) for entity in prediction]}

    def argmax_labels(self, aligned: Sequence[AlignedWords]) -> list[list[str]]:
        """Return the most probable label of each word, without tag scheme and CRF."""

        def names(logits: Tensor, batch: Batch) -> list[list[str]]:
            return [[self.labels[label] for label in ids.tolist()] for ids in decode_labels(logits, batch)]

        decoded = self._decode_examples(encode_words(aligned, None, self.labels, self.max_length), names)
        return [decoded.get(index, []) for index in range(len(aligned))]

    def _tag(self, aligned: Sequence[AlignedWords]) -> list[TaggedWords]:
        """Return the tags and scores of the words of each sentence, without repair."""
        tagged = self._decode_examples(self.task.encode_aligned(aligned, self.max_length))
        empty = TaggedWords([], [])
        return [self.task.tags_of_words(tagged.get(index, empty), words) for index, words in enumerate(aligned)]


def _build_entity(content: Content, words: AlignedWords, span: Span, scores: Sequence[float]) -> Entity:
    text, offsets = text_and_offsets(content, words)
    first, after_last, kind = span
    start, end = offsets[first][0], offsets[after_last - 1][1]
    return Entity(start, end, kind, text[start:end], scores[first])
