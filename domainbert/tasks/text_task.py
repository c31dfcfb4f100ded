"""Base class of tasks on whole texts or pairs of texts; logits are averaged over the windows of a long text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from typing_extensions import Self, override

from domainbert.base.errors import DomainbertError
from domainbert.base.fields import read_field
from domainbert.data.examples import pair_example, text_example
from domainbert.data.packing import IGNORE_INDEX, Example, room_for_text
from domainbert.encoders.head_config import HeadConfig
from domainbert.labelled.contents import Content, TextPair, UnreadableContents, map_contents, text_in, text_of
from domainbert.labelled.items import Item as LabelledItem
from domainbert.tasks.capabilities import Inputs
from domainbert.tasks.config import TASK_KEY
from domainbert.tasks.task import Batch, Prediction, Task
from domainbert.tokenization.align import align_text
from domainbert.tokenization.load import DomainTokenizer

Item = TypeVar("Item", bound=LabelledItem)

_PAIR_KEY = "domainbert_text_pair_key"  # key of config.json
_DEFAULT_PAIR_KEY = "text_pair"  # in rows to predict
_SINGLE, _PAIRS = "single texts", "pairs of texts"  # kinds of content, see `Inputs.kinds`


class TextInputs(Inputs["TextTask[Any, Any]"]):
    """Single texts or pairs of texts."""

    @override
    def kinds(self, task: TextTask[Any, Any]) -> tuple[str, ...]:
        if task.reads_both_kinds:
            return _SINGLE, _PAIRS
        return (_SINGLE,) if task.pair_key is None else (_PAIRS,)

    @override
    def content_of(self, task: TextTask[Any, Any], row: Mapping[str, Any], text_key: str) -> Content:
        """Return the text of a row, or the pair of texts if the row has a second text.

        Raise `DomainbertError` for a single text or a pair that the model cannot read.
        """
        first = text_of(row, text_key)
        pair_key = task.pair_key or _DEFAULT_PAIR_KEY
        second = row.get(pair_key)
        is_pair = isinstance(second, str)
        readable = self.kinds(task)
        if (_PAIRS if is_pair else _SINGLE) not in readable:
            found, expected = ("a second text", "none") if is_pair else ("no string", "the second text")
            raise DomainbertError(
                f"{found} under {pair_key!r}", expected=f"{expected}, as the model reads {readable[0]}"
            )
        return TextPair(first, str(second)) if is_pair else first

    @override
    def call(self, task: TextTask[Any, Any]) -> str:
        return super().call(task) if task.pair_key is None else 'predict([TextPair("A text.", "Another text.")])'


class TextTask(Task[Item, Prediction]):
    """A task with a linear head on the pooled state of a text.

    Attributes:
        pair_key: key of the second text in a row to predict; None if the model reads single texts.
        reads_both_kinds: whether the model accepts single texts and pairs, as its folder is not from domainbert.
    """

    head = "sequence"
    loss_divisor = "num_examples"
    inputs: ClassVar[Inputs[Any]] = TextInputs()
    pair_key: str | None = None
    reads_both_kinds: bool = False

    @classmethod
    @override
    def from_labels(cls, config: Any, labels: Sequence[str]) -> Self:
        task = super().from_labels(config, labels)
        # both settings are None in tasks without them
        task.pair_key = getattr(config.reading, "text_pair_key", None)
        task.head_config = HeadConfig(cls.head, pooling=getattr(config, "pooling", None))
        return task

    @classmethod
    @override
    def from_model_folder(cls, labels: Sequence[str], fields: Mapping[str, Any]) -> Self:
        task = super().from_model_folder(labels, fields)
        task.pair_key = read_field(fields, _PAIR_KEY, str | None)
        task.reads_both_kinds = TASK_KEY not in fields  # other libraries do not record whether texts are pairs
        return task

    @override
    def model_config_fields(self, scores: Mapping[str, float]) -> dict[str, Any]:
        return {} if self.pair_key is None else {_PAIR_KEY: self.pair_key}

    @abstractmethod
    def target(self, item: Item) -> ArrayLike:
        """Return the target of a text for the loss: a number, or an array with the same shape for all texts."""

    @property
    def unlabelled_target(self) -> ArrayLike:
        """Return the target of a text without labels, which the loss must ignore."""
        return IGNORE_INDEX

    @override
    def encode(self, items: Sequence[Item], tokenizer: DomainTokenizer, max_length: int) -> list[Example]:
        """Return labelled texts or pairs as token ids, each with its target."""
        targets = [self.target(item) for item in items]
        return self._encode([item.content for item in items], targets, tokenizer, max_length)

    @override
    def encode_contents(
        self, contents: Sequence[Content], tokenizer: DomainTokenizer, max_length: int
    ) -> list[Example]:
        """Return contents as token ids, for prediction; lists of words are joined by spaces."""
        return self._encode(contents, [self.unlabelled_target] * len(contents), tokenizer, max_length)

    def targets(self, batch: Batch) -> Tensor:
        """Return the targets (E, ...) of the texts of a batch; all windows of a text have the same target."""
        window_targets: Tensor = batch["targets"]
        zeros = window_targets.new_zeros(len(batch["items"]), *window_targets.shape[1:])
        return zeros.index_copy(0, batch["example"], window_targets)

    def _encode(
        self, contents: Sequence[Content], targets: Sequence[Any], tokenizer: DomainTokenizer, max_length: int
    ) -> list[Example]:
        self._check_contents(contents)
        texts = [_texts(content) for content in contents]
        aligned = iter(align_text(tokenizer, list(chain(*texts))))  # all texts in one call, which is faster
        has_pairs = any(len(text_or_pair) > 1 for text_or_pair in texts)
        num_special = tokenizer.template.num_special_tokens(pair=True) if has_pairs else 0
        room_for_text(max_length, num_special)  # raises an error of the settings before the errors of pairs

        def encode(text_or_pair: tuple[str, ...], target: NDArray[Any]) -> Example:
            if len(text_or_pair) == 1:
                return text_example(next(aligned), target, max_length)
            # the two texts of a pair are adjacent in `aligned`
            return pair_example(next(aligned), next(aligned), target, max_length, num_special)

        return map_contents(encode, texts, map(np.asarray, targets))

    def _check_contents(self, contents: Sequence[Content]) -> None:
        kinds = [_PAIRS if isinstance(content, TextPair) else _SINGLE for content in contents]
        readable = self.inputs.kinds(self)
        unreadable = [index for index, kind in enumerate(kinds) if kind not in readable]
        if unreadable:
            found = "a single text" if _PAIRS in readable else "a pair of texts"
            wrong = DomainbertError(found=found, expected=f"{readable[0]} for this model")
            raise UnreadableContents(dict.fromkeys(unreadable, wrong))


def _texts(content: Content) -> tuple[str, ...]:
    if isinstance(content, TextPair):
        return content.first, content.second
    return (text_in(content),)
