import json
import random
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
from seqeval.metrics import f1_score
from seqeval.scheme import IOB2

from domainbert.encoders.bert.config import BertConfig
from domainbert.labelled.formats import NerFormat
from domainbert.labelled.tag_schemes import spans_from_tags, to_iob2
from domainbert.serving import cost
from domainbert.stages.evaluate import _seed_folders, evaluate
from domainbert.tasks.classification.config import Classification
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.files import read_ner
from domainbert.tasks.word_task import TaggedWords
from tests.refusals import refused

TYPES = ("drug", "gene")


@dataclass
class FakePredictor:
    """Answers with gold of which a share is replaced by noise."""

    name: str
    labels: list[str]
    answers: list
    num_repaired: int = 0
    teachers: tuple[str, ...] = ()
    fields: dict[str, str] = field(default_factory=dict)
    words: list = field(default_factory=list)

    @property
    def task(self):
        return self

    @property
    def runtime(self):
        return self

    def tag_words(self, words):
        self.words = words
        return [TaggedWords(tags, [0.5] * len(tags)) for tags in self.answers]

    def predict(self, texts):
        return [SimpleNamespace(label=label, scores={label: 1.0}) for label in self.answers]


@pytest.fixture
def models(tmp_path, monkeypatch):
    """Makes model folders and the predictors that stand for them."""
    predictors = {}
    monkeypatch.setattr(
        "domainbert.serving.predictor.load_predictor",
        lambda folder, precision: predictors[folder.path] if precision == "32-true" else None,
    )
    of_model = cost.Cost(1000, 4000, 1.5, 100.0, 0.01, 0.1)
    monkeypatch.setattr(cost, "measure_costs", lambda models, contents: [of_model] * len(models))

    def make(name, seeds):
        for seed, predictor in seeds.items():
            folder = tmp_path / "models" / name / seed
            folder.mkdir(parents=True)
            (folder / "config.json").write_text(json.dumps(BertConfig().to_json() | {"vocab_size": 100}))
            predictors[folder] = predictor
        return tmp_path / "models" / name

    return make


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def make_tags(generator, lengths):
    labels = ["O", "O", *(f"{prefix}-{kind}" for prefix in "BI" for kind in TYPES)]
    return [to_iob2(generator.choices(labels, k=length)) for length in lengths]


def tagger(gold, share, seed):
    """Right in each sentence with probability `share`, else random tags."""
    generator = random.Random(seed)
    noise = make_tags(generator, map(len, gold))
    answers = [one if generator.random() < share else other for one, other in zip(gold, noise, strict=True)]
    return FakePredictor("ner", ["O", *(f"{prefix}-{kind}" for kind in TYPES for prefix in "BI")], answers, 2)


@pytest.fixture
def tagged(tmp_path):
    """A test set of 60 sentences in 20 documents, its gold tags, and a training set with one of its words."""
    generator = random.Random(0)
    gold = make_tags(generator, [generator.randint(1, 15) for _ in range(60)])
    parts = []
    for number, tags in enumerate(gold):
        parts += ["-DOCSTART- O\n"] if number % 3 == 0 else []
        parts.append("".join(f"w{number % 7} {tag}\n" for tag in tags))
    (tmp_path / "test.conll").write_text("\n".join(parts))
    (tmp_path / "train.conll").write_text("w1 B-drug\nw2 B-drug\n")
    return tmp_path / "test.conll", gold


def test_taggers_are_scored_with_intervals_and_compared(models, out, tagged, capsys):
    test, gold = tagged
    good = {f"seed-{seed}": tagger(gold, 0.9, seed) for seed in (2, 10, 1)}
    poor = {f"seed-{seed}": tagger(gold, 0.3, seed) for seed in (4, 5)}
    folders = {"pretrained": models("pre", good), "scratch": models("new", poor)}
    result = evaluate(
        out, models=folders, task=Ner(), test=test, train=test.with_name("train.conll"), bootstrap_resamples=300
    )

    pretrained = result["systems"]["pretrained"]
    expected = [f1_score(gold, one.answers, mode="strict", scheme=IOB2) for one in good.values()]
    assert pretrained["f1"] == pytest.approx(sum(expected) / 3, abs=1e-12)
    assert pretrained["interval"][0] < pretrained["f1"] < pretrained["interval"][1]
    assert (pretrained["seeds"], result["task"], result["bootstrap"]["units"]) == (3, "ner", 20)
    assert result["gold"] == sum(tag.startswith("B-") for tags in gold for tag in tags)
    (pair,) = result["paired"]
    assert (pair["a"], pair["b"]) == ("pretrained", "scratch")
    assert pair["difference"] == pretrained["f1"] - result["systems"]["scratch"]["f1"]
    assert 0 < pair["interval"][0] < pair["difference"] < pair["interval"][1]

    metrics = json.loads((out / "metrics.json").read_text())
    saved, printed = metrics["systems"]["pretrained"], capsys.readouterr().out
    assert list(saved["f1_by_seed"]) == ["seed-1", "seed-2", "seed-10"]
    assert sum(one["support"] for one in saved["per_type"].values()) == result["gold"]
    assert sum(one["support"] for one in saved["by_novelty"].values()) == result["gold"]
    assert saved["repaired_tags"] == 6
    counts = np.array(saved["confusion"]["counts"])
    assert saved["confusion"]["labels"] == [*TYPES, "none"] and "pretrained: gold in rows" in printed
    assert [counts[:2, 2].sum(), counts[2].sum()] == pytest.approx([saved["errors"][k] for k in ("missed", "spurious")])
    predicted = sum(tag.startswith("B-") for one in good.values() for tags in one.answers for tag in tags)
    assert (
        sum(one["count"] for one in saved["reliability"]["bins"]) == predicted == pytest.approx(3 * counts[:, :2].sum())
    )
    assert sorted(path.name for path in (out / "mistakes/pretrained").iterdir()) == [
        "seed-1.jsonl",
        "seed-10.jsonl",
        "seed-2.jsonl",
    ]
    assert (
        "pretrained minus scratch" in printed
        and "300 resamples of 20 documents and of the seeds\n" in printed
        and "scheme IOB2" in printed
    )
    assert "missed" in printed and "unseen" in printed and "6 stray I- tags" in printed


def interval_of(units, resamples):
    """The percentile interval of strict F1 when `units`, lists of (gold, predicted) tags, are drawn with seed 0."""
    counts = []
    for unit in units:
        sides = [
            {(n, *span) for n, tags in enumerate(side) for span in spans_from_tags(tags)}
            for side in zip(*unit, strict=True)
        ]
        counts.append([len(sides[0] & sides[1]), len(sides[1]), len(sides[0])])
    drawn = np.random.default_rng(0).integers(len(units), size=(resamples, len(units)))
    right, found, wanted = np.array(counts)[drawn].sum(axis=1).T
    return list(np.percentile(2 * right / (found + wanted), [2.5, 97.5]))


def test_the_bootstrap_draws_documents_where_the_file_marks_them(models, out, tagged):
    """Sentences of one document stand or fall together, which the interval has to know."""
    test, gold = tagged
    predictor = tagger(gold, 0.5, 1)
    for number in range(0, 60, 6):  # every other document is right as a whole
        predictor.answers[number : number + 3] = gold[number : number + 3]
    folder = models("one", {"": predictor})
    pairs = list(zip(gold, predictor.answers, strict=True))
    documents = [pairs[number : number + 3] for number in range(0, 60, 3)]

    def found():
        result = evaluate(out, models={"one": folder}, task=Ner(), test=test, bootstrap_resamples=400)
        return result["bootstrap"], result["systems"]["one"]["interval"]

    marked = found()
    test.write_text(test.read_text().replace("-DOCSTART- O\n", ""))
    plain = found()
    assert marked[0] == {"resamples": 400, "unit": "documents", "units": 20}
    assert plain[0] == {"resamples": 400, "unit": "sentences", "units": 60}
    assert marked[1] == pytest.approx(interval_of(documents, 400), abs=1e-12)
    assert plain[1] == pytest.approx(interval_of([[pair] for pair in pairs], 400), abs=1e-12)
    assert marked[1][1] - marked[1][0] > 1.1 * (plain[1][1] - plain[1][0])


def test_predictions_are_written_beside_gold(models, out, tagged):
    test, gold = tagged
    predictor = tagger(gold, 0.5, 1)
    evaluate(out, models={"one": models("one", {"": predictor})}, task=Ner(), test=test, bootstrap_resamples=100)
    path = out / "predictions" / "one" / "model.conll"
    written = read_ner(path)
    assert [sentence.tags for sentence in written.sentences] == predictor.answers
    assert [sentence.tags for sentence in read_ner(path, NerFormat(tag_column=1)).sentences] == gold
    assert [one.document for one in written.sentences] == [one.document for one in read_ner(test).sentences]


def test_entities_of_types_that_are_not_read_are_not_scored(models, out, tmp_path):
    """A model of two types, in a test set of one layer of nested entities."""
    test = tmp_path / "test.conll"
    test.write_text("Aspirin B-drug\nfor O\nBRCA1 B-gene\n\nBRCA1 B-gene\n\n")
    predictor = FakePredictor("ner", ["O", "B-drug", "B-gene"], [["B-drug", "O", "B-gene"], ["B-drug"]])
    folder = models("both", {"seed-1": predictor})
    task = Ner(format=NerFormat(types=("gene",)))
    evaluate(out, models={"both": folder}, task=task, test=test, bootstrap_resamples=100)
    found = json.loads((out / "metrics.json").read_text())["systems"]["both"]
    assert (found["precision"], found["recall"], list(found["per_type"])) == (1.0, 0.5, ["gene"])


def test_sentences_without_words_are_not_shown_to_the_model(models, out, tmp_path):
    rows = [{"tokens": [], "tags": []}, {"tokens": ["a\tb\n", "c"], "tags": ["B-drug", "I-drug"]}]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    predictor = FakePredictor("ner", ["O", "B-drug", "I-drug"], [["B-drug", "I-drug"]])
    result = evaluate(out, models={"one": models("one", {"": predictor})}, task=Ner(), test=tmp_path / "test.jsonl")
    assert predictor.words == [["a\tb\n", "c"]]
    assert result["systems"]["one"]["f1"] == 1
    written = [json.loads(line) for line in (out / "predictions/one/model.jsonl").read_text().splitlines()]
    assert written == [{"tokens": row["tokens"], "gold": row["tags"], "predicted": row["tags"]} for row in rows]


@pytest.fixture
def classified(tmp_path):
    gold = random.Random(0).choices(["up", "down", "flat"], k=80)
    rows = [{"text": f"text {number}", "label": label} for number, label in enumerate(gold)]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path / "test.jsonl", gold


def classifier(gold, share, seed, labels=("down", "flat", "never", "up")):
    generator = random.Random(seed)
    answers = [label if generator.random() < share else generator.choice(["up", "down"]) for label in gold]
    return FakePredictor("classification", list(labels), answers)


def test_classifiers_are_scored(models, out, classified, capsys):
    test, gold = classified
    good, poor = classifier(gold, 0.9, 1), classifier(gold, 0.2, 2)
    folders = {"good": models("good", {"": good}), "poor": models("poor", {"seed-1": poor})}
    result = evaluate(out, models=folders, task=Classification(), test=test, bootstrap_resamples=300)
    assert result["gold"] == 80
    right = sum(one == other for one, other in zip(gold, good.answers, strict=True))
    system = result["systems"]["good"]
    assert system["accuracy"] == right / 80
    assert system["accuracy_interval"][0] < system["accuracy"] < system["accuracy_interval"][1]
    (pair,) = result["paired"]
    assert pair["interval"][0] > 0 and pair["accuracy_interval"][0] > 0
    per_class = json.loads((out / "metrics.json").read_text())["systems"]["good"]["per_class"]
    occurring = [one["f1"] for name, one in per_class.items() if name != "never"]
    assert system["f1"] == pytest.approx(sum(occurring) / 3)
    rows = [json.loads(line) for line in (out / "predictions/good/model.jsonl").read_text().splitlines()]
    assert [row["predicted"] for row in rows] == good.answers and [row["gold"] for row in rows] == gold
    wrong = [json.loads(line) for line in (out / "mistakes/good/model.jsonl").read_text().splitlines()]
    assert [row["line"] for row in wrong] == [n for n, row in enumerate(rows, 1) if row["gold"] != row["predicted"]]
    printed = capsys.readouterr().out
    assert "good minus poor" in printed and "300 resamples of 80 texts\n" in printed, "each system has one seed"


def test_bad_models_are_named_together(out, tmp_path):
    (tmp_path / "empty").mkdir()
    (test := tmp_path / "test.conll").write_text("")
    folders = {"a": test, "b": tmp_path / "empty"}
    for where, problem in (("a", "'...' is not a folder"), ("b", "'...' has no config.json, and no seed-* with one")):
        with refused(where=f"models.{where}", problem=problem):
            evaluate(out, models=folders, task=Ner(), test=test)
    for where in "cd":
        with refused(where=f"models.{where}", problem="... does not exist"):
            evaluate(out, models={"c": tmp_path / "none", "d": tmp_path / "neither"}, task=Ner(), test=test)


def test_what_can_be_said_without_reading_is_said_together(out, tmp_path):
    (test := tmp_path / "test.conll").write_text("")
    with refused(where="models", problem="empty", expected="at least one model folder with a name..."):
        evaluate(out, models={}, task=Ner(), test=test)
    for where, problem in (("models", "found the name 'c/d'"), ("train", "the scores of...")):
        with refused(where=where, problem=problem) as caught:
            evaluate(out, models={"c/d": tmp_path}, task=Classification(), test=test, train=test)
        assert len(caught.value.errors) == 2


def test_models_of_two_tasks_and_options_of_the_other_task(models, out, classified, tagged):
    (texts, classes), (words, tags) = classified, tagged
    good = models("good", {"": classifier(classes, 0.9, 1)})
    other = models("other", {"": tagger(tags, 0.9, 1)})
    with refused(where="models.other", problem="... is for ner", expected="a model for classification"):
        evaluate(out, models={"good": good, "other": other}, task=Classification(), test=texts)
    with refused(where="train", problem="the scores of classification do not use..."):
        evaluate(out, models={"good": good}, task=Classification(), test=texts, train=words)


def test_labels_that_training_did_not_have(models, out, classified):
    test, gold = classified
    with refused(problem="label 'flat' ... was not in training", expected="a training label: 'down', 'up'"):
        evaluate(
            out,
            models={"one": models("one", {"": classifier(gold, 1, 1, ("down", "up"))})},
            task=Classification(),
            test=test,
        )


def test_a_prediction_of_another_length_is_an_error(models, out, tagged):
    test, gold = tagged
    predictor = tagger(gold, 1, 1)
    predictor.answers = [*predictor.answers[:-1], predictor.answers[-1][:-1]]
    with refused(found="... predicted tags", expected="..., one for each word"):
        evaluate(out, models={"one": models("one", {"": predictor})}, task=Ner(), test=test)


def test_too_few_resamples_for_an_interval(out, tmp_path):
    with refused(where="bootstrap_resamples", found="10", expected="an integer from 100 to..."):
        evaluate(out, models={"a": tmp_path}, task=Ner(), test=tmp_path / "test.conll", bootstrap_resamples=10)


def test_a_folder_without_one_of_its_seeds_is_refused_even_if_it_is_not_sealed(tmp_path):
    (tmp_path / "seed-1").mkdir()
    (tmp_path / "seed-1/config.json").write_text("{}")
    seeds = {"best": "seed-1", "validation_f1": {"seed-1": 0.5, "seed-2": 0.4}}
    (tmp_path / "seeds.json").write_text(json.dumps(seeds))
    with refused(where="models.ours", problem="...seeds.json lists seed-2, but ... no config..."):
        _seed_folders("ours", tmp_path)
    for copy in ("seed-2", "seed-1-backup"):  # a copy of a seed is not a seed
        (tmp_path / copy).mkdir()
        (tmp_path / copy / "config.json").write_text("{}")
    assert list(_seed_folders("ours", tmp_path)) == ["seed-1", "seed-2"]


def test_a_test_set_without_entities_in_which_none_are_found(runs, tmp_path):
    """There is no F1, on words or on raw text."""
    (tmp_path / "test.conll").write_text("é O\n. O\n\n. O\n", encoding="utf-8")
    best = runs / "ner-pretrained" / runs.results["ner-pretrained"]["best"]
    runs.evaluate(str(tmp_path / "scored"), "ner", {"itself": best}, test=tmp_path / "test.conll")
    (system,) = json.loads((tmp_path / "scored/metrics.json").read_text())["systems"].values()
    assert system["f1"] is system["interval"] is None and "raw_text" not in system
