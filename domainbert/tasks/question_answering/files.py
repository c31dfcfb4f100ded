"""Questions with their contexts and answers in SQuAD's JSON or in JSONL. Free of torch."""

from __future__ import annotations

import json
import reprlib
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from typing_extensions import override

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.paths import check_regular
from domainbert.corpus.file_kind import FileKind
from domainbert.corpus.files import open_bytes, unreadable
from domainbert.corpus.rows import Rows, json_rows
from domainbert.labelled.contents import TextPair
from domainbert.labelled.items import Labelled, Unit
from domainbert.labelled.plain_items import PlainItem
from domainbert.labelled.row_values import is_whole_number, parsed, problem_with_list, problem_with_text, refuse, shown
from domainbert.labelled.sets import path_of
from domainbert.tasks.question_answering.config import QuestionAnswering, QuestionFormat
from domainbert.tasks.question_answering.squad import read_squad

Row = dict[str, Any]

_LOOKED_AT = 1 << 20  # bytes


@dataclass(frozen=True)
class Answer:
    """A stretch of a context that answers its question."""

    text: str
    start: int
    """Its beginning, in characters of the context."""

    @property
    def end(self) -> int:
        """The place where it ends, exclusive."""
        return self.start + len(self.text)


@dataclass(frozen=True)
class Question:
    """A question, the text that may hold its answer, and the line of the file where it stands."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    """Answers that several people have marked, the first of which is learnt; none where the context does not say it."""

    line: int

    @property
    def content(self) -> TextPair:
        """The question and its context."""
        return TextPair(self.question, self.context)

    @property
    def labels(self) -> tuple[str, ...]:
        """None: a span has no name."""
        return ()

    @property
    def texts(self) -> list[str]:
        """The answers."""
        return [answer.text for answer in self.answers]


@dataclass(frozen=True)
class QuestionFile(Labelled[Question]):
    """The questions of a file. Those on one context are not independent: no fold and no resample divides them."""

    @property
    @override
    def unit(self) -> str:
        return "contexts"

    @cached_property
    @override
    def unit_numbers(self) -> list[int]:
        """The number of each item's context."""
        numbers: dict[str, int] = {}
        return [numbers.setdefault(item.context, len(numbers)) for item in self.items]

    @property
    def has_unanswerable(self) -> bool:
        """Whether some questions have no answer, as in SQuAD 2.0."""
        return not all(item.answers for item in self.items)

    @property
    def summary(self) -> str:
        """A line with the number of questions, of those without an answer, and of contexts."""
        bare = sum(not item.answers for item in self.items)
        said = f"{self.path}: {len(self.items):,} questions, {bare:,} of them without an answer"
        return f"{said}, on {max(self.unit_numbers) + 1:,} contexts; {FileKind(self.kind)}"

    @override
    def plain_item(self, item: Question) -> PlainItem:
        """The context is the document of all questions on it."""
        return replace(super().plain_item(item), target=item.answers, document_name=item.context)

    def units(self) -> list[Unit]:
        """The number of each item's context."""
        first: dict[int, Question] = {}
        for number, item in zip(self.unit_numbers, self.items, strict=True):
            first.setdefault(number, item)
        return [Unit(item.line) for item in first.values()]

    @override
    def part(self, units: Sequence[int]) -> str:
        chosen = set(units)
        items = [item for n, item in zip(self.unit_numbers, self.items, strict=True) if n in chosen]
        if self.kind != "json":
            return "".join(f"{_json(_flat(item))}\n" for item in items)
        by_context = groupby(items, key=lambda item: item.context)
        paragraphs = [{"context": context, "qas": [_nested(one) for one in some]} for context, some in by_context]
        return f"{_json({'version': 'v2.0', 'data': [{'title': '', 'paragraphs': paragraphs}]})}\n"


def _flat(item: Question) -> Row:
    answers = {"text": item.texts, "answer_start": [answer.start for answer in item.answers]}
    return {"id": item.id, "question": item.question, "context": item.context, "answers": answers}


def _nested(item: Question) -> Row:
    answers = [{"text": answer.text, "answer_start": answer.start} for answer in item.answers]
    return {"id": item.id, "question": item.question, "answers": answers, "is_impossible": not answers}


def _json(value: Row) -> str:
    return json.dumps(value, ensure_ascii=False)


def read(config: QuestionAnswering, path: Path | Rows) -> QuestionFile:
    """See `TaskConfig.read`."""
    return read_questions(path, config.format)


def read_questions(path: Path | Rows, format: QuestionFormat | None = None) -> QuestionFile:
    """Read questions from SQuAD's JSON (1.1 or 2.0), or from JSONL with the columns that it has in `datasets`.

    In JSONL empty lists say that there is no answer, and a question without an `id` is called by its line.

    Raises:
        DomainbertError: unreadable file, no question, a missing key or a value of another kind; an empty question,
            context or answer; an answer that is not in the context where it is said to be; in JSON a question without
            an answer and without `is_impossible`, or with both; the same id twice.
    """
    asked, problems = (format or QuestionFormat()).kind, Problems(str(path))
    rows: Iterable[tuple[int, Row]]
    if isinstance(path, Rows):
        kind: Literal["json", "jsonl", "rows"] = "rows"
        rows = json_rows(path, problems)
    else:
        check_regular(path)
        kind = _kind(path) if asked == "auto" else asked
        rows = read_squad(path, problems) if kind == "json" else json_rows(path, problems)
    questions = parsed(rows, problems, _json_question if kind == "json" else _jsonl_question)
    _check_ids(questions, problems)
    problems.raise_if_any()
    if not questions:
        raise DomainbertError(f"{path}: no questions; expected at least one with its context")
    return QuestionFile(path_of(path), questions, kind)


def _kind(path: Path) -> Literal["json", "jsonl"]:
    """JSONL where the first line is an object by itself, and not all of SQuAD's."""
    try:
        with open_bytes(path) as stream:
            line = stream.readline(_LOOKED_AT)
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path, error) from error
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        return "json"
    return "jsonl" if isinstance(first, dict) and "data" not in first else "json"


def _json_question(row: Row, line: int) -> Question:
    """A question of SQuAD's JSON, of `read_squad`; problems are told with its id."""
    try:
        refuse(problem_with_text(row, "id"), problem_with_list(row, "answers"))
        impossible = row.get("is_impossible", False)
        if bool(row["answers"]) is impossible or not isinstance(impossible, bool):
            found = f"{len(row['answers'])} answers and is_impossible {shown(impossible)}"
            raise DomainbertError(f"{found}; expected an answer, or none and is_impossible true")
        pairs = [(one.get("text"), one.get("answer_start")) for one in row["answers"] if isinstance(one, dict)]
        if len(pairs) < len(row["answers"]):
            raise DomainbertError("an answer is not an object; expected an object with 'text' and 'answer_start'")
        return _question(row, row["id"], pairs, line)
    except DomainbertError as error:
        name = f"question {reprlib.repr(row['id'])}" if isinstance(row.get("id"), str) else row["place"]
        named = [f"{name}: {problem}" for problem in error.problems]
        raise DomainbertError(named[0], named) from error


def _jsonl_question(row: Row, line: int) -> Question:
    own = row.get("id", str(line))
    answers = row.get("answers")
    if not isinstance(answers, dict):
        found = "no key 'answers'" if "answers" not in row else f"'answers' is {shown(answers)}"
        raise DomainbertError(f'{found}; expected an object such as {{"text": ["Paris"], "answer_start": [17]}}')
    refuse(
        problem_with_text({"id": own}, "id"),
        *(problem_with_list(answers, key) for key in ("text", "answer_start")),
    )
    texts, starts = answers["text"], answers["answer_start"]
    if len(texts) != len(starts):
        raise DomainbertError(f"{len(texts)} texts of answers and {len(starts)} starts; expected equal numbers")
    return _question(row, own, list(zip(texts, starts, strict=True)), line)


def _question(row: Row, own: str, answers: Sequence[tuple[Any, Any]], line: int) -> Question:
    refuse(problem_with_text(row, "question"), problem_with_text(row, "context"))
    context = row["context"]
    refuse(*(_problem_with_answer(text, start, context) for text, start in answers))
    return Question(own, row["question"], context, tuple(Answer(*answer) for answer in answers), line)


def _problem_with_answer(text: Any, start: Any, context: str) -> str:
    """The reason why an answer is none of the context; empty if it is one."""
    if problem := problem_with_text({"text": text}, "text"):
        return f"answer: {problem}"
    if not any(character.isprintable() and not character.isspace() for character in text):
        return f"answer {reprlib.repr(text)} has no visible character; expected at least one"
    if not is_whole_number(start):
        return f"answer {reprlib.repr(text)} begins at {shown(start)}; expected a number of characters"
    there = context[start : start + len(text)] if start >= 0 else ""
    if there == text:
        return ""
    found = f"answer {reprlib.repr(text)} at character {start}, where the context has {reprlib.repr(there)}"
    return f"{found}; expected the same (offsets count Unicode characters, not bytes)"


def _check_ids(questions: Sequence[Question], problems: Problems) -> None:
    """Note ids that stand for several questions: predictions are told apart by them."""
    seen: set[str] = set()
    for one in questions:
        if one.id in seen:
            problems.add(f"{problems.subject}:{one.line}: question {reprlib.repr(one.id)} again; expected each id once")
        seen.add(one.id)
