"""IOB2 and BIOES inside the model, and probabilities of entities, against all tag sequences of short sentences."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from domainbert.data.batches import LabelledBatches, Share
from domainbert.encoders.crf import Crf
from domainbert.labelled.entities import Sentence
from domainbert.labelled.tag_schemes import (
    detect_scheme,
    find_violations,
    labels_of_types,
    scheme_of_labels,
    spans_from_tags,
    tags_from_spans,
    to_iob2,
)
from domainbert.metrics.entity_modules import LikelyEntityF1
from domainbert.tasks.decoding import uniform_crf
from domainbert.tasks.ner.confidence import Lattice
from domainbert.tasks.ner.task import CrfNerTask, NerTask, word_tags
from domainbert.tokenization.align import align_words

SCHEMES = ("IOB2", "BIOES")
LENGTHS = (4, 1, 3)


def random_spans(generator: random.Random, num_words: int) -> list[tuple[int, int, str]]:
    spans, word = [], 0
    while word < num_words:
        end = min(word + generator.choice([1, 1, 2, 3, 5]), num_words)
        if generator.random() < 0.6:
            spans.append((word, end, generator.choice(["a", "é-b"])))
        word = end
    return spans


@pytest.mark.parametrize("scheme", SCHEMES)
def test_spans_become_valid_tags_and_spans_again(scheme):
    generator = random.Random(0)
    for _ in range(300):
        spans = random_spans(generator, generator.randrange(12))
        tags = tags_from_spans(spans, 12, scheme)
        assert spans_from_tags(tags) == spans and find_violations(tags, scheme) == []
        assert to_iob2(tags) == tags_from_spans(spans, 12)


def test_the_tags_of_bioes_are_exact():
    assert tags_from_spans([(0, 1, "x"), (1, 3, "x"), (4, 8, "y")], 8, "BIOES") == [
        "S-x", "B-x", "E-x", "O", "B-y", "I-y", "I-y", "E-y",
    ]  # fmt: skip
    labels = labels_of_types(["y", "x"], "BIOES")
    assert labels == ["O", "B-x", "I-x", "E-x", "S-x", "B-y", "I-y", "E-y", "S-y"]
    assert scheme_of_labels(labels) == "BIOES" and scheme_of_labels(labels_of_types(["x"])) == "IOB2"
    assert scheme_of_labels(labels[:-1]) is None and scheme_of_labels(["O"]) is None
    assert detect_scheme([["S-x", "O"], ["B-x", "E-x"]]) == "BIOES"


def valid_paths(labels, length, scheme):
    for path in product(range(len(labels)), repeat=length):
        if not find_violations([labels[label] for label in path], scheme):
            yield path


def random_field(labels, seed) -> Crf:
    """A CRF with weights, in double precision."""
    crf, generator = Crf(len(labels)).double(), torch.Generator().manual_seed(seed)
    for parameter in crf.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    crf.constrain(labels)
    return crf


@pytest.mark.parametrize("scheme", SCHEMES)
def test_labels_in_another_order_keep_their_scores_and_what_is_forbidden(scheme):
    labels = labels_of_types(["x", "y"], scheme)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    moved, wanted = random_field(labels, 2), random_field(labels, 2)
    moved.reorder(order)
    emissions, lengths = torch.randn(5, 6, len(labels), dtype=torch.float64), torch.tensor([1, 2, 3, 5, 6])
    found = order[moved.decode(emissions[:, :, order], lengths)]
    inside = torch.arange(6) < lengths.unsqueeze(1)
    assert torch.equal(found[inside], wanted.decode(emissions, lengths)[inside])
    again = random_field([labels[label] for label in order.tolist()], 3)
    assert all(
        torch.equal(getattr(moved, name), getattr(again, name)) for name in ("allowed", "allowed_first", "allowed_last")
    )


def weight(crf, emissions, path):
    start, moves, end = (one.detach().numpy() for one in (crf.start, crf.transitions, crf.end))
    steps = sum(moves[a, b] for a, b in pairwise(path))
    return np.exp(
        start[path[0]] + steps + end[path[-1]] + sum(emissions[word, label] for word, label in enumerate(path))
    )


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("weighted", [False, True])
def test_decoding_and_entity_probabilities_are_those_of_all_valid_sequences(scheme, weighted):
    labels = labels_of_types(["x", "y"], scheme)
    lengths = torch.tensor(LENGTHS)
    for seed in range(4):
        field = random_field(labels, seed) if weighted else uniform_crf(labels).double()
        emissions = 2 * torch.randn(3, 4, len(labels), generator=torch.Generator().manual_seed(seed)).double()
        best = field.decode(emissions, lengths)
        partition = field.log_partition(emissions, lengths)
        lattice = Lattice(field, emissions, lengths, labels)
        for row, length in enumerate(LENGTHS):
            weights = {
                path: weight(field, emissions[row].numpy(), path) for path in valid_paths(labels, length, scheme)
            }
            total = sum(weights.values())
            assert tuple(best[row, :length].tolist()) == max(weights, key=weights.__getitem__)
            assert float(partition[row].detach()) == pytest.approx(np.log(total), abs=1e-9)
            spans = {path: spans_from_tags([labels[label] for label in path]) for path in weights}
            for start, end, kind in {span for found in spans.values() for span in found}:
                wanted = sum(value for path, value in weights.items() if (start, end, kind) in spans[path]) / total
                tags = [["O"] * length for length in LENGTHS]
                tags[row] = tags_from_spans([(start, end, kind)], length, scheme)
                found = lattice.scores(tags)[row][start:end]
                assert found == pytest.approx([wanted] * (end - start), rel=1e-9, abs=1e-12)
            outside = lattice.scores([["O"] * length for length in LENGTHS])[row]
            for word in range(length):
                wanted = sum(value for path, value in weights.items() if labels[path[word]] == "O") / total
                assert outside[word] == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_without_a_scheme_an_entity_has_the_product_of_its_words():
    labels = ["O", "B-x", "I-x"]
    emissions = torch.randn(1, 3, 3, generator=torch.Generator().manual_seed(0))
    lattice = Lattice(Crf(3), emissions, torch.tensor([3]), labels)
    p = torch.softmax(emissions[0].double(), dim=1).numpy()
    assert lattice.scores([["O", "I-x", "O"]])[0] == pytest.approx([p[0, 0], p[1, 2] * (1 - p[2, 2]), p[2, 0]])
    assert lattice.scores([["B-x", "B-x", "I-x"]])[0] == pytest.approx(
        [p[0, 1] * (1 - p[1, 2]), *[p[1, 1] * p[2, 2]] * 2]
    )


def test_long_sentences_do_not_underflow():
    labels = labels_of_types(["x"])
    emissions = torch.full((1, 5000, 3), -300.0)
    emissions[0, :, 0] = 300
    emissions[0, 4000, 1] = 301
    lattice = Lattice(uniform_crf(labels), emissions, torch.tensor([5000]), labels)
    tags = ["O"] * 4000 + ["B-x"] + ["O"] * 999
    assert lattice.scores([tags])[0][4000] == pytest.approx(np.e / (1 + np.e))


def test_a_word_of_several_pretokens_goes_from_its_first_to_its_last(tokenizer):
    sentence = Sentence(
        ["a", "men's", "men's", "men's", "a", "men's"],
        ["O", "B-x", "B-x", "I-x", "B-x", "O"],
        line=1,
        document=0,
    )
    task = NerTask(labels_of_types(["x"], "BIOES"))
    (example,) = task.encode([sentence], tokenizer, 32)
    (window,) = example.windows
    assert [task.labels[target] for target in window.targets] == [
        "O", "B-x", "I-x", "E-x", "B-x", "I-x", "I-x", "I-x", "I-x", "E-x", "S-x", "O", "O", "O",
    ]  # fmt: skip
    assert window.outputs.tolist() == list(range(14)) and example.num_outputs == 14
    (text,) = task.encode_contents(["a men's men's men's a men's"], tokenizer, 32)
    assert text.windows[0].input_ids.tolist() == window.input_ids.tolist()
    assert text.windows[0].outputs.tolist() == window.outputs.tolist()


def test_words_are_in_the_entity_of_their_first_pretoken():
    firsts = [0, 1, 4, 5]  # the second word has three pre-tokens
    assert word_tags(["O", "B-x", "I-x", "E-x", "S-x", "O"], firsts) == ["O", "B-x", "B-x", "O"]
    assert word_tags(["O", "S-x", "O", "B-y", "E-y", "O"], firsts) == ["O", "B-x", "B-y", "O"]
    assert word_tags(["O", "O", "B-x", "E-x", "O", "O"], firsts) == ["O", "O", "O", "O"]
    # the entity of the third word begins in the second word, which is in another entity
    assert word_tags(["O", "S-x", "O", "B-x", "E-x", "O"], firsts) == ["O", "B-x", "B-x", "O"]


def test_validation_omits_the_entities_that_prediction_omits(tokenizer):
    """In BIOES, validation selects entities of words, and prediction selects entities of pre-tokens."""
    generator = torch.Generator().manual_seed(2)
    labels = labels_of_types(["x"], "BIOES")
    sentences = [Sentence(["men's", "a", "men's", "men's"], ["O"] * 4, line, line) for line in range(60)]
    task, pairs = NerTask(labels), []
    task.min_score = 0.4
    batches = LabelledBatches(task.encode(sentences, tokenizer, 32), tokenizer, 64, Share())
    for number in range(len(batches)):
        batch = {name: torch.from_numpy(value) for name, value in batches[number].items()}
        logits = 2 * torch.randn(len(batch["outputs"]), len(labels), generator=generator)
        items = [sentences[item] for item in batch["items"].tolist()]
        aligned = align_words(tokenizer, [item.words for item in items])
        decoded = map(task.tags_of_words, task.decode(logits, batch), aligned)
        spans = [spans_from_tags(tags) for tags, _ in decoded]
        predicted = {item.line: found for item, found in zip(items, spans, strict=True)}
        gold = [replace(one, tags=tags_from_spans(predicted.get(one.line, []), 4)) for one in sentences]
        metric = LikelyEntityF1(["x"], (0.4,))
        task.update(metric, logits, batch, [gold[item] for item in batch["items"].tolist()])
        pairs.append((metric.counts[0].sum(dim=0).tolist(), sum(map(len, spans))))
    assert [counts for counts, _ in pairs] == [[size, 0, 0] for _, size in pairs]
    assert sum(size for _, size in pairs) > 30


@pytest.mark.parametrize("kind", [NerTask, CrfNerTask])
@pytest.mark.parametrize("max_length", [9, 64])
def test_gold_logits_score_in_full_in_windows_of_any_length(tokenizer, make_model, kind, max_length):
    """Validation counts entities in words of the file; some words have several pre-tokens."""
    generator = random.Random(3)
    words = ["men's", "rates", "a", "bank's", "\x00"]
    sentences = []
    for line in range(1, 9):
        size = generator.randrange(1, 30)
        tags = tags_from_spans(random_spans(generator, size), size)
        sentences.append(Sentence(generator.choices(words, k=size), tags, line, line))
    task = kind(labels_of_types(["a", "é-b"], "BIOES"))
    if kind is CrfNerTask:
        task.attach_head(make_model("crf", len(task.labels)).head)
    batches = LabelledBatches(task.encode(sentences, tokenizer, max_length), tokenizer, 64, Share())
    metric, wrong = task.metric(), task.metric()
    for number in range(len(batches)):
        batch = {name: torch.from_numpy(value) for name, value in batches[number].items()}
        logits = 20 * torch.nn.functional.one_hot(batch["targets"], len(task.labels)).float()
        gold = [sentences[item] for item in batch["items"].tolist()]
        task.update(metric, logits, batch, gold)
        task.update(wrong, torch.zeros_like(logits).index_fill_(1, torch.tensor([0]), 9.0), batch, gold)
    gold = sum(len(sentence.spans) for sentence in sentences)
    assert metric.counts[0].sum(dim=0).tolist() == [gold, 0, 0]
    assert wrong.counts[0].sum(dim=0).tolist()[0] == 0


def test_places_of_pretokens_are_shown_with_their_word(tokenizer):
    words, tags = ("a", "men's", "self-employed", "rates"), ("O", "B-a", "O", "B-b")
    task = NerTask(labels_of_types(["a", "b"], "BIOES"))
    item = Sentence(words, tags, 1, 0)
    (example,) = task.encode([item], tokenizer, 64)
    notes = [note for window in example.windows for note in task.example_formatter.notes(task, item, window)]
    named = [name for name, _ in notes if name]
    assert named == list(words) and len(notes) > len(words)
    assert [(name, tag) for name, tag in notes if name in ("men's", "rates")] == [("men's", "B-a"), ("rates", "S-b")]
