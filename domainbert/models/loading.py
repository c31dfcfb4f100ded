"""Loads and checks models and tensors of Hugging Face folders: safetensors or PyTorch format, one file or shards."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from domainbert.base.errors import DomainbertError, format_names
from domainbert.encoders.biaffine import Biaffine
from domainbert.encoders.config import EncoderConfig
from domainbert.encoders.crf import crf_of
from domainbert.encoders.families import TOKENS, build_model, family, head_kinds, name_map
from domainbert.encoders.family import shapes_only
from domainbert.encoders.head_config import HeadConfig
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.names import from_hugging_face
from domainbert.models.folder import SHARD_INDEX, ModelFolder, find_weights, need_weights, open_model

WEIGHT_TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_BUFFERS = (".position_ids", ".token_type_ids")  # constants that older versions of transformers saved


def load_model(
    path: Path | ModelFolder, head: HeadConfig | str, labels: Sequence[str] = (), dropout: float | None = None
) -> tuple[EncoderWithHead, ModelFolder, list[str]]:
    """Load an encoder with a head, in fp32; return the model, its folder, and the names of newly initialised tensors.

    The weights of the head are loaded, and brought into the order of `labels`, if the folder has the same head with the
    same labels; otherwise the reason is printed. Tensors that all heads of a family share are always loaded, and so is
    BERT's pooler, which Hugging Face saves with the encoder. Other tensors of the head are initialised; their Hugging
    Face names are returned.

    Args:
        path: a model folder, written by domainbert or by `save_pretrained`.
        head: configuration or kind of the head; options that are None are taken from the folder if it has such a head.
        labels: names of the labels of a token or sequence head, in order; empty takes them from the folder.
        dropout: overrides the dropout in `config.json`.

    Raises:
        DomainbertError: the folder was exported to ONNX, weights of the encoder are missing, `config.json` does not
            explain some weights or contradicts their shapes, a weight is not finite, or a masked-LM head is requested
            and its output weights are not the word embeddings.
    """
    model, folder, missing, notes = _read_model(path, head, labels, dropout)
    for note in notes:
        _print_once(f"{folder.path}: {note}")
    return model, folder, missing


def load_encoder(path: Path | ModelFolder) -> tuple[EncoderWithHead, ModelFolder]:
    """Load an encoder without its head (see `load_model`), and return it with its folder. The head of the returned
    model is the identity.

    >>> from domainbert import load_encoder
    >>> model, folder = load_encoder("model")
    >>> model.encoder.num_hidden_layers, folder.config.model_type
    (2, 'bert')
    """
    any_head, any_labels = TOKENS, ("O",)  # the head is replaced below
    model, folder, *_ = _read_model(path, any_head, any_labels, dropout=None)
    return EncoderWithHead(model.encoder, nn.Identity()), folder


def _read_model(
    path: Path | ModelFolder, head: HeadConfig | str, labels: Sequence[str], dropout: float | None
) -> tuple[EncoderWithHead, ModelFolder, list[str], list[str]]:
    """Results of `load_model`, and the messages to print."""
    folder = open_model(path)
    need_weights(folder)
    config = folder.config.with_dropout(dropout)
    labels = tuple(labels) or folder.labels
    head_config = HeadConfig.of(head).completed(folder.head_config)
    build = partial(build_model, config, folder.vocabulary, head_config, len(labels))
    kind = head_config.kind
    names = name_map(config, kind)  # Hugging Face names by parameter

    tensors = load_tensors(folder.path, config)
    notes = []
    if unused := find_unused_weights(folder.path, tensors, config, kind):
        more = f" and {len(unused) - 5} more" if len(unused) > 5 else ""
        notes.append(f"unused weights: {', '.join(unused[:5])}{more}")
    default, found = HeadConfig(kind, pooling=config.default_pooling), folder.head_config
    reads_the_same = found is not None and found.completed(default) == head_config.completed(default)
    has_same_head = reads_the_same and sorted(folder.labels) == sorted(labels)
    # Drop the weights of another head, or of a head with other labels, except those that all heads share. A head that
    # predicts entries has no labels: all weights with its names fit it.
    if not has_same_head and not predicts_entries(config, kind):
        shared_prefixes = family(config).prefix, *family(config).shared_head_prefixes
        tensors = {name: tensor for name, tensor in tensors.items() if name.startswith(shared_prefixes)}
        if folder.head_config is not None and folder.labels:
            notes.append(f"the head is new: {_difference(folder, head_config, labels)}")

    check_types(folder.path, tensors, (name for hf_names in names.values() for name in hf_names))
    state, missing = from_hugging_face(tensors, names)
    encoder_names = {name for key, hf_names in names.items() if key.startswith("encoder.") for name in hf_names}
    if absent := [name for name in missing if name in encoder_names]:
        raise _missing_weights(absent).within(file=folder.path)
    with shapes_only():  # the sizes in config.json may need more memory than there is
        _check_shapes(folder.path, build(), state)
    model = build()
    model.load_state_dict(state, strict=False)
    if has_same_head:
        reorder_labels(model.head, folder.labels, labels)
    return model, folder, missing, notes


def reorder_labels(head: nn.Module, labels: Sequence[str], order: Sequence[str]) -> None:
    """Reorder the outputs of a head in place, from the order of `labels` to `order`, which has the same labels."""
    if labels == order:
        return
    indices = torch.tensor([labels.index(label) for label in order], device=next(head.parameters()).device)
    if isinstance(head, Biaffine):
        head.reorder(indices)
    else:  # the rows of the weight and of the bias of the last layer are labels
        with torch.no_grad():
            for parameter in head.get_submodule("classifier").parameters():
                parameter.copy_(parameter[indices])
    if (crf := crf_of(head)) is not None:
        crf.reorder(indices)


def _difference(folder: ModelFolder, head: HeadConfig, labels: Sequence[str]) -> str:
    """Return how the head of a folder differs from the head that training needs."""
    folder_head = folder.head_config
    if folder_head is None or folder_head == head:
        return f"found the labels {format_names(folder.labels)}; expected {format_names(labels)}"
    found, expected = (f"{config.kind} {config.to_json() or ''}".strip() for config in (folder_head, head))
    return f"found the head {found}; expected {expected}"


_print_once = cache(print)  # each seed loads the model


def _check_shapes(path: Path, model: nn.Module, state: dict[str, Tensor]) -> None:
    for name, tensor in model.state_dict().items():
        if name in state and state[name].shape != tensor.shape:
            raise DomainbertError(
                f"the parameter {name} has shape {tuple(state[name].shape)}",
                file=path,
                expected=f"{tuple(tensor.shape)} as config.json says: take config.json and the weights from the "
                "same model",
            )


def load_tensors(path: Path, config: EncoderConfig) -> dict[str, Tensor]:
    """Return all tensors of a model folder by their current Hugging Face names.

    The names in a base model that was saved without a head lack the prefix of the family, which is added. Tied tensors
    that are equal, which older versions of transformers saved twice, are returned once.
    """
    model_family, tensors = family(config), read_weights(path)
    if not any(name.startswith(model_family.prefix) for name in tensors):
        tensors = {model_family.prefix + name: tensor for name, tensor in tensors.items()}
    tensors = {model_family.canonical_name(name, config): tensor for name, tensor in tensors.items()}
    for copy, source in model_family.tied(config).items():
        if copy not in tensors:
            continue
        tensors.setdefault(source, tensors[copy])  # a file may hold the copy only
        if torch.equal(tensors[copy], tensors[source]):
            del tensors[copy]
    return tensors


def vocabulary_names(config: EncoderConfig) -> Sequence[str]:
    """Return the Hugging Face names of the tensors with one row per vocabulary entry, the word embeddings first."""
    return family(config).vocabulary_tensors(config)


def predicts_entries(config: EncoderConfig, kind: str | None) -> bool:
    """Return whether a kind of head predicts vocabulary entries, with the word embeddings as output weights."""
    # among these tensors is the output bias, which only such a head has
    return set(vocabulary_names(config)) <= _all_names(config, [kind])


def find_unused_weights(path: Path, tensors: Iterable[str], config: EncoderConfig, head: str) -> tuple[str, ...]:
    """Return the names of the tensors of a folder (from `load_tensors`) that a model with a `head` of this kind does
    not use, such as a pooler or another head; () if it uses all.

    Raises:
        DomainbertError: an encoder tensor does not belong to the architecture of `config.json`; or the head predicts
            vocabulary entries, and the folder's output weights are not tied to the embeddings.
    """
    model_family = family(config)
    used = _all_names(config, [head])
    unused = sorted(name for name in tensors if name not in used and not name.endswith(_BUFFERS))
    # a tensor of the encoder may be unused if another kind of head reads it, or if the family ignores it
    may_be_unused = _all_names(config, head_kinds(config)) | set(model_family.ignored_tensors)
    of_encoder = [name for name in unused if name.startswith(model_family.prefix)]
    unexpected = [name for name in of_encoder if name not in may_be_unused]
    if unexpected:
        raise DomainbertError(
            file=path,
            found=f"unexpected weights, {', '.join(unexpected[:5])} ({len(unexpected)} in all)",
            expected=f"the weights of the {config.model_type} encoder that config.json describes",
        )
    for copy, source in model_family.tied(config).items():
        # a copy that is still in `tensors` differs from its source: `load_tensors` removes equal copies
        if copy in unused and predicts_entries(config, head):
            raise DomainbertError(
                f"{copy} differs from {source}",
                file=path,
                expected="equal tensors: only output weights that are tied to the word embeddings are supported",
            )
    return tuple(unused)


def check_types(path: Path, tensors: Mapping[str, Tensor], names: Iterable[str]) -> None:
    """Raise `DomainbertError` if a tensor in `names` has no floating-point numbers, such as quantised weights."""
    for name in names:
        if name in tensors and tensors[name].dtype not in WEIGHT_TYPES:
            raise DomainbertError(f"{name} holds {tensors[name].dtype}", file=path, expected="floating-point weights")


def check_vocabulary(path: Path, tensors: Mapping[str, Tensor], config: EncoderConfig, vocab_size: int) -> None:
    """Raise `DomainbertError` if word embeddings are missing, quantised or not tied to the output weights, or if a
    tensor with one row per entry has another number of rows than in `config.json`."""
    for kind in head_kinds(config):
        if predicts_entries(config, kind):
            find_unused_weights(path, tensors, config, kind)  # for its error if weights are not tied
    names = vocabulary_names(config)
    check_types(path, tensors, names)
    word_embeddings = names[0]
    if word_embeddings not in tensors:
        raise _missing_weights([word_embeddings]).within(file=path)
    for name in names:
        if name in tensors and len(tensors[name]) != vocab_size:
            raise DomainbertError(
                f"{name} has {len(tensors[name]):,} rows",
                file=path,
                expected=f"{vocab_size:,}, vocab_size in config.json",
            )


def _all_names(config: EncoderConfig, kinds: Sequence[str | None]) -> set[str]:
    return {name for kind in kinds for names in name_map(config, kind).values() for name in names}


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of a folder by name, from safetensors if there are any, otherwise from `pytorch_model.bin`.

    A `pytorch_model.bin` is a pickle; it is read with `weights_only=True`, which builds tensors and runs no code.
    The gamma and beta of norms in checkpoints from TensorFlow are renamed to weight and bias.

    Raises:
        DomainbertError: there are no weights, a file is missing, damaged or changed since a stage wrote it, a pickle
            contains more than tensors, or a weight is not finite.
    """
    file = find_weights(folder)
    tensors = _read_shards(file) if file.name.endswith(SHARD_INDEX) else _read_file(file)
    current_names = {name: re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name)) for name in tensors}
    return {current_names[name]: tensor for name, tensor in tensors.items()}


def non_finite_problem(tensors: Mapping[str, Tensor]) -> str | None:
    """Return a message on the first tensor with NaN or infinite values and their number; None if all are finite."""
    for name, tensor in tensors.items():
        if tensor.dtype in WEIGHT_TYPES and not bool(tensor.isfinite().all()):
            count = int((~tensor.isfinite()).sum())
            return f"{count:,} of {tensor.numel():,} values of {name} are NaN or infinite"
    return None


def _read_file(file: Path) -> dict[str, Tensor]:
    tensors = _load_file(file)
    if problem := non_finite_problem(tensors):
        raise DomainbertError(problem, file=file, expected="the weights of a model whose training did not diverge")
    return tensors


def _load_file(file: Path) -> dict[str, Tensor]:
    if file.suffix == ".safetensors":
        try:
            return load_file(file)
        except (SafetensorError, OSError) as error:
            raise DomainbertError(
                f"not a readable safetensors file ({error})", file=file, hint="copy it again"
            ) from error
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # UnpicklingError, RuntimeError, ...; torch's message advises weights_only=False
        expected = "only tensors: the state_dict() of a model, or model.safetensors"
        raise DomainbertError("holds more than tensors, or is damaged", file=file, expected=expected) from error
    if not isinstance(content, dict) or not all(isinstance(tensor, Tensor) for tensor in content.values()):
        raise DomainbertError("is not a mapping of names to tensors", file=file, expected="the state_dict() of a model")
    return content


def _read_shards(index: Path) -> dict[str, Tensor]:
    try:
        file_by_tensor: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        files = sorted(set(file_by_tensor.values()))
        outside = [name for name in files if Path(name).name != name]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DomainbertError(f"not an index of weight files ({error!r})", where=index) from error
    if outside:
        raise DomainbertError(
            f"names the file {outside[0][:80]!r}", where=index, expected="only files in its own folder"
        )
    tensors: dict[str, Tensor] = {}
    for name in files:
        if not (index.parent / name).is_file():
            raise DomainbertError(
                f"names {name!r}, which is missing", where=index, expected=f"all {len(files)} weight files"
            )
        tensors.update(_read_file(index.parent / name))
    missing = sorted(file_by_tensor.keys() - tensors.keys())
    if missing:
        raise _missing_weights(missing).within(file=index)
    return tensors


def _missing_weights(names: Sequence[str]) -> DomainbertError:
    found = f"no weights named {', '.join(names[:5])} ({len(names)} missing)"
    return DomainbertError(found=found, expected="a complete model")
