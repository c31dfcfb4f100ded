"""Reader of SQuAD's JSON, 1.1 and 2.0: articles with paragraphs, each a context with questions. Free of torch."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError, Problems
from domainbert.corpus.files import read_text
from domainbert.corpus.rows import object_with_unique_keys
from domainbert.labelled.row_values import shown

Row = dict[str, Any]

_ID = re.compile(r'"id"\s*:\s*("(?:[^"\\]|\\.)*")')


def read_squad(path: Path, problems: Problems) -> Iterator[tuple[int, Row]]:
    """Yield (line of the id, question); `context` and `place`, the JSON path of the question, are added to its keys.

    Articles, paragraphs and questions that are not objects, and values that are not lists, are added to `problems`.

    Raises:
        DomainbertError: unreadable file, or a file that is not SQuAD's JSON.
    """
    text = read_text(path)
    lines = _lines_of_ids(text)
    for article_path, article in _objects(_parse(path, text), "data", "", problems):
        for paragraph_path, paragraph in _objects(article, "paragraphs", article_path, problems):
            for question_path, question in _objects(paragraph, "qas", paragraph_path, problems):
                line = lines.get(str(question.get("id")), 1)
                yield line, {**question, "context": paragraph.get("context"), "place": question_path}


def _parse(path: Path, text: str) -> Row:
    """Return the JSON object of a SQuAD file; raise `DomainbertError` if it is not one."""
    expected = 'expected SQuAD\'s {"data": [{"paragraphs": [...]}]}, or JSONL with a question per line (format.kind)'
    try:
        whole = json.loads(text, object_pairs_hook=object_with_unique_keys)
    except json.JSONDecodeError as error:
        found = f"{error.msg} at character {error.colno:,} of the line"
        raise DomainbertError(f"{path}:{error.lineno}: not JSON ({found}); {expected}") from error
    except (ValueError, RecursionError) as error:
        raise DomainbertError(f"{path}: JSON that cannot be read ({error}); {expected}") from error
    if not isinstance(whole, dict) or not isinstance(whole.get("data"), list):
        found = shown(whole) if not isinstance(whole, dict) else "no list under 'data'"
        raise DomainbertError(f"{path}:1: {found}; {expected}")
    return whole


def _objects(parent: Row, key: str, parent_path: str, problems: Problems) -> Iterator[tuple[str, Row]]:
    """Yield the objects in the list `parent[key]` with their JSON paths, such as `data[0].paragraphs[3]`."""
    where = f"{parent_path}.{key}" if parent_path else key
    values = parent.get(key)
    if not isinstance(values, list):
        problems.add(f"{problems.subject}:1: {where} is {shown(values)}; expected a list")
        return
    for index, value in enumerate(values):
        if isinstance(value, dict):
            yield f"{where}[{index}]", value
        else:
            problems.add(f"{problems.subject}:1: {where}[{index}] is {shown(value)}; expected an object")


def _lines_of_ids(text: str) -> dict[str, int]:
    """Return the line of each question by id; the last line of a duplicate id."""
    breaks = [match.start() for match in re.finditer("\n", text)]
    return {json.loads(match[1], strict=False): bisect_right(breaks, match.start()) + 1 for match in _ID.finditer(text)}
