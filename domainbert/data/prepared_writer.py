"""Write a prepared corpus as a stream: memory contains one record batch per split, for any size of the corpus."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import DatasetInfo, Features, List, Value

from domainbert.base.errors import DomainbertError
from domainbert.base.files import hash_json, sync_files, write_json
from domainbert.corpus.documents import Document
from domainbert.corpus.languages import Languages
from domainbert.corpus.report import CorpusReport
from domainbert.data.parallel_encoding import EncodedBatch, token_dtype
from domainbert.data.parts import COUNTS_FILE, write_plan
from domainbert.data.prepared_facts import FORMAT_VERSION, PREPARED_FILE, SPLITS, TOKENIZER_FOLDER, file_facts
from domainbert.data.splits import PreparedSplit
from domainbert.tokenization.load import DomainTokenizer

_BATCH_TOKENS, _BATCH_DOCUMENTS = 1024**2, 64 * 1024  # a record batch ends at one of these numbers
_SHARD_BYTES = 500 * 1024**2  # a file ends at this size


class PreparedWriter:
    """Writes encoded batches to the folders of both splits. The files depend only on the documents and the tokenizer.

    Args:
        out: the folder; it must exist.
        tokenizer: tokenizer of the batches.
        languages: sampling of languages; each document must then have a language.
    """

    def __init__(self, out: Path, tokenizer: DomainTokenizer, languages: Languages | None = None) -> None:
        self.out, self.tokenizer, self.languages = out, tokenizer, languages
        self.language_tokens = Counter[str]()  # in training documents
        self.empty_documents = 0  # documents without tokens are not written
        self.unknown = 0  # unknown tokens
        dtype = token_dtype(tokenizer.vocab_size)
        columns = {
            "id": Value("string"),
            "input_ids": List(Value(dtype.name)),
            "starts_word": List(Value("bool")),
            "num_characters": Value("int32"),
        }
        features = Features(columns if languages is None else {**columns, "language": Value("string")})
        self._splits = {split: _SplitWriter(out / split, features) for split in SPLITS}

    def write(self, batch: EncodedBatch) -> None:
        """Append the documents of a batch to their splits."""
        self.unknown += int((batch.input_ids == self.tokenizer.unk_id).sum())
        ends = np.cumsum(batch.lengths)
        for document, length, stop in zip(batch.documents, batch.lengths, ends, strict=True):
            if length == 0:
                self.empty_documents += 1
                continue
            tokens, starts = batch.input_ids[stop - length : stop], batch.starts_word[stop - length : stop]
            self._splits[document.split].write(document, tokens, starts)
            if self.languages is not None and document.split == "train":
                self.language_tokens[str(document.language)] += int(length)

    def close(self, report: CorpusReport) -> dict[str, Any]:
        """Write the last batch, the tokenizer and finally `prepared.json`; return the content of `prepared.json`.
        `report` has counts for the error that a split has no document."""
        self._check_splits_not_empty(report)
        splits = self._close_splits()
        self.tokenizer.save(self.out / TOKENIZER_FOLDER)
        facts: dict[str, Any] = {"splits": splits, "other_files": self._other_files(TOKENIZER_FOLDER)}
        if self.languages is not None:
            facts["languages"] = {"alpha": self.languages.alpha, "tokens": dict(self.language_tokens)}
        return write_facts(self.out, self.tokenizer, facts)

    def close_part(self, row_lengths: Sequence[int], part_facts: Mapping[str, Any]) -> dict[str, Any]:
        """Write the last batch of a part of a corpus (see `parts`), the row plans, the token counts and finally
        `prepared.json`; return the content of `prepared.json`.

        A split may be empty, and the tokenizer is not written. There is a row plan for each of the `row_lengths`.
        `part_facts` are added to `prepared.json`.
        """
        splits = self._close_splits()
        token_counts = []  # of each split
        for name, facts in splits.items():
            split = PreparedSplit([self.out / name / file["name"] for file in facts["files"]])
            token_counts.append(split.token_counts(self.tokenizer.vocab_size))
            facts["plans"] = {}
            for length in row_lengths:
                plan = split.row_plan(self.tokenizer, length)
                path = self.out / "plans" / f"{name}-{length}.arrow"
                write_plan(path, plan)
                sizes = {"rows": plan.num_rows, "pieces": len(plan.starts)}
                facts["plans"][str(length)] = {**sizes, "file": file_facts(path, self.out)}
        np.save(self.out / COUNTS_FILE, np.stack(token_counts), allow_pickle=False)
        sync_files(self.out)
        return write_facts(
            self.out, self.tokenizer, {"splits": splits, "other_files": self._other_files(COUNTS_FILE), **part_facts}
        )

    def _close_splits(self) -> dict[str, dict[str, Any]]:
        splits = {split: writer.close() for split, writer in self._splits.items()}
        write_json(self.out / "dataset_dict.json", {"splits": list(SPLITS)}, unredacted=True)
        return splits

    def _other_files(self, *names: str) -> list[dict[str, Any]]:
        files = [self.out / "dataset_dict.json"]
        for path in map(self.out.joinpath, (*names, *SPLITS)):
            inside = sorted(path.iterdir()) if path.is_dir() else [path]
            files += (file for file in inside if file.suffix != ".arrow")
        return [file_facts(path, self.out) for path in files]

    def _check_splits_not_empty(self, report: CorpusReport) -> None:
        counts = {split: writer.documents for split, writer in self._splits.items()}
        for split, other, advice in (("train", "validation", "lower"), ("validation", "train", "raise")):
            if counts[split] == 0:
                dropped = f"{sum(report.dropped.values()) + self.empty_documents:,} dropped"
                raise DomainbertError(
                    where="corpus",
                    found=f"no document for {split} ({counts[other]:,} for {other}, {report.read:,} read, {dropped})",
                    expected=f"some in each split: {advice} corpus.validation_fraction, or split text files into "
                    "more documents with `documents: line` or `documents: blank_line` in corpus.sources",
                )


def write_facts(out: Path, tokenizer: DomainTokenizer, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Write the `prepared.json` of a folder and return its content."""
    content: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "tokenizer_fingerprint": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        **facts,
    }
    content["sha256"] = hash_json(content)
    write_json(out / PREPARED_FILE, content, unredacted=True)
    return content


class _SplitWriter:
    """Writer of one split: rows are collected in record batches, record batches in shards."""

    def __init__(self, folder: Path, features: Features) -> None:
        self.folder, self.features = folder, features
        self.documents = self.tokens = self.characters = 0
        self._rows: list[tuple[Document, np.ndarray, np.ndarray]] = []  # not yet written: arguments of `write`
        self._num_tokens = 0  # in `_rows`
        self._sink: pa.OSFile | None = None  # the open shard
        self._files: list[dict[str, Any]] = []  # facts of the closed shards

    def write(self, document: Document, input_ids: np.ndarray, starts_word: np.ndarray) -> None:
        """Count and collect a document; write the collected documents if they fill a record batch."""
        self.documents += 1
        self.tokens += len(input_ids)
        self.characters += len(document.text)
        self._rows.append((document, input_ids, starts_word))
        self._num_tokens += len(input_ids)
        if self._num_tokens >= _BATCH_TOKENS or len(self._rows) >= _BATCH_DOCUMENTS:
            self._write_batch()

    def close(self) -> dict[str, Any]:
        """Write the last batch and the metadata for datasets; return the facts of the split."""
        if self._rows:
            self._write_batch()
        self._close_shard()
        self.folder.mkdir(exist_ok=True)
        DatasetInfo(features=self.features).write_to_directory(str(self.folder))
        hashes = "".join(file["sha256"] for file in self._files)
        state: dict[str, Any] = {  # names as in Dataset.save_to_disk
            "_data_files": [{"filename": file["name"]} for file in self._files],
            "_fingerprint": hashlib.sha256(hashes.encode()).hexdigest()[:16],
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": self.folder.name,
        }
        write_json(self.folder / "state.json", state, unredacted=True)
        counts = {"documents": self.documents, "tokens": self.tokens, "characters": self.characters}
        return {**counts, "files": self._files}

    def _write_batch(self) -> None:
        # columns of the record batch
        documents, input_ids, starts_word = zip(*self._rows, strict=True)
        ends = pa.array(np.cumsum([0, *map(len, input_ids)], dtype=np.int32))
        lists = [
            pa.ListArray.from_arrays(ends, pa.array(np.concatenate(values))) for values in (input_ids, starts_word)
        ]
        characters = pa.array([len(document.text) for document in documents], pa.int32())
        columns = [pa.array([document.id for document in documents], pa.string()), *lists, characters]
        if "language" in self.features:
            columns.append(pa.array([document.language for document in documents], pa.string()))

        schema = self.features.arrow_schema
        if self._sink is None:
            self.folder.mkdir(exist_ok=True)
            self._sink = pa.OSFile(str(self._shard), "wb")
            self._stream = pa.ipc.new_stream(self._sink, schema)
        self._stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        self._rows, self._num_tokens = [], 0
        if self._sink.tell() >= _SHARD_BYTES:
            self._close_shard()

    @property
    def _shard(self) -> Path:
        """Path of the open shard, or of the next shard if none is open."""
        return self.folder / f"data-{len(self._files):05d}.arrow"

    def _close_shard(self) -> None:
        if self._sink is not None:
            self._stream.close()
            self._sink.close()
            self._sink = None
            self._files.append(file_facts(self._shard, self.folder))
