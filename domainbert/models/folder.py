"""The model folder: a Hugging Face folder that `transformers` loads as it is, and that is read here as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError, diverged
from domainbert.base.files import read_json
from domainbert.base.paths import resolve_path
from domainbert.base.sealed import check_sealed
from domainbert.encoders import families
from domainbert.encoders.config import EncoderConfig, VocabularyFacts, require
from domainbert.encoders.head_config import HeadConfig
from domainbert.models.weight_files import find_weights
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer

if TYPE_CHECKING:  # a folder is opened, to be checked, without torch
    from torch import Tensor, nn

    from domainbert.encoders.heads import EncoderWithHead

ONNX_FILE = "model.onnx"
_TEACHERS = "domainbert_teachers"
_HEAD = "domainbert_head"


@dataclass(frozen=True)
class ModelFolder:
    """Facts of a model folder, before its weights are read."""

    path: Path
    config: EncoderConfig
    vocab_size: int
    head: str | None
    labels: tuple[str, ...]
    fields: Mapping[str, Any]
    """All of `config.json`."""
    onnx: Path | None = None
    """The file for ONNX Runtime that the path named, or that stands in place of weights."""

    @property
    def vocabulary(self) -> VocabularyFacts:
        """Facts of the vocabulary that the encoder needs."""
        return VocabularyFacts(self.vocab_size, self.config.pad_token_id)

    @property
    def teachers(self) -> tuple[str, ...]:
        """The models that this one was distilled from, or the one that it started from; empty for most."""
        return tuple(map(str, self.fields.get(_TEACHERS, ())))

    @property
    def head_config(self) -> HeadConfig | None:
        """The configuration of the head; None of an encoder alone."""
        return None if self.head is None else HeadConfig.from_json(self.head, self.fields)

    @property
    def reads_texts(self) -> bool:
        """Whether the head reads the [CLS] of a text, and not its tokens."""
        return self.head == families.SEQUENCE

    def tokenizer(self) -> DomainTokenizer:
        """The folder's tokenizer, read once; `DomainbertError` if its ids do not fit the embeddings."""
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> DomainTokenizer:
        tokenizer = load_tokenizer(self.path)
        if tokenizer.vocab_size > self.vocab_size:
            raise DomainbertError(
                f"{self.path}: the tokenizer has {tokenizer.vocab_size:,} entries, the embeddings of config.json only "
                f"{self.vocab_size:,}; expected a tokenizer that belongs to the model"
            )
        if self.config.position_offset and tokenizer.pad_id != self.config.pad_token_id:
            raise DomainbertError(
                f"{self.path}: the tokenizer's padding has id {tokenizer.pad_id}, pad_token_id of config.json is "
                f"{self.config.pad_token_id}, from which the model counts positions; expected the same"
            )
        return tokenizer


def open_model(path: Path | ModelFolder) -> ModelFolder:
    """Read `config.json` of a model folder, which may be written `package:NAME/folder` or `hub:NAME[@REVISION]`.

    A folder that `finetune` wrote holds one model folder a seed; the one that was best on validation is opened. A
    folder that `export` wrote has `model.onnx` in place of weights; the path may also name an `.onnx` file in a folder.
    A folder that is open already is returned.

    Raises:
        DomainbertError: there is no model folder, its `config.json` is broken or not what a stage wrote there, or its
            family is not supported.
    """
    if isinstance(path, ModelFolder):
        return path
    resolved = resolve_path(path)
    named = resolved if resolved.suffix == ".onnx" and not resolved.is_dir() else None
    folder = best_seed_folder(resolved) if named is None else named.parent
    file = folder / "config.json"
    check_sealed(folder, "config.json")
    if not file.is_file():
        raise DomainbertError(f"{folder}: no config.json; expected a model folder")
    try:
        fields: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        config = families.config_class_of(fields).from_json(fields)
        fields.setdefault("model_type", config.model_type)
        head, vocab_size = _head(fields, config), _vocab_size(fields, config)
        if head is not None:
            HeadConfig.from_json(head, fields)
        labels = {int(index): name for index, name in _id2label(fields, head).items()}
        if not all(isinstance(name, str) for name in labels.values()):
            raise ValueError("a label in id2label is not text")
        if sorted(labels) != list(range(len(labels))):
            raise ValueError("id2label does not number its labels from 0 on")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DomainbertError(f"{file}: not the config.json of a model: {error!r}") from error
    except DomainbertError as error:
        raise DomainbertError(f"{file}: {error}") from error
    names = tuple(labels[i] for i in range(len(labels)))
    return ModelFolder(folder, config, vocab_size, head, names, fields, named or _onnx_alone(folder))


def _id2label(fields: Mapping[str, Any], head: str | None) -> Mapping[Any, Any]:
    """The names of the outputs by number; transformers leaves them out when they are the two it gives by default."""
    kind, two = families.family_kind(head), {0: "LABEL_0", 1: "LABEL_1"}
    if kind == families.SPAN:
        return dict(enumerate(families.SPAN_OUTPUTS))
    named: Mapping[Any, Any] = fields.get("id2label", two if kind in (families.TOKENS, families.SEQUENCE) else {})
    return named


def _vocab_size(fields: Mapping[str, Any], config: EncoderConfig) -> int:
    size = fields["vocab_size"]
    require(type(size) is int and size >= 1, f"vocab_size: found {size!r:.80}; expected a positive number of entries")
    pad = config.pad_token_id
    require(pad < size, f"pad_token_id: found {pad}; expected an entry below vocab_size, {size:,}")
    return size


def need_weights(folder: ModelFolder) -> None:
    """`DomainbertError` if a folder was exported for ONNX Runtime, or has no weights at all: it cannot learn."""
    if folder.onnx is not None:
        raise DomainbertError(f"{folder.onnx}: exported for ONNX Runtime; expected a model folder with its weights")
    find_weights(folder.path)


def _onnx_alone(folder: Path) -> Path | None:
    """`model.onnx` of a folder that has no weights."""
    weights = [*folder.glob("model*.safetensors*"), *folder.glob("pytorch_model*.bin*")]
    return folder / ONNX_FILE if (folder / ONNX_FILE).is_file() and not weights else None


def _head(fields: dict[str, Any], config: EncoderConfig) -> str | None:
    names: list[str] = fields.get("architectures") or [""]
    kind, ours = families.kind_of(config, names[0]), fields.get(_HEAD)
    # transformers keeps our key when it saves the encoder with another head
    return ours if families.family_kind(ours) == kind else kind


def best_seed_folder(path: Path) -> Path:
    """The model folder itself, or of a `finetune` folder the seed that was best on validation.

    `DomainbertError` if `seeds.json` does not name a folder beside it.
    """
    seeds = path / "seeds.json"
    if (path / "config.json").is_file() or not seeds.is_file():
        return path
    best = read_seeds(path).get("best")
    if best not in [child.name for child in path.iterdir() if child.is_dir()]:
        raise DomainbertError(f"{seeds}: best is {str(best)[:80]!r}; expected the name of a folder beside this file")
    return path / best


def read_seeds(path: Path) -> dict[str, Any]:
    """The `seeds.json` of a `finetune` folder; `DomainbertError` if it has changed or cannot be read."""
    check_sealed(path, "seeds.json")
    found: dict[str, Any] = read_json(path / "seeds.json", "the seeds.json that finetune writes")
    return found


def load_model(
    path: Path | ModelFolder,
    head: HeadConfig | str,
    labels: Sequence[str] = (),
    dropout: float | None = None,
) -> tuple[EncoderWithHead, ModelFolder, list[str]]:
    """An encoder with a head, in fp32, its opened folder, and the Hugging Face names of what the folder lacked of the
    head, which is made.

    The head's own tensors are taken if the folder has the same head with the same labels. What all heads
    of a family have is taken wherever it is found, and so is BERT's pooler, which is part of Hugging Face's base model.

    Args:
        path: a model folder, written here or by `save_pretrained`.
        head: its configuration, or its kind; options that are None are those of the folder if it has such a head.
        labels: names of the labels of a token or sequence head, in order; none takes the folder's own.
        dropout: overrides the dropout in `config.json`.

    Raises:
        DomainbertError: the folder was exported, the encoder's weights are missing, there are more than `config.json`
            accounts for, one is not finite, their shapes contradict it, or a masked-LM head is wanted of a folder whose
            output weights are not the word embeddings.
    """
    model, folder, made, unused = _read_model(path, head, labels, dropout)
    _say_unused(folder.path, unused)
    return model, folder, made


def load_encoder(path: Path | ModelFolder) -> tuple[EncoderWithHead, ModelFolder]:
    """Load an encoder alone, and say nothing of its head; in its place stands what lets the hidden states through. See
    `load_model`.

    >>> from domainbert import load_encoder
    >>> model, folder = load_encoder("model")
    >>> model.encoder.num_hidden_layers, folder.config.model_type
    (2, 'bert')
    """
    from torch import nn

    from domainbert.encoders.heads import EncoderWithHead

    model, folder, *_ = _read_model(path, families.TOKENS, ("O",), None)
    return EncoderWithHead(model.encoder, nn.Identity()), folder


def _read_model(
    path: Path | ModelFolder, head: HeadConfig | str, labels: Sequence[str], dropout: float | None
) -> tuple[EncoderWithHead, ModelFolder, list[str], tuple[str, ...]]:
    """As `load_model`, and the names of the weights that are not used."""
    from domainbert.encoders.names import from_hugging_face
    from domainbert.models.tensors import check_names, check_types, load_tensors, predicts_entries

    folder = open_model(path)
    need_weights(folder)
    config = folder.config.as_trained(dropout)
    labels = tuple(labels) or folder.labels
    own_head = HeadConfig.of(head).completed(folder.head_config)
    model = families.build_model(config, folder.vocabulary, own_head, len(labels))
    kind, names = own_head.kind, families.name_map(config, own_head.kind)
    tensors = load_tensors(folder.path, config)
    unused = check_names(folder.path, tensors, config, kind)
    same = (folder.labels, folder.head_config) == (labels, own_head)
    if not same and not predicts_entries(config, kind):
        own = families.family(config)
        tensors = {name: one for name, one in tensors.items() if name.startswith((own.prefix, *own.of_any_head))}
    check_types(folder.path, tensors, (name for theirs in names.values() for name in theirs))
    state, made = from_hugging_face(tensors, names)
    of_encoder = {name for ours, theirs in names.items() if ours.startswith("encoder.") for name in theirs}
    if missing := [name for name in made if name in of_encoder]:
        raise DomainbertError(f"{folder.path}: weights are missing: {', '.join(missing[:5])} ({len(missing)} in all)")
    _check_shapes(folder.path, model, state)
    model.load_state_dict(state, strict=False)
    return model, folder, made, unused


@cache  # a model is loaded once for each seed
def _say_unused(path: Path, names: tuple[str, ...]) -> None:
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        print(f"{path}: weights that are not used here: {', '.join(names[:5])}{more}")


def _check_shapes(path: Path, model: nn.Module, state: dict[str, Tensor]) -> None:
    for name, tensor in model.state_dict().items():
        if name in state and state[name].shape != tensor.shape:
            raise DomainbertError(
                f"{path}: {name} has shape {tuple(state[name].shape)}; config.json implies {tuple(tensor.shape)}"
            )


def save_model(
    path: Path,
    model: EncoderWithHead,
    config: EncoderConfig,
    tokenizer: DomainTokenizer,
    head: str | None,
    card: str,
    labels: Sequence[str] = (),
    max_length: int | None = None,
    weights: Mapping[str, Tensor] | None = None,
    teachers: Sequence[str] = (),
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Write a model folder that `transformers` loads as it is.

    Args:
        path: the folder; made if absent.
        model, config: the encoder with its head, and its architecture.
        tokenizer: saved beside the weights.
        head: the kind of head on the model; None leaves it out.
        card: text of the model card (README.md).
        labels: label names, in the order of the head's outputs.
        max_length: the longest input it was trained for, which the tokenizer tells; None takes the encoder's positions.
        weights: the state dict of the model, where the model itself holds only a part of each.
        teachers: names of the models that it was distilled from.
        facts: further keys of `config.json`, which the model's task reads there.

    Raises:
        TrainingFailed: a weight is not finite; nothing is written.
    """
    from domainbert.encoders.names import to_hugging_face
    from domainbert.models.tensors import non_finite

    tensors = to_hugging_face(weights or model.state_dict(), families.name_map(config, head))
    if found := non_finite(tensors):
        raise diverged(f"{path}: {found}")
    fields = config.to_json() | {
        "architectures": [families.architecture(config, head)],
        "vocab_size": model.encoder.input_embeddings.num_embeddings,
        **_special_ids(config, tokenizer),
        "dtype": "float32",
        **(facts or {}),
    }
    if families.family_kind(head) != head:
        fields[_HEAD] = head
    if head is not None and model.head_config is not None:
        fields |= model.head_config.to_json()
    if teachers:
        fields[_TEACHERS] = list(teachers)
    if labels:
        fields["id2label"] = {str(index): name for index, name in enumerate(labels)}
        fields["label2id"] = {name: index for index, name in enumerate(labels)}
    _write_folder(path, tensors, fields, card)
    tokenizer.save(path, config.max_length if max_length is None else max_length, config.num_token_types > 1)


def save_with_vocabulary(
    path: Path, folder: ModelFolder, tensors: Mapping[str, Tensor], tokenizer: DomainTokenizer, card: str
) -> None:
    """Write the model of another folder with another vocabulary; whatever head it has, it keeps.

    Its `config.json` is kept but for what the vocabulary decides; `tensors` are those of `load_tensors`, with other
    word embeddings and masked-LM bias. `DomainbertError` if a weight is not finite; nothing is written then.
    """
    from domainbert.models.tensors import non_finite

    if found := non_finite(tensors):
        raise DomainbertError(f"{path}: {found}; expected finite weights: the model is not saved")
    config, own = folder.config, families.family(folder.config)
    tensors = own.with_padding(tensors, config, tokenizer.pad_id)
    vocab_size = len(tensors[own.per_entry(config)[0]])
    fields = {**folder.fields, **_special_ids(config, tokenizer), "vocab_size": vocab_size}
    if "tie_word_embeddings" in fields:
        fields["tie_word_embeddings"] = True  # what is equal is saved once
    _write_folder(path, tensors, fields, card)
    tokenizer.save(path, config.max_length, config.num_token_types > 1)


def _special_ids(config: EncoderConfig, tokenizer: DomainTokenizer) -> dict[str, int]:
    """Those that a `config.json` of the family has, and that the model's own has."""
    ids = {"pad_token_id": tokenizer.pad_id}
    ids |= dict.fromkeys(("bos_token_id", "cls_token_id"), tokenizer.cls_id)
    ids |= dict.fromkeys(("eos_token_id", "sep_token_id"), tokenizer.sep_id)
    has = {name for name in ids if name in config.special_ids or config.others.get(name) is not None}
    return {name: number for name, number in ids.items() if name in has}


def _write_folder(path: Path, tensors: Mapping[str, Tensor], fields: Mapping[str, Any], card: str) -> None:
    from safetensors.torch import save_file

    path.mkdir(parents=True, exist_ok=True)
    file = path / "model.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file, metadata={"format": "pt"})
    file.chmod(0o644)
    (path / "config.json").write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    (path / "README.md").write_text(card, encoding="utf-8")
