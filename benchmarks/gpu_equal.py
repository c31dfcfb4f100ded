"""Whether a GPU computes what the CPU does: every way of attention, then every family, forward and backward.

    python benchmarks/gpu_equal.py [--device cuda] [--only TEXT ...] [--out FILE]

Both begin with the same random weights, on packed rows of several texts and padding. The CPU computes in fp32; the GPU
in fp32 without TF32, in bf16 as in training, and compiled. Exits with 1 where anything is further apart than it may be.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from pretraining import named_encoder
from side_by_side import write_result
from torch import Tensor

from domainbert.encoders.config import EncoderConfig, VocabularyFacts
from domainbert.encoders.dropout import drop
from domainbert.encoders.families import build_model
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.layers import attend, choose_kernel, segment_boundaries
from domainbert.encoders.packed import Packed

_MAY_DIFFER = {"fp32": 1e-4, "bf16": 0.05, "compiled": 0.05}  # as a share of the largest value
_VOCAB_SIZE, _LENGTH = 1000, 256
_PACKAGES = ("domainbert", "torch")

Share = float
"""The largest difference as a share of the largest value."""


def main() -> None:
    """Compare, print a table, write the JSON."""
    parser = argparse.ArgumentParser(description="A GPU against the CPU")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="+", default=[""], help="comparisons whose names contain one of these texts")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "gpu_equal.json")
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.backends.cuda.matmul.allow_tf32 = False
    found: dict[str, Share | str] = {}
    for name, compare in comparisons(device):
        if not any(text in name for text in options.only):
            continue
        try:
            found[name] = compare()
        except Exception as error:  # a kernel that is missing here must not hide the others
            found[name] = f"{type(error).__name__}: {error}"[:500]
        print(
            f"{name:60} {found[name]:.2e}" if isinstance(found[name], float) else f"{name:60} {found[name]}", flush=True
        )
    failed = [name for name, share in found.items() if not (isinstance(share, float) and share <= _limit(name))]
    if not found:
        raise SystemExit(f"--only: no comparison has {' or '.join(options.only)} in its name")
    described = {"device": str(device), "length": _LENGTH, "may_differ": _MAY_DIFFER, "only": options.only}
    if device.type == "cuda":
        described["gpu"] = torch.cuda.get_device_name()
    write_result(options.out, {"largest_difference": found, "failed": failed}, described, _PACKAGES, {})
    if failed:
        raise SystemExit(f"{len(failed)} of {len(found)} are further apart than they may be: {', '.join(failed)}")
    print(f"all {len(found)} agree")


def comparisons(device: torch.device) -> Iterator[tuple[str, Callable[[], Share]]]:
    """Each by its name, which ends with the precision."""
    for precision in ("fp32", "bf16"):
        for head_size in (32, 64, 128):
            for bias in (False, True):
                for window in (None, 16):
                    name = f"attend {head_size}{' bias' * bias}{' window' * (window is not None)}, {precision}"
                    yield name, _attention(device, head_size, bias, window, precision)
    yield "dropout keeps its share, fp32", lambda: _dropout(device)
    yield "attention dropout keeps its share, bf16", lambda: _attention_dropout(device)
    for file in sorted(EncoderConfig.files.glob("*tiny.yaml")):
        # trainings on a CPU are not compiled; torch 2.13 compiles ModernBERT's bf16 gradients to NaN there
        for precision in ("fp32", "bf16", *(["compiled"] if device.type != "cpu" else [])):
            yield f"{file.stem}, {precision}", _family(device, file.stem, precision)


def packed_rows() -> Packed:
    """Four rows: one text; several; one and padding; many of one token."""
    texts = [[_LENGTH], [100, 56, 70, 30], [130], [1] * 40 + [90]]
    segments = torch.zeros(len(texts), _LENGTH, dtype=torch.long)
    positions = torch.zeros_like(segments)
    for row, lengths in enumerate(texts):
        start = 0
        for number, length in enumerate(lengths, start=1):
            segments[row, start : start + length] = number
            positions[row, start : start + length] = torch.arange(length)
            start += length
    ids = torch.randint(5, _VOCAB_SIZE, segments.shape, generator=torch.Generator().manual_seed(0))
    return Packed(ids * (segments > 0), positions, segments, None, segment_boundaries(segments))


def on(device: torch.device, tokens: Packed) -> Packed:
    """The rows on a device."""
    return tokens._replace(
        **{name: one.to(device) for name, one in tokens._asdict().items() if isinstance(one, Tensor)}
    )


def _attention(
    device: torch.device, head_size: int, biased: bool, window: int | None, precision: str
) -> Callable[[], Share]:
    def compare() -> Share:
        tokens = packed_rows()
        rows, length = tokens.segment_ids.shape
        drawn = torch.Generator().manual_seed(1)
        inputs = [torch.randn(rows, 4, length, head_size, generator=drawn) for _ in range(3)]
        bias = torch.randn(1, 4, length, length, generator=drawn) if biased else None
        real = (tokens.segment_ids > 0)[:, None, :, None]

        def run(where: torch.device, precision: str) -> list[Tensor]:
            with _autocast(where, precision):
                dtype = torch.bfloat16 if precision == "bf16" else torch.float32
                leaves = [one.to(where).requires_grad_() for one in inputs]
                segments = choose_kernel(on(where, tokens), head_size, 0.0, biased=biased, window=window)
                added = None if bias is None else bias.to(where)
                mixed = attend(*(leaf.to(dtype) for leaf in leaves), segments, bias=added, window=window)
                mixed = mixed.float() * real.to(where)
                return [mixed, *torch.autograd.grad(mixed.square().sum(), leaves)]

        return _share(run(torch.device("cpu"), "fp32"), run(device, precision))

    return compare


def _family(device: torch.device, encoder: str, precision: str) -> Callable[[], Share]:
    def compare() -> Share:
        torch.manual_seed(2)
        config = named_encoder(encoder).with_dropout(0.0)
        vocabulary = VocabularyFacts(_VOCAB_SIZE, max(0, config.position_offset - 1))
        model = build_model(config, vocabulary, "masked_lm").eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.02)
        wanted = _outputs(model, torch.device("cpu"), "fp32")
        return _share(wanted, _outputs(model.to(device), device, precision))

    return compare


def _outputs(model: EncoderWithHead, device: torch.device, precision: str) -> list[Tensor]:
    """Logits at every fifth token, and the gradients of all parameters."""
    tokens = on(device, packed_rows())
    positions = tokens.segment_ids.flatten().nonzero().flatten()[::5]
    called = torch.compile(model) if precision == "compiled" else model
    with _autocast(device, precision):
        logits = called(tokens, positions).float()
    gradients = torch.autograd.grad(logits.square().mean(), list(model.parameters()))
    return [logits, torch.cat([one.flatten() for one in gradients])]


def _autocast(device: torch.device, precision: str) -> AbstractContextManager[None]:
    return nullcontext() if precision == "fp32" else torch.autocast(device.type, torch.bfloat16)


def _dropout(device: torch.device) -> Share:
    ones = torch.ones(1_000_000, device=device)
    first, second = drop(ones, 0.1), drop(ones, 0.1)
    assert not torch.equal(first, second), "the same elements were dropped twice"
    return abs(float(first.mean()) - 1) / 100  # its standard deviation is 3e-4


def _attention_dropout(device: torch.device) -> Share:
    """The share of probabilities that are dropped, beside the rate. All scores are equal, and the values of a text of
    128 tokens are 0 or 1 with one 1 in each column, so that an output tells whether a probability was dropped."""
    rate, size = 0.1, 128
    tokens = Packed(*(torch.ones(4, size, dtype=torch.long) for _ in range(3)))
    tokens = on(device, tokens._replace(boundaries=segment_boundaries(tokens.segment_ids)))
    values = torch.eye(size, device=device, dtype=torch.bfloat16).expand(4, 2, size, size)
    equal = torch.zeros_like(values)
    with _autocast(device, "bf16"):
        mixed = attend(equal, equal, values, choose_kernel(tokens, size, rate), dropout=rate)
    dropped = float((mixed == 0).float().mean())
    assert abs(float(mixed.float().mean()) * size - 1) < 0.02, "what is left is scaled up"
    return abs(dropped - rate)  # its standard deviation is 8e-4


def _share(wanted: list[Tensor], found: list[Tensor]) -> Share:
    pairs = [
        (one.detach().cpu().float(), other.detach().cpu().float()) for one, other in zip(wanted, found, strict=True)
    ]
    assert all(other.isfinite().all() for _, other in pairs), "not finite"
    return max(float((one - other).abs().max() / one.abs().max()) for one, other in pairs)


def _limit(name: str) -> float:
    return _MAY_DIFFER[name.rpartition(", ")[2]]


if __name__ == "__main__":
    main()
