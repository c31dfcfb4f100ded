from __future__ import annotations

from pathlib import Path

import huggingface_hub
import pytest

import domainbert
from domainbert.base.paths import check_hub_name, model_name, resolve_path, suggest_hub_name
from tests.refusals import refused


def test_folders_and_packages() -> None:
    assert resolve_path("some/folder") == Path("some/folder")
    assert resolve_path("package:domainbert/encoders") == Path(domainbert.__file__).parent / "encoders"
    with refused(problem="no installed Python package has the name 'not_there'"):
        resolve_path("package:not_there/model")
    with refused(found="'~/a.jsonl'", expected="the whole path..."):
        resolve_path(Path("~/a.jsonl"))
    with refused(problem="not a folder inside the Python package 'domainbert'"):
        resolve_path("package:domainbert/../x")


class FakeHub:
    """Write a snapshot with the files of the hub that match the requested patterns."""

    def __init__(self, root: Path, *files: str) -> None:
        self.root, self.files = root, files
        self.requests: list[tuple[str, str | None, list[str]]] = []

    def __call__(self, name: str, revision: str | None, allow_patterns: list[str]) -> str:
        self.requests.append((name, revision, allow_patterns))
        folder = self.root / "snapshots" / "0123abc"
        folder.mkdir(parents=True, exist_ok=True)
        for file in self.files:
            if any(Path(file).match(pattern) for pattern in allow_patterns):
                (folder / file).touch()
        return str(folder)


def test_a_model_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = FakeHub(tmp_path / "new", "config.json", "model.safetensors", "pytorch_model.bin", "tf_model.h5")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    folder = resolve_path(Path("hub:owner/name@v1"))
    assert folder == tmp_path / "new" / "snapshots" / "0123abc"
    assert [one[:2] for one in hub.requests] == [("owner/name", "v1")]
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors"]

    hub = FakeHub(tmp_path / "old", "config.json", "vocab.txt", "pytorch_model.bin")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    assert sorted(file.name for file in resolve_path("hub:name").iterdir()) == list(sorted(hub.files))
    assert [one[:2] for one in hub.requests] == [("name", None)] * 2

    hub = FakeHub(tmp_path / "exported", "config.json", "crf.json", "model.onnx", "model.int8.onnx", "decoder.onnx")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    assert {file.name for file in resolve_path("hub:name").iterdir()} == {*hub.files} - {"decoder.onnx"}


def test_without_a_network_a_model_comes_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`HF_HUB_OFFLINE` is set in all tests."""
    snapshot = tmp_path / "models--owner--name" / "snapshots" / ("0" * 40)
    for file, text in {snapshot / "config.json": "{}", snapshot.parents[1] / "refs" / "main": snapshot.name}.items():
        file.parent.mkdir(parents=True)
        file.write_text(text)
    (snapshot / "model.safetensors").touch()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    assert resolve_path("hub:owner/name") == snapshot
    with refused(where="hub:owner/other", problem="the model cannot be downloaded from the hub: ..."):
        resolve_path("hub:owner/other")


def test_what_a_model_is_called() -> None:
    assert model_name(Path("cache/models--owner--name/snapshots/0123abc")) == "hub:owner/name@0123abc"
    assert model_name(Path("runs/snapshots/pretrain")) == "pretrain"


def test_a_hub_that_does_not_give_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with refused(where="hub:", problem="not a valid name on the Hugging Face hub"):
        resolve_path("hub:")

    def refuse(*_: object, **__: object) -> str:
        raise OSError("no such\n  model")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with refused(where="hub:a/b", problem="the model cannot be downloaded from the hub: no such model..."):
        resolve_path("hub:a/b")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("hub:bert-base-uncased", ("bert-base-uncased", None)),
        ("hub:google-bert/bert.base_1", ("google-bert/bert.base_1", None)),
        ("hub:a/b@v1.0", ("a/b", "v1.0")),
        ("hub:a@refs/pr/1", ("a", "refs/pr/1")),
    ],
)
def test_names_of_the_hub(text: str, parts: tuple[str, str | None]) -> None:
    assert check_hub_name(text) == parts


@pytest.mark.parametrize(
    "name",
    [
        "",
        "../..",
        "./a",
        "/etc/passwd",
        "a/b/c",
        "a b",
        "a/",
        "a/..",
        "-x",
        ".a",
        "a@",
        "a@..",
        "a@../../b",
        "a..b",
        "é",
    ],
)
def test_what_is_no_name_of_the_hub_is_refused_before_the_hub_is_asked(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("the hub was called"))
    with refused(problem="not a valid name on the Hugging Face hub", expected="hub:NAME or..."):
        resolve_path(f"hub:{name}")


def test_a_name_of_the_hub_without_hub_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    assert suggest_hub_name(Path("bert-base-uncased")) == (
        ", or hub:bert-base-uncased for a model on the Hugging Face hub"
    )
    assert suggest_hub_name(Path("google-bert/bert-base")).startswith(", or hub:google-bert/bert-base ")
    for local in ("runs/x", "/a", "../a", "./../a/b", "a/b/c", "a b"):
        assert suggest_hub_name(Path(local)) == "", local
