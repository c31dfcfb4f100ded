"""A corpus in parts: the same batches wherever the parts are, and from no part more is read than is needed."""

from __future__ import annotations

import errno
import json
import math
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from domainbert.cli import main
from domainbert.data.batches import Share
from domainbert.data.parts import PartedPlan, PartedSplit
from domainbert.data.prepared import open_prepared
from domainbert.data.prepared_writer import PreparedWriter
from domainbert.data.preparing import prepare_corpus
from domainbert.data.remote_files import CacheConfig, FileFacts, LocalFiles
from domainbert.data.splits import PreparedCorpus, PreparedSplit
from domainbert.encoders.layers import segment_boundaries
from domainbert.pretraining.batches import PackedRowsReader, TrainRows, ValidationRows, validation_reader
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.pretraining.objectives.sentence_pairs.config import SentencePairs
from domainbert.pretraining.phases import PhasedRows, RowPhase
from domainbert.stages.merge import merge
from domainbert.stages.prepare import prepare
from domainbert.stages.pretrain import pretrain
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from domainbert.training.loaders import WithBoundaries
from tests.interface.snapshot import check_folder
from tests.refusals import refused
from tests.toy_corpus import WORDS

FILES = 7
LENGTHS = [16, 40]
SMALL = ["--corpus.min_characters", "1", "--corpus.validation_fraction", "0.2"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of very different sizes, one of them empty and one of nothing but repeated lines."""
    folder, generator = tmp_path_factory.mktemp("text"), np.random.default_rng(0)
    words = [*WORDS[:3], "rates", "bankings", "men's", "é中", *WORDS[7:]]
    for number in range(FILES):
        count = [30, 1, 0, 60, 5, 3, 22][number]
        lines = [" ".join(generator.choice(words, 1 + generator.integers(70))) for _ in range(count)]
        (folder / f"{number}.txt").write_text("\n".join([*lines, *lines[:2]] if number != 5 else lines[:1] * 3))
    return folder


@pytest.fixture(scope="module")
def tokenizer(toy_tokenizer: DomainTokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    toy_tokenizer.save(folder)
    return folder


def prepared(out: Path, text: Path, tokenizer: Path, files: str = "", **corpus: Any) -> dict[str, Any]:
    sources = [{"path": f"{text}/{files}", "documents": "line"}]
    given = {"sources": sources, "min_characters": 1, "validation_fraction": 0.2, **corpus}
    return prepare(out, corpus=given, tokenizer=tokenizer, row_lengths=LENGTHS, num_workers=0)


@pytest.fixture(scope="module")
def whole(text: Path, tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    prepared(out, text, tokenizer)
    return out


@pytest.fixture(scope="module")
def corpora(text: Path, tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same files in three corpora."""
    folder = tmp_path_factory.mktemp("corpora")
    for number, files in enumerate(("[0-1].txt", "[2-4].txt", "[5-6].txt")):
        prepared(folder / str(number), text, tokenizer, files)
    return [folder / str(number) for number in range(3)]


@pytest.fixture(scope="module")
def merged(corpora: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("merged")
    merge(out, prepared=corpora, window=2)
    return out


def reader(corpus: PreparedCorpus, length: int = 16) -> PackedRowsReader:
    return PackedRowsReader(corpus.train, MaskedLM().build(load_tokenizer(corpus.tokenizer_folder)), length)


def batches(rows: PackedRowsReader, share: Share, steps: int = 60) -> list[Any]:
    found = TrainRows(pickle.loads(pickle.dumps(rows)), rows.order(8, 5), share, range(steps))
    return [found[index] for index in range(len(found))]


@pytest.mark.parametrize("length", LENGTHS)
def test_batches_do_not_depend_on_merges(whole: Path, corpora: list[Path], tmp_path: Path, length: int) -> None:
    merge(tmp_path, prepared=corpora)  # with the same window
    one, other = (batches(reader(open_prepared([folder]), length), Share(0, 1, 2)) for folder in (whole, tmp_path))
    assert len(one) == len(other) == 120
    for mine, theirs in zip(one, other, strict=True):
        assert mine.keys() == theirs.keys()
        assert all(np.array_equal(mine[name], theirs[name]) for name in mine)


def test_each_token_of_each_file_is_read_once_in_a_pass(merged: Path, text: Path, tokenizer: Path) -> None:
    check_folder("merge", merged)
    corpus = open_prepared([merged])
    rows = reader(corpus)
    assert isinstance(rows.plan, PartedPlan)
    order = rows.order(8, 5)
    in_order = order._items(0, np.arange(order.size))
    assert sorted(in_order.tolist()) == list(range(rows.plan.num_rows))
    pieces = rows.plan.pieces_of(in_order)
    places = [
        place
        for start, length in zip(rows.plan.starts[pieces], rows.plan.lengths[pieces], strict=True)
        for place in range(start, start + length)
    ]
    assert sorted(places) == list(range(corpus.train.num_tokens))
    counts = np.bincount(corpus.train.take(0, corpus.train.num_tokens), minlength=corpus.vocab_size)
    assert np.array_equal(corpus.train.token_counts(corpus.vocab_size), counts)
    assert rows.plan.text_tokens[in_order].sum() == len(places)
    alone = [split.row_plan(rows.objective.tokenizer, 16) for split in own_splits(merged).values()]
    assert rows.plan.num_rows == sum(plan.num_rows for plan in alone), "rows do not cross files"
    assert np.array_equal(rows.plan.lengths[np.arange(len(pieces))], np.concatenate([plan.lengths for plan in alone]))
    used = sum(plan.fullness * plan.num_rows for plan in alone)
    assert rows.plan.fullness == pytest.approx(used / rows.plan.num_rows)


def own_splits(merged: Path) -> dict[int, PreparedSplit]:
    """The training split of each part that has one, opened by itself."""
    found = {}
    for number, part in enumerate(json.loads((merged / "prepared.json").read_text())["parts"]):
        folder, files = merged / part["folder"] / "train", part["splits"]["train"]["files"]
        found[number] = PreparedSplit([folder / file["name"] for file in files])
    return {number: split for number, split in found.items() if split.num_tokens}


@pytest.mark.parametrize("number", [0, 3, 6])
def test_a_part_is_its_file_prepared_alone(
    merged: Path, text: Path, tokenizer: Path, tmp_path: Path, number: int
) -> None:
    source = {"path": str(text / f"{number}.txt"), "documents": "line"}
    corpus = {"sources": [source], "min_characters": 1, "validation_fraction": 0.2}
    prepare(tmp_path, corpus=corpus, tokenizer=tokenizer, num_workers=0)
    alone, part = open_prepared([tmp_path]).train, own_splits(merged)[number]
    assert np.array_equal(alone.lengths, part.lengths)
    assert np.array_equal(alone.take(0, alone.num_tokens), part.take(0, part.num_tokens))
    assert np.array_equal(alone.take_starts(0, alone.num_tokens), part.take_starts(0, part.num_tokens))


def test_a_split_of_parts_reads_like_one_stream(merged: Path) -> None:
    split, alone = open_prepared([merged]).train, own_splits(merged).values()
    assert isinstance(split, PartedSplit)
    tokens = np.concatenate([one.take(0, one.num_tokens) for one in alone])
    starts = np.concatenate([one.take_starts(0, one.num_tokens) for one in alone])
    generator = np.random.default_rng(1)
    for start, stop in np.sort(generator.integers(0, len(tokens), (50, 2)), axis=1).tolist():
        assert np.array_equal(split.take(start, stop), tokens[start:stop])
        assert np.array_equal(split.take_starts(start, stop), starts[start:stop])
    lengths = np.concatenate([one.lengths for one in alone])
    owners = np.repeat(np.arange(len(lengths)), lengths)
    places = generator.integers(0, len(tokens), 50)
    assert np.array_equal(split.documents_at(places), owners[places])
    assert (split.num_tokens, split.num_documents) == (len(tokens), len(lengths))
    documents = list(split.documents(len(tokens)))
    assert [len(ids) for ids in documents] == lengths.tolist()
    assert np.array_equal(np.concatenate(documents), tokens)
    assert split.tokens_per_character == len(tokens) / sum(one.num_characters.sum() for one in alone)
    with pytest.raises(IndexError, match="tokens 0 to"):
        split.take(0, len(tokens) + 1)


def test_some_documents_are_spread_over_a_split_and_open_some_parts(
    merged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split, alone = open_prepared([merged]).train, own_splits(merged)
    largest = max(alone.values(), key=lambda one: one.num_tokens)
    every_third = [largest.document(number).tolist() for number in range(0, largest.num_documents, 3)]
    assert [ids.tolist() for ids in largest.documents(-(-largest.num_tokens // 3))] == every_third
    opened, tokens_of = [], split.parts.tokens
    monkeypatch.setattr(split.parts, "tokens", lambda number: opened.append(number) or tokens_of(number))
    for most, wanted in ((32, range(9)), (3, (0, 3, 6))):
        monkeypatch.setattr("domainbert.data.parts._MAX_SAMPLED_PARTS", most)
        opened.clear()
        documents = [ids.tolist() for ids in split.documents(-(-split.num_tokens // 3))]
        there = [number for number in wanted if number in alone]
        assert opened == there
        share = min(1, split.num_tokens / 3 / sum(alone[number].num_tokens for number in there))
        spread = {number: alone[number].documents(math.ceil(share * alone[number].num_tokens)) for number in there}
        assert documents == [ids.tolist() for some in spread.values() for ids in some]


def test_only_the_parts_of_a_window_are_opened(merged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = reader(open_prepared([merged]))
    order, opened = rows.order(8, 5), set[int]()
    folders = [part["folder"] for part in json.loads((merged / "prepared.json").read_text())["parts"]]
    path = LocalFiles.path

    def noted(files: LocalFiles, file: FileFacts) -> Path:
        opened.update(number for number, folder in enumerate(folders) if file.name.startswith(folder))
        return path(files, file)

    monkeypatch.setattr(LocalFiles, "path", noted)
    TrainRows(rows, order, Share(0, 1, 1), range(60))[0]
    assert opened and opened <= {*order._windows(0)[0][:2].tolist()}


def test_a_gpu_gets_boundaries_with_room_for_the_mean_number_of_texts(merged: Path) -> None:
    rows = reader(open_prepared([merged]))
    phases = PhasedRows([RowPhase(range(5), rows, rows.order(8, 5))], Share(), range(5))
    texts = np.diff(rows.plan.row_offsets[np.arange(rows.plan.num_rows + 1)])
    assert phases.most_texts == 8 + math.ceil(8 * texts.mean())
    batch = WithBoundaries(phases)[0]
    starts = segment_boundaries(torch.from_numpy(batch["segment_ids"]), phases.most_texts)
    assert torch.equal(batch["boundaries"], starts) and len(starts) > phases.most_texts


def test_parts_at_a_url_give_the_same_batches(
    whole: Path, corpora: list[Path], text: Path, tokenizer: Path, tmp_path: Path
) -> None:
    merge(tmp_path / "merged", prepared=corpora, url=f"file://{corpora[0].parent}")
    with refused(where="cache", problem="missing, but the parts are at file://..."):
        open_prepared([tmp_path / "merged"])
    cache = CacheConfig(str(tmp_path / "cache"), 1)
    one, other = reader(open_prepared([whole])), reader(open_prepared([tmp_path / "merged"], cache=cache))
    for mine, theirs in zip(batches(one, Share(0, 1, 1)), batches(other, Share(0, 1, 1)), strict=True):
        assert all(np.array_equal(mine[name], theirs[name]) for name in mine)
    moved = CacheConfig(str(tmp_path / "cache of the moved"), 1, url=f"file://{tmp_path}/moved")
    shutil.copytree(corpora[0].parent, tmp_path / "moved")
    other = reader(open_prepared([tmp_path / "merged"], cache=moved))
    for mine, theirs in zip(batches(one, Share(0, 1, 1), 3), batches(other, Share(0, 1, 1), 3), strict=True):
        assert all(np.array_equal(mine[name], theirs[name]) for name in mine)
    assert [path.name for path in (tmp_path / "cache of the moved").iterdir()]
    with refused(where="cache.url", found="file://..."):
        open_prepared([whole], cache=moved)
    (tmp_path / "as-one").mkdir()
    sources = [{"path": str(text), "documents": "line"}]
    prepare(tmp_path / "as-one", corpus={"sources": sources, "min_characters": 1}, tokenizer=tokenizer, num_workers=0)
    with refused(where="cache.url", found="file://..."):
        open_prepared([tmp_path / "as-one"], cache=moved)
    with refused(where="url", found="'runs/law'"):
        merge(tmp_path / "other", prepared=corpora, url="runs/law")
    with refused(where="url", found="a secret in https://me:***@host/law..."):
        merge(tmp_path / "other", prepared=corpora, url="https://me:hunter2@host/law")


def test_a_copy_has_corpora_where_they_seem_to_be(
    corpora: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind links, and by names from the current folder."""
    (tmp_path / "law").mkdir()
    for corpus in corpora:
        (tmp_path / "law" / corpus.name).symlink_to(corpus)

    def folders(*prepared: str) -> list[str]:
        merge(tmp_path / "out", prepared=[Path(name) for name in prepared], url="s3://bucket/law")
        return [part["folder"] for part in json.loads((tmp_path / "out" / "prepared.json").read_text())["parts"]]

    monkeypatch.chdir(tmp_path / "law")
    assert folders("1", "0") == [*(f"1/parts/0000{number}" for number in range(3)), "0/parts/00000", "0/parts/00001"]
    monkeypatch.chdir(tmp_path / "law" / "0")
    assert folders(".") == ["parts/00000", "parts/00001"]


def test_validation_reads_each_row_once(merged: Path) -> None:
    corpus = open_prepared([merged])
    rows = validation_reader(corpus, MaskedLM().build(load_tokenizer(corpus.tokenizer_folder)), 16)
    seen = [ValidationRows(rows, 4, Share(rank, 2, 1)) for rank in range(2)]
    numbers = np.concatenate([batch for one in seen for batch in one.batches])
    assert sorted(numbers.tolist()) == list(range(rows.plan.num_rows))
    assert sum(len(one[index]["position_ids"]) for one in seen for index in range(len(one))) == rows.plan.num_rows


def test_a_killed_run_keeps_the_parts_it_has_written(
    text: Path, tokenizer: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = PreparedWriter.close_part

    def killed(writer: PreparedWriter, *arguments: Any) -> dict[str, Any]:
        if writer.out.name == "00003":
            raise KeyboardInterrupt
        return close(writer, *arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(PreparedWriter, "close_part", killed)
        prepared(tmp_path, text, tokenizer)
    first = tmp_path / "parts" / "00000" / "prepared.json"
    before = first.stat().st_mtime_ns
    others = [tmp_path / "parts" / name for name in ("00099", "2019-notes", ".DS_Store")]  # the first is of more files
    others[0].mkdir()
    others[1].mkdir()
    others[2].touch()
    prepared(tmp_path, text, tokenizer)
    assert [path.exists() for path in others] == [False, True, True]
    others[1].rmdir()
    others[2].unlink()
    assert first.stat().st_mtime_ns == before, "it was not written again"
    assert content(tmp_path) == content(whole)


def test_a_folder_with_a_whole_corpus_is_not_prepared_in_parts(text: Path, tokenizer: Path, tmp_path: Path) -> None:
    source = {"sources": [{"path": str(text), "documents": "line"}], "min_characters": 1, "validation_fraction": 0.2}
    prepare(tmp_path, corpus=source, tokenizer=tokenizer, num_workers=0)
    before = content(tmp_path)
    with refused(where="out", problem=f"{tmp_path} contains a prepared corpus", expected="a new folder"):
        prepared(tmp_path, text, tokenizer)
    assert content(tmp_path) == before


@pytest.mark.parametrize("row_lengths", [[], [16, 40, 16]])
def test_row_lengths_that_no_training_needs(
    text: Path, tokenizer: Path, tmp_path: Path, row_lengths: list[int]
) -> None:
    with refused(where="row_lengths", found=row_lengths, expected="one or more different lengths"):
        prepare_corpus(text, tokenizer, tmp_path / "out", row_lengths=row_lengths)
    assert not (tmp_path / "out").exists()


def test_parts_do_not_depend_on_the_order_of_row_lengths(text: Path, tokenizer: Path, tmp_path: Path) -> None:
    prepared(tmp_path, text, tokenizer)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("parts/*/prepared.json")}
    given = {"sources": [{"path": f"{text}/", "documents": "line"}], "min_characters": 1, "validation_fraction": 0.2}
    prepare(tmp_path, corpus=given, tokenizer=tokenizer, row_lengths=LENGTHS[::-1], num_workers=0)
    assert len(before) == FILES and {path: path.stat().st_mtime_ns for path in before} == before


def test_a_full_disk_leaves_the_parts_that_are_whole(
    text: Path, tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    close = PreparedWriter.close_part

    def full(writer: PreparedWriter, *arguments: Any) -> dict[str, Any]:
        facts = close(writer, *arguments)
        if writer.out.name == "00001":
            (writer.out / "prepared.json").unlink()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return facts

    corpus = ["--corpus.sources", f"[{{path: '{text}/[036].txt', documents: line}}]", *SMALL]
    out = tmp_path / "out"
    how = ["--tokenizer", str(tokenizer), "--row_lengths", "[16]", "--num_workers", "0", "--out", str(out)]
    with monkeypatch.context() as patch:
        patch.setattr(PreparedWriter, "close_part", full)
        assert main(["prepare", *corpus, *how]) == 2
    assert "its progress was kept; free some space, and resume with:" in capsys.readouterr().err
    kept = {path: path.stat().st_mtime_ns for path in (out / "parts").rglob("*") if path.is_file()}
    assert {path.relative_to(out / "parts").parts[0] for path in kept} == {"00000"}
    assert main(["prepare", *corpus, *how, "--resume", "auto"]) == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def content(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items()}


def test_a_translation_that_changed_is_prepared_again(tokenizer: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        for side, word in (("en", "rates"), ("fr", "bank")):
            (tmp_path / f"{name}.{side}.txt").write_text("".join(f"{word} {'the ' * n}\n" for n in range(1, 40)))
    sources = [
        {"path": str(tmp_path / f"{name}.en.txt"), "documents": "line", "translation": str(tmp_path / f"{name}.fr.txt")}
        for name in ("a", "b")
    ]
    given = {"sources": sources, "min_characters": 1, "validation_fraction": 0.2}
    out = tmp_path / "out"

    def made() -> dict[str, int]:
        prepare(out, corpus=given, tokenizer=tokenizer, row_lengths=LENGTHS, num_workers=0)
        return {path.parent.name: path.stat().st_mtime_ns for path in sorted(out.glob("parts/*/prepared.json"))}

    before = made()
    assert made() == before
    (tmp_path / "b.fr.txt").write_text("".join(f"men {'the ' * n}\n" for n in range(1, 40)))
    after = made()
    assert [name for name in before if before[name] != after[name]] == [list(before)[1]]


def test_parts_tell_what_is_left_out_as_a_whole_corpus_does(text: Path, tokenizer: Path, tmp_path: Path) -> None:
    own, known = tmp_path / "text", tmp_path / "known.jsonl"
    shutil.copytree(text, own)
    (own / "table.tsv").write_text("a\tb\n")
    known.write_text(json.dumps({"text": " ".join(WORDS[:9])}) + '\n{"text": "short"}\n')
    found = prepared(tmp_path / "out", own, tokenizer, exclude=[str(known)])["corpus"]
    assert found["sources"][0]["files_ignored"] == 1
    assert found["exclusion"] == {"texts": [str(known)], "num_texts": 1, "too_short": 1}


def test_only_the_parts_of_a_mended_file_are_prepared_again(
    text: Path, tokenizer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command line, whether the broken file has ended the stage or one is changed after it was done."""
    own, out = tmp_path / "text", tmp_path / "out"
    shutil.copytree(text, own)
    (own / "3.txt").write_bytes(b"\xff\xfe broken\n")
    corpus = ["--corpus.sources", f"[{{path: {own}, documents: line}}]", *SMALL]
    how = ["--tokenizer", str(tokenizer), "--row_lengths", "[16]", "--num_workers", "0", "--out", str(out)]
    words = ["prepare", *corpus, *how]
    assert main(words) == 2
    made = {path: path.stat().st_mtime_ns for path in out.glob("parts/*/prepared.json")}
    assert len(made) == 3
    shutil.copy(text / "3.txt", own)
    assert main(words) == 0
    assert {path: path.stat().st_mtime_ns for path in made} == made
    every = {path: path.stat().st_mtime_ns for path in out.glob("parts/*/prepared.json")}
    shutil.copy(text / "0.txt", own / "5.txt")
    (own / "6.txt").unlink()
    assert main(words) == 2
    said = "input files: changed 5.txt; dropped 6.txt; kept 0.txt, 1.txt, 2.txt and 2 more); use another --out"
    assert f"{said}, --resume auto to keep what still fits, or --force to replace it\n" in capsys.readouterr().err
    assert main([*words, "--resume", "auto"]) == 0
    left = {path: path.stat().st_mtime_ns for path in out.glob("parts/*/prepared.json")}
    assert {path.parent.name for path in every.keys() - left.keys()} == {"00006"}
    assert {path.parent.name for path in left if left[path] != every[path]} == {"00005"}
    assert main([*words, "--corpus.min_characters", "2"]) == 2
    assert "holds output of an earlier run (corpus.min_characters was 1, is now 2)" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["prepared.json", "train/data-00000.arrow", "plans/train-16.arrow"])
def test_a_damaged_part_is_prepared_again(
    text: Path, tokenizer: Path, whole: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A machine that crashed may leave files cut off."""
    prepared(tmp_path, text, tokenizer)
    file = tmp_path / "parts" / "00004" / name
    os.truncate(file, file.stat().st_size // 2)
    capsys.readouterr()
    prepared(tmp_path, text, tokenizer)
    printed = capsys.readouterr().out.partition(f"preparing {file.parents[len(Path(name).parts) - 1]} again (")[2]
    assert str(file) in printed.partition("\n")[0]
    assert content(tmp_path) == content(whole)


def test_metrics_are_those_of_all_parts(whole: Path, text: Path, tokenizer: Path, tmp_path: Path) -> None:
    report = prepared(tmp_path, text, tokenizer)["corpus"]["sources"][0]
    assert report["files"] == FILES and report["dropped"] == {"exact duplicates": 2 + 1 + 2 + 2 + 2 + 2}


def test_corpora_that_cannot_be_merged(
    text: Path, tokenizer: Path, corpora: list[Path], whole: Path, toy_tokenizer: DomainTokenizer, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    merge(tmp_path / "some", prepared=corpora[1:])
    with refused(file=f"{corpora[1]}/parts/00000", problem="the same part as..."):
        merge(out, prepared=[tmp_path / "some", *corpora])
    shutil.copytree(corpora[1], tmp_path / "copied")
    with refused(file=tmp_path / "copied/parts/00001", problem=f"the same part as {corpora[1]}/parts/00001"):
        merge(out, prepared=[*corpora, tmp_path / "copied"])
    given = {"sources": [{"path": str(text), "documents": "line"}], "min_characters": 1, "validation_fraction": 0.2}
    prepare(tmp_path / "long", corpus=given, tokenizer=tokenizer, row_lengths=[20], num_workers=0)
    with refused(file="long", found="row_lengths [20]", expected=f"[16, 40], as in {whole}"):
        merge(out, prepared=[whole, tmp_path / "long"])
    toy_tokenizer.save(tmp_path / "tokenizer", 64)
    vocab = json.loads((tmp_path / "tokenizer" / "tokenizer.json").read_text())
    vocab["model"]["vocab"]["another"] = len(vocab["model"]["vocab"])
    (tmp_path / "tokenizer" / "tokenizer.json").write_text(json.dumps(vocab))
    prepared(tmp_path / "other", text, tmp_path / "tokenizer")
    with refused(file="other", problem=f"prepared with another tokenizer than {whole}"):
        merge(out, prepared=[whole, tmp_path / "other"])
    shutil.rmtree(tmp_path / "other" / "parts" / "00003")
    with refused(file="parts/00003", problem="no prepared.json"):
        merge(out, prepared=[tmp_path / "other"])
    prepare(tmp_path / "plain", corpus=given, tokenizer=tokenizer, num_workers=0)
    with refused(file="plain", problem="prepared without row_lengths", hint="run prepare again with row_lengths"):
        merge(out, prepared=[tmp_path / "plain"])
    with refused(found="...was prepared with row_lengths", expected="one folder..."):
        open_prepared([whole, whole])


@pytest.mark.parametrize("name", ["train/data-00000.arrow", "plans/train-16.arrow", "token_counts.npy"])
def test_merge_finds_damage(text: Path, tokenizer: Path, tmp_path: Path, name: str) -> None:
    prepared(tmp_path / "corpus", text, tokenizer)
    file = tmp_path / "corpus" / "parts" / "00003" / name
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    file.write_bytes(damaged)
    with refused(problem=f".../parts/00003/{name} has changed", expected="the file that `prepare` wrote..."):
        merge(tmp_path / "out", prepared=[tmp_path / "corpus"])
    file.write_bytes(damaged[:-1])
    if name.endswith("arrow"):
        with refused(file=name, found="... bytes"):
            batches(reader(open_prepared([tmp_path / "corpus"])), Share(0, 1, 1))


def test_other_rows_are_refused(merged: Path) -> None:
    corpus = open_prepared([merged])
    with refused(where="max_length", found="20"):
        reader(corpus, 20)
    with refused(problem="this objective reads no corpus with row_lengths", hint="use..."):
        SentencePairs().build(load_tokenizer(corpus.tokenizer_folder)).layout_rows(corpus.train, 16)


def test_a_held_out_text_that_cannot_be_laid_out_is_named(
    whole: Path, text: Path, tokenizer: Path, tmp_path: Path
) -> None:
    corpus = {"sources": [{"path": str(text), "documents": "line"}], "min_characters": 1, "validation_fraction": 0.2}
    prepare(tmp_path / "plain", corpus=corpus, tokenizer=tokenizer, num_workers=0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    encoder = {"class_path": "BertConfig", "init_args": sizes}
    how = {"encoder": encoder, "max_length": 20, "budget": {"max_steps": 1}, "held_out": {"other": whole}}
    with refused(where="held_out.other: max_length", found="20"):
        pretrain(tmp_path / "out", prepared=tmp_path / "plain", **how)


def test_a_corpus_of_the_hub_has_no_row_lengths(tokenizer: Path, tmp_path: Path) -> None:
    found = "next to hub:owner/name (corpus.sources[0])"
    with refused(where="row_lengths", found=found, expected="only sources on disk..."):
        prepare(tmp_path, corpus={"sources": ["hub:owner/name"]}, tokenizer=tokenizer, row_lengths=LENGTHS)
