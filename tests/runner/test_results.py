from __future__ import annotations

from domainbert.runner.results import results_table


def test_results_table_aligns_and_leaves_out_what_is_not_scored() -> None:
    assert results_table({"vocab": {"metrics": {"size": 1}}, "sample": {"metrics": None}}) == ""
    cost = {"pieces_per_word": 1.0456, "words_per_second": 12_345.6}
    systems = {"a": {"f1": 0.5, "interval": [0.4, 0.6], "seeds": 3, "cost": cost}, "long-name": {"f1": 0.25}}
    metrics = {"task": "classification", "systems": systems, "paired": [{"b": "long-name", "difference": 0.25}]}
    assert results_table({"evaluate": {"metrics": metrics}}).splitlines() == [
        "stage     system     metric    mean   95 % interval   seeds  first minus this  pieces/word  words/s",
        "-" * 99,
        "evaluate  a          macro F1  50.00  [40.00, 60.00]  3                        1.046        12,346",
        "evaluate  long-name  macro F1  25.00                         +25.00",
    ]
