"""Writes the prepared corpus as a stream: memory holds one record batch a split, whatever the corpus size."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import DatasetInfo, Features, List, Value

from domainbert.base.errors import DomainbertError
from domainbert.base.hashes import hash_file, hash_json
from domainbert.corpus.report import CorpusReport
from domainbert.data.parallel_encoding import EncodedBatch, token_type
from domainbert.data.prepared import FORMAT_VERSION, PREPARED_FILE, SPLITS, TOKENIZER_FOLDER
from domainbert.tokenization.load import DomainTokenizer

_BATCH_TOKENS = 1024**2
_BATCH_DOCUMENTS = 64 * 1024
_SHARD_BYTES = 500 * 1024**2


class PreparedWriter:
    """Takes encoded batches in order and writes both splits; what it writes depends on the documents only.

    Args:
        out: the folder, which exists.
        tokenizer: the one that encodes the documents.
    """

    def __init__(self, out: Path, tokenizer: DomainTokenizer) -> None:
        self.out, self.tokenizer = out, tokenizer
        self.empty_documents = 0
        """Documents without a single token; they are counted, not written."""
        dtype = token_type(tokenizer.vocab_size)
        features = Features(
            {
                "id": Value("string"),
                "input_ids": List(Value(dtype.name)),
                "starts_word": List(Value("bool")),
                "num_characters": Value("int32"),
            }
        )
        self._splits = {split: _SplitWriter(out / split, features) for split in SPLITS}

    def write(self, batch: EncodedBatch) -> None:
        """Append the documents of a batch, each to its split."""
        stops = np.cumsum(batch.lengths)
        for document, length, stop in zip(batch.documents, batch.lengths, stops, strict=True):
            if length == 0:
                self.empty_documents += 1
                continue
            tokens, starts = batch.input_ids[stop - length : stop], batch.starts_word[stop - length : stop]
            self._splits[document.split].write(document.id, tokens, starts, len(document.text))

    def close(self, report: CorpusReport) -> dict[str, Any]:
        """Write what is left, the tokenizer and, last, `prepared.json`, whose content is returned.

        Raises:
            DomainbertError: a split has no document.
        """
        self._refuse_empty_split(report)
        self.tokenizer.save(self.out / TOKENIZER_FOLDER)
        splits = {split: writer.close() for split, writer in self._splits.items()}
        _write_json(self.out / "dataset_dict.json", {"splits": list(SPLITS)})
        others = [self.out / "dataset_dict.json"]
        for folder in (TOKENIZER_FOLDER, *SPLITS):
            others += sorted(path for path in (self.out / folder).iterdir() if path.suffix != ".arrow")
        facts = {
            "format_version": FORMAT_VERSION,
            "tokenizer_fingerprint": self.tokenizer.fingerprint,
            "vocab_size": self.tokenizer.vocab_size,
            "splits": splits,
            "other_files": [_file_facts(path, self.out) for path in others],
        }
        facts["sha256"] = hash_json(facts)
        _write_json(self.out / PREPARED_FILE, facts)
        return facts

    def _refuse_empty_split(self, report: CorpusReport) -> None:
        counts = {split: writer.documents for split, writer in self._splits.items()}
        advice = {"train": "lower corpus.validation_fraction", "validation": "raise corpus.validation_fraction"}
        for split, other in (SPLITS, SPLITS[::-1]):
            if counts[split] == 0:
                dropped = f"{sum(report.dropped.values()) + self.empty_documents:,} dropped"
                raise DomainbertError(
                    f"corpus: {counts[other]:,} documents for {other} and none for {split} ({report.read:,} read, "
                    f"{dropped}); expected some for both: {advice[split]}, or set documents: blank_line or line to "
                    "make more documents of a text file"
                )


@dataclass
class _SplitWriter:
    """One split: rows are gathered into record batches, record batches into shards."""

    folder: Path
    features: Features
    documents: int = 0
    tokens: int = 0
    characters: int = 0
    _ids: list[str] = field(default_factory=list)
    _input_ids: list[np.ndarray] = field(default_factory=list)
    _starts_word: list[np.ndarray] = field(default_factory=list)
    _characters: list[int] = field(default_factory=list)
    _waiting: int = 0
    _shard: _Shard | None = None
    _files: list[dict[str, Any]] = field(default_factory=list)

    def write(self, identity: str, input_ids: np.ndarray, starts_word: np.ndarray, characters: int) -> None:
        """Append one document; a record batch is written when enough are waiting."""
        self.documents += 1
        self.tokens += len(input_ids)
        self.characters += characters
        self._ids.append(identity)
        self._input_ids.append(input_ids)
        self._starts_word.append(starts_word)
        self._characters.append(characters)
        self._waiting += len(input_ids)
        if self._waiting >= _BATCH_TOKENS or len(self._ids) >= _BATCH_DOCUMENTS:
            self._write_batch()

    def close(self) -> dict[str, Any]:
        """Write the last batch and what datasets wants beside it; return the facts of the split."""
        if self._ids:
            self._write_batch()
        self._close_shard()
        DatasetInfo(features=self.features).write_to_directory(str(self.folder))
        hashes = "".join(file["sha256"] for file in self._files)
        state: dict[str, Any] = {  # the names are those of Dataset.save_to_disk
            "_data_files": [{"filename": file["name"]} for file in self._files],
            "_fingerprint": hashlib.sha256(hashes.encode()).hexdigest()[:16],
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": self.folder.name,
        }
        _write_json(self.folder / "state.json", state)
        counts = {"documents": self.documents, "tokens": self.tokens, "characters": self.characters}
        return {**counts, "files": self._files}

    def _write_batch(self) -> None:
        stops = pa.array(np.cumsum([0, *(len(ids) for ids in self._input_ids)], dtype=np.int32))
        lists = [
            pa.ListArray.from_arrays(stops, pa.array(np.concatenate(values)))
            for values in (self._input_ids, self._starts_word)
        ]
        columns = [pa.array(self._ids, pa.string()), *lists, pa.array(self._characters, pa.int32())]
        if self._shard is None:
            self.folder.mkdir(exist_ok=True)
            self._shard = _Shard(self.folder / f"data-{len(self._files):05d}.arrow", self.features.arrow_schema)
        self._shard.write(columns)
        self._ids, self._input_ids, self._starts_word, self._characters, self._waiting = [], [], [], [], 0
        if self._shard.num_bytes >= _SHARD_BYTES:
            self._close_shard()

    def _close_shard(self) -> None:
        if self._shard is not None:
            self._files.append(self._shard.close())
            self._shard = None


class _Shard:
    """One Arrow stream file."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path, self.schema = path, schema
        self.sink = pa.OSFile(str(path), "wb")
        self.stream = pa.ipc.new_stream(self.sink, schema)

    @property
    def num_bytes(self) -> int:
        """Written so far."""
        return int(self.sink.tell())

    def write(self, columns: list[pa.Array]) -> None:
        """Append one record batch."""
        self.stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=self.schema))

    def close(self) -> dict[str, Any]:
        """Finish the file; returns its name, size and hash."""
        self.stream.close()
        self.sink.close()
        return _file_facts(self.path, self.path.parent)


def _file_facts(path: Path, folder: Path) -> dict[str, Any]:
    """Facts of a file that `open_prepared` checks, with its name below `folder`."""
    name = path.relative_to(folder).as_posix()
    return {"name": name, "bytes": path.stat().st_size, "sha256": hash_file(path)}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
