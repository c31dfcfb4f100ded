"""Reader of questions with contexts and answers in SQuAD's JSON, 1.1 and 2.0, or JSONL. Free of torch."""

from __future__ import annotations

import json
import re
import reprlib
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from typing_extensions import override

from domainbert.base.errors import DomainbertError, Problems, counted
from domainbert.base.paths import check_regular
from domainbert.corpus.file_kind import KIND_NAMES
from domainbert.corpus.files import open_bytes, read_text, unreadable
from domainbert.corpus.rows import Row, Rows, object_with_unique_keys, open_file
from domainbert.labelled.contents import TextPair
from domainbert.labelled.items import Labelled, PlainItem, ReaderCounts, Unit, distinct_indices
from domainbert.labelled.row_values import (
    is_whole_number,
    parse_rows,
    problem_with_list,
    problem_with_text,
    raise_problems,
    shown,
)
from domainbert.labelled.rows import without_rejected
from domainbert.tasks.output import json_line
from domainbert.tasks.question_answering.config import QuestionAnswering

_MAX_FIRST_LINE = 1 << 20  # bytes read to detect the format
_BEGINS_ARRAY = re.compile(rb"(\xef\xbb\xbf)?\s*\[\s*(\{|$)")  # a byte order mark may come first
_ID_FIELD = re.compile(r'"id"\s*:\s*("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True)
class Answer:
    """An answer in a context."""

    text: str
    start: int
    """First character in the context."""

    @property
    def end(self) -> int:
        """Return the end in the context, exclusive."""
        return self.start + len(self.text)


@dataclass(frozen=True)
class Question:
    """A question with its context, answers and line number."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    """Answers of several annotators, the first of which is the target; empty if the context has no answer."""

    line: int

    @property
    def content(self) -> TextPair:
        """Return the question and its context."""
        return TextPair(self.question, self.context)

    @property
    def labels(self) -> tuple[str, ...]:
        """Return (); spans have no label."""
        return ()

    @property
    def texts(self) -> list[str]:
        """Return the texts of the answers."""
        return [answer.text for answer in self.answers]


@dataclass(frozen=True)
class QuestionFile(Labelled[Question]):
    """A file of questions. Questions on one context stay together in folds and resamples."""

    @property
    @override
    def unit(self) -> str:
        return "questions" if self.unit_ids is None else "contexts"

    @property
    @override
    def unit_ids(self) -> list[int] | None:
        """Return `context_ids`; None for a single context, of which all resamples would be equal."""
        return self.context_ids if max(self.context_ids, default=0) > 0 else None

    @cached_property
    def context_ids(self) -> list[int]:
        """Return for each item the index of its context, from 0."""
        return distinct_indices(item.context for item in self.items)

    @property
    def has_unanswerable(self) -> bool:
        """Whether some questions have no answer, as in SQuAD 2.0."""
        return not all(item.answers for item in self.items)

    @property
    def summary(self) -> str:
        """Return a line with the numbers of questions, of questions without an answer, and of contexts."""
        unanswerable = sum(not item.answers for item in self.items)
        questions = f"{self.path}: {counted(len(self.items), 'questions')}, {unanswerable:,} of them without an answer"
        return f"{questions}, on {counted(max(self.context_ids) + 1, 'contexts')}; {KIND_NAMES[self.kind]}"

    @override
    def plain_item(self, item: Question) -> PlainItem:
        """Return the item as a `PlainItem`, which the data checks read; its context is the document."""
        return replace(super().plain_item(item), target=item.answers, document_name=item.context)

    def units(self) -> list[Unit]:
        """Return one unit per context, at its first question."""
        first_questions: dict[int, Question] = {}  # by index of the context
        for unit, item in zip(self.context_ids, self.items, strict=True):
            first_questions.setdefault(unit, item)
        return [Unit(item.line) for item in first_questions.values()]

    @override
    def fold_units(self) -> list[int]:
        return self.context_ids

    @override
    def file_content(self, units: Sequence[int]) -> str:
        """Return a file with the questions on the contexts with the indices `units`: in JSON if this file is JSON,
        otherwise in JSONL."""
        chosen = set(units)
        items = [item for unit, item in zip(self.context_ids, self.items, strict=True) if unit in chosen]
        if self.kind != "json":
            return "".join(json_line(_jsonl_row(item)) for item in items)
        by_context = groupby(items, key=lambda item: item.context)
        paragraphs = [
            {"context": context, "qas": [_squad_question(item) for item in group]} for context, group in by_context
        ]
        return json_line({"version": "v2.0", "data": [{"title": "", "paragraphs": paragraphs}]})


def _jsonl_row(item: Question) -> Row:
    answers = {"text": item.texts, "answer_start": [answer.start for answer in item.answers]}
    return {"id": item.id, "question": item.question, "context": item.context, "answers": answers}


def _squad_question(item: Question) -> Row:
    answers = [{"text": answer.text, "answer_start": answer.start} for answer in item.answers]
    return {"id": item.id, "question": item.question, "answers": answers, "is_impossible": not answers}


def read(config: QuestionAnswering, file: Path | Rows) -> QuestionFile:
    """Return the questions of SQuAD's JSON (1.1 or 2.0), or of JSONL with the columns of SQuAD in `datasets`.

    In JSONL empty lists mean no answer; the id of a question without `id` is its line number. Rows that an annotator
    rejected in Prodigy are left out and counted.

    Raises:
        DomainbertError: an invalid row; an answer that is not at its offset in the context; in JSON a question without
            an answer and without `is_impossible`, or with both; a duplicate id; no question.
    """
    kind, path = config.format.kind, Path(str(file))
    problems, notes = Problems(str(file)), ReaderCounts()
    if kind == "auto" and isinstance(file, Path):
        kind = _detect_kind(path)
    opened = open_file(file, kind, ("json", "jsonl"))
    if opened.kind == "json":
        questions = parse_rows(_squad_rows(path, problems), problems, _parse_squad)
    else:
        questions = parse_rows(without_rejected(opened.rows(problems), notes.left_out), problems, _parse_jsonl)
    _check_ids(questions, problems)
    problems.raise_if_any()
    if not questions:
        raise DomainbertError("no questions", file=file, expected="at least one with its context")
    return QuestionFile(path, questions, opened.kind, notes=notes)


def _detect_kind(path: Path) -> Literal["json", "jsonl"]:
    """Return "jsonl" if the first line that is not blank is a JSON object that is not a whole SQuAD file, or begins an
    array of objects; otherwise "json". Reads bytes: the whole file may be a single line."""
    check_regular(path)
    try:
        with open_bytes(path) as stream:
            line = stream.readline(_MAX_FIRST_LINE)
            while line and not line.strip():  # blank; at the end of the file it is empty
                line = stream.readline(_MAX_FIRST_LINE)
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path, error) from error
    if _BEGINS_ARRAY.match(line):
        return "jsonl"
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        return "json"  # of several lines
    return "jsonl" if isinstance(first, dict) and "data" not in first else "json"


def _parse_squad(row: Row, line: int) -> Question:
    try:
        raise_problems(problem_with_text(row, "id"), problem_with_list(row, "answers"))
        impossible = row.get("is_impossible", False)
        has_answers = bool(row["answers"])
        if not isinstance(impossible, bool) or has_answers == impossible:
            found = f"'answers' has length {len(row['answers'])} and 'is_impossible' is {shown(impossible)}"
            raise DomainbertError(found, expected="answers and 'is_impossible' false, or no answers and true")
        for answer in row["answers"]:
            if not isinstance(answer, dict):
                raise DomainbertError(f"answer {shown(answer)}", expected="an object with 'text' and 'answer_start'")
        pairs = [(answer.get("text"), answer.get("answer_start")) for answer in row["answers"]]
        return _build_question(row, row["id"], pairs, line)
    except DomainbertError as error:
        name = f"question {reprlib.repr(row['id'])}" if isinstance(row.get("id"), str) else row["json_path"]
        raise error.within(name) from error


def _parse_jsonl(row: Row, line: int) -> Question:
    id, answers = row.get("id", str(line)), row.get("answers")
    if not isinstance(answers, dict):
        found = "no key 'answers'" if "answers" not in row else f"'answers' is {shown(answers)}"
        raise DomainbertError(found, expected='an object such as {"text": ["Paris"], "answer_start": [17]}')
    list_problems = [problem_with_list(answers, key) for key in ("text", "answer_start")]
    in_answers = [problem.within("'answers'") for problem in list_problems if problem]
    raise_problems(problem_with_text({"id": id}, "id"), *in_answers)
    texts, starts = answers["text"], answers["answer_start"]
    if len(texts) != len(starts):
        found = f"'answers' has length {len(texts)} under 'text' and {len(starts)} under 'answer_start'"
        raise DomainbertError(found, expected="lists of the same length")
    return _build_question(row, id, list(zip(texts, starts, strict=True)), line)


def _build_question(row: Row, id: str, answers: Sequence[tuple[Any, Any]], line: int) -> Question:
    raise_problems(problem_with_text(row, "question"), problem_with_text(row, "context"))
    context = row["context"]
    raise_problems(*(_problem_with_answer(text, start, context) for text, start in answers))
    return Question(id, row["question"], context, tuple(Answer(*answer) for answer in answers), line)


def _problem_with_answer(text: Any, start: Any, context: str) -> DomainbertError | None:
    if problem := problem_with_text({"text": text}, "text"):
        return problem.within("answer")
    answer = f"answer {reprlib.repr(text)} has"
    if not any(character.isprintable() and not character.isspace() for character in text):
        return DomainbertError(f"{answer} no visible character", expected="at least one")
    if not is_whole_number(start):
        return DomainbertError(f"{answer} 'answer_start' {shown(start)}", expected="its offset in characters")
    at_start = context[start : start + len(text)] if start >= 0 else ""
    if at_start == text:
        return None
    found = f"{answer} 'answer_start' {start}, where the context has {reprlib.repr(at_start)}"
    return DomainbertError(found, expected="the answer there ('answer_start' counts Unicode characters, not bytes)")


def _check_ids(questions: Sequence[Question], problems: Problems) -> None:
    seen: set[str] = set()
    for item in questions:
        if item.id in seen:
            id = reprlib.repr(item.id)
            problems.add(f"the id {id} occurs again", file=problems.subject, line=item.line, expected="each id once")
        seen.add(item.id)


def _squad_rows(path: Path, problems: Problems) -> Iterator[tuple[int, Row]]:
    """Yield (line, question) of each question, with two more keys: `context`, and `json_path` of the question.

    The line is the line of the id, or 1 if it is not found. Articles, paragraphs and questions that are not objects,
    and values that are not lists, are added to `problems`.
    """
    text = read_text(path)
    whole = _parse_json(path, text)
    lines = _lines_of_ids(text)
    for article_path, article in _objects(whole, "data", "", problems):
        for paragraph_path, paragraph in _objects(article, "paragraphs", article_path, problems):
            for question_path, question in _objects(paragraph, "qas", paragraph_path, problems):
                line = lines.get(str(question.get("id")), 1)
                yield line, {**question, "context": paragraph.get("context"), "json_path": question_path}


def _parse_json(path: Path, text: str) -> Row:
    expected = 'SQuAD\'s {"data": [{"paragraphs": [...]}]}, or a question per line with format.kind: jsonl'
    try:
        whole = json.loads(text, object_pairs_hook=object_with_unique_keys)
    except json.JSONDecodeError as error:
        found = f"{error.msg} at character {error.colno:,} of the line"
        raise DomainbertError(f"not JSON ({found})", file=path, line=error.lineno, expected=expected) from error
    except (ValueError, RecursionError) as error:
        raise DomainbertError(f"JSON that cannot be read ({error})", file=path, expected=expected) from error
    if not isinstance(whole, dict) or not isinstance(whole.get("data"), list):
        found = shown(whole) if not isinstance(whole, dict) else "no list under 'data'"
        raise DomainbertError(found, file=path, line=1, expected=expected)
    return whole


def _objects(parent: Row, key: str, parent_path: str, problems: Problems) -> Iterator[tuple[str, Row]]:
    """Yield the objects in the list `parent[key]` with their JSON paths, such as `data[0].paragraphs[3]`."""
    where = f"{parent_path}.{key}" if parent_path else key
    values = parent.get(key)
    if not isinstance(values, list):
        problems.add(f"{where} is {shown(values)}", file=problems.subject, line=1, expected="a list")
        return
    for index, value in enumerate(values):
        if isinstance(value, dict):
            yield f"{where}[{index}]", value
        else:
            problems.add(f"{where}[{index}] is {shown(value)}", file=problems.subject, line=1, expected="an object")


def _lines_of_ids(text: str) -> dict[str, int]:
    """Return the line of each id, from 1; the last one if an id occurs several times."""
    line_breaks = [match.start() for match in re.finditer("\n", text)]
    lines: dict[str, int] = {}
    for match in _ID_FIELD.finditer(text):
        id = json.loads(match[1], strict=False)
        lines[id] = bisect_right(line_breaks, match.start()) + 1
    return lines
