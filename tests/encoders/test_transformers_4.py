"""Folders of every family and head in the last transformers 4, run in a process with other packages.

`DOMAINBERT_TRANSFORMERS_4` names the folder that this makes:

    pip install --no-deps --target FOLDER transformers==4.57.6 tokenizers==0.22.2 "huggingface_hub<1" \
        requests urllib3 idna certifi charset_normalizer regex
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from domainbert.encoders.packed import Packed
from domainbert.models.saving import save_model
from tests.encoders.test_hugging_face import LABELS, make_tokenizer

AUTO = {
    "masked_lm": "AutoModelForMaskedLM",
    "tokens": "AutoModelForTokenClassification",
    "sequence": "AutoModelForSequenceClassification",
}
TEXT = "abc, ab! cab bac bca a b c"
PROGRAM = """
import json, sys, torch, transformers
assert transformers.__version__.startswith("4."), transformers.__version__
found = {}
for head, name in json.loads(sys.argv[2]).items():
    path = f"{sys.argv[1]}/{head}"
    model, info = getattr(transformers, name).from_pretrained(path, output_loading_info=True)
    ids = transformers.AutoTokenizer.from_pretrained(path)(sys.argv[3])["input_ids"]
    with torch.inference_mode():
        logits = model.eval()(torch.tensor([ids])).logits.flatten(0, -2)
    problems = {key: list(value) for key, value in info.items() if value}
    found[head] = {"problems": problems, "ids": ids, "logits": logits.tolist()}
print(json.dumps(found))
"""


@pytest.mark.slow
def test_folders_mean_the_same(reference, tmp_path: Path) -> None:
    """The same ids and logits, with no tensor missing and none left over."""
    packages = os.environ.get("DOMAINBERT_TRANSFORMERS_4")
    if not packages:
        pytest.skip("DOMAINBERT_TRANSFORMERS_4 is not set; it names a folder with transformers 4")
    tokenizer, models = make_tokenizer(reference), {}
    for head in AUTO:
        models[head] = reference.ours(head, reference.theirs(head))
        labels = () if head == "masked_lm" else LABELS
        save_model(tmp_path / head, models[head], reference.config, tokenizer, head, "card", labels)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), json.dumps(AUTO), TEXT],
        env={**os.environ, "PYTHONPATH": packages},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ids = torch.from_numpy(tokenizer.template.frame(tokenizer.encode([TEXT])[0])[0])
    tokens = Packed(ids[None], torch.arange(len(ids))[None], torch.ones_like(ids)[None])
    for head, found in json.loads(done.stdout.splitlines()[-1]).items():
        assert found["problems"] == {} and found["ids"] == ids.tolist()
        read = torch.arange(1 if head == "sequence" else len(ids))
        with torch.inference_mode():
            ours = models[head](tokens, read)
        torch.testing.assert_close(ours, torch.tensor(found["logits"]), atol=1e-5, rtol=0)
