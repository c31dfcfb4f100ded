"""A tiny model, labelled files and a corpus for the library in a Lightning Trainer."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning
import torch

from domainbert.corpus.config import CorpusConfig, Source
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.families import build_model
from domainbert.models.saving import save_model
from domainbert.pretraining.data_module import PretrainingData
from domainbert.pretraining.module import Pretraining
from domainbert.stages.prepare import prepare
from domainbert.stages.vocab import vocab
from domainbert.tasks.finetuning import FineTuning
from domainbert.tasks.labelled_data import LabelledData
from domainbert.tasks.ner.config import Ner
from domainbert.tokenization.load import load_tokenizer
from domainbert.training.config import OptimConfig

DATA = Path(__file__).parents[2] / "golden" / "data"
BERT = BertConfig(16, 2, 2, 32, max_position_embeddings=48, initializer_range=0.1)
OPTIM = OptimConfig(lr=1e-2, head_lr=3e-2, eps=1e-4)
TASK = Ner(head="linear")


@dataclass(frozen=True)
class Tiny:
    """Folders: `vocab`, `prepared`, `model` (masked LM), `tagger`, `other` (another vocabulary); and labelled files."""

    root: Path

    def __truediv__(self, name: str) -> Path:
        return self.root / name

    def data(self, **changes: Any) -> LabelledData:
        """Sentences with entities: 40 to train on, 5 steps an epoch."""
        sets = {name: DATA / f"ner-{name}.conll" for name in ("train", "validation", "test")}
        arguments = {**sets, "tokenizer": self / "vocab", "batch_size": 8, "max_length": 24, **changes}
        return LabelledData(**{"task": TASK, **arguments})

    def module(self, **changes: Any) -> FineTuning:
        """A tagger that is fine-tuned."""
        arguments = {"model": self / "model", "optim": OPTIM, "max_length": 24, **changes}
        return FineTuning(**{"task": self.data().task, **arguments})

    def rows(self, **changes: Any) -> PretrainingData:
        """Packed rows of the corpus."""
        return PretrainingData(**{"prepared": self / "prepared", "max_length": 32, "batch_size": 16, **changes})

    def pretraining(self, **changes: Any) -> Pretraining:
        """Masked LM from random weights."""
        return Pretraining(BERT, **{"tokenizer": self / "vocab", "optim": OptimConfig(lr=5e-3, eps=1e-3), **changes})


def make_tiny(root: Path) -> Tiny:
    """All folders, made once."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    made = Tiny(root)
    corpus = CorpusConfig([Source(str(DATA / "corpus.jsonl"))], validation_fraction=0.1)
    for name, size in (("vocab", 384), ("other-vocab", 200)):
        (made / name).mkdir()
        vocab(out=made / name, corpus=corpus, vocab_size=size, min_character_count=2, model_max_length=48)
    (made / "prepared").mkdir()
    prepare(out=made / "prepared", corpus=corpus, tokenizer=made / "vocab", num_workers=0)
    torch.manual_seed(0)
    labels = ["O", *(f"{begin}-{kind}" for kind in ("LOC", "ORG", "PER") for begin in "BI")]
    folders = {"model": ("vocab", "masked_lm", []), "tagger": ("vocab", "tokens", labels)}
    folders["other"] = ("other-vocab", "masked_lm", [])
    for name, (tokenizer_name, head, names) in folders.items():
        tokenizer = load_tokenizer(made / tokenizer_name)
        model = build_model(BERT, VocabularyFacts(tokenizer.vocab_size, tokenizer.pad_id), head, len(names))
        (made / name).mkdir()
        card = "---\nlicense: mit\nlanguage: en\n---\n" if name == "model" else ""
        save_model(made / name, model, BERT, tokenizer, head, card, names)
    torch.set_num_threads(threads)
    return made


def trainer(out: Path | None = None, callbacks: Sequence[lightning.Callback] = (), **arguments: Any) -> Any:
    """Return a plain Trainer on one CPU, which by default writes nothing."""
    quiet = {"accelerator": "cpu", "devices": 1, "logger": False, "enable_progress_bar": False}
    quiet |= {"enable_model_summary": False, "enable_checkpointing": False, "default_root_dir": out}
    return lightning.Trainer(**{**quiet, **arguments}, callbacks=list(callbacks))


def weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A copy of the weights."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether two sets of weights are the same bit by bit."""
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def files(folder: Path) -> dict[str, bytes]:
    """The weights and settings of a model folder."""
    return {name: (folder / name).read_bytes() for name in ("model.safetensors", "config.json", "tokenizer.json")}


class Steps(lightning.Callback):
    """Notes the loss of each optimizer step, and the lines or rows of its batch."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.micro_batches: list[tuple[int, int]] = []

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Note it."""
        self.micro_batches.append((int(batch["step"]), int(batch["micro_batch"])))
        if (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            self.losses.append(float(module.step_loss.total))


def copied(folder: Path, to: Path) -> Path:
    """A copy of a folder."""
    shutil.copytree(folder, to)
    return to


def about(value: Any) -> Any:
    """A prediction with its numbers to five digits."""
    if isinstance(value, dict):
        return {key: about(one) for key, one in value.items()}
    if isinstance(value, list):
        return [about(one) for one in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
