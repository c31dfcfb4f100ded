"""A billion tokens in eight tasks of datatrove: memory, killed and begun again, the time to start a training from them.

    DOMAINBERT_DATA=/path/to/data python benchmarks/shards.py [--tokens 1.2e9]

The text is that of the economics and biomedical corpora, in documents of sentences drawn by chance, a file for each
task. Two processes prepare at a time. They are killed and started again. The batches are compared with those of a
single task.
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
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from prepared_corpus import CACHE, SAMPLE_VOCAB_SIZE, VOCAB_SIZE, open_text, raw_corpus
from process_tree import descendants, kill_all
from side_by_side import write_result

SCRIPT = Path(__file__).parents[1] / "configs/cluster/prepare.py"
RESULTS = Path(__file__).parent / "results"
FILES = 8
LENGTH = 512
_SENTENCES = 40  # of a document
_CHARACTERS_PER_TOKEN = 5.2
_BATCHES = 30
_PACKAGES = ("domainbert", "datatrove", "tokenizers", "datasets", "pyarrow", "numpy")
_STARTED = """
import sys, time
start = time.perf_counter()
from pathlib import Path
from domainbert.data.prepared import open_prepared
from domainbert.data.batches import Share
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


def prepare(text: Path, tokenizer: Path, out: Path, tasks: int, kill_after: float | None = None) -> dict[str, Any]:
    """Prepare a text in tasks, two at a time, perhaps killed after some seconds and run again, and say what it took."""
    corpus = {"sources": [str(text)], "validation_fraction": 0.01}
    settings = {"corpus": corpus, "tokenizer": str(tokenizer), "row_lengths": [LENGTH]}
    config = out.with_suffix(".yaml")
    config.write_text(json.dumps(settings))
    call = [sys.executable, str(SCRIPT), str(config), str(out), "--tasks", str(tasks)]
    start, peak, killed = time.perf_counter(), 0, 0
    process = psutil.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        time.sleep(0.2)
        for one in descendants(process.pid):
            with suppress(psutil.Error):  # it ended just now
                peak = max(peak, one.memory_info().rss)
        if not killed and kill_after is not None and time.perf_counter() - start > kill_after:
            kill_all([*descendants(process.pid), process])
            process.wait()
            killed += 1
            process = psutil.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if process.returncode:
        raise RuntimeError(f"{' '.join(call)}: exit code {process.returncode}")
    seconds = time.perf_counter() - start
    return {"seconds_to_prepare": seconds, "peak_megabytes_of_a_process": peak / 1e6, "killed": killed}


def started(folder: Path) -> tuple[dict[str, float], str]:
    """The time from the first import to the first batch, the hash of some batches, and more, in a new process."""
    arguments = [sys.executable, "-c", _STARTED, str(folder), str(LENGTH), str(_BATCHES)]
    first, digest = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout.splitlines()
    names = ("seconds_to_first_batch", "seconds_of_imports", "rows", "fullness", "train_tokens")
    return dict(zip(names, map(float, first.split()), strict=True)), digest


def prepared(text: Path, tokenizer: Path, out: Path, tasks: int, kill_after: float | None = None) -> dict[str, Any]:
    """Prepare a text in tasks, and start from it."""
    for folder in (out, out.with_name(f"{out.name}.datatrove")):
        shutil.rmtree(folder, ignore_errors=True)
    facts = prepare(text, tokenizer, out, tasks, kill_after)
    from_training_set, digest = started(out)
    return {**facts, **from_training_set, "batches": digest}


def main() -> None:
    """Make the text, prepare, compare, print, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=float, default=1.2e9)
    parser.add_argument("--kill-after", type=float, default=60.0, help="seconds")
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
    if not (tokenizer / "run.json").is_file():
        subprocess.run([sys.executable, "-m", "domainbert", "vocab", *corpus, "--out", str(tokenizer)], check=True)
    for name, tokens in (("small", max(options.tokens / 100, 3e5)), ("large", options.tokens)):
        text = folder / f"{hashlib.sha256(str(tokens).encode()).hexdigest()[:8]}"
        if not text.is_dir():
            unfinished = text.with_suffix(".unfinished")
            unfinished.mkdir(parents=True, exist_ok=True)
            write_text(corpora, unfinished, tokens)
            unfinished.rename(text)
        kill_after = options.kill_after if name == "large" else None
        found[name] = prepared(text, tokenizer, folder / name, FILES, kill_after)
        one = prepared(text, tokenizer, folder / "one", 1)
        found[name]["one_task"] = one
        found[name]["same_batches_as_one_task"] = one["batches"] == found[name]["batches"]
    for name in ("small", "large"):
        told = {key: value for key, value in found[name].items() if isinstance(value, float)}
        print(f"{name}: " + ", ".join(f"{key} {value:,.4g}" for key, value in told.items()))
        print(f"  the batches of one task: {found[name]['same_batches_as_one_task']}")
    settings = {"tokens": options.tokens, "files": FILES, "row_length": LENGTH, "kill_after": options.kill_after}
    write_result(options.out, found, settings, _PACKAGES, {})


if __name__ == "__main__":
    main()
