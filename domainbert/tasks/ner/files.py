"""Reader of tagged sentences in CoNLL, of words with tags or texts with entities in JSONL, and of annotation exports.
Free of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from domainbert.base.errors import DomainbertError, Problems
from domainbert.corpus.file_kind import KIND_NAMES, Kind
from domainbert.corpus.rows import Row, Rows, open_file
from domainbert.labelled.annotation_tools import ToolRows, read_brat, read_json_export
from domainbert.labelled.char_spans import Stretch, format_char_span, read_char_span, strip_span, words_inside
from domainbert.labelled.conll import TaggedRows, TaggedTable, read_columns, refuse_names_for_conll
from domainbert.labelled.entities import NerFile, entities_left_out, tagged_file
from domainbert.labelled.formats import ENTITY_KEYS, NerFormat
from domainbert.labelled.items import ReaderCounts
from domainbert.labelled.row_values import problem_with_list, problem_with_text, raise_problems, shown
from domainbert.labelled.rows import without_rejected
from domainbert.labelled.tag_schemes import tags_from_spans
from domainbert.labelled.tagged_files import read_lists, sentence_rows, word_and_tag_keys
from domainbert.tasks.ner.config import Ner

_TYPE_KEYS = ("label", "type")


class _Keys(NamedTuple):
    content: str
    """Key of the words or of the text."""
    labels: str
    """Key of the tags or of the entities."""
    is_text: bool
    """Whether entities are character ranges of a text."""


class _Entity(NamedTuple):
    start: int
    end: int
    type: str
    list_index: int
    """Index in the list of entities."""


def read_ner(file: Path | Rows, format: NerFormat | None = None) -> NerFile:
    """Return the sentences of a file; see `read`."""
    return read(Ner(format=format or NerFormat()), file)


def read(config: Ner, file: Path | Rows) -> NerFile:
    """Return tagged sentences from CoNLL, JSONL, an export of an annotation tool or rows in memory, for
    `TaskConfig.read`.

    `format.kind` or the first lines of the file decide which. Each row of JSONL, and each text of an export, is a
    separate document. A row has one of these forms:

    - `{"tokens": ["A", ...], "tags": ["O", ...]}`, or `ner_tags` in place of `tags`; tags may be numbers, which index
      the names in `label_names`;
    - `{"text": "...", "entities": [{"start": 0, "end": 3, "label": "gene"}]}`, or `type` in place of `label`, as
      `predict` writes it, or entities as `[start, end, label]`. BERT's normalizer and pre-tokenizer split a text into
      words at white space and punctuation; entities must begin and end at word boundaries.

    Raises:
        DomainbertError: as `read_columns`, `read_lists`, `annotation_tools` and `tagged_file`; label names set for
            CoNLL; an entity outside its text, not aligned with words, or overlapping another entity; no text.
    """
    format, path = config.format, Path(str(file))
    problems, notes = Problems(str(file)), ReaderCounts()
    if isinstance(file, Path) and (format.kind == "brat" or (format.kind == "auto" and path.is_dir())):
        return _read_export(path, read_brat(path, format, problems), format, problems)
    kind = "json" if format.kind == "label_studio" else format.kind
    opened = open_file(file, kind, ("conll", "jsonl"), reads_exports=True)
    if opened.kind == "conll":
        refuse_names_for_conll(format, file)
        return tagged_file(path, read_columns(path, opened.lines, format), format, notes)
    if opened.kind == "json":
        return _read_export(path, read_json_export(path, format, problems), format, problems)
    rows = sentence_rows(opened, problems, notes.left_out)
    line, first_row = rows[0]
    keys = _detect_keys(f"{file}:{line}", first_row, format)
    if keys.is_text:
        texts = ToolRows(KIND_NAMES[opened.kind], rows, notes.left_out)
        return _read_entities(file, texts, keys, format, problems)
    table = read_lists(opened, rows, problems, (keys.content, keys.labels), format)
    return tagged_file(path, table, format, notes)


def _read_export(path: Path, export: ToolRows, format: NerFormat, problems: Problems) -> NerFile:
    if not export.rows:
        problems.raise_if_any()
        raise DomainbertError("no annotated texts", file=path, expected=f"at least one in {export.layout}")
    keys = _Keys(format.text_key, ENTITY_KEYS[0], is_text=True)
    if export.layout == "JSON":  # otherwise the tool's reader names the keys of the rows
        problems.raise_if_any()  # before the first row decides on the keys
        line, first_row = export.rows[0]
        keys = _detect_keys(f"{path}:{line}", first_row, format)
        if not keys.is_text:
            return read_ner(path, replace(format, kind="jsonl"))
    return _read_entities(path, export, keys, format, problems)


def _read_entities(file: Path | Rows, table: ToolRows, keys: _Keys, format: NerFormat, problems: Problems) -> NerFile:
    from domainbert.tokenization.align import basic_words  # imports tokenizers, which --help does not need

    notes = ReaderCounts(table.left_out)
    rows = list(without_rejected(table.rows, notes.left_out))
    texts = [row[keys.content] for _, row in rows if not problem_with_text(row, keys.content, may_be_empty=True)]
    words = dict(zip(texts, basic_words(texts), strict=True))  # all texts in one call, which is faster
    tagged = []

    def locate_in_list(line: int, index: int) -> str:
        return f"{file}:{line}: {keys.labels}[{index}]"

    for document, (number, row) in enumerate(rows):
        locate = partial(table.locate_entity or locate_in_list, number)  # from the index of an entity
        own_file, line = (table.files[number - 1], 1) if table.files else (None, number)
        try:
            row_words, tags = _words_of_text(row, keys, words, format, notes, locate)
            lines = [line] * len(row_words)
            tagged.append(TaggedRows(row_words, tags, lines, line, document, row[keys.content], own_file))
        except DomainbertError as error:
            for part in error.errors:  # a problem of an entity has its own place
                problems.add(part if part.file else part.within(file=own_file or file, line=line))
    problems.raise_if_any()
    where = f"texts in {keys.content!r}, entities in {keys.labels!r}, words cut at spaces and punctuation"
    kind: Kind = "rows" if isinstance(file, Rows) else "jsonl"
    export = "" if table.layout == KIND_NAMES[kind] else table.layout
    tagged_table = TaggedTable(tagged, [], kind, f"{table.layout}, {where}", scheme="IOB2")
    return tagged_file(Path(str(file)), tagged_table, format, notes, export)


def _detect_keys(where: str, first_row: Row, format: NerFormat) -> _Keys:
    """Return the keys in the format, otherwise the keys of the first row (words and tags, or text and entities)."""
    if format.entity_key is not None:
        return _Keys(format.text_key, format.entity_key, is_text=True)
    words, tags = word_and_tag_keys(where, first_row, format)
    if isinstance(format.tag_column, str):
        return _Keys(words, tags, is_text=False)
    label_keys = [key for key in (tags, *ENTITY_KEYS) if key in first_row]
    if len(label_keys) > 1:
        found = " and ".join(map(repr, label_keys))
        raise DomainbertError(
            where=where, found=f"labels under {found}", expected="one of them in format.tag_column or format.entity_key"
        )
    if label_keys and label_keys != [tags]:
        return _Keys(format.text_key, label_keys[0], is_text=True)
    if not label_keys and format.text_key in first_row and words not in first_row:
        return _Keys(format.text_key, ENTITY_KEYS[0], is_text=True)  # the reader of texts raises the error
    return _Keys(words, tags, is_text=False)


def _words_of_text(
    row: Row,
    keys: _Keys,
    words_of: Mapping[str, list[Stretch]],
    format: NerFormat,
    notes: ReaderCounts,
    locate: Callable[[int], str],
) -> tuple[list[str], list[str]]:
    """Return the words of a text and their IOB2 tags; `locate` maps the index of an entity to its path and line."""
    list_problem = problem_with_list(row, keys.labels)
    if keys.labels not in row:
        other_key = "set format.entity_key, for older exports of doccano to 'label'"
        advice = f"write {keys.labels!r}: [] in a text without entities, or {other_key}"
        list_problem = DomainbertError(f"{list_problem} ({advice})")
    raise_problems(problem_with_text(row, keys.content, may_be_empty=True), list_problem)
    text: str = row[keys.content]
    words = words_of[text]
    problems = Problems("row")
    entities, spans = [], []
    for index, value in enumerate(row[keys.labels]):
        with problems.collecting(locate(index)):
            entity = _parse_entity(text, value, index)
            if format.keeps(entity.type):
                entities.append(_trim(entity, text, notes.changed) if format.trim else entity)
            else:
                notes.left_out[entities_left_out(entity.type)] += 1
    entities.sort(key=lambda entity: (entity.start, entity.end))
    problems.errors += _overlap_problems(text, entities, locate)
    for entity in entities:
        try:
            first_word, end_word = words_inside(text, (entity.start, entity.end), words)
            spans.append((first_word, end_word, entity.type))
        except DomainbertError as error:
            inside = text[entity.start : entity.end]
            hint = " (format.trim: true removes white space at its ends)" if inside != inside.strip() else ""
            problems.add(error.problem, where=locate(entity.list_index), expected=error.expected + hint)
    problems.raise_if_any()
    return [text[start:end] for start, end in words], tags_from_spans(spans, len(words))


def _overlap_problems(
    text: str, entities: Sequence[_Entity], locate: Callable[[int], str]
) -> Iterator[DomainbertError]:
    # `entities` are sorted by position
    for left, right in pairwise(entities):
        if right.start < left.end:
            pair = " and ".join(f"{entity.type} {format_char_span(text, entity[:2])}" for entity in (left, right))
            yield DomainbertError(
                f"{pair} overlap",
                where=locate(max(left.list_index, right.list_index)),
                expected="entities that do not overlap: a word has one tag (for nested entities, train several models "
                "and select their types with format.types)",
            )


def _trim(entity: _Entity, text: str, changed: Counter[str]) -> _Entity:
    start, end = strip_span(text, entity.start, entity.end)
    trimmed = entity._replace(start=start, end=end)
    if trimmed != entity:
        changed["entities with white space at their ends, which was trimmed"] += 1
    return trimmed


def _parse_entity(text: str, value: Any, index: int) -> _Entity:
    if isinstance(value, list) and len(value) == 3:
        value = dict(zip(("start", "end", "label"), value, strict=True))
    if not isinstance(value, dict):
        raise DomainbertError(
            found=shown(value), expected="an object with 'start', 'end' and 'label', or a list [start, end, label]"
        )
    keys = [key for key in _TYPE_KEYS if key in value]
    entity_type = value[keys[0]] if keys else None
    is_unique = all(value[key] == entity_type for key in keys)  # an entity may have both keys with equal values
    if not isinstance(entity_type, str) or not entity_type or not is_unique:
        found = " and ".join(f"{key!r} is {shown(value[key])}" for key in keys) or "no type"
        raise DomainbertError(found, expected="the type of the entity as one string, under 'label' or 'type'")
    return _Entity(*read_char_span(text, value), entity_type, index)
