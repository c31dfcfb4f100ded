"""Settings and classes of earlier versions: each is refused with what to use instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from domainbert.base.choices import is_choice
from domainbert.base.errors import Problems
from domainbert.base.fields import field_types
from domainbert.corpus.config import CorpusConfig, Source
from domainbert.pretraining.config import MaskingConfig
from domainbert.runner.stage_table import STAGES, load_stage
from domainbert.settings.facts import stage_facts
from domainbert.settings.reader import read_settings
from domainbert.settings.removed import REMOVED
from domainbert.settings.schema import groups_in
from domainbert.settings.suggestions import _dataclasses
from domainbert.settings.yaml_files import to_node
from domainbert.stages.check import Check
from domainbert.tuning.config import TuneConfig
from tests.refusals import refused


def settings_below(cls: type) -> Iterator[type]:
    """A settings dataclass, those in its fields, and abstract classes that a `class_path` selects from."""
    yield cls
    for hint in field_types(cls).values():
        yield from (group for group in groups_in(hint) if is_choice(group))
        for inner in _dataclasses(hint):
            yield from settings_below(inner)


ROOTS = [TuneConfig, *(load_stage(name).settings for name in STAGES)]
CLASSES = {cls.__name__: cls for root in ROOTS for cls in settings_below(root)}


@pytest.mark.parametrize("entry", REMOVED)
def test_a_removed_setting_is_refused_with_what_to_use_instead(entry: str) -> None:
    owner, _, name = entry.partition(".")
    cls, problems = CLASSES[owner], Problems("test")
    if is_choice(cls):
        cls = dataclasses.make_dataclass("Stage", [("part", cls)], frozen=True, kw_only=True)
        read_settings(cls, to_node({"part": {"class_path": name}}, "a.yaml"), problems)
    else:
        assert name not in field_types(cls)
        read_settings(cls, to_node({name: 1}, "a.yaml"), problems, template=True)
    (problem,) = problems.messages
    assert name in problem and problem.endswith(f" was removed; {REMOVED[entry].instead}")


def test_a_removed_rule_is_refused_with_what_to_use_instead() -> None:
    with refused(where="ignore", problem="the rule 'unknown-words' was removed; read the table..."):
        Check(corpus=CorpusConfig([Source("a.txt")]), ignore={"unknown-words": "we know"})


def test_a_result_with_the_default_of_a_removed_setting_is_up_to_date(tmp_path: Path) -> None:
    cls = dataclasses.make_dataclass("Stage", [("masking", MaskingConfig, MaskingConfig())], frozen=True, kw_only=True)
    problems = Problems("test")
    now = stage_facts("learn", cls, read_settings(cls, to_node({}, "a.yaml"), problems), {})
    before = {**now.facts, "masking.spans": None, "masking.frequency_power": 0.0}
    assert now.changes(before) == {}
    assert now.changes({**before, "masking.spans": "ngram"}).keys() == {"masking.spans"}
    assert now.changes({**before, "masking.frequency_power": 0.5}).keys() == {"masking.frequency_power"}
