"""Causal attention: a token sees neither later tokens nor other texts, with every kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from domainbert.encoders import layers
from domainbert.encoders.families import config_class, family_names
from domainbert.encoders.layers import segment_boundaries
from domainbert.encoders.packed import Packed
from tests.encoders.conftest import REFERENCES, VOCAB_SIZE
from tests.encoders.test_attention import by_the_definition

SEGMENTS = torch.tensor([[1] * 9 + [2] * 14 + [3] + [0] * 4, [1] * 28])
FIRST, LAST = 9, 23  # the second text of the first row
CAUSAL_FAMILIES = [name for name in family_names() if config_class(name).supports_causal]
DECODERS = {"bert": "BertLMHeadModel", "roberta": "RobertaForCausalLM"}


def make_rows(seed: int = 0) -> Packed:
    """Return two rows: texts of 9, 14 and 1 tokens with padding, and a text of 28 tokens."""
    ids = torch.randint(5, VOCAB_SIZE, SEGMENTS.shape, generator=torch.Generator().manual_seed(seed))
    positions = torch.cat([torch.arange(size) for size in (9, 14, 1, 4, 28)]).view(2, 28)
    return Packed(ids.masked_fill(SEGMENTS == 0, 0), positions, SEGMENTS)


def causal_model(family: str, theirs: Any = None) -> Any:
    reference = REFERENCES[family]("gelu")
    model = reference.ours("masked_lm", theirs or reference.theirs("masked_lm"))
    model.encoder.causal = True
    return model


def logits(model: Any, tokens: Packed) -> torch.Tensor:
    flat: torch.Tensor = model(tokens, torch.arange(tokens.input_ids.numel()))
    return flat.unflatten(0, tokens.input_ids.shape)


def test_families_with_causal_attention() -> None:
    assert set(CAUSAL_FAMILIES) == {"bert", "roberta", "xlm-roberta", "modernbert"}


@pytest.mark.parametrize("kernel", ["prediction", "explicit", "fused", "flash"])
@pytest.mark.parametrize("family", CAUSAL_FAMILIES)
def test_logits_do_not_depend_on_later_tokens_or_other_texts(
    family: str, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every token from `place` on and all other texts change: the logits before `place` stay equal."""
    monkeypatch.setattr(layers, "_EXPLICIT_LENGTH", {4: 0 if kernel == "fused" else 256})
    model, tokens, others = causal_model(family), make_rows(), make_rows(seed=1).input_ids
    if kernel == "flash":
        monkeypatch.setattr(layers, "_has_flash", lambda device: True)
        monkeypatch.setattr(layers, "flash_attention", by_the_definition)
        tokens = tokens._replace(boundaries=segment_boundaries(SEGMENTS))
    with torch.set_grad_enabled(kernel in ("explicit", "fused")):
        expected = logits(model, tokens)[0].detach()
        for place in range(FIRST + 1, LAST):
            changed = others.clone()
            changed[0, FIRST:place] = tokens.input_ids[0, FIRST:place]
            found = logits(model, tokens._replace(input_ids=changed))[0].detach()
            torch.testing.assert_close(found[FIRST:place], expected[FIRST:place], atol=2e-6, rtol=0)
            assert float((found[place] - expected[place]).abs().max()) > 1e-3
        model.encoder.causal = False
        bidirectional = logits(model, tokens)[0].detach()
    assert float((bidirectional - expected)[FIRST : LAST - 1].abs().amax(dim=-1).min()) > 1e-3
    torch.testing.assert_close(bidirectional[LAST], expected[LAST], atol=1e-5, rtol=0)  # a text of one token


@pytest.mark.parametrize("family", DECODERS)
def test_logits_equal_the_decoder_of_transformers(family: str) -> None:
    reference = REFERENCES[family]("gelu")
    theirs = reference.theirs("masked_lm")
    decoder = getattr(transformers, DECODERS[family])(reference.config_with(is_decoder=True)).eval()
    loaded = decoder.load_state_dict(theirs.state_dict(), strict=False)
    assert not loaded.missing_keys and not loaded.unexpected_keys
    ids = torch.randint(5, VOCAB_SIZE, (2, 30), generator=torch.Generator().manual_seed(2))
    tokens = Packed(ids, torch.arange(30).expand(2, 30), torch.ones_like(ids))
    with torch.inference_mode():
        expected = decoder(ids).logits
        torch.testing.assert_close(logits(causal_model(family, theirs), tokens), expected, atol=2e-5, rtol=1e-5)
        assert not torch.allclose(expected, theirs(ids).logits, atol=0.1)
