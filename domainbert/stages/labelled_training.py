"""Training on labelled text, a model for each seed: the settings and the seeds of `finetune` and `distill-task`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError, diverged
from domainbert.base.files import write_json
from domainbert.base.freshness import Freshness, record_outputs
from domainbert.base.marks import PARTS, SPEED_ONLY
from domainbert.base.ranges import BatchSize, Dropout, Epochs, PositiveInt, Seeds
from domainbert.base.ranks import process_rank
from domainbert.labelled.sets import LabelledSet, files_of, path_of
from domainbert.metrics.headline import LOSS, Headline
from domainbert.models.card import Result, card_head, model_card
from domainbert.stages.warnings import say
from domainbert.tasks.config import TaskConfig
from domainbert.training.checkpoint_files import FINISHED, FOLDER, MADE_FROM, remove_progress
from domainbert.training.config import Training
from domainbert.training.optim_config import AveragingConfig, OptimConfig, ScheduleConfig

if TYPE_CHECKING:
    from domainbert.tasks.finetuning import FineTuning
    from domainbert.tasks.labelled_data import LabelledData
    from domainbert.training.averaging import Averaging


@dataclass(frozen=True, kw_only=True)
class LabelledTraining(Training):
    """Settings of a training on labelled text."""

    task: TaskConfig
    """Task to learn (`Ner`, `Classification`, ...), and the format of its files."""

    train: LabelledSet
    """Labelled training set; its labels are those the model will know. A file, or {text: FILE, label: FILE} with a text
    and its label in each line, or a list of these."""

    validation: LabelledSet
    """Labelled set by which the epoch is chosen. The test set has no place here."""

    batch_size: BatchSize = 32
    """Labelled sentences or texts of an optimiser step, over all devices."""

    max_epochs: Epochs = 10
    """Passes over the training set."""

    patience: PositiveInt | None = None
    """Epochs without improvement on validation after which training stops; None never stops early."""

    select_by: str | None = None
    """Validation metric by which epoch and seed are chosen, such as `accuracy`, or `loss`; None takes the task's
    headline."""

    dropout: Dropout | None = None
    """Dropout of the model that learns, during this stage; the model folder keeps its own. None leaves it as it is; a
    ModernBERT as it is published has none."""

    optim: OptimConfig = OptimConfig(lr=1e-4, head_lr=1e-3)
    """Optimiser; `head_lr` is the learning rate of the head, and of the projections of a distillation."""

    schedule: ScheduleConfig = ScheduleConfig(warmup_fraction=0.1)
    """Learning rate over the steps."""

    averaging: AveragingConfig | None = None
    """An average of the weights over the steps is validated, and kept, in their place; None keeps them as they are."""

    seeds: Seeds = field(default=(1,), metadata=PARTS)
    """Seeds, one training each: of new weights, the order and the dropout. If others are asked for, those that are
    finished are kept, and only new ones are trained; the folder of one that is dropped is removed."""

    micro_batch_size: BatchSize | None = field(default=None, metadata=SPEED_ONLY)
    """Labelled sentences or texts a device computes at once; None takes its share of the batch."""

    checkpoint_every: PositiveInt | None = field(default=None, metadata=SPEED_ONLY)
    """Optimiser steps between checkpoints; None writes one every ten minutes. One is written after each epoch (of a
    large model not after each, if saving takes more than a twentieth of the time) and when a signal ends the training,
    too."""

    def __post_init__(self) -> None:
        """Check what the settings have to be together, and that the task has the metric."""
        _ = self.chosen_by
        self.check_micro_batches(self.batch_size)
        if self.averaging is not None and self.is_sharded:
            raise DomainbertError(
                "averaging: found with strategy: fsdp, which shards the weights; expected another strategy"
            )
        if self.averaging is not None and self.averaging.name == "last" and self.patience is not None:
            raise DomainbertError(
                f"averaging: found last with patience: {self.patience}; expected ema, or no patience: a training that "
                "stops early does not reach its last steps"
            )

    @property
    def chosen_by(self) -> Headline:
        """The metric by which epoch and seed are chosen; `DomainbertError` names those of the task."""
        return self.task.headline if self.select_by is None else self.task.validation_metric(self.select_by)

    @property
    def is_sharded(self) -> bool:
        """Whether the weights are spread over the devices."""
        return (self.trainer or {}).get("strategy") == "fsdp"

    def averages(self, num_steps: int) -> list[Averaging]:
        """The average of the weights over a training of `num_steps`, if one is asked for."""
        from domainbert.training.averaging import Averaging

        return [] if self.averaging is None else [Averaging(self.averaging, num_steps)]


def train_seeds(
    out: Path,
    seeds: Sequence[int],
    made_from: Freshness,
    headline: Headline,
    train: Callable[[int, Path], dict[str, Any]],
) -> dict[str, Any]:
    """Train each seed that is not finished, and say in `seeds.json` which is best on validation.

    Args:
        out: the folder of the stage; a seed has `seed-N` there, and once all are trained, seeds that are not asked for
            any more lose theirs.
        seeds: those that are asked for.
        made_from: what the stage makes its output from; a seed that was trained from anything else is trained again.
        headline: the metric by which seeds are compared.
        train: trains one seed into its folder, and gives what `fit_labelled` gives.
    """
    made_from = made_from.without("seeds")
    rows = [_train_seed(out / f"seed-{seed}", seed, made_from, train) | {"seed": seed} for seed in seeds]
    by_seed = {f"seed-{row['seed']}": row["validation"][headline.key] for row in rows}
    scores = list(by_seed.values())
    name, best = f"validation_{headline.key}", list(by_seed)[headline.best(scores)]
    if process_rank() == 0:
        _remove_others(out, seeds)
        how = {"best": best, "metric": headline.monitor, "direction": headline.direction}
        write_json(out / "seeds.json", {**how, name: by_seed})
    warnings = [f"seed {row['seed']}: {warning}" for row in rows for warning in row["warnings"]]
    return {name: sum(scores) / len(scores), "best": best, "warnings": warnings, "seeds": rows}


def _train_seed(
    folder: Path, seed: int, made_from: Freshness, train: Callable[[int, Path], dict[str, Any]]
) -> dict[str, Any]:
    """Result of a seed's training, of this one or of one that was finished before."""
    import lightning

    result, reason = made_from.look(folder / FINISHED)
    if result is not None:
        print(f"{folder.name}: already finished")
        return result
    if process_rank() == 0:
        _begin(folder, made_from, reason)
    lightning.seed_everything(seed, verbose=False)
    result = train(seed, folder)
    if process_rank() == 0:
        # without times: equal trainings, equal files
        made_from.record(folder / FINISHED, result, record_outputs(folder, looks=False))
        remove_progress(folder)
    return result


def _begin(folder: Path, made_from: Freshness, reason: str) -> None:
    """Clear the folder of a seed unless it has the progress of the same training, and note whose progress it holds."""
    note = folder / FOLDER / MADE_FROM
    if not reason and any(folder.glob(f"{FOLDER}/step-*")):
        begun, reason = made_from.look(note)
        reason = reason or ("" if begun is not None else f"{note.name} is missing")
    if reason:
        print(f"{folder.name}: {reason}; training again", flush=True)
        shutil.rmtree(folder)
    note.parent.mkdir(parents=True, exist_ok=True)
    made_from.record(note, {}, outputs={})


def _remove_others(out: Path, seeds: Sequence[int]) -> None:
    """Remove the folders of other seeds: a reader takes every `seed-N` for one that was asked for."""
    for folder in sorted(out.glob("seed-*")):
        named = re.fullmatch(r"seed-\d+", folder.name) and folder.name not in {f"seed-{seed}" for seed in seeds}
        if named and ((folder / FINISHED).is_file() or (folder / FOLDER).is_dir()):
            print(f"{folder.name}: removed, because seeds no longer lists it")
            shutil.rmtree(folder)


def fit_labelled(
    label: str,
    module: FineTuning,
    data: LabelledData,
    settings: LabelledTraining,
    out: Path,
    keeps_best: bool = True,
) -> dict[str, Any]:
    """Train as `fit` does, and leave the weights of the best epoch on validation in the module; of the last one where
    nothing is to be predicted. `TrainingFailed` if the model of that epoch says nothing finite.

    Returns:
        The facts of every training; `best_epoch`; `warnings`, if the training came to nothing.
    """
    from domainbert.training.callbacks import KeepBest
    from domainbert.training.fit import Steps, fit

    headline = settings.chosen_by
    module.measures_loss = headline == LOSS
    data.resolve(module, "fit")
    steps = Steps.of_epochs(settings.max_epochs, settings.batch_size, data.num_items)
    best = KeepBest(headline, settings.patience) if keeps_best else None
    fitted = fit(label, module, data, steps, settings.runtime(out), best, watch=settings.averages(steps.total))
    row = fitted.validation
    if row["step"] in module.unusable:
        raise diverged(f"{label}: the logits after step {row['step']:,} are not finite")
    which = f"{'last' if best is None else 'best'} of {len(fitted.history)} epochs"
    print(f"{label}: {which}: validation {headline.name} {row[headline.key]:.4f} at step {row['step']}")
    task = module.task
    warnings = [] if best is None else task.fitting.warnings(task, module.validation, row)
    if best is not None:
        print("".join(f"{label}: {remark}\n" for remark in task.fitting.remarks(task, row)), end="")
    say(warnings)
    return {**fitted.facts, "best_epoch": int(row["step"]) // steps.validate_every, "warnings": warnings}


def save_seed(
    folder: Path,
    module: FineTuning,
    settings: LabelledTraining,
    kind: str,
    facts: dict[str, Any],
    result: dict[str, Any],
    base: Path | None,
) -> None:
    """Write the model folder of a seed; every process has to call it, the first one writes.

    `kind` ("Fine-tuned" or "Distilled") and `facts`, beside labels and score, are for the model card, and so is `base`,
    the model that it started from; `result` is from `fit_labelled`.
    """
    headline, scores = settings.chosen_by, result["validation"]
    score = scores[headline.key]
    known = {
        "labels": ", ".join(module.task.labels),
        **facts,
        "best epoch": result["best_epoch"],
        f"validation {headline.name}": f"{score:.4f}",
        **({"warning": "; ".join(result["warnings"])} if result["warnings"] else {}),
    }
    usage = f"from domainbert import {module.task.predictor.loader}"
    names = ", ".join(path_of(file).name for file in files_of(settings.validation))
    scored = Result(settings.task.title, names, "validation", headline.key, headline.name, score)
    title = f"{kind} domain model"
    head = card_head(title, settings.task.pipeline_tag, settings.card, base, results=[scored])
    module.save_pretrained(folder, model_card(title, f"{kind} with domainbert.", known, usage, head), scores)
