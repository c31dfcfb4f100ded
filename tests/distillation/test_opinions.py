"""What students and teachers say of trees, answers and relations, and how they differ, against plain loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from domainbert.data.batches import GlobalOrder, Share
from domainbert.data.packing import Example
from domainbert.distillation.batches import DistillationBatches
from domainbert.distillation.prediction_config import SoftTargets
from domainbert.distillation.weighted import WeightedLosses, sizes_of
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed
from domainbert.tasks.parsing.task import ParsingTask
from domainbert.tasks.question_answering.config import QuestionAnswering
from domainbert.tasks.question_answering.files import Answer, Question
from domainbert.tasks.question_answering.task import QuestionAnsweringTask
from domainbert.tasks.question_answering.windows import ENDS, STARTS
from domainbert.tasks.relations.config import RelationFormat, outputs_at_starts
from domainbert.tasks.relations.files import RelatedEntities
from domainbert.tasks.relations.marked import find_markers
from domainbert.tasks.relations.reading import MarkerReading
from domainbert.tasks.relations.task import StartsRelationsTask
from domainbert.tasks.task import Task
from tests.ready_made import ReadyTaskDistillation
from tests.tasks.test_parsing import LABELS, tree

TEMPERATURE = 2.0
Make = Callable[..., EncoderWithHead]


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """Over all of an array."""
    highest = scores.max()
    return scores - highest - np.log(np.exp(scores - highest).sum())


def divergence(source: Sequence[float], own: Sequence[float]) -> float:
    """T² KL(source || own) of two lists of scores."""
    one, other = (log_softmax(np.asarray(scores, dtype=np.float64) / TEMPERATURE) for scores in (source, own))
    return TEMPERATURE**2 * float((np.exp(one) * (one - other)).sum())


def two_models(make_model: Make, head: str, num_labels: int) -> list[EncoderWithHead]:
    """A student, and a teacher that is another model."""
    models = [make_model(head, num_labels).eval(), make_model(head, num_labels).eval()]
    for number, model in enumerate(models):
        generator = torch.Generator().manual_seed(number)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return models


def batch_of(examples: list[Example], labelled: int, tokenizer: Any) -> dict[str, Any]:
    """All of them as one step."""
    orders = [GlobalOrder(labelled, labelled, seed=0)]
    if labelled < len(examples):
        orders.append(GlobalOrder(len(examples) - labelled, len(examples) - labelled, seed=1))
    batch = DistillationBatches(examples, tokenizer, orders, Share(), range(1))[0]
    return {name: torch.from_numpy(np.asarray(value)) for name, value in batch.items()}


def trained(task: Task[Any, Any], models: list[EncoderWithHead], batch: dict[str, Any]) -> dict[str, float]:
    """The losses of a step, after its gradients, which reach all of the student's head but for a bias of all scores."""
    student, teacher = models
    losses = WeightedLosses(
        [SoftTargets(temperature=TEMPERATURE)], sizes_of(student.encoder), sizes_of(teacher.encoder)
    )
    module = ReadyTaskDistillation(student, [teacher], losses, task).eval()
    module.trainer = type("One", (), {"world_size": 1, "accumulate_grad_batches": 1})()
    module.training_step(batch, 0).backward()
    moved = {name: float(value.grad.abs().sum()) for name, value in student.head.named_parameters()}
    if task.distillation_targets.softmax_over == "examples":
        assert moved.pop("classifier.bias") < 1e-6
    assert min(moved.values()) > 1e-6, moved
    assert all(parameter.grad is None for parameter in teacher.parameters())
    return {name: float(value) for name, value in module.step_loss.share_terms.pop().items()}


def at_positions(model: EncoderWithHead, batch: dict[str, Any]) -> list[tuple[int, int, np.ndarray]]:
    """The item, the output and what the head gives (C,) at each position."""
    with torch.no_grad():
        logits = model(Packed.of(batch), batch["positions"]).double().numpy()
    items = batch["items"][batch["example"]].tolist()
    return list(zip(items, batch["outputs"].tolist(), logits, strict=True))


def test_trees_are_compared_by_heads_and_labels_together(tokenizer: Any, make_model: Make) -> None:
    """Of each word, unlabelled sentences too, the distribution over all heads with all labels."""
    task, labelled = ParsingTask(LABELS), [tree(3, 0), tree(12, 1), tree(1, 2)]
    others = [["a", "men's", "b", "banks"], ["d"]]
    examples = task.encode(labelled, tokenizer, 10) + task.encode_contents(others, tokenizer, 10)
    assert len(examples[1].windows) > 1
    models, batch = two_models(make_model, "biaffine", len(LABELS)), batch_of(examples, 3, tokenizer)
    own, source = (joint_scores(model, batch) for model in models)
    wanted = sum(divergence(source[word], own[word]) for word in source) / len(source)
    assert len(source) == 3 + 12 + 1 + 4 + 1 and wanted > 0.05
    assert trained(task, models, batch)["SoftTargets"] == pytest.approx(wanted, rel=1e-4)


def joint_scores(model: EncoderWithHead, batch: dict[str, Any]) -> dict[tuple[int, int], np.ndarray]:
    """Log-probability of each head and label of each word (item, word)."""
    head = model.head
    size, arc, label = (getattr(head, name) for name in ("arc_size", "arc", "label"))
    arc, label, root = (one.detach().double().numpy() for one in (arc, label, head.root))
    words = {(item, word): values for item, word, values in at_positions(model, batch)}
    found = {}
    for item, word in words:
        length = 1 + max(other for one, other in words if one == item)
        dependent, rows = words[item, word], []
        for number in [None, *(other for other in range(length) if other != word)]:
            as_head = root if number is None else words[item, number][len(root) :]
            score = np.append(dependent[:size], 1) @ arc @ as_head[:size]
            of_labels = [
                np.append(dependent[size : len(root)], 1) @ matrix @ np.append(as_head[size:], 1) for matrix in label
            ]
            rows.append((score, log_softmax(np.asarray(of_labels))))
        arcs = log_softmax(np.asarray([score for score, _ in rows]))
        found[item, word] = np.concatenate([one + labels for one, (_, labels) in zip(arcs, rows, strict=True)])
    return found


def test_a_parser_with_its_labels_in_another_order_is_the_same(make_model: Make) -> None:
    head, order = two_models(make_model, "biaffine", 3)[0].head, torch.tensor([2, 0, 1])
    words = torch.randn(2, 5, head.project.out_features, generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([5, 3])
    before = head.joint_scores(words, lengths)
    assert [tuple(one.shape) for one in before] == [(5, 6, 3), (3, 4, 3)]
    for one in before:
        torch.testing.assert_close(one.exp().sum(dim=(1, 2)), torch.ones(len(one)))
    head.reorder(order)
    for one, other in zip(head.joint_scores(words, lengths), before, strict=True):
        torch.testing.assert_close(one, other[..., order])


def test_sentences_without_a_word_teach_nothing(tokenizer: Any, make_model: Make) -> None:
    task = ParsingTask(LABELS)
    examples = task.encode([tree(3, 0)], tokenizer, 10) + task.encode_contents([[], []], tokenizer, 10)
    batch = batch_of(examples, 1, tokenizer)
    (model, _) = two_models(make_model, "biaffine", len(LABELS))
    wordless = {"example": batch["example"][:0], "outputs": batch["outputs"][:0]}
    logits = model(Packed.of(batch), batch["positions"][:0])
    found = task.distillation_targets.teacher_logits(task, model.head, logits, wordless)
    loss = task.distillation_targets.divergence(found.detach(), found, batch["example"][:0]).sum()
    loss.backward()
    assert float(loss.detach()) == 0


def test_answers_are_compared_by_where_they_start_and_end(tokenizer: Any, make_model: Make) -> None:
    """Among [CLS] and the pieces of a context, the mean of its windows; the mean over questions."""
    task = QuestionAnsweringTask(QuestionAnswering(max_question_length=2))
    contexts = ["a b c men's rate bank a b c d e f g h rate", "bank a", "h g f e d c b a a b c d"]
    items = [
        Question(str(number), "rate bank", context, (Answer("a", context.index("a")),), 1)
        for number, context in enumerate(contexts)
    ]
    examples = task.encode(items, tokenizer, 12)
    assert task.distillation_targets.facts(task, torch.nn.Identity()) == {"max_question_length": 2}, (
        "a cache of longer questions is another one"
    )
    assert [len(example.windows) > 1 for example in examples] == [True, False, True]
    models, batch = two_models(make_model, "span", 2), batch_of(examples, 3, tokenizer)
    own, source = (of_contexts(model, batch) for model in models)
    each = [divergence(source[item][kind], own[item][kind]) for item in range(3) for kind in (STARTS, ENDS)]
    assert [one.shape[1] for one in source.values()] == [example.num_outputs for example in examples]
    assert min(each) > 0.01
    assert trained(task, models, batch)["SoftTargets"] == pytest.approx(np.mean(each), rel=1e-4)


def of_contexts(model: EncoderWithHead, batch: dict[str, Any]) -> dict[int, np.ndarray]:
    """Logits of start and end (2, outputs) at the outputs of each item."""
    found: dict[tuple[int, int], list[np.ndarray]] = {}
    for item, output, values in at_positions(model, batch):
        found.setdefault((item, output), []).append(values)
    outputs = {item: sorted(output for one, output in found if one == item) for item in range(3)}
    return {
        item: np.stack([np.mean(found[item, one], axis=0) for one in some], axis=1) for item, some in outputs.items()
    }


def test_a_piece_that_no_window_reads_is_in_no_distribution() -> None:
    task, generator = QuestionAnsweringTask(QuestionAnswering()), np.random.default_rng(0)
    teacher, student = generator.normal(size=(2, 6, 2))
    example = np.array([0, -1, 0, 0, 1, 1])
    found = task.distillation_targets.divergence(*(torch.from_numpy(one) for one in (teacher, student, example)))
    wanted = [
        divergence(TEMPERATURE * teacher[some, kind], TEMPERATURE * student[some, kind]) / TEMPERATURE**2
        for some in ([0, 2, 3], [4, 5])
        for kind in (STARTS, ENDS)
    ]
    assert float(found.sum()) == pytest.approx(sum(wanted) / 2, rel=1e-6)


def test_relations_at_markers_are_compared_as_classes(tokenizer: Any, make_model: Make) -> None:
    """Half of the outputs is read at either marker, and what they say of a text is one distribution."""
    classes, format = ("none", "part-of"), RelationFormat(head_markers=("d", "e"), tail_markers=("f", "g"))
    task = StartsRelationsTask(outputs_at_starts(classes), MarkerReading("text", format))
    texts = ["d a e b f c g", "a b f a g men's d c e a", "d b e f b g"]
    items = [
        RelatedEntities(find_markers(text, format.markers), classes[number % 2], number)
        for number, text in enumerate(texts)
    ]
    examples = task.encode(items, tokenizer, 16)
    models, batch = two_models(make_model, "tokens", 4), batch_of(examples, 3, tokenizer)
    assert task.distillation_targets.num_outputs(task) == 2 and int(batch["num_outputs"]) == 3
    found = []
    for model in models:
        places = at_positions(model, batch)
        of_texts = {item: np.zeros(2) for item, *_ in places}
        for number, (item, _, values) in enumerate(sorted(places, key=lambda one: one[0])):
            of_texts[item] += values[:2] if number % 2 == 0 else values[2:]
        found.append(of_texts)
    own, source = found
    wanted = np.mean([divergence(source[item], own[item]) for item in range(3)])
    assert wanted > 0.01
    assert trained(task, models, batch)["SoftTargets"] == pytest.approx(wanted, rel=1e-4)
