from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domainbert.base.errors import DomainbertError, Problems
from domainbert.settings.reader import read_settings
from domainbert.settings.yaml_files import Node, load_yaml
from domainbert.training.config import Budget, CorpusTraining
from domainbert.training.length_phases import LengthPhase, last_length, steps_of_phases
from domainbert.training.steps import Phase, Steps

BERT = (LengthPhase(128, until=0.9), LengthPhase(512))


@given(st.integers(1, 10**6), st.integers(1, 10**4), st.floats(1e-3, 1e3), st.integers(1, 10**9))
def test_a_budget_of_one_length_is_as_it_was(rows, batch_size, epochs, tokens):
    for budget in (Budget(max_epochs=epochs), Budget(max_tokens=tokens)):
        wanted = budget.num_steps(rows, 12_345, batch_size)
        for length in (128, (LengthPhase(128),)):
            settings = CorpusTraining(budget=budget, batch_size=batch_size, max_length=length)
            assert settings.num_steps([rows], [12_345]) == wanted
            assert Steps.of_budget(settings, [rows], [12_345]).phases == (Phase(range(wanted), batch_size, rows),)


def test_the_steps_of_the_schedule_of_bert():
    """90 % of the steps at 128, of four times the rows; where rows are equally full, a length alone has as many."""
    settings = CorpusTraining(budget=Budget(max_epochs=10.0), batch_size=32, max_length=BERT)
    steps = Steps.of_budget(settings, [4_000, 1_000], [500_000, 500_000])
    assert steps.phases == (Phase(range(282), 128, 4_000), Phase(range(282, 313), 32, 1_000))
    assert (steps.total, steps.starts, steps.validate_every) == (math.ceil(10 * 1_000 / 32), [0, 282], 32)
    assert str(steps) == "313 steps in 2 phases, 10.02 epochs"


@given(st.integers(1_000, 10**6), st.floats(0.8, 1.2), st.floats(0.1, 0.9), st.floats(1.0, 100.0))
def test_passes_are_those_of_the_budget_to_a_step(rows, fuller, until, epochs):
    settings = CorpusTraining(
        budget=Budget(max_epochs=epochs), batch_size=8, max_length=(LengthPhase(16, until), LengthPhase(64))
    )
    first, last = Steps.of_budget(settings, [round(4 * rows * fuller), rows], [10**6, 10**6]).phases
    passes = sum(phase.items_seen / phase.num_items for phase in (first, last))
    of_a_step = [phase.batch_size / phase.num_items for phase in (first, last)]
    rounding = abs(of_a_step[0] - of_a_step[1]) / 2
    assert -rounding - 1e-9 <= passes - epochs <= max(of_a_step) + rounding + 1e-9


@given(st.integers(10**6, 10**9), st.floats(0.1, 0.9), st.floats(0.5, 1.0))
def test_a_budget_in_tokens_counts_those_of_each_phase(tokens, until, fewer):
    """With languages, as many rows hold other numbers of tokens where they are longer."""
    settings = CorpusTraining(
        budget=Budget(max_tokens=tokens), batch_size=8, max_length=(LengthPhase(16, until), LengthPhase(64))
    )
    num_tokens = [10_000.0 * fewer, 10_000.0]
    phases = Steps.of_budget(settings, [4_000, 1_000], num_tokens).phases
    of_a_step = [one * phase.batch_size / phase.num_items for phase, one in zip(phases, num_tokens, strict=True)]
    seen = sum(one * len(phase.steps) for phase, one in zip(phases, of_a_step, strict=True))
    assert -abs(of_a_step[0] - of_a_step[1]) <= seen - tokens <= sum(of_a_step)


def test_shares_are_rounded_to_whole_steps():
    phases = (LengthPhase(128, 0.7), LengthPhase(256, 0.9), LengthPhase(512))
    assert steps_of_phases(phases, 10) == [range(7), range(7, 9), range(9, 10)]
    assert steps_of_phases(phases, 103) == [range(72), range(72, 93), range(93, 103)]
    assert [last_length(one) for one in (None, 64, phases)] == [None, 64, 512]


WRONG = {
    "[{until: 0.7, length: 128}, {until: 0.9, length: 512}]": [
        "max_length[1].until: found 0.9; expected no `until` in the last phase, which lasts to the end of the training"
    ],
    "[{length: 128}, {length: 512}]": [
        "max_length[0].until: missing; expected a share of the steps, such as 0.9, after which the next phase begins"
    ],
    "[{until: 0.7, length: 128}, {until: 0.7, length: 256}, {length: 512}]": [
        "max_length[1].until: found 0.7; expected more than in the previous phase, 0.7"
    ],
    "[{until: 0.9, length: 512}, {length: 128}]": [
        "max_length[0].length: found 512; expected a divisor of the last length, 128, so that all steps have equally "
        "many tokens",
        "max_length[1].length: found 128; expected more than in the previous phase, 512",
    ],
    "[{until: 0.9, length: 200}, {length: 512}]": [
        "max_length[0].length: found 200; expected a divisor of the last length, 512, so that all steps have equally "
        "many tokens"
    ],
    "[{until: 1.0, length: 128}, {length: 512}]": [
        "max_length[0].until: found 1.0; expected a number above 0 and below 1"
    ],
    "[{until: 0.98, length: 128}, {length: 512}]": [
        "max_length[1]: found 0 steps (of 20) for rows of 512 tokens; expected values of `until` that differ more, or "
        "a longer `budget`"
    ],
    "[{until: 0.9, length: 128}, {length: 1024}]": [
        "max_length: found 1024; expected at most 512, the number of positions of the encoder"
    ],
    "[]": [
        "max_length: found []; expected a list of one or more items, each item a mapping with the keys length, until"
    ],
}


@pytest.mark.parametrize("phases", WRONG)
def test_phases_that_do_not_follow_each_other_are_told_at_their_line(tmp_path: Path, phases: str) -> None:
    from domainbert.stages.pretrain import pretrain

    file = tmp_path / "settings.yaml"
    file.write_text(f"prepared: [{tmp_path}]\nencoder: base\nbudget: {{max_steps: 20}}\nmax_length: {phases}\n")
    problems = Problems("settings")
    node: Node = load_yaml(file)
    read_settings(pretrain, node, problems)
    with pytest.raises(DomainbertError) as error:
        problems.raise_if_any()
    messages = [problem.removeprefix(f"{file}:4: ") for problem in error.value.problems]
    assert len(messages) == len(WRONG[phases])
    for one, wanted in zip(messages, WRONG[phases], strict=True):
        assert wanted in one
