"""`predict`: text, JSONL or CoNLL to JSONL with labels, offsets and scores."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError, TrainingFailed
from domainbert.base.marks import MODEL, STREAM
from domainbert.base.paths import ModelPath, stream_kind
from domainbert.base.ranges import Column
from domainbert.corpus.file_kind import TextFormat
from domainbert.stages.inputs import Inputs
from domainbert.stages.stage import stage
from domainbert.training.config import Precision

if TYPE_CHECKING:
    from domainbert.stages.early_checks import Given

_AT_ONCE = 4_096  # items read before they are sorted by length and predicted: memory stays flat


@dataclass(frozen=True, kw_only=True)
class Predict:
    """Settings of `predict`."""

    model: ModelPath = field(metadata=MODEL)
    """Model folder, or a `finetune` folder, whose best seed is taken; also an exported folder, or an `.onnx` file in
    one."""

    input: Path = field(metadata=STREAM)
    """File to read, plain, .gz or .zst; or `-` for standard input, or a pipe, which is read once, its predictions being
    written as its texts come."""

    format: TextFormat = "auto"
    """`lines` (a text a line), `jsonl` or `conll`; `auto` goes by the first lines, whatever the suffix (JSON objects;
    columns of which one holds tags), then by the suffix: .txt is lines, .jsonl JSONL, and .conll, .conllu, .bio, .iob
    and .tsv are CoNLL. The format it was read as is printed."""

    text_key: str = "text"
    """Key of the text in JSONL (questions stand under `question`, with a `context`); all keys of the object are kept,
    and a key of the prediction that the object has already gets `predicted_` before it."""

    token_column: Column | str = 0
    """Column of the words in CoNLL, by number or name."""

    output_format: str = "jsonl"
    """Format of the predictions: `jsonl`, or one that the task has beside it, such as `prodigy`, `label_studio` and
    `brat` for entities."""

    precision: Precision = "auto"
    """`auto` computes the encoder in bf16 where the hardware multiplies bf16 matrices fast; `32-true` computes as
    `evaluate` does, in full precision, as numbers are always predicted."""


@stage
def predict(out: Path, settings: Predict, inputs: Inputs) -> dict[str, Any]:
    """Predict what a model is for: entities, classes, numbers, answers, trees.

    Each text gives a JSON object on a line, unless `output_format` says otherwise, in the order of the input.

    A stream (`--input -`, a pipe) is never taken for done already: a recipe reads it each time, and the same command
    again needs another `--out`, or `--force` to replace the predictions. What was predicted before a text that cannot
    be read, or until a stream breaks off, is kept.

    Entities come with `start` and `end`, characters of `text`; for CoNLL, `text` is the words joined by spaces.

    Raises:
        DomainbertError: a file that cannot be read, or a model without a head for a task.
        TrainingFailed: a text that cannot be read, behind others that were predicted.
    """
    from domainbert.base.progress import Progress
    from domainbert.labelled.contents import told_where
    from domainbert.serving.predictor import load_predictor
    from domainbert.serving.texts import as_they_come, in_chunks, read_texts
    from domainbert.tasks.config import prediction_writer

    input, text_key = settings.input, settings.text_key
    predictor = load_predictor(inputs.model(settings.model), settings.precision)
    content_of = partial(predictor.task.inputs.content_of, predictor.task)
    kind, items = read_texts(input, settings.format, text_key, settings.token_column, content_of)
    print(f"{input}: read as {kind}")
    count, writer_of = 0, prediction_writer(predictor.task.name, settings.output_format)
    in_order = as_they_come if stream_kind(input) else in_chunks
    with writer_of(out, text_key) as writer, Progress("predict", unit="texts") as progress:
        try:
            for chunk in in_order(items, _AT_ONCE):
                with told_where(partial(_place, input, count)):
                    predicted = predictor.predict([content for _, content in chunk])
                for (row, _), found in zip(chunk, predicted, strict=True):
                    writer.write(row, predictor.as_json(found))
                writer.flush()
                count += len(chunk)
                progress.advance(len(chunk))
        except DomainbertError as error:
            if not count:
                raise
            kept = f"the predictions of the {count:,} texts before it are kept in {writer.path}"
            raise TrainingFailed(f"{error}; {kept}") from error
    if not count:
        raise DomainbertError(f"{input}: nothing to predict; expected at least one text")
    for (key, name), rows in sorted(writer.renamed.items()):
        print(f"{rows:,} texts have a key {key!r}, which is kept; the prediction is under {name!r}")
    print(f"{count:,} texts -> {writer.path}")
    return {"texts": count}


def _place(input: Path, before: int, number: int) -> str:
    return f"{input}: text {before + number + 1:,}"


def check_arguments(given: Given) -> None:
    """Check the task of the model, the output format, and that a file is of a known kind; a stream is left alone."""
    from domainbert.serving.texts import read_texts
    from domainbert.tasks.config import prediction_writer

    given.check_task("model")
    if task := given.task_of_model(given["model"]):
        with given.under("output_format"):
            prediction_writer(task, given["output_format"])
    if given.there(given["input"]) and given["input"].is_file():
        with given.under("input"):
            read_texts(given["input"], given["format"], given["text_key"], given["token_column"])
