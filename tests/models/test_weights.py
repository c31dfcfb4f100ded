from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from domainbert.models.loading import read_weights
from tests.refusals import refused

TENSORS = {"a.weight": torch.arange(6.0).reshape(2, 3), "a.bias": torch.ones(2), "b.LayerNorm.gamma": torch.zeros(1)}
READ = ["a.bias", "a.weight", "b.LayerNorm.weight"]


def write_index(folder: Path, kind: str, places: dict[str, str]) -> None:
    (folder / f"{kind}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def check(folder: Path) -> None:
    tensors = read_weights(folder)
    assert sorted(tensors) == READ
    assert torch.equal(tensors["a.weight"], TENSORS["a.weight"])


def test_one_file_of_either_kind(tmp_path: Path) -> None:
    torch.save(TENSORS, tmp_path / "pytorch_model.bin")
    check(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"safetensors are read first")
    save_file(TENSORS, tmp_path / "model.safetensors")
    check(tmp_path)


@pytest.mark.parametrize("kind", ["model.safetensors", "pytorch_model.bin"])
def test_shards(tmp_path: Path, kind: str) -> None:
    stem, _, suffix = kind.partition(".")
    write = save_file if suffix == "safetensors" else torch.save
    names = [f"{stem}-{number:05}-of-00002.{suffix}" for number in (1, 2)]
    for name, keys in zip(names, (["a.weight"], ["a.bias", "b.LayerNorm.gamma"]), strict=True):
        write({key: TENSORS[key] for key in keys}, tmp_path / name)
    places = {"a.weight": names[0], "a.bias": names[1], "b.LayerNorm.gamma": names[1]}
    write_index(tmp_path, kind, places)
    check(tmp_path)
    write_index(tmp_path, kind, places | {"c.weight": names[1]})
    with refused(file=f"{kind}.index.json", found="no weights named c.weight (1 missing)"):
        read_weights(tmp_path)
    write_index(tmp_path, kind, places | {"c.weight": "gone"})
    with refused(problem="names 'gone', which is missing", expected="all 3 weight files"):
        read_weights(tmp_path)
    write_index(tmp_path, kind, places | {"c.weight": "../elsewhere.bin"})
    with refused(problem="names the file '../elsewhere.bin'", expected="only files in its own folder"):
        read_weights(tmp_path)


class _Runs:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return Path.touch, (self.path,)


def test_a_pickle_that_runs_something_runs_nothing(tmp_path: Path) -> None:
    torch.save({"a": _Runs(tmp_path / "ran")}, tmp_path / "pytorch_model.bin")
    with refused(file="pytorch_model.bin", problem="holds more than tensors, or is...", expected="only tensors:..."):
        read_weights(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_files_that_are_no_weights(tmp_path: Path) -> None:
    with refused(file=tmp_path, problem="no model.safetensors and no pytorch_model.bin"):
        read_weights(tmp_path)
    torch.save([torch.ones(1)], tmp_path / "pytorch_model.bin")
    with refused(file="pytorch_model.bin", problem="is not a mapping of names to...", expected="the state_dict..."):
        read_weights(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"nothing")
    with refused(file="pytorch_model.bin", problem="holds more than tensors, or is damaged"):
        read_weights(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    with refused(where="index.json", problem="not an index of weight files..."):
        read_weights(tmp_path)
