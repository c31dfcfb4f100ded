import errno
import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from domainbert.base.errors import DomainbertError
from domainbert.corpus.config import CorpusConfig, Source
from domainbert.corpus.files import find_files
from domainbert.corpus.report import SourceReport
from domainbert.corpus.sources import read_source
from tests.refusals import refused

NO_NAMES = ("", "../..", "./data", "/etc", "a/b/c", "a b", "a/", "a/..", "-x", "a/b@", "a@../x", "a..b", "ä", "a\\nb")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.txt", "a/c.txt", "a/d/e.txt", ".hidden.txt", ".git/f.txt", "notes.pdf"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "z.txt.gz").write_bytes(gzip.compress(b"z"))
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "names", "ignored"),
    [
        ("", ["a/c.txt", "a/d/e.txt", "b.txt", "z.txt.gz"], 1),
        ("a", ["c.txt", "d/e.txt"], 0),
        ("b.txt", ["b.txt"], 0),
        ("*.txt", ["b.txt"], 0),
        ("**/*.txt", ["a/c.txt", "a/d/e.txt", "b.txt"], 0),
        ("*", ["a/c.txt", "a/d/e.txt", "b.txt", "z.txt.gz"], 1),
        ("**", ["a/c.txt", "a/d/e.txt", "b.txt", "z.txt.gz"], 1),
        ("[a]/*/e.txt", ["a/d/e.txt"], 0),
    ],
)
def test_files_of_folders_and_globs(folder: Path, pattern: str, names: list[str], ignored: int) -> None:
    source, counts = Source(f"{folder}/{pattern}".rstrip("/")), SourceReport("x")
    assert [identity for identity, _ in read_source(source, counts)] == names
    assert (counts.files, counts.files_ignored) == (len(names), ignored)
    assert [file.name for file in CorpusConfig([source]).input_files()] == [Path(name).name for name in names]


@pytest.mark.parametrize("pattern", ["", "*", "**/*.txt", "a/../a"])
def test_a_link_to_a_folder_that_contains_it_adds_no_file(folder: Path, pattern: str) -> None:
    names = [name for name, _ in find_files(f"{folder}/{pattern}".rstrip("/"))]
    (folder / "a/again").symlink_to("..")
    (folder / "a/d/self").symlink_to(folder / "a/d")
    assert [name for name, _ in find_files(f"{folder}/{pattern}".rstrip("/"))] == names
    (folder / "here").symlink_to(".")  # the user names the link
    assert {name for name, _ in find_files(f"{folder}/here/*.txt")} == {"b.txt"}


@pytest.mark.parametrize("pattern", ["", "*.txt"])
def test_a_broken_link_is_an_error(folder: Path, pattern: str) -> None:
    (folder / "c.txt").symlink_to(folder / "absent.txt")
    with refused(file="c.txt", problem="cannot be read (No such file or directory)"):
        list(read_source(Source(f"{folder}/{pattern}".rstrip("/")), SourceReport("x")))


def test_all_sources_with_nothing_to_read_are_told_together(folder: Path) -> None:
    (folder / "empty").mkdir()
    names = ["absent", "*.csv", "empty", "notes.pdf", "*.pdf", "b.txt"]
    with pytest.raises(DomainbertError) as caught:
        CorpusConfig([Source(f"{folder}/{name}") for name in names]).input_files()
    reasons = [
        "which neither exists nor matches as a glob",
        "which neither exists nor matches as a glob",
        "a folder without a readable file",
        "but no reader for this kind of file",
        "but no reader for its files, such",
    ]
    for error, number, reason in zip(caught.value.errors, range(5), reasons, strict=True):
        assert error.where == f"sources[{number}].path"
        assert error.found.startswith(f"'{folder}/{names[number]}', {reason}")


def test_hub_datasets_are_streamed_by_datasets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # datasets opens a local folder by the same call as one of the hub, without the network
    (folder / "hub").mkdir()
    (folder / "hub/train.jsonl").write_text('{"body": "one"}\n{"body": null}\n{"body": "three"}\n')
    monkeypatch.chdir(folder)
    source = Source("hub:hub", text_key="body")
    assert [text for _, text in read_source(source, SourceReport("x"))] == ["one", "", "three"]
    assert CorpusConfig([source]).input_files() == []
    with refused(problem="no column 'text' (columns found: 'body')"):
        list(read_source(Source(source.path), SourceReport("x")))
    with refused(file="hub:hub/absent", problem="the dataset cannot be read..."):
        list(read_source(Source("hub:hub/absent"), SourceReport("x")))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("weight", 0.0, "a number above 0 and up to 1,000"),
        ("weight", float("nan"), "a number above 0..."),
        ("documents", "page", "one of 'file', 'blank_line', 'line'"),
        ("path", "", "a file, folder, glob or hub:NAME"),
        ("path", "hub:me/data@v1", "hub:me/data (revisions are not supported)"),
    ],
)
def test_a_wrong_source_is_refused(key: str, value: object, expected: str) -> None:
    found = value if str(value).startswith("hub:") else repr(value)
    with refused(where=key, found=found, expected=expected):
        Source(**{"path": "x", key: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_is_no_name_of_the_hub_is_refused(name: str) -> None:
    with refused(where=f"hub:{name}", problem="not a valid name on the Hugging Face hub", expected="hub:NAME or..."):
        Source(f"hub:{name}")


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"sources": []}, "sources"),
        ({"min_characters": 0}, "min_characters"),
        ({"near_duplicate_threshold": 1.5}, "near_duplicate_threshold"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
    ],
)
def test_a_wrong_corpus_is_refused(arguments: dict[str, object], key: str) -> None:
    with refused(where=key):
        CorpusConfig(**{"sources": [Source("x")], **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", ["*/*.txt", "**/*.txt", "**/c.txt", "*/b/*.txt", "closed/*.txt"])
def test_a_folder_that_a_glob_cannot_list_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    scandir = os.scandir
    for name in ("open/b/é.txt", "open/a.txt", "closed/b/c.txt", "closed/d.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    assert list(find_files(f"{tmp_path}/{pattern}"))

    def closed(path: Any = ".") -> Any:
        if Path(path).name == ("b" if pattern == "*/b/*.txt" else "closed"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    with pytest.raises(PermissionError):
        list(find_files(f"{tmp_path}/{pattern}"))
