from __future__ import annotations

import pytest
import torch

from domainbert.training.precision import autocast_dtype, resolve_precision


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
def test_what_is_asked_for_is_taken(precision):
    assert resolve_precision(precision) == precision


@pytest.mark.parametrize(
    ("gpu", "cpu", "wanted"),
    [
        ("Ampere", {}, "bf16-mixed"),
        ("Volta", {"amx_bf16": True}, "32-true"),
        (None, {"amx_bf16": True, "avx512_bf16": True}, "bf16-mixed"),
        (None, {"amx_bf16": True, "avx512_bf16": True, "cpu_name": "Intel Xeon"}, "bf16-mixed"),
        (None, {"amx_bf16": False, "avx512_bf16": True}, "bf16-mixed"),
        (None, {"amx_bf16": False, "avx512_bf16": True, "cpu_name": "AMD EPYC 9R14"}, "bf16-mixed"),
        (None, {"amx_bf16": False, "avx512_bf16": True, "cpu_name": "Intel Xeon"}, "32-true"),
        (None, {"avx2": True, "amx_bf16": False, "avx512_bf16": False}, "32-true"),
        (None, {"neon": True}, "32-true"),
    ],
)
def test_auto_takes_bf16_where_the_hardware_multiplies_it(monkeypatch, gpu, cpu, wanted):
    def is_bf16_supported(including_emulation=True):
        return gpu == "Ampere" or including_emulation

    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu is not None)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_bf16_supported)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: cpu)
    assert resolve_precision("auto") == wanted
    assert autocast_dtype("auto") == (torch.bfloat16 if wanted == "bf16-mixed" else None)
    on_cpu = wanted if gpu is None else "bf16-mixed" if cpu.get("amx_bf16") else "32-true"
    assert resolve_precision("auto", "cpu") == on_cpu and resolve_precision("auto", "gpu") == wanted


def test_autocast_dtypes():
    assert autocast_dtype("32-true") is None
    assert autocast_dtype("bf16-mixed") is torch.bfloat16
    assert autocast_dtype("16-mixed") is torch.float16
