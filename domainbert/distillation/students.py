"""Students: smaller encoders, initialised from the weights of a teacher."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from domainbert.base.errors import DomainbertError
from domainbert.distillation.student_config import StudentConfig
from domainbert.encoders.base import Embeddings, Encoder
from domainbert.encoders.config import EncoderConfig, VocabularyFacts
from domainbert.encoders.families import build_model, config_class
from domainbert.encoders.head_config import HeadConfig
from domainbert.encoders.heads import EncoderWithHead


def student_config(settings: StudentConfig, teacher: EncoderConfig) -> EncoderConfig:
    """Return the architecture of a student, as its settings say.

    It is `settings.encoder` if set. Otherwise it has the sizes of the teacher, with as many layers as are selected, in
    the teacher's family or in `settings.family`.

    Raises:
        DomainbertError: a selected layer does not exist in the teacher, the number of selected layers differs from the
            student's, or selected layers share weights in the teacher or the student.
    """
    sizes = teacher.sizes
    layers = settings.chosen_layers(sizes.num_layers)
    if settings.encoder is not None:
        config = settings.encoder
        if layers is not None and len(layers) != config.sizes.num_layers:
            raise DomainbertError(
                f"the number of selected layers (layers, every_nth_layer or first_layers) is {len(layers)}",
                where="student",
                expected=f"{config.sizes.num_layers}, as in student.encoder",
            )
    elif settings.family in (None, teacher.model_type):
        config = teacher if layers is None else teacher.with_layers(layers)
    else:
        count = sizes.num_layers if layers is None else len(layers)
        config = config_class(str(settings.family))().resized(dataclasses.replace(sizes, num_layers=count))
    if layers is not None:
        _check_separate_weights(teacher, layers)
        _check_separate_weights(config, range(len(layers)))
    return config


def _check_separate_weights(config: EncoderConfig, layers: Sequence[int]) -> None:
    weights = [config.layer_weights[number] for number in layers]
    if len(set(weights)) < len(weights):
        raise DomainbertError(
            where="student",
            found=f"{len(weights)} selected layers, but {config.model_type!r} has separate weights for "
            f"only {len(set(weights))} of them",
            expected="layers with separate weights, or neither layers, every_nth_layer nor first_layers",
        )


def build_student(
    config: EncoderConfig,
    settings: StudentConfig,
    teacher: EncoderWithHead,
    head: HeadConfig | str,
    num_labels: int,
    vocabulary: VocabularyFacts,
) -> tuple[EncoderWithHead, list[str]]:
    """Return a student with a head, initialised from its teacher where the shapes match, and the copied parts.

    The copied parts are texts for a message, such as "embeddings" and "layers 0, 2, 4"; [] if nothing is copied.

    - `init: random`: nothing is copied.
    - Embeddings of equal width: copied; embeddings of vocabulary entries only if the vocabularies have equal sizes.
    - Narrower embeddings, if the vocabularies have equal sizes: the teacher's, projected on their principal directions
      (Mukherjee and Awadallah 2020, XtremeDistil, arXiv:2004.05686, section 3.2) about the mean, or about 0 if
      `embedding_projection` is "svd"; random if it is "random".
    - Hidden states of equal width: the selected layers, the head, and the parameters outside embeddings and layers are
      copied.

    Args:
        config: architecture from `student_config`.
        settings: settings that select the weights to copy.
        teacher: model with the same type of head.
        head, num_labels: see `encoders.families.build_model`.
        vocabulary: vocabulary of the student.
    """
    student = build_model(config, vocabulary, head, num_labels)
    if settings.init == "random":
        return student, []
    encoder, source = student.encoder, teacher.encoder
    copied: list[str] = []
    same_vocabulary_size = vocabulary.size == source.input_embeddings.num_embeddings
    with torch.no_grad():
        width, source_width = encoder.input_embeddings.embedding_dim, source.input_embeddings.embedding_dim
        if width == source_width:
            copied += _copy_embeddings(encoder, source, same_vocabulary_size)
        elif settings.embedding_projection != "random" and width < source_width and same_vocabulary_size:
            copied += _narrow_embeddings(encoder, source, centred=settings.embedding_projection == "pca")
        if encoder.hidden_size == source.hidden_size:
            _copy_other_parameters(encoder, source)
            copied += _copy_layers(encoder, source, settings)
            copied += _copy_head(student.head, teacher.head, same_vocabulary_size)
    return student, copied


def _copy_positions(student: Encoder, teacher: Encoder, directions: Tensor | None = None) -> bool:
    """Copy position and token type embeddings, projected on `directions` if given, to the student.

    - Positions: a student with fewer positions takes the first ones of the teacher. A student with more keeps its
      initial values for the further positions.
    - Token types: a type that the teacher lacks becomes 0. If the student has no token types, type 0 of the teacher is
      added to the positions.
    - Without `directions`, the norm is copied too, and the embedding projection if both have the same shape.

    Return True; or False, and copy nothing, if one of the models has no such embeddings.
    """
    student_tables, teacher_tables = _embedding_tables(student), _embedding_tables(teacher)
    if student_tables is None or teacher_tables is None:
        return False
    student_positions = student_tables.position.weight[student_tables.first_position :]
    positions = teacher_tables.position.weight[teacher_tables.first_position :]
    teacher_types = teacher_tables.token_type
    types = torch.zeros_like(positions[:1]) if teacher_types is None else teacher_types.weight
    if directions is not None:
        positions, types = positions @ directions, types @ directions

    count = min(len(student_positions), len(positions))
    student_positions[:count] = positions[:count]
    if student_tables.token_type is None:  # type 0 is the type of each token of a single text
        student_positions[:count] += types[0].to(student_positions.device)  # a teacher may be on a GPU
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
    return next((module for module in encoder.modules() if isinstance(module, Embeddings)), None)


def _copy_embeddings(encoder: Encoder, teacher: Encoder, same_vocabulary_size: bool) -> list[str]:
    """Return what was copied, for the message: ["embeddings"], ["position embeddings"] or []."""
    student_table, teacher_table = encoder.input_embeddings.weight, teacher.input_embeddings.weight
    copies_entries = same_vocabulary_size and student_table.shape == teacher_table.shape
    if copies_entries:
        student_table.copy_(teacher_table)
    copies_positions = _copy_positions(encoder, teacher)
    if copies_entries:
        return ["embeddings"]
    return ["position embeddings"] if copies_positions else []


def _copy_other_parameters(encoder: Encoder, teacher: Encoder) -> None:
    # outside of embeddings and layers, such as a final norm
    if type(encoder) is not type(teacher):
        return
    tables = [module for module in encoder.modules() if isinstance(module, Embeddings)]
    excluded_modules = [encoder.input_embeddings, *encoder.blocks(), *tables]
    excluded = {parameter for module in excluded_modules for parameter in module.parameters()}
    source = dict(teacher.named_parameters())
    for name, parameter in encoder.named_parameters():
        if parameter not in excluded and name in source and parameter.shape == source[name].shape:
            parameter.copy_(source[name])


def _copy_layers(encoder: Encoder, teacher: Encoder, settings: StudentConfig) -> list[str]:
    """Copy the selected layers of the teacher; return their numbers for the message, or [] if they do not fit.

    Without a selection, copy all layers if student and teacher have equal numbers of layers, or equal numbers of
    distinct layers (several layers can share weights).
    """
    student_layers, teacher_layers = encoder.blocks(), teacher.blocks()
    chosen = settings.chosen_layers(len(teacher_layers))
    if chosen is None:
        if len(student_layers) != len(teacher_layers):  # compare and copy distinct layers
            student_layers, teacher_layers = list(dict.fromkeys(student_layers)), list(dict.fromkeys(teacher_layers))
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


def _copy_head(head: nn.Module, teacher: nn.Module, same_vocabulary_size: bool) -> list[str]:
    """Return ["head"], or [] if shapes do not match. A CRF may be missing on one side: its emissions then match the
    logits of a linear head."""
    weights, source = head.state_dict(), teacher.state_dict()
    fits = {name for name in weights if name in source and weights[name].shape == source[name].shape}
    is_complete = fits >= {name for name in (*weights, *source) if not name.startswith("crf.")}
    same_activation = getattr(head, "activation", None) is getattr(teacher, "activation", None)
    needs_same_size = "bias" in weights  # a masked-LM head: a bias for each vocabulary entry
    if not is_complete or not same_activation or (needs_same_size and not same_vocabulary_size):
        return []
    head.load_state_dict({name: source[name] for name in fits}, strict=False)
    return ["head"]


def _narrow_embeddings(encoder: Encoder, teacher: Encoder, centred: bool) -> list[str]:
    """Project the teacher's embeddings on their principal directions; return a description for the message."""
    student_table, teacher_table = encoder.input_embeddings.weight, teacher.input_embeddings.weight
    width = student_table.shape[1]
    directions = principal_directions(teacher_table, width, centred)
    student_table.copy_(teacher_table @ directions)
    _copy_positions(encoder, teacher, directions)
    return [f"embeddings along {width} principal directions"]


def principal_directions(rows: Tensor, count: int, centred: bool) -> Tensor:
    """Return the directions (H, count) in which `rows` (N, H) have the largest variance.

    The variance is about the mean if `centred`, otherwise about 0. The directions are eigenvectors of the H x H matrix
    of second moments, by decreasing eigenvalue. In each direction the element with the largest absolute value is
    positive, so that the result does not depend on the library.
    """
    exact = rows.double()
    if centred:
        exact = exact - exact.mean(dim=0)
    vectors = torch.linalg.eigh(exact.T @ exact).eigenvectors.flip(-1)[:, :count]  # flipped: eigh sorts ascending
    largest = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))  # element of each direction: (1, count)
    return (vectors * largest.sign()).to(rows.dtype)
