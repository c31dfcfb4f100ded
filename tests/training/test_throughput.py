from __future__ import annotations

import pytest
import torch

from domainbert.encoders.albert.config import AlbertConfig
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import EncoderConfig, VocabularyFacts
from domainbert.encoders.electra.config import ElectraConfig
from domainbert.encoders.families import build_model
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.mpnet.config import MPNetConfig
from domainbert.encoders.packed import Packed
from domainbert.training import throughput
from domainbert.training.config import Training
from domainbert.training.throughput import flops_per_token, measured_peak_flops, throughput_callback

CONFIG = BertConfig(
    hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=56, max_position_embeddings=40
)


def make_model(config: EncoderConfig = CONFIG) -> EncoderWithHead:
    return build_model(config, VocabularyFacts(101, config.pad_token_id), "masked_lm")


def test_flops_per_token_by_hand():
    inputs = 3 * 24 * 24  # query, key, value
    behind = 24 * 24 + 2 * 24 * 56  # output; the two of the feed-forward
    head = 24 * 24 + 24 * 101  # transform; the product with the embeddings
    forward = 2 * (3 * inputs + 2 * behind + 0.15 * (behind + head))
    scores = 3 * 2 * (2 * 24 * 32)  # each token against the 32 of its row, and the sum of the values, in 3 layers
    assert flops_per_token(make_model(), 32, 0.15) == pytest.approx(3 * (forward + scores))  # backward: twice forward


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        AlbertConfig(24, 4, 4, 56, max_position_embeddings=40, embedding_size=16, num_hidden_groups=2),
        ElectraConfig(24, 3, 4, 56, max_position_embeddings=40, embedding_size=16),
        MPNetConfig(24, 3, 4, 56, max_position_embeddings=42),
    ],
    ids=lambda config: config.model_type,
)
def test_flops_agree_with_those_torch_counts(config):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    model = make_model(config)
    ids = torch.randint(5, 101, (8, 32))
    places, read = torch.arange(32).expand(8, 32), torch.arange(0, 256, 4)  # 64, of which nothing is filled up
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(Packed(ids, places, torch.ones_like(ids)), read).sum().backward()
    assert counter.get_total_flops() / 256 == pytest.approx(flops_per_token(model, 32, 0.25), rel=0.01)


def test_a_head_that_predicts_no_entries_makes_no_product_with_them():
    config = ElectraConfig(24, 3, 4, 56, max_position_embeddings=40, embedding_size=16)
    judging = build_model(config, VocabularyFacts(101, 0), "replaced")
    encoder = flops_per_token(make_model(config), 32, 1.0) - 6 * (24 * 16 + 16 * 101)
    assert flops_per_token(judging, 32, 1.0) == pytest.approx(encoder + 6 * (24 * 24 + 24))


def test_matrices_grow_until_a_product_takes_fifty_milliseconds(monkeypatch):
    monkeypatch.setattr(throughput, "_SIZES", (16, 32, 64, 128))
    durations = {16: [0.09, 0.001, 0.01], 32: [0.04, 0.2], 64: [0.08, 0.06]}
    clock = iter([time for size in durations.values() for duration in size for time in (5.0, 5.0 + duration)])
    monkeypatch.setattr(throughput.time, "perf_counter", lambda: next(clock))
    peak = measured_peak_flops.__wrapped__(torch.device("cpu"), torch.float32)
    assert peak == pytest.approx(2 * 64**3 / 0.06) and next(clock, None) is None


def test_the_callback_knows_the_arithmetic_and_the_device(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(throughput, "measured_peak_flops", lambda *a: seen.append(a) or 1e9)
    training = Training(precision="bf16-mixed", loggers=())
    callback = throughput_callback({0: 30.0}, training)
    assert (callback.flops_per_token, callback.peak_flops) == ({0: 30.0}, 1e9)
    assert [dtype for _, dtype in seen] == [torch.bfloat16]


@pytest.mark.parametrize(("accelerator", "device"), [({}, "cuda"), ({"accelerator": "cpu"}, "cpu")])
def test_the_peak_is_that_of_the_device_that_trains(monkeypatch, tmp_path, accelerator, device):
    seen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(throughput, "measured_peak_flops", lambda *a: seen.append(a) or 1e9)
    throughput_callback({0: 30.0}, Training(precision="32-true", loggers=(), trainer=accelerator))
    assert [one.type for one, _ in seen] == [device]
