"""Fine-tuned models from Python, against `transformers` on the same folders."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import weakref

import numpy as np
import pytest
import torch

import domainbert
from domainbert.data.examples import text_example
from domainbert.data.packing import IGNORE_INDEX, collate
from domainbert.encoders.packed import Packed
from domainbert.labelled.tag_schemes import to_iob2
from domainbert.metrics.entities import count_entities
from domainbert.models.loading import load_model
from domainbert.serving import predictor
from domainbert.serving.loaders import load_classifier, load_tagger
from domainbert.serving.predictor import load_predictor, packed_logits
from domainbert.tasks.ner.files import read_ner
from domainbert.tasks.ner.tagger import Tagger
from domainbert.tasks.packed_logits import compute_in_parts
from domainbert.tasks.word_task import TaggedWords
from domainbert.tokenization.align import align_text
from domainbert.training import precision
from tests.refusals import refused


@pytest.fixture(scope="module")
def natural(runs, tagger) -> list[str]:
    """Return sentences of the corpus in natural spelling, with commas and brackets, each within one window."""
    lines = (runs / "sample/corpus.jsonl").read_text().splitlines()
    texts = [sentence for line in lines[:40] for sentence in re.split(r"(?<=\.) (?=[A-Z])", json.loads(line)["text"])]
    pieces = map(len, tagger.tokenizer.encode(texts))
    return [text for text, length in zip(texts, pieces, strict=True) if length <= 94][:150]


@pytest.fixture(scope="module")
def tagger(runs) -> Tagger:
    return load_tagger(runs / "ner-pretrained", "32-true")


def best(runs, name: str):
    return runs / name / runs.results[name]["best"]


def num_windows(tokens: Packed) -> int:
    return int(((tokens.position_ids == 0) & (tokens.segment_ids > 0)).sum())


def our_logits(model, ids: list[int], positions: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        shape = torch.ones(1, len(ids), dtype=torch.long)
        return model.eval()(Packed(torch.tensor([ids]), shape.cumsum(1) - 1, shape), torch.tensor(positions))


@pytest.mark.parametrize(
    ("run", "head", "auto_class"),
    [
        ("pretrain", "masked_lm", "AutoModelForMaskedLM"),
        ("ner-pretrained", "tokens", "AutoModelForTokenClassification"),
        ("classification-scratch", "sequence", "AutoModelForSequenceClassification"),
    ],
)
def test_transformers_loads_the_folders_and_agrees(runs, natural, run, head, auto_class):
    transformers = pytest.importorskip("transformers")
    folder = best(runs, run) if "best" in runs.results[run] else runs / run
    theirs, loading = getattr(transformers, auto_class).from_pretrained(folder, output_loading_info=True)
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    ours, opened, made = load_model(folder, head)
    assert made == []
    assert opened.labels == tuple(theirs.config.id2label[number] for number in range(len(opened.labels)))
    their_tokenizer, tokenizer = transformers.AutoTokenizer.from_pretrained(folder), opened.tokenizer()
    assert their_tokenizer.model_max_length == 96
    for text in natural[:10]:
        ids = [tokenizer.cls_id, *tokenizer.encode([text])[0], tokenizer.sep_id]
        encoded = their_tokenizer(text, return_tensors="pt")
        assert encoded["input_ids"][0].tolist() == ids
        with torch.inference_mode():
            wanted = theirs.eval()(**encoded).logits
        found = our_logits(ours, ids, [0] if head == "sequence" else list(range(len(ids))))
        torch.testing.assert_close(found, wanted.flatten(0, -2), atol=1e-4, rtol=0)


def test_a_transformers_pipeline_finds_the_same_entities(runs, tagger, natural):
    """All of them, word by word; decoding changes only the sentences whose best tags are not valid."""
    transformers = pytest.importorskip("transformers")
    folder = str(best(runs, "ner-pretrained"))
    pipeline = transformers.pipeline("token-classification", folder, aggregation_strategy="first", device="cpu")
    word_by_word = load_tagger(folder, "32-true")
    word_by_word.task.valid = word_by_word.task.word_splitting = None
    word_by_word.task.min_score = 0.0
    found = word_by_word.predict_entities(natural)
    decoded = tagger.predict_entities(natural)
    places = [[[(one.type, one.start, one.end) for one in row] for row in rows] for rows in (found, decoded)]
    assert 20 < sum(one == other for one, other in zip(*places, strict=True)) < 150
    for entities, text, theirs in zip(found, natural, pipeline(natural), strict=True):
        ours = [(one.type, one.start, one.end) for one in entities]
        assert ours == [(one["entity_group"], one["start"], one["end"]) for one in theirs]
        assert [one.text for one in entities] == [text[one["start"] : one["end"]] for one in theirs]
        # theirs is the mean of the words' probabilities, ours their product and that the entity ends there
        assert all(one.score <= float(other["score"]) + 1e-4 for one, other in zip(entities, theirs, strict=True))
    assert len(natural) == 150 and sum(map(len, found)) > 100
    assert len({entity.type for entities in found for entity in entities}) >= 3


def test_a_pipeline_reads_only_the_beginning_of_a_text_longer_than_the_window(runs, tagger, natural):
    """docs/how-to/predict-from-python.md: domainbert reads long texts whole, `transformers` cuts them or fails."""
    transformers = pytest.importorskip("transformers")
    folder = str(best(runs, "ner-pretrained"))
    pipeline = transformers.pipeline("token-classification", folder, aggregation_strategy="first", device="cpu")
    text = " ".join(natural[:40])
    room = tagger.max_length - 2
    cut = align_text(tagger.tokenizer, [text])[0]
    end = max(stop for (_, stop), first in zip(cut.word_offsets, cut.first_piece, strict=True) if first < room)
    found, theirs = tagger.predict_entities([text])[0], pipeline(text)
    assert len(cut.input_ids) > 5 * room and max(one["end"] for one in theirs) <= end
    assert sum(one.end > end for one in found) > 10 and max(one.end for one in found) > len(text) * 0.9
    strided = transformers.pipeline(
        "token-classification", folder, aggregation_strategy="first", device="cpu", stride=room // 2
    )
    assert max(one["end"] for one in strided(text)) > len(text) * 0.9

    folder = str(best(runs, "classification-pretrained"))
    pipeline = transformers.pipeline("text-classification", folder, top_k=None, device="cpu")
    with pytest.raises(RuntimeError, match="must match the size"):
        pipeline([text])
    (scores,) = pipeline([text], truncation=True)
    beginning = load_classifier(folder, "32-true").predict_texts([text[:end]])[0].scores
    assert {one["label"]: one["score"] for one in scores} == pytest.approx(beginning, abs=1e-5)


def test_who_waits_is_told_how_many_texts_are_predicted(runs, natural):
    """Of several batches each, and none twice; a text without words has no prediction to wait for."""
    predictor, counts = load_predictor(runs / "ner-pretrained", "32-true"), []
    predictor.on_predicted = counts.append
    found = predictor.predict([*natural * 4, " "])
    assert sum(counts) == len(natural) * 4 == len(found) - 1 and len(counts) > 1


def test_prediction_loads_no_training_library(runs):
    code = (
        "import sys, domainbert\n"
        f"assert domainbert.load_tagger({str(runs / 'ner-pretrained')!r}).predict_entities(['Rates.']) is not None\n"
        "heavy = {'lightning', 'torchmetrics', 'transformers', 'datasets', 'scipy', 'torch._dynamo', 'onnxruntime'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_a_few_lines_of_python(runs, tagger, natural):
    model = domainbert.load_tagger(str(runs / "ner-pretrained"), precision="32-true")
    assert model.labels == tagger.labels and model.labels[:2] == ("O", "B-coreference")
    entities = model.predict_entities(natural[:20])
    assert entities == tagger.predict_entities(natural[:20])
    entity = next(entity for one in entities for entity in one)
    assert 0 < entity.score <= 1 and entity.type in {label[2:] for label in model.labels[1:]}
    assert {
        type(load_predictor(runs / name, "32-true")).__name__ for name in ("ner-scratch", "classification-scratch")
    } == {
        "Tagger",
        "Classifier",
    }


@pytest.mark.parametrize(("name", "head"), [("ner-pretrained", "tokens"), ("classification-scratch", "sequence")])
def test_half_precision_gives_the_bits_of_autocast(runs, natural, name, head):
    """In the encoder; the head computes in full precision."""
    predictor = load_predictor(runs / name, "bf16-mixed")
    aligned = align_text(predictor.tokenizer, natural)
    examples = [text_example(words, IGNORE_INDEX, predictor.max_length) for words in aligned]
    model = load_model(runs / name, head)[0].eval()
    weights = [part.state_dict() for part in (model, predictor.model)]
    dense = [name for name, module in model.encoder.named_modules() if isinstance(module, torch.nn.Linear)]
    assert len(dense) > 5
    for name in weights[0]:
        halved = any(name == f"encoder.{one}.{kind}" for one in dense for kind in ("weight", "bias"))
        assert torch.equal(weights[1][name], weights[0][name].to(torch.bfloat16 if halved else torch.float32))
    wanted = packed_logits(model, predictor.tokenizer, examples, torch.device("cpu"), torch.bfloat16)
    for (_, one), (_, other) in zip(predictor.runtime.logits(examples), wanted, strict=True):
        assert one.dtype == other.dtype == torch.float32 and torch.equal(one, other)
        assert not torch.equal(one, one.bfloat16().float()), "logits have more digits than bf16"


def test_auto_is_the_default_of_predictions(runs, tagger, natural, monkeypatch):
    """It finds next to all of the entities of full precision, and evaluations and attention maps do not take it."""
    monkeypatch.setattr(precision, "resolve_precision", lambda name, *_: "bf16-mixed" if name == "auto" else name)
    loaded = [load(runs / "ner-pretrained") for load in (load_tagger, load_predictor, domainbert.load_tagger)]
    loaded.append(load_classifier(runs / "classification-pretrained"))
    assert [one.runtime.dtype for one in loaded] == [torch.bfloat16] * 4 and tagger.runtime.dtype is None
    found, wanted = (
        {(number, one.start, one.end, one.type) for number, text in enumerate(texts) for one in text}
        for texts in (loaded[0].predict_entities(natural), tagger.predict_entities(natural))
    )
    assert len(wanted) > 100 and len(found & wanted) > 0.95 * max(len(found), len(wanted))
    with refused(problem="loaded with 16 bits", hint="attention maps need load_predictor(MODEL_FOLDER, '32-true'..."):
        domainbert.attention_maps(loaded[0], natural[0])
    assert domainbert.attention_maps(runs / "ner-pretrained", natural[0]) is not None


def test_tags_of_words_are_valid_whatever_stands_beside_them(runs, tagger):
    words = [one.words for one in read_ner(runs.labelled("ner", "test")).sentences]
    tags = tagger.predict_words(words)
    repaired = tagger.num_repaired
    assert [len(one) for one in tags] == [len(one) for one in words]
    assert all(to_iob2(one) == one for one in tags) and any(set(one) != {"O"} for one in tags)
    alone = [tagger.predict_words([one])[0] for one in words[:15]]
    assert alone == tags[:15]
    assert tagger.predict_words([words[0], [], ["\x00"], words[1]]) == [
        tags[0],
        [],
        *tagger.predict_words([["\x00"]]),
        tags[1],
    ]
    tagger.predict_words([["the"]])
    assert tagger.num_repaired <= repaired


@pytest.mark.parametrize(
    ("tags", "repaired"),
    [("S-a O B-a I-a E-a", 0), ("U-a B-b L-b O U-b", 0), ("I-a I-a O I-b E-a", 3), ("O B-a I-b O E-a", 2)],
)
def test_tags_of_other_schemes_are_no_stray_ones(tagger, monkeypatch, tags, repaired):
    found = [TaggedWords(tags.split(), [0.5] * 5)]
    monkeypatch.setattr(tagger, "_tag", lambda aligned: found)
    (tagged,) = tagger.tag_words([["the"] * 5])
    assert tagged.tags == to_iob2(tags.split()) and tagger.num_repaired == repaired


def test_a_long_text_is_read_in_windows(runs, tagger):
    """No word is left out, and those in the middle of a window get the tags of that window read alone."""
    sentences = read_ner(runs.labelled("ner", "test")).sentences
    words = [word for sentence in sentences[:40] for word in sentence.words]
    pieces = tagger.tokenizer.encode([" ".join(words)])[0]
    assert len(pieces) > 5 * tagger.max_length
    (tags,) = tagger.predict_words([words])
    assert len(tags) == len(words) and sum(tag.startswith("B-") for tag in tags) > 20
    text = " ".join(words)
    (entities,) = tagger.predict_entities([text])
    assert max(one.end for one in entities) > 0.9 * len(text) and min(one.start for one in entities) < 0.1 * len(text)
    assert [one.start for one in entities] == sorted(one.start for one in entities)
    first = [
        number
        for number, word in enumerate(words)
        if len(tagger.tokenizer.encode([" ".join(words[: number + 1])])[0]) <= 94
    ][-1]
    (alone,) = tagger.predict_words([words[: first + 1]])
    assert tags[: first // 2] == alone[: first // 2]


def test_no_more_tokens_are_computed_at_once_than_in_other_batches(runs, natural, monkeypatch):
    """Windows of a text that is longer than a batch are computed a few at a time, with the same result."""
    classifier, tagger = (load_predictor(runs / f"{task}-pretrained", "32-true") for task in ("classification", "ner"))
    texts = [" ".join(2 * natural), natural[0], " ".join(natural)]
    wanted = [one.predict(texts) for one in (classifier, tagger)]
    monkeypatch.setattr("domainbert.tasks.packed_logits._MAX_TOKENS_ON_CPU", 400)
    most, windows = [], []
    for one in (classifier, tagger):
        one.runtime.model.encoder.register_forward_pre_hook(lambda _, given: most.append(given[0].input_ids.numel()))
        one.runtime.model.encoder.register_forward_pre_hook(lambda _, given: windows.append(num_windows(given[0])))
    found = [one.predict(texts) for one in (classifier, tagger)]
    assert max(most) < 500 < len(classifier.tokenizer.encode([texts[0]])[0])
    assert max(windows) == 400 // tagger.max_length and sum(windows) > 100
    for ours, theirs in zip(found[0], wanted[0], strict=True):
        assert ours.scores == pytest.approx(theirs.scores, abs=1e-5)
    assert [[(one.start, one.end, one.type) for one in text] for text in found[1]] == [
        [(one.start, one.end, one.type) for one in text] for text in wanted[1]
    ]


def test_the_tokens_of_a_part_are_dropped_before_the_next_part_is_computed(tagger, natural, monkeypatch):
    """Kept until the last part, they took more memory than all that is returned."""
    trimmed = []
    monkeypatch.setattr("domainbert.tasks.packed_logits.call_glibc", lambda *call: trimmed.append(call))
    (example,) = tagger.task.encode_contents([" ".join(natural)], tagger.tokenizer, tagger.max_length)
    tokens, parts, alive = [], [], []

    def compute(part):
        batch = {name: torch.from_numpy(values) for name, values in collate(part, [7], tagger.tokenizer).items()}
        alive.append(sum(one() is not None for one in tokens))
        tokens.append(weakref.ref(batch["input_ids"]))
        parts.append((batch["outputs"], torch.randn(len(batch["outputs"]), 3)))
        return batch, parts[-1][1]

    batch, logits = compute_in_parts(compute, [example], 400)
    assert len(parts) > 10 and max(alive) == 1 and trimmed == [("malloc_trim", 0)] * len(parts)
    assert batch.keys() == {"items", "example", "outputs", "targets"} and batch["items"].tolist() == [7]
    assert torch.equal(batch["outputs"], torch.cat([outputs for outputs, _ in parts]))
    assert torch.equal(logits, torch.cat([one for _, one in parts]))
    decided = batch["outputs"][batch["outputs"] >= 0]
    assert sorted(decided.tolist()) == list(range(example.num_outputs)), "every word is decided once"


def test_windows_of_a_long_text_are_averaged_for_its_class(runs):
    classifier = load_classifier(runs / "classification-pretrained", "32-true")
    lines = runs.labelled("classification", "test").read_text().splitlines()
    text = " ".join(json.loads(line)["text"] for line in lines[:10])
    short, long = "No effect .", text
    predictions = classifier.predict_texts([short, long, short])
    assert predictions[0] == predictions[2] and predictions[0].scores != predictions[1].scores
    assert predictions[1].scores == pytest.approx(classifier.predict_texts([long])[0].scores, abs=1e-5)
    assert sum(predictions[1].scores.values()) == pytest.approx(1)


def test_scores_are_those_of_transformers(runs, natural):
    transformers = pytest.importorskip("transformers")
    folder = best(runs, "classification-pretrained")
    pipeline = transformers.pipeline("text-classification", str(folder), top_k=None, device="cpu")
    for ours, theirs in zip(
        load_classifier(folder, "32-true").predict_texts(natural[:20]), pipeline(natural[:20]), strict=True
    ):
        scores = {one["label"]: one["score"] for one in theirs}
        assert ours.scores == pytest.approx(scores, abs=1e-5)
        assert ours.scores[ours.label] == max(np.array(list(ours.scores.values())))


def _texts_and_one(text):
    return [[text], (text,), iter([text]), (one for one in [text]), {text: 1}.keys(), text]


def test_any_iterable_of_strings_is_predicted_and_one_string_is_one_text(runs, tagger, natural):
    classifier, text = load_classifier(runs / "classification-pretrained", "32-true"), natural[0] + " Crédit à 9 %."
    for predict in (tagger.predict_entities, tagger.predict, classifier.predict_texts, classifier.predict):
        expected = predict([text])
        assert len(expected) == 1 and all(predict(given) == expected for given in _texts_and_one(text))
        assert predict([]) == predict(iter([])) == []
    words = text.split()
    assert tagger.predict_words(iter([words])) == tagger.predict_words([tuple(words)]) == tagger.predict_words([words])
    assert tagger.predict_spans(iter([words])) == tagger.predict_spans([words])


def test_predicted_spans_are_words_as_scores_count_them(tagger, natural):
    sentences = [text.split() for text in natural[:30]]
    spans, entities = tagger.predict_spans(sentences), tagger.predict(sentences)
    for words, found, expected in zip(sentences, spans, entities, strict=True):
        named = [(" ".join(words[start:end]), kind) for start, end, kind in found]
        assert named == [(entity.text, entity.type) for entity in expected]
    types = sorted({entity.type for found in entities for entity in found})
    assert count_entities(spans, spans, types).sum(axis=(0, 1)).tolist() == [sum(map(len, entities)), 0, 0] != [0] * 3


@pytest.mark.parametrize(
    ("texts", "where", "problem", "expected"),
    [
        ([None], "text 1", "found NoneType", "a string, a list of words or a TextPair"),
        (["Crédit", 5, b"loan", "x"], "text 2", "found int", "a string, ... (and 1 more like this)"),
        ([["loan", 3]], "text 1", "found list", "a string, a list of words or a TextPair"),
        (None, "texts", "found NoneType", "a list, each item a string, a list of words or a TextPair"),
        (7, "texts", "found int", "a list..."),
        (b"Cash", "texts", "found bytes", "a list..."),
        ({"text": "Cash"}, "texts", "found dict", "a list..."),
    ],
)
def test_other_types_are_refused_by_position_and_type(runs, tagger, texts, where, problem, expected):
    classifier = load_classifier(runs / "classification-pretrained", "32-true")
    for predict in (tagger.predict_entities, tagger.predict, classifier.predict_texts, classifier.predict):
        with refused(where=where, problem=problem, expected=expected):
            predict(texts)


def test_words_are_lists_and_pairs_are_strings(tagger):
    for predict in (tagger.predict_words, tagger.tag_words, tagger.predict_spans):
        for given in ("Cash", ["Cash", "loans"], ["Cash"]):
            with refused(where="text 1", found="str", expected="a list of words..."):
                predict(given)
    with refused(where="TextPair", found="'A loan.' and None", expected="two strings"):
        domainbert.TextPair("A loan.", None)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
@pytest.mark.parametrize(
    ("precision", "advice"), [("32-true", "train or export the model again"), ("bf16-mixed", "try precision: 32-true")]
)
def test_logits_that_are_not_finite_are_refused_by_the_folder(runs, natural, value, precision, advice):
    """They would be decoded into no entities, or into a class."""
    for name in ("ner-pretrained", "classification-pretrained"):
        predictor = load_predictor(runs / name, precision)
        with torch.no_grad():
            predictor.model.head.classifier.weight[0] = value
        hint = f"...{advice}..."
        with refused(file=f"...{name}/seed-...", problem="the logits of the model ...", hint=hint):
            predictor.predict(natural[:3])


def test_the_wrong_folder_is_named(runs):
    with refused(file="seed-...", problem="is a classifier with the classes...", hint="load it with load_classifier"):
        load_tagger(runs / "classification-pretrained", "32-true")
    with refused(file="seed-...", problem="is a tagger with the labels O, B-...", hint="load it with load_tagger"):
        load_classifier(runs / "ner-pretrained", "32-true")
    for load in (load_tagger, load_classifier, load_predictor):
        with refused(problem="no trained task head", expected="a model that finetune wrote"):
            load(runs / "pretrain")
    with refused(problem="no config.json", expected="a model folder"):
        load_predictor(runs / "nowhere", "32-true")


@pytest.mark.parametrize("length", [-1, 0, 2, 97])
def test_windows_that_cannot_be_are_refused(runs, length):
    with refused(where="max_length", found=length, expected="3 to 96, the positions of the model"):
        load_tagger(best(runs, "ner-pretrained"), "32-true", max_length=length)
    assert load_predictor(best(runs, "ner-pretrained"), "32-true", max_length=3).max_length == 3


@pytest.mark.parametrize(("rank", "device"), [("0", "cuda"), ("1", "cuda:1"), ("3", "cuda:1")])
def test_each_process_asks_on_a_gpu_of_its_own(monkeypatch, rank, device):
    """Of two; one that is alone, or the first, takes torch's current one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr("domainbert.serving.predictor.local_rank", lambda: int(rank))
    assert str(predictor._device_of_process()) == device
