"""Opens model folders, in the format of Hugging Face's `transformers`, without torch; `loading` reads the weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.fields import PositiveInt, read_field
from domainbert.base.files import read_json
from domainbert.base.paths import check_regular, resolve_path
from domainbert.base.run_record import check_outputs_unchanged
from domainbert.encoders import families
from domainbert.encoders.config import EncoderConfig, VocabularyFacts, require
from domainbert.encoders.head_config import HeadConfig
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer

ONNX_FILE = "model.onnx"
SHARD_INDEX = ".index.json"  # end of the name of a file that lists the shards of the weights
TEACHERS_KEY = "domainbert_teachers"  # in config.json: names of the teachers
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
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
        return tuple(self.fields.get(TEACHERS_KEY, ()))

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
                f"the tokenizer has {tokenizer.vocab_size:,} entries, but vocab_size in config.json is "
                f"{self.vocab_size:,}",
                file=self.path,
                expected="the tokenizer of this model",
            )
        if self.config.position_offset and tokenizer.pad_id != self.config.pad_token_id:
            raise DomainbertError(
                f"the tokenizer's padding has id {tokenizer.pad_id}, but pad_token_id in config.json is "
                f"{self.config.pad_token_id}",
                file=self.path,
                expected="the tokenizer of this model, whose padding has the same id",
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
    check_regular(*folder.glob("*"))
    check_outputs_unchanged(folder, "config.json")
    if not file.is_file():
        models = sorted({*folder.glob("*/config.json"), *folder.glob("*/seeds.json")})
        inner = f", such as {models[0].parent}" if models else ""
        raise DomainbertError("no config.json", file=folder, expected=f"a model folder{inner}")

    try:
        fields: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return folder_of_fields(folder, fields, onnx or _onnx_without_weights(folder))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DomainbertError(f"not the config.json of a model ({error!r})", file=file) from error
    except DomainbertError as error:
        raise error.within(file=file) from error


def folder_of_fields(
    path: Path, fields: dict[str, Any], onnx: Path | None = None, tokenizer: DomainTokenizer | None = None
) -> ModelFolder:
    """Return the model folder with the `config.json` content `fields`; `path` need not exist if a `tokenizer` is given.

    Raises:
        DomainbertError: invalid content; other exceptions such as `TypeError` for values of another type.
    """
    config = families.config_class_of(fields).from_json(fields)
    fields.setdefault("model_type", config.model_type)
    read_field(fields, TEACHERS_KEY, list[str], [])
    head = _head_kind(fields, config)
    vocab_size = _vocab_size(fields, config)
    if head is not None:
        HeadConfig.from_json(head, fields)  # raises an error for an invalid value
    labels = {int(index): name for index, name in _id2label(fields, head).items()}
    if not all(isinstance(name, str) for name in labels.values()):
        raise DomainbertError(where="id2label", found="a label that is not text", expected="text for every label")
    if sorted(labels) != list(range(len(labels))):
        raise DomainbertError(
            where="id2label", found=f"keys {sorted(labels)!s:.80}", expected="0, 1, 2, ... without gaps"
        )
    label_names = tuple(labels[index] for index in range(len(labels)))
    folder = ModelFolder(path, config, vocab_size, head, label_names, fields, onnx)
    if tokenizer is not None:
        vars(folder)["_tokenizer"] = tokenizer  # sets the cached property
    return folder


def _id2label(fields: Mapping[str, Any], head: str | None) -> Mapping[Any, Any]:
    """Return the names of the head's outputs by index.

    Without `id2label`, a token or sequence head has the two default labels of transformers, which does not write them;
    other heads have no labels. A span head always has `SPAN_OUTPUTS`.
    """
    kind = families.base_kind(head)
    if kind == families.SPAN:
        return dict(enumerate(families.SPAN_OUTPUTS))
    two_labels = {0: "LABEL_0", 1: "LABEL_1"}
    default = two_labels if kind in (families.TOKENS, families.SEQUENCE) else {}
    names: Mapping[Any, Any] = fields.get("id2label", default)
    return names


def _vocab_size(fields: Mapping[str, Any], config: EncoderConfig) -> int:
    size: int = read_field(fields, "vocab_size", PositiveInt)
    pad = config.pad_token_id
    require(pad < size, where="pad_token_id", found=pad, expected=f"an id below vocab_size, which is {size:,}")
    return size


def find_weights(folder: Path) -> Path:
    """Return the path of the file with the weights, or of the index of their shards; safetensors are preferred. Raises
    `DomainbertError` if there are no weights, or they have changed since a stage wrote them."""
    check_outputs_unchanged(folder, "model*.safetensors*", "pytorch_model*.bin*")
    for name in _WEIGHTS:
        for file in (folder / name, folder / (name + SHARD_INDEX)):
            if file.is_file():
                return file
    raise DomainbertError(
        f"no {' and no '.join(_WEIGHTS)}",
        file=folder,
        expected="a model folder with its weights, in one file or in shards",
    )


def need_weights(folder: ModelFolder) -> None:
    """Raise `DomainbertError` if a folder has no weights, or was exported to ONNX: it cannot be trained."""
    if folder.onnx is not None:
        raise DomainbertError(
            "exported for ONNX Runtime", file=folder.onnx, expected="the model folder that was exported"
        )
    find_weights(folder.path)


def _onnx_without_weights(folder: Path) -> Path | None:
    weights = [*folder.glob("model*.safetensors*"), *folder.glob("pytorch_model*.bin*")]
    return folder / ONNX_FILE if (folder / ONNX_FILE).is_file() and not weights else None


def _head_kind(fields: dict[str, Any], config: EncoderConfig) -> str | None:
    """Return the kind of the head, or None for an encoder without a head. `architectures` names a class of
    transformers; `HEAD_KEY` names a kind of domainbert that extends this class."""
    names: list[str] = fields.get("architectures") or [""]
    class_kind = families.head_kind_of(config, names[0])
    own_kind = fields.get(HEAD_KEY)
    # `HEAD_KEY` may not fit the class: transformers keeps it when it saves the encoder with another head
    return own_kind if families.base_kind(own_kind) == class_kind else class_kind


def best_seed_folder(path: Path) -> Path:
    """Return the folder of the best seed on validation in a `finetune` folder; return other folders unchanged. Raises
    `DomainbertError` if `seeds.json` does not name an existing folder."""
    seeds = path / "seeds.json"
    if (path / "config.json").is_file() or not seeds.is_file():
        return path
    best = read_seeds(path).get("best")
    if best not in [child.name for child in path.iterdir() if child.is_dir()]:
        raise DomainbertError(
            f"best is {str(best)[:80]!r}", where=seeds, expected="the name of a folder next to this file"
        )
    return path / best


def read_seeds(path: Path) -> dict[str, Any]:
    """Return the content of `seeds.json` in a `finetune` folder, which must be unchanged."""
    check_outputs_unchanged(path, "seeds.json")
    seeds: dict[str, Any] = read_json(path / "seeds.json", "the seeds.json that finetune writes")
    return seeds
