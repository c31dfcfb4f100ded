"""Scoring of named entity recognition: strict entity F1, and F1 on raw text."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter
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
from domainbert.tasks.counted_scoring import CountedScoring
from domainbert.tasks.mistakes import CORRECT, Mark, Mistake
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.tagger import Tagger
from domainbert.tasks.word_task import TaggedScoring, TaggedWords
from domainbert.tokenization.align import AlignedText, align_words, basic_words
from domainbert.tokenization.splitting import align_raw, printed_texts

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
        Breakdown("F1 by words", "by_length", {"f1": ""}),
        Breakdown("F1 by surface in training", "by_novelty", {"f1": ""}),
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
        self._printed: PrintedTexts | None = None  # for the next model

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
    def prepare(self, predictor: Any) -> int:
        """Prepare the scores on raw text."""
        self._printed = PrintedTexts(predictor, self.test.sentences) if isinstance(predictor, Tagger) else None
        return super().prepare(predictor) + (self._printed.num_predicted if self._printed else 0)

    @override
    def add_model(self, system: str, seed: str, predictor: Any, path: Path) -> None:
        """Predict all items and store the predictions, the number of repaired tags, and prepared scores on raw text."""
        super().add_model(system, seed, predictor, path)
        self._repaired[system] += predictor.num_repaired
        if self._printed is not None:
            scores = self._printed.scores(self.predictions[system][seed], self.config.format.keeps)
            self._raw_text.setdefault(system, []).append(scores)
            self._printed = None

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
                    f"{scored:,} entities scored for {name!r}",
                    file=self.test.path,
                    expected=f"{self.num_gold:,}",
                    hint="report it",
                )
            if name in self._repaired:  # `trainer.test` does not count them
                system["repaired_tags"] = self._repaired[name]
            scores_by_seed = self._raw_text.get(name)
            has_f1 = system["f1"] is not None  # undefined without entities in gold and predictions
            if scores_by_seed and has_f1:
                system["raw_text"] = {
                    key: sum(scores[key] for scores in scores_by_seed) / len(scores_by_seed)
                    for key in scores_by_seed[0]
                }
        return summary

    @override
    def mistake(self, item: Sentence, prediction: TaggedWords) -> Mistake | None:
        """Return the errors or None; the severity is the largest probability of a wrong entity, or of O if missed."""
        pairs = judge_entities(item.spans, spans_from_tags(prediction.tags))
        scores = prediction.scores  # equal for all words of a predicted entity; a missed entity has scores of O
        probabilities = []  # of the errors
        for pair in pairs:
            span = pair.predicted or pair.gold  # the gold entity if it is missed
            if pair.kind != CORRECT and span:
                probabilities.append(min(scores[span[0] : span[1]]))
        if not probabilities:
            return None
        text, offsets = join_words(item.words)
        gold = [_mark(pair.gold, offsets, pair.kind) for pair in pairs if pair.gold]
        predicted = [_mark(pair.predicted, offsets, pair.kind, scores) for pair in pairs if pair.predicted]
        by_start = attrgetter("start")
        return Mistake(text, sorted(gold, key=by_start), sorted(predicted, key=by_start), max(probabilities))

    @override
    def confusion_pairs(self, item: Sentence, prediction: TaggedWords) -> Iterator[Pair]:
        """Yield the (gold, predicted) types of entities paired by `judge_entities`; None for an unpaired entity."""
        for gold, predicted, _ in judge_entities(item.spans, spans_from_tags(prediction.tags)):
            yield gold[2] if gold else None, predicted[2] if predicted else None

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
        lines = super().lines(summary) + error_lines(systems)
        return [*lines, "", *notes] if notes else lines


def _spans(predictions: Sequence[TaggedWords]) -> list[list[Span]]:
    return [spans_from_tags(tagged.tags) for tagged in predictions]


def _mark(span: Span, offsets: Sequence[Stretch], kind: str, scores: Sequence[float] | None = None) -> Mark:
    # the score of the first word is the score of the span
    first, end, label = span
    score = None if scores is None else scores[first]
    return Mark(label, offsets[first][0], offsets[end - 1][1], score, kind)


class PrintedTexts:
    """The sentences of a test set as raw text for a tagger: the texts of the file, or its words as they are printed.

    A sentence has two texts if print may have blanks around some of its marks or not. `scores` predicts `num_predicted`
    texts.
    """

    def __init__(self, tagger: Tagger, sentences: Sequence[Sentence]) -> None:
        compact, spaced = _texts_and_offsets(sentences, compact=True), _texts_and_offsets(sentences, compact=False)
        # rows are texts: the compact texts of all sentences, then the spaced texts that differ
        indices = range(len(sentences))
        differing = [index for index in indices if compact[index] != spaced[index]]
        self.sentence_of = [*indices, *differing]  # index of each row's sentence
        self.texts, self.offsets = zip(*compact, *(spaced[index] for index in differing), strict=True)
        spaced_row = {index: row for row, index in enumerate(self.sentence_of)}  # the last row of a sentence
        self.printings = [indices, [spaced_row[index] for index in indices]]  # rows of the compact and spaced texts
        rows = list(zip(self.sentence_of, self.offsets, strict=True))
        self.tagger, self.gold = tagger, [_in_characters(sentences[index].spans, offsets) for index, offsets in rows]

        from_texts = align_raw(tagger.tokenizer, self.texts, tagger.task.word_splitting)
        from_words = align_words(tagger.tokenizer, [sentences[index].words for index in self.sentence_of])
        self.num_resplit: list[int] = []  # words that the text splits differently, of each row
        self.different: list[int] = []  # rows whose text has other words or pieces than the list of words
        for row, (offsets, text, words) in enumerate(zip(self.offsets, from_texts, from_words, strict=True)):
            self.num_resplit.append(len(set(offsets).difference(text.word_offsets)))
            has_same_pieces = all(getattr(text, name) == value for name, value in vars(words).items())
            if offsets != text.word_offsets or not has_same_pieces:
                self.different.append(row)
        # the words of the pipeline: pre-tokens for WordPiece, words between spaces for other vocabularies
        prefix = getattr(tagger.tokenizer.backend.model, "continuing_subword_prefix", None)
        self.aligned = align_raw(tagger.tokenizer, self.texts, "punctuation" if prefix else "whitespace")
        # the pipeline truncates texts to one window
        lengths = [len(words.input_ids) + words.extra for words in self.aligned]
        self.long = [row for row, length in enumerate(lengths) if length > tagger.max_length]
        self.num_predicted = len(self.different) + len(self.texts) + len(self.long)

    def scores(self, tagged: Sequence[TaggedWords], keeps: Callable[[str], bool]) -> dict[str, float]:
        """Return strict entity F1 by characters: of two printings, the scores of the one with the lower F1.

        `tagged` are the predictions for the words: only texts with other words or pieces are predicted again. `keeps`
        selects the entity types. The scores are `f1` of `predict`; `argmax_f1` of the best label of each word;
        `pipeline_f1` of `transformers.pipeline` with `aggregation_strategy="first"`; and `words_split_differently`, the
        share of words that raw text splits differently.
        """
        tagger, texts, offsets = self.tagger, self.texts, self.offsets
        spans_of_words = [spans_from_tags(tagged[index].tags) for index in self.sentence_of]
        predicted = list(map(_in_characters, spans_of_words, offsets))
        entities = tagger.predict([texts[row] for row in self.different])
        for row, row_entities in zip(self.different, entities, strict=True):
            predicted[row] = {(entity.start, entity.end, entity.type) for entity in row_entities}

        argmax_spans, pipeline_spans = [], []
        for row_offsets, words, labels in zip(offsets, self.aligned, tagger.argmax_labels(self.aligned), strict=True):
            spans = _spans_of_words(row_offsets, words.word_offsets, labels)
            argmax_spans.append(_in_characters(spans, row_offsets))
            pipeline_spans.append(set(pipeline_entities(words.word_offsets, labels)))
        # the pipeline sees only the first window of a long text
        truncated = [_truncate(tagger, texts[row], self.aligned[row]) for row in self.long]
        for row, words, labels in zip(self.long, truncated, tagger.argmax_labels(truncated), strict=True):
            pipeline_spans[row] = set(pipeline_entities(words.word_offsets, labels))

        systems = {"f1": predicted, "argmax_f1": argmax_spans, "pipeline_f1": pipeline_spans}

        def scores_of(rows: Sequence[int]) -> dict[str, float]:
            num_words = max(sum(len(offsets[row]) for row in rows), 1)
            scores = {"words_split_differently": sum(self.num_resplit[row] for row in rows) / num_words}
            for name, spans_of_rows in systems.items():
                selected = [{span for span in spans_of_rows[row] if keeps(span[2])} for row in rows]
                scores[name] = f1_of_sets([self.gold[row] for row in rows], selected)
            return scores

        return min(map(scores_of, self.printings), key=itemgetter("f1"))


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


def _texts_and_offsets(sentences: Sequence[Sentence], compact: bool) -> list[tuple[str, list[tuple[int, int]]]]:
    """Return the text of each sentence, or its printed words, and the character ranges of the words."""
    printed = printed_texts([sentence.words for sentence in sentences], compact)
    return [
        text_and_offsets if sentence.text is None else (sentence.text, basic_words([sentence.text])[0])
        for sentence, text_and_offsets in zip(sentences, printed, strict=True)
    ]


def _truncate(tagger: Tagger, text: str, words: AlignedText) -> AlignedText:
    """Return the words in the first window of a long text; the last word may be cut between two pieces."""
    room = tagger.max_length - words.extra
    (encoding,) = tagger.tokenizer.encode_with_offsets([text])
    _, end = encoding.offsets[room - 1]  # of the window, in characters
    # `encoding` may begin with pieces of white space, which `words` lack
    num_pieces = room - (len(encoding.ids) - len(words.input_ids))
    num_words = bisect_left(words.first_piece, num_pieces)
    return replace(
        words,
        input_ids=words.input_ids[:num_pieces],
        word_index=words.word_index[:num_pieces],
        starts_pretoken=words.starts_pretoken[:num_pieces],
        first_piece=words.first_piece[:num_words],
        word_offsets=[(start, min(stop, end)) for start, stop in words.word_offsets[:num_words]],
    )


def _spans_of_words(words: Offsets, labelled_words: Offsets, labels: Sequence[str]) -> list[Span]:
    """Return the entities in `words`: a word has the label of the labelled word that starts at the same character, or O
    if no labelled word starts there."""
    label_at = {start: label for (start, _), label in zip(labelled_words, labels, strict=True)}
    return spans_from_tags(to_iob2([label_at.get(start, "O") for start, _ in words]))


def _in_characters(spans: Sequence[Span], offsets: Offsets) -> set[Span]:
    return {(offsets[first][0], offsets[end - 1][1], kind) for first, end, kind in spans}
