"""Training, scoring and prediction give the numbers of tests/golden/*.json.

Bit by bit on the processor on which they were made; on another one as near as rounding allows, since it adds in another
order. `tests/golden/write.py` writes the files.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.golden.write import HERE, PROCESSOR, numbers_of, processor, run_recipe
from tests.interface.snapshot import check_folder, check_interface

GOLDEN = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(HERE.glob("*.json"))}
# Relative and absolute. The norm of a gradient shrinks as a model fits, what rounding adds to it does not.
TOLERANCES = {
    "[train/loss]": (2e-5, 1e-7),  # a processor with other vector units was 1.05e-5 away
    "[train/grad_norm]": (5e-4, 1e-6),
    "[train/": (1e-4, 1e-6),
    "": (1e-4, 1e-4),
}


def differences(golden: Any, found: Any, place: str = "") -> Iterator[str]:
    """A line for each value that is another one."""
    if isinstance(golden, dict) and isinstance(found, dict):
        for key in sorted(golden.keys() | found.keys()):
            yield from differences(golden.get(key, "nothing"), found.get(key, "nothing"), f"{place}[{key}]")
    elif isinstance(golden, list) and isinstance(found, list) and len(golden) == len(found):
        for number, (one, other) in enumerate(zip(golden, found, strict=True)):
            yield from differences(one, other, f"{place}[{number}]")
    elif isinstance(golden, float) and isinstance(found, float):
        relative, absolute = next(pair for part, pair in TOLERANCES.items() if part in place)
        if not math.isclose(golden, found, rel_tol=relative, abs_tol=absolute):
            yield f"{place}: found {found!r}; expected {golden!r}"
    elif golden != found or type(golden) is not type(found):
        yield f"{place}: found {found!r}; expected {golden!r}"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of the recipe."""
    out = tmp_path_factory.mktemp("golden")
    run_recipe(out)
    return out


def test_the_numbers_are_the_golden_ones(run: Path, subtests: pytest.Subtests) -> None:
    stages = {file.parent.name: file.parent for file in run.glob("*/run.json")}
    assert stages.keys() == GOLDEN.keys() - {PROCESSOR}
    same_bits = processor() == GOLDEN[PROCESSOR]
    for name, folder in stages.items():
        golden, found = GOLDEN[name], numbers_of(folder)
        if not same_bits:
            weights = [key for key in golden if key.startswith("sha256") and key.endswith(".safetensors")]
            golden, found = ({k: v for k, v in one.items() if k not in weights} for one in (golden, found))
        with subtests.test(name):
            others = list(differences(golden, found, name))
            assert not others, f"{len(others)} differences\n" + "\n".join(others[:20])


def test_files_and_keys_are_those_of_the_interface(run: Path, subtests: pytest.Subtests) -> None:
    folders = defaultdict(list)
    for file in run.glob("*/run.json"):
        folders[json.loads(file.read_text())["stage"]].append(file.parent)
    for stage, paths in folders.items():
        with subtests.test(stage):
            check_folder(stage, *paths)
    check_folder("run", run, pattern="*")
    check_interface("keys", json.loads((run / "vocab/run.json").read_text()), "run.json")


def test_a_difference_is_found_and_named() -> None:
    golden = {"train/loss": 1.0, "a": [{"b": 0.5}, 2], "c": None, "d": 1}
    assert not list(differences(golden, {**golden, "train/loss": 1 + 9e-6, "a": [{"b": 0.50005}, 2]}))
    changed = {"train/loss": 1 + 3e-5, "a": [{"b": 0.501}, 2.0], "d": True, "e": 0}
    assert [line.partition(":")[0] for line in differences(golden, changed, "x")] == [
        *("x[a][0][b]", "x[a][1]", "x[c]", "x[d]", "x[e]", "x[train/loss]")
    ]
