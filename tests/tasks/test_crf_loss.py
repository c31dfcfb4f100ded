"""The loss of a CRF against its formula: every label sequence of every sentence, spelled out in NumPy."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from domainbert.data.batches import GlobalOrder, LabelledBatches, LabelledTrainBatches, Share
from domainbert.data.packing import IGNORE_INDEX
from domainbert.encoders.crf import label_logits
from domainbert.labelled.entities import Sentence
from domainbert.tasks.ner.task import CrfNerTask, NerTask
from tests.ready_made import ReadyFineTuning

LABELS = ("O", "B-cell", "I-cell", "B-part", "I-part")
SENTENCES = [
    (["a", "men's", "b", "rates"], ["O", "B-cell", "I-cell", "B-part"]),
    (["men's"], ["B-part"]),
    (["rates", "a", "men's", "a", "b"], ["B-cell", "I-cell", "I-cell", "O", "B-part"]),
    (["a", "b"], ["O", "O"]),
]


@pytest.fixture
def task(make_model) -> CrfNerTask:
    """With transitions that matter, in fp64."""
    task = CrfNerTask(LABELS)
    task.attach_head(make_model("crf", 5).head)
    task.crf.double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in task.crf.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return task


@pytest.fixture
def examples(task, tokenizer):
    items = [Sentence(tuple(words), tuple(tags), line=1, document=0) for words, tags in SENTENCES]
    return task.encode(items, tokenizer, 9)


def tensors(batch):
    return {name: torch.from_numpy(np.asarray(value)) for name, value in batch.items()}


def follows(label: str, before: str | None) -> bool:
    return not label.startswith("I-") or (before is not None and before[1:] == label[1:])


def negative_log_likelihood(crf, words: np.ndarray, gold: list[int]) -> float:
    """Of a sentence (words, labels): the log of the sum over all sequences that IOB2 allows, less the score of one."""
    start, end, moves = (one.detach().numpy() for one in (crf.start, crf.end, crf.transitions))
    scores = {}
    for path in itertools.product(range(len(LABELS)), repeat=len(words)):
        names = [None, *(LABELS[label] for label in path)]
        if all(follows(label, before) for before, label in itertools.pairwise(names)):
            moved = sum(moves[a, b] for a, b in itertools.pairwise(path))
            emitted = sum(words[place, label] for place, label in enumerate(path))
            scores[path] = start[path[0]] + emitted + moved + end[path[-1]]
    return float(np.log(np.exp(list(scores.values())).sum()) - scores[tuple(gold)])


def formula(crf, batch, logits: np.ndarray) -> float:
    """Summed over the batch: sentences by the field, pieces that go on with a word by cross-entropy."""
    example, outputs, targets = (batch[name].numpy() for name in ("example", "outputs", "targets"))
    total = 0.0
    for number in np.unique(example):
        places = [
            place for place in np.flatnonzero((example == number) & (outputs >= 0)) if targets[place] != IGNORE_INDEX
        ]
        places.sort(key=lambda place: outputs[place])
        if places:
            total += negative_log_likelihood(crf, logits[places], targets[places].tolist())
    for place in np.flatnonzero((outputs < 0) & (targets != IGNORE_INDEX)):
        total += np.log(np.exp(logits[place]).sum()) - logits[place, targets[place]]
    return total


@pytest.mark.parametrize("ignored", [False, True])
def test_the_loss_is_the_formula(task, examples, tokenizer, ignored):
    """Sentences of 4, 1, 5 and 2 words in one batch and several windows; also beside a sentence without labels."""
    (batch,) = (tensors(one) for one in LabelledBatches(examples, tokenizer, 10_000, Share()))
    assert max(len(example.windows) for example in examples) > 1
    assert sorted(batch["outputs"].tolist()).count(-1) == 6, "two further pieces of each of three words"
    if ignored:
        own = batch["items"][batch["example"]] == 2
        batch["targets"] = batch["targets"].masked_fill(own, IGNORE_INDEX)
    logits = torch.randn(len(batch["positions"]), 5, generator=torch.Generator().manual_seed(1), requires_grad=True)
    found = task.loss(logits, batch) / 7
    assert float(found.detach()) == pytest.approx(formula(task.crf, batch, logits.detach().numpy()) / 7, rel=1e-5)
    (gradient,) = torch.autograd.grad(found, logits)
    assert (gradient[batch["targets"] == IGNORE_INDEX] == 0).all() and (
        gradient[batch["targets"] != IGNORE_INDEX] != 0
    ).any()


def test_it_is_a_mean_over_the_global_batch(task, examples, tokenizer):
    """Words and further pieces count, over all ranks and micro-batches: 12 words and 6 pieces."""
    order, total = GlobalOrder(len(examples), 4, seed=0), 0.0
    wanted = 0.0
    for rank in range(2):
        batches = LabelledTrainBatches(examples, tokenizer, order, Share(rank, 2, 2), range(1))
        for index in range(2):
            batch = tensors(batches[index])
            logits = torch.randn(len(batch["positions"]), 5, generator=torch.Generator().manual_seed(3 * rank + index))
            total += float(task.loss(logits, batch).detach()) / float(batch[task.loss_divisor])
            wanted += formula(task.crf, batch, logits.numpy())
    assert total == pytest.approx(wanted / 18, rel=1e-5)


def test_a_batch_without_labels_has_no_loss(task, examples, tokenizer):
    (batch,) = (tensors(one) for one in LabelledBatches(examples, tokenizer, 10_000, Share()))
    logits = torch.randn(len(batch["positions"]), 5, requires_grad=True)
    loss = task.loss(logits, batch | {"num_targets": 1, "targets": torch.full_like(batch["targets"], IGNORE_INDEX)})
    assert float(loss.detach()) == 0.0


def test_sentences_without_words_have_no_loss(task, make_model, tokenizer):
    """Alone in a batch of training or validation; their global batch has no targets."""
    examples = task.encode([Sentence([], [], line=1, document=0)] * 2, tokenizer, 9)
    training = LabelledTrainBatches(examples, tokenizer, GlobalOrder(2, 1, seed=0), Share(), range(1))
    for batches in (training, LabelledBatches(examples, tokenizer, 10_000, Share())):
        loss = task.loss(torch.zeros(0, 5), tensors(batches[0]))
        assert float(loss.detach()) == 0.0 and loss.requires_grad
    for head, kind in (("tokens", NerTask), ("crf", CrfNerTask)):
        module = ReadyFineTuning(make_model(head, 5), kind(LABELS))
        module._trainer = SimpleNamespace(world_size=1, accumulate_grad_batches=1)
        assert float(module.training_step(tensors(training[0]) | {"num_targets": 0}, 0).detach()) == 0.0


def test_marginals_are_finite_and_0_behind_the_end(task):
    """Also for labels that no sequence has: a teacher's logits are marginals, whose differences must be finite."""
    emissions, lengths = torch.randn(3, 5, 5, generator=torch.Generator().manual_seed(2)), torch.tensor([5, 1, 3])
    found = task.crf.log_marginals(emissions, lengths)
    inside = torch.arange(5) < lengths[:, None]
    assert found.isfinite().all() and (found[~inside] == 0).all()
    torch.testing.assert_close(found[inside].exp().sum(dim=1), torch.ones(9), atol=1e-5, rtol=0)
    assert (found[:, 0, [2, 4]] < -20).all(), "no sentence begins with I-"


def test_a_teacher_in_half_precision_has_its_marginals_in_full(make_model, examples, tokenizer):
    (batch,) = (tensors(one) for one in LabelledBatches(examples, tokenizer, 10_000, Share()))
    head = make_model("crf", 5).head
    logits = torch.randn(len(batch["positions"]), 5, generator=torch.Generator().manual_seed(3)).bfloat16()
    found = label_logits(head, logits, batch["example"], batch["outputs"])
    assert found.dtype == torch.float32
    assert torch.equal(found, label_logits(head, logits.float(), batch["example"], batch["outputs"]))
    others = batch["outputs"] < 0
    assert torch.equal(found[others], logits[others].float()) and not torch.equal(
        found[~others], logits[~others].float()
    )
    assert label_logits(head, logits, batch["example"], torch.full_like(batch["outputs"], -1)) is logits
    plain = make_model("tokens", 5).head
    assert label_logits(plain, logits, batch["example"], batch["outputs"]) is logits


def test_a_linear_teacher_of_a_crf_says_nothing_of_what_the_crf_forbids(task, make_model, examples, tokenizer):
    """Its logits are the marginals of its logits over valid tags, so that a student can come to agree."""
    (batch,) = (tensors(one) for one in LabelledBatches(examples, tokenizer, 10_000, Share()))
    words = batch["outputs"] >= 0
    sizes = torch.tensor([4, 1, 5, 2])
    starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)[:-1]])
    index = torch.where(words, starts[batch["items"][batch["example"]]] + batch["outputs"], -1)
    batch |= {"output_index": index, "num_outputs_here": 12}
    logits = torch.randn(len(words), 5, generator=torch.Generator().manual_seed(5))
    free = CrfNerTask(LABELS)
    free.attach_head(make_model("crf", 5).head)  # transitions of 0, except for the forbidden ones
    teacher = free.distillation_targets.teacher_logits(free, make_model("tokens", 5).head, logits, batch)
    linear = NerTask.distillation_targets.teacher_logits(NerTask(LABELS), make_model("tokens", 5).head, logits, batch)
    with_crf = free.distillation_targets.teacher_logits(
        free, type("Head", (torch.nn.Module,), {"crf": free.crf})(), logits, batch
    )
    torch.testing.assert_close(teacher, with_crf)
    assert not torch.allclose(teacher.softmax(1), linear.softmax(1), atol=1e-2)
    assert (teacher.softmax(1)[starts][:, [2, 4]] == 0).all() and (linear.softmax(1)[starts][:, [2, 4]] > 0.001).all()


def test_fine_tuning_binds_the_head_and_keeps_its_table_of_entries_out_of_checkpoints(make_model, examples, tokenizer):
    """A model that has the embeddings of some entries alone reads them where they are."""
    model = make_model("crf", 5)
    module = ReadyFineTuning(model, CrfNerTask(LABELS)).eval()
    (batch,) = (tensors(one) for one in LabelledBatches(examples, tokenizer, 10_000, Share()))
    with torch.no_grad():
        wanted, names = module(batch), list(module.state_dict())
        module.exclude_unused_embeddings(torch.unique(batch["input_ids"]))
        assert module.entries.num_excluded > 0 and torch.equal(module(batch), wanted)
    assert module.task.crf is model.head.crf and list(module.state_dict()) == names


def test_a_sentence_of_one_word_alone_has_marginals_too(make_model, examples, tokenizer):
    (batch,) = (tensors(one) for one in LabelledBatches(examples[1:2], tokenizer, 10_000, Share()))
    assert batch["outputs"].tolist() == [0, -1, -1]
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(4))
    found = label_logits(make_model("crf", 5).head, logits, batch["example"], batch["outputs"])
    assert float(found[0].exp().sum()) == pytest.approx(1.0, abs=1e-5) and torch.equal(found[1:], logits[1:])
