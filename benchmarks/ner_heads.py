"""Heads of a tagger and their learning rates: validation F1 of a linear head and of a CRF, over several seeds.

    python benchmarks/ner_heads.py [--data econ|ncbi] [--epochs 8] [--seeds 1 2 3] [--head_lrs 1e-3 3e-3 1e-2]
                                   [--models FOLDER]

A linear head is scored in two ways in the same training: each word's best label by itself, and the best valid IOB2 of
the sentence, which is how domainbert decodes it. A CRF is also scored word by word without its CRF, which is all that
transformers reads of it. All entities count, also improbable ones. The JSON is written after each training; those that
it holds already are not made again. With `--models` each training's best epoch is saved, so that `evaluate` can compare
what was chosen here on the test set.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from finetune_f1 import kept, mean_and_interval
from finetune_ner import (
    BATCH_SIZE,
    LEARNING_RATE,
    PACKAGES,
    Settings,
    described,
    parser_of,
    predict_all_entities,
    settings_of,
    task_of,
)
from side_by_side import write_result

HEADS = ("linear", "crf")
_WAYS = {"linear": ("word by word", "valid IOB2"), "crf": ("crf", "crf left out")}

Trained = Mapping[str, Sequence[float]]
"""By the way of decoding, the F1 on the validation set after each epoch."""


def train(settings: Settings, head: Literal["linear", "crf"], head_lr: float, models: Path | None) -> Trained:
    """One training, as the stage `finetune` makes it; the model goes to a folder below `models`, if given."""
    import lightning

    from domainbert import EntityF1
    from domainbert.labelled.tag_schemes import spans_from_tags
    from domainbert.stages.finetune import Finetune
    from domainbert.stages.labelled_training import fit_labelled
    from domainbert.tasks.decoding import decode_words
    from domainbert.tasks.finetuning import FineTuning
    from domainbert.tasks.labelled_data import LabelledData
    from domainbert.training.config import OptimConfig, ScheduleConfig

    stage = Finetune(
        model=settings.model,
        task=task_of(head),
        train=settings.train,
        validation=settings.validation,
        batch_size=BATCH_SIZE,
        max_epochs=settings.num_epochs,
        optim=OptimConfig(lr=LEARNING_RATE, head_lr=head_lr),
        schedule=ScheduleConfig(warmup_fraction=0.1),
        loggers=(),
        num_workers=0,
    )

    class ScoredTwice(FineTuning):
        """Also scores each word's best label by itself."""

        def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
            super().validation_step(batch, batch_idx)
            decoded = decode_words(self(batch), batch)
            found = [spans_from_tags([task.labels[i] for i in ids.tolist()]) for ids, _ in decoded]
            gold = [validation[i].spans for i in batch["items"].tolist()]
            by_word.update(found, gold)

        def on_validation_epoch_end(self) -> None:
            super().on_validation_epoch_end()
            self.log("validation/f1_by_word", float(by_word.compute()["f1"]))
            by_word.reset()

    lightning.seed_everything(settings.seed, verbose=False)
    loading = {"tokenizer": stage.model, "batch_size": BATCH_SIZE, "seed": settings.seed, "num_workers": 0}
    data = LabelledData(stage.task, stage.train, stage.validation, **loading)
    predict_all_entities(data.task)
    module = ScoredTwice(stage.model, data.task, optim=stage.optim, schedule=stage.schedule, seed=settings.seed)
    task, validation = module.task, data.items("validation")
    by_word = EntityF1()
    with tempfile.TemporaryDirectory() as out:
        result = fit_labelled("finetune", module, data, stage, Path(out))
    if models is not None:
        saved = models / f"{head}-{head_lr:g}" / f"seed-{settings.seed}"
        module.save_pretrained(saved)
    keys = {"word by word": "f1_by_word", "valid IOB2": "f1", "crf": "f1", "crf left out": "f1_by_word"}
    return {way: [row[keys[way]] for row in result["history"]] for way in _WAYS[head]}


def summary(trained: Mapping[str, Mapping[str, Trained]]) -> dict[str, Any]:
    """Each way's best epoch on the validation set, over the seeds; without its CRF, a model's best epoch with it."""
    rows: dict[str, list[float]] = {}
    for of_seed in trained.values():
        for setting, ways in of_seed.items():
            for way, curve in ways.items():
                chosen_by = ways.get("crf", curve)
                best = curve[chosen_by.index(max(chosen_by))]
                rows.setdefault(f"{way}, head_lr {setting.split()[1]}", []).append(best)
    return {name: mean_and_interval(values) for name, values in sorted(rows.items())}


def main() -> None:
    """Train what is missing, and report."""
    parser = parser_of("Heads of a tagger and their learning rates, over several seeds")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--head_lrs", type=float, nargs="+", default=[1e-3, 3e-3, 1e-2])
    parser.add_argument("--models", type=Path, help="save the models in this folder")
    parser.set_defaults(epochs=8)
    options = parser.parse_args()
    settings = settings_of(options)
    out = options.out or Path(__file__).parent / "results" / f"ner_heads-{options.data}.json"
    trained = kept(out, described(options))
    for seed in options.seeds:
        of_seed = trained.setdefault(str(seed), {})
        for head_lr in sorted(options.head_lrs, reverse=True):
            for head in HEADS:
                setting = f"{head} {head_lr:g}"
                if setting not in of_seed:
                    print(f"seed {seed}, {setting}", flush=True)
                    of_seed[setting] = train(replace(settings, seed=seed), head, head_lr, options.models)
                    write_result(
                        out, {"validation_f1": summary(trained)}, described(options), PACKAGES, {"curves": trained}
                    )
    for name, found in summary(trained).items():
        low, high = found["interval"] or (float("nan"), float("nan"))
        print(f"{name:32} {100 * found['mean']:6.2f}  [{100 * low:.2f}, {100 * high:.2f}]")


if __name__ == "__main__":
    main()
