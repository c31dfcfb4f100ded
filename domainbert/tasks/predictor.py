"""Prediction with a fine-tuned model, whatever its task; `serving.predictor.load_predictor` makes one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from domainbert.data.examples import Example
from domainbert.encoders.heads import EncoderWithHead
from domainbert.labelled.contents import Content, as_contents
from domainbert.tokenization.load import DomainTokenizer

if TYPE_CHECKING:
    from domainbert.tasks.task import Task

Prediction = TypeVar("Prediction")


class Predictor(Generic[Prediction]):
    """A fine-tuned model that predicts.

    Attributes:
        runtime: the loaded model, in torch or in ONNX Runtime, see `serving.predictor.FineTuned`.
        model: the torch model; of an exported one only shapes.
        max_length: tokens of a window.
        labels: names of the outputs.
        on_predicted: is called with the number of texts whenever some more are predicted: progress, for example.
        kind: what it is, before the names of its outputs, and `loader` what reads it, for messages.
    """

    kind: ClassVar[str] = "a model with the outputs"
    loader: ClassVar[str] = "load_predictor"

    def __init__(self, task: Task[Any, Any], runtime: Any) -> None:
        self.task, self.runtime = task, runtime
        self.model: EncoderWithHead = runtime.model
        self.tokenizer: DomainTokenizer = runtime.tokenizer
        self.max_length: int = runtime.max_length
        self.labels: tuple[str, ...] = task.labels
        self.on_predicted: Callable[[int], object] | None = None

    def predict(self, texts: Iterable[Content] | Content) -> list[Prediction]:
        """The prediction for each text, or list of words; a single string is one text.

        Raises:
            DomainbertError: an item that is no content, see `as_contents`; or that the model cannot read.
        """
        return self._predict(as_contents(texts))

    def _predict(self, texts: Sequence[Content]) -> list[Prediction]:
        predicted = self._decoded(self.task.encode_contents(texts, self.tokenizer, self.max_length))
        return [predicted[number] for number in range(len(texts))]

    def as_json(self, prediction: Prediction) -> dict[str, Any]:
        """Return a prediction for a file; by default the fields of a dataclass."""
        return asdict(prediction)  # type: ignore[call-overload]

    def _decoded(self, examples: Sequence[Example], decode: Callable[..., list[Any]] | None = None) -> dict[int, Any]:
        """The prediction for each example that has outputs, by its number; None decodes as the task does."""
        decoded: dict[int, Any] = {}
        full = [number for number, example in enumerate(examples) if example.num_outputs]
        for batch, logits in self.runtime.logits([examples[number] for number in full]):
            found = (decode or self.task.decode)(logits, batch)
            decoded.update((full[item], one) for item, one in zip(batch["items"].tolist(), found, strict=True))
            if self.on_predicted is not None:
                self.on_predicted(len(found))
        return decoded
