"""`trainer.predict` of modules for packed rows: vectors of texts, compared with the encoder on each text alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from domainbert.data.batches import Share
from domainbert.data.examples import window_bounds
from domainbert.distillation.corpus_distillation import Distillation, DistillationData
from domainbert.distillation.prediction_config import HardTargets
from domainbert.distillation.student_config import StudentConfig
from domainbert.encoders.packed import Packed
from domainbert.models.loading import load_encoder
from domainbert.pretraining.module import Pretraining
from domainbert.tokenization.align import align_text
from domainbert.training.data_module import TrainingData
from domainbert.training.loaders import SPARE
from tests.library.trainer.tiny_library import BERT, trainer
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = [
    "Prices rose.",
    "A café in Medellín.",
    "The effect of cash transfers on the attendance of schools in rural districts of five countries, measured for many "
    "years after the transfers had ended and the families had moved to other districts.",
    "Loans",
    "",
]
LENGTH = 24


def vectors_of(folder) -> torch.Tensor:
    """Mean of the last hidden states of each text, or of its windows, each alone in a row without padding."""
    model, opened = load_encoder(folder)[:2]
    tokenizer, vectors = opened.tokenizer(), []
    cls, sep = (tokenizer.tokens.index(token) for token in ("[CLS]", "[SEP]"))
    for words in align_text(tokenizer, TEXTS):
        windows = []
        for start, stop, _, _ in window_bounds(words.first_piece, len(words.input_ids), LENGTH - 2):
            ids = torch.tensor([[cls, *words.input_ids[start:stop], sep]])
            row = Packed(ids, torch.arange(ids.shape[1]).unsqueeze(0), torch.ones_like(ids))
            with torch.no_grad():
                windows.append(model.encoder.eval()(row)[0].mean(dim=0))
        vectors.append(torch.stack(windows).mean(dim=0))
    return torch.stack(vectors)


@pytest.mark.parametrize("kind", ["pretraining", "distillation"])
def test_vectors_are_means_of_the_last_hidden_states(tiny, tmp_path, kind):
    data = tiny.rows(max_length=LENGTH, batch_size=4, predict=TEXTS)
    module = Pretraining(replace(BERT, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5), tiny / "vocab")
    if kind == "distillation":
        module = Distillation([tiny / "model"], [HardTargets()], student=StudentConfig(layers=[0]), dropout=0.5)
        data = DistillationData(tiny / "prepared", max_length=LENGTH, batch_size=4, predict=TEXTS)
    run = trainer(max_steps=2)
    run.fit(module, data)
    predicted = run.predict(module, data)
    assert [batch.shape for batch in predicted] == [(4, 16), (1, 16)]
    module.save_pretrained(tmp_path / "model")
    wanted = vectors_of(tmp_path / "model")
    assert torch.allclose(torch.cat(predicted), wanted, atol=1e-5) and wanted.std(dim=0).min() > 0.01


def test_several_texts_and_padding_in_a_row(tiny):
    data = tiny.rows(max_length=LENGTH, predict=TEXTS)
    data.setup("predict")
    (batch,) = data.predict_dataloader()
    assert len(batch["positions"]) > len(TEXTS) == len(batch["items"])  # a text in several windows
    assert int(batch["segment_ids"].max()) > 2 and not batch["segment_ids"].all()


def test_texts_are_dealt_to_the_ranks(tiny, monkeypatch):
    data = tiny.rows(max_length=LENGTH, batch_size=2, predict=TEXTS)
    data.setup("predict")
    monkeypatch.setattr(TrainingData, "_share", Share(rank=1, world_size=2))
    last, spare = data.predict_dataloader()  # the first process has two batches, too
    assert last["items"].tolist() == [1, 3] and SPARE not in last and SPARE in spare
    assert data.predict_dataloader().batch_sampler.seen_batch_indices == [[1, 3], []]
    module = Pretraining.from_pretrained(tiny / "model").eval()
    assert [len(module.predict_step(batch, number)) for number, batch in enumerate((last, spare))] == [2, 0]
    monkeypatch.setattr(TrainingData, "_share", Share(rank=0, world_size=6))
    with refused(where="predict", found="fewer texts (..."):
        data.predict_dataloader()

    tested = tiny.rows(max_length=LENGTH, test=tiny / "prepared")
    tested.setup("test")
    monkeypatch.setattr(TrainingData, "_share", Share(rank=0, world_size=1000))
    with refused(where="test", found="fewer rows (..."):
        tested.test_dataloader()


def test_texts_that_are_missing_or_no_strings(tiny):
    with refused(where="trainer.predict", found="no texts"):
        trainer().predict(Pretraining.from_pretrained(tiny / "model"), tiny.rows())
    with refused(where="predict", found="a single string"):
        tiny.rows(predict="Prices rose.")
    with refused(where="predict[1]", found="int"):
        tiny.rows(predict=["Prices rose.", 3])
