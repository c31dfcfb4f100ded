"""Distillation on a task: labelled texts and, beside them, text without labels, against NumPy."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from domainbert.data.batches import GlobalOrder, Share
from domainbert.data.examples import encode_words, text_example
from domainbert.data.packing import IGNORE_INDEX
from domainbert.distillation.batches import DistillationBatches
from domainbert.distillation.prediction_config import HardTargets, LogitMSE, SoftTargets
from domainbert.distillation.weighted import WeightedLosses, sizes_of
from domainbert.encoders.packed import Packed
from domainbert.labelled.entities import Sentence
from domainbert.tasks.classification.files import LabelledText
from domainbert.tasks.classification.task import ClassificationTask
from domainbert.tasks.ner.task import CrfNerTask, NerTask
from domainbert.tokenization.align import align_text
from tests.ready_made import ReadyTaskDistillation

CLASSES, TAGS = ("x", "y", "z"), ("O", "B-p", "I-p")
LETTERS = "abcdefgh"
LABELLED, UNLABELLED = (5, 12, 3, 14, 7, 12), (12, 2, 6, 13, 4, 9, 11)  # words; a window holds 8
LOSSES = [SoftTargets(temperature=2.0, weight=0.5), HardTargets(weight=3.0), LogitMSE()]


def words_of(sizes, seed):
    generator = np.random.default_rng(seed)
    return [generator.choice([*LETTERS, "men's"], size).tolist() for size in sizes]


@pytest.fixture(params=["sequence", "tokens"])
def case(request, tokenizer):
    """A task with its labelled examples and, after these, those without labels."""
    texts, others = words_of(LABELLED, 0), [" ".join(words) for words in words_of(UNLABELLED, 1)]
    aligned = align_text(tokenizer, others)
    if request.param == "sequence":
        task = ClassificationTask(CLASSES)
        items = [LabelledText(" ".join(words), CLASSES[n % 3], n) for n, words in enumerate(texts)]
        unlabelled = [text_example(words, IGNORE_INDEX, 10) for words in aligned]
    else:
        task = NerTask(TAGS)
        tags = [[TAGS[min(n % 4, 2)] if n % 4 else "O" for n in range(len(words))] for words in texts]
        items = [Sentence(tuple(w), tuple(t), line=1, document=0) for w, t in zip(texts, tags, strict=True)]
        unlabelled = encode_words(aligned, None, TAGS, 10)
    examples = task.encode(items, tokenizer, 10) + unlabelled
    assert {2} <= {len(example.windows) for example in examples}, "some of two windows"
    return SimpleNamespace(task=task, examples=examples, head=request.param, count=len(items))


def orders():
    return [GlobalOrder(len(LABELLED), 4, seed=0), GlobalOrder(len(UNLABELLED), 6, seed=0)]


class Logits:
    """A teacher whose logits for output o of item i are (i, o, 0)."""

    def __init__(self, examples):
        self.examples = examples

    def logits_of(self, items):
        rows = [(item, output, 0) for item in items for output in range(self.examples[item].num_outputs)]
        return np.asarray(rows, dtype=np.float32)


def tensors(batch):
    return {name: torch.from_numpy(np.asarray(value)) for name, value in batch.items()}


def test_labelled_and_unlabelled_text_come_in_their_own_order(case, tokenizer):
    """Each pass over either reads everything once; the outputs and what the teacher said of them belong together."""
    steps = 14  # several passes over both
    batches = DistillationBatches(case.examples, tokenizer, orders(), Share(), range(steps), [Logits(case.examples)])
    seen = []
    for step in range(steps):
        batch = batches[step]
        items = batch["items"].tolist()
        seen.append(items)
        wanted = [orders()[0].batch(step)[1].tolist(), (orders()[1].batch(step)[1] + case.count).tolist()]
        assert items == [*wanted[0], *wanted[1]]
        owners = np.asarray(items)[batch["example"]]
        decides = batch["outputs"] >= 0
        assert (batch["output_index"] >= 0).tolist() == decides.tolist()
        logits = batch["teacher_logits"][batch["output_index"][decides]]
        assert logits[:, 0].tolist() == owners[decides].tolist()
        assert logits[:, 1].tolist() == batch["outputs"][decides].tolist()
        assert set(batch["output_index"][decides].tolist()) == set(range(len(batch["teacher_logits"])))
        assert batch["num_outputs_here"] == len(batch["teacher_logits"])
        assert (batch["targets"][owners >= case.count] == IGNORE_INDEX).all()
        assert (batch["targets"][owners < case.count] != IGNORE_INDEX).all()
    for part, size in ((slice(0, 4), len(LABELLED)), (slice(4, 10), len(UNLABELLED))):
        drawn = [item for items in seen for item in items[part]]
        passes = [drawn[start : start + size] for start in range(0, len(drawn) - size, size)]
        assert len(passes) > 5 and all(len(set(one)) == size for one in passes) and passes[0] != passes[1]


def test_counts_are_those_of_the_global_batch(case, tokenizer):
    for step in range(3):
        everything = [*orders()[0].batch(step)[1].tolist(), *(orders()[1].batch(step)[1] + case.count).tolist()]
        windows = [window for item in everything for window in case.examples[item].windows]
        lengths = np.asarray([len(window.input_ids) + 2 for window in windows])
        labelled = [window for item in everything[:4] for window in case.examples[item].windows]
        wanted = {"num_examples": 4, "num_texts": 10, "num_targets": sum(len(window.targets) for window in labelled)}
        wanted |= {"num_outputs": sum(case.examples[item].num_outputs for item in everything)}
        wanted |= {"num_segments": len(windows), "num_real_tokens": lengths.sum(), "num_pairs": (lengths**2).sum()}
        parts: dict[str, int] = {"num_outputs_here": 0, "items": 0}
        for rank in range(2):
            batches = DistillationBatches(case.examples, tokenizer, orders(), Share(rank, 2, 2), range(3))
            for micro_batch in range(2):
                batch = batches[2 * step + micro_batch]
                assert {name: batch[name] for name in wanted} == wanted
                assert (batch["step"], batch["micro_batch"]) == (step, micro_batch)
                parts["num_outputs_here"] += batch["num_outputs_here"]
                parts["items"] += len(batch["items"])
        assert parts == {"num_outputs_here": wanted["num_outputs"], "items": 10}


def test_an_example_with_a_label_in_one_window_is_labelled(tokenizer):
    """A word longer than a window: the further windows read nothing."""
    items = [Sentence(("s" * 20, "a"), ("B-p", "O"), line=1, document=0)]
    examples = NerTask(TAGS).encode(items, tokenizer, 8)
    assert [len(window.targets) for window in examples[0].windows].count(0) > 1
    batch = DistillationBatches(examples, tokenizer, [GlobalOrder(1, 1, 0)], Share(), range(1))[0]
    assert (batch["num_examples"], batch["num_targets"], batch["num_outputs"]) == (1, 2, 2)


def make_module(case, make_model):
    student, teacher = make_model(case.head, 3), make_model(case.head, 3)
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.3)
    losses = WeightedLosses(LOSSES, sizes_of(student.encoder), sizes_of(teacher.encoder))
    module = ReadyTaskDistillation(student, [teacher], losses, case.task)
    return module.eval()


def log_softmax(x):
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def of_outputs(model, batch):
    """Logits of words or texts by (item, output): of a text the mean of its windows."""
    with torch.no_grad():
        logits = model(Packed.of(batch), batch["positions"]).double()
    found: dict[tuple[int, int], list[np.ndarray]] = {}
    for row, example, output in zip(logits.numpy(), batch["example"].tolist(), batch["outputs"].tolist(), strict=True):
        if output >= 0:
            found.setdefault((int(batch["items"][example]), output), []).append(row)
    return {key: np.mean(rows, axis=0) for key, rows in found.items()}


def test_the_losses_are_the_formulas_over_all_ranks_and_micro_batches(case, tokenizer, make_model):
    module = make_module(case, make_model)
    whole = tensors(DistillationBatches(case.examples, tokenizer, orders(), Share(), range(2))[1])
    own, source = of_outputs(module.model, whole), of_outputs(module.teachers[0], whole)
    assert len(own) == int(whole["num_outputs"]) and {item for item, _ in own} == set(whole["items"].tolist())
    a, b = (np.stack([said[key] for key in sorted(own)]) for said in (own, source))
    divergence = np.exp(log_softmax(b / 2)) * (log_softmax(b / 2) - log_softmax(a / 2))
    wanted = {"SoftTargets": 4 * divergence.sum() / len(a), "LogitMSE": ((a - b) ** 2).mean()}
    wanted["HardTargets"] = hard(case, module, whole, own)
    total = 0.5 * wanted["SoftTargets"] + 3 * wanted["HardTargets"] + wanted["LogitMSE"]
    for world_size, accumulation in ((1, 1), (2, 2)):
        module.trainer = SimpleNamespace(world_size=world_size, accumulate_grad_batches=accumulation)
        found, logged = 0.0, dict.fromkeys(wanted, 0.0)
        for rank in range(world_size):
            share = Share(rank, world_size, accumulation)
            batches = DistillationBatches(case.examples, tokenizer, orders(), share, range(2))
            for index in range(accumulation, 2 * accumulation):
                loss = module.training_step(tensors(batches[index]), index)
                found += float(loss.detach()) / world_size / accumulation
                for name, value in module.step_loss.share_terms.pop().items():
                    logged[name] += float(value)
        assert logged == pytest.approx(wanted, rel=1e-5) and found == pytest.approx(total, rel=1e-5)


def hard(case, module, whole, own):
    """Cross-entropy of labelled texts over their number; of labelled words and further pieces, over theirs."""
    known = whole["targets"] != IGNORE_INDEX
    if case.head == "sequence":
        gold = {}
        for example, target in zip(whole["example"][known].tolist(), whole["targets"][known].tolist(), strict=True):
            gold[int(whole["items"][example])] = target
        assert len(gold) == 4
        return -np.mean([log_softmax(own[item, 0][None])[0, target] for item, target in gold.items()])
    with torch.no_grad():
        logits = module.model(Packed.of(whole), whole["positions"])
    targets = whole["targets"][known].numpy()
    return -log_softmax(logits[known].double().numpy())[np.arange(len(targets)), targets].mean()


def test_a_student_with_a_random_field_learns_marginals(tokenizer, make_model):
    """KL(teacher || student) of each word's marginals over all valid sequences; the transitions learn from it."""
    task, others = CrfNerTask(TAGS), [" ".join(words) for words in words_of((3, 5, 1), 4)]
    sentences = [Sentence(("a", "men's", "b"), ("O", "B-p", "I-p"), line=1, document=0)]
    examples = task.encode(sentences, tokenizer, 10) + encode_words(align_text(tokenizer, others), None, TAGS, 10)
    student, teacher = make_model("crf", 3), make_model("crf", 3)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in [*student.head.parameters(), *teacher.parameters()]:
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.4)
    teacher.head.crf.constrain(TAGS)
    losses = WeightedLosses([SoftTargets(temperature=1.0)], sizes_of(student.encoder), sizes_of(teacher.encoder))
    module = ReadyTaskDistillation(student, [teacher], losses, task).eval()
    module.trainer = SimpleNamespace(world_size=1, accumulate_grad_batches=1)
    both = [GlobalOrder(1, 1, seed=0), GlobalOrder(3, 3, seed=0)]
    batch = tensors(DistillationBatches(examples, tokenizer, both, Share(), range(1))[0])
    loss = module.training_step(batch, 0)
    own, source = (marginals_of(model, batch) for model in (student, teacher))
    wanted = sum((p[p > 0] * np.log(p[p > 0] / own[key][p > 0])).sum() for key, p in source.items()) / len(own)
    assert len(own) == int(batch["num_outputs"]) > 9 and wanted > 0.01
    assert float(loss.detach()) == pytest.approx(wanted, rel=1e-4)
    loss.backward()
    assert student.head.crf.transitions.grad.abs().sum() > 1e-4


def marginals_of(model, batch):
    """Probabilities of the labels of each word (item, output), by counting all sequences that IOB2 allows."""
    emissions, crf = of_outputs(model, batch), model.head.crf
    start, moves, end = (one.detach().double().numpy() for one in (crf.start, crf.transitions, crf.end))
    found = {}
    for item in {item for item, _ in emissions}:
        words = sorted(output for one, output in emissions if one == item)
        total = {word: np.zeros(3) for word in words}
        for path in itertools.product(range(3), repeat=len(words)):
            if any(b == 2 and a not in (1, 2) for a, b in itertools.pairwise((0, *path))):
                continue
            steps = sum(moves[a, b] for a, b in itertools.pairwise(path))
            score = start[path[0]] + end[path[-1]] + steps
            score += sum(emissions[item, word][label] for word, label in zip(words, path, strict=True))
            for word, label in zip(words, path, strict=True):
                total[word][label] += np.exp(score)
        found |= {(item, word): values / values.sum() for word, values in total.items()}
    return found
