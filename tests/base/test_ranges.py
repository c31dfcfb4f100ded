"""Every number of every setting has a range, which a YAML, a call from Python and a configuration are held to."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domainbert.base.choices import choices_of, is_choice
from domainbert.base.errors import Problems
from domainbert.base.fields import Items, Range, check_fields, field_types, parse_plain, strip_ranges, type_mismatches
from domainbert.distillation.prediction_config import SoftTargets
from domainbert.encoders.bert.config import BertConfig
from domainbert.runner.stage_table import STAGES, load_stage
from domainbert.settings.reader import read_settings
from domainbert.settings.yaml_files import load_yaml
from domainbert.training.config import OptimConfig
from domainbert.tuning.config import TuneConfig
from tests.refusals import refused

SETTINGS = {"tune": TuneConfig, **{name: load_stage(name).settings for name in STAGES}}


def numbers(key: str, hint: Any) -> Iterator[tuple[str, Any]]:
    """The key and type of every number below a type: `losses[].weight`."""
    if strip_ranges(hint) in (int, float):
        yield key, hint
    elif is_choice(hint):
        for kind in choices_of(hint).values():
            yield from numbers(f"{key}:{kind.__name__}", kind)
    elif isinstance(hint, type) and dataclasses.is_dataclass(hint):
        for name, inner in field_types(hint).items():
            yield from numbers(f"{key}.{name}", inner)
    elif "Literal" not in str(get_origin(hint)):
        for item in get_args(hint):
            yield from numbers(key, item)


def test_every_number_has_a_range() -> None:
    found = dict(one for name, kind in SETTINGS.items() for one in numbers(name, kind))
    limits = {key: [one for one in get_args(hint)[1:] if isinstance(one, Range)] for key, hint in found.items()}
    assert [key for key, ranges in limits.items() if len(ranges) != 1] == []
    assert all(math.isfinite(one.low) and math.isfinite(one.high) for ranges in limits.values() for one in ranges)
    assert {
        "pretrain.encoder:BertConfig.hidden_size",
        "pretrain.optim.betas",
        "finetune.task:Ner.format.token_column",
        "tune.space.low",
        "vocab.corpus.sources.weight",
    } <= set(found)


@pytest.mark.parametrize(
    ("stage", "text", "key", "values"),
    [
        ("pretrain", "encoder: {{class_path: BertConfig, hidden_size: {}}}", "encoder.hidden_size", "0 1e20 .nan true"),
        ("pretrain", "optim: {{lr: {}}}", "optim.lr", "0 1.001 .nan .inf -.inf x false"),
        ("pretrain", "optim: {{betas: [0.5, {}]}}", "optim.betas[1]", "-0.001 1 1.5"),
        ("finetune", "seeds: [1, {}]", "seeds[1]", "-1 4294967296 0.5 null"),
        ("vocab", "corpus: {{sources: [{{path: x, weight: {}}}]}}", "corpus.sources[0].weight", "0 1e7"),
    ],
)
def test_a_value_outside_is_refused_by_file_line_and_key(
    stage: str, text: str, key: str, values: str, tmp_path: Path
) -> None:
    for value in values.split():
        file = tmp_path / "t.yaml"
        file.write_text("# a comment\n" + text.format(value))
        problems = Problems("test")
        read_settings(SETTINGS[stage], load_yaml(file), problems)
        (error,) = [error for error in problems.errors if error.where == key]
        assert (error.file, error.line) == (str(file), 2) and error.found and error.expected.startswith("a")


@pytest.mark.parametrize(
    ("value", "hint", "parsed"),
    [
        ("a/b", Path, Path("a/b")),
        (1, float, 1.0),
        ([1, 2], tuple[int, ...], (1, 2)),
        ([1, 2], tuple[float, float], (1.0, 2.0)),
        (None, int | None, None),
        ({"a": "b"}, dict[str, Path], {"a": Path("b")}),
    ],
)
def test_plain_values_become_values_of_a_type(value: Any, hint: Any, parsed: Any) -> None:
    assert parse_plain(value, hint) == parsed and type(parse_plain(value, hint)) is type(parsed)


@pytest.mark.parametrize(
    ("value", "hint"),
    [(True, int), (1, bool), ("yes", bool), ("5", int), (5, str), (1.0, int), ([1], tuple[int, int]), (None, str)],
)
def test_nothing_else_is_converted(value: Any, hint: Any) -> None:
    with pytest.raises(ValueError):
        parse_plain(value, hint)


@given(st.floats() | st.integers(), st.floats(-1e6, 1e6), st.floats(0, 1e6), st.booleans(), st.booleans())
@settings(max_examples=30)
def test_a_range_holds_what_lies_between(value: float, low: float, size: float, above: bool, below: bool) -> None:
    fits = not type_mismatches(value, Annotated[float, Range(low, low + size, above, below)])
    ends = (value != low or not above) and (value != low + size or not below)
    assert fits == (low <= value <= low + size and ends)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (Range(1, 65_536), "from 1 to 65,536"),
        (Range(0, 1, exclude_low=True), "above 0 and up to 1"),
        (Range(0, 1, exclude_high=True), "from 0 to below 1"),
        (Range(0, 1, exclude_low=True, exclude_high=True), "above 0 and below 1"),
    ],
)
def test_ranges_in_words(limit: Range, words: str) -> None:
    assert str(limit) == words


def test_configurations_are_held_to_their_ranges_in_python() -> None:
    with refused(where="lr", found="nan"):
        OptimConfig(lr=float("nan"))
    with refused(where="betas[1]", found="1"):
        OptimConfig(betas=(0.9, 1))
    for key, found in (("weight", "inf"), ("temperature", "0")):
        with refused(where=key, found=found):
            SoftTargets(weight=float("inf"), temperature=0)
    with refused(where="hidden_size", found="64.0"):
        BertConfig(hidden_size=64.0)  # type: ignore[arg-type]


class Counted(int):
    """A number that counts how often it is compared."""

    comparisons = 0
    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return int(self) == other


def test_items_are_told_apart_without_a_comparison_of_all_pairs() -> None:
    numbers = [Counted(number) for number in range(2_000)]
    assert Items(unique=True)._validated(numbers) is numbers and Counted.comparisons < 2 * len(numbers)
    with pytest.raises(ValueError, match="different"):
        Items(unique=True)._validated([*numbers, Counted(1_999)])


def test_a_union_fits_where_a_member_does() -> None:
    hint = Annotated[int, Range(1, 5)] | str | None
    assert [type_mismatches(value, hint) for value in (1, "x", None)] == [[], [], []]
    assert type_mismatches(6, hint) == [("", 6, "an integer from 1 to 5 or text or null")]
    assert type_mismatches(np.int64(5), hint) == [] == type_mismatches(Path("a"), str)  # as calls from Python have them
    assert type_mismatches([1, 9], list[Annotated[int, Range(1, 5)]]) == [("[1]", 9, "an integer from 1 to 5")]
    check_fields(OptimConfig())


def groups(hint: Any) -> Iterator[type]:
    """Every dataclass of settings below a type."""
    if is_choice(hint):
        for kind in choices_of(hint).values():
            yield from groups(kind)
    elif isinstance(hint, type) and dataclasses.is_dataclass(hint):
        yield hint
        for inner in field_types(hint).values():
            yield from groups(inner)
    else:
        for inner in get_args(hint):
            yield from groups(inner)


def test_defaults_match_the_types_of_their_fields() -> None:
    """`check_fields` checks only values that differ from the default."""
    classes = {group for stage in SETTINGS.values() for group in groups(stage)}
    assert len(classes) > 60
    for cls in classes:
        types = field_types(cls)
        defaults = {field.name: field.default for field in dataclasses.fields(cls)}
        found = {name: type_mismatches(value, types[name]) for name, value in defaults.items() if name in types}
        assert {name for name, wrong in found.items() if wrong and defaults[name] is not dataclasses.MISSING} == set()
