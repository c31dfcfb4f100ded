"""Families through every stage that trains, on the golden recipe with another encoder, and on to transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from domainbert.cli import main
from domainbert.encoders.packed import Packed
from domainbert.models.folder import open_model
from domainbert.models.loading import load_model
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
HEADS = {
    "pretrain": "masked_lm",
    "pretrain-further": "masked_lm",
    "distill": "masked_lm",
    "distill-narrow": "masked_lm",
    "ner-linear": "tokens",
    "ner-crf": "crf",
    "ner-student": "tokens",
    "classes": "sequence",
    "classes-student": "sequence",
}
VERSION_3 = {
    "relative_attention": True,
    "pos_att_type": "c2p|p2c",
    "position_buckets": 8,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "position_biased_input": False,
}
DISTILBERT = ("distill-narrow", "classes-student")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("class_name", "kind", "max_length", "more"),
    [
        ("RobertaConfig", "WordPiece", 49, {}),
        ("RobertaConfig", "ByteBPE", 48, {}),
        ("RobertaConfig", "Unigram", 49, {}),
        ("RobertaConfig", "xlm-roberta", 48, {}),
        ("ModernBertConfig", "ByteBPE", 50, {}),
        ("MPNetConfig", "xlm-roberta", 48, {}),
        ("AlbertConfig", "albert", 50, {"embedding_size": 16, "num_hidden_groups": 3}),
        ("ElectraConfig", "WordPiece", 50, {"embedding_size": 16}),
        ("DebertaV2Config", "deberta-v2", 50, VERSION_3),
    ],
)
def test_every_stage(tmp_path: Path, class_name: str, kind: str, max_length: int, more: dict[str, Any]) -> None:
    """Of 50 positions RoBERTa has 49 for tokens where padding has id 0, and 48 where it has id 1."""
    recipe = (HERE / "recipe.yaml").read_text(encoding="utf-8")
    recipe = recipe.replace("class_path: BertConfig", f"class_path: {class_name}")
    fields = {"max_position_embeddings": 50, **more}
    added = "".join(f"        {name}: {json.dumps(value)}\n" for name, value in fields.items())
    recipe = recipe.replace("        max_position_embeddings: 48\n", added)
    size = 384 if kind in ("WordPiece", "ByteBPE") else 192  # of 117 words Unigram makes no more pieces
    recipe = recipe.replace("    vocab_size: 384\n", f"    vocab_size: {size}\n    kind: {kind}\n")
    recipe = recipe if kind != "ByteBPE" else recipe.replace("    min_character_count: 2\n", "")
    (tmp_path / "recipe.yaml").write_text(recipe + EXPORTS, encoding="utf-8")
    words = ["--out", str(tmp_path / "runs"), "--vars.data", str(HERE / "data")]
    words += ["--vars.cache", str(tmp_path / "cache")]
    assert main(["run", str(tmp_path / "recipe.yaml"), *words]) == 0
    lines = (HERE / "data" / "texts.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [text for text in (json.loads(line)["text"] for line in lines) if "[" not in text]  # no special tokens
    for name, head in HEADS.items():
        folder = open_model(tmp_path / "runs" / name)
        assert (type(folder.config).__name__, folder.head) == (
            "DistilBertConfig" if name in DISTILBERT else class_name,
            head,
        )
        assert name in DISTILBERT or folder.config.max_length == max_length
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
