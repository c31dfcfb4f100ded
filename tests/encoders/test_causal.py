"""Causal attention in every family: no token sees those behind it, or of another text."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from domainbert.encoders import attention
from domainbert.encoders.attention import segment_boundaries
from domainbert.encoders.deberta_v2.config import DebertaV2Config
from domainbert.encoders.families import config_class, family_names
from domainbert.encoders.packed import Packed
from tests.encoders.conftest import REFERENCES, VOCAB_SIZE
from tests.encoders.test_attention import by_the_definition

SEGMENTS = torch.tensor([[1] * 9 + [2] * 14 + [3] + [0] * 4, [1] * 28])
FIRST, LAST = 9, 23  # of the second text, which is changed
DECODERS = {
    "bert": "BertLMHeadModel",
    "electra": "ElectraForCausalLM",
    "roberta": "RobertaForCausalLM",
    "xlm-roberta": "XLMRobertaForCausalLM",
}


def rows(seed: int = 0) -> Packed:
    """Two rows of several texts of different lengths, one with padding."""
    ids = torch.randint(5, VOCAB_SIZE, SEGMENTS.shape, generator=torch.Generator().manual_seed(seed))
    places = torch.cat([torch.arange(n) for n in (9, 14, 1, 4, 28)]).view(2, 28)
    return Packed(ids.masked_fill(SEGMENTS == 0, 0), places, SEGMENTS, causal=True)


def logits(model: Any, tokens: Packed) -> torch.Tensor:
    found: torch.Tensor = model(tokens, torch.arange(tokens.input_ids.numel())).unflatten(0, tokens.input_ids.shape)
    return found


@pytest.fixture(params=["masks", "spelt out", "fused", "text by text"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way to compute attention; the mask of the first is that of prediction."""
    monkeypatch.setattr(attention, "_EXPLICIT_LENGTH", {4: 0 if request.param == "fused" else 256, 8: 256})
    if request.param == "text by text":
        monkeypatch.setattr(attention, "_has_flash", lambda device: True)
        monkeypatch.setattr(attention, "flash_attention", by_the_definition)
    name: str = request.param
    return name


def test_logits_do_not_depend_on_what_comes_later_or_stands_in_other_texts(reference: Any, kernel: str) -> None:
    """From each token of a text on all is changed, and so are the other texts: the logits before it stay."""
    model, tokens = reference.ours("masked_lm", reference.theirs("masked_lm")), rows()
    others = rows(seed=1).input_ids
    if kernel == "text by text":
        tokens = tokens._replace(boundaries=segment_boundaries(SEGMENTS))
    with torch.set_grad_enabled(kernel in ("spelt out", "fused")):
        wanted = logits(model, tokens)[0].detach()
        for place in range(FIRST + 1, LAST):
            changed = others.clone()  # all that is no earlier token of the text
            changed[0, FIRST:place] = tokens.input_ids[0, FIRST:place]
            found = logits(model, tokens._replace(input_ids=changed))[0].detach()
            torch.testing.assert_close(found[FIRST:place], wanted[FIRST:place], atol=1e-6, rtol=0)
            assert float((found[place] - wanted[place]).abs().max()) > 1e-3
        both_ways = logits(model, tokens._replace(causal=False))[0].detach()
    assert float((both_ways - wanted)[FIRST : LAST - 1].abs().amax(dim=-1).min()) > 1e-3
    assert torch.allclose(both_ways[LAST], wanted[LAST], atol=1e-5), "a text of one token"


def test_packed_is_as_alone(reference: Any) -> None:
    model, tokens = reference.ours("masked_lm", reference.theirs("masked_lm")), rows()
    with torch.inference_mode():
        packed = logits(model, tokens)
        for row, number in ((0, 1), (0, 2), (0, 3), (1, 1)):
            own = SEGMENTS[row] == number
            alone = Packed(tokens.input_ids[row, own][None], tokens.position_ids[row, own][None], own[own][None].long())
            found = logits(model, alone._replace(causal=True))[0]
            torch.testing.assert_close(packed[row, own], found, atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", DECODERS)
def test_logits_are_those_of_the_decoder_of_transformers(family: str) -> None:
    """The same weights, opened as the class with a causal mask."""
    reference = REFERENCES[family]("gelu")
    theirs = reference.theirs("masked_lm")
    decoder = getattr(transformers, DECODERS[family])(reference.config_with(is_decoder=True)).eval()
    said = decoder.load_state_dict(theirs.state_dict(), strict=False)
    assert not said.missing_keys and not said.unexpected_keys
    ids = torch.randint(5, VOCAB_SIZE, (2, 30), generator=torch.Generator().manual_seed(2))
    tokens = Packed(ids, torch.arange(30).expand(2, 30), torch.ones_like(ids), causal=True)
    with torch.inference_mode():
        found, wanted = logits(reference.ours("masked_lm", theirs), tokens), decoder(ids).logits
        torch.testing.assert_close(found, wanted, atol=2e-5, rtol=1e-5)
        assert not torch.allclose(wanted, theirs(ids).logits, atol=0.1)


def test_which_families_can_be_causal() -> None:
    """All but those with a convolution, which does see what comes behind."""
    assert all(config_class(name)().can_be_causal for name in family_names())
    relative = {"relative_attention": True, "pos_att_type": "c2p|p2c"}
    assert not DebertaV2Config(**relative, conv_kernel_size=3).can_be_causal
