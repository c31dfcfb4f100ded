"""Attention of every family against `transformers` on the same folder."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from domainbert.base.errors import DomainbertError
from domainbert.models.saving import save_model
from domainbert.serving.attention_maps import attention_maps
from domainbert.serving.predictor import load_predictor
from tests.encoders.conftest import REFERENCES, Reference
from tests.encoders.test_hugging_face import LABELS, make_tokenizer
from tests.refusals import refused

TEXT = "a café 中 [SEP] x y z <b>, bc\u00ad naïve"  # 15 pieces, of which some are unknown; "[SEP]" is text


def folder_of(path: Path, reference: Reference, head: str = "masked_lm", **facts: str) -> Path:
    """A model folder with the weights of a random model of transformers."""
    model, labels = reference.ours(head, reference.theirs(head)), [] if head == "masked_lm" else LABELS
    save_model(path, model, reference.config, make_tokenizer(reference), head, "card", labels, facts=facts)
    return path


@pytest.mark.parametrize("family", REFERENCES)
def test_maps_are_those_of_transformers(family, tmp_path, one_thread):
    """Relative terms, windows and shared layers included."""
    reference = REFERENCES[family]("gelu")
    found = attention_maps(folder_of(tmp_path, reference), TEXT)
    ids = torch.tensor([[make_tokenizer(reference).backend.token_to_id(piece) for piece in found.pieces]])
    theirs = transformers.AutoModel.from_pretrained(tmp_path, attn_implementation="eager").eval()
    with torch.inference_mode():
        wanted = np.concatenate(theirs(ids, output_attentions=True).attentions)
    assert found.pieces[0] == "[CLS]" and found.pieces[-1] == "[SEP]" and len(found.pieces) == 17
    assert found.probabilities.shape == wanted.shape == (3, 3, 17, 17)
    assert found.probabilities.std() > 0.01, "far from uniform"
    np.testing.assert_allclose(found.probabilities, wanted, atol=1e-5, rtol=0)
    assert found.windows == ((None, 4, None) if family == "modernbert" else (None,) * 3)
    far = np.abs(np.subtract.outer(range(17), range(17))) > 4
    assert (found.probabilities[1, :, far].max() == 0) == (family == "modernbert")


def test_a_predictor_gives_the_same_maps_as_its_folder(tmp_path, one_thread):
    facts = {"domainbert_task": "classification"}
    folder = folder_of(tmp_path, REFERENCES["bert"]("gelu"), "sequence", **facts)
    maps = [attention_maps(one, TEXT).probabilities for one in (folder, str(folder), load_predictor(folder, "32-true"))]
    assert all(np.array_equal(one, maps[0]) for one in maps)
    with pytest.raises(
        DomainbertError, match=re.escape("loaded with 16 bits; attention maps need load_predictor(MODEL_FOLDER")
    ):
        attention_maps(load_predictor(folder, precision="bf16-mixed"), TEXT)


def test_a_text_may_be_as_long_as_it_is_told(tmp_path, one_thread):
    folder = folder_of(tmp_path, REFERENCES["roberta"]("gelu"))
    assert attention_maps(folder, "", longest=2).probabilities.shape == (3, 3, 2, 2)
    with refused(problem="attention maps: the text has 17 tokens", expected="at most 16"):
        attention_maps(folder, TEXT, longest=16)
    with refused(problem="...the text has 1,002 tokens", expected="at most 40"):
        attention_maps(folder, "a " * 1_000)
