"""Students: smaller encoders, initialised from the weights of a teacher."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from domainbert.base.errors import DomainbertError
from domainbert.distillation.student_config import StudentConfig
from domainbert.encoders.base import Embeddings, Encoder
from domainbert.encoders.config import EncoderConfig, HeadConfig, VocabularyFacts
from domainbert.encoders.families import build_model, config_class
from domainbert.encoders.heads import EncoderWithHead


def student_config(student: StudentConfig, teacher: EncoderConfig) -> EncoderConfig:
    """Return the architecture of a student.

    Raises:
        DomainbertError: a selected layer does not exist in the teacher, the number of selected layers differs from the
            student's, or selected layers share weights in the teacher or the student.
    """
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
        config = teacher if layers is None else teacher.with_layers(layers)
    else:
        count = sizes.num_layers if layers is None else len(layers)
        config = config_class(str(student.family))().resized(dataclasses.replace(sizes, num_layers=count))
    if layers is not None:
        _check_separate_weights(teacher, layers)
        _check_separate_weights(config, range(len(layers)))
    return config


def _check_separate_weights(config: EncoderConfig, layers: Sequence[int]) -> None:
    """Raise `DomainbertError` if some of the layers share their weights."""
    weights = [config.layer_weights[number] for number in layers]
    if len(set(weights)) < len(weights):
        raise DomainbertError(
            f"student.layers: found {len(weights)} layers, but {config.model_type} has separate weights for only "
            f"{len(set(weights))} of them; expected layers with separate weights, or neither layers, "
            "every_nth_layer nor first_layers"
        )


def build_student(
    config: EncoderConfig,
    student: StudentConfig,
    teacher: EncoderWithHead,
    head: HeadConfig | str,
    num_labels: int,
    vocabulary: VocabularyFacts,
) -> tuple[EncoderWithHead, list[str]]:
    """Return a student with a head, initialised from its teacher where the shapes match, and the copied parts.

    The copied parts are texts for a message, such as "embeddings" and "layers 0, 2, 4"; [] if nothing is copied.

    Embeddings of equal width are copied. Token types are copied too; a family without token types adds the first type,
    the only one in use here, to its positions. Narrower embeddings are the teacher's, projected on their principal
    directions (Mukherjee and Awadallah 2020, XtremeDistil, arXiv:2004.05686, section 3.2). If the hidden states have
    equal width, the selected layers, the head, and parameters outside embeddings and layers are copied.

    Args:
        config: architecture from `student_config`.
        student: settings that select the weights to copy.
        teacher: model with the same type of head.
        head, num_labels: see `encoders.families.build_model`.
        vocabulary: vocabulary of the student; embeddings of another size are not copied.
    """
    model = build_model(config, vocabulary, head, num_labels)
    encoder = model.encoder
    if student.init == "random":
        return model, []
    copied: list[str] = []
    same_vocabulary = vocabulary.size == teacher.encoder.input_embeddings.num_embeddings
    with torch.no_grad():
        width, teacher_width = (part.input_embeddings.embedding_dim for part in (encoder, teacher.encoder))
        if width == teacher_width:
            copied += _copy_embeddings(encoder, teacher.encoder, same_vocabulary)
        elif student.embedding_projection != "random" and width < teacher_width and same_vocabulary:
            copied += _narrow_embeddings(encoder, teacher.encoder, student.embedding_projection == "pca")
        if encoder.hidden_size == teacher.encoder.hidden_size:
            _copy_other_parameters(encoder, teacher.encoder)
            copied += _copy_layers(encoder, teacher.encoder, student)
            copied += _copy_head(model.head, teacher.head, same_vocabulary)
    return model, copied


def _copy_positions(student: Encoder, teacher: Encoder, directions: Tensor | None = None) -> bool:
    """Copy position and token type embeddings, projected on `directions` if given, to the student.

    Without `directions` the norm is copied, too, and a projection of the same shape. A student with fewer positions
    takes the first; a student with more keeps its initial values for the others. Return False, and copy nothing, if one
    of the models has no such embeddings.
    """
    student_tables, teacher_tables = (_embedding_tables(encoder) for encoder in (student, teacher))
    if student_tables is None or teacher_tables is None:
        return False
    student_positions, positions = (
        tables.position.weight[tables.first_position :] for tables in (student_tables, teacher_tables)
    )
    teacher_types = teacher_tables.token_type
    types = torch.zeros_like(positions[:1]) if teacher_types is None else teacher_types.weight
    if directions is not None:
        positions, types = positions @ directions, types @ directions
    count = min(len(student_positions), len(positions))
    student_positions[:count] = positions[:count]
    if student_tables.token_type is None:  # each token of a single text has type 0, so the positions include it
        student_positions[:count] += types[0]
    else:
        student_types = student_tables.token_type.weight.zero_()
        student_types[: len(types)] = types[: len(student_types)]
    if directions is None:
        student_tables.norm.load_state_dict(teacher_tables.norm.state_dict())
        student_projection, projection = student_tables.project, teacher_tables.project
        if student_projection and projection and student_projection.weight.shape == projection.weight.shape:
            student_projection.load_state_dict(projection.state_dict())
    return True


def _embedding_tables(encoder: Encoder) -> Embeddings | None:
    """Return the module with the position and token type embeddings; None if the family has none."""
    return next((module for module in encoder.modules() if isinstance(module, Embeddings)), None)


def _copy_embeddings(encoder: Encoder, teacher: Encoder, same_vocabulary: bool) -> list[str]:
    """Copy the embeddings of equal shape; return the name of the copied part for the message, or []."""
    student_table, teacher_table = encoder.input_embeddings.weight, teacher.input_embeddings.weight
    copies_entries = same_vocabulary and student_table.shape == teacher_table.shape
    if copies_entries:
        student_table.copy_(teacher_table)
    copies_positions = _copy_positions(encoder, teacher)
    if copies_entries:
        return ["embeddings"]
    return ["position embeddings"] if copies_positions else []


def _copy_other_parameters(encoder: Encoder, teacher: Encoder) -> None:
    """Copy parameters outside embeddings and layers, such as norms, between encoders of one class if shapes match."""
    if type(encoder) is not type(teacher):
        return
    tables = [module for module in encoder.modules() if isinstance(module, Embeddings)]
    excluded_modules = [encoder.input_embeddings, *encoder.blocks(), *tables]
    excluded = {parameter for module in excluded_modules for parameter in module.parameters()}
    source = dict(teacher.named_parameters())
    for name, parameter in encoder.named_parameters():
        if parameter not in excluded and name in source and parameter.shape == source[name].shape:
            parameter.copy_(source[name])


def _copy_layers(encoder: Encoder, teacher: Encoder, student: StudentConfig) -> list[str]:
    """Copy the selected layers; return their numbers for the message, or [] if they do not fit.

    Without a selection, copy all layers if the numbers of layers are equal, or, where layers share weights, the numbers
    of distinct layers.
    """
    student_layers, teacher_layers = encoder.blocks(), teacher.blocks()
    chosen = student.chosen_layers(len(teacher_layers))
    if chosen is None:
        if len(student_layers) != len(teacher_layers):  # then each distinct layer once
            student_layers, teacher_layers = (list(dict.fromkeys(each)) for each in (student_layers, teacher_layers))
        chosen = tuple(range(len(teacher_layers)))
    if len(student_layers) != len(chosen) or encoder.num_heads != teacher.num_heads:
        return []
    # distinct pairs: a layer whose weights several layers share occurs several times
    sources = [teacher_layers[number] for number in chosen]
    pairs = list(dict.fromkeys(zip(student_layers, sources, strict=True)))
    if len({layer for layer, _ in pairs}) < len(pairs):  # shared weights cannot be copies of several layers
        return []
    if any(_shapes(layer) != _shapes(source) for layer, source in pairs):
        return []
    for layer, source in pairs:
        layer.load_state_dict(source.state_dict())
    return [f"layers {', '.join(map(str, chosen))}"]


def _shapes(layer: nn.Module) -> dict[str, torch.Size]:
    return {name: parameter.shape for name, parameter in layer.named_parameters()}


def _copy_head(head: nn.Module, teacher: nn.Module, same_vocabulary: bool) -> list[str]:
    """Copy the head if shapes match; return ["head"], or [] if they do not.

    A CRF may be missing on one side: its emissions then match the logits of a linear head.
    """
    weights, source = head.state_dict(), teacher.state_dict()
    fits = {name for name in weights if name in source and weights[name].shape == source[name].shape}
    is_complete = fits >= {name for name in (*weights, *source) if not name.startswith("crf.")}
    same_activation = getattr(head, "activation", None) is getattr(teacher, "activation", None)
    needs_same_vocabulary = "bias" in weights  # a masked-LM head: a bias for each vocabulary entry
    if not is_complete or not same_activation or (needs_same_vocabulary and not same_vocabulary):
        return []
    head.load_state_dict({name: source[name] for name in fits}, strict=False)
    return ["head"]


def _narrow_embeddings(encoder: Encoder, teacher: Encoder, centred: bool) -> list[str]:
    """Set the embeddings to the projected embeddings of the teacher; return their description for the message."""
    student_table, teacher_table = encoder.input_embeddings.weight, teacher.input_embeddings.weight
    width = student_table.shape[1]
    directions = principal_directions(teacher_table, width, centred)
    student_table.copy_(teacher_table @ directions)
    _copy_positions(encoder, teacher, directions)
    return [f"embeddings along {width} principal directions"]


def principal_directions(rows: Tensor, count: int, centred: bool) -> Tensor:
    """Return the directions (H, count) in which `rows` (N, H) have the largest variance.

    If not `centred`, it is the variance about 0 (second moment). The directions are eigenvectors of the H x H matrix of
    second moments, by decreasing eigenvalue. The sign makes the largest element of each positive, so that the result
    does not depend on the library.
    """
    exact = rows.double()
    if centred:
        exact = exact - exact.mean(dim=0)
    vectors = torch.linalg.eigh(exact.T @ exact).eigenvectors.flip(-1)[:, :count]  # flipped: eigh sorts ascending
    largest = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    return (vectors * largest.sign()).to(rows.dtype)
