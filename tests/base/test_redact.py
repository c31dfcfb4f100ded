from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domainbert.base.errors import DomainbertError
from domainbert.base.redact import redact, redacted_output
from domainbert.cli import main
from domainbert.stages.stage import stage

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
        ("postgresql://user:pa/ss@host/db", "postgresql://user:***@host/db"),
        ("postgresql://user:12/3@host/db", "postgresql://user:***@host/db"),
        ("postgresql://user:p#s?s@host/db", "postgresql://user:***@host/db"),
        ("postgresql://user:p s w@host/db is down", "postgresql://user:***@host/db is down"),
        ("postgresql:/user:pa/ss@host", "postgresql:/user:***@host"),
        ("https://me:pa/ss@host/a@b", "https://me:***@host/a@b"),
        ("https://hf_token@host/simple", "https://***@host/simple"),
        ("git+https://ghp_abc@github.com/a/b", "git+https://***@github.com/a/b"),
        ("https://ghp_abc:x-oauth-basic@github.com/a", "https://***@github.com/a"),
        ("https://ghp_abc:@github.com/a", "https://***@github.com/a"),
        ("host=h password=s3cret dbname=d", "host=h password=*** dbname=d"),
        ("host=h password = 'a b' dbname=d", "host=h password = *** dbname=d"),
        (r"password='it\'s b' x", "password=*** x"),
        ("PGPASSWORD=s3cret psql", "PGPASSWORD=*** psql"),
        ("sslpassword=abc user=me", "sslpassword=*** user=me"),
        ("Authorization: Bearer abc", "Authorization: Bearer ***"),
        ("{'Authorization': 'Basic dXNlcg=='}", "{'Authorization': 'Basic ***'}"),
        ("401 for Bearer hf_0123456789 here", "401 for Bearer *** here"),
        ("bearer eyJhbGciOiJub25lIn0.eyJhIjoxfQ.x", "bearer ***"),
        (
            "https://b.s3.amazonaws.com/k?X-Amz-Credential=AK%2F1&X-Amz-Date=2&X-Amz-Signature=ab12&X-Amz-Expires=5",
            "https://b.s3.amazonaws.com/k?X-Amz-Credential=***&X-Amz-Date=2&X-Amz-Signature=***&X-Amz-Expires=5",
        ),
        ("https://h/k?X-Amz-Security-Token=a&b=1", "https://h/k?X-Amz-Security-Token=***&b=1"),
        ("https://h/k?GoogleAccessId=a&Signature=b%3D", "https://h/k?GoogleAccessId=a&Signature=***"),
        ("https://h/k?X-Goog-Signature=a", "https://h/k?X-Goog-Signature=***"),
        ("https://h/k?AWSAccessKeyId=AKIA&Expires=1", "https://h/k?AWSAccessKeyId=***&Expires=1"),
        (
            "https://a.blob.core.windows.net/c?sv=1&sig=ab%2F&se=2",
            "https://a.blob.core.windows.net/c?sv=1&sig=***&se=2",
        ),
        ("https://h/cb#access_token=ab&x=1", "https://h/cb#access_token=***&x=1"),
        ("postgresql://user@host/db", "postgresql://user@host/db"),
        ("ssh://git@host/a/b", "ssh://git@host/a/b"),
        ("git@host:a/b.git", "git@host:a/b.git"),
        ("see https://host:8080 or write to me@host.org", "see https://host:8080 or write to me@host.org"),
        ("see https://host:8080/a, or me@host.org", "see https://host:8080/a, or me@host.org"),
        ("postgresql://host:5432/db is down; ask me@host.org", "postgresql://host:5432/db is down; ask me@host.org"),
        ("https://host: me@host.org knows", "https://host: me@host.org knows"),
        ("https://[::1]:8080/a of me@host.org", "https://[::1]:8080/a of me@host.org"),
        ("https://medium.com/@me/a", "https://medium.com/@me/a"),
        ("the bearer transported instruments.", "the bearer transported instruments."),
        ("the password comes from PGPASSWORD or ~/.pgpass", "the password comes from PGPASSWORD or ~/.pgpass"),
        ("pad_token='[PAD]', mask_token=[MASK]", "pad_token='[PAD]', mask_token=[MASK]"),
        ("https://h/k?design=1&assign=2&sigma=3", "https://h/k?design=1&assign=2&sigma=3"),
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


# not `bearer`: what follows it is taken for a token if it is long and has digits
ORDINARY = """a the of password token secret signature key expected tokens; (see) credential: 8080
authorization: lr=1e-4 batch_size=32 50% vocab/ 'x' x: y; @vocab @pretrain/config.json hub:me/data hub:a/b@v1 C:\\a
a:b 12:30 a=b #3 x@"""
WORDS = st.sampled_from(ORDINARY.split())
HOSTS = st.sampled_from(["host", "example.org", "db-1.example.org", "127.0.0.1", "[::1]"])
NAMES = st.text("abcdefghij0123456789._-", min_size=1, max_size=8)
ADDRESSES = st.builds("{}@{}".format, NAMES, HOSTS)
PATHS = st.lists(NAMES | ADDRESSES, min_size=1, max_size=4).map("/".join)
PORTS = st.just("") | st.integers(1, 65535).map(":{}".format)
QUERIES = st.just("") | st.builds("?{}={}&b=2".format, st.sampled_from(["a", "page", "design", "sort"]), NAMES)
SCHEMES = st.sampled_from(["https", "http", "s3", "gs", "ftp", "file"])
URLS = st.builds("{}://{}{}/{}{}".format, SCHEMES, HOSTS, PORTS, PATHS, QUERIES)
DATABASES = st.builds("postgresql://{}@{}{}/{}".format, NAMES, HOSTS, PORTS, NAMES)
REPOSITORIES = st.builds("git@{}:{}.git".format, HOSTS, PATHS)


@given(st.lists(WORDS | ADDRESSES | PATHS | URLS | DATABASES | REPOSITORIES, max_size=12).map(" ".join))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert redact(text, NONE) == text


PASSWORDS = st.text("abcXYZ019/#? :!$%&=+~,;_-", min_size=3, max_size=20).map("s".__add__)
PASSWORDS = PASSWORDS.filter(lambda password: "://" not in password)  # which begins another URL


@given(st.sampled_from(["postgresql", "https", "redis", "ftp"]), NAMES, PASSWORDS, HOSTS, NAMES, WORDS, WORDS)
def test_any_password_of_a_url_is_hidden(
    scheme: str, user: str, password: str, host: str, path: str, before: str, after: str
) -> None:
    shown = redact(f"{before} {scheme}://{user}:{password}@{host}/{path} {after}", NONE)
    assert shown == f"{before} {scheme}://{user}:***@{host}/{path} {after}"


@given(WORDS, st.text('abcXYZ019/#?@ :!$%&=+~,;_-"', min_size=1), st.sampled_from(["password", "sslpassword"]))
def test_any_password_of_a_connection_string_is_hidden(before: str, password: str, key: str) -> None:
    assert redact(f"{before} host=h {key}='{password}' dbname=d", NONE) == f"{before} host=h {key}=*** dbname=d"


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


@dataclass(frozen=True, kw_only=True)
class Use:
    """Settings of `use`."""

    note: str
    """A secret."""

    shapes: dict[str, str] | None = None
    """More of them."""

    fail: bool = False
    """Say so."""


@stage
def use(out: Path, settings: Use) -> dict[str, object]:
    """Hold secrets."""
    note = settings.note
    assert note.endswith("canary-url-cdef@host/db")  # the stage gets the real one
    if note.startswith("crash"):
        raise RuntimeError(note)
    if settings.fail:
        raise DomainbertError(f"{note}: no such database, says {SECRETS['HF_TOKEN']}")
    return {"note": len(note)}


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fake_stages: ModuleType) -> Path:
    """Set secrets in the environment and define a stage that is given some of them but writes none."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)

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
    config = json.loads((secrets / "one" / "run.json").read_text())["config"]
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
    assert "is already done" in capfd.readouterr().out


def test_nothing_that_is_printed_holds_a_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "abcdefgh12345678")
    handler = logging.StreamHandler()  # of a library, from before
    with redacted_output():
        print("path/abcdefgh12345678.txt")
        sys.stdout.writelines(["https://me:s3cret@host/a\n"])
        handler.emit(logging.makeLogRecord({"msg": "reading abcdefgh12345678"}))
    print("abcdefgh12345678")
    assert capsys.readouterr() == (
        "path/***.txt\nhttps://me:***@host/a\nabcdefgh12345678\n",
        "reading ***\n",
    )
