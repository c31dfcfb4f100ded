from __future__ import annotations

import pytest
import torch

from domainbert.encoders.attention import attend, dropout, segment_mask

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
        found = attend(query, key, value, segment_mask(SEGMENTS), rate)
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
            outputs.append(attend(own[0], own[1], own[2], segment_mask(segments[:, start : start + length])))
        mixed = torch.cat(outputs, dim=2)
        return mixed, *torch.autograd.grad((mixed**3).sum(), heads)

    for one, other in zip(gradients(320), gradients(80), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_attention_with_dropout_is_right_on_average_and_stays_in_its_segment():
    torch.manual_seed(0)
    query, key, value = random_heads()
    mask = segment_mask(SEGMENTS)
    many = [tensor.expand(2_000, 3, 8, 5) for tensor in (query[:1], key[:1], value[:1])]
    mean = attend(*many, mask[:1].expand(2_000, 1, 8, 8), 0.3).mean(dim=0)
    torch.testing.assert_close(mean, attend(query, key, value, mask)[0], atol=0.1, rtol=0)
    alone = attend(query[:1], key[:1], torch.ones_like(value[:1]), mask[:1], 0.3)
    assert set((alone[0, :, 5, 0] * 0.7).round(decimals=5).tolist()) <= {0.0, 1.0}, "a segment of one token"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_zeroes_the_share_asked_for_and_scales_the_rest(dtype):
    torch.manual_seed(0)
    values = torch.ones(400, 500, dtype=dtype, requires_grad=True)
    dropped = dropout(values, 0.3)
    assert dropped.dtype == dtype
    assert sorted(set(dropped.flatten().tolist())) == [0.0, torch.tensor(1 / 0.7, dtype=dtype).item()]
    share = (dropped == 0).double().mean().item()
    assert abs(share - 0.3) < 4.5 * (0.3 * 0.7 / 200_000) ** 0.5
    dropped.float().sum().backward()
    assert torch.equal(values.grad, dropped.detach()), "the gradient is dropped and scaled alike"
    assert dropout(values, 0.0) is values or torch.equal(dropout(values, 0.0), values)


@pytest.mark.parametrize(("rate", "share"), [(1e-6, 0.0), (0.1, 6554 / 65536), (0.5, 0.5), (1 - 1e-9, 65535 / 65536)])
def test_dropout_is_to_the_nearest_of_65536(rate, share):
    """Of a million elements: none dropped, all but a few, or the share within 4.5 standard deviations."""
    torch.manual_seed(1)
    dropped = (dropout(torch.ones(1000, 1001), rate) == 0).double()
    assert abs(dropped.mean().item() - share) <= 4.5 * (share * (1 - share) / dropped.numel()) ** 0.5


def test_dropout_drops_neighbours_independently():
    """Four elements share a random number of 64 bits: no two of them, nor two numbers, are dropped together."""
    torch.manual_seed(2)
    dropped = (dropout(torch.ones(400_001), 0.25) == 0).double() - 0.25
    for distance in (1, 2, 3, 4, 5, 8):
        correlation = (dropped[:-distance] * dropped[distance:]).mean().item() / (0.25 * 0.75)
        assert abs(correlation) < 4.5 / 400_000**0.5, distance
    by_place = dropped[:400_000].view(-1, 4).mean(dim=0).abs()
    assert by_place.max() < 4.5 * (0.25 * 0.75 / 100_000) ** 0.5
