"""What a student, a checkpoint or a new training takes from the folders of its teacher and of its model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from lightning.pytorch.callbacks import ModelCheckpoint

from domainbert.distillation.config import LossConfig
from domainbert.distillation.corpus_distillation import Distillation, DistillationData
from domainbert.distillation.hidden_config import HiddenMSE
from domainbert.distillation.prediction_config import HardTargets, LogitMSE, SoftTargets
from domainbert.distillation.student_config import StudentConfig
from domainbert.distillation.task_distillation import TaskDistillation
from domainbert.distillation.transfer_data import TransferData
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.families import build_model
from domainbert.encoders.roberta.config import RobertaConfig
from domainbert.models.saving import save_model
from domainbert.tasks.classification.config import Classification
from domainbert.tasks.finetuning import FineTuning
from domainbert.tokenization.load import load_tokenizer
from tests.library.trainer.tiny_library import BERT, Tiny, copied, trainer, weights
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("one_thread")

ROWS = [{"text": f"A loän of {n} banks" * (1 + n % 3), "label": "ab"[n % 2]} for n in range(8)]
ONE_LAYER = StudentConfig(first_layers=1)


def classifier(tiny: Tiny, out: Path, vocabulary: str = "vocab", **config: Any) -> Path:
    """A folder of a classifier with random weights and a card."""
    task = Classification(labels=("a", "b"), **config)
    module = FineTuning(load_tokenizer(tiny / vocabulary), task, init="random", encoder=BERT)
    module.save_pretrained(out)
    readme = (out / "README.md").read_text(encoding="utf-8")
    (out / "README.md").write_text(readme.replace("---\n", "---\nlicense: mit\n", 1), encoding="utf-8")
    return out


def data_of(module: Any, **more: Any) -> TransferData:
    """Eight texts of two classes."""
    return TransferData(module.task, ROWS, tokenizer=module.tokenizer, batch_size=4, **more)


def masked_lm(tiny: Tiny, out: Path, extra_entries: int = 0, config: Any = BERT) -> Path:
    """A folder of a masked LM with random weights, whose table has `extra_entries` more than its tokenizer."""
    tokenizer = load_tokenizer(tiny / "vocab")
    facts = VocabularyFacts(tokenizer.vocab_size + extra_entries, tokenizer.pad_id)
    out.mkdir()
    save_model(out, build_model(config, facts, "masked_lm", 0), config, tokenizer, "masked_lm", "")
    return out


def checkpointed(module: Any, data: Any, out: Path) -> Path:
    """Train for a step, and return the checkpoint."""
    keeps = ModelCheckpoint(out, filename="last")
    trainer(callbacks=[keeps], max_steps=1, enable_checkpointing=True).fit(module, data)
    return out / "last.ckpt"


def test_a_checkpoint_keeps_the_pooling_of_the_folder(tiny, tmp_path):
    folder = classifier(tiny, tmp_path / "mean", pooling="mean")
    module = FineTuning.from_pretrained(folder, Classification())
    data = data_of(module)
    loaded = FineTuning.load_from_checkpoint(checkpointed(module, data, tmp_path), weights_only=True)
    assert loaded.model.head.pooling == "mean"
    loaded.save_pretrained(tmp_path / "saved")
    assert json.loads((tmp_path / "saved/config.json").read_text())["domainbert_pooling"] == "mean"


def test_a_student_of_a_teacher_has_its_pooling_and_the_values_of_its_card(tiny, tmp_path):
    folder = classifier(tiny, tmp_path / "max", pooling="max")
    module = TaskDistillation([folder], Classification(), [SoftTargets()], student=ONE_LAYER)
    assert module.model.head.pooling == "max" and module.task.labels == ("a", "b")
    module.save_pretrained(tmp_path / "student")
    assert json.loads((tmp_path / "student/config.json").read_text())["domainbert_pooling"] == "max"
    assert ModelCard.load(tmp_path / "student/README.md").data.license == "mit"


@pytest.mark.parametrize(("saved", "given"), [(None, "cls"), ("cls", None), ("mean", "mean")])
def test_a_trained_head_is_kept_if_it_reads_the_same(tiny, tmp_path, saved, given):
    folder = classifier(tiny, tmp_path / "folder", pooling=saved)
    before = FineTuning.from_pretrained(folder, Classification())
    after = FineTuning.from_pretrained(folder, Classification(pooling=given), seed=5)
    assert torch.equal(after.model.head.classifier.weight, before.model.head.classifier.weight)
    with refused(where="task", found="Classification() without labels, with other settings..."):
        FineTuning.from_pretrained(folder, Classification(pooling="max"))
    other = FineTuning.from_pretrained(folder, Classification(labels=("a", "b"), pooling="max"), seed=5)
    assert not torch.equal(other.model.head.classifier.weight, before.model.head.classifier.weight)


def test_without_labels_the_student_has_the_labels_of_the_teacher_in_their_order(tiny, tmp_path):
    """The model that it starts from has no labels, or the same labels in another order."""
    teacher = classifier(tiny, tmp_path / "teacher")
    first = FineTuning.from_pretrained(teacher, Classification(labels=("b", "a")))
    first.save_pretrained(tmp_path / "reversed")
    for model in (tiny / "model", tmp_path / "reversed"):
        module = TaskDistillation([teacher], Classification(), [SoftTargets()], model=model)
        assert module.task.labels == tuple(module.ensemble.predictors[0].labels) == ("a", "b")
    assert torch.equal(module.model.head.classifier.weight, first.model.head.classifier.weight.flip(0))


def test_hard_targets_alone_run_no_teacher(tiny, tmp_path):
    """Its vocabulary is smaller: the ids of the student would lie outside it."""
    teacher = classifier(tiny, tmp_path / "teacher", vocabulary="other-vocab")
    module = TaskDistillation([teacher], Classification(), [HardTargets()], model=tiny / "model")
    assert module.teachers == ()
    before = weights(module)
    data = data_of(module, teachers=[teacher])
    trainer(max_steps=2).fit(module, data)
    assert not torch.equal(module.state_dict()["model.head.classifier.weight"], before["model.head.classifier.weight"])


def test_the_cache_of_the_data_counts(tiny, tmp_path):
    """Teachers are given as paths: only the data has a cache."""
    teacher = classifier(tiny, tmp_path / "teacher", vocabulary="other-vocab")
    module = TaskDistillation([teacher], Classification(), [SoftTargets()], model=tiny / "model")
    with refused(problem="missing", where="cache", expected="a folder, because a teacher with another vocabulary..."):
        trainer(max_steps=1).fit(module, data_of(module))
    cached = data_of(module, teachers=[teacher], cache=str(tmp_path / "cache"))
    trainer(max_steps=1).fit(module, cached)
    assert module.teachers == () and len(list((tmp_path / "cache").iterdir())) > 0

    module = TaskDistillation([tmp_path / "teacher"], Classification(), [LogitMSE()], model=tiny / "model")
    few = data_of(module, teachers=[teacher], cache=str(tmp_path / "cache"), top_k=1)
    with refused(where="losses", problem="LogitMSE compares the logits...the top_k highest", expected="SoftTargets"):
        trainer(max_steps=1).fit(module, few)


def test_a_teacher_without_the_weights_of_its_head_predicts_nothing(tiny, tmp_path):
    """`config.json` names a masked LM, as do folders of sentence encoders."""
    (tmp_path / "encoder").mkdir()
    tokenizer = load_tokenizer(tiny / "vocab")
    model = build_model(BERT, VocabularyFacts(tokenizer.vocab_size, tokenizer.pad_id), "masked_lm", 0)
    save_model(tmp_path / "encoder", model, BERT, tokenizer, None, "")
    config = json.loads((tmp_path / "encoder/config.json").read_text())
    (tmp_path / "encoder/config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))
    with refused(where="losses", found="a loss on predictions, but...encoder has no trained masked-LM head"):
        Distillation([tmp_path / "encoder"], [SoftTargets()], student=ONE_LAYER)
    assert not Distillation([tmp_path / "encoder"], [HiddenMSE()], student=ONE_LAYER).predicts
    assert Distillation([tiny / "model"], [HiddenMSE()], student=ONE_LAYER).predicts


def test_teachers_with_tables_of_different_sizes_have_no_mean(tiny, tmp_path):
    padded = masked_lm(tiny, tmp_path / "padded", extra_entries=64)
    with refused(where="teachers", found="vocab_size 448 in ...padded, 384 in ...model"):
        Distillation([tiny / "model", padded], [SoftTargets()])


@pytest.mark.parametrize("losses", [[SoftTargets()], [HiddenMSE(), HardTargets()]])
def test_a_loaded_student_has_no_teachers(tiny, tmp_path, losses: list[LossConfig]):
    module = Distillation([tiny / "model"], losses, student=StudentConfig(layers=[0, 1]))
    data = DistillationData(tiny / "prepared", max_length=32, batch_size=16)
    loaded = Distillation.load_from_checkpoint(checkpointed(module, data, tmp_path), weights_only=True)
    with refused(where="teachers", found="none, as in a loaded checkpoint", expected="Distillation(teachers)"):
        trainer().validate(loaded, data, verbose=False)


def test_a_checkpoint_keeps_further_keys_of_the_configuration(tiny, tmp_path):
    """RoBERTa's positions begin after `pad_token_id`, a key of the file that is no size of the encoder."""
    config = RobertaConfig(16, 2, 2, 32, max_position_embeddings=50, initializer_range=0.1)
    folder = masked_lm(tiny, tmp_path / "model", config=config)
    fields = json.loads((folder / "config.json").read_text()) | {"court": "é"}
    (folder / "config.json").write_text(json.dumps(fields))
    module = Distillation([copied(folder, tmp_path / "copy")], [HardTargets()], student=ONE_LAYER)
    data = DistillationData(tiny / "prepared", max_length=32, batch_size=16)
    path = checkpointed(module, data, tmp_path)
    loaded = Distillation.load_from_checkpoint(path, weights_only=True)
    assert loaded.config == module.config and loaded.config.max_length == module.config.max_length
    loaded.save_pretrained(tmp_path / "saved")
    assert json.loads((tmp_path / "saved/config.json").read_text())["court"] == "é"
