import json
import multiprocessing
import os
import pickle
import random
import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from domainbert.base.errors import DomainbertError
from domainbert.corpus.documents import Document
from domainbert.corpus.report import CorpusReport
from domainbert.data import parallel_encoding, prepared_writer
from domainbert.data.parallel_encoding import encode_documents, split_text, token_dtype
from domainbert.data.prepared import open_prepared
from domainbert.data.prepared_writer import PreparedWriter
from domainbert.data.splits import PreparedSplit
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from tests.refusals import refused

WORDS = ["the", "bank", "rate", "##s", "rose", ".", "a"]


def make_tokenizer(folder: Path, words: list[str] = WORDS) -> Path:
    vocab = {token: number for number, token in enumerate([*SPECIAL_TOKENS.values(), *words])}
    DomainTokenizer(bert_backend(vocab, {})).save(folder, 512)
    return folder


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def make_documents(count: int) -> list[Document]:
    texts = [" ".join(["The banks rates rose."] * (1 + number * 7 % 23)) for number in range(count)]
    return [
        Document(f"d{number}", text, "validation" if number % 10 == 3 else "train") for number, text in enumerate(texts)
    ]


def write(folder: Path, documents: list[Document], tokenizer: Path, num_workers: int = 0) -> Path:
    folder.mkdir()
    writer = PreparedWriter(folder, load_tokenizer(tokenizer))
    for batch in encode_documents(documents, load_tokenizer(tokenizer), num_workers):
        writer.write(batch)
    writer.close(CorpusReport())
    return folder


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes 200 documents many work items, record batches and shards."""
    monkeypatch.setattr(parallel_encoding, "_BATCH_CHARACTERS", 1_000)
    monkeypatch.setattr(prepared_writer, "_BATCH_TOKENS", 500)
    monkeypatch.setattr(prepared_writer, "_SHARD_BYTES", 4_000)


@pytest.mark.usefixtures("small_batches")
def test_what_is_written_is_read_and_the_same_for_any_number_of_workers(tmp_path: Path, tokenizer: Path) -> None:
    import datasets

    documents = make_documents(200)
    folders = [write(tmp_path / str(workers), documents, tokenizer, workers) for workers in (0, 1, 2)]
    names = sorted(path.relative_to(folders[0]) for path in folders[0].rglob("*") if path.is_file())
    assert len([name for name in names if name.suffix == ".arrow"]) > 4
    for folder in folders[1:]:
        assert sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file()) == names
        assert all((folder / name).read_bytes() == (folders[0] / name).read_bytes() for name in names)

    loaded, corpus, encoder = (
        datasets.load_from_disk(str(folders[0])),
        open_prepared(folders[:1]),
        load_tokenizer(tokenizer),
    )
    for split in ("train", "validation"):
        wanted = [document for document in documents if document.split == split]
        ids = encoder.encode([document.text for document in wanted])
        opened: PreparedSplit = getattr(corpus, split)
        assert loaded[split]["id"][:] == [document.id for document in wanted]
        assert loaded[split]["input_ids"][:] == ids
        assert [opened.document(number).tolist() for number in range(opened.num_documents)] == ids
        begins = [starts.tolist() for _, starts in encoder.encode_with_starts([one.text for one in wanted])]
        assert loaded[split]["starts_word"][:] == begins
        stop = opened.num_tokens
        assert opened.take_starts(0, stop).tolist() == [bit for document in begins for bit in document]
        for start in range(0, stop, 97):
            end = min(start + start % 700, stop)
            assert opened.take_starts(start, end).tolist() == opened.take_starts(0, stop)[start:end].tolist()
        assert opened.lengths.tolist() == [len(document) for document in ids]
        assert opened.num_characters.tolist() == [len(document.text) for document in wanted]
        assert opened.tokens_per_character == sum(map(len, ids)) / sum(len(document.text) for document in wanted)
        assert opened.document_offsets[-1] == opened.num_tokens == sum(len(document) for document in ids)
        assert opened.document_offsets.dtype == opened.lengths.dtype == np.int64
    assert str(loaded["train"].features["input_ids"]) == "List(Value('uint16'))"
    assert load_tokenizer(corpus.tokenizer_folder).fingerprint == corpus.tokenizer_fingerprint == encoder.fingerprint


@pytest.mark.usefixtures("small_batches")
def test_take_is_a_slice_of_all_folders_and_shards_and_mostly_no_copy(tmp_path: Path, tokenizer: Path) -> None:
    documents = make_documents(120)
    folders = [write(tmp_path / "a", documents, tokenizer), write(tmp_path / "b", documents[40:], tokenizer)]
    split = open_prepared(folders).train
    assert split.num_documents == 108 + 72
    everything = split.take(0, split.num_tokens)
    kept = [d.text for part in (documents, documents[40:]) for d in part if d.split == "train"]
    assert everything.tolist() == [token for ids in load_tokenizer(tokenizer).encode(kept) for token in ids]
    copies = 0
    for start in range(0, split.num_tokens, 97):
        for stop in (start, start + 1, min(start + 64, split.num_tokens), min(start + 1_700, split.num_tokens)):
            taken = split.take(start, stop)
            assert taken.dtype == np.uint16 and np.array_equal(taken, everything[start:stop])
            copies += taken.flags.owndata and stop - start <= 64
    assert copies < 0.1 * split.num_tokens / 97 * 3
    for start, stop in ((-1, 2), (2, 1), (0, split.num_tokens + 1)):
        with pytest.raises(IndexError):
            split.take(start, stop)


def test_a_pickled_split_maps_its_files_again(tmp_path: Path, tokenizer: Path) -> None:
    split = open_prepared([write(tmp_path / "a", make_documents(2_000), tokenizer)]).train
    content = pickle.dumps(split)
    assert len(content) < 1_000
    assert np.array_equal(pickle.loads(content).take(0, split.num_tokens), split.take(0, split.num_tokens))


def test_wide_ids_for_a_large_vocabulary(tmp_path: Path) -> None:
    assert [token_dtype(size).name for size in (100, 65_536, 65_537)] == ["uint16", "uint16", "uint32"]
    wide = make_tokenizer(tmp_path / "tokenizer", [*(f"unused{number}" for number in range(65_600)), *WORDS])
    split = open_prepared([write(tmp_path / "a", make_documents(20), wide)]).train
    assert split.take(0, 2).dtype == np.uint32 and split.take(0, 2).min() > 65_535


def test_folders_that_cannot_be_used_are_told(tmp_path: Path, tokenizer: Path) -> None:
    folder = write(tmp_path / "a", make_documents(30), tokenizer)
    other = write(tmp_path / "b", make_documents(30), make_tokenizer(tmp_path / "tokenizer", WORDS[::-1]))
    with refused(
        file=other, problem="prepared with another tokenizer", hint="run `prepare` again with the tokenizer of ...a..."
    ):
        open_prepared([folder, other])
    with refused(
        file=folder, problem="prepared with another tokenizer", hint="run `prepare` again with the model's tokenizer"
    ):
        open_prepared([folder], "0" * 64)
    with refused(file="absent", problem="no prepared.json", expected="a folder written by..."):
        open_prepared([tmp_path / "absent"])
    with refused(where="prepared", found="an empty list"):
        open_prepared([])
    shard = folder / "train/data-00000.arrow"
    os.truncate(shard, size := shard.stat().st_size - 8)
    (folder / "validation/data-00000.arrow").unlink()
    for problem in (f"...data-00000.arrow has changed ({size:,} bytes; it had {size + 8:,})", "...is missing"):
        with refused(problem=problem):
            open_prepared([folder])
    facts = json.loads((other / "prepared.json").read_text())
    (other / "prepared.json").write_text(json.dumps(facts | {"format_version": 0}))
    with refused(file="prepared.json", problem="format version 0", expected="3: run `prepare` again"):
        open_prepared([other])


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory, tokenizer: Path) -> Path:
    """A small prepared folder; each test damages a copy."""
    return write(tmp_path_factory.mktemp("small") / "prepared", make_documents(30), tokenizer)


FILES = [
    "dataset_dict.json",
    "prepared.json",
    "tokenizer/special_tokens_map.json",
    "tokenizer/tokenizer.json",
    "tokenizer/tokenizer_config.json",
    "tokenizer/vocab.txt",
    "train/data-00000.arrow",
    "train/dataset_info.json",
    "train/state.json",
    "validation/data-00000.arrow",
    "validation/dataset_info.json",
    "validation/state.json",
]


def test_every_file_that_is_written_is_damaged_below(prepared: Path) -> None:
    written = sorted(path.relative_to(prepared).as_posix() for path in prepared.rglob("*") if path.is_file())
    assert written == FILES


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_anywhere_is_refused_with_the_name_of_its_file(tmp_path: Path, prepared: Path, name: str) -> None:
    folder = Path(shutil.copytree(prepared, tmp_path / "copy"))
    whole = (folder / name).read_bytes()
    generator = random.Random(name)
    for _ in range(20):
        place, bit = generator.randrange(len(whole)), generator.randrange(8)
        damaged = bytearray(whole)
        damaged[place] ^= 1 << bit
        (folder / name).write_bytes(damaged)
        with pytest.raises(DomainbertError) as error:
            open_prepared([folder])
        assert str(error.value).startswith((f"{folder / name}: ", f"{folder / name} has changed")), (place, bit)
    (folder / name).write_bytes(whole)
    assert open_prepared([folder]).train.num_documents == 27


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_missing_cut_or_longer_is_refused_with_its_name(
    tmp_path: Path, prepared: Path, name: str
) -> None:
    folder = Path(shutil.copytree(prepared, tmp_path / "copy"))
    whole = (folder / name).read_bytes()
    for damaged in (b"", whole[:-2], whole[: len(whole) // 2], whole + b"x"):
        (folder / name).write_bytes(damaged)
        with pytest.raises(DomainbertError) as error:
            open_prepared([folder])
        assert str(error.value).startswith((f"{folder / name}: ", f"{folder / name} has changed"))
    (folder / name).unlink()
    with pytest.raises(DomainbertError) as error:
        open_prepared([folder])
    message = f"{folder}: no prepared.json" if name == "prepared.json" else f"{folder / name} is missing"
    assert str(error.value).startswith(message)


def test_damage_in_several_files_is_told_together(tmp_path: Path, prepared: Path) -> None:
    folder = Path(shutil.copytree(prepared, tmp_path / "copy"))
    (folder / "train/state.json").unlink()
    shutil.rmtree(folder / "tokenizer")
    with pytest.raises(DomainbertError) as caught:
        open_prepared([folder])
    problems = [error.problem for error in caught.value.errors]
    assert problems == [f"{folder / name} is missing" for name in [*FILES[2:6], "train/state.json"]]


@pytest.mark.parametrize(
    "edit",
    [
        {"vocab_size": 5},
        {"vocab_size": "11"},
        {"tokenizer_fingerprint": "0" * 64},
        {"tokenizer_fingerprint": None},
        {"splits": {}},
        {"splits": None},
        {"other_files": []},
        {"other_files": 3},
        {"more": 1},
        {"sha256": "0" * 64},
        {"sha256": None},
    ],
)
def test_edited_facts_are_refused(tmp_path: Path, prepared: Path, edit: dict[str, object]) -> None:
    folder = Path(shutil.copytree(prepared, tmp_path / "copy"))
    facts = json.loads((folder / "prepared.json").read_text())
    (folder / "prepared.json").write_text(json.dumps(facts | edit))
    with refused(file="prepared.json", problem="changed since `prepare` wrote it"):
        open_prepared([folder])


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"3", b"null", b'"ab"', b"[[1, 2]]", b"\xff", b"[" * 10_000])
def test_what_is_no_prepared_json_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "prepared.json").write_bytes(content)
    with refused(file="prepared.json", problem="cannot be read (...)", hint="run `prepare` again"):
        open_prepared([tmp_path])


def test_a_loader_worker_does_not_check_again(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    split = open_prepared([prepared]).train
    content = pickle.dumps(split)
    monkeypatch.delattr("domainbert.data.prepared_facts.hash_file")
    monkeypatch.delattr("domainbert.data.prepared_facts.hash_json")
    assert np.array_equal(pickle.loads(content).lengths, split.lengths)


@given(st.text(st.sampled_from("ab. \t\n é中")), st.integers(1, 8))
def test_encoding_in_pieces_gives_the_ids_of_the_whole(text: str, characters: int) -> None:
    vocab = {
        token: number
        for number, token in enumerate([*SPECIAL_TOKENS.values(), "a", "b", "##a", "##b", "##e", ".", "中"])
    }
    encoder = DomainTokenizer(bert_backend(vocab, {}))
    pieces = list(split_text(text, characters))
    assert "".join(pieces) == text
    assert [token for ids in encoder.encode(pieces) for token in ids] == encoder.encode([text])[0]


def slow_documents(count: int, killed: list[int]) -> Iterator[Document]:
    """Documents that keep coming while the workers are killed."""
    for number, document in enumerate(make_documents(count)):
        if number == 50 and killed == []:
            for child in multiprocessing.active_children():
                killed.append(child.pid or 0)
                os.kill(child.pid or 0, signal.SIGKILL)
            time.sleep(0.2)
        yield document


@pytest.mark.usefixtures("small_batches")
def test_a_dead_worker_is_an_error_and_not_a_wait(tokenizer: Path) -> None:
    killed: list[int] = []
    with refused(problem="a worker process died:..."):
        list(encode_documents(slow_documents(500, killed), load_tokenizer(tokenizer), num_workers=2))
    assert killed and not multiprocessing.active_children()


def test_workers_are_started_with_ctrl_c_blocked(tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They inherit the mask, so that their imports are not interrupted."""
    masks = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, *arguments: object, initializer: object, initargs: tuple[object, ...]) -> None:
            super().__init__(1)

        def submit(self, *arguments: Any) -> Any:  # type: ignore[override]
            masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
            raise KeyboardInterrupt

    monkeypatch.setattr(parallel_encoding, "ProcessPoolExecutor", Pool)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with pytest.raises(KeyboardInterrupt):
        list(encode_documents(make_documents(1), load_tokenizer(tokenizer), num_workers=1))
    assert masks == [before | {signal.SIGINT}] and signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


@pytest.mark.usefixtures("small_batches")
def test_documents_are_not_read_far_ahead_of_the_workers(tokenizer: Path) -> None:
    read = 0

    def documents() -> Iterator[Document]:
        nonlocal read
        for document in make_documents(2_000):
            read += 1
            yield document

    batches = encode_documents(documents(), load_tokenizer(tokenizer), num_workers=1)
    next(batches)
    assert read < 100
    batches.close()
    assert not multiprocessing.active_children()
