"""Profile of masked-LM pretraining: the operations that take most of it, on the device that computes.

python benchmarks/profile_pretrain.py [--encoder small] [--length 128] [--tokens 8192] [--steps 5]
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from prepared_corpus import CACHE, empty, prepared_corpus
from pretraining import Settings, train
from profiling import WARM_UP, operations
from side_by_side import write_result

_PACKAGES = ("domainbert", "torch", "lightning")


def main() -> None:
    """Train some steps under torch's profiler, print the operations and write the JSON."""
    parser = argparse.ArgumentParser(description="Profile of pretraining")
    parser.add_argument("--encoder", default="small", help="name of an encoder, as in a YAML")
    parser.add_argument("--length", type=int, default=128, help="tokens of a row")
    parser.add_argument("--tokens", type=int, default=8192, help="of a step")
    parser.add_argument("--steps", type=int, default=5, help="optimiser steps that are looked at")
    parser.add_argument("--out", type=Path, help="default: results/profile-ENCODER-LENGTH.json")
    options = parser.parse_args()
    name, prepared = prepared_corpus()
    settings = Settings(prepared, options.encoder, options.length, options.tokens // options.length, 0.1)
    num_steps = WARM_UP + options.steps + 1
    found = operations(lambda done: train(settings, num_steps, done, empty(CACHE / "profile")), options.steps)
    out = options.out or Path(__file__).parent / "results" / f"profile-{options.encoder}-{options.length}.json"
    described = {field: value for field, value in asdict(settings).items() if field != "prepared"} | {"corpus": name}
    write_result(out, found, described | {"steps": options.steps}, _PACKAGES, {})


if __name__ == "__main__":
    main()
