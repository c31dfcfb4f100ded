"""What MPNet does otherwise than BERT: attention that is biased by distance, and a padding with a fixed id."""

from __future__ import annotations

import pytest
import torch
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.families import family, name_map
from domainbert.encoders.mpnet.config import MPNetConfig
from domainbert.encoders.mpnet.model import relative_buckets
from domainbert.encoders.names import to_hugging_face
from domainbert.encoders.packed import Packed
from tests.encoders.conftest import BERT_SIZES, reference_of
from tests.refusals import refused

CONFIG = MPNetConfig(24, 2, 3, 40, max_position_embeddings=20)
LONG = 150


@pytest.fixture
def both():
    """Ours and theirs, for texts of 150 tokens: longer than any distance that has a separate bucket."""
    return reference_of("MPNet", "mpnet", BERT_SIZES | {"max_position_embeddings": LONG + 2})


def test_buckets_are_those_of_transformers():
    ahead = torch.arange(-2_000, 2_001)
    own = family(CONFIG).encoder(CONFIG, VocabularyFacts(40, 1))
    assert torch.equal(relative_buckets(ahead, own.first_of_bucket), MPNetEncoder.relative_position_bucket(ahead))


def test_long_texts_packed_and_alone(both):
    """Logits and gradients of two texts in one row: the bias is by the distance within a text."""
    theirs = both.theirs("masked_lm")
    with torch.no_grad():
        theirs.mpnet.encoder.relative_attention_bias.weight.mul_(5)
    model = both.ours("masked_lm", theirs)
    ids = torch.randint(5, 101, (1, 2 * LONG), generator=torch.Generator().manual_seed(0))
    places = torch.arange(LONG).repeat(2)[None]
    found = model(Packed(ids, places, 1 + torch.arange(2).repeat_interleave(LONG)[None]), torch.arange(2 * LONG))
    wanted = theirs(ids.view(2, LONG)).logits.flatten(0, 1)
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=0)
    weights = torch.linspace(-1, 1, 101)
    (found * weights).mean().backward()
    (wanted * weights).mean().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    flat = to_hugging_face(gradients, name_map(both.config, "masked_lm"))
    for name, parameter in theirs.named_parameters():
        torch.testing.assert_close(flat[name], parameter.grad, atol=2e-5, rtol=1e-3, msg=name)
    used = model.encoder.relative_bias.weight.grad.any(dim=1)
    assert (~used).nonzero().flatten().tolist() == [16], "nothing is ahead by 0 tokens"


def test_the_bias_is_made_once_for_all_layers():
    encoder = family(CONFIG).encoder(CONFIG, VocabularyFacts(40, 1))
    made = []
    encoder.relative_bias.register_forward_hook(lambda *_: made.append(1))
    ids = torch.full((2, 9), 7)
    encoder(Packed(ids, torch.arange(9).expand(2, 9), torch.ones_like(ids)))
    assert len(made) == 1 and encoder.num_hidden_layers == 2


@pytest.mark.parametrize(
    ("make", "where", "problem", "expected"),
    [
        (
            lambda: family(CONFIG).encoder(CONFIG, VocabularyFacts(40, 0)),
            "...",
            "the tokenizer's padding has id 0",
            "1, which mpnet needs in ... trained with kind: roberta or...",
        ),
        (lambda: family(CONFIG).with_pad_id({}, CONFIG, 3), "...", "the tokenizer's padding has id 3", "..."),
        (lambda: MPNetConfig.from_json({"pad_token_id": 0}), "pad_token_id", "found 0", "only 1 is supported..."),
        (lambda: MPNetConfig.from_json({"pad_token_id": None}), "pad_token_id", "found None", "only 1 is supported..."),
        (
            lambda: MPNetConfig.from_json({"relative_attention_num_buckets": 64}),
            "relative_attention_num_buckets",
            "found 64",
            "only 32 is supported...",
        ),
        (lambda: MPNetConfig(max_position_embeddings=4), "max_position_embeddings", "found 4", "5 or more..."),
    ],
)
def test_what_transformers_would_compute_otherwise_is_refused(make, where, problem, expected):
    with refused(where=where, problem=problem, expected=expected):
        make()
