"""Entity F1 on raw text for `predict`, the best label of each word, and `transformers.pipeline`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from domainbert.labelled.entities import Sentence
from domainbert.labelled.tag_schemes import Span, spans_from_tags, to_iob2
from domainbert.metrics.counts import f1_of_sets
from domainbert.tasks.ner.tagger import Tagger
from domainbert.tasks.word_task import TaggedWords
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

    # the words of the pipeline: pre-tokens for WordPiece, words between spaces for other vocabularies
    prefix = getattr(tagger.tokenizer.backend.model, "continuing_subword_prefix", None)
    aligned = align_raw(tagger.tokenizer, texts, "punctuation" if prefix else "whitespace")
    argmax_spans, pipeline_spans = [], []
    for text_words, pipeline_words, labels in zip(offsets, aligned, tagger.argmax_labels(aligned), strict=True):
        spans = _spans_of_words(text_words, pipeline_words.word_offsets, labels)
        argmax_spans.append(_in_characters(spans, text_words))
        # the pipeline truncates texts to one window; 2 tokens are [CLS] and [SEP]
        num_read = bisect_left(pipeline_words.first_piece, tagger.max_length - 2)
        pipeline_spans.append(set(pipeline_entities(pipeline_words.word_offsets[:num_read], labels[:num_read])))

    systems = {"f1": predicted, "argmax_f1": argmax_spans, "pipeline_f1": pipeline_spans}
    scores = {
        name: f1_of_sets(gold, [{span for span in spans if keeps(span[2])} for spans in spans_by_text])
        for name, spans_by_text in systems.items()
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
    texts_aligned = align_raw(tagger.tokenizer, texts, tagger.task.word_splitting)
    words_aligned = align_words(tagger.tokenizer, words)
    different, num_lost = [], 0
    for index, (from_text, from_words) in enumerate(zip(texts_aligned, words_aligned, strict=True)):
        num_lost += len(set(offsets[index]).difference(from_text.word_offsets))
        # `from_text` has the attributes of `from_words`, and `word_offsets`
        same_pieces = all(getattr(from_text, name) == value for name, value in vars(from_words).items())
        if from_text.word_offsets != offsets[index] or not same_pieces:
            different.append(index)
    return different, num_lost


def _spans_of_words(words: Offsets, labelled_words: Offsets, labels: Sequence[str]) -> list[Span]:
    """Return the entities in `words`: a word has the label of the labelled word that starts at the same character, or O
    if no labelled word starts there."""
    label_at = {start: label for (start, _), label in zip(labelled_words, labels, strict=True)}
    return spans_from_tags(to_iob2([label_at.get(start, "O") for start, _ in words]))


def _in_characters(spans: Sequence[Span], offsets: Offsets) -> set[Span]:
    """Return spans in words as spans in characters, given the character ranges of the words."""
    return {(offsets[first][0], offsets[end - 1][1], kind) for first, end, kind in spans}
