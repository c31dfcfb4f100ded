"""Cost of a fine-tuned model: its size, and its speed on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from domainbert.labelled.contents import Content, words_of_content
from domainbert.models.folder import ModelFolder, open_model
from domainbert.tasks.predictor import Predictor
from domainbert.tokenization.report import word_statistics, words_of

_TEXTS = 512  # of the test set: enough for a rate
_REPEATS = 3
_SECONDS = 10.0  # for each measurement, about: of a large model on a slow machine fewer texts, less often
_PREDICTIONS = {1: 32, 32: 8}  # texts at once: how often they are predicted

Contents = Sequence[Content]


@dataclass(frozen=True)
class Cost:
    """Of one model; rates and latencies are medians, in full precision, on the device of the evaluation."""

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


def measure_costs(models: Sequence[tuple[Predictor[Any], Path | ModelFolder]], contents: Contents) -> list[Cost]:
    """Measure models and the folders that they were loaded from, which may be ONNX files, on what a test set has.

    Speed is measured on the first 512 texts, or as many as take the slowest model some seconds; texts without words are
    left out. The models take turns, so that other work on the machine slows down all of them.
    """
    texts = [content for content in contents if words_of_content(content)][:_TEXTS]
    predicts = [predictor.predict for predictor, _ in models]
    for predict in predicts:
        predict(texts[:1])  # what is allocated once is not measured
    latency_32 = _medians(predicts, _slices(texts, 32))
    many = texts[: max(32, int(32 * _SECONDS / max(latency_32)))]
    num_words = sum(len(words_of_content(content)) for content in many)
    seconds, latency_1 = _medians(predicts, [many] * _REPEATS), _medians(predicts, _slices(texts, 1))
    words = words_of(chain.from_iterable(map(words_of_content, contents)))
    return [
        Cost(
            parameters=sum(parameter.numel() for parameter in predictor.model.parameters()),
            folder_bytes=_folder_bytes(folder),
            pieces_per_word=word_statistics(predictor.tokenizer, words).pieces_per_word,
            words_per_second=num_words / seconds[number],
            latency_1=latency_1[number],
            latency_32=latency_32[number],
        )
        for number, (predictor, folder) in enumerate(models)
    ]


def _folder_bytes(folder: Path | ModelFolder) -> int:
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


def _medians(predicts: Sequence[Callable[[Contents], Any]], inputs: Sequence[Contents]) -> list[float]:
    """Seconds of a prediction of each model, in turns, of as many of the inputs as the slowest is done with within
    `_SECONDS`, and of the first in any case."""
    seconds: list[list[float]] = []
    for texts in inputs:
        seconds.append([_seconds(predict, texts) for predict in predicts])
        if max(map(sum, zip(*seconds, strict=True))) >= _SECONDS:
            break
    return [median(of_model) for of_model in zip(*seconds, strict=True)]


def _seconds(predict: Callable[[Contents], Any], texts: Contents) -> float:
    start = time.perf_counter()
    predict(texts)
    return time.perf_counter() - start
