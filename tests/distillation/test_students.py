from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from domainbert.distillation.student_config import StudentConfig
from domainbert.distillation.students import build_student, principal_directions, student_config
from domainbert.encoders.albert.config import AlbertConfig
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.distilbert.config import DistilBertConfig
from domainbert.encoders.electra.config import ElectraConfig
from domainbert.encoders.families import build_model, config_class, family_names
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed
from domainbert.encoders.roberta.config import RobertaConfig
from tests.refusals import refused

TEACHER = BertConfig(24, 4, 3, 40, max_position_embeddings=16, hidden_dropout_prob=0.0, initializer_range=0.3)
VOCABULARY = 60
LIKE_BERT = ["bert", "distilbert", "roberta", "xlm-roberta"]
"""Families that compute what BERT does, from the same weights."""


def make_teacher(config=TEACHER, head="masked_lm") -> EncoderWithHead:
    torch.manual_seed(0)
    return build_model(config, VocabularyFacts(VOCABULARY, 0), head, 5).eval()


def make_student(student: StudentConfig, teacher: EncoderWithHead, vocab_size=VOCABULARY, head="masked_lm"):
    torch.manual_seed(1)
    config = student_config(student, TEACHER)
    model, taken = build_student(config, student, teacher, head, 5, VocabularyFacts(vocab_size, 0))
    return config, model.eval(), taken


def logits(model: EncoderWithHead) -> torch.Tensor:
    ids = torch.arange(10).view(1, 10) * 5 % VOCABULARY
    return model(Packed(ids, torch.arange(10).view(1, 10), torch.ones_like(ids)), torch.arange(10))


@pytest.mark.parametrize("family_name", LIKE_BERT)
@pytest.mark.parametrize("head", ["masked_lm", "tokens"])
def test_all_layers_make_the_teacher_again(family_name, head):
    """A student of every layer is its teacher, also where the family has no token types."""
    teacher = make_teacher(head=head)
    config, model, taken = make_student(StudentConfig(family=family_name), teacher, head=head)
    assert config.model_type == family_name and taken == ["embeddings", "layers 0, 1, 2, 3", "head"]
    torch.testing.assert_close(logits(model), logits(teacher), atol=1e-5, rtol=0)


@pytest.mark.parametrize("pad_id", [0, 1])
@pytest.mark.parametrize("family_name", LIKE_BERT)
def test_a_teacher_whose_positions_begin_further_on_has_students_of_every_family(family_name, pad_id):
    teacher_config = RobertaConfig(24, 4, 3, 40, max_position_embeddings=18, type_vocab_size=1, initializer_range=0.3)
    torch.manual_seed(0)
    vocabulary = VocabularyFacts(VOCABULARY, pad_id)
    teacher = build_model(teacher_config, vocabulary, "masked_lm").eval()
    student = StudentConfig(family=family_name)
    config = student_config(student, teacher_config)
    model, taken = build_student(config, student, teacher, "masked_lm", 0, vocabulary)
    assert config.max_length == 16 and taken == ["embeddings", "layers 0, 1, 2, 3", "head"]
    torch.testing.assert_close(logits(model.eval()), logits(teacher), atol=1e-4, rtol=0)  # layer_norm_eps may differ


@pytest.mark.parametrize(
    ("family_name", "taken"),
    [
        ("albert", ["head"]),  # embeddings of width 128, and one layer that cannot start from four
        ("electra", ["layers 0, 1, 2, 3", "head"]),
        ("mpnet", ["embeddings", "layers 0, 1, 2, 3", "head"]),  # its bias starts at random
    ],
)
def test_what_another_family_takes_of_bert(family_name, taken):
    config = student_config(StudentConfig(family=family_name), TEACHER)
    teacher = make_teacher(head="tokens")
    found = build_student(config, StudentConfig(), teacher, "tokens", 5, VocabularyFacts(VOCABULARY, 1))[1]
    assert config.model_type == family_name and found == taken


RELATIVE = {
    "relative_attention": True,
    "pos_att_type": "c2p|p2c",
    "position_buckets": 8,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
}


@pytest.mark.parametrize(
    ("family_name", "changes"),
    [
        *((name, {}) for name in family_names()),
        ("deberta-v2", RELATIVE | {"share_att_key": True}),  # as version 3 is published
        ("deberta-v2", RELATIVE | {"conv_kernel_size": 3, "embedding_size": 16}),
        ("electra", {"embedding_size": 16}),
        ("modernbert", {"norm_bias": True, "mlp_bias": True, "local_attention": 4}),
    ],
)
def test_a_student_of_every_layer_of_its_own_family_is_its_teacher(family_name, changes):
    config = config_class(family_name)().resized(TEACHER.sizes).replaced(initializer_range=0.3, **changes)
    torch.manual_seed(0)
    vocabulary = VocabularyFacts(VOCABULARY, 1)
    teacher = build_model(config, vocabulary, "masked_lm").eval()
    own, taken = build_student(config, StudentConfig(), teacher, "masked_lm", 0, vocabulary)
    assert student_config(StudentConfig(), config) == config
    assert taken == ["embeddings", "layers 0, 1, 2, 3", "head"]
    assert torch.equal(logits(own.eval()), logits(teacher))


@pytest.mark.parametrize(
    ("of", "head", "family_name", "taken"),
    [
        ("sequence", "sequence", "bert", True),
        ("sequence", "sequence", "distilbert", False),  # tanh there, ReLU here
        ("crf", "tokens", "bert", True),
        ("tokens", "crf", "bert", True),
        ("tokens", "sequence", "bert", False),
    ],
)
def test_a_head_is_taken_where_it_means_the_same(of, head, family_name, taken):
    teacher = make_teacher(head=of)
    _, model, what = make_student(StudentConfig(family=family_name), teacher, head=head)
    assert ("head" in what) == taken
    if taken:
        torch.testing.assert_close(logits(model), logits(teacher), atol=1e-5, rtol=0)


def test_layers_with_another_number_of_heads_are_not_taken():
    config = dataclasses.replace(TEACHER, num_attention_heads=6)
    assert make_student(StudentConfig(encoder=config), make_teacher())[2] == ["embeddings", "head"]


@pytest.mark.parametrize(
    ("student", "layers"),
    [
        (StudentConfig(layers=(0, 3)), (0, 3)),
        (StudentConfig(every_nth_layer=2), (0, 2)),
        (StudentConfig(every_nth_layer=3), (0, 3)),
        (StudentConfig(first_layers=3), (0, 1, 2)),
        (StudentConfig(encoder=dataclasses.replace(TEACHER, num_hidden_layers=1), layers=(2,)), (2,)),
    ],
)
def test_chosen_layers(student, layers):
    teacher = make_teacher()
    config, model, taken = make_student(student, teacher)
    assert config.sizes.num_layers == len(model.encoder.blocks()) == len(layers)
    assert taken == ["embeddings", f"layers {', '.join(map(str, layers))}", "head"]
    for own, source in zip(model.encoder.blocks(), layers, strict=True):
        for name, tensor in own.state_dict().items():
            assert torch.equal(tensor, teacher.encoder.blocks()[source].state_dict()[name])


CONVOLVED = config_class("deberta-v2")().resized(TEACHER.sizes).replaced(**RELATIVE, conv_kernel_size=3)


def test_the_layers_chosen_of_a_teacher_with_a_convolution_are_taken():
    student, teacher = StudentConfig(every_nth_layer=2), make_teacher(CONVOLVED)
    config = student_config(student, CONVOLVED)
    model, taken = build_student(config, student, teacher, "masked_lm", 0, VocabularyFacts(VOCABULARY, 0))
    assert taken == ["embeddings", "layers 0, 2", "head"]
    assert torch.equal(model.encoder.layers[0].conv.weight, teacher.encoder.layers[0].conv.weight)


SHARED = AlbertConfig(24, 4, 3, 40, embedding_size=8, max_position_embeddings=16, initializer_range=0.3)
GROUPED = dataclasses.replace(SHARED, num_hidden_groups=2)  # layers 0 and 1 share their weights, and 2 and 3
APART = dataclasses.replace(SHARED, num_hidden_groups=4)


@pytest.mark.parametrize(("config", "groups"), [(GROUPED, [0, 1]), (APART, [0, 2])])
def test_layers_with_weights_of_their_own_are_chosen(config, groups):
    teacher, student = make_teacher(config), StudentConfig(every_nth_layer=2)
    chosen = student_config(student, config)
    model, taken = build_student(chosen, student, teacher, "masked_lm", 0, VocabularyFacts(VOCABULARY, 0))
    assert (chosen.num_hidden_layers, chosen.num_hidden_groups) == (2, 2)
    assert taken == ["embeddings", "layers 0, 2", "head"]
    assert torch.equal(model.encoder.embeddings.project.weight, teacher.encoder.embeddings.project.weight)
    for own, group in zip(model.encoder.layers, groups, strict=True):
        wanted = teacher.encoder.layers[group].state_dict()
        assert all(torch.equal(tensor, wanted[name]) for name, tensor in own.state_dict().items())


@pytest.mark.parametrize(
    ("student", "teacher", "found"),
    [
        (
            StudentConfig(every_nth_layer=2),
            SHARED,
            "2 selected layers, but 'albert' has separate weights for only 1 of them",
        ),
        (
            StudentConfig(first_layers=3),
            GROUPED,
            "3 selected layers, but 'albert' has separate weights for only 2 of them",
        ),
        (
            StudentConfig(every_nth_layer=2, family="albert"),
            TEACHER,
            "2 selected layers, but 'albert' has separate weights for only 1 of them",
        ),
    ],
)
def test_layers_that_share_their_weights_cannot_be_chosen(student, teacher, found):
    expected = "layers with separate weights, or neither layers, every_nth_layer nor first_layers"
    with refused(where="student", found=found, expected=expected):
        student_config(student, teacher)


def test_the_same_weights_may_be_used_less_often():
    student = StudentConfig(encoder=dataclasses.replace(SHARED, num_hidden_layers=2))
    teacher = make_teacher(SHARED)
    config = student_config(student, SHARED)
    model, taken = build_student(config, student, teacher, "masked_lm", 0, VocabularyFacts(VOCABULARY, 0))
    assert taken == ["embeddings", "layers 0", "head"] and model.encoder.num_hidden_layers == 2
    state = teacher.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_layers_that_are_shared_no_longer_start_from_the_same():
    """A BERT of the layers that an ALBERT uses over and over."""
    teacher, student = make_teacher(SHARED), StudentConfig(family="bert")
    config = student_config(student, SHARED)
    model, taken = build_student(config, student, teacher, "tokens", 5, VocabularyFacts(VOCABULARY, 0))
    assert taken == ["layers 0, 1, 2, 3"] and config.model_type == "bert"
    wanted = teacher.encoder.layers[0].state_dict()
    for own in model.encoder.blocks():
        assert all(torch.equal(tensor, wanted[name]) for name, tensor in own.state_dict().items())


def test_embeddings_alone_may_be_narrower():
    """The hidden states are as wide as the teacher's: layers are taken, too."""
    encoder = ElectraConfig(24, 4, 3, 40, embedding_size=6, max_position_embeddings=16)
    student, teacher = StudentConfig(encoder=encoder), make_teacher(head="tokens")
    _, taken = build_student(encoder, student, teacher, "tokens", 5, VocabularyFacts(VOCABULARY, 0))
    assert taken == ["embeddings along 6 principal directions", "layers 0, 1, 2, 3", "head"]


def test_a_random_student_takes_nothing():
    teacher = make_teacher()
    _, model, taken = make_student(StudentConfig(first_layers=2, init="random"), teacher)
    assert taken == []
    assert not torch.equal(model.encoder.input_embeddings.weight, teacher.encoder.input_embeddings.weight)


@pytest.mark.parametrize("narrow", ["pca", "svd"])
def test_a_narrow_student_has_the_principal_directions(narrow):
    """Against NumPy's SVD: the same subspace, and products between entries that are the best of their rank."""
    teacher = make_teacher()
    encoder = DistilBertConfig(dim=8, n_layers=2, n_heads=2, hidden_dim=16, max_position_embeddings=20)
    _, model, taken = make_student(StudentConfig(encoder=encoder, embedding_projection=narrow), teacher)
    assert taken == ["embeddings along 8 principal directions"]
    words = teacher.encoder.input_embeddings.weight.detach().double().numpy()
    _, _, right = np.linalg.svd(words - (words.mean(axis=0) if narrow == "pca" else 0))
    wanted = words @ right[:8].T
    found = model.encoder.input_embeddings.weight.detach().double().numpy()
    np.testing.assert_allclose(np.abs(found), np.abs(wanted), atol=1e-5)
    positions = teacher.encoder.embeddings.position.weight + teacher.encoder.embeddings.token_type.weight[0]
    own = model.encoder.embeddings.position.weight[:16].detach().double().numpy()
    np.testing.assert_allclose(np.abs(own), np.abs(positions.detach().double().numpy() @ right[:8].T), atol=1e-5)


def test_directions_have_a_sign():
    rows = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    directions = principal_directions(rows, 3, centred=True)
    assert (directions.gather(0, directions.abs().argmax(0, keepdim=True)) > 0).all()
    torch.testing.assert_close(directions.T @ directions, torch.eye(3), atol=1e-5, rtol=0)


def test_another_vocabulary_leaves_words_and_head_alone():
    teacher = make_teacher()
    _, model, taken = make_student(StudentConfig(first_layers=2), teacher, vocab_size=33)
    assert taken == ["position embeddings", "layers 0, 1"]
    assert model.encoder.input_embeddings.num_embeddings == 33


def student_of(teacher=TEACHER, **settings):
    return student_config(StudentConfig(**settings), teacher)


@pytest.mark.parametrize(
    ("make", "where", "problem", "expected"),
    [
        (
            lambda: StudentConfig(every_nth_layer=2, first_layers=1),
            "first_layers",
            "found next to...",
            "only one of...",
        ),
        (lambda: StudentConfig(encoder=TEACHER, family="bert"), "family", "found next to encoder...", "..."),
        (lambda: StudentConfig(family="brt"), "family", "found 'brt'", "one of albert, bert..."),
        (lambda: StudentConfig(first_layers=0), "first_layers", "found 0", "an integer from 1 to 1,000..."),
        (lambda: StudentConfig(layers=()), "layers", "found ()", "a list of one or more items..."),
        (lambda: student_of(layers=(0, 4)), "student.layers", "found 4", "layers from 0 to 3"),
        (lambda: student_of(first_layers=6), "student.first_layers", "found 6", "at most 4, the layers of the teacher"),
        (lambda: StudentConfig(layers=(3, 3)), "layers", "found [3, 3]", "each layer once"),
        (
            lambda: student_of(CONVOLVED, layers=(1, 3)),
            "student.layers",
            "found 1, 3",
            "...only layer 0 has a convolution",
        ),
        (
            lambda: student_of(encoder=TEACHER, first_layers=2),
            "...",
            "...selected layers ... is 2",
            "4, as in student.encoder",
        ),
    ],
)
def test_what_makes_no_student(make, where, problem, expected):
    with refused(where=where, problem=problem, expected=expected):
        make()
