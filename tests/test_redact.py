from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domainbert.cli import main
from domainbert.redact import redact

NONE: dict[str, str] = {}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://user:s3cret@host/db", "postgresql://user:***@host/db"),
        ("postgresql+psycopg2://user:s3cret@host:5432/db?x=1", "postgresql+psycopg2://user:***@host:5432/db?x=1"),
        ("redis://:s3cret@host", "redis://:***@host"),
        ("https://me:s3:cr@et@host/a@b", "https://me:***@host/a@b"),
        ("two https://a:b@c and ftp://d:e@f.", "two https://a:***@c and ftp://d:***@f."),
        ("postgresql://host/db?user=me&password=s3cret&x=1", "postgresql://host/db?user=me&password=***&x=1"),
        ("https://host/?api_key=abc#top", "https://host/?api_key=***#top"),
        ("https://host/?HF_TOKEN=abc", "https://host/?HF_TOKEN=***"),
        ("postgresql:/user:s3cret@host/db", "postgresql:/user:***@host/db"),
        ("postgresql://user@host/db", "postgresql://user@host/db"),
        ("https://host:8080/a:b@c", "https://host:8080/a:b@c"),
        ("https://host:8080", "https://host:8080"),
        ("data/a:b@c.txt", "data/a:b@c.txt"),
        ("hub:me/data", "hub:me/data"),
        ("s3://bucket/key", "s3://bucket/key"),
    ],
)
def test_passwords_in_urls(text: str, shown: str) -> None:
    assert redact(text, NONE) == shown
    assert redact(shown, NONE) == shown


def test_secrets_of_the_environment() -> None:
    environment = {
        "WANDB_API_KEY": "0123456789abcdef",
        "HF_TOKEN": "hf_abcdefgh",
        "PGPASSWORD": "hf_abcdefgh_longer",
        "SHORT_TOKEN": "adamw",
        "SSL_KEY": "/etc/ssl/some.key",
        "KEYBOARD": "qwertzuiop",
        "HOME": "/home/somebody",
    }
    value = {
        "a": ["x0123456789abcdefx", ("hf_abcdefgh_longer", "hf_abcdefgh")],
        "hf_abcdefgh": {"path": "/etc/ssl/some.key", "name": "adamw", "n": 3, "none": None, "yes": True},
        "home": "/home/somebody/qwertzuiop",
    }
    assert redact(value, environment) == {
        "a": ["x***x", ["***", "***"]],
        "***": {"path": "/etc/ssl/some.key", "name": "adamw", "n": 3, "none": None, "yes": True},
        "home": "/home/somebody/qwertzuiop",
    }


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_characters="@=")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(TREES)
def test_other_values_stay_as_they_are(tree: object) -> None:
    assert redact(tree, NONE) == tree


SECRETS = {"WANDB_API_KEY": "canary-wandb-0123", "HF_TOKEN": "canary-hf-4567", "DATABASE_PASSWORD": "canary-pg-89ab"}
URL = "postgresql://user:canary-url-cdef@host/db"


def secrets_in(folder: Path) -> list[str]:
    """Files below a folder that hold a secret, and how many files there are."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert len(files) >= 3
    return [str(file) for file in files if b"canary" in file.read_bytes()]


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fake_stages: ModuleType) -> Path:
    """Secrets in the environment; a stage that is given some, and writes none of its own."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)

    def use(out: Path, note: str, shapes: dict[str, str] | None = None, fail: bool = False) -> dict[str, object]:
        """Hold secrets.

        Args:
            note: a secret.
            shapes: more of them.
            fail: say so.
        """
        assert note.endswith("canary-url-cdef@host/db")  # the stage gets the real one
        if note.startswith("crash"):
            raise RuntimeError(note)
        if fail:
            from domainbert.errors import DomainbertError

            raise DomainbertError(f"{note}: no such database, says {SECRETS['HF_TOKEN']}")
        return {"note": len(note)}

    use.__annotations__ = {"out": Path, "note": str, "shapes": dict[str, str] | None, "fail": bool}
    monkeypatch.setattr(fake_stages, "use", use)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_no_secret_is_written_or_printed(secrets: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one, two, three = SECRETS.values()
    shapes = f"{{a: {one}, b: 'x {two}', {three}: c}}"
    assert main(["use", "--note", URL, "--shapes", shapes, "--out", "one"]) == 0
    recipe = f"out: run\nvars: {{db: '{URL}'}}\nstages: {{use: {{note: '${{db}}', shapes: {shapes}}}}}\n"
    (secrets / "recipes").mkdir()
    (secrets / "recipes" / "a.yaml").write_text(recipe)
    assert main(["run", "recipes/a.yaml"]) == 0
    assert main(["run", "recipes/a.yaml", "--vars.db", URL]) == 0  # the second time there is nothing to do
    assert main(["run", "recipes/a.yaml", "--vars.db", URL, "--force", "--out", "again"]) == 0
    assert main(["use", "--note", URL, "--print_config"]) == 0
    captured = capfd.readouterr()
    assert "skipped (done)" in captured.out and "user:***@host" in captured.out
    assert "canary" not in captured.out + captured.err
    (secrets / "recipes" / "a.yaml").unlink()
    assert secrets_in(secrets) == []
    config = json.loads((secrets / "one" / "manifest.json").read_text())["config"]
    assert config["note"] == "postgresql://user:***@host/db" and config["shapes"] == {
        "a": "***",
        "b": "x ***",
        "***": "c",
    }


def test_no_secret_is_in_an_error(secrets: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["use", "--note", URL, "--fail", "true", "--out", "one"],
        ["use", "--note", URL, "--fail", URL, "--out", "one"],
        ["use", "--note", URL, URL],
        ["use", "-c", URL],
        ["run", URL],
        ["run", "--stages.use.note", URL, SECRETS["HF_TOKEN"]],
        [URL],
    ):
        assert main(words) == 2
        captured = capfd.readouterr()
        assert captured.err.startswith("domainbert: ") and "***" in captured.err
        assert "canary" not in captured.out + captured.err


def test_no_secret_is_in_what_a_crash_leaves(secrets: Path) -> None:
    recipe = secrets / "recipe.yaml"
    recipe.write_text("out: run\nvars: {db: x}\nstages: {use: {note: '${db}'}}\n")
    with pytest.raises(RuntimeError, match="canary"):
        main(["run", "recipe.yaml", "--vars.db", f"crash {URL}"])
    assert secrets_in(secrets) == []


def test_another_password_is_no_other_work(secrets: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["use", "--note", URL, "--out", "one"]) == 0
    assert main(["use", "--note", URL.replace("user:", "user:new-"), "--out", "one"]) == 0
    assert "is done already" in capfd.readouterr().out
