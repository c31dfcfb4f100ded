from __future__ import annotations

import pytest
import torch

from domainbert.training.precision import autocast_dtype, resolve_precision


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
def test_what_is_asked_for_is_taken(precision):
    assert resolve_precision(precision) == precision


@pytest.mark.parametrize(
    ("cuda", "cuda_bf16", "amx", "wanted"),
    [
        (True, True, False, "bf16-mixed"),
        (True, False, True, "32-true"),
        (False, True, True, "bf16-mixed"),
        (False, True, False, "32-true"),
    ],
)
def test_auto_takes_bf16_where_the_hardware_multiplies_it(monkeypatch, cuda, cuda_bf16, amx, wanted):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: cuda_bf16)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert resolve_precision("auto") == wanted
    assert autocast_dtype("auto") == (torch.bfloat16 if wanted == "bf16-mixed" else None)


def test_autocast_dtypes():
    assert autocast_dtype("32-true") is None
    assert autocast_dtype("bf16-mixed") is torch.bfloat16
    assert autocast_dtype("16-mixed") is torch.float16
