"""Distillation of masked language models on a corpus, as a LightningModule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from torch.nn import ModuleDict, functional
from torch.utils.data import Dataset
from torchmetrics import MetricCollection, SumMetric
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.base.paths import model_name
from domainbert.data.batches import Share
from domainbert.data.packing import IGNORE_INDEX, Batch
from domainbert.distillation.batches import CountedRows, batch_counts
from domainbert.distillation.config import LossConfig, Sizes
from domainbert.distillation.losses import TokenPositions
from domainbert.distillation.module import DistillationModule
from domainbert.distillation.module_config import DistillationSettings
from domainbert.distillation.students import build_student, student_config
from domainbert.distillation.weighted import COUNTS, WeightedLosses, compute_outputs, mean_outputs, sizes_of
from domainbert.encoders.config import VocabularyFacts, max_length_error
from domainbert.encoders.families import build_model, config_class_of
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.torch_internals import SeededDraws
from domainbert.metrics.headline import LOSS
from domainbert.models.card import CardConfig, card_head, inherited_values, load_code, model_card
from domainbert.models.folder import ModelFolder, open_model
from domainbert.models.loading import load_model, predicts_entries
from domainbert.models.saving import save_model
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.data_module import PreparedInput, PretrainingData
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.pretraining.phases import PhasedRows
from domainbert.pretraining.rows_module import RowsModule
from domainbert.tokenization.load import DomainTokenizer
from domainbert.training.config import CorpusDataSettings
from domainbert.training.hparams import from_plain
from domainbert.training.loaders import SPARE
from domainbert.training.module import log_scores
from domainbert.training.processes import first_process_writes
from domainbert.training.sharding import whole_weights


class DistillationData(PretrainingData):
    """Packed rows of a prepared corpus, masked for masked LM, for `Distillation`.

        data = DistillationData("runs/prepared", max_length=128, batch_size=256)

    >>> from domainbert import DistillationData
    >>> DistillationData("runs/prepared", max_length=64).row_length
    64

    Batches also have the indices and counts by which the losses are divided.

    Args:
        masking: masking of the input of student and teachers.
        prepared, test, predict, seed, settings: see `PretrainingData`.
    """

    def __init__(
        self,
        prepared: PreparedInput,
        masking: MaskingConfig = MaskingConfig(),
        *,
        test: str | Path | None = None,
        predict: Sequence[str] | None = None,
        seed: int = 0,
        settings: CorpusDataSettings | None = None,
        **changes: Any,
    ) -> None:
        settings = CorpusDataSettings.of(settings, **changes)  # here: no other argument of `PretrainingData`
        objective = MaskedLM(from_plain(MaskingConfig, masking))
        super().__init__(prepared, objective, test=test, predict=predict, seed=seed, settings=settings)

    def train_batches(self, share: Share, steps: range) -> Dataset[Batch]:
        """Return the micro-batches of a rank, with the counts of their global batches."""
        return PhasedRows(self.plan(steps.stop), share, steps, CountedRows)


class Distillation(DistillationModule, RowsModule):
    """Distils masked language models into a smaller one on packed rows of a corpus.

        student = StudentConfig(every_nth_layer=2)
        module = Distillation(["models/teacher"], [SoftTargets(), HardTargets()], student=student)
        lightning.Trainer(max_steps=10_000).fit(module, DistillationData("runs/prepared", max_length=128))
        module.save_pretrained("runs/student")

    >>> from domainbert import Distillation, HardTargets, StudentConfig
    >>> student = StudentConfig(first_layers=1)
    >>> module = Distillation(["model"], [HardTargets()], student=student)  # doctest: +ELLIPSIS
    model: ...
    >>> module.model.encoder.num_hidden_layers
    1

    Teachers and student read the same batches; the teachers are in eval mode, without gradients, and in no checkpoint.
    Logged: `train/NAME` and `validation/NAME` of each loss, and the weighted sum as `train/loss`, `validation/loss`.

    Args:
        teachers: model folders, usually one; several are an ensemble, whose logits are averaged.
        losses: losses of the student; their weighted sum is minimised.
        seed: random seed of new weights and dropout.
        settings: all settings; or single settings by keyword, see `DistillationSettings`.
        saved: plain values of a checkpoint, in place of the teachers.

    Attributes:
        config: architecture of the student.
        predicts: whether the student has a trained or copied masked-LM head, which is saved.
    """

    def __init__(
        self,
        teachers: Sequence[str | Path | ModelFolder],
        losses: Sequence[LossConfig],
        *,
        seed: int = 0,
        saved: Mapping[str, Any] | None = None,
        settings: DistillationSettings | None = None,
        **changes: Any,
    ) -> None:
        settings = DistillationSettings.of(settings, **changes)
        super().__init__(settings.optim, settings.schedule, seed)
        self.folders = [path if isinstance(path, ModelFolder) else open_model(Path(path)) for path in teachers]
        self.set_loss_configs(losses, 1 if saved else len(self.folders))
        self.unfreeze_every = settings.unfreeze_every
        self._headless: list[Path] = []  # teachers without a trained masked-LM head
        with SeededDraws(seed):
            if saved is None:
                self._build(settings)
            else:
                self._build_saved(saved, settings.dropout)
        self.model.encoder.activation_checkpointing = settings.activation_checkpointing
        self._record_arguments(teachers=self.paths, losses=self.loss_configs, seed=seed, **vars(settings))

    @property
    def paths(self) -> list[Path]:
        """Folders of the teachers."""
        return [folder.path for folder in self.folders]

    def check_rows(self, data: PretrainingData) -> None:
        """Raise `DomainbertError` if the data is not for distillation, or if rows exceed the positions of a model."""
        if not isinstance(data, DistillationData):
            where = f"trainer.{TrainerFn(self.trainer.state.fn).value}"
            found = f"{type(data).__name__} with Distillation"
            raise DomainbertError(where=where, found=found, expected="DistillationData")
        positions = {"the student": self.config.max_length}
        positions |= {str(folder.path): folder.config.max_length for folder in self.folders}
        for name, count in positions.items():
            if data.row_length > count:
                raise max_length_error(data.row_length, count, name)

    def _build(self, settings: DistillationSettings) -> None:
        if not self.folders:
            raise DomainbertError(where="teachers", found="none", expected="at least one model folder")
        folder = self.folders[0]
        self.tokenizer = folder.tokenizer()
        for other in self.folders[1:]:
            if other.tokenizer().fingerprint != self.tokenizer.fingerprint:
                expected = "the same, as teachers are compared token by token; or distill-task, which compares words"
                found = f"{other.path} has another vocabulary than {folder.path}"
                raise DomainbertError(found, where="teachers", expected=expected)
            if other.vocab_size != folder.vocab_size:
                found = f"vocab_size {other.vocab_size:,} in {other.path}, {folder.vocab_size:,} in {folder.path}"
                raise DomainbertError(where="teachers", found=found, expected="equal sizes: logits are averaged")
        teachers = []
        for teacher_folder in self.folders:
            teacher, _, new_weights = load_model(teacher_folder, "masked_lm")
            teachers.append(teacher)
            # `config.json` may promise a head that the weights do not have
            if new_weights or not predicts_entries(teacher_folder.config, teacher_folder.head):
                self._headless.append(teacher_folder.path)
        student = settings.student
        self.config = student_config(student, folder.config)
        config = self.config.with_dropout(settings.dropout)  # only for the training: `self.config` is saved
        # pad_id of config.json may differ from the tokenizer's
        vocabulary = folder.vocabulary._replace(pad_id=self.tokenizer.pad_id)
        model, copied = build_student(config, student, teachers[0], "masked_lm", num_labels=0, vocabulary=vocabulary)
        print(f"student: {', '.join(copied) or 'nothing'} of {folder.path}; the rest starts at random")
        self._teacher_sizes = sizes_of(teachers[0].encoder)
        losses = self._build_losses(model)
        # the masked-LM head is trained if a loss reads logits, or was trained in the teacher
        self.predicts = bool(losses.reads) or ("head" in copied and folder.path not in self._headless)
        self.names, self.card_values = [model_name(path) for path in self.paths], inherited_values(self.paths[0])
        self._set_models(model, teachers if losses.needs_teacher else [], losses)

    def _build_saved(self, saved: Mapping[str, Any], dropout: float | None) -> None:
        """Build the student of a checkpoint, whose weights are loaded later, without teachers."""
        self.tokenizer = DomainTokenizer.from_plain(saved["tokenizer"])
        self.config = config_class_of(saved["config"]).from_json(saved["config"])
        vocabulary = VocabularyFacts(saved["vocab_size"], self.tokenizer.pad_id)
        model = build_model(self.config.with_dropout(dropout), vocabulary, "masked_lm", 0)
        self._teacher_sizes, self.predicts = Sizes(*saved["teacher"]), saved["predicts"]
        self.names, self.card_values = list(saved["names"]), dict(saved["card"])
        self._set_models(model, [], self._build_losses(model))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store the student, so that `load_from_checkpoint` needs no teacher."""
        super().on_save_checkpoint(checkpoint)
        arguments = checkpoint.get(self.CHECKPOINT_HYPER_PARAMS_KEY, {})
        arguments["teachers"] = []
        arguments["saved"] = {
            "tokenizer": self.tokenizer.as_plain(),
            "config": self.config.to_json(),
            "vocab_size": self.model.encoder.input_embeddings.num_embeddings,
            "teacher": list(astuple(self._teacher_sizes)),
            "predicts": self.predicts,
            "names": self.names,
            "card": self.card_values,
        }

    def _set_models(self, model: EncoderWithHead, teachers: Sequence[EncoderWithHead], losses: WeightedLosses) -> None:
        self.model, self.others = model, ModuleDict()
        self.set_teachers(teachers)
        self.set_losses(losses)
        counts = [count for unit, count in COUNTS.items() if unit != "examples"]  # a corpus has no examples
        names = [*(f"loss {name}" for name in losses.names), *counts]
        self.sums = MetricCollection({name: SumMetric(nan_strategy="disable") for name in names})

    def _build_losses(self, model: EncoderWithHead) -> WeightedLosses:
        weighted = WeightedLosses(self.loss_configs, sizes_of(model.encoder), self._teacher_sizes)
        if weighted.reads & {"predicted", "all"} and self._headless:
            raise DomainbertError(
                where="losses",
                found=f"a loss on predictions, but the teacher {self._headless[0]} has no trained masked-LM head",
                expected="losses on layers, such as HiddenMSE",
            )
        return weighted

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Return the weighted loss of a micro-batch, scaled so that gradients are means over the global batch."""
        # masked tokens are both the targets and the outputs of a corpus
        means = self.losses.means(self._loss_sums(batch), batch | {"num_outputs": batch["num_targets"]})
        return self.record_loss(self.losses.total(means), means)

    def validation_step(self, batch: dict[str, Any], batch_idx: int, dataloader_idx: int = 0) -> None:
        """Add the losses and counts of a batch to the sums of the validation, unless the batch is a copy."""
        has_target = batch["targets"] != IGNORE_INDEX
        batch |= {name: batch[name][has_target] for name in ("positions", "targets")}
        num_targets = has_target.sum()
        sums = {f"loss {name}": value for name, value in self._loss_sums(batch).items()}
        sums |= batch_counts(batch["position_ids"], batch["segment_ids"])
        sums |= {"num_targets": num_targets, "num_outputs": num_targets}  # masked tokens are both
        if SPARE in batch:  # a second copy of a batch, so that all processes compute the same number of batches
            return
        for name, value in sums.items():
            self.sums[name].update(value)

    @override
    def reset_scores(self) -> None:
        self.sums.reset()

    @override
    def report(self, stage: str) -> None:
        """Log the mean of each loss over the validation, and their weighted sum."""
        sums = self.sums.compute()
        means = self.losses.means({name: sums[f"loss {name}"] for name in self.losses.names}, sums)
        log_scores(self, stage, {**means, "loss": self.losses.total(means)}, LOSS)

    def save_pretrained(self, folder: str | Path, card: str | CardConfig | None = None) -> None:
        """Write the model folder of the student; every process must call it.

        Args:
            folder: created if it does not exist.
            card: text of the model card, or values for the header of the default card, such as its licence.

        Raises:
            DomainbertError: a weight is not finite.
        """
        weights = whole_weights(self.model)
        head = "masked_lm" if self.predicts else None
        text = card if isinstance(card, str) else self.card({}, card)
        with first_process_writes() as writes:
            if writes:
                save_model(
                    Path(folder),
                    self.model,
                    self.config,
                    self.tokenizer,
                    head,
                    text,
                    weights=weights,
                    teachers=self.names,
                )

    def card(self, facts: Mapping[str, Any], card_config: CardConfig | None = None) -> str:
        """Return the text of a model card. `facts` are further rows of its table; `card_config` has the settings of the
        user."""
        title, names = "Domain student", ", ".join(self.names)
        rows = {"encoder": self.config.model_type, "teacher": names, **facts}
        tag = "fill-mask" if self.predicts else "feature-extraction"
        head = card_head(title, tag, card_config, self.card_values, tags=["distillation"])
        return model_card(title, "An encoder distilled with domainbert.", rows, load_code(), head)

    def _loss_sums(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        positions, tokens = batch["positions"], TokenPositions.of(batch)
        # None computes no logits: no loss reads them
        reads = self.losses.reads
        student_positions = positions if "predicted" in reads or "hard" in reads else None
        all_positions = tokens.token_positions if "all" in reads else None
        layers = self.losses.attention_layers(side="student")
        student = compute_outputs(self.model, batch, layers, student_positions, all_positions)
        if "hard" in reads:
            assert student.logits is not None
            hard = functional.cross_entropy(student.logits.float(), batch["targets"], reduction="sum")
            student = replace(student, hard_loss=hard)
        teacher = None
        if self.losses.needs_teacher:
            self.check_teachers()
            teacher_positions = positions if "predicted" in reads else None
            layers = self.losses.attention_layers(side="teacher")
            with torch.no_grad():
                teacher = mean_outputs(
                    [compute_outputs(model, batch, layers, teacher_positions, all_positions) for model in self.teachers]
                )
        return self.losses.sums(student, teacher, tokens)
