"""A terabyte of text on paper and in numbers: what a training needs to start, to find a batch and to be fed.

    python benchmarks/scale_plan.py [--terabytes 1] [--out FILE]

The order is that of `WindowedOrder` over virtual rows: nothing is read but the list of parts, which is written as
`merge` writes it and opened as `pretrain` opens it. Bandwidth and cache are arithmetic; each assumption
stands in the JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from process_tree import peak_memory_bytes
from side_by_side import write_result

from domainbert.data.batches import WindowedOrder
from domainbert.data.parts import split_parts
from domainbert.data.remote_files import LocalFiles

RESULTS = Path(__file__).parent / "results"
_STEPS = 50  # that are timed at each place
_PACKAGES = ("domainbert", "numpy")


@dataclass(frozen=True)
class Assumptions:
    """Numbers that are assumed; the rest is computed from them."""

    terabytes: float = 1.0
    bytes_per_token: float = 4.5  # of English text in UTF-8, with a vocabulary of 30,000
    row_length: int = 512
    pieces_per_row: float = 1.2  # documents are longer than a row, and the rest of each shares one
    tokens_per_part: int = 50_000_000  # a file of some 225 MB of text
    window: int = 64
    batch_size: int = 4_096
    bytes_per_id: int = 2  # a vocabulary of at most 65,536
    tokens_per_second_per_gpu: int = 300_000  # BERT-base on an H100, in bf16; not measured here
    gpus_per_node: int = 8

    @property
    def tokens(self) -> float:
        """Of the corpus."""
        return self.terabytes * 1e12 / self.bytes_per_token

    @property
    def num_parts(self) -> int:
        """Files of the corpus."""
        return math.ceil(self.tokens / self.tokens_per_part)

    @property
    def rows_per_part(self) -> int:
        """Rows that a part has, with [CLS] and [SEP] around each piece."""
        return int(self.tokens_per_part / (self.row_length - 2 * self.pieces_per_row))

    @property
    def bytes_per_part(self) -> float:
        """Of its files: ids, a bit a token, and the plan of its rows (see `parts.write_plan`)."""
        plan = self.rows_per_part * (4 + 8 + 12 * self.pieces_per_row)
        return self.tokens_per_part * (self.bytes_per_id + 1 / 8) + plan


def manifest(given: Assumptions) -> list[dict[str, Any]]:
    """The parts as `merge` lists them."""
    rows, file = given.rows_per_part, {"bytes": int(given.bytes_per_part), "sha256": "0" * 64}
    plan = {"rows": rows, "pieces": int(rows * given.pieces_per_row), "file": {"name": "plans/train-512.arrow", **file}}
    sizes = {"documents": rows, "tokens": given.tokens_per_part, "characters": int(given.tokens_per_part * 4.5)}
    split = {**sizes, "files": [{"name": "data-00000.arrow", **file}], "plans": {str(given.row_length): plan}}
    splits = {"train": split, "validation": split}
    return [{"folder": f"parts/{number:05d}", "splits": splits} for number in range(given.num_parts)]


def opened(given: Assumptions) -> dict[str, float]:
    """The size of the list of parts, and the time to read it and to make the splits."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prepared.json"
        path.write_text(json.dumps(manifest(given)))
        start = time.perf_counter()
        counts = np.zeros((2, 30_000), np.int64)
        split, _ = split_parts(json.loads(path.read_text()), LocalFiles(path.parent), given.window, counts)
        seconds = time.perf_counter() - start
        assert split.num_tokens == given.num_parts * given.tokens_per_part
        return {"manifest_megabytes": path.stat().st_size / 1e6, "seconds_to_open": seconds}


def ordered(given: Assumptions) -> dict[str, Any]:
    """Time of a batch at the beginning, late in the pass and far beyond it; draws of a pass that came twice, of many
    batches in a row and of batches far apart."""
    start = time.perf_counter()
    order = WindowedOrder(np.full(given.num_parts, given.rows_per_part), given.window, given.batch_size, seed=0)
    order.batch(0)
    found: dict[str, Any] = {"rows": order.size, "seconds_to_first_batch": time.perf_counter() - start}
    last = order.size // given.batch_size - 1
    for name, first in (("first", 0), ("last_of_pass", last - _STEPS), ("step_1e6", 1_000_000)):
        seconds = []
        for step in range(first, first + _STEPS):
            start = time.perf_counter()
            order.batch(step)
            seconds.append(time.perf_counter() - start)
        found[f"milliseconds_per_batch_{name}"] = float(np.median(seconds)) * 1e3
    small = WindowedOrder(order.sizes, given.window, 256, seed=0)
    start = time.perf_counter()
    small.batch(1_000_000)
    found["milliseconds_of_step_1e6_at_once_256_rows"] = (time.perf_counter() - start) * 1e3
    steps = np.unique(np.concatenate([np.arange(200), np.linspace(0, last - 1, 300).astype(int)]))
    drawn = np.concatenate([order.batch(int(step))[1] for step in steps])
    found |= {"rows_drawn": len(drawn), "drawn_twice": len(drawn) - len(np.unique(drawn))}
    return found | {"peak_megabytes": peak_memory_bytes() / 1e6}


def fed(given: Assumptions, gpus: int) -> dict[str, float]:
    """Reading of so many GPUs. Rows of a window are mixed over all ranks, so each node reads each part once a pass."""
    nodes = max(gpus // given.gpus_per_node, 1)
    seconds = given.tokens / (gpus * given.tokens_per_second_per_gpu)
    corpus = given.num_parts * given.bytes_per_part
    window = given.window * given.tokens_per_part / (gpus * given.tokens_per_second_per_gpu)
    return {
        "gpus": gpus,
        "hours_per_pass": seconds / 3600,
        "megabytes_per_second_per_node": corpus / seconds / 1e6,
        "gigabytes_per_second_of_the_store": nodes * corpus / seconds / 1e9,
        "seconds_per_window": window,
        "gigabytes_of_cache_per_node": 2 * given.window * given.bytes_per_part / 1e9,
    }


def main() -> None:
    """Measure, compute, print, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--terabytes", type=float, default=1.0)
    parser.add_argument("--out", type=Path, default=RESULTS / "scale_plan.json")
    options = parser.parse_args()
    given = Assumptions(options.terabytes)
    facts = {"tokens": given.tokens, "parts": given.num_parts, "bytes_per_part": given.bytes_per_part}
    found = {"corpus": facts, "open": opened(given), "order": ordered(given)}
    found["feed"] = [fed(given, gpus) for gpus in (8, 64, 512)]
    for name in ("corpus", "open", "order"):
        print(f"{name}: " + ", ".join(f"{key} {value:,.4g}" for key, value in found[name].items()))
    for row in found["feed"]:
        print(", ".join(f"{key} {value:,.4g}" for key, value in row.items()))
    write_result(options.out, found, asdict(given), _PACKAGES, {})


if __name__ == "__main__":
    main()
