"""Profile of masked-LM pretraining: the operations that take most of it, on the device that computes.

python benchmarks/profile_pretrain.py [--encoder small] [--length 128] [--tokens 8192] [--steps 5]
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

import torch
from prepared_corpus import CACHE, empty, prepared_corpus
from pretraining import Settings, train
from side_by_side import write_result
from torch.profiler import ProfilerActivity, profile, schedule

_WARM_UP = 10  # steps: compiling comes with the first ones
_SHOWN = 30
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
    on_gpu = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities, schedule=schedule(wait=_WARM_UP - 1, warmup=1, active=options.steps)) as looked:
        out = empty(CACHE / "profile")
        facts = train(settings, _WARM_UP + options.steps + 1, lambda tokens: looked.step(), out)
    spent = {
        event.key: (event.self_device_time_total if on_gpu else event.self_cpu_time_total)
        for event in looked.key_averages()
    }
    total = sum(spent.values())
    shares = {key: time / total for key, time in sorted(spent.items(), key=lambda item: -item[1])[:_SHOWN]}
    for key, share in shares.items():
        print(f"{share:6.1%}  {key[:100]}")
    microseconds = total / options.steps
    print(f"{microseconds / 1000:,.1f} ms a step")
    out = options.out or Path(__file__).parent / "results" / f"profile-{options.encoder}-{options.length}.json"
    described = {field: value for field, value in asdict(settings).items() if field != "prepared"} | {"corpus": name}
    found = {"microseconds_a_step": microseconds, "shares": shares, "training": facts}
    write_result(out, found, described | {"steps": options.steps}, _PACKAGES, {})


if __name__ == "__main__":
    main()
