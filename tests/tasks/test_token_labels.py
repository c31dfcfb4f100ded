"""A label for each word: reading, scores, loss, and all stages; the prefix of a label has no meaning."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, precision_recall_fscore_support

from domainbert.cli import main
from domainbert.data.batches import LabelledBatches, Share
from domainbert.encoders.crf import Crf
from domainbert.labelled.conll import Mark
from domainbert.labelled.folds import split_folds
from domainbert.labelled.formats import TaggedFormat
from domainbert.labelled.items import label_counts
from domainbert.labelled.tagged_files import TaggedSentence
from domainbert.metrics.classification import NULL_CLASS_STATISTICS
from domainbert.metrics.counts import score_counts
from domainbert.metrics.modules import LabelScores
from domainbert.metrics.summary import Resampling
from domainbert.serving.predictor import load_predictor
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.task import task_from_training_set
from domainbert.tasks.token_labels.config import TokenLabels
from domainbert.tasks.token_labels.files import TokenLabelFile
from domainbert.tasks.token_labels.task import CrfTokenLabelsTask, TokenLabelsTask, WordScoring
from domainbert.tasks.word_task import TaggedWords
from tests.refusals import refused

LABELS = ("I-INT", "I-OUT", "I-PAR", "O")
ABSTRACTS = """-DOCSTART- (1)

Xylitol NN O I-INT
café NN O O
children NN O I-PAR

We NN O O
-DOCSTART- (2)

Pain NN O I-OUT
fell NN O O

"""


def written(path: Path, text: str = ABSTRACTS) -> Path:
    path.write_text(text)
    return path


def test_columns_and_lists_are_read_as_they_stand(tmp_path: Path) -> None:
    file = TokenLabels().read(written(tmp_path / "a.conll"))
    assert [(one.words, one.tags, one.line, one.document) for one in file.items] == [
        (["Xylitol", "café", "children"], ["I-INT", "O", "I-PAR"], 3, 0),
        (["We"], ["O"], 7, 0),
        (["Pain", "fell"], ["I-OUT", "O"], 10, 1),
    ]
    assert file.describe().endswith("; 4 labels (I-INT 1, I-OUT 1, I-PAR 1, O 3)") and file.unit == "documents"
    assert [(unit.line, sorted(unit.labels)) for unit in file.units()] == [
        (1, ["I-INT", "I-PAR", "O"]),
        (8, ["I-OUT", "O"]),
    ]
    rows = '{"tokens": ["A", "b"], "pos": [1, 0], "label_names": ["VB", "NN"]}\n{"tokens": ["b"], "pos": [0]}\n'
    config = TokenLabels(TaggedFormat(tag_column="pos"), outside=None)
    assert [one.tags for one in config.read(written(tmp_path / "a.jsonl", rows)).items] == [["NN", "VB"], ["VB"]]


@pytest.mark.parametrize(
    ("name", "text", "file", "line", "problem", "expected"),
    [
        ("a.conll", "A NN O\nb O\n", "a.conll", 2, "2 columns separated by spaces", "3 as in line 1"),
        ("a.conll", "-DOCSTART- X\n\nA X\nb O\n", "a.conll", 1, "-DOCSTART- has the label 'X'", "'O', the..."),
        ("a.jsonl", '{"tokens": ["A"], "tags": ["X "]}\n', "a.jsonl", 1, 'label "X "', "visible characters..."),
        (
            "a.jsonl",
            '{"tokens": ["A"], "tags": []}\n',
            "a.jsonl",
            1,
            "'tokens' has length 1, but 'tags' has length 0",
            "...",
        ),
        ("a.jsonl", '{"tokens": ["A"], "tags": [1]}\n', "a.jsonl", 1, "'tags' contains the number 1", "strings..."),
        (
            "a.jsonl",
            '{"tokens": [], "tags": [], "ner_tags": []}\n',
            "a.jsonl",
            1,
            "tags under 'tags', 'ner_tags'",
            "...",
        ),
        ("a.jsonl", "\n", "...", "", "no sentences", "words with tags"),
    ],
)
def test_a_broken_file_is_named(
    tmp_path: Path, name: str, text: str, file: str, line: int | str, problem: str, expected: str
) -> None:
    with refused(file=file, line=line, problem=problem, expected=expected):
        TokenLabels(TaggedFormat(kind="jsonl" if name == "a.jsonl" else "conll")).read(written(tmp_path / name, text))


def test_a_label_that_means_nothing_has_to_be_there(tmp_path: Path) -> None:
    train = TokenLabels().read(written(tmp_path / "a.conll", "A NN\nb VB\n"))
    with refused(where="outside", found="'O'"):
        task_from_training_set(TokenLabels(), train)
    with refused(where="outside", found="'o'..."):
        TokenLabels(outside="o").check_labels(["O", "X"])
    read = TokenLabels.evaluation.settings_from_model_config
    assert read({}) == {} and read(TokenLabelsTask(("A",)).model_config_fields({})) == {"outside": None}
    fields = TokenLabelsTask(("O", "X"), "O").model_config_fields({})
    assert TokenLabelsTask.from_model_folder(("O", "X"), fields).null_label == "O"
    task = task_from_training_set(TokenLabels(outside=None, head="crf"), train)
    assert task.labels == ("NN", "VB") and isinstance(task, CrfTokenLabelsTask)


@pytest.mark.parametrize(
    ("name", "documents", "sentences", "counts"),
    [
        ("train", 832, 6064, {"I-INT": 21724, "I-OUT": 27951, "I-PAR": 26083, "O": 151199}),
        ("dev", 128, 985, {"I-INT": 3494, "I-OUT": 4362, "I-PAR": 4299, "O": 23015}),
    ],
)
def test_ebm_nlp_is_read_whole(bio_data: Path, name: str, documents: int, sentences: int, counts: Any) -> None:
    file = TokenLabels().read(bio_data / f"pico/{name}.conll")
    assert (file.num_documents, len(file.items), label_counts(file.items)) == (documents, sentences, counts)
    assert len(file.units()) == documents


def scoring_of(documents: list[list[list[str]]], outside: str | None = "O") -> WordScoring:
    """A test set of documents of sentences of labels."""
    items = [
        TaggedSentence(["w"] * len(labels), labels, 1, number)
        for number, sentences in enumerate(documents)
        for labels in sentences
    ]
    marks = [Mark(1, None, "")]
    scoring = WordScoring(TokenLabels(outside=outside), TokenLabelFile(Path("a.conll"), items, "conll", "", marks))
    scoring.labels = set(LABELS)
    return scoring


def tagged(labels: list[str]) -> TaggedWords:
    """A sentence whose words have these labels for sure."""
    return TaggedWords(labels, [1.0] * len(labels))


def scikit_learns(gold: list[str], predicted: list[str], outside: str | None) -> dict[str, Any]:
    """Scores of words one after the other: the mean over labels that occur, `outside` apart."""
    occur = sorted({*gold, *predicted} - {outside})
    means = {"labels": occur, "zero_division": 0.0}
    found = {"accuracy": accuracy_score(gold, predicted), "macro_f1": 0.0, "micro_f1": 0.0}
    if occur:
        for average in ("macro", "micro"):
            found[f"{average}_f1"] = f1_score(gold, predicted, average=average, **means)
    labels = [label for label in LABELS if label != outside]
    columns = precision_recall_fscore_support(gold, predicted, labels=labels, zero_division=0.0)
    found["per_label"] = [list(map(float, row)) for row in zip(*columns, strict=True)]
    return found


def check_scores(found: dict[str, Any], gold: list[str], predicted: list[str], outside: str | None) -> None:
    wanted = scikit_learns(gold, predicted, outside)
    for name in ("macro_f1", "micro_f1", "accuracy"):
        assert found[name] == pytest.approx(wanted[name], abs=1e-9)
    for row, one in zip(wanted["per_label"], found["per_label"].values(), strict=True):
        assert [one[key] for key in ("precision", "recall", "f1", "support")] == pytest.approx(row, abs=1e-9)


labels = st.lists(st.tuples(*[st.sampled_from(LABELS)] * 2), min_size=1, max_size=8)


@pytest.mark.filterwarnings("ignore")
@given(st.lists(st.lists(labels, min_size=1, max_size=3), min_size=1, max_size=4), st.sampled_from(["O", None, "X"]))
def test_scores_are_those_of_scikit_learn(pairs: Any, outside: str | None) -> None:
    scoring = scoring_of([[[gold for gold, _ in one] for one in document] for document in pairs], outside)
    predicted = [tagged([label for _, label in one]) for document in pairs for one in document]
    counts = scoring.count(predicted)
    num_sentences = sum(map(len, pairs))
    num_units = len(pairs) if len(pairs) > 1 else num_sentences  # documents, or the sentences of a single document
    assert counts.shape[0] == num_sentences and scoring.num_units == num_units
    words = [word for document in pairs for one in document for word in one]
    gold, said = ([word[side] for word in words] for side in (0, 1))
    check_scores(scoring.scores(predicted, counts.sum(axis=0)), gold, said, outside)

    metric = LabelScores(LABELS, outside if outside in LABELS else None)
    for one, other in words:
        metric.update([other], [one])
    assert float(metric.compute()["macro_f1"]) == pytest.approx(
        scikit_learns(gold, said, outside)["macro_f1"], abs=1e-9
    )


def test_the_mean_leaves_out_what_means_nothing() -> None:
    """By hand, and for the numbers that SciBERT's are the mean of: 69.70, 71.34, 75.80 give 72.28."""
    scoring = scoring_of([[["I-INT", "I-INT", "O", "O"]], [["I-PAR", "O"]]])
    predicted = [tagged(["I-INT", "O", "O", "I-PAR"]), tagged(["I-PAR", "O"])]
    found = scoring.scores(predicted, scoring.count(predicted).sum(axis=0))
    assert found["macro_f1"] == pytest.approx((2 / 3 + 2 / 3) / 2) and found["accuracy"] == pytest.approx(4 / 6)
    assert (scoring.num_gold, scoring.num_units) == (3, 2)
    assert scoring.title == "mean token F1 over 3 of 6 words"
    counts = np.array([[697, 303, 303], [7134, 2866, 2866], [758, 242, 242], [0, 0, 0]])
    assert 100 * score_counts(NULL_CLASS_STATISTICS, counts)["macro_f1"] == pytest.approx(72.28)


def test_intervals_are_drawn_by_document(tmp_path: Path) -> None:
    scoring = scoring_of([[["I-INT", "O"]], [["O", "I-PAR"], ["O"]], [["O"]]])
    good, poor = (
        list(map(tagged, labels))
        for labels in ([["I-INT", "O"], ["O", "I-PAR"], ["O"], ["O"]], [["O", "O"], ["O", "O"], ["O"], ["O"]])
    )
    scoring.predictions = {"good": {"seed-1": good}, "poor": {"seed-1": poor}}
    summary = scoring.summary(Resampling(200, 0))
    assert summary["systems"]["good"]["interval"][1] == 1 and summary["paired"][0]["difference"] == 1
    assert summary["warnings"] == [
        "poor (seed-1) predicts one label only: it has not learned; train it with another optim.lr or longer"
    ]
    lines = scoring.lines(summary)
    assert lines[0].split()[:4] == ["system", "mean", "token", "F1"] and "by label" in "\n".join(lines)
    scoring.write(tmp_path / "said.conll", good)
    again = TokenLabels(TaggedFormat(tag_column=1)).read(tmp_path / "said.conll")
    assert [one.tags for one in again.items] == [item.tags for item in scoring.test.items]
    assert [one.document for one in again.items] == [0, 1, 1, 2]


def test_all_pieces_of_a_word_learn_its_label_in_every_window(tokenizer: Any) -> None:
    """B-x stays B-x in the second pre-token of "men's"; the windows of a long sentence own each word once."""
    task = TokenLabelsTask(("B-x", "I-x", "O"), "O")
    words = ["a", "men's", "rates", "b"] * 4
    tags = ["O", "B-x", "I-x", "O"] * 4
    (example,) = task.encode([TaggedSentence(words, tags, 1, 0)], tokenizer, 10)
    assert len(example.windows) > 2 and example.num_outputs == 16
    decided = {
        int(word): int(target)
        for one in example.windows
        for word, target in zip(one.outputs, one.targets, strict=True)
        if word >= 0
    }
    assert [decided[word] for word in range(16)] == [task.labels.index(tag) for tag in tags]
    counts = np.bincount(np.concatenate([one.targets for one in example.windows]))
    assert counts.tolist() == [12, 4, 8]  # men ' s are three
    batch = {n: torch.from_numpy(v) for n, v in LabelledBatches([example], tokenizer, 999, Share())[0].items()}
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(24, 3)))
    log = torch.log_softmax(logits, dim=-1)
    wanted = -sum(float(log[row, target]) for row, target in enumerate(batch["targets"].tolist()))
    assert float(task.loss(logits, batch)) == pytest.approx(wanted, rel=1e-6)

    crf_task, head = CrfTokenLabelsTask(task.labels, "O"), torch.nn.Module()
    head.crf = Crf(3)
    crf_task.attach_head(head)
    assert crf_task.crf is head.crf and bool(head.crf.allowed.all()) and bool(head.crf.allowed_first.all())
    assert float(crf_task.loss(logits, batch).detach()) == pytest.approx(wanted, rel=1e-6), (
        "transitions of 0 change nothing"
    )
    (found, _), *_ = crf_task.decode(logits, batch)
    (best, _), *_ = task.decode(logits, batch)
    assert found == best and len(found) == 16


def test_a_training_that_came_to_nothing_is_told() -> None:
    items: Any = [SimpleNamespace(labels=["O", "O", "I-PAR"]), SimpleNamespace(labels=["I-INT"])]
    (warning,) = TokenLabelsTask.training_hooks.warnings(TokenLabelsTask(LABELS, "O"), items, {"macro_f1": 0.0})
    assert "mean token F1 0.0 on validation, while predicting 'O' for every word gets 0.0" in warning
    assert TokenLabelsTask.training_hooks.warnings(TokenLabelsTask(LABELS, "O"), items, {"macro_f1": 0.1}) == []
    (warning,) = TokenLabelsTask.training_hooks.warnings(TokenLabelsTask(LABELS), items, {"macro_f1": 0.2})
    assert "while predicting 'O' for every word gets 22.2" in warning  # F1 2/3 of one label of three


@pytest.fixture(scope="module")
def elements(runs: Any) -> Path:
    """The sample's entities as labels without B-; ten sentences are one, two of these a document, with an accent."""
    folder: Path = runs / "elements"
    folder.mkdir()
    for split in ("train", "validation", "test"):
        lines = runs.labelled("ner", split).read_text().splitlines()
        text, sentences = ["-DOCSTART- (0)\n"], 0
        for line in lines:
            if line.startswith("-DOCSTART-"):
                continue
            if not line.strip():
                sentences += 1
                text += (
                    ["", f"-DOCSTART- ({sentences})", ""] if sentences % 4 == 0 else [""] if sentences % 2 == 0 else []
                )
                continue
            word, *_, tag = line.split()
            text.append(f"{word} NN O {tag.replace('B-', 'I-')}")
        text += ["", "Évaluation NN O O", ""]
        (folder / f"{split}.conll").write_text("\n".join(text))
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("torch_for_onnx")
def test_it_goes_through_every_stage(runs: Any, elements: Path, tmp_path: Path, one_thread: None) -> None:
    pytest.importorskip("onnxscript")
    transformers = pytest.importorskip("transformers")
    training = f"""
      train: {elements}/train.conll
      validation: {elements}/validation.conll
      batch_size: 4
      max_epochs: 2
      max_length: 24
      optim: {{lr: 2e-3, head_lr: 5e-3}}
      precision: 32-true
      loggers: [jsonl]
      trainer: {{accelerator: cpu, devices: 1}}"""
    (tmp_path / "recipe.yaml").write_text(f"""
out: {tmp_path}/run
stages:
  labels:
      stage: finetune
      model: {runs / "pretrain"}
      task: TokenLabels{training}
  field:
      stage: finetune
      model: {runs / "pretrain"}
      task: &crf {{class_path: TokenLabels, init_args: {{head: crf}}}}{training}
  student:
      stage: distill-task
      teachers: ["@field"]
      student: {{first_layers: 1}}
      losses: [SoftTargets, HardTargets]
      unlabelled: {{sources: [{{path: {runs / "sample/corpus.jsonl"}}}]}}
      max_unlabelled: 40
      task: *crf{training}
  scores:
      stage: evaluate
      models: {{linear: "@labels", crf: "@field", student: "@student"}}
      task: TokenLabels
      test: {elements}/test.conll
  said: {{stage: predict, model: "@labels", precision: 32-true, input: {elements}/test.conll}}
  onnx: {{stage: export, model: "@field", check: {elements}/validation.conll}}
""")
    assert main(["run", str(tmp_path / "recipe.yaml")]) == 0
    run = tmp_path / "run"
    best = run / "labels" / json.loads((run / "labels/seeds.json").read_text())["best"]
    fields = json.loads((best / "config.json").read_text())
    assert fields["domainbert_task"] == "token_labels"
    labels = list(fields["label2id"])
    assert labels[-1] == "O" and not any(label.startswith("B-") for label in labels)

    metrics = json.loads((run / "scores/metrics.json").read_text())
    test = TokenLabels().read(elements / "test.conll")
    assert metrics["bootstrap"] == {"resamples": 2000, "unit": "documents", "units": test.num_documents}
    assert metrics["metric"]["key"] == "macro_f1" and metrics["metric"]["name"] == "mean token F1"
    written = TokenLabels(TaggedFormat(tag_column=2)).read(run / f"scores/predictions/linear/{best.name}.conll")
    gold, said = ([tag for one in file.items for tag in one.tags] for file in (test, written))
    occur = sorted({*gold, *said} - {"O"})
    f1 = f1_score(gold, said, labels=occur, average="macro", zero_division=0.0)
    assert metrics["systems"]["linear"]["macro_f1_by_seed"][best.name] == pytest.approx(f1, abs=1e-9) and f1 > 0.1
    for name in ("linear", "crf", "student"):
        low, high = metrics["systems"][name]["interval"]
        assert low < metrics["systems"][name]["macro_f1"] < high
    assert len(metrics["paired"]) == 2 and metrics["gold"] == sum(tag != "O" for tag in gold)

    predictor = load_predictor(run / "labels", "32-true")
    long = max(test.items, key=lambda one: len(one.words))
    (example,) = predictor.task.encode_contents([long.words], predictor.tokenizer, predictor.max_length)
    assert predictor.max_length == 24 and len(example.windows) > 2
    row = json.loads((run / "said/predictions.jsonl").read_text().splitlines()[test.items.index(long)])
    assert [row["text"][one["start"] : one["end"]] for one in row["words"]] == long.words
    assert [one["label"] for one in row["words"]] == written.items[test.items.index(long)].tags
    (words,) = predictor.predict([row["text"]])
    assert [one.text for one in words] == [row["text"][one.start : one.end] for one in words]
    assert "".join(one.text for one in words) == "".join(long.words) and all(one.label in labels for one in words)

    torchs, exported = (load_predictor(run / name, "32-true").predict([row["text"]])[0] for name in ("field", "onnx"))
    assert [one.label for one in exported] == [one.label for one in torchs]
    assert [one.score for one in exported] == pytest.approx([one.score for one in torchs], abs=1e-4)
    crf = json.loads((run / "onnx/crf.json").read_text())
    assert crf["labels"] == labels and min(map(min, crf["transitions"])) > -1000

    theirs, loading = transformers.AutoModelForTokenClassification.from_pretrained(best, output_loading_info=True)
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    short = "The effect of cash on girls"
    encoded = transformers.AutoTokenizer.from_pretrained(best)(short, return_tensors="pt")
    with torch.inference_mode():
        probabilities = torch.softmax(theirs.eval()(**encoded).logits[0], dim=-1)
    firsts = [encoded.word_ids().index(word) for word in range(6)]
    (ours,) = predictor.predict([short])
    assert [one.label for one in ours] == [labels[int(probabilities[place].argmax())] for place in firsts]
    assert [one.score for one in ours] == pytest.approx(
        [float(probabilities[place].max()) for place in firsts], abs=1e-5
    )

    folds = split_folds(elements / "train.conll", TokenLabels(), 3, 0)
    assert sum(fold.validation[0].count("-DOCSTART-") for fold in folds) == (
        elements / "train.conll"
    ).read_text().count("-DOC")


@pytest.mark.parametrize("task", [TokenLabels, Ner])
@pytest.mark.parametrize("name", ["label_names", "label_names_file"])
def test_label_names_are_refused_for_columns(tmp_path: Path, task: Any, name: str) -> None:
    """They had no effect: the tags 0 and 1 stayed numbers."""
    path = written(tmp_path / "a.conll", "Xylitol 1\nhelps 0\n")
    value = ["O", "B-INT"] if name == "label_names" else written(tmp_path / "names.json", '["O", "B-INT"]')
    with refused(file=path, where=f"format.{name}", problem="set for CoNLL", expected="null, or JSONL with numbers..."):
        task(format={name: value}).read(path)
