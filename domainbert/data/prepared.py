"""The prepared corpus: token ids on disk, memory-mapped, read without copying.

`prepare` writes a folder that `datasets.load_from_disk` opens too:

    prepared.json             what the folder holds, the fingerprint of the tokenizer, the SHA-256 of each file
    tokenizer/                the tokenizer that made the ids
    dataset_dict.json         for datasets, as are the two JSON files in each split
    train/data-00000.arrow    Arrow stream files, a row a document: id, input_ids (no special tokens but those between
                              a text and its translation), starts_word (a bit a token), num_characters; language, if
                              the corpus has `languages`
    validation/...
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.hashes import hash_file, hash_json
from domainbert.corpus.languages import Languages

PREPARED_FILE = "prepared.json"
TOKENIZER_FOLDER = "tokenizer"
FORMAT_VERSION = 3
SPLITS = ("train", "validation")


class LanguageSampling(NamedTuple):
    """The languages of a corpus, and how often each is read."""

    names: Sequence[str]
    languages: Languages


class PreparedSplit:
    """The documents of one split back to back: token `t` is that of the Arrow files in order; an error if one is broken
    or missing. `sampling` is None where the corpus was prepared without `languages`."""

    def __init__(self, files: Sequence[Path], sampling: LanguageSampling | None = None) -> None:
        self.files, self.sampling = list(files), sampling
        batches = [batch for file in self.files for batch in _read_batches(file)]
        ids = [batch.column("input_ids") for batch in batches]
        self._chunks = [column.flatten().to_numpy(zero_copy_only=True) for column in ids]  # views of the mapped files
        self._bits = [_bits(batch.column("starts_word")) for batch in batches]
        self._chunk_starts = np.cumsum([0, *map(len, self._chunks)], dtype=np.int64)  # (chunks + 1,)
        # (documents,) tokens of each, int64
        self.lengths = np.concatenate([np.zeros(0, np.int64), *(np.diff(column.offsets.to_numpy()) for column in ids)])
        characters = (batch.column("num_characters").to_numpy() for batch in batches)
        # (documents,) of each, int32
        self.num_characters = np.concatenate([np.zeros(0, np.int32), *characters])
        # (documents,) the language of each, its place in `sampling.names`
        self.languages = None if sampling is None else _languages(batches, sampling.names)

    def __reduce__(self) -> tuple[Callable[..., PreparedSplit], tuple[list[Path], LanguageSampling | None]]:
        """A loader's worker process maps the files itself; the tokens are never sent to it."""
        return PreparedSplit, (self.files, self.sampling)

    @property
    def num_documents(self) -> int:
        """Documents."""
        return len(self.lengths)

    @property
    def num_tokens(self) -> int:
        """Tokens of all documents."""
        return int(self._chunk_starts[-1])

    @property
    def tokens_per_character(self) -> float:
        """Factor from a loss per token to one per character."""
        return self.num_tokens / int(self.num_characters.sum(dtype=np.int64))

    def tokens_per_character_of(self, name: str) -> float:
        """That of one language."""
        assert self.sampling is not None
        here = self.languages == self.sampling.names.index(name)
        return int(self.lengths[here].sum()) / int(self.num_characters[here].sum(dtype=np.int64))

    @cached_property
    def document_offsets(self) -> np.ndarray:
        """First token of each document, and the end of the last: int64 (documents + 1,)."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    def take(self, start: int, stop: int) -> np.ndarray:
        """Tokens `start` to before `stop` of the split: uint16 or uint32 (stop - start,). A view of the file where
        possible; a copy where the range crosses from one record batch (about a million tokens) into the next."""
        pieces = [self._chunks[number][first:last] for number, first, last in self._stretches(start, stop)]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def take_starts(self, start: int, stop: int) -> np.ndarray:
        """Whether each of the tokens `start` to before `stop` begins a word: bool (stop - start,)."""
        pieces = [_unpacked(self._bits[number], first, last) for number, first, last in self._stretches(start, stop)]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _stretches(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """The record batches that hold tokens `start` to before `stop`, and from where to where in each."""
        if not 0 <= start <= stop <= self.num_tokens:
            raise IndexError(f"tokens {start} to {stop} of {self.num_tokens}")
        first = min(int(np.searchsorted(self._chunk_starts, start, side="right")), len(self._chunks)) - 1
        last = max(int(np.searchsorted(self._chunk_starts, stop, side="left")), first + 1)
        for number in range(first, last):
            begin = int(self._chunk_starts[number])
            yield number, max(start - begin, 0), min(stop - begin, len(self._chunks[number]))

    def document(self, number: int) -> np.ndarray:
        """The tokens of one document."""
        return self.take(int(self.document_offsets[number]), int(self.document_offsets[number + 1]))


class PreparedCorpus:
    """One or several prepared folders as one corpus; `open_prepared` makes it."""

    def __init__(self, folders: Sequence[Path], facts: Sequence[dict[str, Any]]) -> None:
        self.tokenizer_fingerprint: str = facts[0]["tokenizer_fingerprint"]
        self.vocab_size: int = facts[0]["vocab_size"]
        self.tokenizer_folder = folders[0] / TOKENIZER_FOLDER
        sampling = _sampling(facts)
        self.train, self.validation = (PreparedSplit(_files(folders, facts, split), sampling) for split in SPLITS)


def open_prepared(folders: Sequence[Path], tokenizer_fingerprint: str | None = None) -> PreparedCorpus:
    """Open folders that `prepare` wrote, all with the same tokenizer, one after the other as one corpus.

    Every file is hashed, about a second per gigabyte and processor: a bit that flipped on a disk is told here, and not
    by a training that fails, or learns nonsense, hours later. The fingerprint is that of the tokenizer to be used with
    them; None takes whichever it is.

    Raises:
        DomainbertError: no folder, one that `prepare` did not finish, another tokenizer, a file that is missing or is
            not as it was written.
    """
    if not folders:
        raise DomainbertError("prepared: no folder; expected at least one")
    folders = [Path(folder) for folder in folders]
    facts = [_read_facts(folder) for folder in folders]
    expected = tokenizer_fingerprint or facts[0]["tokenizer_fingerprint"]
    whose = "the model's tokenizer" if tokenizer_fingerprint else f"the tokenizer of {folders[0]}"
    problems = Problems("prepared")
    for folder, content in zip(folders, facts, strict=True):
        if content["tokenizer_fingerprint"] != expected:
            found = content["tokenizer_fingerprint"][:12]
            problems.add(f"{folder}: prepared with another tokenizer ({found}); expected {whose} ({expected[:12]})")
        if (found := _alpha(content)) != (alpha := _alpha(facts[0])):
            problems.add(f"{folder}: prepared with languages.alpha {found}; expected {alpha}, as in {folders[0]}")
        _check_files(folder, content, problems)
    problems.raise_if_any()
    return PreparedCorpus(folders, facts)


def _read_facts(folder: Path) -> dict[str, Any]:
    path = folder / PREPARED_FILE
    if not path.is_file():
        raise DomainbertError(f"{folder}: no {PREPARED_FILE}; expected a folder written by `domainbert prepare`")
    try:
        facts: dict[str, Any] = dict(json.loads(path.read_bytes()))
        version, digest = facts["format_version"], facts.pop("sha256", None)
        unchanged = hash_json(facts) == digest
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DomainbertError(f"{path}: broken ({error!r}); expected the file that `prepare` wrote") from error
    if version != FORMAT_VERSION:
        raise DomainbertError(f"{path}: format version {version!r}; expected {FORMAT_VERSION}: run `prepare` again")
    if not unchanged:  # what is unchanged needs no further check
        raise DomainbertError(f"{path}: changed since `prepare` wrote it; expected it as it was: run `prepare` again")
    return facts


def _alpha(facts: Mapping[str, Any]) -> float | None:
    return facts["languages"]["alpha"] if "languages" in facts else None


def _sampling(facts: Sequence[Mapping[str, Any]]) -> LanguageSampling | None:
    """The languages of all folders together."""
    alpha = _alpha(facts[0])
    if alpha is None:
        return None
    return LanguageSampling(sorted({name for one in facts for name in one["languages"]["tokens"]}), Languages(alpha))


def _languages(batches: Sequence[pa.RecordBatch], names: Sequence[str]) -> np.ndarray:
    """The places in `names` of the languages of all documents: (documents,)."""
    places, found = {name: place for place, name in enumerate(names)}, [np.zeros(0, np.int64)]
    for batch in batches:
        column = batch.column("language").dictionary_encode()
        numbers = np.array([places[name] for name in column.dictionary.to_pylist()], np.int64)
        found.append(numbers[column.indices.to_numpy()])
    return np.concatenate(found)


def _check_files(folder: Path, facts: dict[str, Any], problems: Problems) -> None:
    """Compare every file with what is recorded of it; hashing leaves Python's lock, so threads share the work."""
    files = [(folder / split / file["name"], file) for split in SPLITS for file in facts["splits"][split]["files"]]
    files += [(folder / file["name"], file) for file in facts["other_files"]]
    with ThreadPoolExecutor() as pool:
        for problem in pool.map(_problem_with, *zip(*files, strict=True)):
            if problem:
                problems.add(problem)


def _problem_with(path: Path, recorded: dict[str, Any]) -> str:
    """Difference of a file from what is recorded of it, in words; empty where there is none."""
    try:
        if not path.is_file():
            return f"{path}: missing; expected {recorded['bytes']:,} bytes"
        if (size := path.stat().st_size) != recorded["bytes"]:
            return f"{path}: {size:,} bytes; expected {recorded['bytes']:,}"
        if hash_file(path) != recorded["sha256"]:
            return f"{path}: changed or damaged since `prepare` wrote it; expected it as it was: run `prepare` again"
    except OSError as error:
        return f"{path}: cannot be read ({error.strerror}); expected {recorded['bytes']:,} bytes"
    return ""


def _files(folders: Sequence[Path], facts: Sequence[dict[str, Any]], split: str) -> list[Path]:
    described = zip(folders, facts, strict=True)
    return [folder / split / file["name"] for folder, one in described for file in one["splits"][split]["files"]]


def _read_batches(path: Path) -> list[pa.RecordBatch]:
    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
            return list(stream)
    except (pa.ArrowException, OSError) as error:
        raise DomainbertError(f"{path}: not an Arrow stream that can be read ({error})") from error


def _bits(column: pa.ListArray) -> np.ndarray:
    """The bits of a column of lists of booleans, eight in a byte, the first in the lowest place: a view of the file."""
    values = column.flatten()
    return np.frombuffer(values.buffers()[1], np.uint8, -(-len(values) // 8))


def _unpacked(bits: np.ndarray, start: int, stop: int) -> np.ndarray:
    first = start // 8
    unpacked = np.unpackbits(bits[first : -(-stop // 8)], bitorder="little")
    return unpacked[start - 8 * first : stop - 8 * first].view(np.bool_)
