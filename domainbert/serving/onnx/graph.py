"""Writes a model as ONNX, in full precision and in int8."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from domainbert.base.errors import DomainbertError
from domainbert.encoders.heads import EncoderWithHead, SequenceHead
from domainbert.encoders.packed import Packed

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 20  # the first with Gelu: what 18 spells out ONNX Runtime does not put together again
IR_VERSION = 9  # the one that came with opset 20; so ONNX Runtime reads the file from 1.17 (2024) on
_MOST_BYTES = 2**31 - 2**24  # protobuf ends at 2 GiB; some room for the graph beside the weights


class PlainModel(nn.Module):
    """A model as it is called elsewhere: a text a row, padding where the mask is 0, and every position read."""

    def __init__(self, model: EncoderWithHead) -> None:
        super().__init__()
        self.model = model

    @property
    def input_names(self) -> list[str]:
        """`input_ids`, `attention_mask`, and `token_type_ids` if the model tells token types apart."""
        return ["input_ids", "attention_mask", *(["token_type_ids"] if self.model.encoder.num_token_types > 1 else [])]

    @property
    def output_name(self) -> str:
        """Name of the output: `logits`, or `last_hidden_state` of an encoder without a head."""
        return "last_hidden_state" if isinstance(self.model.head, nn.Identity) else "logits"

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """(B, S) each -> (B, S, labels, V or H), or (B, labels) of a sequence head."""
        texts, length = input_ids.shape
        positions = torch.arange(length, device=input_ids.device).expand_as(input_ids)
        tokens = Packed(input_ids, positions, attention_mask, token_type_ids)
        hidden = self.model.encoder(tokens)
        if not isinstance(self.model.head, SequenceHead):
            return self.model.read(hidden)
        first = torch.arange(texts, device=input_ids.device) * length
        return self.model.read(self.model.states(hidden, tokens, first))


def need_onnx() -> None:
    """`DomainbertError` if a package is missing that exporting needs; it names the extra."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise DomainbertError(f"export needs {error.name}; pip install 'domainbert[onnx]'") from error


def write_onnx(path: Path, model: EncoderWithHead) -> None:
    """Write a model (on the CPU) in fp32, for any number of texts of any length; equal models give equal bytes.

    Inputs and output are those of `PlainModel`, int64 and fp32; a CRF stays behind. The file is there as a whole or not
    at all. Larger weights than such a file may hold raise `DomainbertError`.
    """
    size = sum(parameter.numel() * 4 for parameter in model.parameters())
    if size > _MOST_BYTES:
        raise DomainbertError(
            f"{path}: {size / 2**30:.1f} GiB of weights; expected less than the 2 GiB of an ONNX file"
        )
    plain = PlainModel(model).eval()
    names = plain.input_names
    shape = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
    # neither 0 nor 1 in a shape: torch.export takes those for constants
    example = tuple(torch.ones(2, 3, dtype=torch.int64) for _ in names)
    with torch.no_grad(), _quiet():
        program = torch.onnx.export(
            plain,
            example,
            input_names=names,
            output_names=[plain.output_name],
            opset_version=OPSET,
            dynamic_shapes=(shape,) * len(names),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    assert program is not None
    proto = program.model_proto
    _strip_origins(proto)
    proto.ir_version = IR_VERSION
    with _whole(path) as temporary:
        temporary.write_bytes(proto.SerializeToString(deterministic=True))


def quantize_int8(source: Path, path: Path) -> None:
    """Write an ONNX model with weights in int8, for ONNX Runtime's dynamic quantisation.

    Matrices have a scale for each output, embeddings one for all; activations are quantised as they come, with the
    smallest and largest value of the whole batch, so that a text's output depends a little on those beside it.
    The file is there as a whole or not at all.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _whole(path) as temporary, _quiet():
        quantize_dynamic(source, temporary, per_channel=True, weight_type=QuantType.QInt8)


def _strip_origins(proto: ModelProto) -> None:
    """Take out where each node comes from: lines of source files, and half of a small file."""
    graph = proto.graph
    for part in (proto, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
    del graph.value_info[:]


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A temporary path, whose file replaces `path` once it is whole."""
    temporary = path.with_name(f".{path.name}.tmp")  # hidden: no output if the process is killed
    yield temporary
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of exporter and quantiser: torchvision is missing, axes have one name, convolutions."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
