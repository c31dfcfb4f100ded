"""Every loss against a few lines of NumPy in fp64, its gradient, padding and packing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch

from domainbert.base.choices import choices_of
from domainbert.distillation.attention_config import AttentionKL, AttentionMSE, Relations
from domainbert.distillation.config import LossConfig, Sizes, uniform_pairs
from domainbert.distillation.hidden_config import HiddenCosine, HiddenMSE, PatientCLS
from domainbert.distillation.losses import DistillationLoss, Outputs, TokenPositions
from domainbert.distillation.prediction_config import HardTargets, LogitMSE, SoftTargets
from domainbert.encoders.recording import Projections
from tests.refusals import refused

STUDENT, TEACHER = Sizes(2, 12, 3), Sizes(4, 12, 3)
NARROW, OTHER_HEADS = Sizes(2, 6, 3), Sizes(2, 12, 2)
TEXTS = (5, 2, 4, 3)  # lengths, with [CLS] and [SEP]
PACKED = ((5, 2, 0, 0), (4, 3, 0))  # rows: lengths of segments, 0 is one token of padding
ALONE = ((5,), (2, 0, 0, 0), (4, 0), (3, 0, 0))
CLASSES = 7


class Sides:
    """What student and teacher made of each text, in fp64, as NumPy has it; and the same in rows, as the losses do."""

    def __init__(self, student: Sizes, teacher: Sizes) -> None:
        generator = np.random.default_rng(0)
        self.sizes = student, teacher
        self.hidden, self.attention, self.logits = [], [], []
        for sizes in self.sizes:
            self.hidden.append(
                [[generator.normal(size=(n, sizes.hidden_size)) for n in TEXTS] for _ in range(sizes.num_layers + 1)]
            )
            shape = (3, sizes.num_heads)
            self.attention.append(
                [
                    [generator.normal(size=(*shape, n, sizes.hidden_size // sizes.num_heads)) for n in TEXTS]
                    for _ in range(sizes.num_layers)
                ]
            )
            self.logits.append([generator.normal(size=(n, CLASSES)) * 2 for n in TEXTS])

    def outputs(self, side: int, rows: tuple[tuple[int, ...], ...]) -> Outputs:
        """The tensors of rows; padding holds noise, other noise on the other side, which must not count."""
        hidden = [torch.from_numpy(fill(layer, rows, side)) for layer in self.hidden[side]]
        projections = {}
        for number, layer in enumerate(self.attention[side], start=1):
            parts = [
                torch.from_numpy(fill([text[kind].swapaxes(0, 1) for text in layer], rows, side).swapaxes(1, 2))
                for kind in range(3)
            ]
            projections[number] = Projections(*parts)
        logits = torch.from_numpy(np.concatenate(self.logits[side]))
        return Outputs(hidden, projections, logits, logits)


def fill(texts: list[np.ndarray], rows: tuple[tuple[int, ...], ...], seed: int) -> np.ndarray:
    """Texts (n, ...) one after the other in `rows`, with noise in the padding."""
    noise, left = np.random.default_rng(seed), iter(texts)
    length = max(sum(max(size, 1) for size in row) for row in rows)
    filled = noise.normal(size=(len(rows), length, *texts[0].shape[1:])) * 9
    for row, sizes in enumerate(rows):
        place = 0
        for size in sizes:
            if size:
                filled[row, place : place + size] = next(left)
            place += max(size, 1)
    return filled


def places(rows: tuple[tuple[int, ...], ...]) -> TokenPositions:
    length = max(sum(max(size, 1) for size in row) for row in rows)
    segments, positions = torch.zeros(len(rows), length, dtype=torch.int64), torch.zeros(len(rows), length).long()
    for row, sizes in enumerate(rows):
        place = 0
        for number, size in enumerate((size for size in sizes if size), start=1):
            segments[row, place : place + size] = number
            positions[row, place : place + size] = torch.arange(size)
            place += size
    return TokenPositions(positions, segments)


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)


def kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return (p * (np.log(p) - np.log(q))).sum(axis=-1)


def soft_targets(sides: Sides, config: SoftTargets) -> float:
    t = config.temperature
    return sum(t**2 * kl(softmax(b / t), softmax(a / t)).sum() for a, b in zip(*sides.logits, strict=True))


def logit_mse(sides: Sides, config: LogitMSE) -> float:
    return sum(((a - b) ** 2).mean(axis=1).sum() for a, b in zip(*sides.logits, strict=True))


def cosine(sides: Sides, config: HiddenCosine) -> float:
    pairs = zip(sides.hidden[0][-1], sides.hidden[1][-1], strict=True)
    return sum((1 - (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).sum() for a, b in pairs)


def hidden_mse(sides: Sides, config: HiddenMSE, weights: list[np.ndarray]) -> float:
    total = 0.0
    for index, (own, source) in enumerate([(0, 0), (1, 2), (2, 4)]):
        for a, b in zip(sides.hidden[0][own], sides.hidden[1][source], strict=True):
            projected = a @ weights[index % len(weights)].T if weights else a
            total += ((projected - b) ** 2).mean(axis=1).sum()
    return total


def patient(sides: Sides, config: PatientCLS) -> float:
    total = 0.0
    for a, b in zip(sides.hidden[0][1], sides.hidden[1][2], strict=True):
        total += ((a[0] / np.linalg.norm(a[0]) - b[0] / np.linalg.norm(b[0])) ** 2).sum()
    return total


def attention(text: np.ndarray) -> np.ndarray:
    return text[0] @ text[1].swapaxes(1, 2) / np.sqrt(text.shape[-1])


def attention_mse(sides: Sides, config: AttentionMSE) -> float:
    total = 0.0
    for own, source in ((0, 1), (1, 3)):
        for a, b in zip(sides.attention[0][own], sides.attention[1][source], strict=True):
            total += ((attention(a) - attention(b)) ** 2).mean(axis=0).sum()
    return total


def attention_kl(sides: Sides, config: AttentionKL) -> float:
    pairs = zip(sides.attention[0][-1], sides.attention[1][-1], strict=True)
    return sum(kl(softmax(attention(b)), softmax(attention(a))).mean(axis=0).sum() for a, b in pairs)


def relations(sides: Sides, config: Relations) -> float:
    heads = config.relation_heads or 3

    def relation(text: np.ndarray, kind: int) -> np.ndarray:
        joined = text[kind].swapaxes(0, 1).reshape(text.shape[2], -1)
        parts = np.stack(np.split(joined, heads, axis=1))
        return softmax(parts @ parts.swapaxes(1, 2) / np.sqrt(parts.shape[-1]))

    total = 0.0
    for kind in (["queries", "keys", "values"].index(name) for name in config.relations):
        for a, b in zip(sides.attention[0][-1], sides.attention[1][-1], strict=True):
            total += kl(relation(b, kind), relation(a, kind)).mean(axis=0).sum()
    return total


CASES: list[tuple[LossConfig, Callable, Sizes]] = [
    (SoftTargets(), soft_targets, STUDENT),
    (SoftTargets(temperature=1.0), soft_targets, STUDENT),
    (SoftTargets(temperature=4.0, positions="all"), soft_targets, STUDENT),
    (LogitMSE(), logit_mse, STUDENT),
    (HiddenCosine(), cosine, STUDENT),
    (HiddenMSE(projection="none"), hidden_mse, STUDENT),
    (HiddenMSE(), hidden_mse, NARROW),
    (HiddenMSE(projection="per_layer"), hidden_mse, NARROW),
    (PatientCLS(), patient, STUDENT),
    (AttentionMSE(), attention_mse, STUDENT),
    (AttentionKL(), attention_kl, NARROW),
    (Relations(relations=("values",)), relations, STUDENT),
    (Relations(relation_heads=6), relations, NARROW),
    (Relations(relation_heads=4), relations, OTHER_HEADS),
]


def wanted_of(config: LossConfig, formula: Callable, sides: Sides, loss: DistillationLoss) -> float:
    weights = [parameter.detach().numpy() for parameter in loss.parameters()]
    return formula(sides, config, weights) if formula is hidden_mse else formula(sides, config)


@pytest.mark.parametrize(("config", "formula", "student"), CASES)
def test_value_is_numpys_in_any_layout(config, formula, student):
    sides = Sides(student, TEACHER)
    loss = config.build(student, TEACHER).double()
    wanted = wanted_of(config, formula, sides, loss)
    assert wanted > 0.1
    for rows in (PACKED, ALONE, ((5, 2, 4, 3),)):
        found = loss(sides.outputs(0, rows), sides.outputs(1, rows), places(rows))
        assert float(found) == pytest.approx(wanted, abs=1e-6, rel=1e-9)


@pytest.mark.parametrize(("config", "formula", "student"), CASES)
def test_gradient_is_that_of_differences(config, formula, student):
    """With respect to what the student made and to the loss's own weights; none at padding, none in the teacher."""
    sides = Sides(student, TEACHER)
    loss = config.build(student, TEACHER).double()
    own, source, where = sides.outputs(0, PACKED), sides.outputs(1, PACKED), places(PACKED)
    parts = [*own.hidden, own.logits]
    for projections in own.projections.values():
        parts += [projections.queries, projections.keys, projections.values]
    inputs = [part.requires_grad_() for part in parts]
    own = dataclasses.replace(own, all_logits=own.logits)
    loss(own, source, where).backward()
    used = [tensor for tensor in [*inputs, *loss.parameters()] if tensor.grad is not None]
    assert used and all(parameter.grad is not None for parameter in loss.parameters())
    generator = torch.Generator().manual_seed(0)
    for tensor in used:
        direction = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        analytic = float((tensor.grad * direction).sum())
        with torch.no_grad():
            tensor += 1e-5 * direction
            above = float(loss(own, source, where))
            tensor -= 2e-5 * direction
            below = float(loss(own, source, where))
            tensor += 1e-5 * direction
        assert analytic == pytest.approx((above - below) / 2e-5, rel=1e-6, abs=1e-7)
    for hidden in own.hidden:
        if hidden.grad is not None:
            assert not hidden.grad[~where.real].any()


@pytest.mark.parametrize(("own", "source"), [(1, None), (None, 1), (2, 1), (1, 2), (None, None)])
def test_attention_is_compared_as_far_as_both_see(own, source):
    """Against NumPy, text by text: scores within both windows; a distribution over what each sees, the teacher's
    over what the student sees, too."""
    sides = Sides(STUDENT, TEACHER)

    def seen(size: int, *windows: int | None) -> np.ndarray:
        apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
        return np.all([apart <= (size if window is None else window) for window in windows], axis=0)

    def look(outputs: Outputs, window: int | None) -> Outputs:
        narrow = {n: dataclasses.replace(one, window=window) for n, one in outputs.projections.items()}
        return dataclasses.replace(outputs, projections=narrow)

    mse = divergence = 0.0
    for a, b in zip(sides.attention[0][-1], sides.attention[1][-1], strict=True):
        one, other, both = attention(a), attention(b), seen(a.shape[2], own, source)
        mse += ((one - other) ** 2 * both).mean(axis=0).sum()
        p, q = (softmax(np.where(mask, x, -1e9)) for x, mask in ((other, both), (one, seen(a.shape[2], own))))
        divergence += (
            np.where(p > 0, p * np.log(np.where(p > 0, p, 1) / np.where(q > 0, q, 1)), 0).sum(-1).mean(0).sum()
        )
    for config, wanted in (
        (AttentionMSE(student_layers=[-1], teacher_layers=[-1]), mse),
        (AttentionKL(), divergence),
    ):
        loss = config.build(STUDENT, TEACHER).double()
        for rows in (PACKED, ALONE):
            found = loss(look(sides.outputs(0, rows), own), look(sides.outputs(1, rows), source), places(rows))
            assert float(found) == pytest.approx(wanted, rel=1e-9)


def test_a_student_that_is_its_teacher_has_nothing_to_learn():
    sides = Sides(TEACHER, TEACHER)
    own, where = sides.outputs(1, PACKED), places(PACKED)
    for config, _, _ in CASES:
        if isinstance(config, HiddenMSE) and config.projection != "none":
            continue
        assert float(config.build(TEACHER, TEACHER).double()(own, own, where)) == pytest.approx(0, abs=1e-9)


def test_all_losses_are_tested_and_can_be_named():
    assert set(choices_of(LossConfig)) == {type(config).__name__ for config, _, _ in CASES} | {HardTargets.__name__}
    assert len(choices_of(LossConfig)) == 9


def test_layers_are_mapped_uniformly():
    assert uniform_pairs(Sizes(4, 312, 12), Sizes(12, 768, 12), first=0) == [(0, 0), (1, 3), (2, 6), (3, 9), (4, 12)]
    assert uniform_pairs(Sizes(3, 8, 2), Sizes(4, 8, 2), first=1) == [(1, 1), (2, 3), (3, 4)]
    assert uniform_pairs(Sizes(5, 8, 2), Sizes(2, 8, 2), first=1) == [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2)]
    assert HiddenCosine(student_layers=(0, -1), teacher_layers=(0, -2)).build(STUDENT, TEACHER).pairs == [
        (0, 0),
        (2, 3),
    ]


@pytest.mark.parametrize(
    ("config", "student", "problem", "expected"),
    [
        (HiddenCosine(), NARROW, "the hidden_size is 6 in the student...", "the same size, or HiddenMSE..."),
        (HiddenMSE(projection="none"), NARROW, "the hidden_size is 6 in the student and 12 in the...", "..."),
        (AttentionMSE(), OTHER_HEADS, "the num_attention_heads is 2 in the student...", "the same number..."),
        (Relations(), OTHER_HEADS, "the num_attention_heads is 2 in the student and...", "set relation_heads"),
        (Relations(relation_heads=5), STUDENT, "found relation_heads: 5", "a divisor of the hidden_size of..."),
        (HiddenMSE(student_layers=(1, 2)), STUDENT, "student_layers has length 2 and...", "lists of..."),
        (
            AttentionKL(student_layers=(3,), teacher_layers=(4,)),
            STUDENT,
            "found 3 in student_layers",
            "0 to 2, or -1 for the last...",
        ),
        (
            AttentionKL(student_layers=(0,), teacher_layers=(1,)),
            STUDENT,
            "found layer 0 in student_layers, the embeddings...",
            "...",
        ),
        (
            AttentionKL(student_layers=(1,), teacher_layers=(0,)),
            STUDENT,
            "found layer 0 in teacher_layers, the embeddings...",
            "...",
        ),
    ],
)
def test_what_cannot_be_compared(config, student, problem, expected):
    with refused(problem=problem, expected=expected):
        config.build(student, TEACHER)


def test_weights_and_temperatures_are_positive():
    with refused(where="weight", found="0"):
        HardTargets(weight=0)
    with refused(where="temperature", found="-1.0..."):
        SoftTargets(temperature=-1.0)
