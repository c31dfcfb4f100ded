"""Training on labelled text, a model for each seed: what `finetune` and `distill-task` share."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import diverged
from domainbert.base.files import write_json, write_text
from domainbert.base.hashes import FileHashes
from domainbert.base.ranks import process_rank
from domainbert.base.sealed import damages, in_short, record_outputs, write_record
from domainbert.encoders.config import EncoderConfig
from domainbert.models.card import model_card
from domainbert.tasks.config import TASK_KEY
from domainbert.training.checkpoint_files import FINISHED, FOLDER, KEY, remove_progress
from domainbert.training.config import Runtime

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from domainbert.data.examples import Example
    from domainbert.data.types import Share
    from domainbert.encoders.heads import EncoderWithHead
    from domainbert.encoders.used_entries import UsedEntries
    from domainbert.tasks.config import Headline
    from domainbert.tasks.finetuning import FineTuning
    from domainbert.tasks.task import Task
    from domainbert.tokenization.load import DomainTokenizer

_VALIDATION_TOKENS = 16_384  # computed at once; more would only need more memory


@dataclass(frozen=True)
class Start:
    """A model to be trained, the architecture to save, its vocabulary, tokens of a window, and its teachers."""

    model: EncoderWithHead
    config: EncoderConfig
    tokenizer: DomainTokenizer
    window: int
    teachers: tuple[str, ...] = ()
    """The models that it learns from, or that the one it starts from has learnt from."""


@dataclass(frozen=True)
class Plan:
    """How long a training of one seed is, and what it keeps."""

    stage: str
    seed: int
    headline: Headline
    num_examples: int
    batch_size: int
    max_epochs: int
    patience: int | None
    keeps_best: bool = True
    """The best epoch by the headline of the task; else the last."""

    @property
    def epoch(self) -> int:
        """Optimiser steps of an epoch."""
        return -(-self.num_examples // self.batch_size)

    @property
    def num_steps(self) -> int:
        """Optimiser steps in all."""
        return self.epoch * self.max_epochs


def train_seeds(
    out: Path, seeds: Sequence[int], key: str, headline: Headline, train: Callable[[int, Path], dict[str, Any]]
) -> dict[str, Any]:
    """Train each seed that is not finished, and say in `seeds.json` which is best on validation.

    Args:
        out: the folder of the stage; a seed has `seed-N` there, and once all are trained, seeds that are not asked for
            any more lose theirs.
        seeds: the seeds.
        key: equal keys and seeds give equal results (`part_key`); what was trained under another one is trained again.
        headline: the metric by which seeds are compared.
        train: trains one seed into its folder, and gives what `fit` gives.
    """
    rows = [_train_seed(out / f"seed-{seed}", seed, key, train) | {"seed": seed} for seed in seeds]
    name, scores = f"validation_{headline.key}", [row["validation"][headline.key] for row in rows]
    best = f"seed-{rows[headline.best(scores)]['seed']}"
    by_seed = {f"seed-{row['seed']}": score for row, score in zip(rows, scores, strict=True)}
    if process_rank() == 0:
        _remove_others(out, seeds)
        write_json(
            out / "seeds.json",
            {"best": best, "metric": headline.monitor, "direction": headline.direction, name: by_seed},
        )
    warnings = [f"seed {row['seed']}: {warning}" for row in rows for warning in row["warnings"]]
    return {name: sum(scores) / len(scores), "best": best, "warnings": warnings, "seeds": rows}


def _train_seed(folder: Path, seed: int, key: str, train: Callable[[int, Path], dict[str, Any]]) -> dict[str, Any]:
    """What the training of a seed gives, or gave before."""
    import lightning

    result, reason = _finished(folder, key)
    if result is not None:
        print(f"{folder.name}: finished before")
        return result
    if process_rank() == 0:
        _begin(folder, key, reason)
    lightning.seed_everything(seed, verbose=False)
    result = train(seed, folder)
    if process_rank() == 0:
        outputs = record_outputs(folder)
        contents = {name: {fact: outputs[name][fact] for fact in ("bytes", "sha256")} for name in outputs}
        write_record(folder / FINISHED, {**result, "key": key}, contents)  # without times: equal trainings, equal files
        remove_progress(folder)
    return result


def _finished(folder: Path, key: str) -> tuple[dict[str, Any] | None, str]:
    """What the training of a seed gave if that still stands in its folder; else None, and why it is trained again."""
    if not (folder / FINISHED).is_file():
        return None, ""
    try:
        record = json.loads((folder / FINISHED).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or not {"key", "outputs", "sha256"} <= set(record):
        return None, f"{FINISHED} cannot be read"
    if record["key"] != key:
        return None, "was trained with other settings or inputs"
    if found := damages(folder, record, FileHashes(), thorough=True, record=FINISHED):
        return None, in_short(found)
    return {name: value for name, value in record.items() if name not in ("key", "outputs", "sha256")}, ""


def _begin(folder: Path, key: str, reason: str) -> None:
    """Clear the folder of a seed unless it has the progress of the same training, and note whose progress it holds."""
    note = folder / FOLDER / KEY
    if not reason and any(folder.glob(f"{FOLDER}/step-*")) and (not note.is_file() or note.read_text() != key):
        reason = "was begun with other settings or inputs"
    if reason:
        print(f"{folder.name}: {reason}; it is trained again", flush=True)
        shutil.rmtree(folder)
    note.parent.mkdir(parents=True, exist_ok=True)
    write_text(note, key)


def _remove_others(out: Path, seeds: Sequence[int]) -> None:
    """Whoever reads the folder takes every `seed-N` in it for one that was asked for."""
    for folder in sorted(out.glob("seed-*")):
        named = re.fullmatch(r"seed-\d+", folder.name) and folder.name not in {f"seed-{seed}" for seed in seeds}
        if named and ((folder / FINISHED).is_file() or (folder / FOLDER).is_dir()):
            print(f"{folder.name}: removed, it is not among the seeds any more")
            shutil.rmtree(folder)


def fit(
    objective: FineTuning,
    plan: Plan,
    batches: Callable[[Share, range], Dataset[dict[str, Any]]],
    held_out: Sequence[Example],
    tokenizer: DomainTokenizer,
    describe: Callable[[int], Mapping[str, Any]],
    runtime: Runtime,
) -> dict[str, Any]:
    """Train, and leave the best epoch's weights in the objective.

    Args:
        objective: what is trained.
        plan: for how long.
        batches: the training batches of a rank and of some optimiser steps.
        held_out: the validation set.
        tokenizer: the model's.
        describe: the texts of an optimiser step, for what is written where a loss is not finite.
        runtime: where and with what.

    Returns:
        `validation`, the scores of the epoch that is kept; `best_epoch`; `warnings`, if the training came to nothing;
        `skipped_steps`; `loss_spikes`; `history`.

    Raises:
        TrainingFailed: the model of that epoch says nothing finite.
    """
    from domainbert.data.batches import LabelledBatches
    from domainbert.stages.warnings import say
    from domainbert.training.callbacks import History, KeepBest, ProgressLines
    from domainbert.training.checkpoints import Checkpoints
    from domainbert.training.data_module import TrainAndValidation
    from domainbert.training.numbers import NumberWatch
    from domainbert.training.trainer import build_trainer

    history, best = History(), KeepBest(plan.headline.monitor, plan.patience, plan.headline.direction)
    numbers = NumberWatch(runtime.out, describe)
    progress = ProgressLines(f"{plan.stage} seed {plan.seed}", plan.num_steps)
    kept = [best] if plan.keeps_best else []
    callbacks = [history, *kept, numbers, progress, Checkpoints(runtime.out, runtime.checkpoint_every)]
    trainer = build_trainer(runtime, plan.num_steps, plan.batch_size, plan.epoch, callbacks)
    data = TrainAndValidation(
        batches,
        lambda share: LabelledBatches(held_out, tokenizer, _VALIDATION_TOKENS, share),
        plan.num_steps,
        runtime.num_workers,
    )
    trainer.fit(objective, datamodule=data)
    row = history.rows[-1]
    if plan.keeps_best:
        best.restore(objective)
        row = next(row for row in history.rows if row["step"] == best.best_step)
    if row["step"] in objective.unusable:
        raise diverged(f"seed {plan.seed}: the logits after step {row['step']:,} are not finite")
    which = f"{'best' if plan.keeps_best else 'last'} of {len(history.rows)} epochs"
    score = f"validation {plan.headline.name} {row[plan.headline.key]:.4f}"
    print(f"seed {plan.seed}: {which}: {score} at step {row['step']}")
    # Where the last is kept, nothing was to be predicted.
    warnings = objective.task.warnings(objective.validation, row) if plan.keeps_best else []
    say(warnings)
    return {
        "validation": row,
        "best_epoch": int(row["step"]) // plan.epoch,
        "warnings": warnings,
        "skipped_steps": numbers.skipped_steps,
        "loss_spikes": numbers.loss_spikes,
        "history": history.rows,
    }


def save_seed(
    folder: Path,
    start: Start,
    entries: UsedEntries,
    task: Task[Any, Any],
    headline: Headline,
    kind: str,
    facts: dict[str, Any],
    result: dict[str, Any],
) -> None:
    """Write the model folder of a seed. The first of several processes does.

    Args:
        folder: the seed's.
        start: the trained model.
        entries: puts the embeddings of all entries back.
        task: the task, for the labels and what else `config.json` says of it.
        headline: the metric that the model card tells.
        kind: "Fine-tuned" or "Distilled", for the model card.
        facts: of the model card, beside labels and score.
        result: from `fit`.
    """
    from domainbert.models.folder import save_model
    from domainbert.training.state import whole_weights

    weights = whole_weights(start.model)
    if process_rank() != 0:
        return
    known = {
        "labels": ", ".join(task.labels),
        **facts,
        "best epoch": result["best_epoch"],
        f"validation {headline.name}": f"{result['validation'][headline.key]:.4f}",
        **({"warning": "; ".join(result["warnings"])} if result["warnings"] else {}),
    }
    card = model_card(f"{kind} domain model", f"{kind} with domainbert.", known, task.usage)
    whole = entries.put_back(weights)
    saved = (start.model, start.config, start.tokenizer, task.head, card, task.labels, start.window, whole)
    facts_of_task = {TASK_KEY: task.name, **task.folder_facts(result["validation"])}
    save_model(folder, *saved, teachers=start.teachers, facts=facts_of_task)
