"""Named entity recognition: a linear or CRF head with IOB2 or BIOES tags of words.

The words of raw text are its pre-tokens, so a model must learn tags that are valid for pre-tokens: the single word
"men's" with the tag S-x has the pre-token tags B-x I-x E-x. Unlike in IOB2, the tag of a word then differs from the tag
of its first pre-token. A BIOES model therefore tags pre-tokens, and the tags of words are derived from them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from torch import Tensor, nn
from typing_extensions import override

from domainbert.base.fields import Range, read_field
from domainbert.data.examples import encode_words
from domainbert.data.packing import Example
from domainbert.encoders.crf import Crf, WordGrid, crf_of, word_marginals
from domainbert.labelled.entities import Sentence
from domainbert.labelled.tag_schemes import (
    ModelScheme,
    Span,
    entity_types,
    labels_of_types,
    scheme_of_labels,
    spans_from_tags,
    tags_from_spans,
)
from domainbert.tasks.capabilities import (
    DistillationTargets,
    ExampleFormatter,
    TrainingHooks,
)
from domainbert.tasks.decoding import decode_labels, uniform_crf
from domainbert.tasks.ner.confidence import Lattice
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.scoring import EntityScoring
from domainbert.tasks.ner.tagger import Entity, Tagger
from domainbert.tasks.task import ADVICE, Batch
from domainbert.tasks.word_task import TaggedWords, WordTask
from domainbert.tokenization.align import AlignedWords, align_words
from domainbert.tokenization.load import DomainTokenizer

if TYPE_CHECKING:
    from torchmetrics import Metric

_SCHEME = "domainbert_tags"  # keys of config.json
_MIN_SCORE = "domainbert_min_score"


class EntityTrainingHooks(TrainingHooks["NerTask"]):
    """Warns about a tagger that finds no entity."""

    @override
    def warnings(self, task: NerTask, items: Sequence[Sentence], scores: Mapping[str, float]) -> list[str]:
        entities = sum(len(sentence.spans) for sentence in items)
        warning = f"the model finds no entity of the validation set, which has {entities:,}; {ADVICE}"
        return [warning] if entities and not scores["f1"] else []


class TagFormatter(ExampleFormatter["NerTask"]):
    """Shows the tag of each word; in BIOES, the word is the name of its first pre-token."""

    @override
    def output_names(self, task: NerTask, item: Sentence) -> Sequence[str]:
        """Return the words; in BIOES, a word for its first pre-token and "" for its other pre-tokens."""
        if task.scheme != "BIOES":
            return super().output_names(task, item)
        assert task.tokenizer is not None  # set by `encode`
        pretokens, firsts = split_words(align_words(task.tokenizer, [item.words])[0])
        names = [""] * len(pretokens.first_piece)
        for word, first in zip(item.words, firsts, strict=True):
            names[first] = word
        return names


class NerTask(WordTask[Sentence, Entity]):
    """Named entity recognition; `labels` are `O`, and `B-X` and `I-X` for every type, in BIOES also `E-X` and `S-X`.

    Attributes:
        scheme: tag scheme; None if the model folder does not record it, so that any tag sequence is valid.
        valid: CRF that decodes a linear head into valid tag sequences.
        min_score: least probability of a predicted entity.
    """

    predictor = Tagger
    training_hooks = EntityTrainingHooks()
    scoring = EntityScoring
    example_formatter = TagFormatter()
    scheme: ModelScheme | None
    valid: Crf | None
    min_score = 0.0

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__(labels)
        self.scheme, self.valid = scheme_of_labels(labels) or "IOB2", uniform_crf(self.labels)

    @classmethod
    @override
    def from_labels(cls, config: Ner, labels: Sequence[str]) -> NerTask:
        """Return the task with tags for entity types; `config.head` selects the class."""
        return (CrfNerTask if config.head == "crf" else cls)(labels_of_types(labels, config.scheme))

    @classmethod
    def from_model_folder(cls, labels: Sequence[str], fields: Mapping[str, Any]) -> NerTask:
        """Return the task of a model folder; without a recorded tag scheme, any tag sequence is valid, and without a
        recorded `min_score`, all entities of the best sequence are predicted."""
        min_score = read_field(fields, _MIN_SCORE, Annotated[float, Range(0, 1, exclude_high=True)], 0.0)
        task = (CrfNerTask if fields.get("domainbert_head") == "crf" else cls)(labels)
        if fields.get(_SCHEME) not in ("IOB2", "BIOES"):
            task.scheme = task.valid = None
        task.min_score = min_score
        return task

    @override
    def card_facts(self) -> dict[str, str]:
        facts = super().card_facts()
        if self.scheme is not None:
            facts.setdefault("decoding", "the most probable valid tags; transformers takes the best tag of each word")
            facts["improbable entities"] = f"omitted if less probable than {_MIN_SCORE} of config.json"
        return facts

    @override
    def model_config_fields(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """Return the tag scheme, and the best `min_score` on validation."""
        scheme = scheme_of_labels(self.labels)
        min_score = round(scores.get("min_score", 0.0), 2)  # was logged in single precision
        return {_SCHEME: scheme, _MIN_SCORE: min_score} if scheme else {}

    @override
    def encode(self, items: Sequence[Sentence], tokenizer: DomainTokenizer, max_length: int) -> list[Example]:
        """Return sentences as token ids with the tags of their words; with the scheme BIOES, of their pre-tokens.

        A model of another library may lack the label of a tag, such as B-X; the target is then another label of X.
        """
        self.tokenizer = tokenizer  # for `update` and `TagFormatter`
        aligned = align_words(tokenizer, [sentence.words for sentence in items])
        tags = [sentence.tags for sentence in items]
        if self.scheme == "BIOES":
            split = [split_words(words) for words in aligned]
            aligned = [pretokens for pretokens, _ in split]
            tags = [
                pretoken_tags(sentence.spans, firsts, len(pretokens.first_piece))
                for sentence, (pretokens, firsts) in zip(items, split, strict=True)
            ]
        # "B-X" and "I-X" by any label of X, unless the model has a label with this name
        label_id = {f"{prefix}-{label[2:]}": index for index, label in enumerate(self.labels) for prefix in "BI"}
        label_id |= {label: index for index, label in enumerate(self.labels)}
        ids = [[label_id[tag] for tag in sentence_tags] for sentence_tags in tags]
        return encode_words(aligned, ids, self.labels, max_length)

    @override
    def encode_aligned(self, aligned: Sequence[AlignedWords], max_length: int) -> list[Example]:
        """Return sentences as examples without tags, for prediction; the outputs are words, in BIOES pre-tokens."""
        if self.scheme == "BIOES":
            aligned = [split_words(words)[0] for words in aligned]
        return encode_words(aligned, tags=None, labels=self.labels, max_length=max_length)

    def tags_of_words(self, tagged: TaggedWords, words: AlignedWords) -> TaggedWords:
        """Return the tags and scores of a sentence's words; `tagged` has those of the model's outputs: words, or with
        BIOES pre-tokens. A word then has the score of its first pre-token."""
        if self.scheme != "BIOES":
            return tagged
        _, firsts = split_words(words)
        return TaggedWords(word_tags(tagged.tags, firsts), [tagged.scores[first] for first in firsts])

    def metric(self) -> Metric:
        """Return the metric of strict entity F1 at the best `min_score`."""
        from domainbert.metrics.entity_modules import LikelyEntityF1  # imports torchmetrics, which takes seconds

        return LikelyEntityF1(entity_types(self.labels))

    @override
    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[Sentence]) -> None:
        """Add a batch; entities are counted in words, as in `evaluate`."""
        tagged = self._decode(logits, batch, min_score=0.0)
        if self.scheme == "BIOES":  # tags of pre-tokens
            assert self.tokenizer is not None  # set by `encode`
            aligned = align_words(self.tokenizer, [sentence.words for sentence in items])
            tagged = list(map(self.tags_of_words, tagged, aligned))
        predicted = [[(span, scores[span[0]]) for span in spans_from_tags(tags)] for tags, scores in tagged]
        metric.update(predicted, [sentence.spans for sentence in items])

    def decode(self, logits: Tensor, batch: Batch) -> list[TaggedWords]:
        """Return the tag of each output, with the probability of its entity, or of O.

        The tags are of the best sequence, with O instead of entities that are less probable than `min_score`.
        """
        return self._decode(logits, batch, self.min_score)

    def _decode(self, logits: Tensor, batch: Batch, min_score: float) -> list[TaggedWords]:
        decoded = decode_labels(logits, batch, self.crf, self.valid)
        # the lattice has only sentences with words
        tags = [[self.labels[label] for label in ids.tolist()] for ids in decoded if len(ids)]
        if not tags:
            return [TaggedWords([], []) for _ in decoded]
        sentences = WordGrid(batch["example"], batch["outputs"])
        lattice = Lattice(self.decoding_crf, sentences.fill(logits.float()), sentences.lengths, self.labels)
        scores = lattice.scores(tags)
        if min_score:
            tags = [likely_tags(*sentence, min_score) for sentence in zip(tags, scores, strict=True)]
            scores = lattice.scores(tags)  # of O instead of the entities
        of_nonempty = map(TaggedWords, tags, scores)
        return [next(of_nonempty) if len(ids) else TaggedWords([], []) for ids in decoded]

    @property
    def decoding_crf(self) -> Crf:
        """Return the CRF that scores tag sequences: the CRF of the head, or for a linear head a uniform CRF.

        The uniform CRF is over the valid sequences, or over all sequences if the tag scheme is unknown.
        """
        return self.crf or self.valid or Crf(len(self.labels))


class CrfDistillationTargets(DistillationTargets["CrfNerTask"]):
    """Compares marginals over valid tag sequences, also for teachers with a linear head, whose probabilities would
    otherwise include tags that the student's CRF forbids."""

    @override
    def facts(self, task: CrfNerTask, head: nn.Module) -> dict[str, Any]:
        facts = super().facts(task, head)
        return facts if crf_of(head) is not None else facts | {"head": task.head}  # see `teacher_logits`

    @override
    def teacher_logits(self, task: CrfNerTask, head: nn.Module, logits: Tensor, batch: Batch) -> Tensor:
        """Return marginals over valid tag sequences, also for the logits of a linear head."""
        if crf_of(head) is None and task.valid is not None:
            logits = word_marginals(task.valid, logits, batch["example"], batch["outputs"])
        return super().teacher_logits(task, head, logits, batch)


class CrfNerTask(NerTask):
    """Named entity recognition with a CRF head."""

    head = "crf"
    distillation_targets = CrfDistillationTargets()

    @override
    def attach_head(self, head: nn.Module) -> None:
        """Store the CRF of the head, and let it forbid invalid tag sequences."""
        super().attach_head(head)
        assert self.crf is not None
        self.crf.constrain(self.labels)


def likely_tags(tags: Sequence[str], scores: Sequence[float], min_score: float) -> list[str]:
    """Return the tags of a sentence with O instead of entities that are less probable than `min_score`."""
    likely = list(tags)
    for start, stop, _ in spans_from_tags(tags):
        if scores[start] < min_score:
            likely[start:stop] = ["O"] * (stop - start)
    return likely


def split_words(words: AlignedWords) -> tuple[AlignedWords, list[int]]:
    """Return the pieces with each pre-token as a word, and for each original word the index of its first pre-token."""
    begins_pretoken = np.asarray(words.starts_pretoken, dtype=bool)
    begins_pretoken[words.first_piece] = True
    pretoken_of = np.cumsum(begins_pretoken) - 1  # index of each piece's pre-token
    firsts = [int(pretoken_of[piece]) for piece in words.first_piece]
    first_pieces = np.flatnonzero(begins_pretoken).tolist()
    starts_pretoken = begins_pretoken.tolist()
    return AlignedWords(words.input_ids, pretoken_of.tolist(), starts_pretoken, first_pieces, words.extra), firsts


def pretoken_tags(spans: Sequence[Span], firsts: Sequence[int], num_pretokens: int) -> list[str]:
    """Return the BIOES tags of pre-tokens for entities given in words; `firsts` as from `split_words`."""
    bounds = [*firsts, num_pretokens]  # of the pre-tokens of each word
    pretoken_spans = [(bounds[start], bounds[end], entity_type) for start, end, entity_type in spans]
    return tags_from_spans(pretoken_spans, num_pretokens, "BIOES")


def word_tags(tags: Sequence[str], firsts: Sequence[int]) -> list[str]:
    """Return the IOB2 tags of words, each in the entity of its first pre-token; `firsts` as from `split_words`."""
    spans = []
    for start, stop, entity_type in spans_from_tags(tags):  # in pre-tokens
        # the words whose first pre-token is in the entity
        first_word, end_word = bisect_left(firsts, start), bisect_left(firsts, stop)
        if first_word < end_word:
            spans.append((first_word, end_word, entity_type))
    return tags_from_spans(spans, len(firsts))
