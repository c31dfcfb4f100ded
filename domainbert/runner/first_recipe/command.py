"""`domainbert init`: looks at data and machine, and writes a recipe."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError, nearest
from domainbert.base.files import write_text
from domainbert.base.layout import printable
from domainbert.base.paths import check_whole, resolve_path
from domainbert.runner.first_recipe import sizes
from domainbert.runner.first_recipe.corpus import CorpusFacts, corpus_facts
from domainbert.runner.first_recipe.held_out import as_sources
from domainbert.runner.first_recipe.labelled import LabelledFacts, labelled_facts
from domainbert.runner.first_recipe.machine import Machine, this_machine
from domainbert.runner.first_recipe.sizes import Chosen
from domainbert.runner.first_recipe.writing import in_comment, of_file, of_task, recipe_text
from domainbert.settings.command_line import Typed
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.config_capabilities import Recognising

FLAGS = {
    **dict.fromkeys(("labelled", "corpus", "model", "teacher", "out", "run_folder"), "one"),
    **dict.fromkeys(("task", "allow_import"), "one"),
    **dict.fromkeys(("text_key", "text_pair_key", "label_key", "corpus_text_key"), "one"),
    "force": "none",
}
"""The options of the command, and the value that each takes."""

HELP = """\
usage: domainbert init --labelled FILE_OR_FOLDER [--corpus PATH] [--model FOLDER] [--teacher FOLDER] [options]

Look at your data and at this machine, and write a recipe whose numbers have a reason each. With a corpus and no model
it pretrains an encoder, beside the same one from scratch; with a model it fine-tunes that, and with both it also goes
on pretraining the model on the corpus. With a small model and a teacher, a large one, it fine-tunes both, and the small
one also learns from the large one, on the corpus too where there is one.

  --labelled PATH       a labelled file, which is divided, or a folder with train, dev or validation, and test in the
                        names of its files; the task is told from the training file
  --corpus PATH         raw text: a file, folder or glob, or hub:NAME
  --model FOLDER        a general model to start from, or hub:NAME
  --teacher FOLDER      a larger general model, which teaches that of --model, or hub:NAME
  --out FILE            the recipe to write (recipe.yaml)
  --run_folder FOLDER   where the run goes (runs/ and the name of the recipe)
  --task NAME           the task, where the file may be for several
  --text_key KEY        of the text in JSONL, CSV or TSV; --text_pair_key KEY of the second text of pairs, --label_key
                        KEY of the label, --corpus_text_key KEY of the text in the corpus
  --force               replace the recipe, and the files of a set that had to be divided
  --allow-import PKG    let tasks of these packages of yours (PKG,PKG) claim the file; they are imported
"""

_KEYS = ("text_key", "text_pair_key", "label_key")
_LITTLE_MEMORY = 8  # GiB
_FEW_DOCUMENTS = 500


@dataclass(frozen=True)
class _Found:
    """All that the recipe goes by."""

    labelled: LabelledFacts
    corpus: CorpusFacts | None
    model: str | None
    teacher: str | None
    machine: Machine


def help_text() -> str:
    """Text of `domainbert init --help`."""
    return HELP


def perform(typed: Typed) -> int:
    """Write the recipe and print what was found; raises as `write_recipe`."""
    print(write_recipe(typed), end="")
    return 0


def write_recipe(typed: Typed) -> str:
    """Write the recipe and return what to print: what was found, what was written, the next command.

    Raises:
        DomainbertError: nothing to start from; data that are broken, or that may be two things; a file that is there.
    """
    asked = _asked(typed)
    out = Path(asked.get("out", "recipe.yaml"))
    if not out.name:
        raise DomainbertError(f"--out: found {asked['out']!r}; expected a file that ends in .yaml")
    check_whole("--out", out)
    parts = out.with_name(f"{out.stem}-data")
    _check_apart(out, parts, asked)
    if "force" not in typed.flags:
        _check_free(out, parts)
    if {"corpus", "model"} <= set(asked) and "teacher" not in asked:
        _check_single(asked["model"])
    keys = {key: asked[key] for key in _KEYS if key in asked}
    labelled = labelled_facts(Path(asked["labelled"]), keys, asked.get("task"), parts)
    if "teacher" in asked:
        _check_taught(labelled.task, asked)
    for file in labelled.splits.files:
        _check_nameable(str(file))
    corpus = corpus_facts(asked["corpus"], asked.get("corpus_text_key")) if "corpus" in asked else None
    found = _Found(labelled, corpus, asked.get("model"), asked.get("teacher"), this_machine())
    facts = _facts(found, out, asked.get("run_folder", str(Path("runs") / out.stem)))
    for path, text in labelled.files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    if corpus is not None:
        facts["excluded"] = _excluded(labelled)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, recipe_text(facts))
    return _told(found, facts, out, asked.get("allow_import"))


def _asked(typed: Typed) -> dict[str, str]:
    """The options; `DomainbertError` where one is unknown or missing."""
    for name in [*typed.words, *(f"--{name}" for name, _ in typed.options), *typed.files]:
        raise DomainbertError(f"{name}: unknown to init; {nearest(name.removeprefix('--'), list(FLAGS))}")
    asked = {name: value for name, value in typed.flags.items() if value is not None}
    if "labelled" not in asked:
        raise DomainbertError(
            "init: no --labelled; expected a labelled file or folder (docs/reference/labelled-files.md)"
        )
    if "corpus" not in asked and "model" not in asked:
        raise DomainbertError(
            "init: neither --corpus nor --model; expected raw text to pretrain on, a general model to start from, or "
            "both (docs/explanation/when-not-to-pretrain.md)"
        )
    if "teacher" in asked and "model" not in asked:
        raise DomainbertError(
            f"--teacher: {asked['teacher']}: without --model; expected the small model that it teaches"
        )
    if not asked.get("run_folder", "runs").strip():
        raise DomainbertError("--run_folder: found ''; expected the folder that the stages write to")
    for name in ("labelled", "corpus", "model", "teacher", "out", "run_folder"):
        _check_nameable(asked.get(name, ""), f"--{name}: ")
    return asked


def _check_nameable(path: str, option: str = "") -> None:
    """`DomainbertError` for a path that a recipe cannot name."""
    if "${" in path or path.startswith("@"):
        raise DomainbertError(f"{option}{path}: means something else in a recipe; expected another path")
    if not path.isascii() and any("\ud800" <= one <= "\udfff" for one in path):
        raise DomainbertError(f"{option}{printable(path)}: is no name in UTF-8; expected one, as a recipe is in UTF-8")


def _check_single(model: str) -> None:
    """`DomainbertError` for a folder with a model for each seed, of which none is said to be pretrained further."""
    from domainbert.models.folder import best_seed_folder

    folder = resolve_path(model)
    if (best := best_seed_folder(folder)) != folder:
        raise DomainbertError(
            f"--model: {model}: holds a fine-tuned model for each seed; beside --corpus expected a single one to "
            f"pretrain further: the model they started from, or {best}"
        )


def _check_taught(task: TaskConfig, asked: Mapping[str, str]) -> None:
    """`DomainbertError` for a task that `distill-task` cannot teach, or not on text without labels, or not so."""
    if "corpus" in asked and (reason := task.distillation.unlabelled_unsupported):
        raise DomainbertError(f"--teacher: {reason}")
    if "corpus" in asked and task.reads_pairs:
        raise DomainbertError("--corpus: has single texts, and the task reads pairs; beside --teacher expected none")
    if task.distillation.shares_vocabulary:
        from domainbert.models.folder import open_model

        one, other = (open_model(resolve_path(asked[name])).tokenizer().fingerprint for name in ("model", "teacher"))
        if one != other:
            raise DomainbertError(
                f"--teacher: {asked['teacher']} has another vocabulary than --model; expected the same, by which alone "
                f"{task.name} can be compared"
            )


def _check_apart(out: Path, parts: Path, asked: Mapping[str, str]) -> None:
    """`DomainbertError` where what is written would stand among the data, which `--force` must not replace."""
    if out.suffix not in (".yaml", ".yml"):
        raise DomainbertError(f"--out: {out}: expected a file that ends in .yaml")
    for name in ("labelled", "corpus"):
        path = Path(asked.get(name, "")).resolve()
        if name in asked and parts.resolve() in (path, *path.parents):
            raise DomainbertError(
                f"--out: {out}: its sets would go to {parts}, where --{name} is; expected another name"
            )


def _check_free(out: Path, parts: Path) -> None:
    there = next((path for path in (out, parts) if path.exists()), None)
    if there is not None:
        raise DomainbertError(f"{there}: is there already; expected another --out, or --force to replace it")


def _fine_tuning(found: _Found, model: str, passes: int) -> str:
    """Estimate the time of `passes` over the training set; windows cover the whole of long texts."""
    lengths, _ = _lengths(found.labelled, model)
    tokens = len(found.labelled.read["train"].items) * (sum(lengths) / len(lengths) + 2)  # with special tokens
    layers, hidden, _ = _sizes_of_model(model)
    return sizes.fine_tuning_duration(tokens * passes, layers, hidden, found.machine)


def _facts(found: _Found, out: Path, run_folder: str) -> dict[str, Any]:
    """The values of the names in the template."""
    labelled, corpus, machine = found.labelled, found.corpus, found.machine
    words, size = (0, "") if corpus is None else (corpus.words, corpus.size)
    encoder, named = sizes.encoder(words, size, machine)
    hidden, longest = (encoder.hidden, 512) if found.model is None else _sizes_of_model(found.model)[1:]
    items = len(labelled.read["train"].items)
    window = sizes.window(*_lengths(labelled, found.model), longest=longest, whole=_recognising(labelled).whole_texts)
    labelled.task.check_window(window.value)
    data = labelled.splits
    facts: dict[str, Any] = {
        "title": in_comment(_title(found)),
        "file": in_comment(shlex.quote(str(out))),
        "found": _found_lines(found),
        "out": run_folder,
        "model": found.model,
        "teacher": found.teacher,
        "task": of_task(labelled.task),
        "reads_training": labelled.task.evaluation.uses_training_set,
        "seen": Chosen(of_file(data.train), "tells entities seen in training from unseen ones"),
        "train": of_file(data.train),
        "validation": of_file(data.validation) if data.validation else None,
        "test": of_file(data.test) if data.test else None,
        "window": window,
        "batch": sizes.batch(items),
        "epochs": sizes.epochs(items),
        "rate": sizes.rate(hidden, _recognising(labelled).many_targets),
        "head_rate": Chosen(1e-3, "the default"),
        "seeds": sizes.seeds(items),
        "corpus": None if corpus is None else corpus.source,
    }
    if found.teacher is not None:
        return facts | _teaching(found.teacher, labelled, facts["seeds"].value)
    return facts if corpus is None else facts | _pretraining(corpus, named, hidden, found)


def _recognising(labelled: LabelledFacts) -> Recognising[Any]:
    """Return the part of the task that recognised the file."""
    assert labelled.task.recognising is not None
    return labelled.task.recognising


def _excluded(labelled: LabelledFacts) -> list[str | dict[str, str]]:
    """The held-out files whose texts the corpus is to be without; none where it cannot read them."""
    data, read = labelled.splits, labelled.read
    held_out = (("validation", data.validation), ("test", data.test))
    return as_sources((file, read[name]) for name, file in held_out if file is not None)


def _teaching(teacher: str, labelled: LabelledFacts, seeds: Sequence[int]) -> dict[str, Any]:
    """The facts of the teacher's stage, and of the models that it gives."""
    _, hidden, _ = _sizes_of_model(teacher)
    return {
        "asked_before": labelled.task.distillation.has_logits,
        "teacher_rate": sizes.rate(hidden, _recognising(labelled).many_targets),
        "teacher_epochs": sizes.teacher_epochs(len(labelled.read["train"].items)),
        "teachers": [f"@finetune-teacher/seed-{seed}" for seed in seeds],
    }


def _pretraining(corpus: CorpusFacts, encoder: Chosen, hidden: int, found: _Found) -> dict[str, Any]:
    """The facts of the stages that read the corpus."""
    machine, words = found.machine, corpus.words
    few = corpus.documents < _FEW_DOCUMENTS
    micro = hidden >= 384 and (machine.gpu is not None or machine.memory_gib < _LITTLE_MEMORY)
    facts = {
        "vocab_size": sizes.vocab_size(words, corpus.size),
        "encoder": encoder,
        "workers": Chosen(machine.cores, f"{machine.cores} cores; the result is the same"),
        "passes": sizes.passes(words),
        "rows": sizes.rows(words),
        "dropout": Chosen(0.0, "as in docs/results.md: text is read too rarely to be learnt by heart"),
        "static_embeddings": Chosen(True, "words start from their contexts in the corpus: it learns to read sooner"),
        "masking": Chosen(
            {"mlm_probability": 0.3, "final_mlm_probability": 0.15}, "the best of the objectives in docs/results.md"
        ),
        "pretrain_optim": sizes.pretraining_rate(hidden),
        "pretrain_schedule": Chosen(
            {"name": "wsd", "warmup_fraction": 0.02, "decay_fraction": 0.25}, "as in docs/results.md"
        ),
        "micro_batch": Chosen("auto", "as many rows at once as fit in memory") if micro else None,
        "validation_fraction": Chosen(0.1, f"{corpus.documents:,} documents: 2 % are too few") if few else None,
    }
    if found.model is not None:
        rate = 3e-4 if hidden <= 384 else 1e-4
        measured = "as for 6 x 384 in docs/results.md" if hidden <= 384 else "lower for a larger model; not measured"
        facts |= {
            "passes": Chosen(1, "one pass, as in docs/results.md; more has not been measured there"),
            "pretrain_optim": Chosen({"lr": rate}, measured),
            "pretrain_schedule": Chosen({"name": "linear", "warmup_fraction": 0.1}, "as in docs/results.md"),
        }
    return facts


def _sizes_of_model(model: str) -> tuple[int, int, int]:
    """The layers and the hidden size of a model folder, and the longest text that it has positions for."""
    from domainbert.models.folder import open_model

    config = open_model(resolve_path(model)).config
    return config.sizes.num_layers, config.sizes.hidden_size, config.max_length


def _lengths(labelled: LabelledFacts, model: str | None) -> tuple[list[int], bool]:
    """Tokens of training texts by a model's tokenizer, or else estimated, without special ones; and whether counted."""
    if model is None:
        return [sizes.estimated_tokens(len(words)) for words in labelled.texts], False
    from domainbert.models.folder import open_model

    tokenizer = open_model(resolve_path(model)).tokenizer()
    return [len(ids) for ids in tokenizer.encode([" ".join(words) for words in labelled.texts])], True


def _title(found: _Found) -> str:
    name = found.labelled.path
    if found.model is None:
        return f"{name}: an encoder pretrained on the corpus, beside the same one from scratch."
    if found.teacher is not None:
        return f"{name}: a small general model, by itself and taught by a large one."
    beside = "" if found.corpus is None else ", as it is and after further pretraining on the corpus"
    return f"{name}: a general model{beside}."


def _found_lines(found: _Found) -> list[tuple[str, str]]:
    """The facts that were found, by name, for the head of the recipe and for the terminal."""
    first, *more = found.labelled.describe()
    lines = [("labelled", first), *(("", line) for line in more)]
    lines += [("corpus", found.corpus.describe())] if found.corpus else []
    lines += [("model", found.model)] if found.model else []
    lines += [("teacher", found.teacher)] if found.teacher else []
    return [*lines, ("machine", found.machine.describe())]


def _told(found: _Found, facts: Mapping[str, Any], out: Path, allowed: str | None) -> str:
    lines = ["found", *(f"  {name:<10}{text}" for name, text in _found_lines(found)), f"wrote {out}"]
    lines += [f"wrote {path}" for path in found.labelled.files]
    if found.corpus is not None and found.model is None:
        times = (facts["passes"].value, facts["encoder"].value, facts["window"].value)
        lines.append(sizes.duration(sizes.estimated_tokens(found.corpus.words), *times, found.machine))
    if found.model is not None:
        lines.append(_fine_tuning(found, found.model, facts["epochs"].value * len(facts["seeds"].value)))
    if found.teacher is not None:
        passes = facts["teacher_epochs"].value * len(facts["seeds"].value)
        lines.append(f"teacher, {_fine_tuning(found, found.teacher, passes)}")
    words = ["domainbert", "run", str(out)] + ([] if allowed is None else ["--allow-import", allowed])
    return "\n".join([*lines, "next", f"  {shlex.join([*words, '--dry-run'])}", f"  {shlex.join(words)}"]) + "\n"
