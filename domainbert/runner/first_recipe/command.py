"""Write a first recipe from the user's data and this machine: the command `domainbert init`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError, suggest_name
from domainbert.base.files import write_text
from domainbert.base.layout import printable
from domainbert.base.paths import check_home_expanded, resolve_path
from domainbert.runner.first_recipe import sizes
from domainbert.runner.first_recipe.corpus import CorpusFacts, corpus_facts
from domainbert.runner.first_recipe.held_out import as_sources
from domainbert.runner.first_recipe.labelled import LabelledFacts, labelled_facts
from domainbert.runner.first_recipe.machine import Machine, this_machine
from domainbert.runner.first_recipe.sizes import Choice
from domainbert.runner.first_recipe.writing import file_in_yaml, in_comment, recipe_text, task_in_yaml
from domainbert.settings.command_line import ParsedArguments
from domainbert.tasks.config import TaskConfig

FLAGS = {
    **dict.fromkeys(("labelled", "corpus", "model", "teacher", "out", "run_folder"), "one"),
    **dict.fromkeys(("task", "allow_import"), "one"),
    **dict.fromkeys(("text_key", "text_pair_key", "label_key", "corpus_text_key"), "one"),
    "force": "none",
}
"""Options of the command, with the number of values that each takes."""

HELP = """\
usage: domainbert init --labelled FILE_OR_FOLDER [--corpus PATH] [--model FOLDER] [--teacher FOLDER] [options]

Inspect your data and this machine, and write a recipe with a reason for each number.

Only --corpus: pretrain an encoder, and compare it with the same encoder from random weights. Only --model: fine-tune
the model. Both: fine-tune the model before and after further pretraining on the corpus. --model and --teacher:
fine-tune both, and distill the teacher into the model; with --corpus, distill on its texts too.

  --labelled PATH       a labelled file, which is split, or a folder with train, dev or validation, and test in the
                        names of its files; the task is detected from the training file
  --corpus PATH         raw text: a file, folder or glob, or hub:NAME
  --model FOLDER        a general model to start from, or hub:NAME
  --teacher FOLDER      a larger general model, the teacher of --model, or hub:NAME
  --out FILE            the recipe to write (default: recipe.yaml)
  --run_folder FOLDER   output folder of the run (default: runs/ and the name of the recipe)
  --task NAME           the task, if the file fits several tasks
  --text_key KEY        key of the text in JSONL, CSV or TSV; --text_pair_key KEY: key of the second text of a pair;
                        --label_key KEY: key of the label; --corpus_text_key KEY: key of the text in the corpus
  --force               replace the recipe, and the files of a set that was split
  --allow-import PKG    allow tasks of your packages (PKG,PKG), which are imported, to read the file
"""

_KEY_OPTIONS = ("text_key", "text_pair_key", "label_key")
_LOW_MEMORY_GIB = 8
_FEW_DOCUMENTS = 500  # fewer get a larger share of validation


@dataclass(frozen=True)
class _Findings:
    """Facts of the data and the machine, from which the recipe is derived."""

    labelled: LabelledFacts
    corpus: CorpusFacts | None
    model: str | None
    teacher: str | None
    machine: Machine


def help_text() -> str:
    """Return the text of `domainbert init --help`."""
    return HELP


def perform(typed: ParsedArguments) -> int:
    """Write the recipe, print a summary, and return exit code 0; raises the errors of `write_recipe`."""
    print(write_recipe(typed), end="")
    return 0


def write_recipe(typed: ParsedArguments) -> str:
    """Write the recipe and return the text to print: the findings, the written files and the next commands.

    Raises:
        DomainbertError: an option is missing; the data are broken or ambiguous; an output file exists.
    """
    options = _read_options(typed)
    out = Path(options.get("out", "recipe.yaml"))
    if not out.name:
        raise DomainbertError(f"--out: found {options['out']!r}; expected a file that ends in .yaml")
    check_home_expanded("--out", out)
    split_folder = out.with_name(f"{out.stem}-data")
    _check_out_path(out, split_folder, options)
    if "force" not in typed.flags:
        _check_not_existing(out, split_folder)
    if {"corpus", "model"} <= set(options) and "teacher" not in options:
        _check_single_model(options["model"])
    keys = {key: options[key] for key in _KEY_OPTIONS if key in options}
    labelled = labelled_facts(Path(options["labelled"]), keys, options.get("task"), split_folder)
    if "teacher" in options:
        _check_distillation(labelled.task, options)
    for file in labelled.splits.files:
        _check_nameable(str(file))
    corpus = corpus_facts(options["corpus"], options.get("corpus_text_key")) if "corpus" in options else None
    findings = _Findings(labelled, corpus, options.get("model"), options.get("teacher"), this_machine())
    facts = _template_variables(findings, out, options.get("run_folder", str(Path("runs") / out.stem)))
    for path, text in labelled.files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    if corpus is not None:
        facts["excluded"] = _held_out_sources(labelled)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, recipe_text(facts))
    return _summary(findings, facts, out, options.get("allow_import"))


def _read_options(typed: ParsedArguments) -> dict[str, str]:
    """Return the given options by name; raise `DomainbertError` for an unknown, missing or unusable option."""
    for name in [*typed.words, *(f"--{name}" for name, _ in typed.options), *typed.files]:
        raise DomainbertError(f"{name}: unknown to init; {suggest_name(name.removeprefix('--'), list(FLAGS))}")
    options = {name: value for name, value in typed.flags.items() if value is not None}
    if "labelled" not in options:
        raise DomainbertError(
            "init: no --labelled; expected a labelled file or folder (docs/reference/labelled-files.md)"
        )
    if "corpus" not in options and "model" not in options:
        raise DomainbertError(
            "init: neither --corpus nor --model; expected raw text to pretrain on, a general model to start from, or "
            "both (docs/explanation/when-not-to-pretrain.md)"
        )
    if "teacher" in options and "model" not in options:
        raise DomainbertError(
            f"--teacher: {options['teacher']}: --model is missing; expected the small model that the teacher trains"
        )
    if not options.get("run_folder", "runs").strip():
        raise DomainbertError("--run_folder: found ''; expected the folder that the stages write to")
    for name in ("labelled", "corpus", "model", "teacher", "out", "run_folder"):
        _check_nameable(options.get(name, ""), f"--{name}: ")
    return options


def _check_nameable(path: str, option: str = "") -> None:
    """Raise `DomainbertError` if a recipe cannot contain this path."""
    if "${" in path or path.startswith("@"):
        raise DomainbertError(
            f"{option}{path}: is a variable or a reference in a recipe; expected a path without '${{' and initial '@'"
        )
    if not path.isascii() and any("\ud800" <= character <= "\udfff" for character in path):
        raise DomainbertError(f"{option}{printable(path)}: is not UTF-8; expected a UTF-8 name: rename the file")


def _check_single_model(model: str) -> None:
    """Raise `DomainbertError` if a folder has one model per seed, so that it is unclear which one to pretrain."""
    from domainbert.models.folder import best_seed_folder

    folder = resolve_path(model)
    if (best := best_seed_folder(folder)) != folder:
        raise DomainbertError(
            f"--model: {model}: holds a fine-tuned model for each seed; expected a single model to pretrain further "
            f"on --corpus: the model they started from, or {best}"
        )


def _check_distillation(task: TaskConfig, options: Mapping[str, str]) -> None:
    """Raise `DomainbertError` if `distill-task` does not support the task, unlabelled text for it, or the models."""
    if "corpus" in options and (reason := task.distillation.unlabelled_unsupported):
        raise DomainbertError(f"--teacher: {reason}")
    if "corpus" in options and task.reads_pairs:
        raise DomainbertError("--corpus: has single texts, and the task reads pairs; omit --corpus with --teacher")
    if task.distillation.shares_vocabulary:
        from domainbert.models.folder import open_model

        folders = [open_model(resolve_path(options[name])) for name in ("model", "teacher")]
        if len({folder.tokenizer().fingerprint for folder in folders}) > 1:
            raise DomainbertError(
                f"--teacher: {options['teacher']} has another vocabulary than --model; expected the same vocabulary, "
                f"because {task.name} compares the outputs token by token"
            )


def _check_out_path(out: Path, split_folder: Path, options: Mapping[str, str]) -> None:
    """Raise `DomainbertError` if `--out` is not a YAML file, or if the split sets could replace the user's data."""
    if out.suffix not in (".yaml", ".yml"):
        raise DomainbertError(f"--out: {out}: expected a file that ends in .yaml")
    for name in ("labelled", "corpus"):
        path = Path(options.get(name, "")).resolve()
        if name in options and split_folder.resolve() in (path, *path.parents):
            raise DomainbertError(
                f"--out: {out}: the split sets would be written to {split_folder}, which contains --{name}; expected "
                "another name"
            )


def _check_not_existing(out: Path, split_folder: Path) -> None:
    """Raise `DomainbertError` if the recipe or the folder of the split sets exists."""
    existing = next((path for path in (out, split_folder) if path.exists()), None)
    if existing is not None:
        raise DomainbertError(f"{existing}: already exists; expected another --out, or --force to replace it")


def _fine_tuning_time(findings: _Findings, model: str, passes: int) -> str:
    """Return a sentence with the estimated time of `passes` over the training set; long texts count in full."""
    lengths, _ = _text_lengths(findings.labelled, model)
    tokens = len(findings.labelled.contents["train"].items) * (sum(lengths) / len(lengths) + 2)  # with special tokens
    layers, hidden, _ = _sizes_of_model(model)
    return sizes.fine_tuning_duration(tokens * passes, layers, hidden, findings.machine)


def _template_variables(findings: _Findings, out: Path, run_folder: str) -> dict[str, Any]:
    """Return the variables of the template, except `excluded`."""
    labelled, corpus, machine = findings.labelled, findings.corpus, findings.machine
    words, size = (0, "") if corpus is None else (corpus.words, corpus.size)
    encoder, encoder_choice = sizes.encoder(words, size, machine)
    hidden, max_length = (encoder.hidden, 512) if findings.model is None else _sizes_of_model(findings.model)[1:]
    items = len(labelled.contents["train"].items)
    lengths, measured = _text_lengths(labelled, findings.model)
    window = sizes.window(lengths, measured, max_length, labelled.format_detector.whole_texts)
    labelled.task.check_window(window.value)
    data = labelled.splits
    facts: dict[str, Any] = {
        "title": in_comment(_title(findings)),
        "file": in_comment(shlex.quote(str(out))),
        "found": _found_lines(findings),
        "out": run_folder,
        "model": findings.model,
        "teacher": findings.teacher,
        "task": task_in_yaml(labelled.task),
        "reads_training": labelled.task.evaluation.uses_training_set,
        "seen": Choice(file_in_yaml(data.train), "to score entities seen in training and unseen entities separately"),
        "train": file_in_yaml(data.train),
        "validation": file_in_yaml(data.validation) if data.validation else None,
        "test": file_in_yaml(data.test) if data.test else None,
        "window": window,
        "batch": sizes.fine_tuning_batch_size(items),
        "epochs": sizes.fine_tuning_epochs(items),
        "rate": sizes.fine_tuning_lr(hidden, labelled.format_detector.many_targets),
        "head_rate": Choice(1e-3, "the default"),
        "seeds": sizes.seeds(items),
        "corpus": None if corpus is None else corpus.source,
    }
    if findings.teacher is not None:
        return facts | _teacher_variables(findings.teacher, labelled, facts["seeds"].value)
    return facts if corpus is None else facts | _pretraining_variables(corpus, encoder_choice, hidden, findings)


def _held_out_sources(labelled: LabelledFacts) -> list[str | dict[str, str]]:
    """Return the held-out files whose texts the corpus has to exclude, if a corpus can read them."""
    data, contents = labelled.splits, labelled.contents
    held_out = (("validation", data.validation), ("test", data.test))
    return as_sources((file, contents[name]) for name, file in held_out if file is not None)


def _teacher_variables(teacher: str, labelled: LabelledFacts, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the template variables of the teacher's training and of its models."""
    _, hidden, _ = _sizes_of_model(teacher)
    return {
        "cached": labelled.task.distillation.has_logits,
        "teacher_rate": sizes.fine_tuning_lr(hidden, labelled.format_detector.many_targets),
        "teacher_epochs": sizes.teacher_epochs(len(labelled.contents["train"].items)),
        "teachers": [f"@finetune-teacher/seed-{seed}" for seed in seeds],
    }


def _pretraining_variables(corpus: CorpusFacts, encoder: Choice, hidden: int, findings: _Findings) -> dict[str, Any]:
    """Return the template variables of the stages that read the corpus."""
    machine, words = findings.machine, corpus.words
    few = corpus.documents < _FEW_DOCUMENTS
    uses_micro_batches = hidden >= 384 and (machine.gpu is not None or machine.memory_gib < _LOW_MEMORY_GIB)
    facts = {
        "vocab_size": sizes.vocab_size(words, corpus.size),
        "encoder": encoder,
        "workers": Choice(machine.cores, f"{machine.cores} cores; the output does not depend on it"),
        "passes": sizes.pretraining_epochs(words),
        "rows": sizes.pretraining_batch_size(words),
        "dropout": Choice(0.0, "as in docs/results.md: few passes do not overfit"),
        "static_embeddings": Choice(True, "initial embeddings from contexts in the corpus: the loss falls sooner"),
        "masking": Choice(
            {"mlm_probability": 0.3, "final_mlm_probability": 0.15}, "the best of the objectives in docs/results.md"
        ),
        "pretrain_optim": sizes.pretraining_optim(hidden),
        "pretrain_schedule": Choice(
            {"name": "wsd", "warmup_fraction": 0.02, "decay_fraction": 0.25}, "as in docs/results.md"
        ),
        "micro_batch": Choice("auto", "as many rows at a time as fit in memory") if uses_micro_batches else None,
        "validation_fraction": Choice(0.1, f"{corpus.documents:,} documents: 2 % are too few") if few else None,
    }
    if findings.model is not None:
        rate = 3e-4 if hidden <= 384 else 1e-4
        reason = "as for 6 x 384 in docs/results.md" if hidden <= 384 else "lower for a larger model; not measured"
        facts |= {
            "passes": Choice(1, "one pass, as in docs/results.md; more passes were not measured"),
            "pretrain_optim": Choice({"lr": rate}, reason),
            "pretrain_schedule": Choice({"name": "linear", "warmup_fraction": 0.1}, "as in docs/results.md"),
        }
    return facts


def _sizes_of_model(model: str) -> tuple[int, int, int]:
    """Return the number of layers, the hidden size and the maximum length of a model."""
    from domainbert.models.folder import open_model

    config = open_model(resolve_path(model)).config
    return config.sizes.num_layers, config.sizes.hidden_size, config.max_length


def _text_lengths(labelled: LabelledFacts, model: str | None) -> tuple[list[int], bool]:
    """Return the number of tokens of each training text, without special tokens, and whether they were counted."""
    if model is None:
        return [sizes.estimated_tokens(len(words)) for words in labelled.texts], False
    from domainbert.models.folder import open_model

    tokenizer = open_model(resolve_path(model)).tokenizer()
    return [len(ids) for ids in tokenizer.encode([" ".join(words) for words in labelled.texts])], True


def _title(findings: _Findings) -> str:
    """Return the first sentence of the recipe: the comparison that it makes."""
    name = findings.labelled.path
    if findings.model is None:
        return f"{name}: an encoder pretrained on the corpus, compared with the same encoder from random weights."
    if findings.teacher is not None:
        return f"{name}: a small general model, alone and distilled from a large model."
    dapt = "" if findings.corpus is None else ", alone and after further pretraining on the corpus"
    return f"{name}: a general model{dapt}."


def _found_lines(findings: _Findings) -> list[tuple[str, str]]:
    """Return name and text of each finding, for the comment at the top of the recipe and for the terminal."""
    first, *more = findings.labelled.describe()
    lines = [("labelled", first), *(("", line) for line in more)]
    lines += [("corpus", findings.corpus.describe())] if findings.corpus else []
    lines += [("model", findings.model)] if findings.model else []
    lines += [("teacher", findings.teacher)] if findings.teacher else []
    return [*lines, ("machine", findings.machine.describe())]


def _summary(findings: _Findings, facts: Mapping[str, Any], out: Path, allowed: str | None) -> str:
    """Return the text to print: the findings, the written files, estimated times and the next commands."""
    lines = ["found", *(f"  {name:<10}{text}" for name, text in _found_lines(findings)), f"wrote {out}"]
    lines += [f"wrote {path}" for path in findings.labelled.files]
    if findings.corpus is not None and findings.model is None:
        times = (facts["passes"].value, facts["encoder"].value, facts["window"].value)
        tokens = sizes.estimated_tokens(findings.corpus.words)
        lines.append(sizes.pretraining_duration(tokens, *times, findings.machine))
    if findings.model is not None:
        lines.append(_fine_tuning_time(findings, findings.model, facts["epochs"].value * len(facts["seeds"].value)))
    if findings.teacher is not None:
        passes = facts["teacher_epochs"].value * len(facts["seeds"].value)
        lines.append(f"teacher, {_fine_tuning_time(findings, findings.teacher, passes)}")
    words = ["domainbert", "run", str(out)] + ([] if allowed is None else ["--allow-import", allowed])
    return "\n".join([*lines, "next", f"  {shlex.join([*words, '--dry-run'])}", f"  {shlex.join(words)}"]) + "\n"
