"""RoBERTa through every stage that trains, on the golden recipe with another encoder, and on to transformers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers

from domainbert.cli import main
from domainbert.encoders.packed import Packed
from domainbert.models.folder import load_model, open_model
from tests.golden.write import HERE

AUTO = {
    "masked_lm": transformers.AutoModelForMaskedLM,
    "tokens": transformers.AutoModelForTokenClassification,
    "crf": transformers.AutoModelForTokenClassification,
    "sequence": transformers.AutoModelForSequenceClassification,
}
EXPORTS = """\
  export-ner: {stage: export, model: "@ner-crf", check: "${data}/ner-test.conll"}
  export-classes: {stage: export, model: "@classes", check: "${data}/classes-test.jsonl"}
"""
MODELS = {
    "pretrain": ("roberta", "masked_lm"),
    "pretrain-further": ("roberta", "masked_lm"),
    "distill": ("roberta", "masked_lm"),
    "distill-narrow": ("distilbert", "masked_lm"),
    "ner-linear": ("roberta", "tokens"),
    "ner-crf": ("roberta", "crf"),
    "ner-student": ("roberta", "tokens"),
    "classes": ("roberta", "sequence"),
    "classes-student": ("distilbert", "sequence"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "max_length"), [("WordPiece", 49), ("ByteBPE", 48), ("Unigram", 49), ("xlm-roberta", 48)]
)
def test_every_stage(tmp_path: Path, kind: str, max_length: int) -> None:
    """Of 50 positions 49 are of use where padding has id 0, and 48 where it has id 1."""
    recipe = (HERE / "recipe.yaml").read_text(encoding="utf-8")
    recipe = recipe.replace("class_path: BertConfig", "class_path: RobertaConfig")
    recipe = recipe.replace("        max_position_embeddings: 48\n", "        max_position_embeddings: 50\n")
    size = (
        384 if kind in ("WordPiece", "ByteBPE") else 192
    )  # the corpus has 117 words, and Unigram no merges on the way
    recipe = recipe.replace("    vocab_size: 384\n", f"    vocab_size: {size}\n    kind: {kind}\n")
    recipe = recipe if kind != "ByteBPE" else recipe.replace("    min_character_count: 2\n", "")
    (tmp_path / "recipe.yaml").write_text(recipe + EXPORTS, encoding="utf-8")
    words = [
        "--out",
        str(tmp_path / "runs"),
        "--vars.data",
        str(HERE / "data"),
        "--vars.cache",
        str(tmp_path / "cache"),
    ]
    words += ["--vars.cache", str(tmp_path / "cache")]
    assert main(["run", str(tmp_path / "recipe.yaml"), *words]) == 0
    lines = (HERE / "data" / "texts.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [text for text in (json.loads(line)["text"] for line in lines) if "[" not in text]  # no special tokens
    for name, (family, head) in MODELS.items():
        folder = open_model(tmp_path / "runs" / name)
        assert (folder.config.model_type, folder.head) == (family, head)
        assert family != "roberta" or folder.config.max_length == max_length
        _agrees_with_transformers(folder.path, head, texts)
    for name in ("export-ner", "export-classes"):
        assert (tmp_path / "runs" / name / "model.onnx").is_file()


def _agrees_with_transformers(path: Path, head: str, texts: list[str]) -> None:
    theirs, info = AUTO[head].from_pretrained(path, output_loading_info=True)
    assert {name for found in info.values() for name in found} <= {"crf.transitions", "crf.start", "crf.end"}
    ours, folder, _ = load_model(path, head)
    own, tokenizer = folder.tokenizer(), transformers.AutoTokenizer.from_pretrained(path)
    for text in texts:
        ids = tokenizer(text)["input_ids"]
        assert ids == [own.cls_id, *own.encode([text])[0], own.sep_id]
        ids = torch.tensor([ids[: folder.config.max_length]])
        read = torch.arange(1 if head == "sequence" else ids.shape[1])
        with torch.inference_mode():
            wanted = theirs.eval()(ids).logits.flatten(0, -2)
            found = ours.eval()(Packed(ids, torch.arange(ids.shape[1])[None], torch.ones_like(ids)), read)
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
