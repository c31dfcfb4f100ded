"""Tagged sentences in CoNLL, or in JSONL as lists of words and tags or texts with entities in them. Free of torch."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from domainbert.base.errors import DomainbertError, Problems
from domainbert.corpus.json_values import problem_with_list, problem_with_text, shown
from domainbert.corpus.rows import json_rows
from domainbert.tasks.ner.config import Ner, NerFormat
from domainbert.tasks.ner.conll import NerFile, read_conll, tagged_file
from domainbert.tasks.ner.tags import tags_from_spans
from domainbert.tasks.tagged_files import list_keys, read_lists, tagged_rows
from domainbert.tasks.text_files import Row, Stretch, file_kind, refuse, stretch_of

_ENTITY_KEY = "entities"
_TYPE_KEYS = ("label", "type")


class _Keys(NamedTuple):
    content: str
    """Key of the words, or of the text."""
    labels: str
    """Key of the tags, or of the entities."""
    of_text: bool
    """Entities are stretches of characters."""


class _Entity(NamedTuple):
    start: int
    end: int
    type: str
    number: int
    """Its place in the list, from 0."""

    def shown(self, text: str) -> str:
        return f"{reprlib.repr(text[self.start : self.end])} ({self.start}-{self.end})"


def read(config: Ner, path: Path) -> NerFile:
    """See `TaskConfig.read`."""
    return read_ner(path, config.format)


def read_ner(path: Path, format: NerFormat | None = None) -> NerFile:
    """Read tagged sentences from CoNLL or JSONL; `format.kind` says which, or the first lines do."""
    format = format or NerFormat()
    if file_kind(path, format.kind, ("conll", "jsonl"), "format.kind").kind == "jsonl":
        return read_ner_jsonl(path, format)
    return read_conll(path, format.token_column, format.tag_column, format.scheme, format.repair)


def read_ner_jsonl(path: Path, format: NerFormat) -> NerFile:
    """Read a JSONL file of tagged sentences or texts; each line is a document of its own.

    A line is `{"tokens": ["A", ...], "tags": ["O", ...]}`, or `ner_tags`, or tags as numbers whose names `label_names`
    gives; or `{"text": "...", "entities": [{"start": 0, "end": 3, "label": "gene"}]}`, what `predict` writes with the
    key `type`, or entities as `[start, end, label]`. Then the words are those that BERT's normalizer and
    pre-tokenizer cut at white space and punctuation, so a span has to begin and end with words.

    Raises:
        DomainbertError: a broken line, a missing key, a value of another kind, lists of different length, a number
            without a name; an entity that is outside its text, not on the borders of words, or overlaps another.
    """
    problems = Problems(str(path))
    rows = list(json_rows(path, problems))
    if not rows:
        problems.raise_if_any()
        return tagged_file(path, "jsonl", [], format.scheme, format.repair, "")  # which it refuses
    line, first = rows[0]
    keys = _keys(f"{path}:{line}", first, format)
    if not keys.of_text:
        table = read_lists(path, rows, problems, (keys.content, keys.labels), format)
        return tagged_file(path, "jsonl", table.rows, format.scheme, format.repair, table.layout)
    texts = [row[keys.content] for _, row in rows if not problem_with_text(row, keys.content, may_be_empty=True)]
    from domainbert.tokenization.align import basic_words  # imports tokenizers, which a help text does without

    words = dict(zip(texts, basic_words(texts), strict=True))
    tagged = tagged_rows(rows, problems, lambda row: _words_of_text(row, keys, words))
    layout = f"JSONL, texts in {keys.content!r}, entities in {keys.labels!r}, words cut at spaces and punctuation"
    return tagged_file(path, "jsonl", tagged, "IOB2", False, layout)


def _keys(where: str, first: Row, format: NerFormat) -> _Keys:
    """Keys of the first row, unless the format names them."""
    if format.entity_key is not None:
        return _Keys(format.text_key, format.entity_key, True)
    words, tags = list_keys(where, first, format)
    if not isinstance(format.tag_column, str):
        if tags in first and _ENTITY_KEY in first:
            raise DomainbertError(
                f"{where}: both {tags!r} and {_ENTITY_KEY!r}; expected one, or tag_column or entity_key to name it"
            )
        if _ENTITY_KEY in first or (format.text_key in first and words not in first and tags not in first):
            return _Keys(format.text_key, _ENTITY_KEY, True)
    return _Keys(words, tags, False)


def _words_of_text(row: Row, keys: _Keys, words_of: dict[str, list[Stretch]]) -> tuple[list[str], list[str]]:
    refuse(problem_with_text(row, keys.content, may_be_empty=True), problem_with_list(row, keys.labels))
    text: str = row[keys.content]
    words = words_of[text]
    problems, entities, spans = [], [], []
    for number, value in enumerate(row[keys.labels]):
        try:
            entities.append(_entity(text, value, number))
        except DomainbertError as error:
            problems.append(f"{keys.labels}[{number}]: {error}")
    entities.sort(key=lambda one: (one.start, one.end))
    for one, other in pairwise(entities):
        if other.start < one.end:
            pair = f"{one.shown(text)} and {other.shown(text)}"
            problems.append(f"{pair} overlap; expected entities apart from each other: a word has one tag")
    for one in entities:
        inside = [number for number, (start, end) in enumerate(words) if start < one.end and end > one.start]
        if inside and (words[inside[0]][0], words[inside[-1]][1]) == (one.start, one.end):
            spans.append((inside[0], inside[-1] + 1, one.type))
        else:
            found = _off_borders(one, text, [words[number] for number in inside])
            problems.append(f"{keys.labels}[{one.number}]: {found}")
    refuse(*problems)
    return [text[start:end] for start, end in words], tags_from_spans(spans, len(words))


def _entity(text: str, value: Any, number: int) -> _Entity:
    """An entity from an object, or from a list of start, end and label; or `DomainbertError`."""
    if isinstance(value, list) and len(value) == 3:
        value = dict(zip(("start", "end", "label"), value, strict=True))
    if not isinstance(value, dict):
        raise DomainbertError(f"is {shown(value)}; expected an object with start, end and label, or a list of them")
    kinds = {value[key] if isinstance(value[key], str) else None for key in _TYPE_KEYS if key in value}
    kind = kinds.pop() if len(kinds) == 1 else None
    if not kind:
        found = ", ".join(f"{key} {shown(value[key])}" for key in _TYPE_KEYS if key in value) or "neither"
        raise DomainbertError(f"{found}; expected its type as a string under 'label' or 'type'")
    return _Entity(*stretch_of(text, value), kind, number)


def _off_borders(one: _Entity, text: str, inside: Sequence[Stretch]) -> str:
    ends = [*inside[:1], *inside[1:][-1:]]
    there = ", ".join(f"{reprlib.repr(text[start:end])} ({start}-{end})" for start, end in ends) or "some word"
    return f"{one.shown(text)} is not on the borders of words; expected it to begin and end as {there} does"
