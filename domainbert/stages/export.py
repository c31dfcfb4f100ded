"""The stage `export`: write a model as ONNX and compare its logits and scores with the torch model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from domainbert.base.errors import FINETUNED, NO_TASK_HEAD, DomainbertError
from domainbert.base.fields import TRAINED_MODEL
from domainbert.base.files import replaced_files, write_json, write_text
from domainbert.base.layout import format_interval, format_score
from domainbert.base.paths import ModelPath, model_name
from domainbert.labelled.sets import LabelledSet, files_of, path_of, set_name
from domainbert.stages.evaluate import read_test_set
from domainbert.stages.stage import Inputs, stage
from domainbert.tasks.config import TaskConfig, folder_name
from domainbert.tasks.lookup import config_from_fields, task_kind

if TYPE_CHECKING:
    from domainbert.data.packing import Example
    from domainbert.encoders.heads import EncoderWithHead
    from domainbert.metrics.headline import Headline
    from domainbert.models.folder import ModelFolder
    from domainbert.stages.early_checks import StageArguments
    from domainbert.tasks.scoring import Scoring
    from domainbert.tokenization.load import DomainTokenizer

INT8_FILE = "model.int8.onnx"
_MAX_COMPARED_TEXTS = 512  # texts of the labelled file whose logits are compared; scores use the whole file
_RESAMPLES = 2_000
_USAGE = """import onnxruntime
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
session = onnxruntime.InferenceSession("model.onnx")
encoded = tokenizer(["A text.", "Another one."], padding=True, return_tensors="np")
names = [each.name for each in session.get_inputs()]
(output,) = session.run(None, {name: encoded.get(name, 0 * encoded["input_ids"]) for name in names})"""


@dataclass(frozen=True, kw_only=True)
class Export:
    """Settings of `export`."""

    model: ModelPath = field(metadata=TRAINED_MODEL)
    """Model folder, or a `finetune` folder, whose best seed is exported; `package:` and `hub:` paths also work."""

    quantize: Literal["int8"] | None = None
    """`int8` also writes `model.int8.onnx`: weights of 8 bits, a quarter of the size. Its output depends on the
    processor: without VNNI instructions sums may overflow, so check the model on the processor that will run it."""

    check: LabelledSet | None = None
    """Labelled set, preferably the validation set, on which to score the torch model and each ONNX file; logits are
    also compared on 512 of its texts. None compares logits on generated texts only."""

    task: TaskConfig | None = None
    """Task of the model (`Ner`, `Classification`, ...) with the format of `check`; None takes the task that the model
    folder names, with default settings."""

    def __post_init__(self) -> None:
        if self.check is None and self.task is not None:
            raise DomainbertError(
                "only used with a labelled set in 'check'", where="task", hint="set check, or remove task"
            )


@stage
def export(out: Path, settings: Export, inputs: Inputs) -> dict[str, Any]:
    """Write a model for ONNX Runtime and check that its logits agree with the torch model.

    `model.onnx` takes `input_ids`, `attention_mask` and, for BERT, `token_type_ids` (int64, any number of texts of any
    length) and returns `logits`: (batch, length, labels) for entities and for the start and end of answers, (batch,
    labels) for classes, (batch, length, vocabulary) for masked LM; or the `last_hidden_state` of an encoder without a
    head. The logits of a CRF are its emissions, and `crf.json` has its transitions; the logits of a parser are
    projections, and `biaffine.safetensors` has the weights that score them. `out` also gets the tokenizer,
    `config.json`, the model card and `metrics.json`.

    Raises:
        DomainbertError: `domainbert[onnx]` is not installed; the model folder cannot be read, or its head has no
            weights; the labelled file is invalid; or the logits of `model.onnx` differ from the torch model.
    """
    from domainbert.serving.onnx.decoders import DECODER_FILES, find_decoder
    from domainbert.serving.onnx.graph import need_onnx
    from domainbert.tasks.task import task_from_model_folder

    need_onnx()
    loaded, folder = _load_with_head(inputs.model(settings.model))
    scoring = _read_check_set(folder, settings, inputs)
    examples = _examples(folder, scoring)  # rejects texts that the model cannot read, before any file is written
    report: dict[str, Any] = {"source": model_name(folder.path), "head": folder.head, "texts_compared": len(examples)}
    with replaced_files(out, "config.json") as new:
        files = _write_files(new, loaded, folder, settings.quantize)
        decoder = find_decoder(loaded.head, folder.labels)
        if decoder is not None:
            task_from_model_folder(folder).attach_head(loaded.head)  # adds the invalid transitions between labels
            decoder.write(new)
        report["files"] = _compare_logits(loaded, folder.tokenizer(), examples, files)
        results = {name: _file_summary(facts) for name, facts in report["files"].items()}
        if scoring is not None and settings.check is not None:
            scores = _score_files(scoring, folder.path, files)
            report |= {"check": set_name(settings.check), scoring.headline.key: scores["torch"][scoring.headline.key]}
            for name, facts in report["files"].items():
                facts |= scores[name] if "interval" in scores[name] else {}
            names = ", ".join(path_of(file).name for file in files_of(settings.check))
            results[f"{scoring.headline.name} on {names}"] = _scores_text(scores, scoring.headline)
        write_json(new / "metrics.json", report)
        write_text(new / "README.md", _card(report, folder, decoder.logits if decoder else "", results))
        for name in (INT8_FILE, *DECODER_FILES):
            if not (new / name).exists():
                (out / name).unlink(missing_ok=True)  # of another model, exported earlier
    print("\n".join(f"{name}: {text}" for name, text in results.items()))
    return report


def _load_with_head(folder: ModelFolder) -> tuple[EncoderWithHead, ModelFolder]:
    from domainbert.models.loading import load_encoder, load_model

    missing: Sequence[str] = ()
    if folder.head is None:
        model, folder = load_encoder(folder)
    else:
        model, folder, missing = load_model(folder, folder.head)
    if missing:
        names = ", ".join(missing)
        raise DomainbertError(f"the head has no weights for {names}", file=folder.path, expected="a trained model")
    return model.eval(), folder


def check_arguments(arguments: StageArguments) -> None:
    """Check the packages for ONNX, and the labelled file with the task of the arguments or else of the model."""
    arguments.check_installed("", ["onnx", "onnxruntime", "onnxscript"], "onnx")
    pending, task = arguments.pending_stage(arguments["model"]), arguments["task"]
    if pending is not None:
        task = task or pending.get("task")
    elif (folder := arguments.readable_model(arguments["model"])) is not None:
        with arguments.record_problems("model"):
            kind = task_kind(folder.head, folder.fields)
            if task is None and kind is not None:
                task = config_from_fields(kind, folder.fields)
    arguments.check_labelled("check", task)


def _read_check_set(folder: ModelFolder, settings: Export, inputs: Inputs) -> Scoring | None:
    if settings.check is None:
        return None
    kind, task = task_kind(folder.head, folder.fields), settings.task
    if kind is None:
        problem, expected = f"{folder.path} has {NO_TASK_HEAD}", f"{FINETUNED}, or check: null"
        raise DomainbertError(problem, where="check", expected=expected)
    if task is not None and task.name != folder_name(kind):
        raise DomainbertError(where="task", found=task.name, expected=f"{folder_name(kind)}, the task of {folder.path}")
    task = task or config_from_fields(kind, folder.fields)
    if task is None:
        raise DomainbertError(
            "missing", where="task", expected=f"{folder_name(kind)}, with the format of the files in 'check'"
        )
    return read_test_set(task, settings.check, None, inputs.labelled)


def _write_files(out: Path, model: EncoderWithHead, folder: ModelFolder, quantize: str | None) -> list[Path]:
    """Return the paths of the ONNX files."""
    from domainbert.models.folder import ONNX_FILE
    from domainbert.serving.onnx.graph import quantize_int8, write_onnx

    files = [out / ONNX_FILE]
    write_onnx(files[0], model)
    if quantize:
        files.append(out / INT8_FILE)
        quantize_int8(files[0], files[1])
    write_json(out / "config.json", folder.fields, unredacted=True)
    folder.tokenizer().save(out, _max_tokens(folder), folder.config.num_token_types > 1)
    return files


def _max_tokens(folder: ModelFolder) -> int:
    return min(folder.tokenizer().model_max_length or folder.config.max_length, folder.config.max_length)


def _examples(folder: ModelFolder, scoring: Scoring | None) -> list[Example]:
    from domainbert.labelled.contents import located_errors
    from domainbert.serving.onnx.parity import first_window, random_texts, single_window_example
    from domainbert.tasks.task import task_from_model_folder

    tokenizer, longest = folder.tokenizer(), _max_tokens(folder)
    num_special = tokenizer.template.num_special_tokens()
    texts = random_texts(folder.vocab_size, longest - num_special)
    examples = [single_window_example(ids, folder.reads_texts, longest, num_special) for ids in texts]
    if scoring is not None:
        contents = scoring.test.contents[:_MAX_COMPARED_TEXTS]
        with located_errors(scoring.test.location):
            encoded = task_from_model_folder(folder).encode_contents(contents, tokenizer, longest)
        examples += [first_window(example) for example in encoded if example.num_outputs]
    return examples


def _compare_logits(
    model: EncoderWithHead, tokenizer: DomainTokenizer, examples: Sequence[Example], files: Sequence[Path]
) -> dict[str, dict[str, Any]]:
    """Return size and largest difference by file name; only the first file, which is not quantized, has to agree."""
    import torch

    from domainbert.serving.onnx.parity import BUDGETS, TOLERANCE, largest_difference, logits_by_item
    from domainbert.serving.onnx.session import OnnxModel
    from domainbert.tasks.packed_logits import packed_logits

    expected = dict(logits_by_item(packed_logits(model, tokenizer, examples, torch.device("cpu"))))
    facts = {}
    for file in files:
        exported = OnnxModel(file, tokenizer)
        gap = largest_difference(expected, (logits_by_item(exported.logits(examples, budget)) for budget in BUDGETS))
        if file == files[0] and not gap.tolerable:
            raise DomainbertError(
                f"its logits differ from torch's by up to {gap.largest:.2g}",
                where=file.name,
                expected=f"at most {TOLERANCE:g} of the largest logit, {gap.scale:.3g}",
                hint="try other versions of torch, onnx and onnxruntime",
            )
        size = file.stat().st_size
        facts[file.name] = {"bytes": size, "max_logit_difference": gap.largest, "largest_logit": gap.scale}
    return facts


def _file_summary(facts: Mapping[str, Any]) -> str:
    return (
        f"{facts['bytes'] / 1e6:.1f} MB, logits differ from torch's by at most {facts['max_logit_difference']:.1e} "
        f"(the largest logit is {facts['largest_logit']:.3g})"
    )


def _score_files(scoring: Scoring, folder: Path, files: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Return the score of the torch model ("torch") and of each ONNX file by name; for each file also the change from
    torch with its interval, unless a score is undefined."""
    from domainbert.metrics.summary import Resampling
    from domainbert.serving.predictor import load_predictor

    with TemporaryDirectory() as predictions:  # a model folder may be published: keep labels out of it
        for name, path in [("torch", folder), *((file.name, file) for file in files)]:
            predictor = load_predictor(path, "32-true")
            scoring.add_model(name, "model", predictor, Path(predictions) / f"{name}{scoring.suffix}")
    summary, key = scoring.summary(Resampling(_RESAMPLES, 0)), scoring.headline.key
    scores = {name: {key: system[key]} for name, system in summary["systems"].items()}
    for pair in summary["paired"]:  # torch minus file; the change is file minus torch
        if pair["difference"] is not None:
            low, high = sorted(0.0 - bound for bound in pair["interval"])  # 0.0 - x is never -0.0
            scores[pair["b"]] |= {f"{key}_change": 0.0 - pair["difference"], "interval": [low, high]}
    return scores


def _scores_text(scores: Mapping[str, Mapping[str, Any]], headline: Headline) -> str:
    """Return the result of `_score_files` as "torch 90.12, model.onnx 90.10 (-0.02 [-0.10, +0.05])"."""
    texts, percent = [], headline.percent
    for name, facts in scores.items():
        text = f"{name} {format_score(facts[headline.key], percent)}"
        if "interval" in facts:
            change = format_score(facts[f"{headline.key}_change"], percent, "+")
            text += f" ({change} {format_interval(facts['interval'], percent, '+')})"
        texts.append(text)
    return ", ".join(texts)


def _card(report: Mapping[str, Any], folder: ModelFolder, logits_meaning: str, results: Mapping[str, str]) -> str:
    """`results` are the sizes and scores of the files as text, by the name of the row."""
    from domainbert.models.card import card_head, inherited_values, model_card, read_head
    from domainbert.tasks.task import task_from_model_folder

    task = task_kind(folder.head, folder.fields)
    if task is not None:
        model_type = task.title
    elif folder.labels:  # a head that is not of a task of domainbert
        model_type = "Model"
    else:
        model_type = "Encoder" if folder.head is None else "Masked language model"
    facts = {"exported from": report["source"]}
    labels = {"labels": ", ".join(folder.labels) or "none"}
    facts |= labels if task is None else task_from_model_folder(folder).card_facts()
    facts |= {"checked": f"against torch on {report['texts_compared']} texts, one by one and in padded batches"}
    facts |= results
    if logits_meaning:
        facts["logits"] = logits_meaning
    if INT8_FILE in report["files"]:
        facts["int8"] = "activations are quantised batch by batch: scores depend a little on the texts in a batch"
    title = f"{model_type} for ONNX Runtime"
    tag = read_head(folder.path).get("pipeline_tag") if task is None else task.pipeline_tag
    head = card_head(title, tag, inherited=inherited_values(folder.path), library=None, tags=["onnx"])
    return model_card(title, f"{model_type} exported with domainbert.", facts, _USAGE, head)
