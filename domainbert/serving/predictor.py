"""Fine-tuned models in torch or ONNX Runtime: texts packed, in batches by token budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from domainbert.base.errors import DomainbertError
from domainbert.base.ranks import local_rank
from domainbert.data.batches import LabelledBatches
from domainbert.data.examples import Example, collate
from domainbert.data.types import Share
from domainbert.encoders.families import build_model
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed
from domainbert.encoders.shapes import shapes_only
from domainbert.models.folder import ModelFolder, load_model, open_model
from domainbert.serving.onnx.decoders import decoder_of
from domainbert.serving.onnx.session import OnnxModel
from domainbert.serving.parts import Computed, compute_in_parts
from domainbert.tasks.predictor import Predictor
from domainbert.tasks.task import Task, task_of_folder
from domainbert.tokenization.load import DomainTokenizer
from domainbert.training.config import Precision
from domainbert.training.precision import autocast_dtype

_MAX_TOKENS, _MAX_TOKENS_ON_CPU = 8_192, 2_048  # of a batch; those of a CPU stay in its caches
_SHORTEST = 3  # [CLS], a piece, [SEP]
_SHOWN_LABELS = 10

AnyPredictor = TypeVar("AnyPredictor", bound=Predictor[Any])


class FineTuned:
    """A fine-tuned model, ready to compute; for the arguments see `load_predictor`.

    Attributes:
        model: the torch model; of an exported one, its shapes on torch's meta device and the numbers of what
            decodes.
        exported: the model that ONNX Runtime runs, if it is one.
        teachers: names of the models that it was distilled from, if any.
        fields: of its `config.json`.
        file: the model folder, or the ONNX file.

    Raises:
        DomainbertError: the head has no weights; 16 bits are wanted of an exported model; windows that the encoder
            cannot read.
    """

    exported: OnnxModel | None = None

    def __init__(self, folder: ModelFolder, task: Task[Any, Any], precision: Precision, max_length: int | None) -> None:
        if folder.onnx is None:
            self.model, _, made = load_model(folder, task.head)
        else:
            self.model, made = _shapes(folder, task.head), [] if folder.head == task.head else [task.head]
        if made or not folder.labels:
            raise DomainbertError(
                f"{folder.path}: no trained head for this task; expected a folder that finetune wrote"
            )
        self.tokenizer, self.labels, self.config = folder.tokenizer(), folder.labels, folder.config
        self.teachers, self.fields, self.file = folder.teachers, folder.fields, folder.onnx or folder.path
        positions = folder.config.max_length
        if max_length is not None and not _SHORTEST <= max_length <= positions:
            raise DomainbertError(f"max_length: found {max_length}; expected from {_SHORTEST} to {positions}, or None")
        self.max_length = max_length or min(self.tokenizer.model_max_length or positions, positions)
        self.device = _device_of_process()
        self.dtype = None if task.scaling.full_precision else autocast_dtype(precision)
        if folder.onnx is None:
            self.model.to(self.device).eval()
            if self.dtype is not None:
                for module in self.model.encoder.modules():
                    if isinstance(module, nn.Linear):  # autocast would cast it at each call: longer than a sentence
                        module.to(self.dtype)
            return
        if precision not in ("32-true", "auto"):
            raise DomainbertError(f"precision: {precision}; {folder.onnx} has its own, expected 32-true or auto")
        self.exported, self.device, self.dtype = OnnxModel(folder.onnx, self.tokenizer), torch.device("cpu"), None

    def need_gradients(self) -> None:
        """`DomainbertError` unless torch computes it in full precision: what explains it differentiates it."""
        if self.exported is not None or self.dtype is not None:
            found = "exported for ONNX Runtime" if self.exported else "loaded with 16 bits"
            raise DomainbertError(f"the model is {found}; expected a model in torch, loaded with precision 32-true")

    def logits(self, examples: Sequence[Example]) -> Iterator[tuple[dict[str, Any], Tensor]]:
        """For each batch the batch and the logits (N, labels) at its positions; batches are not in order.

        Raises:
            DomainbertError: some logits are not finite.
        """
        if self.exported is not None:
            batches = self.exported.logits(examples)
        else:
            batches = packed_logits(self.model, self.tokenizer, examples, self.device, self.dtype)
        for batch, logits in batches:
            if not logits.isfinite().all():
                remedy = "train or export it again" if self.dtype is None else "try precision: 32-true"
                cause = f"its weights are damaged or too large, {remedy}"
                raise DomainbertError(f"{self.file}: the model computes logits that are nan or inf; {cause}")
            yield batch, logits


def _device_of_process() -> torch.device:
    """A GPU of its own for each process of a training that asks teachers, as far as there are as many; torch's current
    one for a process alone; or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    rank = local_rank()
    return torch.device("cuda", rank % torch.cuda.device_count()) if rank else torch.device("cuda")


def packed_logits(
    model: EncoderWithHead,
    tokenizer: DomainTokenizer,
    examples: Sequence[Example],
    device: torch.device,
    dtype: torch.dtype | None = None,
) -> Iterator[tuple[dict[str, Any], Tensor]]:
    """For each packed batch the batch and the logits (N, C) at its positions; batches are not in order.

    A batch is yielded when the next one has been queued, so that a GPU computes while the caller decodes. The model is
    in eval mode, on the device. `dtype` is the `torch.autocast` dtype of its encoder, None full precision.
    """
    max_tokens = _MAX_TOKENS_ON_CPU if device.type == "cpu" else _MAX_TOKENS
    cast = torch.autocast(device.type, dtype) if dtype else nullcontext()

    def compute(items: Sequence[int], part: Sequence[Example]) -> Computed:
        batch = collate(part, items, tokenizer)
        moved = {name: _moved(torch.from_numpy(values), device) for name, values in batch.items()}
        with torch.inference_mode():
            with cast:
                states = model.head_input(Packed.of(moved), moved["positions"])
            return moved, model.read(states.float())  # logits rounded to 8 bits would change labels

    queued: list[Computed] = []
    for items in LabelledBatches(examples, tokenizer, max_tokens, Share()).batches:
        queued.append(compute_in_parts(partial(compute, items), [examples[item] for item in items], max_tokens))
        if len(queued) > 1:
            yield queued.pop(0)
    yield from queued


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device; a copy from pinned memory does not wait for what a GPU still computes."""
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def _shapes(folder: ModelFolder, head: str) -> EncoderWithHead:
    """The model of an exported folder without its weights, but with what decodes."""
    with shapes_only():
        model = build_model(folder.config, folder.vocabulary, folder.head_config or head, len(folder.labels))
    decoder = decoder_of(model.head, folder.labels)
    if decoder is not None:
        decoder.read(folder.path)
    return model


def load_predictor(
    path: Path | str | ModelFolder, precision: Precision = "auto", max_length: int | None = None
) -> Predictor[Any]:
    """Load the predictor of a fine-tuned model, whatever its task.

    >>> from domainbert import load_predictor
    >>> load_predictor("classifier").labels, load_predictor("model").labels
    (('civil', 'criminal'), ('O', 'B-law', 'I-law'))

    Args:
        path: a model folder, or a `finetune` folder, whose best seed is taken; also an exported folder, or an `.onnx`
            file in one; or a folder that is open already.
        precision: `auto` computes the encoder in bf16 on hardware with fast bf16; `32-true` as `evaluate` does.
        max_length: tokens of a window; None takes what it was fine-tuned with.

    Raises:
        DomainbertError: no model folder, or one without a head for a task; or see `FineTuned`.
    """
    return load_kind(Predictor, path, precision, max_length)


def load_kind(
    kind: type[AnyPredictor], path: Path | str | ModelFolder, precision: Precision, max_length: int | None
) -> AnyPredictor:
    """As `load_predictor`; a folder with a model of another kind is refused by a `DomainbertError` that names it."""
    folder = path if isinstance(path, ModelFolder) else open_model(Path(path))
    task = task_of_folder(folder)
    if not issubclass(task.predictor, kind):
        labels = ", ".join(folder.labels[:_SHOWN_LABELS]) + (", ..." if len(folder.labels) > _SHOWN_LABELS else "")
        raise DomainbertError(f"{folder.path}: is {task.predictor.kind} {labels}; {task.predictor.loader} reads it")
    model = FineTuned(folder, task, precision, max_length)
    task.attach_head(model.model.head)
    return task.predictor(task, model)
