"""Distillation of masked language models on a corpus, as a LightningModule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Dataset
from torchmetrics import MetricCollection, SumMetric
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.base.paths import model_name
from domainbert.data.packing import IGNORE_INDEX, Batch
from domainbert.data.splits import PreparedCorpus
from domainbert.distillation.batches import CountedRows, batch_counts
from domainbert.distillation.config import LossConfig
from domainbert.distillation.losses import TokenPositions
from domainbert.distillation.module import DistillationModule
from domainbert.distillation.student_config import StudentConfig
from domainbert.distillation.students import build_student, student_config
from domainbert.distillation.weighted import COUNTS, WeightedLosses, compute_outputs, mean_outputs
from domainbert.encoders.config import EncoderConfig, max_length_problem
from domainbert.encoders.heads import EncoderWithHead
from domainbert.models.card import CardConfig, card_head, load_code, model_card
from domainbert.models.folder import ModelFolder, open_model
from domainbert.models.loading import load_model, predicts_entries
from domainbert.models.saving import save_model
from domainbert.pretraining.batches import TrainRows
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.data_module import PretrainingData
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.pretraining.rows_module import RowsModule
from domainbert.training.checkpoints import whole_weights
from domainbert.training.config import OptimConfig, ScheduleConfig
from domainbert.training.data_module import SPARE
from domainbert.training.hparams import from_plain
from domainbert.training.module import seeded


class Distillation(DistillationModule, RowsModule):
    """Distils masked language models into a smaller one on packed rows of a corpus.

        student = StudentConfig(every_nth_layer=2)
        module = Distillation(["models/teacher"], [SoftTargets(), HardTargets()], student=student)
        lightning.Trainer(max_steps=10_000).fit(module, PretrainingData("runs/prepared", max_length=128))
        module.save_pretrained("runs/student")

    >>> from domainbert import Distillation, HardTargets
    >>> Distillation(["model"], [HardTargets()], unfreeze_every=100).unfreeze_every
    100

    Teachers and student read the same batches; the teachers are in eval mode, without gradients, and in no checkpoint.
    Logged: `train/NAME` and `validation/NAME` of each loss, and the weighted sum as `train/loss`, `validation/loss`.

    Args:
        teachers: model folders, usually one; several are an ensemble, whose logits are averaged.
        losses: losses of the student; their weighted sum is minimised.
        student: architecture of the student, and the weights that it copies from the first teacher.
        masking: masking of the input of student and teachers.
        optim, schedule: optimizer and learning-rate schedule; `head_lr` is also the learning rate of projections.
        seed: random seed of new weights, dropout, and of data without a seed (order, masks).
        unfreeze_every: optimizer steps after which the next lower layer is unfrozen; 0 freezes nothing.
        dropout: dropout of the student during training; None keeps the dropout of its config.
        activation_checkpointing: recompute each layer in the backward pass, which saves memory.

    Attributes:
        config: architecture of the student.
        predicts: whether the student has a trained or copied masked-LM head, which is saved.
    """

    validates_by_language = False
    config: EncoderConfig
    predicts: bool

    def __init__(
        self,
        teachers: Sequence[str | Path | ModelFolder],
        losses: Sequence[LossConfig],
        *,
        student: StudentConfig = StudentConfig(),
        masking: MaskingConfig = MaskingConfig(),
        optim: OptimConfig = OptimConfig(),
        schedule: ScheduleConfig = ScheduleConfig(),
        seed: int = 0,
        unfreeze_every: int = 0,
        dropout: float | None = None,
        activation_checkpointing: bool = False,
    ) -> None:
        self.folders = [path if isinstance(path, ModelFolder) else open_model(Path(path)) for path in teachers]
        self.student: StudentConfig = from_plain(StudentConfig, student)
        self.set_loss_configs(losses, len(self.folders))
        masked_lm = MaskedLM(from_plain(MaskingConfig, masking))
        super().__init__(self.folders[0].tokenizer(), masked_lm, optim, schedule, seed)
        self.unfreeze_every, self.dropout = unfreeze_every, dropout
        self.activation_checkpointing = activation_checkpointing
        self.record_arguments(
            teachers=self.paths,
            losses=self.loss_configs,
            student=self.student,
            masking=masked_lm.masking,
            optim=self.optim,
            schedule=self.schedule,
            seed=seed,
            unfreeze_every=unfreeze_every,
            dropout=dropout,
            activation_checkpointing=activation_checkpointing,
        )

    @property
    def paths(self) -> list[Path]:
        """Folders of the teachers."""
        return [folder.path for folder in self.folders]

    def objective_for(self, corpus: PreparedCorpus) -> Any:
        """Return the masked-LM objective; raise `DomainbertError` if the corpus has another vocabulary than a
        teacher."""
        for folder in self.folders:
            if folder.tokenizer().fingerprint != corpus.tokenizer_fingerprint:
                names = ", ".join(type(loss).__name__ for loss in self.loss_configs)
                raise DomainbertError(
                    f"prepared: {corpus.tokenizer_folder.parent} has another vocabulary than the teacher "
                    f"{folder.path}, but {names} compare token by token; expected a corpus prepared with the tokenizer "
                    "of the teacher, or the stage distill-task, which compares words"
                )
        return super().objective_for(corpus)

    @property
    @override
    def fingerprint(self) -> None:
        """None, so that the data does not compare vocabularies: `objective_for` does, for each teacher."""

    def wrap(self, rows: TrainRows) -> Dataset[Batch]:
        """Return the rows with the counts by which the losses are divided."""
        return CountedRows(rows)

    def resolve(self, data: PretrainingData, stage: str) -> None:  # type: ignore[override]
        """Build the student if it does not exist; see `TrainedModule.resolve`. Raise `DomainbertError` if rows are
        longer than the positions of a model, or if the data has held-out texts, which no validation reads."""
        if data.held_out and stage in ("fit", "validate"):
            found = f"{', '.join(data.held_out)} in PretrainingData with Distillation"
            raise DomainbertError(f"held_out: found {found}; expected none, or Pretraining")
        if not self.is_built:
            self.build(data.corpus)
        positions = {"the student": self.config.max_length}
        positions |= {str(folder.path): folder.config.max_length for folder in self.folders}
        for name, count in positions.items():
            if data.row_length > count:
                raise DomainbertError(max_length_problem(data.row_length, count, name))

    def build(self, corpus: PreparedCorpus | None) -> None:
        """Load the teachers, build the student from the first of them, and set the losses. Raise `DomainbertError` if a
        loss cannot compare student and teacher (named by its index), or reads a head that a teacher does not have."""
        with seeded(self.seed):
            teachers = [load_model(folder, "masked_lm")[0] for folder in self.folders]
            folder, first_teacher = self.folders[0], teachers[0]
            self.config = student_config(self.student, folder.config)
            config = self.config.with_dropout(self.dropout)  # only for the training: `self.config` is saved
            # pad_id of config.json may differ from the tokenizer's
            vocabulary = folder.vocabulary._replace(pad_id=folder.tokenizer().pad_id)
            model, copied = build_student(
                config, self.student, first_teacher, "masked_lm", num_labels=0, vocabulary=vocabulary
            )
            model.encoder.activation_checkpointing = self.activation_checkpointing
            print(f"student: {', '.join(copied) or 'nothing'} of {folder.path}; the rest starts at random")
            losses = self._build_losses(model, first_teacher)
        # the masked-LM head is trained if a loss reads logits, or was trained in the teacher
        self.predicts = bool(losses.reads) or ("head" in copied and predicts_entries(folder.config, folder.head))
        self.begin(model, teachers if losses.needs_teacher else [], losses)

    def begin(self, model: EncoderWithHead, teachers: Sequence[EncoderWithHead], losses: WeightedLosses) -> None:
        """Set student, teachers and losses, and the sums of a validation: of each loss, and of each count."""
        self.set_models(model)
        self.set_teachers(teachers)
        self.set_losses(losses)
        counts = [count for unit, count in COUNTS.items() if unit != "examples"]  # a corpus has no examples
        names = [*(f"loss {name}" for name in losses.names), *counts]
        self.sums = MetricCollection({name: SumMetric(nan_strategy="disable") for name in names})

    def _build_losses(self, model: EncoderWithHead, teacher: EncoderWithHead) -> WeightedLosses:
        """Return the losses; raise `DomainbertError` if they read predictions of a teacher without a masked-LM head."""
        weighted = WeightedLosses(self.loss_configs, model.encoder, teacher.encoder)
        headless = [folder.path for folder in self.folders if not predicts_entries(folder.config, folder.head)]
        if weighted.reads & {"predicted", "all"} and headless:
            raise DomainbertError(
                f"losses: found a loss on predictions, but the teacher {headless[0]} has no masked-LM head; expected "
                "losses on layers, such as HiddenMSE"
            )
        return weighted

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Return the weighted loss of a micro-batch, scaled so that gradients are means over the global batch."""
        # masked tokens are both the targets and the outputs of a corpus
        means = self.losses.means(self._loss_sums(batch), batch | {"num_outputs": batch["num_targets"]})
        return self.record_loss(self.losses.total(means), means)

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
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
    def report(self, stage: str) -> None:
        """Log the mean of each loss over the validation, and their weighted sum; clear the sums."""
        sums = self.sums.compute()
        self.sums.reset()
        means = self.losses.means({name: sums[f"loss {name}"] for name in self.losses.names}, sums)
        self.log_dict({f"{stage}/{name}": value for name, value in means.items()})
        self.log(f"{stage}/loss", self.losses.total(means))

    def save_pretrained(self, folder: str | Path, card: str | None = None) -> None:
        """Write the model folder of the student; every process must call it.

        Args:
            folder: created if it does not exist.
            card: text of the model card; None writes a default card.

        Raises:
            DomainbertError: the student is not built yet; a weight is not finite.
        """
        if not self.is_built:
            raise DomainbertError("save_pretrained: the student is not built yet; expected trainer.fit before it")
        assert self.tokenizer is not None
        weights = whole_weights(self.model)
        head = "masked_lm" if self.predicts else None
        text = self.card({}) if card is None else card
        names = [model_name(path) for path in self.paths]
        with self.writing() as writes:
            if writes:
                save_model(
                    Path(folder), self.model, self.config, self.tokenizer, head, text, weights=weights, teachers=names
                )

    def card(self, facts: Mapping[str, Any], card_config: CardConfig | None = None) -> str:
        """Return the text of a model card. `facts` are further rows of its table; `card_config` has the settings of the
        user."""
        title, names = "Domain student", ", ".join(path.name for path in self.paths)
        rows = {"encoder": self.config.model_type, "teacher": names, **facts}
        tag = "fill-mask" if self.predicts else "feature-extraction"
        head = card_head(title, tag, card_config, self.paths[0], tags=["distillation"])
        return model_card(title, "An encoder distilled with domainbert.", rows, load_code(), head)

    def _loss_sums(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return each loss summed over a micro-batch, by name. Models compute only the logits that a loss reads."""
        positions, reads = batch["positions"], self.losses.reads
        student_positions = positions if reads & {"predicted", "hard"} else None
        tokens = TokenPositions.of(batch)
        all_positions = tokens.token_positions if "all" in reads else None
        layers = self.losses.attention_layers(side="student")
        student = compute_outputs(self.model, batch, layers, student_positions, all_positions)
        if "hard" in reads:
            assert student.logits is not None
            hard = functional.cross_entropy(student.logits.float(), batch["targets"], reduction="sum")
            student = replace(student, hard_loss=hard)
        teacher = None
        if self.losses.needs_teacher:
            teacher_positions = positions if "predicted" in reads else None
            layers = self.losses.attention_layers(side="teacher")
            with torch.no_grad():
                teacher = mean_outputs(
                    [compute_outputs(model, batch, layers, teacher_positions, all_positions) for model in self.teachers]
                )
        return self.losses.sums(student, teacher, tokens)
