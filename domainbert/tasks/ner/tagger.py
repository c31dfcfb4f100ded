"""Prediction of entities in words or raw text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from domainbert.data.examples import encode_words
from domainbert.labelled.char_spans import Stretch
from domainbert.labelled.tag_schemes import Span, spans_from_tags, to_iob2
from domainbert.tasks.decoding import decode_labels
from domainbert.tasks.word_task import TaggedWords, WordPredictor
from domainbert.tokenization.align import AlignedWords

if TYPE_CHECKING:
    from domainbert.tasks.ner.task import NerTask


@dataclass(frozen=True)
class Entity:
    """An entity in a text: characters `start` to `end` (exclusive); `text` is the substring.

    `score` is the probability that exactly these words are an entity of this type, normalised over all valid tag
    sequences: under the CRF, or for a linear head with the product of the words' probabilities. Entities below the
    `domainbert_min_score` of `config.json`, which `finetune` selects on validation, are not predicted.
    """

    start: int
    end: int
    type: str
    text: str
    score: float


class Tagger(WordPredictor[Entity]):
    """Predictor of entities in raw text, or in lists of words, which are joined by single spaces."""

    task: NerTask
    kind = "a tagger with the labels"
    loader = "load_tagger"
    num_repaired = 0
    """Number of tags that the last `tag_words` repaired."""

    @override
    def build(self, text: str, offsets: Sequence[Stretch], tagged: TaggedWords) -> list[Entity]:
        entities = []
        for first_word, end_word, entity_type in spans_from_tags(tagged.tags):
            start, end = offsets[first_word][0], offsets[end_word - 1][1]
            if text[start:end].strip():  # not of an empty word
                entities.append(Entity(start, end, entity_type, text[start:end], tagged.scores[first_word]))
        return entities

    def tag_words(self, sentences: Iterable[Sequence[str]]) -> list[TaggedWords]:
        """Return the IOB2 tag of each word, regardless of the model's tag scheme, and the probability of its entity or
        of O.

        A folder from `finetune` is decoded into valid tags. Other folders may have another tag scheme, so the best
        label of each word is read as in conlleval: an I-X (E-X, L-X) without a beginning becomes B-X, and
        `num_repaired` is the number of these tags in the last call.
        """
        decoded = super().tag_words(sentences)
        valid = [TaggedWords(to_iob2(tags), scores) for tags, scores in decoded]
        # repaired tags: without a beginning, read as B-
        self.num_repaired = sum(
            tag[0] in "IEL" and valid_tag[0] == "B"
            for sentence, valid_sentence in zip(decoded, valid, strict=True)
            for tag, valid_tag in zip(sentence.tags, valid_sentence.tags, strict=True)
        )
        return valid

    def predict_entities(self, texts: Iterable[str]) -> list[list[Entity]]:
        """Return the entities of raw texts, whose words are the tokenizer's pre-tokens."""
        return self.predict(texts)

    def predict_spans(self, sentences: Iterable[Sequence[str]]) -> list[list[Span]]:
        """Return the entities of lists of words as `(start, end, type)` in words, as `count_entities` takes them."""
        return [spans_from_tags(tags) for tags, _ in self.tag_words(sentences)]

    @override
    def as_json(self, prediction: list[Entity]) -> dict[str, Any]:
        return {"entities": [asdict(entity) for entity in prediction]}

    def argmax_labels(self, aligned: Sequence[AlignedWords]) -> list[list[str]]:
        """Return the most probable label of each word, without tag scheme and CRF."""
        examples = encode_words(aligned, tags=None, labels=self.labels, max_length=self.max_length)
        decoded = self._decode_examples(examples, decode_labels)  # label ids by index of the example
        return [[self.labels[label_id] for label_id in decoded.get(index, ())] for index in range(len(aligned))]

    def _tag(self, aligned: Sequence[AlignedWords]) -> list[TaggedWords]:
        outputs = super()._tag(aligned)
        return [self.task.tags_of_words(tagged, words) for tagged, words in zip(outputs, aligned, strict=True)]
