"""Base class of predictors; `serving.predictor.load_predictor` returns one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from domainbert.data.packing import Example
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
        model: the torch model; only shapes for an exported model.
        max_length: window length in tokens.
        labels: names of the outputs.
        on_predicted: callback with the number of texts of each predicted batch, for a progress bar.
        kind, loader: description before the output names, and name of the function that loads it, for messages.
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

    @classmethod
    def usage(cls, task: Task[Any, Any]) -> str:
        """Return Python code for a model card that, run in the model folder, loads the model and predicts."""
        call = task.inputs.call(task)
        names = f"TextPair, {cls.loader}" if "TextPair(" in call else cls.loader
        return f'from domainbert import {names}\n\nprint({cls.loader}(".").{call})'

    def predict(self, texts: Iterable[Content] | Content) -> list[Prediction]:
        """Return a prediction for each text or list of words; a string is a single text.

        Raises:
            DomainbertError: an item that is not a content, see `as_contents`, or that the model cannot read.
        """
        return self._predict(as_contents(texts))

    def _predict(self, texts: Sequence[Content]) -> list[Prediction]:
        # `predict` has validated the contents
        predicted = self._decode_examples(self.task.encode_contents(texts, self.tokenizer, self.max_length))
        # in the order of the texts; an example of a text always has an output
        return [predicted[index] for index in range(len(texts))]

    def as_json(self, prediction: Prediction) -> dict[str, Any]:
        """Return a prediction as a JSON object; by default the fields of a dataclass."""
        return asdict(prediction)  # type: ignore[call-overload]

    def _decode_examples(
        self, examples: Sequence[Example], decode: Callable[..., list[Any]] | None = None
    ) -> dict[int, Any]:
        """Return predictions by index of the example; an example without outputs, such as an empty sentence, has none.
        `decode` returns the predictions for logits and a batch; None takes `task.decode`."""
        decoded: dict[int, Any] = {}
        with_outputs = [index for index, example in enumerate(examples) if example.num_outputs]
        for batch, logits in self.runtime.logits([examples[index] for index in with_outputs]):
            predictions = (decode or self.task.decode)(logits, batch)
            for item, prediction in zip(batch["items"].tolist(), predictions, strict=True):
                decoded[with_outputs[item]] = prediction  # items are counted among the examples with outputs
            if self.on_predicted is not None:
                self.on_predicted(len(predictions))
        return decoded
