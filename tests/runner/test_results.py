from __future__ import annotations

from domainbert.runner.results_table import results_table


def test_results_table_aligns_and_leaves_out_what_is_not_scored() -> None:
    assert results_table({"vocab": {"metrics": {"size": 1}}, "sample": {"metrics": None}}) == ""
    cost = {"pieces_per_word": 1.0456, "words_per_second": 12_345.6}
    systems = {"a": {"f1": 0.5, "interval": [0.4, 0.6], "seeds": 3, "cost": cost}, "long-name": {"f1": 0.25}}
    metric = {"key": "f1", "name": "macro F1", "percent": True}
    metrics = {"metric": metric, "systems": systems, "paired": [{"b": "long-name", "difference": 0.25}]}
    assert results_table({"evaluate": {"metrics": metrics}}).splitlines() == [
        "stage     system     metric     mean   95 % interval  seeds  first minus this  pieces/word  words/s",
        "-" * 99,
        "evaluate  a          macro F1  50.00  [40.00, 60.00]      3                          1.046   12,346",
        "evaluate  long-name  macro F1  25.00                                   +25.00",
    ]


def test_a_metric_that_is_no_share_is_shown_as_it_is() -> None:
    metrics = {"metric": {"key": "mae", "name": "error", "percent": False}, "paired": [{"b": "a", "difference": -0.5}]}
    metrics["systems"] = {"a": {"mae": 1.25, "f1": 0.5, "interval": [1, 1.5], "seeds": 2}}
    (*_, line) = results_table({"s": {"metrics": metrics}}).splitlines()
    assert line.split() == ["s", "a", "error", "1.2500", "[1.0000,", "1.5000]", "2", "-0.5000"]
