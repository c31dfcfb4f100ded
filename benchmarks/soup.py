"""The mean of the weights of several seeds ("model soup", Wortsman et al. 2022): is it better than each of them?

    python benchmarks/soup.py OUT VALIDATION SEED SEED ...

OUT is the folder of the mean, and VALIDATION the labelled file of a tagger by which it is judged; SEED are folders of
the same model and labels, such as `seed-1` of a `finetune` stage. The F1 of each seed is in its
folder; the F1 of the mean is printed. docs/results-appendix.md has the scores.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import load_file, save_file

from domainbert.labelled.formats import NerFormat
from domainbert.metrics.summary import Resampling
from domainbert.serving.predictor import load_predictor
from domainbert.stages.evaluate import read_test_set
from domainbert.tasks.ner.config import Ner

_WEIGHTS = "model.safetensors"


def write_mean(out: Path, members: Sequence[Path]) -> None:
    """Write the first member's folder with the mean of the weights of all."""
    shutil.copytree(members[0], out, ignore=shutil.ignore_patterns("logs", "training.json", _WEIGHTS))
    weights = [load_file(member / _WEIGHTS) for member in members]
    mean = {name: torch.stack([one[name] for one in weights]).mean(dim=0) for name in weights[0]}
    save_file(mean, out / _WEIGHTS, metadata={"format": "pt"})


def main() -> None:
    """Average and score."""
    parser = argparse.ArgumentParser(description="The mean of the weights of several seeds")
    parser.add_argument("out", type=Path)
    parser.add_argument("validation", type=Path)
    parser.add_argument("members", type=Path, nargs="+")
    options = parser.parse_args()
    write_mean(options.out, options.members)
    scoring = read_test_set(Ner(head="linear", format=NerFormat(repair=True)), options.validation, None)
    with TemporaryDirectory() as folder:
        scoring.add_model("mean", "model", load_predictor(options.out, precision="auto"), Path(folder) / "mean.conll")
    found = scoring.summary(Resampling(100, 0))["systems"]["mean"]
    print("mean: " + ", ".join(f"{name} {100 * found[name]:.2f}" for name in ("f1", "precision", "recall")))


if __name__ == "__main__":
    main()
