"""Every number of every setting has a range, which a YAML, a call from Python and a configuration are held to."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.ranges import Range, check_fields, field_types, misfits
from domainbert.distillation.prediction_config import SoftTargets
from domainbert.encoders.bert.config import BertConfig
from domainbert.runner.stage_table import STAGES, load_stage
from domainbert.settings.choices import choices_of, is_choice
from domainbert.settings.reader import read_settings
from domainbert.settings.yaml_files import dump_yaml, load_yaml
from domainbert.training.optim_config import OptimConfig
from domainbert.tuning.config import TuneConfig


@dataclasses.dataclass(frozen=True)
class Number:
    """An `int` or `float` somewhere in the settings of a stage."""

    stage: str
    key: str
    """As messages name it: `losses[0].weight`."""
    shape: tuple[Any, ...]
    """The way to it: names of keys, 0 for the first item of a list, and a class for what `class_path` names."""
    kind: type
    limits: tuple[Range, ...]
    places: int
    """How many numbers a list of a fixed size has; 0 where it is none."""


def numbers(stage: str, key: str, shape: tuple[Any, ...], hint: Any, places: int = 0) -> Iterator[Number]:
    """Every number below a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kind, limits = arguments[0], tuple(one for one in arguments[1:] if isinstance(one, Range))
        if kind in (int, float):
            yield Number(stage, key, shape, kind, limits, places)
        else:
            yield from numbers(stage, key, shape, kind)
    elif hint in (int, float):
        yield Number(stage, key, shape, hint, (), places)
    elif origin in (Union, UnionType):
        for member in arguments:
            yield from numbers(stage, key, shape, member)
    elif origin is tuple and arguments[-1] is not Ellipsis:
        for index, item in enumerate(arguments):
            yield from numbers(stage, f"{key}[{index}]", (*shape, index), item, len(arguments))
    elif origin in (list, tuple):
        yield from numbers(stage, f"{key}[0]", (*shape, 0), arguments[0])
    elif origin is dict:
        yield from numbers(stage, f"{key}.x", (*shape, "x"), arguments[1])
    elif is_choice(hint):
        for kind in choices_of(hint).values():
            yield from numbers(stage, key, (*shape, kind), kind)
    elif dataclasses.is_dataclass(hint):
        for name, inner in field_types(hint).items():
            yield from numbers(stage, f"{key}.{name}", (*shape, name), inner)
    else:
        assert hint in (str, bool, Path, NoneType, Any) or "Literal" in str(hint), f"{stage}: {key}: {hint}"


@cache
def all_numbers() -> list[Number]:
    """Those of all stages and of a search."""
    found = []
    for name, kind in [*((name, load_stage(name).settings) for name in STAGES), ("tune", TuneConfig)]:
        for key, hint in field_types(kind).items():
            found += list(numbers(name, key, (key,), hint))
    return found


def test_every_number_has_a_range() -> None:
    found = all_numbers()
    assert [f"{number.stage}: {number.key}" for number in found if len(number.limits) != 1] == []
    assert all(math.isfinite(limit.low) and math.isfinite(limit.high) for one in found for limit in one.limits)
    assert len(found) == 885
    assert {(one.stage, one.key) for one in found} >= {
        ("pretrain", "encoder.hidden_size"),
        ("pretrain", "objective.discriminator_weight"),
        ("pretrain", "objective.generator.size"),
        ("pretrain", "optim.betas[1]"),
        ("distill", "losses[0].student_layers[0]"),
        ("finetune", "task.format.token_column"),
        ("tune", "space.x.low"),
        ("vocab", "corpus.sources[0].weight"),
    }


def outside(number: Number) -> list[Any]:
    """Values just outside a range, and what is no number."""
    (limit,) = number.limits
    if number.kind is int:
        return [int(limit.low) - 1, int(limit.high) + 1, 1e20, float("nan")]
    low = limit.low if limit.above else limit.low - max(abs(limit.low) / 8, 0.125)
    high = limit.high if limit.below else limit.high * 1.125
    return [low, high, float("nan"), float("inf"), -float("inf")]


def inside(number: Number) -> Any:
    """A value in the middle of a range."""
    (limit,) = number.limits
    return number.kind(limit.low / 2 + limit.high / 2)


def yaml_of(number: Number, value: Any) -> dict[str, Any]:
    """Settings in which one number stands, and what a class has to be given besides."""
    for at in reversed(number.shape):
        if isinstance(at, type):
            value = {"class_path": at.__name__, **value}
        elif isinstance(at, int):
            value = [value if index == at else 0.5 for index in range(max(number.places, 1))]
        else:
            value = {at: value}
    return value


def said_of(number: Number, value: Any, tmp_path: Path) -> list[str]:
    """What is said about the setting, of all that is wrong or missing in such a file."""
    file = tmp_path / "t.yaml"
    file.write_text("# a comment\n" + dump_yaml(yaml_of(number, value)))
    kind = TuneConfig if number.stage == "tune" else load_stage(number.stage).settings
    problems = Problems("test")
    read_settings(kind, load_yaml(file), problems)
    return [message for message in problems.messages if f": {number.key}: " in message and "missing" not in message]


@pytest.mark.parametrize("number", all_numbers(), ids=lambda one: f"{one.stage}-{one.key}")
def test_a_value_outside_is_refused_by_file_line_and_key(number: Number, tmp_path: Path) -> None:
    assert [said for said in said_of(number, inside(number), tmp_path) if str(number.limits[0]) in said] == []
    for value in outside(number):
        found = said_of(number, value, tmp_path)
        assert len(found) == 1 and "expected a" in found[0] and "found " in found[0], (value, found)
        place = found[0].removeprefix(str(tmp_path / "t.yaml")).split(": ")[0]
        assert place[1:].isdigit() and int(place[1:]) >= 2, found
        assert len(found[0]) < 400


@given(st.floats() | st.integers(), st.floats(-1e6, 1e6), st.floats(0, 1e6), st.booleans(), st.booleans())
def test_a_range_holds_what_lies_between(value: float, low: float, size: float, above: bool, below: bool) -> None:
    found = Range(low, low + size, above, below).holds(value)
    ends = (value != low or not above) and (value != low + size or not below)
    assert found == (low <= value <= low + size and ends)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (Range(1, 65_536), "from 1 to 65,536"),
        (Range(0, 1, above=True), "above 0 and up to 1"),
        (Range(0, 1, below=True), "from 0 to below 1"),
        (Range(0, 1, above=True, below=True), "above 0 and below 1"),
    ],
)
def test_ranges_in_words(limit: Range, words: str) -> None:
    assert str(limit) == words


def test_configurations_are_held_to_their_ranges_in_python() -> None:
    with pytest.raises(DomainbertError, match=r"^lr: found nan; expected a number above 0 and up to 1$"):
        OptimConfig(lr=float("nan"))
    with pytest.raises(DomainbertError, match=r"betas\[1\]: found 1; expected a number from 0 to below 1"):
        OptimConfig(betas=(0.9, 1))
    with pytest.raises(DomainbertError, match=r"(?s)2 problems.*weight: found inf.*temperature: found 0"):
        SoftTargets(weight=float("inf"), temperature=0)
    with pytest.raises(DomainbertError, match=r"hidden_size: found 64\.0; expected an integer from 1"):
        BertConfig(hidden_size=64.0)  # type: ignore[arg-type]


def test_a_union_fits_where_a_member_does() -> None:
    hint = Annotated[int, Range(1, 5)] | str | None
    assert [list(misfits(value, hint)) for value in (1, "x", None)] == [[], [], []]
    assert list(misfits(6, hint)) == [("", 6, "an integer from 1 to 5")]
    assert list(misfits([1, 9], list[Annotated[int, Range(1, 5)]])) == [("[1]", 9, "an integer from 1 to 5")]
    check_fields(OptimConfig())
