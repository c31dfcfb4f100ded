"""Text to token ids on disk, and packed: domainbert against `datasets.map`, the same tokenizer on the same documents.

    python benchmarks/prepare.py [--rounds 5] [--documents N]
    python benchmarks/prepare.py --growth

All sides have to give the same ids, special tokens aside. `--growth` measures domainbert alone on 1, 2, 4, 8 and 16
times the corpus, each in a fresh process: memory should stay, time grow in proportion.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prepared_corpus import CACHE, empty, prepared_corpus, raw_corpus
from process_tree import peak_memory_bytes
from side_by_side import Measurement, Rounds, Side, Turns, measure, num_cores, report

if TYPE_CHECKING:
    import datasets
    import numpy as np

GROWTH = (1, 2, 4, 8, 16)
_LENGTH = 128  # of the rows that are planned
_PACKAGES = ("domainbert", "datasets", "tokenizers", "transformers", "pyarrow", "numpy")
_FOLDER = CACHE / "prepare"


@dataclass(frozen=True)
class Settings:
    """The corpus that all sides prepare.

    Attributes:
        files: JSON Lines of documents, `{"text": ...}`.
        tokenizer: a tokenizer folder.
        out: a folder of the side's own, made anew for every unit of work.
        processes: that tokenize.
    """

    files: tuple[Path, ...]
    tokenizer: Path
    out: Path
    processes: int | None


def with_domainbert(turns: Turns, settings: Settings) -> dict[str, Any]:
    """The stage `prepare`, then what `pretrain` does with its folder: open it, checked, and plan the rows."""
    units = []
    for _ in range(turns.num_units):
        tokens, facts = _prepare_and_plan(settings)
        units.append(facts)
        turns.done(tokens)
    return {
        "how": f"prepare, num_workers: {settings.processes}; rows of {_LENGTH} planned",
        "units": units,
        "ids_sha256": _hash_ids(_documents_of_domainbert(settings.out)),
    }


def _prepare_and_plan(settings: Settings) -> tuple[int, dict[str, float]]:
    """The tokens, and what either part takes."""
    from domainbert.corpus.config import CorpusConfig, Source
    from domainbert.stages.prepare import prepare

    start = time.perf_counter()
    corpus = CorpusConfig([Source(str(file)) for file in settings.files])
    result = prepare(
        empty(settings.out), corpus=corpus, tokenizer=settings.tokenizer, num_workers=settings.processes or 0
    )
    prepared, peak = time.perf_counter(), peak_memory_bytes()
    _plan(settings)
    seconds = {"seconds_of_prepare": prepared - start, "seconds_of_plan": time.perf_counter() - prepared}
    tokens = sum(split["tokens"] for split in result["splits"].values())
    return tokens, {**seconds, "peak_memory_before_plan_bytes": peak}


def _plan(settings: Settings) -> None:
    """Plan the rows of both splits, as the start of a training does."""

    from domainbert.data.prepared import open_prepared
    from domainbert.data.splits import plan_rows
    from domainbert.tokenization.load import load_tokenizer

    corpus, tokenizer = open_prepared([settings.out]), load_tokenizer(settings.tokenizer)
    for split in (corpus.train, corpus.validation):
        sizes = (tokenizer.vocab_size, tokenizer.special_ids, _LENGTH, tokenizer.template.num_special_tokens())
        plan_rows(split.document_offsets, split.take, split.take_starts, *sizes)


def _documents_of_domainbert(folder: Path) -> list[np.ndarray]:
    """The ids of each document in the order of the corpus file: their names end in the number of the line."""
    import numpy as np
    from datasets import load_from_disk

    rows = (row for split in load_from_disk(str(folder)).values() for row in split)
    numbered = sorted((int(row["id"].rsplit(":", 1)[1]), np.asarray(row["input_ids"])) for row in rows)
    return [ids for _, ids in numbered]


def by_defaults(turns: Turns, settings: Settings) -> dict[str, Any]:
    """`datasets.map` as `run_mlm.py` calls it: batched, whatever the tokenizer gives."""
    return _with_datasets(turns, settings, {"return_special_tokens_mask": True})


def at_best(turns: Turns, settings: Settings) -> dict[str, Any]:
    """`datasets.map` in as many processes as there are cores, each with one thread, which keeps nothing but the ids."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    arguments = {"add_special_tokens": False, "return_attention_mask": False, "return_token_type_ids": False}
    return _with_datasets(turns, settings, arguments)


def _with_datasets(turns: Turns, settings: Settings, arguments: dict[str, bool]) -> dict[str, Any]:
    import datasets
    from transformers import AutoTokenizer

    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(settings.tokenizer)
    specials = 2 if arguments.get("add_special_tokens", True) else 0
    for _ in range(turns.num_units):
        encoded = _map_and_save(settings, tokenizer, arguments)
        turns.done(_num_tokens(encoded) - specials * len(encoded))
    saved = datasets.load_from_disk(str(settings.out / "saved")).with_format("numpy")["input_ids"]
    documents = [ids[1:-1] if specials else ids for ids in saved]
    return {
        "how": ", ".join(["map(batched=True)", f"num_proc={settings.processes}", *arguments]),
        "ids_sha256": _hash_ids(documents),
    }


def _map_and_save(settings: Settings, tokenizer: Any, arguments: dict[str, bool]) -> datasets.Dataset:
    from datasets import load_dataset

    out = empty(settings.out)  # with the caches: everything is done anew
    files = [str(file) for file in settings.files]
    corpus = load_dataset("json", data_files=files, split="train", cache_dir=str(out / "cache"))
    encoded = corpus.map(
        lambda batch: tokenizer(batch["text"], **arguments),
        batched=True,
        num_proc=settings.processes,
        remove_columns=["text"],
    )
    encoded.save_to_disk(str(out / "saved"), num_proc=settings.processes)
    return encoded


def _num_tokens(encoded: datasets.Dataset) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(pc.list_value_length(encoded.data.column("input_ids"))).as_py())


def _hash_ids(documents: Iterable[np.ndarray]) -> str:
    import numpy as np

    digest = hashlib.sha256()
    for ids in documents:
        if len(ids):  # a document without tokens is not written by domainbert
            digest.update(len(ids).to_bytes(8, "little") + np.asarray(ids, np.uint32).tobytes())
    return digest.hexdigest()


def grow(turns: Turns, settings: Settings) -> dict[str, Any]:
    """domainbert once, in a process in which nothing was prepared before."""
    importlib.import_module("domainbert.data.prepared_writer")  # takes as long whatever the size, so before the clock
    turns.done(0)
    tokens, facts = _prepare_and_plan(settings)
    turns.done(tokens)
    size = sum(file.stat().st_size for file in settings.out.rglob("*.arrow"))
    return {"tokens": tokens, "bytes_on_disk": size, **facts}


def slopes(measurements: Sequence[Measurement], facts: Mapping[str, dict[str, Any]]) -> dict[str, float]:
    """Growth of time and memory with the tokens, by least squares.

    `time_exponent` is b in seconds = a * tokens ** b: 1 where time is linear, and less as long as starting, which takes
    the same for any size, still counts. The others are those of a straight line: its slope and where it begins.
    """
    import numpy as np

    tokens = np.array([m.amount for m in measurements])
    seconds = np.array([m.seconds for m in measurements])
    slope, start = np.polyfit(tokens / 1e6, seconds, 1)
    found = {"time_exponent": float(np.polyfit(np.log(tokens), np.log(seconds), 1)[0])}
    found |= {"seconds_per_million_tokens": float(slope), "seconds_to_start": float(start)}
    for kind in ("memory", "anonymous"):
        peaks = [facts[m.side].get(f"peak_tree_{kind}_bytes") for m in measurements]
        if None not in peaks:  # off Linux the latter is not known
            found[f"{kind}_bytes_per_token"] = float(np.polyfit(tokens, peaks, 1)[0])
    return found


def write_corpus(most: int | None, copies: int) -> tuple[str, list[Path]]:
    """The corpus as all sides read it: the documents that domainbert keeps, cleaned, in JSON Lines.

    Each copy begins its documents with another sentence, so that none is a duplicate.
    """
    from domainbert.corpus.config import CorpusConfig, Source
    from domainbert.corpus.documents import read_documents

    name, path = raw_corpus()
    documents = islice(read_documents(CorpusConfig([Source(str(path))])), most)
    files = [_FOLDER / f"corpus-{number}.jsonl" for number in range(copies)]
    streams = [file.open("w", encoding="utf-8", newline="\n") for file in files]
    for document in documents:
        for number, stream in enumerate(streams):
            text = f"This is copy {number}.\n{document.text}" if copies > 1 else document.text
            stream.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
    for stream in streams:
        stream.close()
    return name, files


def measure_sides(options: argparse.Namespace, tokenizer: Path) -> None:
    """domainbert and its peers."""
    name, files = write_corpus(options.documents, 1)

    def settings(folder: str, processes: int | None) -> Settings:
        return Settings(tuple(files), tokenizer, _FOLDER / folder, processes)

    sides = [
        Side("domainbert", with_domainbert, settings("domainbert", num_cores())),
        Side("datasets, defaults", by_defaults, settings("defaults", None)),
        Side("datasets, num_proc", at_best, settings("best", num_cores())),
    ]
    rounds = Rounds(options.rounds, 1, 1, settle=0)
    print(f"{name} corpus, {files[0].stat().st_size / 2**20:.1f} MiB of text, {num_cores()} cores")
    measurements, facts = measure(sides, rounds, CACHE / "logs", sample_memory=True)
    hashes = {side: fact["ids_sha256"] for side, fact in facts.items()}
    assert len(set(hashes.values())) == 1, f"the ids differ: {hashes}"
    assert len({m.amount for m in measurements}) == 1, "the numbers of tokens differ"
    described = {"corpus": name, "documents": options.documents, "length": _LENGTH, "rounds": asdict(rounds)}
    report(options.out, "tokens", described, _PACKAGES, measurements, facts)


def measure_growth(options: argparse.Namespace, tokenizer: Path) -> None:
    """domainbert on ever more text."""
    name, files = write_corpus(options.documents, GROWTH[-1])
    sides = [
        Side(f"{size}x", grow, Settings(tuple(files[:size]), tokenizer, _FOLDER / f"{size}x", num_cores()))
        for size in GROWTH
    ]
    rounds = Rounds(1, 1, 1, settle=0)
    print(f"{name} corpus, {files[0].stat().st_size / 2**20:.1f} MiB of text at 1x, {num_cores()} cores")
    measurements, facts = measure(sides, rounds, CACHE / "logs", sample_memory=True)
    growth = slopes(measurements, facts)
    described = {"corpus": name, "documents": options.documents, "length": _LENGTH, "sizes": GROWTH}
    report(options.out, "tokens", described, _PACKAGES, measurements, facts, {"growth": growth})
    print("\n".join(f"{name.replace('_', ' ')}: {value:.3g}" for name, value in growth.items()))


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description="Tokenization and packing: domainbert against datasets.map")
    parser.add_argument("--growth", action="store_true", help="domainbert on 1 to 16 times the corpus, once each")
    parser.add_argument("--documents", type=int, help="the first so many of the corpus; default: all")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each side; the median counts")
    parser.add_argument("--out", type=Path, help="default: results/prepare.json or results/prepare-growth.json")
    options = parser.parse_args()
    name = "prepare-growth" if options.growth else "prepare"
    options.out = options.out or Path(__file__).parent / "results" / f"{name}.json"
    tokenizer = prepared_corpus()[1] / "tokenizer"
    empty(_FOLDER)
    (measure_growth if options.growth else measure_sides)(options, tokenizer)
    empty(_FOLDER)


if __name__ == "__main__":
    main()
