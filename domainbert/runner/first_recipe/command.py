"""Write a first recipe from the user's data and this machine: the command `domainbert init`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from domainbert.base.errors import DomainbertError, suggest_name
from domainbert.base.files import write_text
from domainbert.base.paths import check_home_expanded, check_utf8, resolve_path
from domainbert.base.redact import map_texts
from domainbert.corpus.files import reads_below
from domainbert.encoders.config import EncoderConfig
from domainbert.labelled.sets import path_of, paths_of
from domainbert.runner.first_recipe import sizes
from domainbert.runner.first_recipe.corpus import CorpusFacts, corpus_entry, corpus_facts, exclude_entry
from domainbert.runner.first_recipe.labelled import LabelledFacts, labelled_facts
from domainbert.runner.first_recipe.sizes import Choice, Machine, this_machine
from domainbert.runner.first_recipe.writing import file_in_yaml, in_comment, recipe_text, task_in_yaml
from domainbert.settings.command_line import ParsedArguments
from domainbert.tasks.config import TaskConfig

_PATH_OPTIONS = ("labelled", "corpus", "model", "teacher", "out", "run_folder")
_KEY_OPTIONS = ("text_key", "text_pair_key", "label_key")
FLAGS = dict.fromkeys((*_PATH_OPTIONS, *_KEY_OPTIONS, "corpus_text_key", "task", "allow_import"), "one")
"""Options of the command, with the number of values that each takes."""
FLAGS["force"] = "none"

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

_HELD_OUT: tuple[Literal["validation", "test"], ...] = ("validation", "test")
_FEW_DOCUMENTS = 500  # fewer get a larger share of validation


@dataclass(frozen=True)
class _Findings:
    labelled: LabelledFacts
    corpus: CorpusFacts | None
    model: str | None
    teacher: str | None
    machine: Machine


def perform(typed: ParsedArguments) -> int:
    """Write the recipe, print the findings, the written files and the next commands, and return exit code 0."""
    options = _read_options(typed)
    out = Path(options.get("out", "recipe.yaml"))
    if not out.name:
        raise DomainbertError(where="--out", found=repr(options["out"]), expected="a file that ends in .yaml")
    check_home_expanded("--out", out)
    split_folder = out.with_name(f"{out.stem}-data")
    run_folder = options.get("run_folder", str(Path("runs") / out.stem))
    _check_out_path(out, split_folder, Path(run_folder), options, may_replace="force" in typed.flags)
    if {"corpus", "model"} <= set(options) and "teacher" not in options:
        _check_single_model(options["model"])

    # read the data
    keys = {key: options[key] for key in _KEY_OPTIONS if key in options}
    labelled = labelled_facts(Path(options["labelled"]), keys, options.get("task"), split_folder)
    if "teacher" in options:
        _check_distillation(labelled.task, options)
    for file in labelled.division.splits.sets.values():
        for path in paths_of(file):
            _check_nameable(str(path))
    corpus = corpus_facts(options["corpus"], options.get("corpus_text_key")) if "corpus" in options else None
    for value in [task_in_yaml(labelled.task), {} if corpus is None else corpus.source]:
        map_texts(value, _check_nameable)
    findings = _Findings(labelled, corpus, options.get("model"), options.get("teacher"), this_machine())
    facts = _template_variables(findings, out, run_folder)

    # write the files
    for path, text in labelled.division.new_files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    if corpus is not None:
        sets, contents = labelled.division.splits.sets, labelled.division.contents
        # reads the new files
        similar_to = corpus_entry(sets["train"], contents["train"])
        facts["similar_to"] = [similar_to] if isinstance(similar_to, dict) else similar_to
        entries = {path_of(sets[name]): exclude_entry(sets[name], contents[name]) for name in _HELD_OUT}
        facts["excluded"] = [entry for entry in entries.values() if entry is not None]
        for path in (path for path, entry in entries.items() if entry is None):
            reason = "its texts are too short to search for, or in a format that a corpus does not read"
            print(f"note: {path} is not excluded from the corpus: {reason}")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, recipe_text(facts))
    print(_summary(findings, out, run_folder, options.get("allow_import")), end="")
    return 0


def _read_options(typed: ParsedArguments) -> dict[str, str]:
    unknown = [*typed.words, *(f"--{name}" for name, _ in typed.options), *typed.files]
    if unknown:
        facts = suggest_name(unknown[0], [f"--{name}" for name in FLAGS])
        raise DomainbertError(where="init", found=f"'{unknown[0]}', which is not an option of init", **facts)
    options = {name: value for name, value in typed.flags.items() if value is not None}
    if "labelled" not in options:
        raise DomainbertError(
            "no --labelled", where="init", expected="a labelled file or folder (docs/reference/labelled-files.md)"
        )
    if "corpus" not in options and "model" not in options:
        raise DomainbertError(
            "neither --corpus nor --model",
            where="init",
            expected="--corpus with raw text to pretrain on, --model with a general model, or both "
            "(docs/explanation/when-not-to-pretrain.md)",
        )
    if "teacher" in options and "model" not in options:
        raise DomainbertError(
            where="--teacher", found="without --model", hint="add --model with the small model that the teacher trains"
        )
    if not options.get("run_folder", "runs").strip():
        raise DomainbertError(where="--run_folder", found="''", expected="the folder that the stages write to")
    for name in (*_PATH_OPTIONS, *_KEY_OPTIONS, "corpus_text_key"):
        _check_nameable(options.get(name, ""), f"--{name}")
    return options


def _check_nameable(text: str, option: str = "") -> str:
    """Return a path or key. Raise `DomainbertError` if it would have another meaning in a recipe."""
    if "${" in text or text.startswith("@"):
        raise DomainbertError(
            where=option,
            found=f"'{text}', which a recipe reads as a variable or a stage",
            expected="a path or key without '${' that does not begin with '@'",
        )
    check_utf8(text)
    return text


def _check_single_model(model: str) -> None:
    from domainbert.models.folder import best_seed_folder

    folder = resolve_path(model)
    if (best := best_seed_folder(folder)) != folder:
        raise DomainbertError(
            where="--model",
            found=f"'{model}', which holds a fine-tuned model for each seed",
            expected=f"a single model to pretrain further on --corpus, such as {best}",
        )


def _check_distillation(task: TaskConfig, options: Mapping[str, str]) -> None:
    reason = "the task reads pairs of texts" if task.reads_pairs else task.distillation.unlabelled_unsupported
    if "corpus" in options and reason:
        raise DomainbertError(
            f"cannot be used with --teacher, because {reason}", where="--corpus", hint="remove --corpus"
        )
    if task.distillation.shares_vocabulary:
        from domainbert.models.folder import open_model

        folders = [open_model(resolve_path(options[name])) for name in ("model", "teacher")]
        if len({folder.tokenizer().fingerprint for folder in folders}) > 1:
            raise DomainbertError(
                f"{options['teacher']} has another vocabulary than --model",
                where="--teacher",
                hint=f"use two models with the same vocabulary, because the task {type(task).__name__} "
                "compares their outputs token by token",
            )


def _check_out_path(
    out: Path, split_folder: Path, run_folder: Path, options: Mapping[str, str], may_replace: bool
) -> None:
    """`may_replace` allows to replace an earlier recipe and the folder of the split sets, but not the data."""
    if out.suffix not in (".yaml", ".yml"):
        raise DomainbertError(where="--out", found=f"'{out}'", expected="a file that ends in .yaml")
    for name in ("labelled", "corpus"):
        path = Path(options.get(name, "")).resolve()
        if name in options and split_folder.resolve() in (path, *path.parents):
            raise DomainbertError(
                where="--out",
                found=f"'{out}'",
                hint=f"the split sets would be written to {split_folder}, which contains the data of "
                f"--{name}; use another name",
            )
    for path in (split_folder, run_folder):
        if reads_below(options.get("corpus", ""), path):
            raise DomainbertError(
                where="--corpus",
                found=f"'{options['corpus']}'",
                hint=f"the recipe would write to {path}, which the corpus contains; use a folder with nothing but the "
                "corpus",
            )
    for path in (out, split_folder):
        if path.exists() and not may_replace:
            raise DomainbertError("already exists", file=path, hint="use another --out, or --force to replace it")


def _template_variables(findings: _Findings, out: Path, run_folder: str) -> dict[str, Any]:
    """Variables of the template `recipe.yaml.j2`, except `excluded`."""
    labelled, corpus = findings.labelled, findings.corpus
    words, size = (0, "") if corpus is None else (corpus.words, corpus.size)
    # the encoder to fine-tune: a new one, pretrained from random weights, or the model of the user
    hidden, new_encoder = sizes.encoder(words, size, findings.machine)
    max_length = 512
    if findings.model is not None:
        config = _model_config(findings.model)
        hidden, max_length = config.sizes.hidden_size, config.max_length
    items = len(labelled.division.contents["train"].items)
    lengths, measured = _text_lengths(labelled, findings.model)
    window = sizes.window(lengths, measured, max_length, labelled.format_detector.whole_texts)
    labelled.task.check_window(window.value)
    sets: dict[str, Any] = {name: file_in_yaml(file) for name, file in labelled.division.splits.sets.items()}
    facts: dict[str, Any] = {
        "title": in_comment(_title(findings)),
        "file": in_comment(shlex.quote(str(out))),
        "found": _found_lines(findings),
        "out": run_folder,
        "model": findings.model,
        "teacher": findings.teacher,
        "task": task_in_yaml(labelled.task),
        "reads_training": labelled.task.evaluation.uses_training_set,
        "seen": Choice(sets["train"], "to score entities seen in training and unseen entities separately"),
        **sets,
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
    return facts if corpus is None else facts | _pretraining_variables(corpus, new_encoder, hidden, findings)


def _teacher_variables(teacher: str, labelled: LabelledFacts, seeds: Sequence[int]) -> dict[str, Any]:
    hidden, items = _model_config(teacher).sizes.hidden_size, len(labelled.division.contents["train"].items)
    task = labelled.task.as_teacher()
    reason = "a CRF teaches the linear head of the small model, which `transformers` can load"
    return {
        "teacher_task": None if task == labelled.task else Choice(task_in_yaml(task), reason),
        "cached": labelled.task.distillation.has_logits,
        "teacher_rate": sizes.fine_tuning_lr(hidden, labelled.format_detector.many_targets),
        "teacher_epochs": sizes.fine_tuning_epochs(items, minimum=5),  # a large model learns in fewer epochs
        "teachers": [f"@finetune-teacher/seed-{seed}" for seed in seeds],
    }


def _pretraining_variables(corpus: CorpusFacts, encoder: Choice, hidden: int, findings: _Findings) -> dict[str, Any]:
    """`hidden` is the hidden size of the pretrained model."""
    machine, words = findings.machine, corpus.words
    too_few = f"2 % of the documents ({corpus.documents:,}) are too few"
    facts = {
        "vocab_size": sizes.vocab_size(words, corpus.size),
        "encoder": encoder,
        "workers": Choice(machine.cores, f"cores: {machine.cores}; the output does not depend on it"),
        "budget": sizes.pretraining_budget(words),
        "rows": sizes.pretraining_batch_size(words),
        "dropout": Choice(0.0, "as in the published results: few passes do not overfit"),
        "static_embeddings": Choice(True, "initial embeddings from contexts in the corpus: the loss falls sooner"),
        "masking": Choice(
            {"mlm_probability": 0.3, "final_mlm_probability": 0.15},
            "the best of the objectives in the published results",
        ),
        "pretrain_optim": sizes.pretraining_optim(hidden),
        "pretrain_schedule": Choice(
            {"name": "wsd", "warmup_fraction": 0.02, "decay_fraction": 0.25}, "as in the published results"
        ),
        "micro_batch": sizes.micro_batch_size(hidden, machine),
        "validation_fraction": Choice(0.1, too_few) if corpus.documents < _FEW_DOCUMENTS else None,
    }
    if findings.model is not None:
        facts |= _further_pretraining_variables(words, hidden)
    return facts


def _further_pretraining_variables(words: int, hidden: int) -> dict[str, Any]:
    """Return the variables of both phases that adapt a model with this hidden size: a constant rate, then its decay."""
    small = hidden <= 384
    reason = "as for 6 x 384 in the published results" if small else "lower for a larger model; not measured"
    budget, final_budget = sizes.adaptation_budgets(words, small)
    return {
        "budget": budget,
        "masking": Choice({"mlm_probability": 0.3}, "more to predict per step, while the rate is constant"),
        "pretrain_optim": Choice({"lr": 5e-4 if small else 1e-4}, reason),
        "pretrain_schedule": Choice({"name": "constant", "warmup_fraction": 0.04}, "as in the published results"),
        "final_budget": final_budget,
        "final_masking": Choice({"mlm_probability": 0.15}, "the default"),
        "final_schedule": Choice({"name": "linear", "warmup_fraction": 0.05}, "as in the published results"),
        "final_seed": Choice(1, "another order of the rows than in the first phase"),
    }


def _model_config(model: str) -> EncoderConfig:
    from domainbert.models.folder import open_model

    return open_model(resolve_path(model)).config


def _text_lengths(labelled: LabelledFacts, model: str | None) -> tuple[list[int], bool]:
    """Return the number of tokens of each training text, with special tokens, and whether they were counted."""
    reads_pairs = labelled.task.reads_pairs
    if model is None:
        special = 3 if reads_pairs else 2  # [CLS] and a [SEP] after each text
        return [round(sizes.TOKENS_PER_WORD * len(words)) + special for words in labelled.texts], False
    from domainbert.models.folder import open_model

    tokenizer = open_model(resolve_path(model)).tokenizer()
    special = tokenizer.template.num_special_tokens(reads_pairs)
    return [len(ids) + special for ids in tokenizer.encode([" ".join(words) for words in labelled.texts])], True


def _title(findings: _Findings) -> str:
    name = findings.labelled.path
    if findings.model is None:
        return f"{name}: an encoder pretrained on the corpus, compared with the same encoder from random weights."
    if findings.teacher is not None:
        return f"{name}: a small general model, alone and distilled from a large model."
    dapt = "" if findings.corpus is None else ", alone and after further pretraining on the corpus"
    return f"{name}: a general model{dapt}."


def _found_lines(findings: _Findings) -> list[tuple[str, str]]:
    first, *more = findings.labelled.describe()
    lines = [("labelled", first), *(("", line) for line in more)]
    lines += [("corpus", findings.corpus.describe())] if findings.corpus else []
    lines += [("model", findings.model)] if findings.model else []
    lines += [("teacher", findings.teacher)] if findings.teacher else []
    return [*lines, ("machine", findings.machine.describe())]


def _summary(findings: _Findings, out: Path, run_folder: str, allowed: str | None) -> str:
    lines = ["found", *(f"  {name:<10}{text}" for name, text in _found_lines(findings)), f"wrote {out}"]
    lines += [f"wrote {path}" for path in findings.labelled.division.new_files]
    words = ["domainbert", "run", str(out)] + ([] if allowed is None else ["--allow-import", allowed])
    commands = [shlex.join([*words, "--dry-run"]), shlex.join(words)]
    if findings.model and not findings.corpus and not findings.teacher:  # the recipe has a single training
        length = ["--stages.finetune-general.max_epochs", "2", "--stages.finetune-general.seeds", "[1]"]
        short = [*words, "--out", f"{run_folder}-short", *length]  # the full run would replace a model in its folder
        commands.append(f"{shlex.join(short)}  # a short first try")
    return "\n".join([*lines, "next", *(f"  {command}" for command in commands)]) + "\n"
