"""Wrong input is reported in one sentence, as by the stages."""

from __future__ import annotations

from dataclasses import replace

import pytest
from torch.utils.data import DataLoader

from domainbert.base.errors import DomainbertError
from domainbert.distillation.corpus_distillation import Distillation, DistillationData
from domainbert.distillation.prediction_config import HardTargets, SoftTargets
from domainbert.distillation.student_config import StudentConfig
from domainbert.distillation.task_distillation import TaskDistillation
from domainbert.distillation.transfer_data import TransferData
from domainbert.encoders.bert.config import BertConfig
from domainbert.pretraining.data_module import PretrainingData
from domainbert.pretraining.module import Pretraining
from domainbert.pretraining.objectives.replaced_tokens.config import ReplacedTokens
from domainbert.tasks.classification.config import Classification
from domainbert.tasks.finetuning import FineTuning
from domainbert.tasks.labelled_data import LabelledData
from domainbert.tasks.ner.config import Ner
from domainbert.tokenization.load import load_tokenizer
from domainbert.training.length_phases import LengthPhase
from tests.library.trainer.tiny_library import DATA, TASK, trainer
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("one_thread")


def fit(module, data=None, **arguments):
    trainer(max_steps=1, **arguments).fit(module, data)


def test_wrong_model_folders(tiny, tmp_path):
    with refused(file="nowhere", problem="no config.json", expected="a model folder"):
        FineTuning.from_pretrained(tmp_path / "nowhere", TASK)
    with refused(where="task", found="Ner() without labels, and ...model has no head for ner"):
        FineTuning(tiny / "model", TASK)
    with refused(where="model", found="a tokenizer without an encoder", expected="a model folder, or init..."):
        FineTuning(load_tokenizer(tiny / "vocab"), Ner(labels=("PER",)), init="random")
    with refused(where="task", found="Classification() without labels, and ...tagger has no..."):
        FineTuning(tiny / "tagger", Classification())
    with refused(where="task", found="Ner() without labels and no train set", expected="Ner(la..."):
        _ = LabelledData(TASK).task


def test_a_head_that_was_never_trained_is_told(tiny, capsys):
    trainer().test(tiny.module(), tiny.data(), verbose=False)
    assert "warning: no trained task head" in capsys.readouterr().out
    trainer().test(tiny.module(model=tiny / "tagger"), tiny.data(), verbose=False)
    assert "warning" not in capsys.readouterr().out


def test_labels_that_the_model_does_not_know(tiny, tmp_path):
    (tmp_path / "other.conll").write_text("Merkel B-PER\nin O\nParis B-CITY\n")
    problem = "label 'CITY' (count 1, first here) was not in training"
    facts = {"file": "other.conll", "line": 1, "problem": problem, "expected": "a training label: 'LOC'..."}
    with refused(**facts):
        trainer().test(tiny.module(model=tiny / "tagger"), tiny.data(test=tmp_path / "other.conll"))
    with refused(**facts):
        fit(tiny.module(), tiny.data(validation=tmp_path / "other.conll"))


@pytest.mark.parametrize(
    ("stage", "given", "where", "found", "expected"),
    [
        ("fit", {}, "trainer.fit", "no train set", "LabelledData(..., train=...)"),
        ("validate", {}, "trainer.validate", "no validation set", "LabelledData(..., validation=..."),
        ("test", {}, "trainer.test", "no test set", "LabelledData(..., test=...)"),
        ("predict", {}, "trainer.predict", "nothing to predict", "LabelledData(..., predict=..."),
        ("predict", {"predict": []}, "predict", "LabelledData(predict=[])", "texts, lists of words..."),
    ],
)
def test_sets_that_are_not_given(tiny, stage, given, where, found, expected):
    with refused(where=where, found=found, expected=expected):
        module = tiny.module(model=tiny / "tagger")
        getattr(trainer(), stage)(module, LabelledData(module.task, tokenizer=module.tokenizer, **given))


def test_a_row_to_predict_without_a_text_is_named(tiny):
    rows = [{"text": "A loan."}, {"txt": "A grant."}, {"text": 3}]
    module = tiny.module(model=tiny / "tagger")
    with refused(where="text 2", problem="no string under 'text'", expected="... (and 1 more like this)"):
        trainer().predict(module, LabelledData(module.task, predict=rows, tokenizer=module.tokenizer))


def test_a_pair_that_fits_in_no_window_is_named(tiny, tmp_path):
    """By its place in the set, not in its batch."""
    task = Classification(format={"text_pair_key": "text_pair"})
    rows = [{"text": f"A loan {n}.", "text_pair": "A grant.", "label": "ab"[n % 2]} for n in range(6)]
    train = LabelledData(task, rows, tokenizer=tiny / "model", batch_size=2)
    module = tiny.module(task=train.task, max_length=None)
    fit(module, train)
    rows[4] |= {"text": "A loan. " * 20, "text_pair": "A grant. " * 20}
    data = LabelledData(module.task, test=rows, batch_size=2, tokenizer=tiny / "model")
    with refused(file="test", line=5, problem="the first text of this pair has..."):
        trainer().test(module, data)
    with refused(where="text 5", problem="the first text of this pair has..."):
        trainer().predict(module, data)


def test_a_loss_that_depends_on_a_training_set_needs_one(tiny, tmp_path):
    """Also with loaders of another kind, and where teachers have the units of the training."""
    rows = [{"text": f"A loan {n}.", "label": "ab"[n % 2]} for n in range(6)]
    task = Classification(labels=("a", "b"), class_weights="balanced")
    data = LabelledData(task, rows, tokenizer=tiny / "model", batch_size=2)
    data.setup("fit")
    known = {"where": "task", "found": "Classification without values from a training set..."}
    with refused(**known, expected="the task of LabelledData(..., train=...)"):
        trainer(max_steps=1).fit(tiny.module(task=task), data.train_dataloader())
    trainer(max_steps=1).fit(tiny.module(task=data.task), DataLoader(list(data.train_dataloader()), batch_size=None))
    tiny.module(task=data.task).save_pretrained(tmp_path)
    module = TaskDistillation([tmp_path], task, [SoftTargets()], student=StudentConfig(first_layers=1))
    with refused(**known, expected="the task of TransferData(..., train=...)"):
        fit(module, TransferData(task, rows, tokenizer=tmp_path))


def test_the_training_batches_of_data_that_the_trainer_does_not_know(tiny):
    """Each epoch and each process would read the same batches."""
    for module, data in ((tiny.module(), tiny.data()), (tiny.pretraining(), tiny.rows())):
        data.setup("fit")
        with refused(where="trainer.fit", expected="trainer.fit(module, datamodule=data)"):
            trainer(max_steps=1).fit(module, data.train_dataloader())


def test_another_vocabulary(tiny):
    with refused(where="tokenizer", problem="the data has another vocabulary than the model"):
        fit(tiny.module(), tiny.data(tokenizer=tiny / "other"))
    with refused(where="prepared", problem="...prepared has another vocabulary than the model"):
        fit(Pretraining.from_pretrained(tiny / "other"), tiny.rows())
    with refused(where="prepared", problem="...prepared has another vocabulary than the model"):
        fit(Distillation([tiny / "other"], [HardTargets()]), DistillationData(tiny / "prepared", max_length=32))
    hint = "remove it, or make a model with this vocabulary from...model with `transfer`"
    with refused(where="tokenizer", problem="another vocabulary than the model of init_from", hint=hint):
        Pretraining(tokenizer=tiny / "other", init_from=tiny / "model")
    with refused(where="teachers", problem="...other has another vocabulary than ...model", expected="the..."):
        Distillation([tiny / "model", tiny / "other"], [SoftTargets()])


def test_modules_and_data_that_do_not_belong_together(tiny):
    with refused(where="trainer.fit", found="LabelledData with Pretraining", expected="PretrainingData"):
        fit(tiny.pretraining(), tiny.data())
    with refused(where="trainer.fit", found="PretrainingData with FineTuning", expected="Labelled..."):
        fit(tiny.module(), tiny.rows())
    with refused(where="trainer.fit", found="LabelledData with TaskDistillation"):
        fit(TaskDistillation([tiny / "tagger"], tiny.data().task, [HardTargets()]), tiny.data())

    with refused(where="trainer.fit", found="PretrainingData with Distillation", expected="DistillationData"):
        fit(Distillation([tiny / "model"], [HardTargets()]), tiny.rows())
    with refused(where="objective", found="MaskedLM in the data and ReplacedTokens in the module..."):
        fit(tiny.pretraining(objective=ReplacedTokens()), tiny.rows())
    rows = DistillationData(tiny / "prepared", max_length=32, predict=["A loan."])
    (vectors,) = trainer().predict(Distillation([tiny / "model"], [HardTargets()]), rows)
    assert vectors.shape == (1, 16)

    with refused(where="task", found="Classification in the data and Ner in FineTuning"):
        fit(tiny.module(), LabelledData(Classification(), DATA / "classes-train.jsonl", tokenizer=tiny / "model"))
    with refused(where="task.head", found="'crf' in the data and 'linear' in FineTuning"):
        fit(tiny.module(), tiny.data(task=replace(TASK, head="crf")))
    other = Ner(head="linear", labels=("LOC", "ORG", "PER", "X"))
    with refused(where="task", found="the labels 'O', ...'B-X'... in the data", expected="'O',..."):
        fit(tiny.module(), tiny.data(task=other))


@pytest.mark.parametrize(
    ("build", "where", "found", "expected"),
    [
        (lambda: LabelledData("Ner"), "task", "'Ner'", "an instance of TaskConfig: Class..., Ner,..."),
        (lambda: FineTuning("model", Ner), "task", "<class '....Ner'>", "an instance of TaskConfig:..."),
        (lambda: FineTuning("model", TASK, optim="adamw"), "optim", "'adamw'", "an instance of OptimConfig"),
        (lambda: FineTuning("model", TASK, encoder="small"), "encoder", "'small'", "an instance of..."),
        (lambda: Pretraining("small", "vocab"), "encoder", "'small'", "an instance of EncoderConfig:..."),
        (lambda: Pretraining(BertConfig(), "vocab", "mlm"), "objective", "'mlm'", "an instance of..."),
        (lambda: LabelledData(TASK, batch_size="16"), "batch_size", "'16'", "an integer from 1 to 1,000,000"),
        (lambda: PretrainingData("rows", batch_size=0), "batch_size", "0", "an integer from 1 to 1,000,..."),
        (
            lambda: TaskDistillation(["a"], TASK, [SoftTargets(positions="all")]),
            "losses[0].positions",
            "'all', only for distill",
            "predicted",
        ),
        (
            lambda: TaskDistillation(["a"], TASK, [HardTargets()], model="b", student=StudentConfig(layers=(0,))),
            "student",
            "next to model",
            "only student or only model",
        ),
        (lambda: TransferData(TASK, unlabelled="a.txt"), "unlabelled", "'a.txt'", "CorpusConfig([Source(...)]) or..."),
        (
            lambda: TransferData(TASK, unlabelled=["Prices rose."] * 2, max_unlabelled=1),
            "unlabelled",
            "2 texts",
            "at most 1, or max_unlabelled=None",
        ),
        (
            lambda: TransferData(TASK, unlabelled_batch_size=0),
            "unlabelled_batch_size",
            "0",
            "an integer from 1 to 1,000,...",
        ),
    ],
)
def test_arguments_of_another_type(build, where, found, expected):
    with refused(where=where, found=found, expected=expected):
        build()


def test_data_are_printed_without_being_read(tiny):
    assert str(tiny.data()).startswith("<domainbert.tasks.labelled_data.LabelledData object")


def test_only_the_first_process_prints_the_sets(tiny, capsys, monkeypatch):
    for rank, count in (("1", 0), ("0", 1)):
        monkeypatch.setenv("LOCAL_RANK", rank)
        data = tiny.data()
        data.setup("fit")
        _ = data.scoring
        printed = capsys.readouterr().out
        assert [printed.count(f"ner-{name}.conll: ") for name in ("validation", "test")] == [count, count]


def test_lengths(tiny):
    with refused(where="max_length", found="64", expected="at most 48, ..."):
        fit(tiny.module(), tiny.data(max_length=64))
    module = tiny.module()
    fit(module, tiny.data())
    for stage in (trainer(max_epochs=1).fit, trainer().validate):  # the model is built already
        with refused(where="max_length", found="64", expected="at most 48, ..."):
            stage(module, tiny.data(max_length=64))
    for stage in (trainer(max_epochs=1).fit, trainer().validate, trainer().test, trainer().predict):
        with refused(where="max_length", found="32 in the data and 24 in FineTuning", expected="the same"):
            stage(module, tiny.data(max_length=32))
    with refused(where="max_length", found="64", expected="at most 48, ..."):
        fit(tiny.pretraining(), tiny.rows(max_length=64))
    phases = (LengthPhase(16, until=0.5), LengthPhase(48))
    with refused(where="trainer.max_steps", problem="not set, with 2 phases of max_length"):
        trainer(max_epochs=1).fit(tiny.pretraining(), tiny.rows(max_length=phases))
    run = trainer(fast_dev_run=True)  # one step of the last phase
    run.fit(tiny.pretraining(), tiny.rows(max_length=phases))
    assert run.global_step == 1


def test_pretraining_without_a_start_or_a_test_set(tiny):
    with refused(where="encoder, init_from", found="neither", expected="exactly one of the two"):
        Pretraining()
    with refused(where="encoder, init_from", found="both", expected="exactly one of the two"):
        Pretraining(BertConfig(), init_from=tiny / "model")
    with refused(where="trainer.test", found="no test set", expected="PretrainingData(...,..."):
        trainer().test(tiny.pretraining(), PretrainingData(tiny / "prepared", max_length=32))
    with refused(where="trainer.predict", found="no texts", expected="PretrainingData(...,..."):
        trainer().predict(tiny.pretraining(), tiny.rows(predict=[]))
    with refused(where="tokenizer", found="none", expected="Pretraining(encoder, tokenizer)"):
        Pretraining(BertConfig())


def test_a_class_that_a_checkpoint_names_is_looked_up_and_never_imported(tiny):
    with refused(where="class_path", found="'os.system'", expected="a subclass of TaskConfig..."):
        FineTuning(tiny / "model", {"class_path": "os.system", "init_args": {}})
    with refused(where="OptimConfig", found="the key 'learning_rate'", expected="one of name, lr..."):
        FineTuning(tiny / "model", TASK, optim={"learning_rate": 1.0})
    with pytest.raises(DomainbertError, match=r"^losses: .*found 'Nothing'|^class_path: found 'Nothing'"):
        Distillation([tiny / "model"], [{"class_path": "Nothing"}])
    assert Distillation([tiny / "model"], [{"class_path": "SoftTargets"}]).loss_configs == [SoftTargets()]
