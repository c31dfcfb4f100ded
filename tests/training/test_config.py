from __future__ import annotations

import pytest

from domainbert.training.config import Budget
from tests.refusals import refused


@pytest.mark.parametrize(
    ("budget", "wanted"),
    [
        (Budget(max_steps=7), 7),
        (Budget(max_epochs=1), 32),  # 1,000 rows in batches of 32: 31.25
        (Budget(max_epochs=2.5), 79),  # 78.125
        (Budget(max_epochs=0.0001), 1),
        (Budget(max_tokens=120_000), 32),  # the whole corpus once
        (Budget(max_tokens=12_000), 4),  # a tenth: 3.125
    ],
)
def test_budgets_in_steps(budget, wanted):
    assert budget.num_steps(num_rows=1_000, num_tokens=120_000, batch_size=32) == wanted


@pytest.mark.parametrize(
    ("fields", "where", "found", "expected"),
    [
        ({}, "...", "0 of max_steps, max_tokens and max_epochs", "exactly one"),
        ({"max_steps": 1, "max_epochs": 1}, "...", "2 of max_steps, max_tokens and max_epochs", "..."),
        ({"max_steps": 0}, "max_steps", "0", "an integer from 1 to 1,000,000,000..."),
        ({"max_epochs": -1.0}, "max_epochs", "-1.0", "a number above 0 and up to 1e+06..."),
    ],
)
def test_budgets_that_make_no_sense(fields, where, found, expected):
    with refused(where=where, found=found, expected=expected):
        Budget(**fields)
