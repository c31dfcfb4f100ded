"""Standard input and pipes: read once, predicted as they come, never done already; elsewhere refused in a sentence."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from domainbert.base.errors import DomainbertError
from domainbert.cli import main
from domainbert.corpus.config import CorpusConfig, Source
from domainbert.labelled.formats import NerFormat
from domainbert.serving.texts import iterate_available
from domainbert.tasks.classification.config import Classification, ClassificationFormat
from domainbert.tasks.classification.files import read as read_classification
from domainbert.tasks.ner.files import read_ner
from tests.forked import SECONDS
from tests.refusals import command_refused, refused


@contextmanager
def standard_input(text: str) -> Iterator[None]:
    """A pipe with a text for file descriptor 0, which cannot be opened by name from outside."""
    ours, theirs = os.pipe()
    kept = os.dup(0)
    os.write(theirs, text.encode())
    os.close(theirs)
    os.dup2(ours, 0)
    os.close(ours)
    try:
        yield
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def texts_of(out: Path) -> list[str]:
    file = out / "predictions.jsonl"
    return [json.loads(line)["text"] for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def words(runs, tmp_path) -> Callable[[str], list[str]]:
    def command(input: str) -> list[str]:
        return ["predict", "--model", str(runs / "ner-pretrained"), "--out", str(tmp_path / "out"), "--input", input]

    return command


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("One.\nTwo men.\n", "lines of text"),
        ('{"text": "One."}\n{"text": "Two men."}\n', "JSONL"),
        ("One. O\n\nTwo O\nmen. B-x\n", "CoNLL (2 columns)"),
    ],
)
def test_standard_input_is_read_once_and_never_done_already(words, tmp_path, capsys, given, said):
    """The first lines, which tell the kind, are not lost."""
    out = tmp_path / "out"
    with standard_input(given):
        assert main(words("-")) == 0
    assert texts_of(out) == ["One.", "Two men."]
    assert f"-: read as {said}\n" in capsys.readouterr().out
    assert json.loads((out / "run.json").read_text())["inputs"]["-"].startswith("stream ")
    with standard_input(given):
        assert main(words("-")) == 2
    assert "holds output of an earlier run (input changed); use another --out, or --force" in capsys.readouterr().err
    with standard_input("Three.\n"):
        assert main([*words("-"), "--force"]) == 0
    assert texts_of(out) == ["Three."]


def test_predictions_are_written_as_the_texts_come(words, tmp_path):
    """Each text is sent when the prediction of the one before is on disk."""
    pipe, out = tmp_path / "pipe", tmp_path / "out"
    os.mkfifo(pipe)
    sent = [json.dumps({"text": f"Text {number}."}) for number in range(4)]
    seen = []

    def send() -> None:
        with pipe.open("w", encoding="utf-8") as stream:
            for number, line in enumerate(sent):
                stream.write(line + "\n")
                stream.flush()
                end = time.monotonic() + SECONDS
                while len(texts_of(out)) <= number and time.monotonic() < end:
                    time.sleep(0.05)
                seen.append(len(texts_of(out)))

    writer = threading.Thread(target=send)
    writer.start()
    assert main(words(str(pipe))) == 0
    writer.join()
    assert seen == [1, 2, 3, 4]


def test_a_broken_line_of_a_stream_is_named(words, tmp_path, capsys):
    with standard_input('{"text": "a"}\n{"text": \n'):
        assert main(words("-")) == 2
    assert "-:2: not JSON" in capsys.readouterr().err and texts_of(tmp_path / "out") == ["a"]
    with standard_input('{"txt": "a"}\n'):
        assert main([*words("-"), "--force"]) == 2
    assert "-:1: no string under 'text'" in capsys.readouterr().err
    assert not (tmp_path / "out/predictions.jsonl").exists(), "there is nothing to keep"


def test_what_was_predicted_before_a_broken_line_of_a_stream_is_kept(words, tmp_path, capsys):
    """The folder was removed, though nobody can send the texts again."""
    sent = [json.dumps({"text": f"Text {number}."}) for number in range(300)]
    with standard_input("\n".join([*sent, "{broken", sent[0]])):
        assert main(words("-")) == 2
    file = tmp_path / "out/predictions.jsonl"
    kept = f"; earlier predictions (300) are kept in {file}\n"
    said = capsys.readouterr().err
    assert "-:301: not JSON" in said and said.endswith(kept)
    assert texts_of(tmp_path / "out") == [f"Text {number}." for number in range(300)]
    assert json.loads((tmp_path / "out/run.json").read_text())["state"] == "failed"
    with standard_input(sent[0]):
        assert main(words("-")) == 2
    assert "; use another --out, or --force to replace it" in capsys.readouterr().err
    assert len(texts_of(tmp_path / "out")) == 300
    with standard_input(sent[0]):
        assert main([*words("-"), "--force"]) == 0
    assert texts_of(tmp_path / "out") == ["Text 0."]


def assert_kept_until_forced(
    words: Callable[[str], list[str]], out: Path, capsys: pytest.CaptureFixture[str], texts: list[str]
) -> None:
    assert texts_of(out) == texts
    command = words("-")
    recipe = out.parent / "recipe.yaml"
    recipe.write_text(f"out: {out.parent}\nstages: {{out: {{stage: predict, model: {command[2]}, input: '-'}}}}\n")
    for arguments, said in {
        tuple(
            command
        ): f"domainbert: {out}: holds output of an earlier run (ended while it read a stream); use another "
        "--out, or --force to replace it\n",
        ("run", str(recipe)): f"domainbert: stage out: ended while it read a stream, and its output is kept in {out}; "
        "move the output, or use --force out to replace it\n",
    }.items():
        with standard_input("New.\n"):
            assert main(list(arguments)) == 2
        assert capsys.readouterr().err == said
        assert texts_of(out) == texts
    with standard_input("New.\n"):
        assert main([*command, "--force"]) == 0
    assert texts_of(out) == ["New."]


def test_predictions_of_an_interrupted_stream_are_kept(words, tmp_path, capsys):
    """Ctrl-C is the usual end of `tail -f texts | domainbert predict`; the next run deleted the predictions."""
    pipe, out = tmp_path / "pipe", tmp_path / "out"
    os.mkfifo(pipe)
    ended = threading.Event()

    def send() -> None:
        with pipe.open("w", encoding="utf-8") as stream:
            stream.write("One.\nTwo men.\n")
            stream.flush()
            end = time.monotonic() + SECONDS
            while len(texts_of(out)) < 2 and time.monotonic() < end:
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)
            ended.wait(SECONDS)

    writer = threading.Thread(target=send)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    try:
        writer.start()
        assert main(words(str(pipe))) == 75
    finally:
        ended.set()
        signal.signal(signal.SIGINT, handler)
        writer.join()
    said = f"domainbert: {out}: stopped by SIGINT; its output is kept, and a stream cannot be resumed\n"
    assert capsys.readouterr().err.endswith(said)
    assert_kept_until_forced(words, out, capsys, ["One.", "Two men."])


def test_predictions_of_a_stream_before_the_disk_was_full_are_kept(words, tmp_path, capsys, monkeypatch):
    def full(progress: object, count: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, standard_input("One.\n"):
        patch.setattr("domainbert.base.progress.Progress.advance", full)
        assert main(words("-")) == 2
    said = "the output until then is kept; free some space, and use another --out for the rest\n"
    assert capsys.readouterr().err.endswith(said)
    assert_kept_until_forced(words, tmp_path / "out", capsys, ["One."])


def test_what_was_predicted_before_a_broken_line_of_a_file_is_kept(words, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("domainbert.stages.predict._CHUNK_SIZE", 256)
    rows = [json.dumps({"text": f"Text {number}."}) for number in range(300)]
    texts = tmp_path / "texts.jsonl"
    texts.write_text("\n".join([*rows, "{broken"]))
    assert main(words(str(texts))) == 2
    file = tmp_path / "out/predictions.jsonl"
    said = capsys.readouterr().err
    assert f"{texts}:301: not JSON" in said and said.endswith(f"earlier predictions (256) are kept in {file}\n")
    assert texts_of(tmp_path / "out") == [f"Text {number}." for number in range(256)]
    texts.write_text("\n".join(rows))
    assert main([*words(str(texts)), "--force"]) == 0
    assert len(texts_of(tmp_path / "out")) == 300


def test_what_has_come_is_predicted_together():
    waiting = threading.Event()

    def items() -> Iterator[tuple[dict, None]]:
        for number in range(7):
            if number == 2:
                waiting.wait(SECONDS)
            yield {"text": str(number)}, None
        raise DomainbertError("broken")

    chunks = iterate_available(items(), 3)
    first = [row["text"] for row, _ in next(chunks)]
    first += [row["text"] for row, _ in next(chunks)] if len(first) < 2 else []
    assert first == ["0", "1"]
    waiting.set()
    rest: list[str] = []
    with refused(problem="broken"):
        for chunk in chunks:
            assert len(chunk) <= 3
            rest += [row["text"] for row, _ in chunk]
    assert rest == ["2", "3", "4", "5", "6"]


@pytest.mark.parametrize(("name", "what"), [("pipe", "a pipe"), ("/dev/zero", "a device"), ("-", "standard input")])
def test_what_is_read_more_than_once_has_to_be_a_file(tmp_path, name, what):
    path = tmp_path / name if name == "pipe" else Path(name)
    if name == "pipe":
        os.mkfifo(path)
    options = ["--task", "Ner", "--train", str(path), "--validation", __file__, "--model", str(tmp_path)]
    command = ("finetune", *options, "--out", tmp_path / "out")
    command_refused(*command, where="--train", problem=f"'{path}' is {what}", expected="a regular file or folder")
    for read in (
        read_ner,
        lambda path: read_classification(Classification(), path),
        lambda path: read_ner(path, NerFormat(kind="conll")),
        lambda path: read_classification(Classification(format=ClassificationFormat(kind="csv")), path),
    ):
        with refused(file=path, problem=f"is {what}", expected="a regular file..."):
            read(path)
    with refused(where="sources[0].path", found=f"'{path}', which is {what}", expected="a regular file..."):
        CorpusConfig([Source(str(path))]).input_files()
