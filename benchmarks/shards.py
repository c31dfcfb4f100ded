"""A billion tokens in eight shards: memory of each, a killed one done again, the time to start a training from them.

    DOMAINBERT_DATA=/path/to/data python benchmarks/shards.py [--tokens 1.2e9]

The text is that of the economics and biomedical corpora, in documents of sentences drawn by chance, a file for each
shard. Two processes prepare at a time. One of them is killed halfway and started again. The batches are compared with
those of a single shard.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from prepared_corpus import CACHE, SAMPLE_VOCAB_SIZE, VOCAB_SIZE, open_text, raw_corpus
from side_by_side import write_result

RESULTS = Path(__file__).parent / "results"
FILES = 8
LENGTH = 512
_SENTENCES = 40  # of a document
_CHARACTERS_PER_TOKEN = 5.2
_BATCHES = 30
_PACKAGES = ("domainbert", "tokenizers", "datasets", "pyarrow", "numpy")
_STARTED = """
import sys, time
start = time.perf_counter()
from pathlib import Path
from domainbert.data.prepared import open_prepared
from domainbert.data.types import Share
from domainbert.pretraining.batches import PackedRowsReader, TrainRows
from domainbert.pretraining.module import Pretraining  # as a training needs it: Lightning
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.tokenization.load import load_tokenizer
imported = time.perf_counter()
corpus = open_prepared([Path(sys.argv[1])])
reader = PackedRowsReader(corpus.train, MaskedLM().build(load_tokenizer(corpus.tokenizer_folder)), int(sys.argv[2]))
rows = TrainRows(reader, reader.order(64, 0), Share(0, 1, 1), range(10**6))
rows[0]
plan = reader.plan
print(time.perf_counter() - start, imported - start, plan.num_rows, plan.fullness, corpus.train.num_tokens)
import hashlib
digest = hashlib.sha256()
for index in range(int(sys.argv[3])):
    batch = rows[index * 997 % 10**5]
    for name in sorted(batch):
        digest.update(bytes(str(batch[name].tolist() if hasattr(batch[name], "tolist") else batch[name]), "ascii"))
print(digest.hexdigest())
"""


def write_text(corpora: Sequence[Path], folder: Path, tokens: float) -> None:
    """Write the files, about so many tokens in all."""
    sentences: list[str] = []
    for path in corpora:
        with open_text(path) as file:
            sentences += [one for line in file for one in json.loads(line)["text"].split(". ") if 20 < len(one) < 400]
    for number in range(FILES):
        draw, characters = random.Random(number), 0
        with open(folder / f"{number}.jsonl", "w", encoding="utf-8") as file:
            while characters < tokens * _CHARACTERS_PER_TOKEN / FILES:
                text = ". ".join(draw.choices(sentences, k=_SENTENCES))
                file.write(json.dumps({"text": text}) + "\n")
                characters += len(text)


def command(text: Path, tokenizer: Path, out: Path, shard: str) -> list[str]:
    """The call that prepares a shard."""
    corpus = ["--corpus", str(text), "--corpus.shard", shard, "--corpus.validation_fraction", "0.01"]
    settings = ["--tokenizer", str(tokenizer), "--row_lengths", f"[{LENGTH}]", "--num_workers", "0"]
    where = ["--out", str(out), "--resume", "auto"]
    return [sys.executable, "-m", "domainbert", "prepare", *corpus, *settings, *where]


def prepare(calls: Sequence[list[str]], kill_after: float | None = None) -> list[dict[str, Any]]:
    """Run the calls, two at a time, and say what each took; the second is killed after some seconds and run again."""
    waiting, running, done = list(enumerate(calls)), dict[int, tuple[psutil.Popen, float]](), []
    peaks, killed = [0] * len(calls), kill_after is None
    while waiting or running:
        while waiting and len(running) < 2:
            number, call = waiting.pop(0)
            running[number] = (
                psutil.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL),
                time.perf_counter(),
            )
        time.sleep(0.2)
        for number, (process, start) in list(running.items()):
            if process.poll() is None:
                peaks[number] = max(peaks[number], process.memory_info().rss)
                if not killed and number == 1 and time.perf_counter() - start > float(kill_after or 0):
                    process.kill()
                    process.wait()
                    del running[number]
                    waiting.insert(0, (number, calls[number]))
                    killed = True
            else:
                if process.returncode:
                    raise RuntimeError(f"{' '.join(calls[number])}: exit code {process.returncode}")
                seconds = time.perf_counter() - start
                done.append({"shard": number, "seconds": seconds, "peak_megabytes": peaks[number] / 1e6})
                del running[number]
    return sorted(done, key=lambda one: one["shard"])


def started(folder: Path) -> tuple[dict[str, float], str]:
    """The time from the first import to the first batch, the hash of some batches, and more, in a new process."""
    arguments = [sys.executable, "-c", _STARTED, str(folder), str(LENGTH), str(_BATCHES)]
    first, digest = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout.splitlines()
    names = ("seconds_to_first_batch", "seconds_of_imports", "rows", "fullness", "train_tokens")
    return dict(zip(names, map(float, first.split()), strict=True)), digest


def shards_of(text: Path, tokenizer: Path, out: Path, count: int, kill_after: float | None = None) -> dict[str, Any]:
    """Prepare a text in shards, merge them, start from them."""
    shutil.rmtree(out, ignore_errors=True)
    calls = [command(text, tokenizer, out / str(number), f"{number}/{count}") for number in range(count)]
    start = time.perf_counter()
    each = prepare(calls, kill_after)
    prepared = time.perf_counter()
    folders = json.dumps([str(out / str(number)) for number in range(count)])
    merge = [sys.executable, "-m", "domainbert", "merge", "--prepared", folders, "--out", str(out / "merged")]
    subprocess.run(merge, check=True, stdout=subprocess.DEVNULL)
    seconds = {"seconds_to_prepare": prepared - start, "seconds_to_merge": time.perf_counter() - prepared}
    facts, digest = started(out / "merged")
    return {"shards": each, **seconds, **facts, "batches": digest}


def main() -> None:
    """Make the text, prepare, compare, print, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=float, default=1.2e9)
    parser.add_argument("--kill-after", type=float, default=60.0, help="seconds into the second shard")
    parser.add_argument("--out", type=Path, default=RESULTS / "shards.json")
    options = parser.parse_args()
    name, corpus_file = raw_corpus()
    corpora = [corpus_file]
    if name == "econ":
        corpora.append(Path(os.environ["DOMAINBERT_DATA"]) / "bio" / "corpus.jsonl.gz")
    folder = CACHE / "shards"
    tokenizer, found = folder / "vocab", dict[str, Any]()
    vocab_size = VOCAB_SIZE if name == "econ" else SAMPLE_VOCAB_SIZE
    corpus = ["--corpus", str(corpus_file), "--vocab_size", str(vocab_size)]
    if not (tokenizer / "manifest.json").is_file():
        subprocess.run([sys.executable, "-m", "domainbert", "vocab", *corpus, "--out", str(tokenizer)], check=True)
    for name, tokens in (("small", max(options.tokens / 100, 3e5)), ("large", options.tokens)):
        text = folder / f"{hashlib.sha256(str(tokens).encode()).hexdigest()[:8]}"
        if not text.is_dir():
            unfinished = text.with_suffix(".unfinished")
            unfinished.mkdir(parents=True, exist_ok=True)
            write_text(corpora, unfinished, tokens)
            unfinished.rename(text)
        kill_after = options.kill_after if name == "large" else None
        found[name] = shards_of(text, tokenizer, folder / name, FILES, kill_after)
        one = shards_of(text, tokenizer, folder / "one", 1)
        found[name]["one_shard"] = one
        found[name]["same_batches_as_one_shard"] = one["batches"] == found[name]["batches"]
    for name in ("small", "large"):
        told = {key: value for key, value in found[name].items() if isinstance(value, float)}
        print(f"{name}: " + ", ".join(f"{key} {value:,.4g}" for key, value in told.items()))
        print("  peak of each, MB: " + ", ".join(f"{one['peak_megabytes']:,.0f}" for one in found[name]["shards"]))
        print(f"  the batches of one shard: {found[name]['same_batches_as_one_shard']}")
    settings = {"tokens": options.tokens, "files": FILES, "row_length": LENGTH, "kill_after": options.kill_after}
    write_result(options.out, found, settings, _PACKAGES, {})


if __name__ == "__main__":
    main()
