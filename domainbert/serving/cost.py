"""Cost of a fine-tuned model: its size, and its speed on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from domainbert.models.folder import open_model
from domainbert.tasks.labelled import Content, words_of_content
from domainbert.tasks.predictor import Predictor
from domainbert.tokenization.report import word_statistics, words_of

_TEXTS = 512  # of the test set: enough for a rate
_REPEATS = 3
_SECONDS = 10.0  # for each measurement, about: of a large model on a slow machine fewer texts, less often
_PREDICTIONS = {1: 32, 32: 8}  # texts at once: how often they are predicted

Contents = Sequence[Content]


@dataclass(frozen=True)
class Cost:
    """Of one model; rates and latencies are medians, in full precision, on the device that evaluation used."""

    parameters: int
    folder_bytes: int
    """Of the files in the model folder; of several ONNX files there, the one that is used."""
    pieces_per_word: float
    """Tokens the vocabulary takes for a word of the whole test set, punctuation apart: as in a vocabulary report."""
    words_per_second: float
    """Over many texts."""
    latency_1: float
    """Seconds for one text alone."""
    latency_32: float
    """Seconds for 32 texts at once."""


def measure_cost(predictor: Predictor[Any], folder: Path, contents: Contents) -> Cost:
    """Measure a model on what a test set has it read, its speed on the first 512, or as many as take some seconds.

    It was loaded from `folder`, which may be an ONNX file. What has no words is left out.
    """
    statistics = word_statistics(predictor.tokenizer, words_of(chain.from_iterable(map(words_of_content, contents))))
    texts, predict = [content for content in contents if words_of_content(content)][:_TEXTS], predictor.predict
    predict(texts[:1])  # what is allocated once is not measured
    latency_32 = _median(predict, _slices(texts, 32))
    many = texts[: max(32, int(32 * _SECONDS / latency_32))]
    num_words = sum(len(words_of_content(content)) for content in many)
    return Cost(
        parameters=sum(parameter.numel() for parameter in predictor.model.parameters()),
        folder_bytes=_folder_bytes(folder),
        pieces_per_word=statistics.pieces_per_word,
        words_per_second=num_words / _median(predict, [many] * _REPEATS),
        latency_1=_median(predict, _slices(texts, 1)),
        latency_32=latency_32,
    )


def _folder_bytes(folder: Path) -> int:
    """The size of a model folder; of an exported one without the ONNX files that are not used."""
    opened = open_model(folder)
    files = [path for path in opened.path.iterdir() if path.is_file()]
    if opened.onnx is not None:
        files = [path for path in files if path.suffix != ".onnx" or path.name == opened.onnx.name]
    return sum(path.stat().st_size for path in files)


def _slices(texts: Contents, size: int) -> list[Contents]:
    """Some places to take `size` texts from, over and over where there are few."""
    places = max(len(texts) - size + 1, 1)
    starts = [number * size % places for number in range(_PREDICTIONS[size])]
    return [texts[start : start + size] for start in starts]


def _median(predict: Callable[[Contents], Any], inputs: Sequence[Contents]) -> float:
    """Seconds of a prediction, of as many of the inputs as are done within `_SECONDS`, and of the first in any case."""
    seconds: list[float] = []
    for texts in inputs:
        start = time.perf_counter()
        predict(texts)
        seconds.append(time.perf_counter() - start)
        if sum(seconds) >= _SECONDS:
            break
    return median(seconds)
