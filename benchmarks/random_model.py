"""A model folder with random weights and the benchmarks' vocabulary, where no published weights can be had.

python benchmarks/random_model.py OUT [--encoder base]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from prepared_corpus import prepared_corpus
from pretraining import named_encoder

from domainbert.data.prepared import open_prepared
from domainbert.models.saving import save_model
from domainbert.pretraining.objective import InitialModels
from domainbert.tokenization.load import load_tokenizer


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description="A model folder with random weights")
    parser.add_argument("out", type=Path)
    parser.add_argument("--encoder", default="base", help="name of an encoder, as in a YAML")
    options = parser.parse_args()
    _, prepared = prepared_corpus()
    tokenizer, config = load_tokenizer(open_prepared([prepared]).tokenizer_folder), named_encoder(options.encoder)
    torch.manual_seed(0)
    model = InitialModels(tokenizer, config, None).model("masked_lm")
    save_model(options.out, model, config, tokenizer, "masked_lm", "Random weights.\n")


if __name__ == "__main__":
    main()
