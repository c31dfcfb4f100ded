"""Files of predictions."""

from __future__ import annotations

import json
from pathlib import Path

from domainbert.tasks.output import JsonlWriter


def test_every_key_of_the_input_is_kept(tmp_path: Path) -> None:
    row = {"text": "Crédit", "value": 3, "predicted_value": "x", "score": None}
    with JsonlWriter(tmp_path, "text") as writer:
        writer.write(row, {"value": 0.5, "unit": "é"})
        writer.write({"text": "A loan"}, {"value": 0.25, "unit": ""})
    lines = [json.loads(line) for line in writer.path.read_text(encoding="utf-8").splitlines()]
    assert lines[0] == {**row, "predicted_predicted_value": 0.5, "unit": "é"}
    assert lines[1] == {"text": "A loan", "value": 0.25, "unit": ""}
    assert writer.renamed == {("value", "predicted_predicted_value"): 1}
