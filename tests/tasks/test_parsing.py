"""Dependency parsing: windows, loss, trees, and what a folder says."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from domainbert.base.errors import DomainbertError
from domainbert.data.batches import LabelledBatches, Share
from domainbert.data.packing import IGNORE_INDEX
from domainbert.encoders.packed import Packed
from domainbert.tasks.parsing.config import Parsing
from domainbert.tasks.parsing.files import Sentence, Treebank
from domainbert.tasks.parsing.task import ParsingTask
from domainbert.tasks.parsing.trees import is_tree
from domainbert.tasks.task import task_from_training_set
from tests.refusals import refused

LABELS = ("amod", "det", "root")


def tree(length: int, seed: int) -> Sentence:
    """Words of a few pieces each, in a random tree."""
    draw = random.Random(seed)
    words = [draw.choice(["men's", "banks", *"abcd"]) for _ in range(length)]
    heads = [0, *(draw.randint(1, word - 1) for word in range(2, length + 1))]
    return Sentence(words, heads, [draw.choice(LABELS) for _ in words], ["NOUN"] * length, [], 1, 0)


ITEMS = [tree(3, 0), tree(20, 1), tree(1, 2), tree(7, 3)]


def batch_of(task: ParsingTask, tokenizer: Any, items: list[Sentence], max_length: int = 10) -> dict[str, Any]:
    examples = task.encode(items, tokenizer, max_length)
    batch = LabelledBatches(examples, tokenizer, 10_000, Share())[0]
    return {name: torch.from_numpy(values) for name, values in batch.items()}


@pytest.fixture
def model(make_model: Callable[..., Any]) -> Any:
    return make_model("biaffine", len(LABELS)).eval()


@pytest.fixture
def task(model: Any) -> ParsingTask:
    task = ParsingTask(LABELS)
    task.attach_head(model.head)
    return task


def test_each_word_is_read_once_at_its_first_piece(task: ParsingTask, tokenizer: Any) -> None:
    examples = task.encode(ITEMS, tokenizer, 10)
    assert [len(example.windows) for example in examples] == [1, 6, 1, 2]
    for item, example in zip(ITEMS, examples, strict=True):
        words = np.concatenate([window.outputs for window in example.windows])
        assert words.tolist() == list(range(len(item.words))) and example.num_outputs == len(words)
        targets = np.concatenate([window.targets for window in example.windows]).tolist()
        assert targets == [[head, LABELS.index(label)] for head, label in item.arcs]
        first = [int(window.input_ids[place]) for window in example.windows for place in window.positions]
        texts = [tokenizer.backend.id_to_token(one) for one in first]
        assert all(word.startswith(text) for word, text in zip(item.words, texts, strict=True))
    (hidden,) = task.encode_contents([["a", "b"]], tokenizer, 10)
    assert (hidden.windows[0].targets == IGNORE_INDEX).all()


def test_loss_and_trees_are_those_of_whole_sentences(model: Any, task: ParsingTask, tokenizer: Any) -> None:
    """Of packed rows, windows and padding, against each sentence by itself from the same states."""
    batch = batch_of(task, tokenizer, ITEMS)
    with torch.inference_mode():
        logits = model(Packed.of(batch), batch["positions"])
        found, trees = float(task.loss(logits, batch)), task.decode(logits, batch)
    items = batch["items"].tolist()
    wanted = 0.0
    for place, number in enumerate(items):
        item, own = ITEMS[number], batch["example"] == place
        order = batch["outputs"][own].argsort()
        words, length = logits[own][order].unsqueeze(0), len(item.words)
        real = torch.ones(1, length, dtype=torch.bool)
        arcs = model.head.arc_scores(words, torch.tensor([length]))[0].detach().double().numpy()
        labels = model.head.label_scores(words, torch.tensor([item.heads]), real).detach().double().numpy()
        for word, (head, label) in enumerate(item.arcs):
            wanted += np.log(np.exp(arcs[word]).sum()) - arcs[word, head]
            wanted += np.log(np.exp(labels[word]).sum()) - labels[word, LABELS.index(label)]
        heads = [head for head, _ in trees[place].arcs]
        again = model.head.label_scores(words, torch.tensor([heads]), real).detach().double().numpy()
        best = np.exp(again) / np.exp(again).sum(axis=1, keepdims=True)
        assert [label for _, label in trees[place].arcs] == [LABELS[one] for one in best.argmax(axis=1)]
        of_head = np.exp(arcs[np.arange(length), heads]) / np.exp(arcs).sum(axis=1)
        np.testing.assert_allclose(trees[place].scores, of_head * best.max(axis=1), rtol=1e-4)
        assert is_tree(heads)
    assert found == pytest.approx(wanted, rel=1e-5)
    hidden = {**batch, "targets": torch.where(batch["example"].unsqueeze(1) == 0, IGNORE_INDEX, batch["targets"])}
    with torch.inference_mode():
        assert float(task.loss(logits, hidden)) < found
    task.decoding = "greedy"
    greedy = [[head for head, _ in one.arcs] for one in task.decode(logits, batch)]
    assert not all(map(is_tree, greedy)) and [len(one) for one in greedy] == [len(ITEMS[item].words) for item in items]


def test_validation_counts_the_trees_of_all_batches(model: Any, task: ParsingTask, tokenizer: Any) -> None:
    metric, right, labelled, number = task.metric(), 0, 0, 0
    for items in (ITEMS[:2], ITEMS[2:]):
        batch = batch_of(task, tokenizer, items)
        with torch.inference_mode():
            logits = model(Packed.of(batch), batch["positions"])
            task.update(metric, logits, batch, [items[item] for item in batch["items"].tolist()])
            trees = task.decode(logits, batch)
        for place, tree in zip(batch["items"].tolist(), trees, strict=True):
            right += sum(a[0] == b[0] for a, b in zip(tree.arcs, items[place].arcs, strict=True))
            labelled += sum(a == b for a, b in zip(tree.arcs, items[place].arcs, strict=True))
            number += len(tree.arcs)
    scores = {name: float(value) for name, value in metric.compute().items()}
    assert scores["uas"] == scores["uas_no_punctuation"] == right / number > 0
    assert scores["las"] == labelled / number and metric.counts[2, 0] == len(ITEMS)


def test_the_settings_of_a_training_reach_the_task(tmp_path: Path) -> None:
    config = Parsing(decode="greedy", arc_size=8, label_size=4)
    task = task_from_training_set(config, Treebank(tmp_path, ITEMS, "conll", False))
    assert (task.labels, task.decoding, task.head_config.sizes) == (LABELS, "greedy", {"arc_size": 8, "label_size": 4})


def test_a_model_that_gives_no_numbers_gives_trees(model: Any, task: ParsingTask, tokenizer: Any) -> None:
    batch = batch_of(task, tokenizer, ITEMS)
    logits = torch.full((len(batch["positions"]), 400), torch.nan)
    assert all(is_tree([head for head, _ in one.arcs]) for one in task.decode(logits, batch))


def test_a_training_that_came_to_nothing_is_told(task: ParsingTask) -> None:
    items = [Sentence(list("abcd"), [2, 0, 4, 2], list("wxyz"), ["_"] * 4, [], 1, 0)]
    (warning,) = task.training_hooks.warnings(task, items, {"uas": 0.5})
    assert "UAS 50.0 on validation, while attaching every word to its neighbour gets 50.0" in warning
    assert task.training_hooks.warnings(task, items, {"uas": 0.6}) == []


def test_what_a_folder_says(tmp_path: Path) -> None:
    assert ParsingTask.from_model_folder(LABELS, {}).decoding == "mst"
    facts = ParsingTask(LABELS, "greedy").model_config_fields({})
    assert ParsingTask.from_model_folder(LABELS, facts).decoding == "greedy"
    read = Parsing.evaluation.settings_from_model_config
    assert (read(facts), read({})) == ({"decode": "greedy"}, {})
    with refused(where="domainbert_decode", found="'best'"):
        ParsingTask.from_model_folder(LABELS, {"domainbert_decode": "best"})


def test_words_or_a_text_to_predict(task: ParsingTask) -> None:
    assert task.inputs.content_of(task, {"tokens": ["a", "b"], "text": "c"}, "text") == ["a", "b"]
    assert task.inputs.content_of(task, {"body": "a b"}, "body") == "a b"
    for row, problem in (
        ({}, "no string under 'text'"),
        ({"tokens": [1]}, "'tokens' contains 1; expected only non-empty strings"),
    ):
        with pytest.raises(DomainbertError, match=problem):
            task.inputs.content_of(task, row, "text")


def test_scores_of_arcs_are_in_full_precision_under_autocast(model: Any, task: ParsingTask, tokenizer: Any) -> None:
    batch = batch_of(task, tokenizer, ITEMS)
    with torch.inference_mode():
        logits = model(Packed.of(batch), batch["positions"])
        full = task.decode(logits, batch), float(task.loss(logits, batch))
        with torch.autocast("cpu", torch.bfloat16):
            assert (task.decode(logits, batch), float(task.loss(logits, batch))) == full
