"""Students: smaller encoders that start from what fits of their teacher."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from domainbert.base.errors import DomainbertError
from domainbert.distillation.student_config import StudentConfig
from domainbert.encoders.base import Encoder
from domainbert.encoders.config import EncoderConfig, VocabularyFacts
from domainbert.encoders.families import build_model, config_class
from domainbert.encoders.head_config import HeadConfig
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.post_norm import Embeddings


def student_config(student: StudentConfig, teacher: EncoderConfig) -> EncoderConfig:
    """The architecture of a student; `DomainbertError` if the layers chosen are not the teacher's, or not as many, or
    share weights in one of the two."""
    sizes = teacher.sizes
    layers = student.chosen_layers(sizes.num_layers)
    if student.encoder is not None:
        config = student.encoder
        if layers is not None and len(layers) != config.sizes.num_layers:
            wanted = config.sizes.num_layers
            raise DomainbertError(
                f"student.layers: found {len(layers)} layers; expected {wanted}, as in student.encoder"
            )
    elif student.family in (None, teacher.model_type):
        config = teacher if layers is None else teacher.of_layers(layers)
    else:
        count = sizes.num_layers if layers is None else len(layers)
        config = config_class(str(student.family))().resized(dataclasses.replace(sizes, num_layers=count))
    if layers is not None:
        _check_weights(teacher, layers)
        _check_weights(config, range(len(layers)))
    return config


def _check_weights(config: EncoderConfig, layers: Sequence[int]) -> None:
    weights = [config.layer_weights[number] for number in layers]
    if len(set(weights)) < len(weights):
        raise DomainbertError(
            f"student.layers: found {len(weights)} layers, but {config.model_type} has separate weights for only "
            f"{len(set(weights))} of them; expected layers with separate weights, or none of layers, every, first"
        )


def build_student(
    config: EncoderConfig,
    student: StudentConfig,
    teacher: EncoderWithHead,
    head: HeadConfig | str,
    num_labels: int,
    vocabulary: VocabularyFacts,
) -> tuple[EncoderWithHead, list[str]]:
    """A student with a head, started from its teacher as far as the shapes allow; and what was taken over, in words.

    Embeddings of equal width as they are (token types, which are always the first here, join the positions of a family
    without them, so that nothing changes), narrower ones along the teacher's principal directions (Mukherjee and
    Awadallah 2020, XtremeDistil, arXiv:2004.05686, section 3.2). Where the hidden states are of equal width, the layers
    chosen, what stands beside layers and embeddings, and the head.

    Args:
        config: from `student_config`.
        student: what is taken over.
        teacher: with a head of the same kind.
        head, num_labels: see `encoders.families.build_model`.
        vocabulary: the student's; nothing is copied to embeddings of another size.
    """
    model = build_model(config, vocabulary, head, num_labels)
    encoder = model.encoder
    if student.init == "random":
        return model, []
    taken: list[str] = []
    same_vocabulary = vocabulary.size == teacher.encoder.input_embeddings.num_embeddings
    with torch.no_grad():
        width, of_teacher = (one.input_embeddings.embedding_dim for one in (encoder, teacher.encoder))
        if width == of_teacher:
            taken += _copy_embeddings(encoder, teacher.encoder, same_vocabulary)
        elif student.narrow != "random" and width < of_teacher and same_vocabulary:
            taken += _narrow_embeddings(encoder, teacher.encoder, student.narrow == "pca")
        if encoder.hidden_size == teacher.encoder.hidden_size:
            _copy_rest(encoder, teacher.encoder)
            taken += _copy_layers(encoder, teacher.encoder, student)
            taken += _copy_head(model.head, teacher.head, same_vocabulary)
    return model, taken


def _put_tables(encoder: Encoder, teacher: Encoder, directions: Tensor | None = None) -> bool:
    """Fill positions and token types, if both have `Embeddings`: else only word embeddings are taken over.

    Fewer positions than the teacher's take the first, more keep their own rest.
    """
    own, source = (next((m for m in one.modules() if isinstance(m, Embeddings)), None) for one in (encoder, teacher))
    if own is None or source is None:
        return False
    own_position, position = (one.position.weight[one.first_position :] for one in (own, source))
    types = torch.zeros_like(position[:1]) if source.token_type is None else source.token_type.weight
    if directions is not None:
        position, types = position @ directions, types @ directions
    count = min(len(own_position), len(position))
    own_position[:count] = position[:count] + (types[0] if own.token_type is None else 0)
    if own.token_type is not None:
        own_types = own.token_type.weight.zero_()
        own_types[: len(types)] = types[: len(own_types)]
    if directions is None:
        own.norm.load_state_dict(source.norm.state_dict())
        if own.project and source.project and own.project.weight.shape == source.project.weight.shape:
            own.project.load_state_dict(source.project.state_dict())
    return True


def _copy_embeddings(encoder: Encoder, teacher: Encoder, same_vocabulary: bool) -> list[str]:
    own, source = encoder.input_embeddings.weight, teacher.input_embeddings.weight
    copied = same_vocabulary and own.shape == source.shape
    if copied:
        own.copy_(source)
    positions = _put_tables(encoder, teacher)
    return ["embeddings" if copied else "position embeddings"] if copied or positions else []


def _copy_rest(encoder: Encoder, teacher: Encoder) -> None:
    """Copy what two encoders of one class have beside embeddings and layers, as far as it fits: norms, for example."""
    if type(encoder) is not type(teacher):
        return
    tables = [one for one in encoder.modules() if isinstance(one, Embeddings)]
    others = [encoder.input_embeddings, *encoder.blocks(), *tables]
    elsewhere = {parameter for module in others for parameter in module.parameters()}
    source = dict(teacher.named_parameters())
    for name, own in encoder.named_parameters():
        if own not in elsewhere and name in source and own.shape == source[name].shape:
            own.copy_(source[name])


def _copy_layers(encoder: Encoder, teacher: Encoder, student: StudentConfig) -> list[str]:
    """Copy the layers chosen, else all if there are as many, be it only of their weights."""
    own, source = encoder.blocks(), teacher.blocks()
    chosen = student.chosen_layers(len(source))
    if chosen is None:
        if len(own) != len(source):
            own, source = list(dict.fromkeys(own)), list(dict.fromkeys(source))
        chosen = tuple(range(len(source)))
    if len(own) != len(chosen) or encoder.num_heads != teacher.num_heads:
        return []
    pairs = list(dict.fromkeys((one, source[number]) for one, number in zip(own, chosen, strict=True)))
    if len({one for one, _ in pairs}) < len(pairs):  # weights that layers share cannot start from several
        return []
    if any(_shapes(one) != _shapes(other) for one, other in pairs):
        return []
    for one, other in pairs:
        one.load_state_dict(other.state_dict())
    return [f"layers {', '.join(map(str, chosen))}"]


def _shapes(layer: nn.Module) -> dict[str, torch.Size]:
    return {name: parameter.shape for name, parameter in layer.named_parameters()}


def _copy_head(head: nn.Module, teacher: nn.Module, same_vocabulary: bool) -> list[str]:
    """Copy the head where the shapes fit, and a CRF where both have one: emissions are else a linear head's logits."""
    own, source = head.state_dict(), teacher.state_dict()
    fits = {name for name in own if name in source and own[name].shape == source[name].shape}
    same_activation = getattr(head, "activation", None) is getattr(teacher, "activation", None)
    whole = fits >= {name for name in (*own, *source) if not name.startswith("crf.")}
    if not whole or not same_activation or not (same_vocabulary or "bias" not in own):
        return []
    head.load_state_dict({name: source[name] for name in fits}, strict=False)
    return ["head"]


def _narrow_embeddings(encoder: Encoder, teacher: Encoder, centred: bool) -> list[str]:
    word, own = teacher.input_embeddings.weight, encoder.input_embeddings.weight
    directions = principal_directions(word, own.shape[1], centred)
    own.copy_(word @ directions)
    _put_tables(encoder, teacher, directions)
    return [f"embeddings along {own.shape[1]} principal directions"]


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
