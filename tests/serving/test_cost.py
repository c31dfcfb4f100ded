from __future__ import annotations

from types import SimpleNamespace

import pytest

from domainbert.serving import cost
from domainbert.serving.predictor import load_predictor
from domainbert.tokenization.report import count_words_of_texts, vocabulary_report

SENTENCES = [["Cash", "transfers", "raised", "attendance", "."], ["unaffordability"], ["(", "Prices", "fell"]]


@pytest.fixture(autouse=True)
def few_predictions_are_timed():
    """As many as usual."""


@pytest.mark.parametrize("task", ["ner", "classification"])
def test_the_cost_of_a_model(runs, task):
    folder = runs / f"{task}-pretrained/seed-1"
    predictor = load_predictor(folder, "32-true")
    (found,) = cost.measure_costs([(predictor, folder)], SENTENCES)
    assert found.parameters == sum(parameter.numel() for parameter in predictor.model.parameters())
    assert found.folder_bytes == sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    words = [word for sentence in SENTENCES for word in sentence if word.isalpha()]
    assert found.pieces_per_word == sum(map(len, predictor.tokenizer.encode(words))) / 7
    (report,) = vocabulary_report(predictor.tokenizer, None, {"test": count_words_of_texts(map(" ".join, SENTENCES))})[
        "texts"
    ].values()
    assert found.pieces_per_word == report["ours"]["pieces_per_word"]
    assert found.words_per_second > 0 and found.latency_1 > 0 and found.latency_32 > 0


class Timed:
    """A model that takes `seconds` for a text, and ten times as long in call number `disturbed`."""

    def __init__(self, runs, monkeypatch, seconds, disturbed=0):
        loaded = load_predictor(runs / "ner-pretrained/seed-1", "32-true")
        self.tokenizer, self.model, self.sizes = loaded.tokenizer, loaded.model, []
        self.seconds, self.disturbed, self.now = seconds, disturbed, 0.0
        monkeypatch.setattr(cost.time, "perf_counter", lambda: self.now)

    def predict(self, texts):
        self.sizes.append(len(texts))
        self.now += len(texts) * self.seconds * (10 if len(self.sizes) == self.disturbed else 1)


def test_rates_are_medians_and_few_texts_are_taken_over_and_over(runs, monkeypatch):
    model = Timed(runs, monkeypatch, 0.1, disturbed=10)
    (found,) = cost.measure_costs([(model, runs / "ner-pretrained/seed-1")], SENTENCES)
    assert model.sizes == [1, *[3] * 9, *[3] * 3, *[1] * 33]
    assert found.words_per_second == pytest.approx(9 / 0.3)
    assert (found.latency_1, found.latency_32) == pytest.approx((0.1, 0.3))
    assert found.spread == pytest.approx(0), "one of three predictions does not change the median of a round"


def test_a_busy_machine_shows_in_the_spread(runs, monkeypatch):
    model = Timed(runs, monkeypatch, 0.1, disturbed=12)  # the second of three rounds on all texts
    (found,) = cost.measure_costs([(model, runs / "ner-pretrained/seed-1")], SENTENCES)
    assert found.words_per_second == pytest.approx(9 / 0.3)
    assert found.spread == pytest.approx(9), "a round took ten times as long"


def test_a_slow_model_is_asked_less(runs, monkeypatch):
    """About ten seconds of each, be it for fewer texts."""
    model = Timed(runs, monkeypatch, 0.05)
    (found,) = cost.measure_costs([(model, runs / "ner-pretrained/seed-1")], SENTENCES * 200)
    assert model.sizes == [1, *[32] * 7, *[200], *[1] * 33]
    model = Timed(runs, monkeypatch, 1.0)
    (found,) = cost.measure_costs([(model, runs / "ner-pretrained/seed-1")], SENTENCES * 200)
    assert model.sizes == [1, 32, 32, *[1] * 10]
    assert (found.latency_1, found.latency_32) == (1.0, 32.0)


def test_models_take_turns_and_have_the_same_texts(runs, monkeypatch):
    slow, folder = Timed(runs, monkeypatch, 0.0625), runs / "ner-pretrained/seed-1"
    fast, order = load_predictor(folder, "32-true"), []
    predict = slow.predict
    fast.predict = lambda texts: (order.append(("fast", len(texts))), setattr(slow, "now", slow.now + 0.25))
    slow.predict = lambda texts: (order.append(("slow", len(texts))), predict(texts))
    costs = cost.measure_costs([(fast, folder), (slow, folder)], SENTENCES * 200)
    assert [size for name, size in order if name == "fast"] == slow.sizes == [1, *[32] * 5, 160, *[1] * 33]
    assert [name for name, _ in order] == ["fast", "slow"] * 40 and costs[1].latency_1 == 0.0625


def test_of_several_onnx_files_the_one_that_is_used_counts(tmp_path, monkeypatch):
    sizes = {"model.onnx": 100, "quantized.onnx": 30, "config.json": 7, "vocab.txt": 2}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / "folder").mkdir()
    for used, wanted in (("model.onnx", 109), ("quantized.onnx", 39), (None, 139)):
        opened = SimpleNamespace(path=tmp_path, onnx=tmp_path / used if used else None)
        monkeypatch.setattr(cost, "open_model", lambda folder, opened=opened: opened)
        assert cost._folder_bytes(tmp_path) == wanted


def test_the_texts_that_are_predicted_at_once_are_taken_from_all_over():
    sentences = [[str(number)] for number in range(40)]
    ones, many = cost._slices(sentences, 1), cost._slices(sentences, 32)
    assert [texts[0][0] for texts in ones] == [str(number) for number in range(11)]
    assert {len(texts) for texts in many} == {32} and len({texts[0][0] for texts in many}) > 1
