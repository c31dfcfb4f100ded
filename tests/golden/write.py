"""Run the golden recipe and rewrite tests/golden/*.json: `python -m tests.golden.write`.

Only for intended changes of numbers, with the reason in the commit message. A refactoring does not change the files.
"""

from __future__ import annotations

import hashlib
import json
import platform
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from tests.forked import domainbert

HERE = Path(__file__).parent
PROCESSOR = "processor"  # the file that says where the numbers were made
_MEASURED_TIME = {"tokens_per_second", "model_flop_utilisation", "words_per_second", "latency_1", "latency_32"}
_MEASURED_TIME |= {"spread"}  # of these times
_PROSE = {"warnings", "folder_bytes"}  # words, and the size of a folder with a model card, which is words
_STABLE = ("config.json", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt")


def run_recipe(out: Path) -> None:
    """Run recipe.yaml with one thread, so that sums are added up in the same order."""
    domainbert(HERE, "run", "recipe.yaml", "--out", out, "--vars.cache", out / "soft-labels")


def numbers_of(stage: Path) -> dict[str, Any]:
    """All numbers of a stage folder that do not depend on time, by relative path; text files as their SHA-256."""
    numbers: dict[str, Any] = {"metrics": _timeless(_read(stage / "run.json")["metrics"])}
    for file in sorted(path for path in stage.rglob("*") if path.is_file()):
        name = str(file.relative_to(stage))
        if file.name in _STABLE or file.suffix == ".conll":
            numbers[f"sha256 of {name}"] = _sha256(file)
        if file.name in ("config.json", "metrics.json", "seeds.json"):
            numbers[name] = _timeless(_read(file))
        elif file.suffix == ".jsonl":
            lines = file.read_text(encoding="utf-8").splitlines()
            numbers[name] = [_timeless(json.loads(line)) for line in lines]
        elif file.suffix == ".safetensors":
            numbers[f"sha256 of {name}"] = _sha256(file)
            numbers[name] = {key: _statistics(tensor) for key, tensor in sorted(load_file(file).items())}
    return numbers


def processor() -> dict[str, str]:
    """On what the last bits of a sum depend."""
    described = {"machine": platform.machine(), "torch": torch.__version__}
    described["capability"] = torch.backends.cpu.get_cpu_capability()
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines()
    except FileNotFoundError:
        return described
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return described | {key: fields[key] for key in ("model name", "cpu family", "model", "flags") if key in fields}


def _timeless(value: Any) -> Any:
    """A copy with None for what time decides, and the number of sentences in place of their words."""
    if isinstance(value, list):
        return [_timeless(one) for one in value]
    if not isinstance(value, dict):
        return value
    copied = {key: _timeless(one) for key, one in value.items()}
    copied |= {key: None for key in value if key.rpartition("/")[2] in _MEASURED_TIME}
    return copied | {key: len(one) if isinstance(one, list) else None for key, one in value.items() if key in _PROSE}


def _statistics(tensor: torch.Tensor) -> dict[str, Any]:
    """Sums in which nothing cancels, so that a relative tolerance fits them."""
    exact = tensor.double()
    found = {"shape": list(tensor.shape), "dtype": str(tensor.dtype), "squares": float(exact.square().sum())}
    return found | {"positive": float(exact.clamp(min=0).sum()), "negative": float(exact.clamp(max=0).sum())}


def _read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def write() -> None:
    """Run the recipe and write the files."""
    with tempfile.TemporaryDirectory() as folder:
        run_recipe(Path(folder))
        found = {file.parent.name: numbers_of(file.parent) for file in sorted(Path(folder).glob("*/run.json"))}
    for old in HERE.glob("*.json"):
        old.unlink()
    for name, numbers in {**found, PROCESSOR: processor()}.items():
        text = json.dumps(numbers, indent=1, ensure_ascii=False, sort_keys=True)
        (HERE / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
