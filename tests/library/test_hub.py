"""`push_to_hub` and `domainbert push` against a local server: which files arrive, and the sentence of each error."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import ModelCard

from domainbert import DomainbertError, push_to_hub
from tests.fake_hub import READS, WRITES, FakeHub, fake_hub
from tests.refusals import command_refused, refused

FILES = {
    *("README.md", "config.json", "model.safetensors", "special_tokens_map.json"),
    *("tokenizer.json", "tokenizer_config.json", "vocab.txt"),
}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """A hub for this process, with a token that may write."""
    with fake_hub() as hub:
        constants = huggingface_hub.constants
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.setenv("HF_TOKEN", WRITES)
        yield hub


@pytest.fixture
def tagger(folder: Path, tmp_path: Path) -> Path:
    """A model folder of a stage, with files that are not of the model."""
    tagger = shutil.copytree(folder / "model", tmp_path / "tagger")
    (tagger / "README.md").write_text("---\nlicense: mit\n---\n# Tagger\n")
    for name in ("manifest.json", "training.json", "running.lock", "status.json", "metrics.json", "model.tmp"):
        (tagger / name).write_text("{}")
    for name in ("checkpoints/step-5/training.ckpt", "logs/metrics.jsonl", "generator/config.json"):
        (tagger / name).parent.mkdir(parents=True)
        (tagger / name).write_text("{}")
    return tagger


def test_the_files_of_the_model_arrive_and_no_others(hub, tagger):
    assert push_to_hub("me/tagger", tagger) == f"{hub.url}/me/tagger"
    (uploaded,) = hub.repositories.values()
    assert uploaded == {name: (tagger / name).read_bytes() for name in FILES}
    assert hub.created == [{"name": "tagger", "organization": "me"}] and hub.commits == ["Upload model"]


def test_a_second_upload_replaces_the_files(hub, tagger, tmp_path):
    push_to_hub("tagger", tagger, private=True)  # of the user of the token
    assert hub.created[0]["name"] == "tagger" and "private" in (*hub.created[0], hub.created[0].get("visibility"))
    (tmp_path / "card.md").write_text("# Scores")
    push_to_hub("me/tagger", tagger, card=tmp_path / "card.md", commit_message="Scores", token=WRITES)
    assert hub.repositories["me/tagger"]["README.md"] == b"# Scores"
    assert hub.repositories["me/tagger"].keys() == FILES and hub.commits == ["Upload model", "Scores"]


def test_the_best_seed_of_a_training_is_uploaded(hub, tagger, tmp_path):
    best = shutil.copytree(tagger, tmp_path / "run/seed-2")
    (best / "README.md").write_text("# Best")
    shutil.copytree(tagger, tmp_path / "run/seed-1")
    (tmp_path / "run/seeds.json").write_text(json.dumps({"best": "seed-2"}))
    push_to_hub("me/tagger", tmp_path / "run")
    assert hub.repositories["me/tagger"]["README.md"] == b"# Best"


def test_shards_and_exported_files_are_uploaded(hub, tagger):
    (tagger / "model.safetensors").rename(tagger / "model-00001-of-00001.safetensors")
    (tagger / "model.safetensors.index.json").write_text("{}")
    push_to_hub("me/tagger", tagger)
    shards = {"model-00001-of-00001.safetensors", "model.safetensors.index.json"}
    assert hub.repositories["me/tagger"].keys() == FILES - {"model.safetensors"} | shards
    for name in shards:
        (tagger / name).unlink()
    exported = {"model.onnx", "model.int8.onnx", "crf.json"}
    for name in exported:
        (tagger / name).write_text("{}")
    push_to_hub("me/exported", tagger)
    assert hub.repositories["me/exported"].keys() == FILES - {"model.safetensors"} | exported


def test_the_command_uploads_with_the_variables_of_the_environment(hub, tagger, tmp_path):
    variables = {"HF_ENDPOINT": hub.url, "HF_TOKEN": WRITES, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
    (tmp_path / "card.md").write_text("# Scores")
    words = ["push", str(tagger), "me/tagger", "--card", str(tmp_path / "card.md"), "--message", "First", "--private"]
    result = subprocess.run(
        [sys.executable, "-m", "domainbert", *words], env=os.environ | variables, capture_output=True, text=True
    )
    assert (result.returncode, result.stdout.splitlines()[-1:]) == (0, [f"{hub.url}/me/tagger"]), result.stderr
    assert hub.repositories["me/tagger"].keys() == FILES and hub.commits == ["First"]
    assert hub.repositories["me/tagger"]["README.md"] == b"# Scores"


def test_a_module_uploads_what_it_saves(hub, folder):
    from domainbert import FineTuning, Ner
    from domainbert.models.card import CardConfig

    module = FineTuning.from_pretrained(folder / "model", Ner())
    assert module.push_to_hub("me/tagger", card=CardConfig(license="mit")) == f"{hub.url}/me/tagger"
    uploaded = hub.repositories["me/tagger"]
    assert uploaded.keys() == FILES and ModelCard(uploaded["README.md"].decode()).data.license == "mit"
    assert uploaded["tokenizer.json"] == (folder / "model/tokenizer.json").read_bytes()


UPLOAD = "the model cannot be uploaded to the hub"


def problem(repo_id: str, tagger: Path, **arguments: str) -> str:
    with pytest.raises(DomainbertError) as raised:
        push_to_hub(repo_id, tagger, **arguments)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_what_the_hub_refuses_is_one_sentence(hub, tagger, monkeypatch):
    expected = "expected a token with write access to it"
    refused = f"{UPLOAD}: the token may not write to this repository; {expected}"
    assert problem("me/tagger", tagger, token=READS) == f"me/tagger: {refused}"
    assert problem("you/tagger", tagger) == f"you/tagger: {refused}"
    (tagger / "README.md").write_text("---\nlicense: none\n---\n")
    message = 'Invalid metadata in README.md. - "license" must be one of the list'
    assert problem("me/tagger", tagger) == f"me/tagger: {UPLOAD}: {message}"
    assert hub.repositories == {"me/tagger": {}} and hub.commits == []
    monkeypatch.delenv("HF_TOKEN")
    assert problem("me/tagger", tagger) == (
        f"me/tagger: {UPLOAD}: the hub accepts no token from this machine; run hf auth login, or set HF_TOKEN to a "
        "token with write access"
    )


def test_an_unreachable_hub_is_one_sentence(hub, tagger, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "unset the `HF_HUB_OFFLINE` environment variable" in problem("me/tagger", tagger)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        assert problem("me/tagger", tagger).startswith(f"me/tagger: {UPLOAD}: ")


def test_what_is_no_model_is_refused_before_the_hub_is_asked(hub, tagger, tmp_path):
    with refused(file=tmp_path, problem="no config.json", expected=f"a model folder, such as {tmp_path / 'tagger'}"):
        push_to_hub("me/tagger", tmp_path)
    with refused(where="me/tag ger", problem="not a valid name on the Hugging Face hub"):
        push_to_hub("me/tag ger", tagger)
    with refused(where="me/tagger@main", found="the revision main", expected="a name without one"):
        push_to_hub("me/tagger@main", tagger)
    with refused(where="card", found=str(tagger / "REAMDE.md"), expected="a file"):
        push_to_hub("me/tagger", tagger, card=tagger / "REAMDE.md")
    (tagger / "model.safetensors").unlink()
    with refused(file=tagger, expected="a model folder with its weights..."):
        push_to_hub("me/tagger", tagger)
    assert hub.created == []


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        ([], {"where": "push", "problem": "expected a folder and a repository: domainbert push FOLDER OWNER/NAME"}),
        (
            ["a", "me/a", "--public", "1"],
            {"where": "--public", "problem": "no such option of push", "expected": "--card, --private or --message"},
        ),
        (
            ["a", "me/a", "-c", "b.yaml"],
            {"where": "-c", "problem": "no such option of push", "expected": "--card, --private or --message"},
        ),
    ],
)
def test_a_wrong_command_is_one_sentence(words, facts):
    command_refused("push", *words, **facts)
