"""Tagged sentences in CoNLL, or in JSONL as lists of words and tags or texts with entities in them. Free of torch."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

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
from domainbert.tasks.ner.config import Ner, NerFormat
from domainbert.tasks.ner.conll import NerFile, TaggedRows, read_conll, tagged_file
from domainbert.tasks.ner.tags import tags_from_spans
from domainbert.tasks.text_files import Row, file_kind, parsed, refuse

_TAG_KEYS = ("tags", "ner_tags")
_ENTITY_KEY = "entities"
_TYPE_KEYS = ("label", "type")

Stretch = tuple[int, int]
"""The first character, and the one after the last."""

WordsAndTags = tuple[list[str], list[str]]


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
        names = label_names(format.label_names, format.label_names_file, first, f"{path}:{line}")
        tagged = _tagged(rows, problems, lambda row: _words_and_tags(row, keys, names))
        layout = f"JSONL, words in {keys.content!r}, tags in {keys.labels!r}"
        return tagged_file(path, "jsonl", tagged, format.scheme, format.repair, layout)
    texts = [row[keys.content] for _, row in rows if not problem_with_text(row, keys.content, may_be_empty=True)]
    from domainbert.tokenization.align import basic_words  # imports tokenizers, which a help text does without

    words = dict(zip(texts, basic_words(texts), strict=True))
    tagged = _tagged(rows, problems, lambda row: _words_of_text(row, keys, words))
    layout = f"JSONL, texts in {keys.content!r}, entities in {keys.labels!r}, words cut at spaces and punctuation"
    return tagged_file(path, "jsonl", tagged, "IOB2", False, layout)


def _keys(where: str, first: Row, format: NerFormat) -> _Keys:
    """Keys of the first row, unless the format names them."""
    tokens = format.token_column if isinstance(format.token_column, str) else "tokens"
    if format.entity_key is not None:
        return _Keys(format.text_key, format.entity_key, True)
    if isinstance(format.tag_column, str):
        return _Keys(tokens, format.tag_column, False)
    tags = [key for key in _TAG_KEYS if key in first]
    if len(tags) > 1:
        raise DomainbertError(f"{where}: both {listed(tags)}; expected one of them, or tag_column to name it")
    if tags and _ENTITY_KEY in first:
        raise DomainbertError(
            f"{where}: both {tags[0]!r} and {_ENTITY_KEY!r}; expected one, or tag_column or entity_key to name it"
        )
    if _ENTITY_KEY in first or (format.text_key in first and tokens not in first and not tags):
        return _Keys(format.text_key, _ENTITY_KEY, True)
    return _Keys(tokens, tags[0] if tags else _TAG_KEYS[0], False)


def _tagged(
    rows: Iterable[tuple[int, Row]], problems: Problems, parse: Callable[[Row], WordsAndTags]
) -> list[TaggedRows]:
    found = parsed(rows, problems, lambda row, line: (line, *parse(row)))
    problems.raise_if_any()
    return [
        TaggedRows(words, tags, [line] * len(words), line, number) for number, (line, words, tags) in enumerate(found)
    ]


def _words_and_tags(row: Row, keys: _Keys, names: Sequence[str] | None) -> WordsAndTags:
    tags: Any = row.get(keys.labels)
    numbered = isinstance(tags, list) and any(map(is_whole_number, tags))
    wrong = _problem_with_numbers(tags, keys.labels, names) if numbered else problem_with_strings(row, keys.labels)
    refuse(problem_with_strings(row, keys.content), wrong)
    words = row[keys.content]
    if len(words) != len(tags):
        refuse(f"{len(words)} {keys.content} but {len(tags)} {keys.labels}; expected as many")
    return words, [(names or ())[number] for number in tags] if numbered else tags


def _problem_with_numbers(numbers: Sequence[Any], key: str, names: Sequence[str] | None) -> str:
    if names is None:
        first = next(filter(is_whole_number, numbers))
        return f"{key!r} holds the number {first}; expected names of tags (label_names says what numbers stand for)"
    for number in numbers:
        if not is_whole_number(number) or not 0 <= number < len(names):
            return f"{key!r} holds {shown(number)}; expected numbers from 0 to {len(names) - 1} (label_names)"
    return ""


def _words_of_text(row: Row, keys: _Keys, words_of: dict[str, list[Stretch]]) -> WordsAndTags:
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
    start: Any = value.get("start")
    end: Any = value.get("end")
    if not is_whole_number(start) or not is_whole_number(end):
        raise DomainbertError(f"start {shown(start)}, end {shown(end)}; expected numbers of characters")
    if not 0 <= start < end <= len(text):
        raise DomainbertError(f"characters {start}-{end}; expected some of the {len(text)} of the text, end exclusive")
    own = value.get("text")
    if isinstance(own, str) and own != text[start:end]:
        found = f"characters {start}-{end} are {reprlib.repr(text[start:end])}, its text is {reprlib.repr(own)}"
        raise DomainbertError(f"{found}; expected the same (offsets count Unicode characters, not bytes)")
    return _Entity(start, end, kind, number)


def _off_borders(one: _Entity, text: str, inside: Sequence[Stretch]) -> str:
    ends = [*inside[:1], *inside[1:][-1:]]
    there = ", ".join(f"{reprlib.repr(text[start:end])} ({start}-{end})" for start, end in ends) or "some word"
    return f"{one.shown(text)} is not on the borders of words; expected it to begin and end as {there} does"
