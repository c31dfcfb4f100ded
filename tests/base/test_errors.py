from __future__ import annotations

import pickle

import pytest

from domainbert.base.errors import DomainbertError, Problems, counted, format_names


def printed_lines(*messages: str) -> list[str]:
    problems = Problems("test")
    for message in messages:
        problems.add(message)
    with pytest.raises(DomainbertError) as error:
        problems.raise_if_any()
    assert error.value.problems == list(messages)
    return [line.strip() for line in str(error.value).splitlines()]


@pytest.mark.parametrize(
    ("plural", "one"),
    [
        ("texts", "1 text"),
        ("pairs of texts", "1 pair of texts"),
        ("different texts", "1 different text"),
        ("entities", "1 entity"),
        ("classes", "1 class"),
        ("sentences", "1 sentence"),
    ],
)
def test_one_thing_is_no_plural(plural: str, one: str) -> None:
    assert [counted(count, plural) for count in (0, 1, 1200)] == [f"0 {plural}", one, f"1,200 {plural}"]


def test_three_examples_of_each_kind_in_each_file() -> None:
    columns = [f"a.conll:{line}: {line} columns; expected 2" for line in range(1, 1238)]
    tags = [f"a.conll:{line}: unknown tag 'x{line}'; expected O" for line in range(1, 4)]
    starts = [f"a.conll:{line}: I-{kind} follows O" for line, kind in enumerate(("a", "b-c", "d", "e"), 1)]
    other = ["b.conll:9: 9 columns; expected 2", "no such model"]
    mixed = [columns[0], *tags, *columns[1:], *starts, *other]
    assert printed_lines(*mixed) == [
        "test: 1,246 problems",
        *columns[:3],
        "... and 1,234 more like this",
        *tags,
        *starts[:3],
        "... and 1 more like this",
        *other,
    ]


def test_settings_are_told_one_by_one() -> None:
    """What differs in the key, not only in what was found, is not alike."""
    keys = [f"a.yaml:{line}: stages.s{line}.{key}: found 'x'" for line, key in enumerate("abcde")]
    assert printed_lines(*keys) == ["test: 5 problems", *keys]


def test_names_that_are_left_out_are_told() -> None:
    ten = [f"a{number}" for number in range(10)]
    assert format_names(ten) == ", ".join(map(repr, ten))
    assert format_names([*ten, "b"]) == f"{format_names(ten)}, ..."


def test_a_place_is_put_around_all_errors() -> None:
    problems = Problems("row")
    problems.add(where="b", found=3, expected=4)
    problems.add(file="c.txt", line=7, found=5, expected=6)
    with pytest.raises(DomainbertError) as caught:
        problems.raise_if_any()
    error = pickle.loads(pickle.dumps(caught.value.within("d.yaml:8: a")))
    assert str(error).startswith("d.yaml:8: a: row: 2 problems\n")
    first, second = [part.facts() for part in error.errors]
    assert first == {
        "message": "d.yaml:8: a: b: found 3; expected 4",
        **{"file": "d.yaml", "line": 8, "where": "a: b", "found": "3", "expected": "4"},
    }
    assert second == {
        "message": "d.yaml:8: a: c.txt:7: found 5; expected 6",
        **{"context": "d.yaml:8: a", "file": "c.txt", "line": 7, "found": "5", "expected": "6"},
    }
    assert error.facts()["errors"] == [first, second]
