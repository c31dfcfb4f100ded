"""Students: smaller encoders that start from what fits of their teacher."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn

from domainbert.base.errors import DomainbertError
from domainbert.distillation.student_config import StudentConfig
from domainbert.encoders.base import Encoder
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import EncoderConfig
from domainbert.encoders.distilbert.config import DistilBertConfig
from domainbert.encoders.families import family
from domainbert.encoders.heads import EncoderWithHead, build_head


def student_config(student: StudentConfig, teacher: EncoderConfig) -> EncoderConfig:
    """The architecture of a student.

    Raises:
        DomainbertError: the layers chosen are not those of the teacher, or not as many as the encoder has; or the
            teacher's family cannot be turned into the one that is asked for.
    """
    sizes = as_bert(teacher)
    layers = student.chosen_layers(sizes.num_hidden_layers)
    if student.encoder is not None:
        wanted = as_bert(student.encoder).num_hidden_layers
        if layers is not None and len(layers) != wanted:
            raise DomainbertError(f"student.layers: {len(layers)} are chosen; the student's encoder has {wanted}")
        return student.encoder
    count = sizes.num_hidden_layers if layers is None else len(layers)
    if (student.family or teacher.model_type) == "distilbert":
        return DistilBertConfig.of_bert(dataclasses.replace(sizes, num_hidden_layers=count))
    return dataclasses.replace(sizes, num_hidden_layers=count)


def as_bert(config: EncoderConfig) -> BertConfig:
    """The sizes of an encoder under BERT's names.

    Raises:
        DomainbertError: a family whose layers are not BERT's.
    """
    if isinstance(config, BertConfig):
        return config
    if isinstance(config, DistilBertConfig):
        return config.as_bert
    raise DomainbertError(f"student: no students of or from a {config.model_type}; expected bert or distilbert")


def build_student(
    config: EncoderConfig, student: StudentConfig, teacher: EncoderWithHead, head: str, num_labels: int, vocab_size: int
) -> tuple[EncoderWithHead, list[str]]:
    """A student with a head, started from its teacher as far as the shapes allow.

    Of equal width: embeddings (token types, which are always the first here, join the positions of a family without
    them, so that nothing changes), the layers chosen, and the head. Of smaller width: embeddings along the teacher's
    principal directions (Mukherjee and Awadallah 2020, XtremeDistil, arXiv:2004.05686, section 3.2).

    Args:
        config: from `student_config`.
        student: what is taken over.
        teacher: the teacher, with a head of the same kind.
        head: one of `encoders.base.HEADS`.
        num_labels: outputs of a task's head.
        vocab_size: entries of the student's vocabulary; nothing is copied to embeddings of another size.

    Returns:
        The student, and what was taken over, in words.
    """
    encoder = family(config).build_encoder(config, vocab_size)
    model = EncoderWithHead(encoder, build_head(head, encoder, num_labels))
    if student.init == "random":
        return model, []
    taken: list[str] = []
    same_vocabulary = vocab_size == teacher.encoder.input_embeddings.num_embeddings
    with torch.no_grad():
        if encoder.hidden_size == teacher.encoder.hidden_size:
            taken += _copy_embeddings(encoder, teacher.encoder, same_vocabulary)
            taken += _copy_layers(encoder, teacher.encoder, student)
            taken += _copy_head(model.head, teacher.head, same_vocabulary)
        elif student.narrow != "random" and encoder.hidden_size < teacher.encoder.hidden_size and same_vocabulary:
            taken += _narrow_embeddings(encoder, teacher.encoder, student.narrow == "pca")
    return model, taken


def _tables(encoder: Encoder) -> tuple[Tensor, Tensor, Tensor | None]:
    """Word, position and token-type embeddings; the last are None where there are none."""
    state = dict(encoder.named_parameters())
    types = state.get("embeddings.token_type.weight")
    return state["embeddings.word.weight"], state["embeddings.position.weight"], types


def _put_tables(encoder: Encoder, word: Tensor | None, position: Tensor, types: Tensor | None) -> None:
    """Fill the embeddings; a sequence of positions that is shorter takes the first, a longer one keeps its own rest."""
    own_word, own_position, own_types = _tables(encoder)
    if word is not None:
        own_word.copy_(word)
    count = min(len(own_position), len(position))
    first = types[0] if types is not None else torch.zeros_like(position[0])
    own_position[:count] = position[:count] + (first if own_types is None else 0)
    if own_types is not None:
        own_types.zero_()
        for number, row in enumerate(types[: len(own_types)] if types is not None else []):
            own_types[number] = row


def _copy_embeddings(encoder: Encoder, teacher: Encoder, same_vocabulary: bool) -> list[str]:
    word, position, types = _tables(teacher)
    _put_tables(encoder, word if same_vocabulary else None, position, types)
    _part(encoder, "embeddings.norm").load_state_dict(_part(teacher, "embeddings.norm").state_dict())
    return ["embeddings" if same_vocabulary else "position embeddings"]


def _copy_layers(encoder: Encoder, teacher: Encoder, student: StudentConfig) -> list[str]:
    chosen = student.chosen_layers(teacher.num_hidden_layers)
    if chosen is None and encoder.num_hidden_layers == teacher.num_hidden_layers:
        chosen = tuple(range(teacher.num_hidden_layers))
    if chosen is None:
        return []
    for own, source in zip(encoder.blocks(), (teacher.blocks()[number] for number in chosen), strict=True):
        shapes = [tensor.shape for tensor in source.state_dict().values()]
        same_heads = encoder.num_heads == teacher.num_heads
        if shapes != [tensor.shape for tensor in own.state_dict().values()] or not same_heads:
            return []
        own.load_state_dict(source.state_dict())
    return [f"layers {', '.join(map(str, chosen))}"]


def _copy_head(head: nn.Module, teacher: nn.Module, same_vocabulary: bool) -> list[str]:
    """A random field is taken where both have one; without one, its emissions are a linear head's logits."""
    own, source = head.state_dict(), teacher.state_dict()
    fits = {name for name in own if name in source and own[name].shape == source[name].shape}
    same_activation = getattr(head, "activation", None) is getattr(teacher, "activation", None)
    whole = fits >= {name for name in own if not name.startswith("crf.")}
    if not whole or not same_activation or not (same_vocabulary or "bias" not in own):
        return []
    head.load_state_dict({name: source[name] for name in fits}, strict=False)
    return ["head"]


def _narrow_embeddings(encoder: Encoder, teacher: Encoder, centred: bool) -> list[str]:
    word, position, types = _tables(teacher)
    directions = principal_directions(word, encoder.hidden_size, centred)
    _put_tables(encoder, word @ directions, position @ directions, None if types is None else types @ directions)
    return [f"embeddings along {encoder.hidden_size} principal directions"]


def principal_directions(rows: Tensor, count: int, centred: bool) -> Tensor:
    """The directions (H, count) along which `rows` (N, H) vary most about their mean, or are longest (`centred` off).

    Eigenvectors of the H x H matrix of second moments, the largest eigenvalue first; each points to where its largest
    element is positive, so that the result does not depend on the library.
    """
    exact = rows.double()
    exact = exact - exact.mean(dim=0) if centred else exact
    vectors = torch.linalg.eigh(exact.T @ exact).eigenvectors.flip(-1)[:, :count]
    largest = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    return (vectors * largest.sign()).to(rows.dtype)


def _part(encoder: Encoder, name: str) -> nn.Module:
    return encoder.get_submodule(name)
