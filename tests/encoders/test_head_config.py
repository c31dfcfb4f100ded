"""The configuration of a head: what a folder keeps, and how a text is pooled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from domainbert.encoders.families import build_model
from domainbert.encoders.head_config import HeadConfig
from domainbert.encoders.heads import pool_texts
from domainbert.labelled.items import Labelled
from domainbert.models.folder import open_model
from domainbert.models.loading import load_model
from domainbert.models.saving import save_model
from domainbert.tasks.classification.config import Classification
from domainbert.tasks.classification.files import LabelledText
from domainbert.tasks.task import task_from_training_set
from tests.encoders.test_hugging_face import batch, make_tokenizer
from tests.refusals import refused

SEGMENTS = torch.tensor([[1, 1, 1, 2, 2, 0], [1, 1, 2, 2, 2, 2]])
STARTS = torch.tensor([8, 0, 3])


def test_a_text_is_pooled_over_its_own_tokens() -> None:
    hidden = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    texts = [hidden[1, 2:], hidden[0, :3], hidden[0, 3:5]]
    assert torch.equal(pool_texts("cls", hidden, SEGMENTS, STARTS), torch.stack([text[0] for text in texts]))
    assert torch.equal(pool_texts("max", hidden, SEGMENTS, STARTS), torch.stack([text.amax(dim=0) for text in texts]))
    means = torch.stack([text.mean(dim=0) for text in texts])
    torch.testing.assert_close(pool_texts("mean", hidden, SEGMENTS, STARTS), means)
    pool_texts("max", hidden, SEGMENTS, STARTS).sum().backward()
    assert hidden.grad is not None and hidden.grad.sum() == 12 and not hidden.grad[0, 5].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_mean_has_all_digits_under_autocast(dtype: torch.dtype) -> None:
    """Also of 4,096 tokens, whose sum is above the largest number of fp16."""
    hidden = 20 + torch.randn(1, 4096, 4, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", dtype):
        found = pool_texts("mean", hidden, torch.ones(1, 4096, dtype=torch.int64), torch.tensor([0]))
    torch.testing.assert_close(found, hidden.mean(dim=1), atol=1e-3, rtol=0)


def test_a_folder_keeps_the_pooling_of_its_head(reference: Any, tmp_path: Path) -> None:
    if "sequence" not in reference.classes:
        pytest.skip("the family has no sequence head")
    head = HeadConfig("sequence", pooling="max")
    model = build_model(reference.config, reference.vocabulary, head, 2).eval()
    save_model(tmp_path, model, reference.config, make_tokenizer(reference), "sequence", "card", ["x", "y"])
    fields = json.loads((tmp_path / "config.json").read_text())
    assert fields["domainbert_pooling"] == "max" and open_model(tmp_path).head_config == head
    (again, _, made), first = load_model(tmp_path, "sequence"), torch.tensor([0])
    assert made == [] and load_model(tmp_path, head)[2] == []
    assert load_model(tmp_path, HeadConfig("sequence"))[0].head_config == head
    assert load_model(tmp_path, HeadConfig("sequence", pooling="mean"))[2], "another head is initialised"
    with torch.inference_mode():
        hidden = model.encoder(batch())
        wanted = model.logits(hidden[0].amax(dim=0, keepdim=True))
        torch.testing.assert_close(again.eval()(batch(), first), wanted, atol=1e-6, rtol=0)
    (tmp_path / "config.json").write_text(json.dumps({**fields, "domainbert_pooling": "sum"}))
    with refused(where="domainbert_pooling", found="'sum'"):
        open_model(tmp_path)


def test_a_task_asks_for_the_pooling_of_its_settings() -> None:
    texts = [LabelledText("a", label="x", line=1), LabelledText("b", label="y", line=2)]
    train = Labelled(Path("train.jsonl"), texts, "jsonl")
    for pooling in (None, "mean"):
        task = task_from_training_set(Classification(pooling=pooling), train)
        assert task.head_config == HeadConfig("sequence", pooling=pooling)
    assert HeadConfig("sequence").to_json() == {} == HeadConfig("tokens").to_json()
