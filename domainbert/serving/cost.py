"""Measure the cost of a fine-tuned model: its size, and its speed on this machine."""

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
from domainbert.tokenization.report import count_words_of_texts, word_statistics

_TEXTS = 512  # texts of the test set on which the speed is measured
_REPEATS = 3
_SECONDS = 10.0  # approximate limit of a measurement; slow models predict fewer texts
_PREDICTIONS = {1: 32, 32: 8}  # batch size: number of predictions

Contents = Sequence[Content]


@dataclass(frozen=True)
class Cost:
    """Cost of a model. Rates and latencies are medians, in full precision, on the device of the evaluation."""

    parameters: int
    folder_bytes: int
    """Size of all files in the model folder, but only of the ONNX file that is used."""
    pieces_per_word: float
    """Tokens per word of the test set, without punctuation, as in a vocabulary report."""
    words_per_second: float
    """Throughput on many texts."""
    latency_1: float
    """Seconds for a single text."""
    latency_32: float
    """Seconds for a batch of 32 texts."""


def measure_costs(models: Sequence[tuple[Predictor[Any], Path | ModelFolder]], contents: Contents) -> list[Cost]:
    """Measure models on the contents of a test set, and return one `Cost` per model. Each model comes with its folder,
    which may be an ONNX file.

    Speed is measured on the first 512 texts, or on fewer if the slowest model needs more than some seconds; texts
    without words are left out. The models take turns, so that other load on the machine slows down all of them.
    """
    texts = [content for content in contents if words_of_content(content)][:_TEXTS]
    predicts = [predictor.predict for predictor, _ in models]
    for predict in predicts:
        predict(texts[:1])  # warm up: allocations at the first call are not measured
    latency_32 = _median_seconds(predicts, _slices(texts, 32))
    # so many texts that the slowest model needs about `_SECONDS` for them
    many = texts[: max(32, int(32 * _SECONDS / max(latency_32)))]
    num_words = sum(len(words_of_content(content)) for content in many)
    seconds = _median_seconds(predicts, [many] * _REPEATS)
    latency_1 = _median_seconds(predicts, _slices(texts, 1))
    words = count_words_of_texts(chain.from_iterable(map(words_of_content, contents)))
    return [
        Cost(
            parameters=sum(parameter.numel() for parameter in predictor.model.parameters()),
            folder_bytes=_folder_bytes(folder),
            pieces_per_word=word_statistics(predictor.tokenizer, words).pieces_per_word,
            words_per_second=num_words / seconds[index],
            latency_1=latency_1[index],
            latency_32=latency_32[index],
        )
        for index, (predictor, folder) in enumerate(models)
    ]


def _folder_bytes(folder: Path | ModelFolder) -> int:
    """Return the size of the files in a model folder; of several ONNX files only the one that is used counts."""
    opened = open_model(folder)
    files = [path for path in opened.path.iterdir() if path.is_file()]
    if opened.onnx is not None:
        files = [path for path in files if path.suffix != ".onnx" or path.name == opened.onnx.name]
    return sum(path.stat().st_size for path in files)


def _slices(texts: Contents, size: int) -> list[Contents]:
    """Return the inputs of `_PREDICTIONS[size]` predictions, each `size` consecutive texts. If there are few texts, the
    inputs begin again from the first text."""
    num_starts = max(len(texts) - size + 1, 1)
    starts = [index * size % num_starts for index in range(_PREDICTIONS[size])]
    return [texts[start : start + size] for start in starts]


def _median_seconds(predicts: Sequence[Callable[[Contents], Any]], inputs: Sequence[Contents]) -> list[float]:
    """Return the median seconds per prediction of each model, over `inputs`.

    Stop after an input if a model has taken `_SECONDS` in total, so that each model predicts at least one input.
    """
    seconds_by_model: list[list[float]] = [[] for _ in predicts]
    for texts in inputs:
        for seconds, predict in zip(seconds_by_model, predicts, strict=True):
            seconds.append(_seconds(predict, texts))
        if max(map(sum, seconds_by_model)) >= _SECONDS:
            break
    return list(map(median, seconds_by_model))


def _seconds(predict: Callable[[Contents], Any], texts: Contents) -> float:
    start = time.perf_counter()
    predict(texts)
    return time.perf_counter() - start
