"""Training on labelled text, one model per seed: common code of `finetune` and `distill-task`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError, divergence_error
from domainbert.base.fields import PARTS, SPEED_ONLY, BatchSize, Epochs, PositiveInt, Seeds
from domainbert.base.files import write_json
from domainbert.base.freshness import Freshness, record_outputs
from domainbert.base.process import process_rank
from domainbert.base.run_record import seed_folders
from domainbert.labelled.sets import LabelledSet
from domainbert.metrics.headline import LOSS, Headline
from domainbert.stages.warnings import print_warnings
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.finetuning_config import LabelledDataSettings, LabelledModuleSettings
from domainbert.training.checkpoint_files import FINISHED, FOLDER, MADE_FROM, record_facts, remove_checkpoints
from domainbert.training.config import AveragingConfig, Training

if TYPE_CHECKING:
    from domainbert.tasks.finetuning import FineTuning
    from domainbert.tasks.labelled_data import LabelledData


@dataclass(frozen=True, kw_only=True)
class LabelledTraining(LabelledDataSettings, LabelledModuleSettings, Training):
    """Common settings of `finetune` and `distill-task`."""

    task: TaskConfig
    """Task (`Ner`, `Classification`, ...), and the format of its files."""

    train: LabelledSet
    """Labelled training set; the model gets its labels. A file; or {text: FILE, label: FILE} with a text and its label
    in each line; or a list of these."""

    validation: LabelledSet
    """Labelled set that selects the epoch; never the test set."""

    max_epochs: Epochs = 10
    """Passes over the training set."""

    patience: PositiveInt | None = None
    """Epochs without improvement on validation after which training stops; None never stops early."""

    select_by: str | None = None
    """Validation metric that selects epoch and seed, such as `accuracy`, or `loss`; None takes the task's headline
    metric."""

    averaging: AveragingConfig | None = None
    """Average of the weights over the steps, which is validated and saved instead of the last weights; None disables
    it."""

    seeds: Seeds = field(default=(1,), metadata=PARTS)
    """Seeds of new weights, data order and dropout; one training per seed. If the seeds change, finished seeds are
    kept, new seeds are trained, and the folders of seeds that are no longer listed are deleted."""

    micro_batch_size: BatchSize | None = field(default=None, metadata=SPEED_ONLY)
    """Labelled sentences or texts that a device computes at once; None takes its share of the batch."""

    def __post_init__(self) -> None:
        _ = self.selection_metric
        self.check_micro_batches(self.batch_size)
        if self.averaging is not None and (self.trainer or {}).get("strategy") == "fsdp":
            raise DomainbertError(
                where="averaging", found="with trainer.strategy: fsdp", expected="trainer.strategy: ddp"
            )
        if self.averaging is not None and self.averaging.name == "last" and self.patience is not None:
            raise DomainbertError(
                where="averaging.name",
                found=f"'last' with patience: {self.patience}",
                expected="name: ema, or patience: null, because a training that stops early does not reach its "
                "last steps",
            )

    @property
    def selection_metric(self) -> Headline:
        """Metric that selects epoch and seed; raises `DomainbertError` if the task does not have it."""
        return self.task.headline if self.select_by is None else self.task.validation_metric(self.select_by)


def train_seeds(
    out: Path,
    seeds: Sequence[int],
    facts: Freshness,
    headline: Headline,
    train: Callable[[int, Path], dict[str, Any]],
) -> dict[str, Any]:
    """Train each seed that is not finished, and write the best seed on validation to `seeds.json`.

    Args:
        out: folder of the stage. Each seed has a folder `seed-N`; folders of other seeds are deleted after the
            training.
        facts: facts that determine the output of the stage; a seed trained with other facts is trained again.
        headline: metric that compares the seeds.
        train: trains a seed into a folder, and returns the result of `fit_labelled`.

    Returns:
        Mean validation score, best seed, warnings, and the result of each seed.
    """
    facts = facts.without("seeds")
    results = [_train_seed(out / f"seed-{seed}", seed, facts, train) | {"seed": seed} for seed in seeds]
    score_name = f"validation_{headline.key}"
    score_by_seed = {f"seed-{result['seed']}": result["validation"][headline.key] for result in results}
    names, scores = list(score_by_seed), list(score_by_seed.values())
    best = names[headline.best(scores)]
    if process_rank() == 0:
        _remove_unlisted_seeds(out, seeds)
        selection = {"best": best, "metric": headline.monitor, "direction": headline.direction}
        write_json(out / "seeds.json", {**selection, score_name: score_by_seed})
    warnings = [f"seed {result['seed']}: {warning}" for result in results for warning in result["warnings"]]
    return {score_name: sum(scores) / len(scores), "best": best, "warnings": warnings, "seeds": results}


def _train_seed(
    folder: Path, seed: int, facts: Freshness, train: Callable[[int, Path], dict[str, Any]]
) -> dict[str, Any]:
    import lightning

    result, reason = facts.read_if_current(folder / FINISHED)
    if result is not None:
        print(f"{folder.name}: already finished")
        return result
    if process_rank() == 0:
        _prepare_folder(folder, facts, reason)
    lightning.seed_everything(seed, verbose=False)
    result = train(seed, folder)
    if process_rank() == 0:
        # with_quick_looks=False records no times of files: equal trainings write equal records
        facts.record(folder / FINISHED, result, record_outputs(folder, with_quick_looks=False))
        remove_checkpoints(folder)
    return result


def _prepare_folder(folder: Path, facts: Freshness, stale_reason: str) -> None:
    """Record the facts of a seed in its folder. First delete a folder with a finished result that is out of date (for
    `stale_reason`; "" without a result), or with checkpoints of other facts, which cannot be resumed."""
    reason = stale_reason
    has_checkpoints = any(folder.glob(f"{FOLDER}/step-*"))
    if not reason and has_checkpoints:
        recorded, reason = facts.read_if_current(folder / FOLDER / MADE_FROM)
        if recorded is None and not reason:
            reason = f"{MADE_FROM} is missing"
    if reason:
        print(f"{folder.name}: {reason}; training again", flush=True)
        shutil.rmtree(folder)
    record_facts(folder, facts)


def _remove_unlisted_seeds(out: Path, seeds: Sequence[int]) -> None:
    """Delete the folders of seeds that are not listed, because readers take every `seed-N` for a current seed."""
    listed = {f"seed-{seed}" for seed in seeds}
    for folder in seed_folders(out):
        if folder.name not in listed and ((folder / FINISHED).is_file() or (folder / FOLDER).is_dir()):
            print(f"{folder.name}: removed, because the setting 'seeds' no longer lists it")
            shutil.rmtree(folder)


def fit_labelled(
    label: str,
    module: FineTuning,
    data: LabelledData,
    settings: LabelledTraining,
    out: Path,
    keeps_best: bool = True,
) -> dict[str, Any]:
    """Train with `fit`, and write the model folder with the weights of the best epoch on validation.

    Args:
        label: name of the training in messages.
        out: the model folder, also for checkpoints and logs.
        keeps_best: False keeps the last epoch, for losses that do not train predictions.

    Returns:
        Facts of the training, `best_epoch`, and `warnings` about a training without success.

    Raises:
        TrainingFailed: the logits of the kept epoch are not finite.
    """
    import torch

    from domainbert.tasks.saving import task_card
    from domainbert.training.averaging import Averaging
    from domainbert.training.callbacks import KeepBest
    from domainbert.training.fit import fit
    from domainbert.training.steps import Steps

    headline = settings.selection_metric
    module.measures_loss = headline == LOSS
    data.setup("fit")
    module.exclude_unused_embeddings(torch.from_numpy(data.entry_ids))
    steps = Steps.of_epochs(settings.max_epochs, settings.batch_size, data.num_items)
    best = KeepBest(headline, settings.patience) if keeps_best else None
    averages = [] if settings.averaging is None else [Averaging(settings.averaging, steps.total)]
    fitted = fit(label, module, data, steps, settings, out, best, watch=averages)
    scores = fitted.validation
    if scores["step"] in module.unusable:
        raise divergence_error(f"{label}: the logits after step {scores['step']:,} are not finite")
    choice = f"{'last' if best is None else 'best'} of {len(fitted.history)} epochs"
    print(f"{label}: {choice}: validation {headline.name} {scores[headline.key]:.4f} at step {scores['step']}")
    task = module.task
    warnings = [] if best is None else task.training_hooks.warnings(task, data.items("validation"), scores)
    if best is not None:
        print("".join(f"{label}: {remark}\n" for remark in task.training_hooks.remarks(task, scores)), end="")
    print_warnings(warnings)
    best_epoch = int(scores["step"]) // steps.validate_every
    facts = {"best epoch": best_epoch} | ({"warning": "; ".join(warnings)} if warnings else {})
    module.save_pretrained(out, task_card(module, scores, settings.card, headline, facts), scores)
    return {**fitted.facts, "best_epoch": best_epoch, "warnings": warnings}
