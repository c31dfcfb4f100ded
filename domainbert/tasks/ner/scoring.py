"""Scoring of named entity recognition: strict entity F1, and F1 on raw text."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.base.process import process_rank
from domainbert.labelled.char_spans import Stretch, join_words
from domainbert.labelled.entities import NerFile, Sentence
from domainbert.labelled.items import label_set
from domainbert.labelled.tag_schemes import Span, select_types, spans_from_tags, to_iob2
from domainbert.metrics.bootstrap import Statistic
from domainbert.metrics.counts import IntArray, f1_of_sets, micro_f1
from domainbert.metrics.diagnostics import Pair
from domainbert.metrics.entities import all_entity_scores, count_entities, judge_entities, surface
from domainbert.metrics.summary import Resampling, Summary, collapse_warnings
from domainbert.metrics.table import Breakdown, error_lines, raw_text_line
from domainbert.tasks.mistakes import CORRECT, Mark, Mistake
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.tagger import Tagger
from domainbert.tasks.scoring import CountedScoring
from domainbert.tasks.word_task import TaggedScoring, TaggedWords
from domainbert.tokenization.align import AlignedText, align_words, basic_words
from domainbert.tokenization.splitting import align_raw, running_text

Offsets = Sequence[tuple[int, int]]
"""Character ranges of words."""


class EntityScoring(TaggedScoring, CountedScoring):
    """Scoring with strict entity F1; predictions are tags of words. `train` defines seen and unseen entities."""

    config: Ner
    test: NerFile
    statistics: ClassVar[Mapping[str, Statistic]] = {"f1": micro_f1}
    titles: ClassVar[Mapping[str, str]] = {"f1": "F1"}
    further: ClassVar[Mapping[str, str]] = {
        "precision": "precision",
        "recall": "recall",
        "macro_f1": "macro F1",
        "lenient.f1": "lenient F1",
        "partial.f1": "partial F1",
    }
    breakdowns = (
        Breakdown("by type", "per_type"),
        Breakdown("F1 by words", "by_length", only_f1=True),
        Breakdown("F1 by surface in training", "by_novelty", only_f1=True),
    )

    def __init__(self, config: Ner, test: NerFile, train: NerFile | None = None) -> None:
        super().__init__(config, test, train)
        self._gold = [sentence.spans for sentence in test.sentences]
        self._seen = None  # surfaces of the entities in the training set
        if train is not None:
            if process_rank() == 0:
                print(train.describe())
            self._seen = {surface(sentence.words, span) for sentence in train.sentences for span in sentence.spans}
        self._repaired: Counter[str] = Counter()
        self._raw_text: dict[str, list[dict[str, float]]] = {}

    @property
    @override
    def num_gold(self) -> int:
        return self.test.num_spans

    @property
    @override
    def title(self) -> str:
        return f"strict entity F1 over {self.num_gold:,} gold entities"

    @override
    def predict(self, predictor: Any) -> list[TaggedWords]:
        """Return the tags of each sentence, without entities of types that `format.types` does not select."""
        predictions = super().predict(predictor)
        format = self.config.format
        if format.types is None:
            return predictions
        return [tagged._replace(tags=select_types(tagged.tags, format.keeps)) for tagged in predictions]

    @override
    def add_model(self, system: str, seed: str, predictor: Any, path: Path) -> None:
        """Predict all items and store the predictions, the number of repaired tags, and the scores on raw text."""
        super().add_model(system, seed, predictor, path)
        self._repaired[system] += predictor.num_repaired
        if isinstance(predictor, Tagger):
            predictor.on_predicted = None  # the progress has counted the items already
            tagged, keeps = self.predictions[system][seed], self.config.format.keeps
            scores = raw_text_scores(predictor, self.test.sentences, tagged, keeps)
            self._raw_text.setdefault(system, []).append(scores)

    @override
    def count(self, predictions: Sequence[TaggedWords]) -> IntArray:
        """Return strict true positives, false positives and false negatives: (sentences, types, 3)."""
        return count_entities(self._gold, _spans(predictions), self._types)

    @override
    def scores(self, predictions: Sequence[TaggedWords], totals: IntArray) -> dict[str, Any]:
        words = [sentence.words for sentence in self.test.sentences]
        return all_entity_scores(self._gold, _spans(predictions), totals, self._types, words, self._seen)

    def warnings(self) -> list[str]:
        """Return warnings about models that predict no entity although gold has entities; otherwise []."""
        gold = label_set(self.test.items)
        return collapse_warnings(
            self.predictions, lambda words: spans_from_tags(words.tags), gold, "predicts no entity at all", max_values=0
        )

    @override
    def summary(self, resampling: Resampling) -> Summary:
        """Return the scores of all systems; raise `DomainbertError` if they do not count every gold entity once."""
        all_predictions = [run for runs_by_seed in self.predictions.values() for run in runs_by_seed.values()]
        predicted_types = {span[2] for run in all_predictions for spans in _spans(run) for span in spans}
        self._types = sorted(predicted_types.union(label_set(self.test.items)))
        summary = super().summary(resampling)
        for name, system in summary["systems"].items():
            scored = sum(type_scores["support"] for type_scores in system["per_type"].values())
            if scored != self.num_gold:
                raise DomainbertError(
                    f"{self.test.path}: {scored:,} entities scored for {name!r}; expected {self.num_gold:,}; report it"
                )
            if name in self._repaired:  # `trainer.test` does not count them
                system["repaired_tags"] = self._repaired[name]
            # means over seeds; without entities in gold and predictions, F1 is undefined
            if (raw_text := self._raw_text.get(name)) and system["f1"] is not None:
                system["raw_text"] = {
                    key: sum(scores[key] for scores in raw_text) / len(raw_text) for key in raw_text[0]
                }
        return summary

    @override
    def mistake(self, item: Sentence, prediction: TaggedWords) -> Mistake | None:
        """Return the errors or None; the severity is the largest probability of a wrong entity, or of O if missed."""
        pairs = judge_entities(item.spans, spans_from_tags(prediction.tags))
        wrong_pairs = [pair for pair in pairs if pair.kind != CORRECT]
        wrong_spans = [span for pair in wrong_pairs if (span := pair.predicted or pair.gold)]  # gold: a missed entity
        if not wrong_spans:
            return None
        scores = prediction.scores  # equal for all words of a predicted entity; a missed entity has scores of O
        probabilities = [min(scores[start:end]) for start, end, _ in wrong_spans]
        text, offsets = join_words(item.words)
        gold = [_mark(pair.gold, offsets, pair.kind) for pair in pairs if pair.gold]
        predicted = [_mark(pair.predicted, offsets, pair.kind, scores) for pair in pairs if pair.predicted]
        by_start = attrgetter("start")
        return Mistake(text, sorted(gold, key=by_start), sorted(predicted, key=by_start), max(probabilities))

    @override
    def confusion_pairs(self, item: Sentence, prediction: TaggedWords) -> Iterator[Pair]:
        """Yield the (gold, predicted) types of entities paired by `judge_entities`; None for an unpaired entity."""
        for gold, predicted, _ in judge_entities(item.spans, spans_from_tags(prediction.tags)):
            yield gold and gold[2], predicted and predicted[2]

    @override
    def confidences(self, item: Sentence, prediction: TaggedWords) -> Iterator[tuple[float, bool]]:
        """Return the probability of each predicted entity, and whether it is a gold entity."""
        gold = set(item.spans)
        return ((prediction.scores[span[0]], span in gold) for span in spans_from_tags(prediction.tags))

    @override
    def manifest_scores(self, system: Mapping[str, Any]) -> dict[str, Any]:
        omitted = ("repaired_tags", "raw_text")
        return {key: value for key, value in super().manifest_scores(system).items() if key not in omitted}

    @override
    def lines(self, summary: Summary) -> list[str]:
        """Return the tables, the kinds of error, and notes on raw text and repaired tags."""
        systems = summary["systems"]
        notes = [f"{name}: {raw_text_line(system)}" for name, system in systems.items() if "raw_text" in system]
        repair_note = "stray I- tags in the predictions were read as B-"
        notes += [f"{name}: {count:,} {repair_note}" for name, count in self._repaired.items() if count]
        return [*super().lines(summary), *error_lines(systems), *(["", *notes] if notes else [])]


def _spans(predictions: Sequence[TaggedWords]) -> list[list[Span]]:
    return [spans_from_tags(tagged.tags) for tagged in predictions]


def _mark(span: Span, offsets: Sequence[Stretch], kind: str, scores: Sequence[float] | None = None) -> Mark:
    """Return the mark, in characters, of a span of words; `offsets` are the character ranges of the words. Its score is
    the score of the first word."""
    first, end, label = span
    score = None if scores is None else scores[first]
    return Mark(label, offsets[first][0], offsets[end - 1][1], score, kind)


def raw_text_scores(
    tagger: Tagger, sentences: Sequence[Sentence], tagged: Sequence[TaggedWords], keeps: Callable[[str], bool]
) -> dict[str, float]:
    """Return strict entity F1 by characters on raw text; words of a file without texts are joined to running text.

    Args:
        tagger: the model.
        sentences: the test set.
        tagged: the predictions for its words; only sentences with other words or pieces in raw text are predicted
            again.
        keeps: whether entities of a type are scored.

    Returns:
        `f1` of `predict`; `argmax_f1` of the best label of each word; `pipeline_f1` of `transformers.pipeline` with
        `aggregation_strategy="first"`; `words_split_differently`, the share of words that raw text splits differently.
    """
    texts, offsets = zip(*map(_text_and_offsets, sentences), strict=True)
    gold = [_in_characters(sentence.spans, words) for sentence, words in zip(sentences, offsets, strict=True)]
    predicted = [_in_characters(spans_from_tags(tags), words) for (tags, _), words in zip(tagged, offsets, strict=True)]
    different, num_resplit = _find_differences(tagger, [sentence.words for sentence in sentences], texts, offsets)
    entities = tagger.predict([texts[index] for index in different])
    for index, sentence_entities in zip(different, entities, strict=True):
        predicted[index] = {(entity.start, entity.end, entity.type) for entity in sentence_entities}

    # the words of the pipeline: pre-tokens for WordPiece, words between spaces for other vocabularies
    prefix = getattr(tagger.tokenizer.backend.model, "continuing_subword_prefix", None)
    aligned = align_raw(tagger.tokenizer, texts, "punctuation" if prefix else "whitespace")
    argmax_spans, pipeline_spans = [], []
    for text_words, pipeline_words, labels in zip(offsets, aligned, tagger.argmax_labels(aligned), strict=True):
        spans = _spans_of_words(text_words, pipeline_words.word_offsets, labels)
        argmax_spans.append(_in_characters(spans, text_words))
        pipeline_spans.append(set(pipeline_entities(pipeline_words.word_offsets, labels)))
    # the pipeline truncates texts to one window
    long = [index for index, words in enumerate(aligned) if len(words.input_ids) + words.extra > tagger.max_length]
    truncated = [_truncate(tagger, texts[index], aligned[index]) for index in long]
    for index, words, labels in zip(long, truncated, tagger.argmax_labels(truncated), strict=True):
        pipeline_spans[index] = set(pipeline_entities(words.word_offsets, labels))

    systems = {"f1": predicted, "argmax_f1": argmax_spans, "pipeline_f1": pipeline_spans}
    scores = {
        name: f1_of_sets(gold, [{span for span in spans if keeps(span[2])} for spans in spans_by_text])
        for name, spans_by_text in systems.items()
    }
    return scores | {"words_split_differently": num_resplit / max(sum(map(len, offsets)), 1)}


def pipeline_entities(offsets: Offsets, labels: Sequence[str]) -> list[Span]:
    """Return entities in characters, grouped as by `transformers.pipeline`.

    A label continues the entity before it if both have the same type, unless the label is B-X.
    """
    groups: list[Span] = []
    for (start, stop), label in zip(offsets, labels, strict=True):
        kind = label[2:] if label.startswith(("B-", "I-")) else label
        if groups and groups[-1][2] == kind and not label.startswith("B-"):
            groups[-1] = (groups[-1][0], stop, kind)
        else:
            groups.append((start, stop, kind))
    return [group for group in groups if group[2] != "O"]


def _text_and_offsets(sentence: Sentence) -> tuple[str, list[tuple[int, int]]]:
    """Return the text of a sentence, or running text of its words, and the character ranges of the words."""
    if sentence.text is None:
        return running_text(sentence.words)
    return sentence.text, basic_words([sentence.text])[0]


def _truncate(tagger: Tagger, text: str, words: AlignedText) -> AlignedText:
    """Return the words in the first window of a long text; the last word may be cut between two pieces."""
    room = tagger.max_length - words.extra
    (encoding,) = tagger.tokenizer.encode_with_offsets([text])
    cut = encoding.offsets[room - 1][1]
    room -= len(encoding.ids) - len(words.input_ids)  # `words` have no pieces of white space before the first word
    num_words = bisect_left(words.first_piece, room)
    return replace(
        words,
        input_ids=words.input_ids[:room],
        word_index=words.word_index[:room],
        starts_pretoken=words.starts_pretoken[:room],
        first_piece=words.first_piece[:num_words],
        word_offsets=[(start, min(stop, cut)) for start, stop in words.word_offsets[:num_words]],
    )


def _find_differences(
    tagger: Tagger, words: Sequence[Sequence[str]], texts: Sequence[str], offsets: Sequence[Offsets]
) -> tuple[list[int], int]:
    """Return the indices of sentences with other words or pieces in raw text, and the number of words that raw text
    splits differently."""
    texts_aligned = align_raw(tagger.tokenizer, texts, tagger.task.word_splitting)
    words_aligned = align_words(tagger.tokenizer, words)
    different, num_resplit = [], 0
    for index, (from_text, from_words) in enumerate(zip(texts_aligned, words_aligned, strict=True)):
        num_resplit += len(set(offsets[index]).difference(from_text.word_offsets))
        # `from_text` has the attributes of `from_words`, and `word_offsets`
        same_pieces = all(getattr(from_text, name) == value for name, value in vars(from_words).items())
        if from_text.word_offsets != offsets[index] or not same_pieces:
            different.append(index)
    return different, num_resplit


def _spans_of_words(words: Offsets, labelled_words: Offsets, labels: Sequence[str]) -> list[Span]:
    """Return the entities in `words`: a word has the label of the labelled word that starts at the same character, or O
    if no labelled word starts there."""
    label_at = {start: label for (start, _), label in zip(labelled_words, labels, strict=True)}
    return spans_from_tags(to_iob2([label_at.get(start, "O") for start, _ in words]))


def _in_characters(spans: Sequence[Span], offsets: Offsets) -> set[Span]:
    """Return spans in words as spans in characters, given the character ranges of the words."""
    return {(offsets[first][0], offsets[end - 1][1], kind) for first, end, kind in spans}
