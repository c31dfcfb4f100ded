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
_ROUNDS = 3  # of a measurement, with the same texts
_SECONDS = 10.0  # approximate limit of a measurement; slow models predict fewer texts
_PREDICTIONS = {1: 11, 32: 3}  # batch size: number of predictions in a round

Contents = Sequence[Content]


@dataclass(frozen=True)
class Cost:
    """Cost of a model. Rates and latencies are medians of rounds in full precision on the device of the evaluation."""

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
    spread: float = 0.0
    """Largest deviation of a round from the median, as a share of the median: large on a busy machine."""


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
    # seconds of each round, by model: for 32 texts, for many texts, for one text
    rounds_32 = _round_seconds(predicts, _slices(texts, 32))
    seconds_of_slowest = max(map(median, rounds_32))
    many = texts[: max(32, int(32 * _SECONDS / seconds_of_slowest))]  # which take the slowest model about `_SECONDS`
    rounds_many = _round_seconds(predicts, [many])
    rounds_1 = _round_seconds(predicts, _slices(texts, 1))
    num_words = sum(len(words_of_content(content)) for content in many)
    word_counts = count_words_of_texts(chain.from_iterable(map(words_of_content, contents)))
    return [
        Cost(
            parameters=sum(parameter.numel() for parameter in predictor.model.parameters()),
            folder_bytes=_folder_bytes(folder),
            pieces_per_word=word_statistics(predictor.tokenizer, word_counts).pieces_per_word,
            words_per_second=num_words / median(seconds_many),
            latency_1=median(seconds_1),
            latency_32=median(seconds_32),
            spread=max(map(_spread, (seconds_many, seconds_1, seconds_32))),
        )
        for (predictor, folder), seconds_many, seconds_1, seconds_32 in zip(
            models, rounds_many, rounds_1, rounds_32, strict=True
        )
    ]


def _spread(seconds: Sequence[float]) -> float:
    return max(abs(value / median(seconds) - 1) for value in seconds)


def _folder_bytes(folder: Path | ModelFolder) -> int:
    # of several ONNX files only the file that is used counts
    opened = open_model(folder)
    files = [path for path in opened.path.iterdir() if path.is_file()]
    if opened.onnx is not None:
        files = [path for path in files if path.suffix != ".onnx" or path.name == opened.onnx.name]
    return sum(path.stat().st_size for path in files)


def _slices(texts: Contents, size: int) -> list[Contents]:
    """Return `_PREDICTIONS[size]` inputs of `size` consecutive texts each; few texts are used several times."""
    num_starts = max(len(texts) - size + 1, 1)
    starts = [index * size % num_starts for index in range(_PREDICTIONS[size])]
    return [texts[start : start + size] for start in starts]


def _round_seconds(predicts: Sequence[Callable[[Contents], Any]], inputs: Sequence[Contents]) -> list[list[float]]:
    """Return the seconds per prediction of each model in each round, the median over `inputs`. Stop after an input if a
    model has taken `_SECONDS` in total, so that each model predicts at least one input."""
    seconds_by_model: list[list[float]] = [[] for _ in predicts]
    for texts in [*inputs] * _ROUNDS:
        for seconds, predict in zip(seconds_by_model, predicts, strict=True):
            start = time.perf_counter()
            predict(texts)
            seconds.append(time.perf_counter() - start)
        if max(map(sum, seconds_by_model)) >= _SECONDS:
            break
    size = len(inputs)  # predictions of a round
    return [[median(seconds[i : i + size]) for i in range(0, len(seconds), size)] for seconds in seconds_by_model]
