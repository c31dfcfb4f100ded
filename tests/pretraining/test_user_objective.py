"""An objective in a package of the user; `tests/test_one_place.py` trains with it."""

from __future__ import annotations

from typing import Any

import numpy as np

from domainbert.pretraining.objective import Key
from mine.random_tokens.config import RandomTokens
from tests.refusals import assert_printed
from tests.resuming import Work, pretraining
from tests.toy_corpus import corpus_readers

CLASS = f"{RandomTokens.__module__}.{RandomTokens.__name__}"
ALLOWED = ("--allow-import", RandomTokens.__module__)


def settings_of(runs: Any, **changes: Any) -> dict[str, Any]:
    return pretraining(runs / "prepare", objective={"class_path": CLASS}, **changes)


def test_random_tokens_replaces_a_share_of_each_row(toy_corpus: Any, toy_tokenizer: Any) -> None:
    """The example of docs/how-to/add-an-objective.md; validation always replaces 15 %."""
    rows = np.arange(8)
    train, validation = corpus_readers(toy_corpus, RandomTokens(rate=0.3).build(toy_tokenizer), 24)
    for reader, rate in ((train, 0.3), (validation, 0.15)):
        key = Key(3, 0, np.zeros_like(rows), rows)
        batch, original = reader.batch(key), reader.objective.read(reader.split, reader.plan, key).packed.input_ids
        replaced = np.asarray(batch["input_ids"]) != original
        assert reader.objective.counts(reader.plan, key) == {"num_targets": len(batch["positions"])}
        assert (batch["targets"] == replaced.ravel()[batch["positions"]]).all()
        most = int(reader.objective.masker.num_masked(reader.plan.maskable_tokens[:8], 0.0).sum())
        assert most == np.maximum(np.rint(rate * reader.plan.maskable_tokens[:8]), 1).sum()
        assert 0.8 * most < replaced.sum() == batch["targets"].sum() <= most  # a random token may be the original


def test_settings_of_masked_lm_beside_another_objective_are_an_error(runs: Any, work: Work, capsys: Any) -> None:
    settings = settings_of(runs, masking={"mlm_probability": 0.3})
    assert work.run("pretrain", "out", settings, *ALLOWED, "--json") == 2
    said = capsys.readouterr().err
    assert_printed(said, where="masking", found="next to objective", expected="masking inside it...")
    assert work.run("pretrain", "out", settings_of(runs)) == 2
    assert f"{CLASS}" in capsys.readouterr().err, "not allowed on this command line"
