"""A training in phases reads the rows of each phase in separate passes, the same for all layouts and after any stop."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from domainbert.data.batches import GlobalOrder, Share
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.families import build_model
from domainbert.pretraining.batches import PackedRowsReader, TrainRows
from domainbert.pretraining.objective import Key
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.pretraining.phases import PhasedRows, format_rows, phase_of, row_phases, summary_lines, tokens_seen
from domainbert.training.config import Budget, CorpusTraining
from domainbert.training.length_phases import LengthPhase
from domainbert.training.steps import Steps
from tests.refusals import refused
from tests.tiny_training import CONFIG

LENGTHS = (LengthPhase(8, until=0.5), LengthPhase(16, until=0.75), LengthPhase(32))
STEPS, BATCH = 40, 8
SETTINGS = CorpusTraining(budget=Budget(max_steps=STEPS), max_length=LENGTHS, batch_size=BATCH)


def plan_phases(split, objective, settings, seed):
    """The phases of a training on a split, and its steps."""
    readers = [PackedRowsReader(split, objective, phase.length) for phase in settings.phases]
    num_rows, num_tokens = zip(*((reader.plan.num_rows, reader.tokens_per_pass) for reader in readers), strict=True)
    steps = Steps.of_budget(settings, num_rows, num_tokens)
    return row_phases(readers, steps.phases, seed), steps


@pytest.fixture(scope="module")
def objective(toy_tokenizer):
    return MaskedLM().build(toy_tokenizer)


@pytest.fixture(scope="module")
def phases(toy_corpus, objective):
    return plan_phases(toy_corpus.train, objective, SETTINGS, seed=3)[0]


def test_each_phase_reads_passes_of_its_own_and_all_steps_hold_equally_many_tokens(phases, toy_corpus):
    assert [phase.steps for phase in phases] == [range(20), range(20, 30), range(30, 40)]
    seen, drawn = 0, set()
    for phase, length in zip(phases, (8, 16, 32), strict=True):
        plan = phase.reader.plan
        assert plan.row_length == length and phase.order.batch_size * length == BATCH * 32
        assert plan.lengths.sum() == toy_corpus.train.num_tokens, "the whole split"
        epochs, rows = (np.concatenate(part) for part in zip(*map(phase.order.batch, phase.steps), strict=True))
        assert epochs[0] == seen and (np.diff(epochs) >= 0).all(), "it begins with a new pass"
        for epoch in np.unique(epochs):
            here = rows[epochs == epoch]
            whole = epoch < epochs[-1]
            assert sorted(here) == list(range(plan.num_rows)) if whole else len(set(here)) == len(here)
        keys = set(zip(epochs.tolist(), rows.tolist(), strict=True))
        assert not keys & drawn, "no phase has a mask of another phase"
        drawn |= keys
        seen = epochs[-1] + 1
    assert seen > 3, "some phases have more than a pass"


def test_rows_with_one_number_come_in_another_order_in_each_phase(phases):
    """Were the passes of each phase numbered from 0, the rows that all phases have would come in one order."""
    common = min(phase.order.size for phase in phases)

    def among_common(order, number):
        rows = order._items(number, np.arange(order.size))
        return rows[rows < common].tolist()

    alike = [among_common(phase.order, 0) for phase in phases]
    assert alike[0] == alike[1] == alike[2]
    for one, other in itertools.combinations([among_common(one.order, one.order.first_pass) for one in phases], 2):
        assert one != other and sorted(one) == sorted(other)


def test_a_length_is_a_training_of_one_phase(toy_corpus, objective):
    settings = replace(SETTINGS, max_length=32)
    (phase,), steps = plan_phases(toy_corpus.train, objective, settings, seed=3)
    order = GlobalOrder(phase.reader.plan.num_rows, BATCH, 3)
    alone = TrainRows(phase.reader, order, Share(), range(STEPS))
    found = PhasedRows([phase], Share(), range(STEPS))
    assert len(found) == len(alone) and all(equal(found[step], alone[step]) for step in range(STEPS))
    listed = replace(settings, max_length=LENGTHS[2:])
    assert steps.phases == plan_phases(toy_corpus.train, objective, listed, seed=3)[1].phases
    assert [line.partition(" ")[2] for line in summary_lines([phase])] == [
        f"rows of 32 tokens, {phase.reader.plan.fullness:.2%} full"
    ]


@pytest.mark.parametrize(("world_size", "accumulation"), [(1, 4), (2, 1), (4, 1), (2, 2)])
def test_ranks_and_micro_batches_share_the_same_rows(phases, world_size, accumulation):
    whole = PhasedRows(phases, Share(), range(STEPS))
    for step in (0, 19, 20, 29, 30, 39):
        wanted = whole[step]
        assert wanted["input_ids"].shape == (BATCH * 32 // (length := wanted["input_ids"].shape[1]), length)
        found = np.zeros_like(wanted["input_ids"])
        for rank, micro_batch in itertools.product(range(world_size), range(accumulation)):
            share = Share(rank, world_size, accumulation)
            part = PhasedRows(phases, share, range(STEPS))[step * accumulation + micro_batch]
            found[share.select(np.arange(len(found)), micro_batch)] = part["input_ids"]
            assert (part["step"], part["num_tokens"], part["num_targets"]) == (
                *(step, wanted["num_tokens"], wanted["num_targets"]),
            )
        assert np.array_equal(found, wanted["input_ids"])


@pytest.mark.parametrize("first", [1, 19, 20, 21, 30, 39])
def test_the_rest_of_a_training_is_the_same_from_any_step(phases, first):
    whole, rest = (PhasedRows(phases, Share(), range(start, STEPS)) for start in (0, first))
    assert len(rest) == STEPS - first
    assert all(equal(rest[index], whole[first + index]) for index in range(len(rest)))


def test_a_phase_is_compiled_once(phases, toy_tokenizer):
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    losses = torch.compile(phases[0].reader.objective.losses, backend=counter, dynamic=False)
    vocabulary = VocabularyFacts(toy_tokenizer.vocab_size, toy_tokenizer.pad_id)
    model = build_model(replace(CONFIG, num_hidden_layers=1), vocabulary, "masked_lm")
    rows, counts = PhasedRows(phases, Share(), range(STEPS)), []
    inputs = phases[0].reader.objective.inputs
    for step in (0, 1, 19, 20, 21, 29, 30, 31, 39):
        batch = {name: torch.as_tensor(value) for name, value in rows[step].items() if name in inputs}
        losses({"model": model}, batch)
        counts.append(counter.frame_count)
    first, second, third = counts[::3]
    assert 0 < first < second < third and counts == [first] * 3 + [second] * 3 + [third] * 3


def test_what_is_printed_and_described(phases, toy_corpus):
    lines = summary_lines(phases)
    assert [line.partition(": ")[0] for line in lines] == [
        *("steps 1 to 20 of 32", "steps 21 to 30 of 16", "steps 31 to 40 of 8")
    ]
    assert f"{phases[1].reader.plan.num_rows} rows of 16 tokens" in lines[1]
    assert [phase_of(phases, step) for step in (0, 19, 20, 30, 39)] == [phases[0], *phases[:2], *phases[2:] * 2]


def test_shown_rows_are_those_of_each_phase_with_the_share_of_the_whole_training(phases, monkeypatch):
    """The share decides how many tokens are masked, and what `num_steps` of a schedule sees."""
    short = [phases[0]._replace(steps=range(2)), phases[1]._replace(steps=range(20, 21)), phases[2]]
    shown = []
    monkeypatch.setattr(
        "domainbert.pretraining.phases._format_row", lambda *row: shown.append(row) or [f"row {row[2]}"]
    )
    first, second, third = (phase.order.batch_size for phase in phases)
    count = 2 * first + second + third + 1
    assert format_rows(short, count) == [f"row {number}" for number in range(1, count + 1)]
    wanted = [(phases[0], 0)] * first + [(phases[0], 1)] * first
    wanted += [(phases[1], 20)] * second + [(phases[2], 30)] * third + [(phases[2], 31)]
    places = [*range(first), *range(first), *range(second), *range(third), 0]
    for (phase, step), place, (reader, key, _) in zip(wanted, places, shown, strict=True):
        epochs, rows = (numbers[place : place + 1] for numbers in phase.order.batch(step))
        assert reader is phase.reader and (key.epochs, key.rows) == (epochs, rows)
        assert key == Key(3, step, key.epochs, key.rows, progress=step / STEPS)


@pytest.mark.parametrize("budget", [Budget(max_epochs=1.0), Budget(max_epochs=7.3), Budget(max_tokens=12_345)])
def test_a_budget_is_met_to_a_step_and_tokens_are_those_of_the_rows(toy_corpus, objective, budget):
    settings = replace(SETTINGS, budget=budget, batch_size=1)
    phases, _ = plan_phases(toy_corpus.train, objective, settings, seed=3)
    num_tokens = toy_corpus.train.num_tokens
    wanted = budget.max_tokens or budget.max_epochs * num_tokens
    read = [[int(one.reader.plan.text_tokens[one.order.batch(step)[1]].sum()) for step in one.steps] for one in phases]
    most = max(map(max, read))
    assert wanted - most <= tokens_seen(phases) <= wanted + most
    partial = sum(len(one.steps) * one.order.batch_size % one.reader.plan.num_rows > 0 for one in phases)
    # The last pass of a phase may be partial; its rows are assumed to have the mean number of tokens.
    rows = sum(np.std(one.reader.plan.text_tokens) * one.reader.plan.num_rows**0.5 for one in phases)
    assert abs(sum(map(sum, read)) - tokens_seen(phases)) <= partial + 2 * rows


def test_a_phase_without_steps_is_told_before_anything_runs(toy_corpus, objective):
    settings = replace(SETTINGS, budget=Budget(max_epochs=0.01), batch_size=16)
    with refused(where="max_length[0]", found="0 steps (of 1) for rows of 8 tokens", expected="values of `until`..."):
        plan_phases(toy_corpus.train, objective, settings, seed=3)


def equal(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
