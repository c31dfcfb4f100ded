"""Entity F1 on raw text, and entities as `transformers.pipeline` groups them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from domainbert import load_tagger
from domainbert.metrics.counts import f1_of_sets
from domainbert.metrics.summary import Resampling
from domainbert.tasks.ner import scoring
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.files import read_ner
from domainbert.tasks.ner.scoring import PrintedTexts, pipeline_entities
from domainbert.tasks.task import build_scoring
from domainbert.tokenization.splitting import printed_texts

PAGE = Path(__file__).parents[2] / "docs/how-to/predict-from-python.md"


def test_neighbours_of_a_type_are_grouped_unless_the_second_begins_an_entity():
    labels = ["I-x", "I-x", "B-x", "I-y", "O", "O", "I-y"]
    places = [(number, number + 1) for number in range(len(labels))]
    assert pipeline_entities(places, labels) == [(0, 2, "x"), (2, 3, "x"), (3, 4, "y"), (6, 7, "y")]


def test_scores_of_raw_text_are_those_of_predict_and_of_a_pipeline(runs):
    """Each number against its definition; the function of the page decodes as domainbert does."""
    transformers = pytest.importorskip("transformers")
    folder = str(runs / "ner-pretrained" / runs.results["ner-pretrained"]["best"])
    pipeline = transformers.pipeline("token-classification", folder, aggregation_strategy="first", device="cpu")
    tagger, plain = load_tagger(folder, "32-true"), load_tagger(folder, "32-true")
    plain.task.word_splitting, plain.task.min_score = None, 0.0
    sentences = [one for one in read_ner(runs.labelled("ner", "test")).sentences if len(one.words) < 30]
    texts, places = zip(*printed_texts([one.words for one in sentences]), strict=True)
    gold = [{(at[a][0], at[b - 1][1], kind) for a, b, kind in s.spans} for s, at in zip(sentences, places, strict=True)]
    tagged = tagger.tag_words([one.words for one in sentences])
    scores = PrintedTexts(tagger, sentences).scores(tagged, lambda kind: True)

    def f1(found) -> float:
        return f1_of_sets(gold, [set(one) for one in found])

    def entities(model) -> list[list[tuple[int, int, str]]]:
        return [[(e.start, e.end, e.type) for e in row] for row in model.predict(texts)]

    predicted, unsplit = entities(tagger), entities(plain)
    grouped = [[(e["start"], e["end"], e["entity_group"]) for e in row] for row in pipeline(list(texts))]
    assert (scores["f1"], scores["pipeline_f1"]) == (f1(predicted), f1(grouped))
    assert 0 < scores["pipeline_f1"] < scores["argmax_f1"] < scores["f1"] and len(texts) > 50
    (code,) = re.findall(r"```python\n(import torch\n\n\ndef valid_entities.*?)```", PAGE.read_text(), re.DOTALL)
    exec(code, names := {})
    with torch.inference_mode():
        assert [names["valid_entities"](pipeline, text) for text in texts] == unsplit


def test_of_two_printings_the_lower_score_is_reported_and_each_text_is_in_the_progress(runs, tmp_path):
    """The model knows words with a hyphen; this test set splits them, and print may have blanks there or not."""
    path, folder = tmp_path / "split.conll", runs / "ner-pretrained" / runs.results["ner-pretrained"]["best"]
    rows = runs.labelled("ner", "test").read_text(encoding="utf-8")
    split_words = re.sub(r"(?m)^(\w+)-(\w+)\t([BI])(-\w+)$", r"\1\t\3\4\n-\tI\4\n\2\tI\4", rows)
    path.write_text(split_words, encoding="utf-8")
    tagger, sentences = load_tagger(folder, "32-true"), read_ner(path).sentences
    expected = []
    for compact in (True, False):
        texts, places = zip(*printed_texts([one.words for one in sentences], compact), strict=True)
        gold = [
            {(at[a][0], at[b - 1][1], kind) for a, b, kind in one.spans}
            for one, at in zip(sentences, places, strict=True)
        ]
        expected.append(f1_of_sets(gold, [{(e.start, e.end, e.type) for e in row} for row in tagger.predict(texts)]))
    test_scores, counts = build_scoring(Ner(), read_ner(path), None), []
    tagger.on_predicted = counts.append
    total = test_scores.prepare(tagger)
    test_scores.add_model("itself", "1", tagger, tmp_path / "predicted.conll")
    assert abs(expected[0] - expected[1]) > 0.0005
    assert test_scores.summary(Resampling(100, 0))["systems"]["itself"]["raw_text"]["f1"] == min(expected)
    assert sum(counts) == total > 2 * len(sentences)


def test_a_text_longer_than_a_window_is_read_as_a_pipeline_truncates_it(runs, monkeypatch):
    """Words near the cut have no further context, and the last word may lack its last pieces."""
    transformers = pytest.importorskip("transformers")
    monkeypatch.setattr(scoring, "f1_of_sets", lambda gold, spans: spans)  # the entities in place of their score
    folder = str(runs / "ner-pretrained" / runs.results["ner-pretrained"]["best"])
    pipeline = transformers.pipeline("token-classification", folder, aggregation_strategy="first", device="cpu")
    tagger = load_tagger(folder, "32-true")
    pipeline.tokenizer.model_max_length = tagger.max_length = 16
    sentences = read_ner(runs.labelled("ner", "test")).sentences
    texts, places = zip(*printed_texts([one.words for one in sentences]), strict=True)
    grouped = [{(e["start"], e["end"], e["entity_group"]) for e in row} for row in pipeline(list(texts))]
    tagged = tagger.tag_words([one.words for one in sentences])
    assert PrintedTexts(tagger, sentences).scores(tagged, lambda kind: True)["pipeline_f1"] == grouped
    ends = [{end for _, end in at} for at in places]
    assert any(end not in of_words for row, of_words in zip(grouped, ends, strict=True) for _, end, _ in row)
