"""Which words made a label: against integrated gradients that are written here, and on models that hang on one word."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from domainbert.base.errors import DomainbertError
from domainbert.encoders.config import HeadConfig, VocabularyFacts
from domainbert.encoders.families import build_model
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed
from domainbert.models.saving import save_model
from domainbert.serving.attributions import STEPS, attributions
from domainbert.serving.predictor import load_predictor
from domainbert.tasks.predictor import Predictor
from domainbert.tokenization.align import align_text
from domainbert.tokenization.load import load_tokenizer
from tests.tasks.tiny_folders import FAMILIES, Folders, vocabularies  # noqa: F401

pytest.importorskip("captum")

TEXT = "café loans, while the bank's  rates fell in Zürich <b>中国"
CLASSES = ["down", "up", "null"]
TAGS = ["O", "B-x", "I-x"]
HEADS = {
    "classification": ("sequence", CLASSES),
    "multi_label": ("sequence", CLASSES),
    "regression": ("sequence", ["value"]),
    "ner": ("tokens", TAGS),
    "token_labels": ("tokens", CLASSES),
    "relations": ("sequence", CLASSES),
    "parsing": ("biaffine", CLASSES),
    "question_answering": ("span", ["start", "end"]),
}

Make = Callable[..., Predictor[Any]]


@pytest.fixture
def make(vocabularies: Folders, tmp_path: Path, one_thread: None) -> Make:  # noqa: F811
    """Makes the predictor of a task with random weights of a family, in which no bias is 0."""

    def made(task: str, family: str = "bert", *, head: str = "", seed: int = 0, **facts: Any) -> Predictor[Any]:
        kind, labels = HEADS[task]
        layout, config = FAMILIES[family]
        tokenizer = load_tokenizer(vocabularies(layout))
        torch.manual_seed(seed)
        sizes = {"arc_size": 8, "label_size": 8} if kind == "biaffine" else {}
        of_head = HeadConfig(head or kind, **sizes)
        vocabulary = VocabularyFacts(tokenizer.vocab_size, tokenizer.pad_id)
        model = build_model(config, vocabulary, of_head, len(labels)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.15)
        facts = {"domainbert_task": task, **facts}
        save_model(tmp_path / task, model, config, tokenizer, head or kind, "", labels, 64, facts=facts)
        return load_predictor(tmp_path / task, "32-true")

    return made


def integrated(
    model: EncoderWithHead, ids: list[int], mask_id: int, positions: list[int], strength: Callable[[Tensor], Tensor]
) -> Tensor:
    """Integrated gradients (Sundararajan et al. 2017, eq. 3) of each token by the midpoint rule, from [MASK]s."""
    row = torch.tensor([ids])
    tokens = Packed(row, torch.arange(len(ids)).unsqueeze(0), torch.ones_like(row))
    hidden = row.clone()
    hidden[0, 1:-1] = mask_id
    embed = model.encoder.embed
    there, here = (embed(tokens._replace(input_ids=one)).detach() for one in (row, hidden))
    summed = torch.zeros_like(there)
    for step in range(400):
        point = (here + (step + 0.5) / 400 * (there - here)).requires_grad_()
        model.encoder.embed = lambda _, point=point: point
        (gradient,) = torch.autograd.grad(strength(model(tokens, torch.tensor(positions))), point)
        summed += gradient / 400
    model.encoder.embed = embed
    return ((there - here) * summed).sum(dim=-1)[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_values_are_the_integrated_gradients_of_the_class(family, make):
    predictor = make("classification", family)
    (found,) = attributions(predictor, TEXT)
    (predicted,) = predictor.predict([TEXT])
    assert (found.label, found.start, found.end, found.unit) == (predicted.label, None, None, "log-probability")
    assert math.exp(found.output) == pytest.approx(predicted.scores[found.label], rel=1e-5)
    assert found.error < 0.01 and found.steps in STEPS
    tokenizer, best = predictor.tokenizer, CLASSES.index(found.label)
    (pieces,) = tokenizer.encode([TEXT])
    ids = [tokenizer.cls_id, *pieces, tokenizer.sep_id]
    wanted = integrated(
        predictor.model, ids, tokenizer.mask_id, [0], lambda logits: torch.log_softmax(logits[0], -1)[best]
    )
    assert wanted[[0, -1]].tolist() == [0, 0], "special tokens are kept"
    places = [(word.start, word.end) for word in found.words]
    assert "".join(TEXT[start:end] for start, end in places) == TEXT.replace(" ", "")
    assert [word.text for word in found.words] == [TEXT[start:end] for start, end in places]
    by_word = [0.0] * len(places)
    for value, word in zip(wanted[1:-1].tolist(), align_text(tokenizer, [TEXT])[0].word_index, strict=True):
        by_word[word] += value
    near = 0.01 * sum(map(abs, by_word))
    assert [word.value for word in found.words] == pytest.approx(by_word, abs=near) and near > 0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("head", ["tokens", "crf"])
def test_values_of_an_entity_add_up_to_its_probability(family, head, make):
    """The logarithm of the score that prediction gives it, less that of the text that is hidden."""
    seed, entities = next(
        (seed, found)
        for seed in range(20)
        if 0 < len(found := make("ner", family, head=head, seed=seed, domainbert_tags="IOB2").predict([TEXT])[0]) < 6
    )
    predictor = make("ner", family, head=head, seed=seed, domainbert_tags="IOB2")
    found = attributions(predictor, TEXT)
    assert [(one.label, one.start, one.end) for one in found] == [(one.type, one.start, one.end) for one in entities]
    for one, entity in zip(found, entities, strict=True):
        assert math.exp(one.output) == pytest.approx(entity.score, rel=1e-4)
        assert sum(word.value for word in one.words) == pytest.approx(one.output - one.baseline_output, rel=0.01)
        assert one.error < 0.01


def test_values_of_an_entity_are_the_integrated_gradients_of_its_words(make):
    """Of a linear head whose tags may follow each other in any way, words are independent."""
    predictor = make("ner", seed=3)
    tokenizer = predictor.tokenizer
    found = next(one for one in attributions(predictor, TEXT) if one.start == 0)
    assert (found.text[: found.end], found.label) == ("café", "x")
    offsets = tokenizer.encode_with_offsets([TEXT])[0]
    first_of_next = 1 + offsets.word_ids.index(1)

    def strength(logits: Tensor) -> Tensor:
        word, following = torch.log_softmax(logits, -1)
        best = int(predicted[0].argmax())
        return word[best] + torch.log1p(-following[2].exp())  # the next word does not go on with I-x

    (ids,) = tokenizer.encode([TEXT])
    ids = [tokenizer.cls_id, *ids, tokenizer.sep_id]
    row = torch.tensor([ids])
    with torch.no_grad():
        tokens = Packed(row, torch.arange(len(ids)).unsqueeze(0), torch.ones_like(row))
        predicted = predictor.model(tokens, torch.tensor([1, first_of_next]))
    wanted = integrated(predictor.model, ids, tokenizer.mask_id, [1, first_of_next], strength)[1:-1].tolist()
    word_ids = offsets.word_ids
    by_word = [sum(v for v, at in zip(wanted, word_ids, strict=True) if at == n) for n in range(len(found.words))]
    assert [word.value for word in found.words] == pytest.approx(by_word, abs=0.01 * sum(map(abs, by_word)))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_word_that_a_label_hangs_on_is_named(family, make):
    """Every other entry has the embedding of [MASK], so that nothing else can tell the model anything."""
    predictor = make("classification", family)
    embeddings = predictor.model.encoder.input_embeddings.weight
    (aligned,) = align_text(predictor.tokenizer, [TEXT])
    pairs = set(zip(aligned.input_ids, aligned.word_index, strict=True))
    planted = [piece for piece, word in pairs if word == 1 and aligned.input_ids.count(piece) == 1]
    with torch.no_grad():
        kept = embeddings[planted].clone()
        embeddings.copy_(embeddings[predictor.tokenizer.mask_id].expand_as(embeddings))
        embeddings[planted] = kept
    (found,) = attributions(predictor, TEXT)
    values = {word.text: word.value for word in found.words}
    assert abs(values.pop("loans")) > 1e-3 and set(values.values()) == {0.0}
    assert found.output - found.baseline_output == pytest.approx(sum(word.value for word in found.words), rel=0.01)


@pytest.mark.parametrize("task", ["multi_label", "regression", "token_labels"])
def test_every_kind_of_label_has_its_words(task, make):
    """Each that is predicted, as sure as predicted; a number in its own units."""
    predictor = make(task)
    (predicted,) = predictor.predict([TEXT])
    found = attributions(predictor, TEXT)
    if task == "multi_label":
        said = [(label, None, predicted.scores[label]) for label in predicted.labels]
    elif task == "token_labels":
        said = [(word.label, word.start, word.score) for word in predicted]
    else:
        said = [("value", None, math.exp(predicted.value))]
    assert [(one.label, one.start) for one in found] == [(label, start) for label, start, _ in said] != []
    assert [math.exp(one.output) for one in found] == pytest.approx([score for *_, score in said], rel=1e-4)
    assert all(one.error < 0.01 for one in found)
    assert {one.unit for one in found} == {"units of the files" if task == "regression" else "log-probability"}


def test_relations_are_read_with_their_markers(make):
    """Of the text as the model reads it: whatever the file calls the markers."""
    facts = {"markers": "text", "head_key": "head", "tail_key": "tail", "head_markers": ["<<", ">>"]}
    predictor = make("relations", domainbert_relations={**facts, "tail_markers": ["[[", "]]"]})
    text = "<< café >> loans of [[ the bank ]] fell"
    (found,) = attributions(predictor, text)
    (predicted,) = predictor.predict([text])
    assert (found.text, found.label, found.words[2].text) == (text, predicted.label, "café")
    assert math.exp(found.output) == pytest.approx(predicted.scores[predicted.label], rel=1e-4)
    assert found.error < 0.01


def test_what_cannot_be_explained_is_refused_in_a_sentence(make, monkeypatch):
    classifier = make("classification")
    for text, message in [
        (" ", "attributions: the text has no words; expected at least one word"),
        (", " * 63, r"attributions: the text has 63 pieces; expected at most 62 \(one window\)"),
    ]:
        with pytest.raises(DomainbertError, match=f"^{message}$"):
            attributions(classifier, text)
    for predictor, message in [
        (make("parsing"), "attributions: the model is for parsing; expected a model that tags words or labels a text"),
        (
            make("question_answering"),
            "attributions: the model is for question_answering; expected a model that tags .*",
        ),
        (
            make("classification", domainbert_text_pair_key="b"),
            "attributions: found a single text; expected pairs of texts for this model",
        ),
    ]:
        with pytest.raises(DomainbertError, match=f"^{message}$"):
            attributions(predictor, TEXT)
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    with pytest.raises(
        DomainbertError, match=re.escape("attributions: needs captum; run pip install 'domainbert[attribution]'")
    ):
        attributions(classifier, TEXT)
