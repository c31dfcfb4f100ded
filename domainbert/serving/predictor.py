"""Prediction with a model folder: words, raw text or whole texts, packed, in batches by token budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from domainbert.base.errors import DomainbertError
from domainbert.data.batches import LabelledBatches
from domainbert.data.examples import Example, encode_words, text_example
from domainbert.data.types import IGNORED, Share
from domainbert.encoders.crf import crf_of
from domainbert.encoders.families import build_model
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed
from domainbert.encoders.shapes import shapes_only
from domainbert.models.folder import ModelFolder, load_model, open_model
from domainbert.serving.onnx.session import OnnxModel
from domainbert.serving.onnx.transitions import read_crf
from domainbert.tasks.decoding import decode_words, iob2_field, mean_over_windows
from domainbert.tasks.ner.tags import spans_from_tags, to_iob2, trained_as_iob2
from domainbert.tokenization.align import align_text, align_words
from domainbert.tokenization.load import DomainTokenizer
from domainbert.training.config import Precision
from domainbert.training.precision import autocast_dtype

_MAX_TOKENS = 8_192
_SHOWN_LABELS = 10
_SHORTEST = 3  # [CLS], a piece, [SEP]


@dataclass(frozen=True)
class Entity:
    """An entity in a text.

    Attributes:
        start: first character.
        end: character after the last.
        type: entity type.
        text: the characters from `start` to `end`.
        score: mean probability of the labels of its words.
    """

    start: int
    end: int
    type: str
    text: str
    score: float


@dataclass(frozen=True)
class TextPrediction:
    """The class of a text, and the probability of every class."""

    label: str
    scores: dict[str, float]


class Predictor:
    """A fine-tuned model that predicts. `Tagger` and `Classifier` are the two kinds.

    Args:
        path: a model folder, or a `finetune` folder, whose best seed is taken; also an exported folder, or an `.onnx`
            file in one.
        head: kind of head the task has.
        precision: `32-true` gives the numbers of training's evaluation; `auto` is faster where bf16 is. An exported
            model has its own.
        max_length: tokens of a window; None takes what it was fine-tuned with.

    Attributes:
        model: the torch model; of an exported one, its shapes on torch's meta device and the numbers of a random field.
        exported: the model that ONNX Runtime runs, if it is one.
        teachers: names of the models that it was distilled from, if any.

    Raises:
        DomainbertError: no model folder, or one with another head; 16 bits are wanted of an exported model; windows
            that the encoder cannot read.
    """

    exported: OnnxModel | None = None

    def __init__(self, path: Path, head: str, precision: Precision = "32-true", max_length: int | None = None) -> None:
        folder = open_model(path)
        _check_kind(folder, head)
        if folder.onnx is None:
            self.model, folder, made = load_model(path, head)
        else:
            self.model, made = _shapes(folder, head), [head] if folder.head != head else []
        if made or not folder.labels:
            raise DomainbertError(
                f"{folder.path}: no trained head for this task; expected a folder that finetune wrote"
            )
        self.tokenizer, self.labels, self.config = folder.tokenizer(), folder.labels, folder.config
        self.teachers = folder.teachers
        positions = folder.config.max_length
        usual = min(self.tokenizer.model_max_length or positions, positions)
        if max_length is not None and not _SHORTEST <= max_length <= positions:
            raise DomainbertError(f"max_length: found {max_length}; expected from {_SHORTEST} to {positions}, or None")
        self.max_length = usual if max_length is None else max_length
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.dtype = autocast_dtype(precision)
        if folder.onnx is None:
            self.model.to(self.device).eval()
            if self.dtype is not None:
                _keep_cast(self.model, self.dtype)
            return
        if precision not in ("32-true", "auto"):
            raise DomainbertError(f"precision: {precision}; {folder.onnx} has its own, expected 32-true or auto")
        self.exported, self.device, self.dtype = OnnxModel(folder.onnx, self.tokenizer), torch.device("cpu"), None

    def logits(self, examples: Sequence[Example]) -> Iterator[tuple[dict[str, Any], Tensor]]:
        """For each batch the batch and the logits (N, labels) at its positions; batches are not in order."""
        if self.exported is not None:
            return self.exported.logits(examples)
        return packed_logits(self.model, self.tokenizer, examples, self.device, self.dtype)


def packed_logits(
    model: EncoderWithHead,
    tokenizer: DomainTokenizer,
    examples: Sequence[Example],
    device: torch.device,
    dtype: torch.dtype | None = None,
) -> Iterator[tuple[dict[str, Any], Tensor]]:
    """For each packed batch the batch and the logits (N, C) at its positions; batches are not in order.

    Args:
        model: in eval mode, on the device.
        tokenizer: for the ids of the special tokens.
        examples: what is read.
        device: where it computes.
        dtype: of `torch.autocast`; None is full precision.
    """
    batches = LabelledBatches(examples, tokenizer, _MAX_TOKENS, Share())
    cast = torch.autocast(device.type, dtype) if dtype else nullcontext()
    for number in range(len(batches)):
        moved = {name: torch.from_numpy(values).to(device) for name, values in batches[number].items()}
        with torch.inference_mode(), cast:
            logits = model(Packed.of(moved), moved["positions"])
        yield moved, logits


def _keep_cast(model: nn.Module, dtype: torch.dtype) -> None:
    """Keep linear layers as autocast would cast them at each call, which takes longer than a sentence."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.to(dtype)


def _check_kind(folder: ModelFolder, head: str) -> None:
    """`DomainbertError` where a folder holds a model of the other kind, which it names."""
    is_classifier, wants_classifier = folder.head == "sequence", head == "sequence"
    if folder.head not in ("tokens", "crf", "sequence") or is_classifier == wants_classifier:
        return
    labels = ", ".join(folder.labels[:_SHOWN_LABELS]) + (", ..." if len(folder.labels) > _SHOWN_LABELS else "")
    found = "a classifier with the classes" if is_classifier else "a tagger with the labels"
    reader = "load_classifier" if is_classifier else "load_tagger"
    raise DomainbertError(f"{folder.path}: is {found} {labels}; {reader} reads it")


def _shapes(folder: ModelFolder, head: str) -> EncoderWithHead:
    """The model of an exported folder without its weights, but with the random field that decodes."""
    with shapes_only():
        model = build_model(folder.config, folder.vocabulary, head, len(folder.labels))
    if head == "crf":
        model.head.crf = read_crf(folder.path, folder.labels)
    return model


class Tagger(Predictor):
    """Finds entities in words or in raw text."""

    task: Literal["ner"] = "ner"

    def __init__(self, path: Path, precision: Precision = "32-true", max_length: int | None = None) -> None:
        folder = open_model(path)
        super().__init__(path, "crf" if folder.head == "crf" else "tokens", precision, max_length)
        self.num_repaired = 0
        self.crf = crf_of(self.model.head)
        self.valid = iob2_field(self.labels) if trained_as_iob2(folder.fields) else None
        if self.crf is not None:
            self.crf.constrain(self.labels)

    def predict_words(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        """IOB2 tags of words.

        A folder that `finetune` wrote is decoded into valid tags. One from elsewhere may have another tag scheme, so
        there the best label of each word is read as conlleval reads it: an I-X that nothing begins becomes B-X, and
        `num_repaired` counts those of the last call.
        """
        aligned = align_words(self.tokenizer, sentences)
        raw = [tags for tags, _ in self._tag(encode_words(aligned, None, self.labels, self.max_length))]
        valid = [to_iob2(tags) for tags in raw]
        self.num_repaired = sum(a != b for x, y in zip(raw, valid, strict=True) for a, b in zip(x, y, strict=True))
        return valid

    def predict_entities(self, texts: Sequence[str]) -> list[list[Entity]]:
        """The entities of raw texts, whose words are the tokenizer's pre-tokens."""
        aligned = align_text(self.tokenizer, texts)
        tagged = self._tag(encode_words(aligned, None, self.labels, self.max_length))
        return [
            [_entity(text, words.word_offsets, span, scores) for span in spans_from_tags(tags)]
            for text, words, (tags, scores) in zip(texts, aligned, tagged, strict=True)
        ]

    def predict_spans(self, sentences: Sequence[Sequence[str]]) -> list[list[Entity]]:
        """The entities of words; offsets count characters of the words joined by single spaces."""
        tagged = self._tag(encode_words(align_words(self.tokenizer, sentences), None, self.labels, self.max_length))
        return [
            [_entity(" ".join(words), _joined_offsets(words), span, scores) for span in spans_from_tags(tags)]
            for words, (tags, scores) in zip(sentences, tagged, strict=True)
        ]

    def _tag(self, examples: Sequence[Example]) -> list[tuple[list[str], list[float]]]:
        tagged: list[tuple[list[str], list[float]]] = [([], [])] * len(examples)
        full = [number for number, example in enumerate(examples) if example.num_outputs]
        for batch, logits in self.logits([examples[number] for number in full]):
            decoded = decode_words(logits, batch, self.crf, self.valid)
            for item, (ids, scores) in zip(batch["items"].tolist(), decoded, strict=True):
                tagged[full[item]] = ([self.labels[label] for label in ids.tolist()], scores.tolist())
        return tagged


class Classifier(Predictor):
    """Gives texts a class."""

    task: Literal["classification"] = "classification"

    def __init__(self, path: Path, precision: Precision = "32-true", max_length: int | None = None) -> None:
        super().__init__(path, "sequence", precision, max_length)

    def predict_texts(self, texts: Sequence[str]) -> list[TextPrediction]:
        """The class of each text."""
        examples = [text_example(words, IGNORED, self.max_length) for words in align_text(self.tokenizer, texts)]
        predictions: dict[int, TextPrediction] = {}
        for batch, logits in self.logits(examples):
            scores = torch.softmax(mean_over_windows(logits, batch), dim=-1).tolist()
            for item, values in zip(batch["items"].tolist(), scores, strict=True):
                label = self.labels[int(np.argmax(values))]
                predictions[item] = TextPrediction(label, dict(zip(self.labels, values, strict=True)))
        return [predictions[number] for number in range(len(texts))]


def load_tagger(path: Path | str, precision: Precision = "32-true") -> Tagger:
    """A model folder with a token head; see `Tagger`."""
    return Tagger(Path(path), precision)


def load_classifier(path: Path | str, precision: Precision = "32-true") -> Classifier:
    """A model folder with a sequence head; see `Classifier`."""
    return Classifier(Path(path), precision)


def load_predictor(path: Path | str, precision: Precision = "32-true") -> Tagger | Classifier:
    """Whichever of the two the folder holds; `DomainbertError` if it holds neither."""
    head = open_model(Path(path)).head
    if head in ("tokens", "crf"):
        return load_tagger(path, precision)
    if head == "sequence":
        return load_classifier(path, precision)
    raise DomainbertError(f"{path}: the model has no head for entities or classes; expected one that finetune wrote")


def _joined_offsets(words: Iterable[str]) -> list[tuple[int, int]]:
    offsets, start = [], 0
    for word in words:
        offsets.append((start, start + len(word)))
        start += len(word) + 1
    return offsets


def _entity(
    text: str, offsets: Sequence[tuple[int, int]], span: tuple[int, int, str], scores: Sequence[float]
) -> Entity:
    first, last, kind = span
    start, end = offsets[first][0], offsets[last - 1][1]
    return Entity(start, end, kind, text[start:end], sum(scores[first:last]) / (last - first))
