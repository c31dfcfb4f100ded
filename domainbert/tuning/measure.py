"""Measure the cost of a trial's model: `python -m domainbert.tuning.measure RUN.yaml OUT.json [--allow-import NAMES]`.

Runs in a separate process, on the texts of the validation set.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from domainbert.base.choices import allow_imports
from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.files import write_json
from domainbert.base.redact import redact
from domainbert.labelled.sets import read_set
from domainbert.runner.stage_table import load_stage
from domainbert.settings.reader import read_settings
from domainbert.settings.yaml_files import load_yaml


def measure(config: Path, cost_file: Path) -> None:
    """Measure the best model of a `finetune` run, and write its cost to `cost_file`: the fields of `serving.cost.Cost`.

    `config` is the YAML of the run.

    Raises:
        DomainbertError: the settings are invalid, or there is no model.
    """
    from domainbert.serving.cost import measure_costs
    from domainbert.serving.predictor import load_predictor

    tree, problems = load_yaml(config), Problems(str(config))
    arguments = read_settings(load_stage("finetune").function, tree.without("out"), problems).arguments
    problems.raise_if_any()
    contents = read_set(arguments["task"], arguments["validation"]).contents
    out = Path(str(tree.value["out"].value))
    folder = out / json.loads((out / "seeds.json").read_text(encoding="utf-8"))["best"]
    (cost,) = measure_costs([(load_predictor(folder, "32-true"), folder)], contents)
    write_json(cost_file, asdict(cost))


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code: 2 after an error, which is printed, otherwise 0."""
    try:
        allow_imports(arguments[3] if len(arguments) > 3 else None)
        measure(Path(arguments[0]), Path(arguments[1]))
    except DomainbertError as error:
        sys.stderr.write(f"domainbert: {redact(str(error))}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
