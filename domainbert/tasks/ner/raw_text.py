"""Entity F1 on raw text for `predict`, the best label of each word, and `transformers.pipeline`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from domainbert.labelled.entities import Sentence
from domainbert.labelled.tag_schemes import Span, spans_from_tags, to_iob2
from domainbert.metrics.counts import f1_of_sets
from domainbert.tasks.ner.tagger import Tagger
from domainbert.tasks.words import TaggedWords
from domainbert.tokenization.align import align_words, basic_words
from domainbert.tokenization.splitting import align_raw, running_text

Offsets = Sequence[tuple[int, int]]
"""Character ranges of words."""


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
    different, num_lost = _find_differences(tagger, [sentence.words for sentence in sentences], texts, offsets)
    entities = tagger.predict([texts[index] for index in different])
    for index, sentence_entities in zip(different, entities, strict=True):
        predicted[index] = {(entity.start, entity.end, entity.type) for entity in sentence_entities}
    prefix = getattr(tagger.tokenizer.backend.model, "continuing_subword_prefix", None)
    units = align_raw(tagger.tokenizer, texts, "punctuation" if prefix else "whitespace")  # as in the pipeline
    labels = tagger.argmax_labels(units)
    systems = {
        "f1": predicted,
        "argmax_f1": [
            _in_characters(_spans_of_words(words, unit.word_offsets, unit_labels), words)
            for words, unit, unit_labels in zip(offsets, units, labels, strict=True)
        ],
        "pipeline_f1": [
            set(pipeline_entities(unit.word_offsets[:num_read], unit_labels[:num_read]))
            for unit, unit_labels in zip(units, labels, strict=True)
            # the pipeline truncates texts; 2 tokens are [CLS] and [SEP]
            for num_read in [bisect_left(unit.first_piece, tagger.max_length - 2)]
        ],
    }
    scores = {
        name: f1_of_sets(gold, [{span for span in spans if keeps(span[2])} for spans in run])
        for name, run in systems.items()
    }
    return scores | {"words_split_differently": num_lost / max(sum(map(len, offsets)), 1)}


def pipeline_entities(offsets: Offsets, labels: Sequence[str]) -> list[Span]:
    """Return entities in characters, grouped as by `transformers.pipeline`: adjacent labels of the same type, unless
    the label is B-X."""
    groups: list[Span] = []
    for (start, stop), label in zip(offsets, labels, strict=True):
        kind = label[2:] if label.startswith(("B-", "I-")) else label
        if groups and groups[-1][2] == kind and not label.startswith("B-"):
            groups[-1] = (groups[-1][0], stop, kind)
        else:
            groups.append((start, stop, kind))
    return [group for group in groups if group[2] != "O"]


def _text_and_offsets(sentence: Sentence) -> tuple[str, list[tuple[int, int]]]:
    if sentence.text is None:
        return running_text(sentence.words)
    return sentence.text, basic_words([sentence.text])[0]


def _find_differences(
    tagger: Tagger, words: Sequence[Sequence[str]], texts: Sequence[str], offsets: Sequence[Offsets]
) -> tuple[list[int], int]:
    """Return the indices of sentences with other words or pieces in raw text, and the number of words that raw text
    does not have."""
    raw = align_raw(tagger.tokenizer, texts, tagger.task.word_splitting)
    different, num_lost = [], 0
    for index, (from_text, from_words) in enumerate(zip(raw, align_words(tagger.tokenizer, words), strict=True)):
        num_lost += len(set(offsets[index]).difference(from_text.word_offsets))
        same_pieces = all(getattr(from_text, key) == value for key, value in vars(from_words).items())
        if from_text.word_offsets != offsets[index] or not same_pieces:
            different.append(index)
    return different, num_lost


def _spans_of_words(words: Offsets, units: Offsets, labels: Sequence[str]) -> list[Span]:
    """Return the entities in words, where each word has the label of the unit that starts with it, or O."""
    label_at = {start: label for (start, _), label in zip(units, labels, strict=True)}
    return spans_from_tags(to_iob2([label_at.get(start, "O") for start, _ in words]))


def _in_characters(spans: Sequence[Span], offsets: Offsets) -> set[Span]:
    """Return spans in words as spans in characters, given the character ranges of the words."""
    return {(offsets[first][0], offsets[end - 1][1], kind) for first, end, kind in spans}
