"""The stage `predict`: read text, JSONL, CoNLL or a table and write labels, offsets and scores, as JSONL by default."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from domainbert.base.errors import DomainbertError, TrainingFailed
from domainbert.base.fields import MODEL, STREAM, Column
from domainbert.base.paths import ModelPath, stream_kind
from domainbert.corpus.file_kind import TextFormat
from domainbert.stages.stage import Inputs, stage
from domainbert.training.config import Precision

if TYPE_CHECKING:
    from domainbert.stages.early_checks import StageArguments

_CHUNK_SIZE = 4_096  # texts that are sorted by length and predicted together: bounds the memory


@dataclass(frozen=True, kw_only=True)
class Predict:
    """Settings of `predict`."""

    model: ModelPath = field(metadata=MODEL)
    """Model folder, `finetune` folder (its best seed is used), exported folder, or `.onnx` file in an exported
    folder."""

    input: Path = field(metadata=STREAM)
    """File to read, plain, .gz or .zst; `-` for standard input; or a pipe. Predictions for standard input and pipes
    are written as their texts arrive."""

    format: TextFormat = "auto"
    """Format of the input: `lines` (a text per line), `jsonl`, `conll`, or `csv` or `tsv` with a header. `auto` detects
    the format from the first lines (JSON objects, or columns with a column of tags), then from the suffix: .txt is
    lines, .jsonl is JSONL, .csv is CSV, and .conll, .conllu, .bio, .iob and .tsv are CoNLL. The stage prints the
    detected format."""

    text_key: str = "text"
    """Key of the text in JSONL, or its column in CSV and TSV (questions use the keys `question` and `context`). The
    output keeps all keys and columns; a key of the prediction that exists already gets the prefix `predicted_`."""

    token_column: Column | str = 0
    """Column of the words in CoNLL: number or name."""

    splitting: Literal["recorded", "punctuation", "whitespace"] = "recorded"
    """How texts are split into words, for tasks that label words: `recorded` as the model folder records it, or at
    white space and each `punctuation` mark, or only at `whitespace`."""

    output_format: str = "jsonl"
    """Format of the predictions: `jsonl`, or another format of the task, such as `prodigy`, `label_studio` and `brat`
    for entities."""

    precision: Precision = "auto"
    """Precision of the encoder. `auto` uses bf16 on hardware with fast bf16 matrix products; `32-true` uses full
    precision, like `evaluate`. Regression always uses full precision."""


@stage
def predict(out: Path, settings: Predict, inputs: Inputs) -> dict[str, Any]:
    """Predict entities, classes, numbers, answers or trees, depending on the task of the model.

    By default the output has a line with a JSON object for each text, in the order of the input.

    A stream (`--input -`, a pipe) is never skipped as done: a recipe reads it in each run, and a repeated command
    needs another `--out`, or `--force` to replace the predictions. If a text cannot be read or a stream is
    interrupted, earlier predictions are kept.

    `start` and `end` of an entity are character offsets in `text`; for CoNLL, `text` is the words joined by spaces.

    Raises:
        DomainbertError: the file cannot be read, or the model has no head for a task.
        TrainingFailed: a text cannot be read after others were predicted.
    """
    from domainbert.base.progress import Progress
    from domainbert.labelled.contents import located_errors
    from domainbert.serving.predictor import load_predictor
    from domainbert.serving.texts import iterate_available, iterate_chunks, read_texts
    from domainbert.tasks.lookup import prediction_writer

    input, text_key = settings.input, settings.text_key
    predictor = load_predictor(inputs.model(settings.model), settings.precision)
    if settings.splitting != "recorded":
        predictor.task.word_splitting = settings.splitting
    content_of = partial(predictor.task.inputs.content_of, predictor.task)
    text_format, items = read_texts(input, settings.format, text_key, settings.token_column, content_of)
    print(f"{input}: read as {text_format}")
    count, blank, writer_of = 0, 0, prediction_writer(predictor.task.name, settings.output_format)
    chunks_of = iterate_available if stream_kind(input) else iterate_chunks
    with writer_of(out, text_key) as writer, Progress("predict", unit="texts") as progress:
        try:
            for chunk in chunks_of(items, _CHUNK_SIZE):
                with located_errors(partial(_text_location, input, count)):
                    predicted = predictor.predict([content for _, content in chunk])
                for (row, _), prediction in zip(chunk, predicted, strict=True):
                    writer.write(row, predictor.as_json(prediction))
                writer.flush()
                count += len(chunk)
                blank += sum(isinstance(content, str) and not content.strip() for _, content in chunk)
                progress.advance(len(chunk))
        except DomainbertError as error:
            if not count:
                raise
            kept = f"earlier predictions ({count:,}) are kept in {writer.path}"
            raise TrainingFailed(error, error.errors, hint=kept) from error
    if not count:
        raise DomainbertError("nothing to predict", file=input, expected="at least one text")
    for (key, name), rows in sorted(writer.renamed.items()):
        print(f"texts with a key {key!r}, which is kept: {rows:,}; the prediction is under {name!r}")
    if blank:
        print(f"texts without a character other than white space: {blank:,}; predicted like the others")
    print(f"texts: {count:,} -> {writer.path}")
    return {"texts": count}


def _text_location(input: Path, num_predicted: int, index: int) -> str:
    return f"{input}: text {num_predicted + index + 1:,}"


def check_arguments(arguments: StageArguments) -> None:
    """Check the task of the model, the output format and the format of the input file; do not read a stream."""
    from domainbert.serving.texts import read_texts
    from domainbert.tasks.lookup import prediction_writer

    arguments.check_task("model")
    if task := arguments.task_of_model(arguments["model"]):
        with arguments.record_problems("output_format"):
            prediction_writer(task, arguments["output_format"])
    if arguments.is_ready(arguments["input"]) and not stream_kind(arguments["input"]):
        with arguments.record_problems("input"):
            read_texts(arguments["input"], arguments["format"], arguments["text_key"], arguments["token_column"])
