"""Every family against `transformers`, on random models in fp32."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from domainbert.data.packing import fill_rows
from domainbert.encoders.families import config_class, family_names, name_map
from domainbert.encoders.layers import ACTIVATIONS
from domainbert.encoders.names import to_hugging_face
from domainbert.encoders.packed import Packed
from domainbert.serving.onnx.graph import PlainModel
from domainbert.tokenization.special_tokens import bert_template
from tests.encoders.conftest import REFERENCES, logits_of, parameters_of

TOLERANCE = {"atol": 1e-5, "rtol": 0}


def padded_batch() -> Packed:
    """Four rows of 23 places, with texts of 23, 9, 1 and 16 tokens."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 101, (4, 23), generator=generator)
    segments = (torch.arange(23) < torch.tensor([23, 9, 1, 16])[:, None]).long()
    return Packed(ids * segments, torch.arange(23).expand(4, 23), segments)


def test_all_families_have_a_reference(request):
    ours = [name for name in family_names() if config_class(name).__module__.startswith("domainbert.")]
    assert ours == sorted(REFERENCES)  # another test may have imported a user's family


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_all_hidden_states_with_padding(make_reference, activation):
    reference = make_reference(activation)
    theirs = reference.theirs("masked_lm")
    tokens = padded_batch()
    ids, segments = tokens.input_ids, tokens.segment_ids
    encoder = reference.ours("masked_lm", theirs).encoder
    with torch.inference_mode():
        wanted = theirs(ids, attention_mask=segments, output_hidden_states=True).hidden_states
        found = encoder.hidden_states(tokens)
        last = encoder(tokens)
    assert len(wanted) == len(found) == encoder.num_hidden_layers + 1 == 4
    for one, other in zip(wanted, found, strict=True):
        torch.testing.assert_close(one[segments > 0], other[segments > 0], **TOLERANCE)
        assert other[segments > 0].std() > 0.5
    assert torch.equal(last, found[-1])


@pytest.mark.parametrize(
    ("head", "activation"), [*(("masked_lm", name) for name in sorted(ACTIVATIONS)), ("sequence", "relu")]
)
def test_logits_with_padding(make_reference, head, activation):
    """Logits of the heads with an activation; `test_gradients` compares all heads."""
    reference = make_reference(activation)
    theirs = reference.theirs(head)
    tokens = padded_batch()
    ids, segments = tokens.input_ids, tokens.segment_ids
    first = torch.arange(4) * 23
    read = first if head == "sequence" else segments.flatten().nonzero().flatten()
    with torch.inference_mode():
        wanted = logits_of(theirs(ids, attention_mask=segments))
        found = reference.ours(head, theirs)(tokens, read)
    wanted = wanted if head == "sequence" else wanted.flatten(0, 1)[read]
    torch.testing.assert_close(found, wanted, **TOLERANCE)
    assert found.std() > 0.1


@pytest.mark.parametrize("head", ["masked_lm", "tokens", "sequence", "span"])
def test_gradients(reference, head):
    """Gradients of all parameters by name, in double precision, so that no difference is hidden."""
    theirs = reference.theirs(head).double()
    tokens = padded_batch()
    ids, segments = tokens.input_ids, tokens.segment_ids
    model = reference.ours(head, theirs).double()
    model.load_state_dict(from_double(theirs, reference, head))
    read = torch.arange(4) * 23 if head == "sequence" else segments.flatten().nonzero().flatten()
    wanted = logits_of(theirs(ids, attention_mask=segments))
    wanted = wanted if head == "sequence" else wanted.flatten(0, 1)[read]
    found = model(tokens, read)
    torch.testing.assert_close(found, wanted, atol=reference.double, rtol=0)
    weights = torch.linspace(-1, 1, found.shape[1], dtype=torch.float64)
    (found * weights).sum().backward()
    (wanted * weights).sum().backward()
    their_gradients = {name: one.grad for name, one in parameters_of(theirs).items() if one.grad is not None}
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    flat = to_hugging_face(gradients, name_map(reference.config, head))
    assert flat.keys() == their_gradients.keys()
    tolerance = 10 * reference.double
    for name, gradient in flat.items():
        torch.testing.assert_close(gradient, their_gradients[name], atol=tolerance, rtol=tolerance, msg=name)


def from_double(theirs, reference, head):
    """The weights without the detour through fp32."""
    state = theirs.state_dict()
    return {
        ours: torch.cat([state[name] for name in names]) for ours, names in name_map(reference.config, head).items()
    }


@pytest.mark.parametrize("head", ["masked_lm", "tokens", "sequence", "span"])
def test_the_model_that_is_exported(reference, head):
    """It reads padded rows, all of their positions."""
    theirs, tokens = reference.theirs(head), padded_batch()
    real = tokens.segment_ids > 0
    with torch.inference_mode():
        wanted = logits_of(theirs(tokens.input_ids, attention_mask=tokens.segment_ids))
        found = PlainModel(reference.ours(head, theirs))(tokens.input_ids, tokens.segment_ids)
    assert found.shape == wanted.shape
    chosen = slice(None) if head == "sequence" else real
    torch.testing.assert_close(found[chosen], wanted[chosen], **TOLERANCE)


def test_a_packed_row_is_its_texts_alone(reference):
    theirs = reference.theirs("masked_lm")
    encoder = reference.ours("masked_lm", theirs).encoder
    generator = np.random.default_rng(0)
    texts = [[generator.integers(5, 101, size) for size in sizes] for sizes in ([10, 1, 8, 0], [30], [3, 3, 3])]
    packed = fill_rows(texts, 36, bert_template(2, 3), 0)
    with torch.inference_mode():
        rows = map(torch.from_numpy, (packed.input_ids, packed.position_ids, packed.segment_ids))
        together = encoder.hidden_states(Packed(*rows))
        starts = iter(packed.first_positions.tolist())
        for text in (text for row in texts for text in row):
            ids = torch.tensor([[2, *text.tolist(), 3]])
            alone = theirs(ids, output_hidden_states=True).hidden_states
            start = next(starts)
            for one, other in zip(alone, together, strict=True):
                torch.testing.assert_close(other.flatten(0, 1)[start : start + ids.shape[1]], one[0], **TOLERANCE)
    assert next(starts, None) is None


def test_hidden_states_are_summed_in_single_precision_under_autocast(reference):
    """Products are of 16 bits, what layers add up is not, also behind embeddings that are projected."""
    encoder = reference.ours("masked_lm", reference.theirs("masked_lm")).encoder
    with torch.no_grad():
        wanted = encoder.hidden_states(padded_batch())
        with torch.autocast("cpu", torch.bfloat16):
            found = encoder.hidden_states(padded_batch())
    assert {one.dtype for one in found} == {torch.float32}
    for one, other in zip(found, wanted, strict=True):
        assert (one - other).std() < 0.02 * other.std()


@pytest.mark.slow
def test_compiled(reference):
    theirs = reference.theirs("masked_lm")
    model = reference.ours("masked_lm", theirs)
    names = list(model.state_dict())
    tokens = padded_batch()
    ids, segments = tokens.input_ids, tokens.segment_ids
    read = segments.flatten().nonzero().flatten()
    model.compile(dynamic=False)
    found = model(tokens, read)
    wanted = theirs(ids, attention_mask=segments).logits.flatten(0, 1)[read]
    torch.testing.assert_close(found, wanted, **TOLERANCE)
    assert list(model.state_dict()) == names
    weights = torch.linspace(-1, 1, found.shape[1])
    (found * weights).sum().backward()
    (wanted * weights).sum().backward()
    ours, other = model.encoder.input_embeddings.weight.grad, theirs.get_input_embeddings().weight.grad
    torch.testing.assert_close(ours, other, atol=1e-5 * float(other.abs().max()), rtol=0)
