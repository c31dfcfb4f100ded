"""The strict reader of tagged JSONL: lists of words and tags, or texts with entities as stretches of characters."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from domainbert.base.errors import DomainbertError, Problems
from domainbert.corpus.json_values import (
    is_whole_number,
    listed,
    problem_with_list,
    problem_with_strings,
    problem_with_text,
    shown,
)
from domainbert.corpus.rows import json_rows
from domainbert.tasks.label_names import label_names
from domainbert.tasks.ner.config import NerFormat
from domainbert.tasks.ner.conll import NerFile, TaggedRows, tagged_file
from domainbert.tasks.ner.tags import tags_from_spans

_TAG_KEYS = ("tags", "ner_tags")
_ENTITY_KEY = "entities"
_TYPE_KEYS = ("label", "type")

Row = tuple[int, dict[str, Any]]


@dataclass(frozen=True)
class _Keys:
    """Keys of words, tags and entities in a file."""

    kind: Literal["words", "characters"]
    content: str
    """Key of the words, or of the text."""
    labels: str
    """Key of the tags, or of the entities."""


@dataclass(frozen=True)
class _Entity:
    """Characters `start` to `end` (exclusive) of a text."""

    start: int
    end: int
    type: str
    number: int
    """Its place in the list, from 0."""

    def shown(self, text: str) -> str:
        """For a message."""
        return f"{reprlib.repr(text[self.start : self.end])} ({self.start}-{self.end})"


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
        raise DomainbertError(f"{path}: no sentences; expected words with tags")
    keys = _keys(f"{path}:{rows[0][0]}", rows[0][1], format)
    if keys.kind == "words":
        names = label_names(format, rows[0][1], f"{path}:{rows[0][0]}")
        tagged = _read(path, rows, problems, lambda row: _words_and_tags(row, keys, names))
        layout = f"JSONL, words in {keys.content!r}, tags in {keys.labels!r}"
        return tagged_file(path, "jsonl", tagged, format.scheme, format.repair, layout)
    texts = [row[keys.content] for _, row in rows if not problem_with_text(row, keys.content, may_be_empty=True)]
    from domainbert.tokenization.align import basic_words  # imports tokenizers, which a help text does without

    words = dict(zip(texts, basic_words(texts), strict=True))
    tagged = _read(path, rows, problems, lambda row: _words_of_text(row, keys, words))
    layout = f"JSONL, texts in {keys.content!r}, entities in {keys.labels!r}, words cut at spaces and punctuation"
    return tagged_file(path, "jsonl", tagged, "IOB2", False, layout)


def _keys(where: str, first: dict[str, Any], format: NerFormat) -> _Keys:
    """Keys of the first row, unless the format names them."""
    tokens = format.token_column if isinstance(format.token_column, str) else "tokens"
    if format.entity_key is not None:
        return _Keys("characters", format.text_key, format.entity_key)
    if isinstance(format.tag_column, str):
        return _Keys("words", tokens, format.tag_column)
    tags = [key for key in _TAG_KEYS if key in first]
    if len(tags) > 1:
        raise DomainbertError(f"{where}: both {listed(tags)}; expected one of them, or tag_column to name it")
    if tags and _ENTITY_KEY in first:
        raise DomainbertError(
            f"{where}: both {tags[0]!r} and {_ENTITY_KEY!r}; expected one, or tag_column or entity_key to name it"
        )
    if _ENTITY_KEY in first or (format.text_key in first and tokens not in first and not tags):
        return _Keys("characters", format.text_key, _ENTITY_KEY)
    return _Keys("words", tokens, tags[0] if tags else _TAG_KEYS[0])


Parse = Callable[[dict[str, Any]], "tuple[list[str], list[str]]"]


def _read(path: Path, rows: Sequence[Row], problems: Problems, parse: Parse) -> list[TaggedRows]:
    """Words and tags of all rows; `parse` raises what is wrong with one."""
    tagged: list[TaggedRows] = []
    for line, row in rows:
        try:
            words, tags = parse(row)
        except DomainbertError as error:
            for problem in error.problems:
                problems.add(f"{path}:{line}: {problem}")
            continue
        tagged.append(TaggedRows(words, tags, [line] * len(words), line, document=len(tagged)))
    problems.raise_if_any()
    return tagged


def _raise(*found: str) -> None:
    """All that is wrong with one row, each filled string a problem."""
    problems = Problems("row")
    for problem in filter(None, found):
        problems.add(problem)
    problems.raise_if_any()


def _words_and_tags(row: dict[str, Any], keys: _Keys, names: Sequence[str] | None) -> tuple[list[str], list[str]]:
    numbered = isinstance(row.get(keys.labels), list) and any(map(is_whole_number, row[keys.labels]))
    if numbered:
        _raise(problem_with_strings(row, keys.content), _problem_with_numbers(row[keys.labels], keys.labels, names))
        tags = [(names or [])[number] for number in row[keys.labels]]
    else:
        _raise(problem_with_strings(row, keys.content), problem_with_strings(row, keys.labels))
        tags = row[keys.labels]
    words: list[str] = row[keys.content]
    if len(words) != len(tags):
        _raise(f"{len(words)} {keys.content} but {len(tags)} {keys.labels}; expected as many")
    return words, tags


def _problem_with_numbers(numbers: Sequence[Any], key: str, names: Sequence[str] | None) -> str:
    if names is None:
        first = next(filter(is_whole_number, numbers))
        return f"{key!r} holds the number {first}; expected names of tags (label_names says what numbers stand for)"
    for number in numbers:
        if not is_whole_number(number) or not 0 <= number < len(names):
            return f"{key!r} holds {shown(number)}; expected numbers from 0 to {len(names) - 1} (label_names)"
    return ""


def _words_of_text(
    row: dict[str, Any], keys: _Keys, words_of: dict[str, list[tuple[int, int]]]
) -> tuple[list[str], list[str]]:
    _raise(problem_with_text(row, keys.content, may_be_empty=True), problem_with_list(row, keys.labels))
    text: str = row[keys.content]
    problems, entities = Problems("row"), []
    for number, value in enumerate(row[keys.labels]):
        try:
            entities.append(_entity(text, value, number))
        except DomainbertError as error:
            problems.add(f"{keys.labels}[{number}]: {error}")
    entities.sort(key=lambda one: (one.start, one.end))
    for one, other in pairwise(entities):
        if other.start < one.end:
            pair = f"{one.shown(text)} and {other.shown(text)}"
            problems.add(f"{pair} overlap; expected entities apart from each other: a word has one tag")
    spans = []
    for one in entities:
        span = _span(one, words_of[text])
        if span is None:
            problems.add(f"{keys.labels}[{one.number}]: {_off_borders(one, text, words_of[text])}")
        else:
            spans.append((*span, one.type))
    problems.raise_if_any()
    return [text[start:end] for start, end in words_of[text]], tags_from_spans(spans, len(words_of[text]))


def _entity(text: str, value: Any, number: int) -> _Entity:
    """An entity from an object, or from a list of start, end and label.

    Raises:
        DomainbertError: what is wrong with it.
    """
    if isinstance(value, list) and len(value) == 3:
        value = dict(zip(("start", "end", "label"), value, strict=True))
    if not isinstance(value, dict):
        raise DomainbertError(f"is {shown(value)}; expected an object with start, end and label, or a list of them")
    start: Any = value.get("start")
    end: Any = value.get("end")
    kinds = {value[key] if isinstance(value[key], str) else None for key in _TYPE_KEYS if key in value}
    kind = kinds.pop() if len(kinds) == 1 else None
    if not kind:
        found = ", ".join(f"{key} {shown(value[key])}" for key in _TYPE_KEYS if key in value) or "neither"
        raise DomainbertError(f"{found}; expected its type as a string under 'label' or 'type'")
    if not is_whole_number(start) or not is_whole_number(end):
        raise DomainbertError(f"start {shown(start)}, end {shown(end)}; expected numbers of characters")
    if not 0 <= start < end <= len(text):
        raise DomainbertError(f"characters {start}-{end}; expected some of the {len(text)} of the text, end exclusive")
    if isinstance(value.get("text"), str) and value["text"] != text[start:end]:
        found = (
            f"characters {start}-{end} are {reprlib.repr(text[start:end])}, its text is {reprlib.repr(value['text'])}"
        )
        raise DomainbertError(f"{found}; expected the same (offsets count Unicode characters, not bytes)")
    return _Entity(start, end, kind, number)


def _span(one: _Entity, words: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The first word of an entity and the one after its last; None where it does not begin and end with words."""
    inside = [number for number, (start, end) in enumerate(words) if start < one.end and end > one.start]
    if not inside or words[inside[0]][0] != one.start or words[inside[-1]][1] != one.end:
        return None
    return inside[0], inside[-1] + 1


def _off_borders(one: _Entity, text: str, words: Sequence[tuple[int, int]]) -> str:
    inside = [(start, end) for start, end in words if start < one.end and end > one.start]
    there = ", ".join(
        f"{reprlib.repr(text[start:end])} ({start}-{end})" for start, end in (inside[:1] + inside[1:][-1:])
    )
    return (
        f"{one.shown(text)} is not on the borders of words; expected it to begin and end as {there or 'some word'} does"
    )
