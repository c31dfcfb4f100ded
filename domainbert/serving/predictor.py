"""Load fine-tuned models in torch or ONNX Runtime, and compute logits of packed batches with a token budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from domainbert.base.errors import FINETUNED, NO_TASK_HEAD, DomainbertError
from domainbert.base.process import local_rank
from domainbert.data.packing import Example
from domainbert.encoders.families import build_model
from domainbert.encoders.family import shapes_only
from domainbert.encoders.heads import EncoderWithHead
from domainbert.models.folder import ModelFolder, open_model
from domainbert.models.loading import load_model
from domainbert.serving.onnx.decoders import find_decoder
from domainbert.serving.onnx.session import OnnxModel
from domainbert.tasks.packed_logits import packed_logits
from domainbert.tasks.predictor import Predictor
from domainbert.tasks.task import Task, task_from_model_folder
from domainbert.training.config import Precision
from domainbert.training.precision import autocast_dtype

_MIN_LENGTH = 3  # [CLS], a piece, [SEP]
_MAX_LABELS = 10  # in a message

AnyPredictor = TypeVar("AnyPredictor", bound=Predictor[Any])


class FineTuned:
    """A fine-tuned model that is ready to predict; for the arguments see `load_predictor`.

    Attributes:
        model: the torch model; for an exported model, its shapes on torch's meta device and the weights of the decoder.
        exported: the model for ONNX Runtime, or None.
        tokenizer, labels, config: as in `ModelFolder`.
        teachers: names of the models that it was distilled from.
        fields: content of its `config.json`.
        file: the model folder, or the ONNX file.
        max_length: tokens per window.
        device, dtype: where the model is, and its dtype under autocast; None for full precision.

    Raises:
        DomainbertError: the head has no weights; an exported model cannot use 16 bits; `max_length` is out of range.
    """

    exported: OnnxModel | None = None

    def __init__(self, folder: ModelFolder, task: Task[Any, Any], precision: Precision, max_length: int | None) -> None:
        positions = folder.config.max_length
        if max_length is not None and not _MIN_LENGTH <= max_length <= positions:
            raise DomainbertError(
                where="max_length",
                found=max_length,
                expected=f"{_MIN_LENGTH} to {positions}, the positions of the model",
            )
        if folder.onnx is not None and precision not in ("32-true", "auto"):
            raise DomainbertError(
                where="precision", found=precision, expected=f"32-true or auto: {folder.onnx} has a fixed precision"
            )
        if folder.onnx is None:
            self.model, _, new_weights = load_model(folder, task.head)
            has_head = not new_weights  # the folder has all weights, also of the head
        else:
            self.model = _model_without_weights(folder, task.head)
            has_head = folder.head == task.head
        if not has_head or not folder.labels:
            raise DomainbertError(NO_TASK_HEAD, file=folder.path, expected=FINETUNED)
        self.tokenizer, self.labels, self.config = folder.tokenizer(), folder.labels, folder.config
        self.teachers, self.fields, self.file = folder.teachers, folder.fields, folder.onnx or folder.path
        self.max_length = max_length or min(self.tokenizer.model_max_length or positions, positions)
        if folder.onnx is not None:
            self.device, self.dtype = torch.device("cpu"), None
            self.exported = OnnxModel(folder.onnx, self.tokenizer)
            return
        self.device = _device_of_process()
        self.dtype = None if task.scaling.full_precision else autocast_dtype(precision)
        self.model.to(self.device).eval()
        if self.dtype is not None:
            for module in self.model.encoder.modules():
                if isinstance(module, nn.Linear):  # casting at each call takes longer than a short text
                    module.to(self.dtype)

    def need_full_precision(self) -> None:
        """Raise `DomainbertError` if the model is exported or has 16 bits."""
        if self.exported is not None or self.dtype is not None:
            state = "exported for ONNX Runtime" if self.exported else "loaded with 16 bits"
            raise DomainbertError(
                state, file=self.file, hint="attention maps need load_predictor(MODEL_FOLDER, '32-true')"
            )

    def logits(self, examples: Sequence[Example]) -> Iterator[tuple[dict[str, Any], Tensor]]:
        """Yield each batch with the logits (N, labels) at its positions; batches are not in order.

        Raises:
            DomainbertError: some logits are not finite.
        """
        if self.exported is not None:
            batches = self.exported.logits(examples)
        else:
            batches = packed_logits(self.model, self.tokenizer, examples, self.device, self.dtype)
        for batch, logits in batches:
            if not logits.isfinite().all():
                remedy = "train or export the model again" if self.dtype is None else "try precision: 32-true"
                cause = f"the weights are damaged or too large: {remedy}"
                raise DomainbertError("the logits of the model are NaN or infinite", file=self.file, hint=cause)
            yield batch, logits


def _device_of_process() -> torch.device:
    """Return the device for models of this process: the CPU if there is no GPU, otherwise torch's current GPU. In the
    further processes of a distributed training (which load teachers), return the GPU of the process."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    rank = local_rank()
    return torch.device("cuda", rank % torch.cuda.device_count()) if rank else torch.device("cuda")


def _model_without_weights(folder: ModelFolder, head: str) -> EncoderWithHead:
    """Return the torch model of an exported folder without weights, except the weights of the decoder. `head` is built
    if config.json does not describe a head."""
    with shapes_only():
        model = build_model(folder.config, folder.vocabulary, folder.head_config or head, len(folder.labels))
    decoder = find_decoder(model.head, folder.labels)
    if decoder is not None:
        decoder.read(folder.path)
    return model


def load_predictor(
    path: Path | str | ModelFolder, precision: Precision = "auto", max_length: int | None = None
) -> Predictor[Any]:
    """Load and return the predictor of a fine-tuned model for any task.

    >>> from domainbert import load_predictor
    >>> load_predictor("classifier").labels, load_predictor("model").labels
    (('civil', 'criminal'), ('O', 'B-law', 'I-law'))

    Args:
        path: a model folder; a `finetune` folder, whose best seed is loaded; an exported folder, or an `.onnx` file in
            it; or a folder that is already open.
        precision: `auto` computes the encoder in bf16 on hardware with fast bf16; `32-true` is used by `evaluate`.
        max_length: tokens per window; None is the value of fine-tuning.

    Raises:
        DomainbertError: the folder has no model, or no head for a task; further errors as for `FineTuned`.
    """
    return load_as(Predictor, path, precision, max_length)


def load_as(
    cls: type[AnyPredictor], path: Path | str | ModelFolder, precision: Precision, max_length: int | None
) -> AnyPredictor:
    """Load and return the predictor of a fine-tuned model, with the arguments of `load_predictor`.

    Raise `DomainbertError` if the predictor is not an instance of `cls`.
    """
    folder = path if isinstance(path, ModelFolder) else open_model(Path(path))
    task = task_from_model_folder(folder)
    if not issubclass(task.predictor, cls):
        labels = ", ".join(folder.labels[:_MAX_LABELS])
        labels += ", ..." if len(folder.labels) > _MAX_LABELS else ""
        raise DomainbertError(
            f"is {task.predictor.kind} {labels}", file=folder.path, hint=f"load it with {task.predictor.loader}"
        )
    model = FineTuned(folder, task, precision, max_length)
    task.attach_head(model.model.head)
    return task.predictor(task, model)
