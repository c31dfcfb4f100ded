"""Write a model as ONNX, in full precision or in int8."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from domainbert.base.errors import DomainbertError, needs_package
from domainbert.encoders.heads import EncoderWithHead, SequenceHead
from domainbert.encoders.packed import Packed

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 20  # the first opset with Gelu; ONNX Runtime does not fuse the several operators of opset 18
IR_VERSION = 9  # the version of opset 20, readable by ONNX Runtime 1.17 (2024) and later
_MAX_BYTES = 2**31 - 2**24  # protobuf is limited to 2 GiB; leaves space for the graph


class PlainModel(nn.Module):
    """Wraps a model to take unpacked inputs, as transformers does: one text per row, padding where the mask is 0."""

    def __init__(self, model: EncoderWithHead) -> None:
        super().__init__()
        self.model = model

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs: `input_ids`, `attention_mask`, and `token_type_ids` if there are several token types."""
        names = ["input_ids", "attention_mask"]
        return [*names, "token_type_ids"] if self.model.encoder.num_token_types > 1 else names

    @property
    def output_name(self) -> str:
        """Name of the output: `logits`, or `last_hidden_state` for an encoder without a head."""
        return "last_hidden_state" if isinstance(self.model.head, nn.Identity) else "logits"

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Map inputs (B, S) to the output: (B, labels) for a sequence head, otherwise (B, S, K), where K is the number
        of labels, of vocabulary entries (masked LM), or of hidden dimensions (no head)."""
        num_texts, length = input_ids.shape
        positions = torch.arange(length, device=input_ids.device).expand_as(input_ids)
        # the mask serves as segment ids: each text is segment 1, and padding is 0
        tokens = Packed(input_ids, positions, attention_mask, token_type_ids)
        hidden = self.model.encoder(tokens)
        if not isinstance(self.model.head, SequenceHead):
            return self.model.logits(hidden)
        first_positions = torch.arange(num_texts, device=input_ids.device) * length  # of [CLS], in the flattened batch
        return self.model.logits(self.model.head_states(hidden, tokens, first_positions))


def need_onnx() -> None:
    """Raise `DomainbertError` if a package for exporting is not installed."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise needs_package(str(error.name), "onnx").at("export") from error


def write_onnx(path: Path, model: EncoderWithHead) -> None:
    """Write a model (on the CPU) in fp32, with dynamic batch size and length; equal models give equal bytes.

    Inputs (int64) and output (fp32) are defined by `PlainModel`; a CRF is not exported.

    Raises:
        DomainbertError: the weights are too large for an ONNX file.
    """
    size = sum(parameter.numel() * 4 for parameter in model.parameters())
    if size > _MAX_BYTES:
        raise DomainbertError(
            f"{size / 2**30:.1f} GiB of weights", file=path, expected="less than 2 GiB, the limit of an ONNX file"
        )
    plain = PlainModel(model).eval()
    names = plain.input_names
    dynamic_shape = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}  # of each input
    # (2, 3), because torch.export treats the sizes 0 and 1 as constants
    example = tuple(torch.ones(2, 3, dtype=torch.int64) for _ in names)
    with torch.no_grad(), _silence_warnings():
        program = torch.onnx.export(
            plain,
            example,
            input_names=names,
            output_names=[plain.output_name],
            opset_version=OPSET,
            dynamic_shapes=(dynamic_shape,) * len(names),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    assert program is not None
    proto = program.model_proto
    _strip_origins(proto)
    proto.ir_version = IR_VERSION
    path.write_bytes(proto.SerializeToString(deterministic=True))


def quantize_int8(source: Path, path: Path) -> None:
    """Write an ONNX model with int8 weights, for ONNX Runtime's dynamic quantisation.

    Matrices have a scale per output channel, embeddings a single scale. Activations are quantised at run time with the
    minimum and maximum of the whole batch, so that the output for a text depends slightly on the other texts.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _silence_warnings():
        quantize_dynamic(source, path, per_channel=True, weight_type=QuantType.QInt8)


def _strip_origins(proto: ModelProto) -> None:
    """Remove source locations and shapes of intermediate values, which take up half of a small file."""
    graph = proto.graph
    for part in (proto, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
    del graph.value_info[:]


@contextmanager
def _silence_warnings() -> Iterator[None]:
    disabled_level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled_level)
