"""Run exported models in ONNX Runtime: one text per row, batched by length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from domainbert.base.errors import DomainbertError, needs_package
from domainbert.base.run_record import check_outputs_unchanged
from domainbert.data.packing import Example, fill_rows, positions_read
from domainbert.tasks.packed_logits import Computed, compute_in_parts
from domainbert.tokenization.load import DomainTokenizer

Ints = NDArray[np.int64]

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_MAX_TOKENS = 4_096


class OnnxModel:
    """An ONNX file in ONNX Runtime, on a GPU if onnxruntime supports it, otherwise on as many threads as torch uses.

    Models from other programs work too if the inputs are among `INPUTS`, (B, S) int64, and the first output is
    (B, S, C), or (B, C) for a sequence head.

    Raises:
        DomainbertError: onnxruntime is not installed; the file has other inputs, or was changed after `export`.
    """

    def __init__(self, file: Path, tokenizer: DomainTokenizer) -> None:
        check_outputs_unchanged(file.parent, file.name)
        self.file, self.tokenizer = file, tokenizer
        self.session = _open_session(file)
        self.inputs: list[str] = [argument.name for argument in self.session.get_inputs()]
        self.output: str = self.session.get_outputs()[0].name
        if "input_ids" not in self.inputs or not set(self.inputs) <= set(INPUTS):
            expected = "input_ids, and optionally attention_mask and token_type_ids"
            raise DomainbertError(f"inputs are {', '.join(self.inputs)}", file=file, expected=expected)

    def run(self, rows: Mapping[str, Ints]) -> NDArray[np.float32]:
        """Return the output for B padded rows: (B, S, C), or (B, C) of a sequence head. Each of `INPUTS` is (B, S)."""
        output: NDArray[np.float32]
        (output,) = self.session.run([self.output], {name: rows[name] for name in self.inputs})
        return output

    def logits(
        self, examples: Sequence[Example], max_tokens: int = _MAX_TOKENS
    ) -> Iterator[tuple[dict[str, Any], Tensor]]:
        """Yield each batch with the logits (N, C) at its positions; batches are not in order.

        A batch has at most `max_tokens` tokens with padding; a longer example is a batch alone, computed in parts.
        """
        for items in batches_by_length(examples, max_tokens):
            yield compute_in_parts(partial(self._compute, items), [examples[item] for item in items], max_tokens)

    def _compute(self, items: Sequence[int], part: Sequence[Example]) -> Computed:
        batch = pad_rows(part, items, self.tokenizer)
        output, positions = self.run(batch), batch["positions"]
        if output.ndim == 2:  # one output per row, not per token
            logits = output[positions // batch["input_ids"].shape[1]]
        else:
            logits = output.reshape(-1, output.shape[-1])[positions]
        return {name: torch.from_numpy(values) for name, values in batch.items()}, torch.from_numpy(logits)


def batches_by_length(examples: Sequence[Example], max_tokens: int) -> list[list[int]]:
    """Return the indices of the examples in batches of at most `max_tokens` padded tokens, longest first to reduce
    padding; a longer example forms a batch alone."""
    lengths = [max(window.num_tokens for window in example.windows) for example in examples]
    longest_first = sorted(range(len(examples)), key=lambda index: (-lengths[index], index))
    batches: list[list[int]] = []
    num_rows = row_length = 0  # of the last batch; a row is a window, padded to the longest, which comes first
    for item in longest_first:
        num_rows += len(examples[item].windows)
        if not batches or num_rows * row_length > max_tokens:
            batches.append([])
            num_rows, row_length = len(examples[item].windows), lengths[item]
        batches[-1].append(item)
    return batches


def pad_rows(examples: Sequence[Example], items: Sequence[int], tokenizer: DomainTokenizer) -> dict[str, Ints]:
    """Return a batch of R padded rows, one per window of the examples: each of `INPUTS` is (R, S).

    `items` are the indices of the examples. The batch also has `items`, `positions`, `example`, `outputs` and
    `targets`, which `data.packing.collate` defines.
    """
    windows = [(index, window) for index, example in enumerate(examples) for window in example.windows]
    length = max(window.num_tokens for _, window in windows)
    texts = [[window.text] for _, window in windows]
    rows = fill_rows(texts, length, tokenizer.template, tokenizer.pad_id)
    return {
        "input_ids": rows.input_ids,
        "attention_mask": rows.segment_ids,  # a single segment per row: 1 at text, 0 at padding
        "token_type_ids": rows.token_type_ids,
        "items": np.asarray(items, dtype=np.int64),
        **positions_read(windows, rows.first_positions),
    }


def _open_session(file: Path) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise needs_package("onnxruntime", "onnx").within(file=file) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    options.log_severity_level = 3  # errors
    providers: list[Any] = ["CPUExecutionProvider"]
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        providers.insert(0, ("CUDAExecutionProvider", {"use_tf32": 0}))  # full precision, like torch
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=providers)
    except Exception as error:  # the exceptions of onnxruntime have no common base class
        reason = " ".join(str(error).split())
        raise DomainbertError(f"ONNX Runtime cannot open it ({reason})", file=file) from error
