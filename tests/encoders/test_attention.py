from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from domainbert.encoders import layers
from domainbert.encoders.dropout import drop
from domainbert.encoders.layers import (
    Dropout,
    Segments,
    SelfAttention,
    attend,
    choose_kernel,
    segment_boundaries,
    segment_mask,
)
from domainbert.encoders.packed import Packed
from domainbert.encoders.windows import block_mask

SEGMENTS = torch.tensor([[1, 1, 1, 2, 2, 3, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1]])


def random_heads():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 3, 8, 5, generator=generator) for _ in range(3)]


def test_tokens_see_their_own_segment():
    mask = segment_mask(SEGMENTS)
    assert mask.shape == (2, 1, 8, 8)
    assert torch.isin(mask, torch.tensor([0.0, float("-inf")])).all()
    assert (mask[0, 0] == 0).int().tolist() == [
        [1, 1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 0, 0],
        [0, 0, 0, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 0, 0, 0],
        [0, 0, 0, 0, 0, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 1, 1],
        [0, 0, 0, 0, 0, 0, 1, 1],
    ]
    assert (mask[1] == 0).all()


@pytest.mark.parametrize("rate", [0.0, 1e-12])
@pytest.mark.parametrize("training", [False, True])
def test_every_kernel_gives_the_attention_of_the_formula(rate, training):
    query, key, value = random_heads()
    with torch.set_grad_enabled(training):
        found = attend(query, key, value, Segments(segment_mask(SEGMENTS)), dropout=rate)
    for row, segments in enumerate(SEGMENTS.tolist()):
        for position, segment in enumerate(segments):
            own = [place for place, other in enumerate(segments) if other == segment]
            for head in range(3):
                scores = key[row, head, own] @ query[row, head, position] / 5**0.5
                wanted = scores.softmax(dim=0) @ value[row, head, own]
                torch.testing.assert_close(found[row, head, position], wanted, atol=1e-6, rtol=0)


def test_rows_of_any_length_have_the_same_gradients():
    """Short rows are spelt out in training, long ones go to the fused kernel."""
    segments = torch.arange(320)[None] // 40 + 1
    heads = [
        torch.randn(1, 2, 320, 4, generator=torch.Generator().manual_seed(n), requires_grad=True) for n in range(3)
    ]

    def gradients(length):
        outputs = []
        for start in range(0, 320, length):
            own = [tensor[:, :, start : start + length] for tensor in heads]
            mask = segment_mask(segments[:, start : start + length])
            outputs.append(attend(own[0], own[1], own[2], Segments(mask)))
        mixed = torch.cat(outputs, dim=2)
        return mixed, *torch.autograd.grad((mixed**3).sum(), heads)

    for one, other in zip(gradients(320), gradients(80), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_rows_are_spelt_out_for_longer_in_bf16(monkeypatch):
    calls = []
    fused = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        torch.nn.functional, "scaled_dot_product_attention", lambda *a, **k: calls.append(1) or fused(*a, **k)
    )
    mask = Segments(segment_mask(torch.ones(1, 320, dtype=torch.long)))
    drawn = torch.randn(1, 1, 320, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    single = attend(drawn, drawn, drawn, mask)
    assert len(calls) == 1
    half = drawn.bfloat16()
    torch.testing.assert_close(attend(half, half, half, mask).float(), single, atol=0.02, rtol=0.02)
    assert len(calls) == 1


def test_attention_with_dropout_is_right_on_average_and_stays_in_its_segment():
    torch.manual_seed(0)
    query, key, value = random_heads()
    mask = segment_mask(SEGMENTS)
    many = [tensor.expand(2_000, 3, 8, 5) for tensor in (query[:1], key[:1], value[:1])]
    mean = attend(*many, Segments(mask[:1].expand(2_000, 1, 8, 8)), dropout=0.3).mean(dim=0)
    torch.testing.assert_close(mean, attend(query, key, value, Segments(mask))[0], atol=0.1, rtol=0)
    alone = attend(query[:1], key[:1], torch.ones_like(value[:1]), Segments(mask[:1]), dropout=0.3)
    assert set((alone[0, :, 5, 0] * 0.7).round(decimals=5).tolist()) <= {0.0, 1.0}, "a segment of one token"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dropout_zeroes_the_share_asked_for_and_scales_the_rest(dtype):
    torch.manual_seed(0)
    values = torch.ones(400, 500, dtype=dtype, requires_grad=True)
    dropped = drop(values, 0.3)
    assert dropped.dtype == dtype
    assert sorted(set(dropped.flatten().tolist())) == [0.0, torch.tensor(1 / 0.7, dtype=dtype).item()]
    share = (dropped == 0).double().mean().item()
    assert abs(share - 0.3) < 4.5 * (0.3 * 0.7 / 200_000) ** 0.5
    dropped.float().sum().backward()
    assert torch.equal(values.grad, dropped.detach()), "the gradient is dropped and scaled alike"
    assert drop(values, 0.0) is values or torch.equal(drop(values, 0.0), values)


def test_dropout_drops_the_same_in_every_precision():
    zeros = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        torch.manual_seed(0)
        zeros.append(drop(torch.ones(33, 35, dtype=dtype), 0.1) == 0)
    assert torch.equal(zeros[0], zeros[1]) and torch.equal(zeros[0], zeros[2])


@pytest.mark.parametrize(("rate", "share"), [(1e-6, 0.0), (0.1, 6554 / 65536), (0.5, 0.5), (1 - 1e-9, 65535 / 65536)])
def test_dropout_is_to_the_nearest_of_65536(rate, share):
    """Of a million elements: none dropped, all but a few, or the share within 4.5 standard deviations."""
    torch.manual_seed(1)
    dropped = (drop(torch.ones(1000, 1001), rate) == 0).double()
    assert abs(dropped.mean().item() - share) <= 4.5 * (share * (1 - share) / dropped.numel()) ** 0.5


def test_dropout_drops_neighbours_independently():
    """Four elements share a random number of 64 bits: no two of them, nor two numbers, are dropped together."""
    torch.manual_seed(2)
    dropped = (drop(torch.ones(400_001), 0.25) == 0).double() - 0.25
    for distance in (1, 2, 3, 4, 5, 8):
        correlation = (dropped[:-distance] * dropped[distance:]).mean().item() / (0.25 * 0.75)
        assert abs(correlation) < 4.5 / 400_000**0.5, distance
    by_place = dropped[:400_000].view(-1, 4).mean(dim=0).abs()
    assert by_place.max() < 4.5 * (0.25 * 0.75 / 100_000) ** 0.5


def plainly(heads, segment_ids, bias=None, window=None, scale=None):
    """Attention token by token, over the tokens of its segment within the window, by scaled scores plus bias."""
    query, key, value = heads
    (batch, count, length, width), rows = query.shape, []
    bias = torch.zeros(1, 1, length, length) if bias is None else bias
    bias = bias.expand(batch, count, length, length)
    for row, ids in enumerate(segment_ids.tolist()):
        for place, segment in enumerate(ids):
            reach = length if window is None else window
            own = [at for at, other in enumerate(ids) if other == segment and abs(at - place) <= reach]
            scores = (key[row, :, own] * query[row, :, place, None]).sum(-1) * (width**-0.5 if scale is None else scale)
            rows.append(((scores + bias[row, :, place, own]).softmax(-1).unsqueeze(-1) * value[row, :, own]).sum(1))
    return torch.stack(rows).view(batch, length, count, width).transpose(1, 2)


@pytest.mark.parametrize("scale", [None, 0.7])
@pytest.mark.parametrize("window", [None, 0, 1, 3])
@pytest.mark.parametrize(
    ("kernel", "biased"),
    [(kernel, size) for kernel in ("spelt out", "fused") for size in (None, (1, 1), (2, 1), (1, 3), (2, 3))]
    + [("text by text", None), ("in blocks", None)],  # which have no bias
)
def test_bias_window_and_scale(kernel, biased, window, scale, monkeypatch):
    """Outputs and gradients of each kernel, including the gradient of the bias."""
    monkeypatch.setattr(layers, "_EXPLICIT_LENGTH", {4: 0 if kernel == "fused" else 256})
    monkeypatch.setattr(layers, "flash_attention", by_the_definition)
    inputs = [head.requires_grad_() for head in random_heads()]
    bias = None if biased is None else torch.randn(*biased, 8, 8, generator=torch.Generator().manual_seed(1))
    inputs += [] if bias is None else [bias.requires_grad_()]
    by_mask = Segments(segment_mask(SEGMENTS), None, segment_mask(SEGMENTS, window))
    if kernel == "in blocks":
        by_mask = by_mask._replace(window_mask=block_mask(SEGMENTS, 0 if window is None else window))
    by_boundaries = Segments(None, segment_boundaries(SEGMENTS))
    segments = by_boundaries if kernel == "text by text" else by_mask
    found = attend(*inputs[:3], segments, bias=bias, window=window, scale=scale)
    wanted = plainly(inputs[:3], SEGMENTS, bias, window, scale)
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)
    direction = torch.randn(found.shape, generator=torch.Generator().manual_seed(2))
    gradients = [torch.autograd.grad((mixed * direction).sum(), inputs) for mixed in (found, wanted)]
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)


@st.composite
def segmented(draw):
    """Segment ids of rows: full ones, padded ones, padding alone, texts of one token."""
    length = draw(st.integers(1, 12))
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        sizes = draw(st.lists(st.integers(1, length), max_size=length))
        row = [number for number, size in enumerate(sizes, start=1) for _ in range(size)][:length]
        rows.append(row + [0] * (length - len(row)))
    return torch.tensor(rows)


def by_the_definition(query, key, value, boundaries, longest, window, scale, dropout):
    """Flash attention written out: (T, heads, D), each sequence between two boundaries by itself."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    assert query.shape == key.shape == value.shape and query.shape[0] == boundaries[-1]
    assert boundaries.dtype == torch.int32
    output = torch.zeros_like(query)
    for start, stop in zip(boundaries[:-1].tolist(), boundaries[1:].tolist(), strict=True):
        assert 0 <= stop - start <= longest
        if start < stop:
            own = [tensor[start:stop].transpose(0, 1) for tensor in (query, key, value)]
            scores = own[0] @ own[1].transpose(1, 2) * scale
            if window != (None, None):
                before, behind = (longest if side is None else side for side in window)
                seen = torch.ones_like(scores, dtype=torch.bool).triu(-before).tril(behind)
                scores = scores.masked_fill(~seen, float("-inf"))
            mixed = torch.nn.functional.dropout(torch.softmax(scores, dim=-1), dropout) @ own[2]
            output = output.index_copy(0, torch.arange(start, stop), mixed.transpose(0, 1))
    return output


@pytest.fixture
def text_by_text(monkeypatch):
    """As on a GPU, with the definition for a kernel; gives the boundaries it was called with."""
    seen = []

    def kernel(query, key, value, boundaries, *rest):
        seen.append(boundaries)
        return by_the_definition(query, key, value, boundaries, *rest)

    monkeypatch.setattr(layers, "_has_flash", lambda device: True)
    monkeypatch.setattr(layers, "flash_attention", kernel)
    return seen


@given(segmented())
def test_boundaries_are_where_segments_begin(segment_ids):
    found = segment_boundaries(segment_ids).tolist()
    runs = [len(row) for ids in segment_ids.tolist() for row in _runs(ids)]
    begins = [sum(runs[:number]) for number in range(len(runs))]
    assert found[: len(runs)] == begins and set(found[len(runs) :]) == {segment_ids.numel()}
    room = len(found) - 1
    assert room & (room - 1) == 0 and room / 2 < len(runs) <= room


def _runs(ids):
    runs = []
    for one in ids:
        if runs and runs[-1][-1] == one:
            runs[-1].append(one)
        else:
            runs.append([one])
    return runs


@given(segmented(), st.integers(0, 2**31))
def test_text_by_text_is_attention_with_the_mask(segment_ids, seed):
    batch, length = segment_ids.shape
    generator = torch.Generator().manual_seed(seed)
    heads = [torch.randn(batch, 2, length, 4, generator=generator, requires_grad=True) for _ in range(3)]
    boundaries = segment_boundaries(segment_ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers, "flash_attention", by_the_definition)
        found = attend(*heads, Segments(None, boundaries))
    wanted = attend(*heads, Segments(segment_mask(segment_ids)))
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)
    weights = torch.randn(found.shape, generator=generator)
    gradients = [torch.autograd.grad((mixed * weights).sum(), heads) for mixed in (found, wanted)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("training", [False, True])
def test_an_encoder_that_goes_text_by_text_gives_the_same(reference, text_by_text, training):
    encoder = reference.ours("masked_lm", reference.theirs("masked_lm")).encoder
    ids = torch.randint(5, 101, (2, 8), generator=torch.Generator().manual_seed(0))
    rows = Packed(ids, torch.arange(8).expand(2, 8), SEGMENTS)
    boundaries = segment_boundaries(SEGMENTS)
    wanted = encoder.hidden_states(rows)
    assert not text_by_text
    found = encoder.hidden_states(rows._replace(boundaries=boundaries))
    assert len(text_by_text) == (0 if reference.biased else 3), "the kernel has no bias"
    assert all(one is boundaries for one in text_by_text), "made once"
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
    gradients = [
        torch.autograd.grad(states[-1].square().sum(), list(encoder.parameters())) for states in (found, wanted)
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-4)
    if training:  # with attention dropout, too
        text_by_text.clear()
        encoder.attention_dropout = 0.1
        encoder.train()(rows._replace(boundaries=boundaries))
        assert len(text_by_text) == (0 if reference.biased else 3)


def test_which_kernel_a_batch_takes(monkeypatch):
    boundaries = segment_boundaries(SEGMENTS)
    by_mask, by_boundaries = [True, False, False, False, False], [False, True, False, False, False]

    def chosen(given, *arguments, **facts):
        tokens = Packed(SEGMENTS, SEGMENTS, SEGMENTS, None, given)
        return [part is not None and part is not False for part in choose_kernel(tokens, *arguments, **facts)]

    assert chosen(boundaries, 64, 0.0) == by_mask, "on a CPU"
    monkeypatch.setattr(layers, "_has_flash", lambda device: True)
    assert chosen(boundaries, 64, 0.0) == chosen(boundaries, 8, 0.0) == chosen(boundaries, 256, 0.0) == by_boundaries
    assert chosen(boundaries, 64, 0.1) == by_boundaries and chosen(None, 64, 0.0) == by_mask
    assert chosen(boundaries, 60, 0.0) == chosen(boundaries, 264, 0.0) == by_mask
    assert chosen(boundaries, 64, 0.0, biased=True) == by_mask
    assert chosen(boundaries, 64, 0.0, window=4) == by_boundaries
    assert chosen(boundaries, 64, 0.0, causal=True) == [False, True, False, False, True]


@pytest.mark.parametrize(
    ("dtype", "capability", "built", "wanted"),
    [
        (torch.bfloat16, (8, 0), True, True),
        (torch.float16, (9, 0), True, True),
        (None, (9, 0), True, False),
        (torch.float32, (9, 0), True, False),
        (torch.bfloat16, (7, 5), True, False),
        (torch.bfloat16, (9, 0), False, False),
    ],
)
def test_what_a_gpu_needs_for_it(monkeypatch, dtype, capability, built, wanted):
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: dtype is not None)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: dtype)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: built)
    assert layers._has_flash(torch.device("cuda", 0)) == wanted
    assert not layers._has_flash(torch.device("cpu"))


def test_the_kernel_takes_what_it_is_called_with():
    """Shapes alone, on torch's own operator."""
    heads = [torch.empty(2, 8, 3, 3, 16, device="meta", requires_grad=True)[:, :, n].transpose(1, 2) for n in range(3)]
    boundaries = torch.empty(9, dtype=torch.int32, device="meta")
    mixed = attend(*heads, Segments(None, boundaries))
    assert mixed.shape == heads[0].shape == (2, 3, 8, 16)
    gradients = torch.autograd.grad(mixed.sum(), heads)
    assert [gradient.shape for gradient in gradients] == [heads[0].shape] * 3


@pytest.mark.parametrize(("training", "wanted"), [(True, 0.3), (False, 0.0)])
def test_a_gpu_s_kernel_is_told_the_dropout(monkeypatch, training, wanted):
    """As on a GPU, on the meta device: the fused kernel gets queries, keys, values, mask and rate unchanged."""
    seen = {}

    def kernel(query, key, value, attn_mask, dropout_p, scale):
        seen.update(shapes=[query.shape, key.shape, value.shape, attn_mask.shape], rate=dropout_p)
        return value

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", kernel)
    layer = SelfAttention(12, 3, 0.3).to("meta").train(training)
    hidden, mask = (torch.empty(shape, device="meta") for shape in ((2, 8, 12), (2, 1, 8, 8)))
    assert layer(hidden, Segments(mask)).shape == (2, 8, 12)
    assert seen == {"shapes": [(2, 3, 8, 4)] * 3 + [(2, 1, 8, 8)], "rate": wanted}


@pytest.mark.parametrize("training", [True, False])
def test_a_gpu_drops_hidden_states_with_torch_s_kernel(monkeypatch, training):
    seen = []

    def kernel(values, p):
        seen.append((values.shape, p))
        return values

    monkeypatch.setattr(torch.nn.functional, "dropout", kernel)
    hidden = torch.empty(2, 8, 12, device="meta")
    assert Dropout(0.25).train(training)(hidden) is hidden
    assert seen == ([((2, 8, 12), 0.25)] if training else [])


@pytest.mark.parametrize(
    ("dtype", "rows", "length", "training", "rate", "fused"),
    [
        (torch.float32, 1, 256, True, 0.0, False),
        (torch.float32, 1, 257, True, 0.0, True),
        (torch.float32, 1, 8, False, 0.1, False),
        (torch.float32, 2, 8, False, 0.0, True),
        (torch.bfloat16, 1, 8, False, 0.0, True),
        (torch.bfloat16, 2, 8, False, 0.0, False),
        (torch.bfloat16, 2, 118, False, 0.0, False),  # 150 heads: 8,354,400 bytes of scores
        (torch.bfloat16, 2, 119, False, 0.0, True),
    ],
)
def test_a_cpu_spells_out_short_rows(monkeypatch, dtype, rows, length, training, rate, fused):
    """What the fused kernel computes is the same but for dropout, which it does not have there: it is slower."""
    kernel, seen = torch.nn.functional.scaled_dot_product_attention, []
    monkeypatch.setattr(
        torch.nn.functional, "scaled_dot_product_attention", lambda *a, **k: seen.append(1) or kernel(*a, **k)
    )
    heads = [torch.randn(rows, 150, length, 2, dtype=dtype) for _ in range(3)]
    mask = Segments(segment_mask(torch.ones(rows, length, dtype=torch.int64)))
    with torch.set_grad_enabled(training):
        found = attend(*heads, mask, dropout=rate)
    if not rate:
        wanted = kernel(*(part.float() for part in heads))
        torch.testing.assert_close(found.float(), wanted, atol=0.03 if dtype == torch.bfloat16 else 1e-5, rtol=0)
    assert bool(seen) == fused
