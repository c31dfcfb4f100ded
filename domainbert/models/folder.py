"""Reads model folders, in the format of Hugging Face's `transformers`; `saving` writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError
from domainbert.base.files import read_json
from domainbert.base.manifests import check_outputs_unchanged
from domainbert.base.paths import resolve_path
from domainbert.encoders import families
from domainbert.encoders.config import EncoderConfig, HeadConfig, VocabularyFacts, require
from domainbert.models.weight_files import find_weights, missing_weights_problem
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer

if TYPE_CHECKING:  # checks before a run open folders without torch
    from torch import Tensor, nn

    from domainbert.encoders.heads import EncoderWithHead

ONNX_FILE = "model.onnx"
TEACHERS_KEY = "domainbert_teachers"  # in config.json: names of the teachers
HEAD_KEY = "domainbert_head"  # in config.json: kind of the head, if transformers has no class for it


@dataclass(frozen=True)
class ModelFolder:
    """Configuration, labels and tokenizer of a model folder; the weights are not read."""

    path: Path
    config: EncoderConfig
    vocab_size: int
    head: str | None
    """Kind of the head; None for an encoder without a head."""
    labels: tuple[str, ...]
    """Names of the head's outputs, in order."""
    fields: Mapping[str, Any]
    """Content of `config.json`."""
    onnx: Path | None = None
    """ONNX file, if the path names one or the folder has one instead of weights."""

    @property
    def vocabulary(self) -> VocabularyFacts:
        """Size of the vocabulary and id of the padding token, for building the encoder."""
        return VocabularyFacts(self.vocab_size, self.config.pad_token_id)

    @property
    def teachers(self) -> tuple[str, ...]:
        """Names of the teachers of a distilled model, or of the model that it started from; () without any."""
        return tuple(map(str, self.fields.get(TEACHERS_KEY, ())))

    @property
    def head_config(self) -> HeadConfig | None:
        """Configuration of the head; None for an encoder without a head."""
        return None if self.head is None else HeadConfig.from_json(self.head, self.fields)

    @property
    def reads_texts(self) -> bool:
        """Whether the head predicts for whole texts, not for tokens."""
        return self.head == families.SEQUENCE

    def tokenizer(self) -> DomainTokenizer:
        """Return the tokenizer of the folder, read once; raise `DomainbertError` if it does not match the
        embeddings."""
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> DomainTokenizer:
        tokenizer = load_tokenizer(self.path)
        if tokenizer.vocab_size > self.vocab_size:
            raise DomainbertError(
                f"{self.path}: the tokenizer has {tokenizer.vocab_size:,} entries, the embeddings of config.json only "
                f"{self.vocab_size:,}; expected the tokenizer of this model"
            )
        if self.config.position_offset and tokenizer.pad_id != self.config.pad_token_id:
            raise DomainbertError(
                f"{self.path}: the tokenizer's padding has id {tokenizer.pad_id}, pad_token_id of config.json is "
                f"{self.config.pad_token_id}; expected the same id, from which the model counts positions"
            )
        return tokenizer


def open_model(path: Path | ModelFolder) -> ModelFolder:
    """Read `config.json` of a model folder, and return the folder with its configuration.

    The path may be `package:NAME/folder` or `hub:NAME[@REVISION]`. A `finetune` folder has one model folder per seed;
    the best one on validation is opened. An `export` folder has `model.onnx` instead of weights; the path may also be
    an `.onnx` file. A `ModelFolder` is returned unchanged.

    Raises:
        DomainbertError: there is no model folder, its `config.json` is invalid or was changed since a stage wrote it,
            or its family is not supported.
    """
    if isinstance(path, ModelFolder):
        return path
    resolved = resolve_path(path)
    onnx = resolved if resolved.suffix == ".onnx" and not resolved.is_dir() else None
    folder = best_seed_folder(resolved) if onnx is None else onnx.parent
    file = folder / "config.json"
    check_outputs_unchanged(folder, "config.json")
    if not file.is_file():
        raise DomainbertError(f"{folder}: no config.json; expected a model folder")
    try:
        fields: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        config = families.config_class_of(fields).from_json(fields)
        fields.setdefault("model_type", config.model_type)
        head, vocab_size = _head_kind(fields, config), _vocab_size(fields, config)
        if head is not None:
            HeadConfig.from_json(head, fields)
        labels = {int(index): name for index, name in _id2label(fields, head).items()}
        if not all(isinstance(name, str) for name in labels.values()):
            raise ValueError("a label in id2label is not text")
        if sorted(labels) != list(range(len(labels))):
            raise ValueError("id2label does not number its labels 0, 1, 2, ...")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DomainbertError(f"{file}: not the config.json of a model: {error!r}") from error
    except DomainbertError as error:
        raise DomainbertError(f"{file}: {error}") from error
    names = tuple(labels[i] for i in range(len(labels)))
    return ModelFolder(folder, config, vocab_size, head, names, fields, onnx or _onnx_without_weights(folder))


def _id2label(fields: Mapping[str, Any], head: str | None) -> Mapping[Any, Any]:
    """Return the names of the head's outputs by index. transformers does not write its two default labels."""
    kind, two_labels = families.family_kind(head), {0: "LABEL_0", 1: "LABEL_1"}
    if kind == families.SPAN:
        return dict(enumerate(families.SPAN_OUTPUTS))
    default = two_labels if kind in (families.TOKENS, families.SEQUENCE) else {}
    names: Mapping[Any, Any] = fields.get("id2label", default)
    return names


def _vocab_size(fields: Mapping[str, Any], config: EncoderConfig) -> int:
    """Return the vocabulary size; raise `DomainbertError` if it is not valid or the padding token is outside."""
    size = fields["vocab_size"]
    require(type(size) is int and size >= 1, f"vocab_size: found {size!r:.80}; expected a positive number of entries")
    pad = config.pad_token_id
    require(pad < size, f"pad_token_id: found {pad}; expected an entry below vocab_size, {size:,}")
    return size


def need_weights(folder: ModelFolder) -> None:
    """Raise `DomainbertError` if a folder has no weights, or was exported to ONNX: it cannot be trained."""
    if folder.onnx is not None:
        raise DomainbertError(f"{folder.onnx}: exported for ONNX Runtime; expected a model folder with its weights")
    find_weights(folder.path)


def _onnx_without_weights(folder: Path) -> Path | None:
    """Return the ONNX file of a folder without other weights; None if it has none, or has other weights."""
    weights = [*folder.glob("model*.safetensors*"), *folder.glob("pytorch_model*.bin*")]
    return folder / ONNX_FILE if (folder / ONNX_FILE).is_file() and not weights else None


def _head_kind(fields: dict[str, Any], config: EncoderConfig) -> str | None:
    """Return the kind of the head, or None for an encoder without a head."""
    names: list[str] = fields.get("architectures") or [""]
    kind, own_kind = families.head_kind_of(config, names[0]), fields.get(HEAD_KEY)
    # transformers keeps domainbert's key when it saves the encoder with another head
    return own_kind if families.family_kind(own_kind) == kind else kind


def best_seed_folder(path: Path) -> Path:
    """Return the folder of the best seed on validation in a `finetune` folder; return other folders unchanged.

    Raises `DomainbertError` if `seeds.json` does not name an existing folder.
    """
    seeds = path / "seeds.json"
    if (path / "config.json").is_file() or not seeds.is_file():
        return path
    best = read_seeds(path).get("best")
    if best not in [child.name for child in path.iterdir() if child.is_dir()]:
        raise DomainbertError(f"{seeds}: best is {str(best)[:80]!r}; expected the name of a folder next to this file")
    return path / best


def read_seeds(path: Path) -> dict[str, Any]:
    """Return the content of `seeds.json` in a `finetune` folder; raise `DomainbertError` if it has changed or cannot be
    read."""
    check_outputs_unchanged(path, "seeds.json")
    seeds: dict[str, Any] = read_json(path / "seeds.json", "the seeds.json that finetune writes")
    return seeds


def load_model(
    path: Path | ModelFolder,
    head: HeadConfig | str,
    labels: Sequence[str] = (),
    dropout: float | None = None,
) -> tuple[EncoderWithHead, ModelFolder, list[str]]:
    """Load an encoder with a head, in fp32; return the model, its folder, and the names of newly initialised tensors.

    The weights of the head are loaded if the folder has the same head with the same labels. Tensors that all heads of a
    family share are always loaded, and so is BERT's pooler, which Hugging Face saves with the encoder. Other tensors of
    the head are initialised; their Hugging Face names are returned.

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
    model, folder, missing, unused = _read_model(path, head, labels, dropout)
    _print_unused(folder.path, unused)
    return model, folder, missing


def load_encoder(path: Path | ModelFolder) -> tuple[EncoderWithHead, ModelFolder]:
    """Load an encoder without its head (see `load_model`), and return it with its folder. The head of the returned
    model is the identity.

    >>> from domainbert import load_encoder
    >>> model, folder = load_encoder("model")
    >>> model.encoder.num_hidden_layers, folder.config.model_type
    (2, 'bert')
    """
    from torch import nn

    from domainbert.encoders.heads import EncoderWithHead

    any_head, any_labels = families.TOKENS, ("O",)  # the head is replaced below
    model, folder, *_ = _read_model(path, any_head, any_labels, None)
    return EncoderWithHead(model.encoder, nn.Identity()), folder


def _read_model(
    path: Path | ModelFolder, head: HeadConfig | str, labels: Sequence[str], dropout: float | None
) -> tuple[EncoderWithHead, ModelFolder, list[str], tuple[str, ...]]:
    """Load a model as `load_model` does; return its results and the names of the unused weights."""
    from domainbert.encoders.names import from_hugging_face
    from domainbert.models.tensors import check_types, find_unused_weights, load_tensors, predicts_entries

    folder = open_model(path)
    need_weights(folder)
    config = folder.config.with_dropout(dropout)
    labels = tuple(labels) or folder.labels
    head_config = HeadConfig.of(head).completed(folder.head_config)
    model = families.build_model(config, folder.vocabulary, head_config, len(labels))
    kind, names = head_config.kind, families.name_map(config, head_config.kind)

    tensors = load_tensors(folder.path, config)
    unused = find_unused_weights(folder.path, tensors, config, kind)
    has_same_head = (folder.labels, folder.head_config) == (labels, head_config)
    if not has_same_head and not predicts_entries(config, kind):  # keep only what all heads share
        family = families.family(config)
        shared_prefixes = family.prefix, *family.shared_head_prefixes
        tensors = {name: tensor for name, tensor in tensors.items() if name.startswith(shared_prefixes)}

    check_types(folder.path, tensors, (name for hf_names in names.values() for name in hf_names))
    state, missing = from_hugging_face(tensors, names)
    encoder_names = {name for key, hf_names in names.items() if key.startswith("encoder.") for name in hf_names}
    if absent := [name for name in missing if name in encoder_names]:
        raise DomainbertError(f"{folder.path}: {missing_weights_problem(absent)}")
    _check_shapes(folder.path, model, state)
    model.load_state_dict(state, strict=False)
    return model, folder, missing, unused


@cache  # print once, although each seed loads the model
def _print_unused(path: Path, names: tuple[str, ...]) -> None:
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        print(f"{path}: unused weights: {', '.join(names[:5])}{more}")


def _check_shapes(path: Path, model: nn.Module, state: dict[str, Tensor]) -> None:
    for name, tensor in model.state_dict().items():
        if name in state and state[name].shape != tensor.shape:
            raise DomainbertError(
                f"{path}: {name} has shape {tuple(state[name].shape)}; config.json implies {tuple(tensor.shape)}"
            )
