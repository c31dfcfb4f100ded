"""Writes model folders, in the format of Hugging Face's `transformers`; `folder` reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError, divergence_error
from domainbert.base.files import replaced_files
from domainbert.encoders import families
from domainbert.encoders.config import EncoderConfig
from domainbert.models.folder import HEAD_KEY, TEACHERS_KEY, ModelFolder
from domainbert.tokenization.load import DomainTokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from domainbert.encoders.heads import EncoderWithHead


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
    """Write a model folder that `transformers` can load: weights, `config.json`, tokenizer and model card.

    Args:
        path: the folder; created if missing. Its files are replaced only after all new files are written; files that
            are not of a model are kept.
        head: the kind of head of the model; None saves only the encoder.
        card: text of the model card (README.md).
        labels: label names, in the order of the head's outputs.
        max_length: longest input in training, saved with the tokenizer; None takes the encoder's positions.
        weights: full state dict of a sharded model.
        teachers: names of the teachers of a distilled model.
        facts: further keys of `config.json`, for the model's task.

    Raises:
        TrainingFailed: a weight is not finite; nothing is written.
    """
    from domainbert.encoders.names import to_hugging_face
    from domainbert.models.loading import non_finite_problem

    tensors = to_hugging_face(weights or model.state_dict(), families.name_map(config, head))
    if problem := non_finite_problem(tensors):
        raise divergence_error(f"{path}: {problem}")
    fields = folder_fields(model, config, tokenizer, head, labels, teachers, facts)
    _write_folder(path, tensors, fields, card, tokenizer, config, max_length)


def folder_fields(
    model: EncoderWithHead,
    config: EncoderConfig,
    tokenizer: DomainTokenizer,
    head: str | None,
    labels: Sequence[str] = (),
    teachers: Sequence[str] = (),
    facts: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the content of `config.json` for a model folder; for the arguments see `save_model`."""
    fields = config.to_json() | {
        "architectures": [families.architecture(config, head)],
        "vocab_size": model.encoder.input_embeddings.num_embeddings,
        **_special_ids(config, tokenizer),
        "dtype": "float32",
        **(facts or {}),
    }
    if families.base_kind(head) != head:  # transformers has no class for this head
        fields[HEAD_KEY] = head
    if head is not None and model.head_config is not None:
        fields |= model.head_config.to_json()
    if teachers:
        fields[TEACHERS_KEY] = list(teachers)
    if labels:
        fields["id2label"] = {str(index): name for index, name in enumerate(labels)}
        fields["label2id"] = {name: index for index, name in enumerate(labels)}
    return fields


def save_with_vocabulary(
    path: Path,
    folder: ModelFolder,
    tensors: Mapping[str, Tensor],
    tokenizer: DomainTokenizer,
    card: str,
    max_length: int | None = None,
) -> None:
    """Write a copy of a model with another vocabulary; its head is kept.

    `tensors` come from `load_tensors`, with new word embeddings and masked-LM bias; only the values in `config.json`
    that depend on the vocabulary change. `max_length` is the longest input of the model, as in `save_model`. If a
    weight is not finite, raise `DomainbertError` and write nothing.
    """
    from domainbert.models.loading import non_finite_problem

    if problem := non_finite_problem(tensors):
        raise DomainbertError(
            f"{problem}, so nothing was saved to {path}", hint=f"check {folder.path} for very large weights"
        )
    config = folder.config
    family = families.family(config)
    tensors = family.with_pad_id(tensors, config, tokenizer.pad_id)
    word_embeddings, *_ = family.vocabulary_tensors(config)
    vocab_size = len(tensors[word_embeddings])
    fields = {**folder.fields, **_special_ids(config, tokenizer), "vocab_size": vocab_size}
    if "tie_word_embeddings" in fields:
        fields["tie_word_embeddings"] = True  # `load_tensors` drops copies of the embeddings, so readers must tie them
    _write_folder(path, tensors, fields, card, tokenizer, config, max_length)


def _special_ids(config: EncoderConfig, tokenizer: DomainTokenizer) -> dict[str, int]:
    """Return the ids of special tokens for `config.json`: at keys of the family, and at keys that the file has."""
    ids = {"pad_token_id": tokenizer.pad_id}
    ids |= dict.fromkeys(("bos_token_id", "cls_token_id"), tokenizer.cls_id)
    ids |= dict.fromkeys(("eos_token_id", "sep_token_id"), tokenizer.sep_id)
    keys = {name for name in ids if name in config.special_ids or config.extra_fields.get(name) is not None}
    return {name: token_id for name, token_id in ids.items() if name in keys}


def _write_folder(
    path: Path,
    tensors: Mapping[str, Tensor],
    fields: Mapping[str, Any],
    card: str,
    tokenizer: DomainTokenizer,
    config: EncoderConfig,
    max_length: int | None,
) -> None:
    from safetensors.torch import save_file

    with replaced_files(path, "config.json") as new:
        file = new / "model.safetensors"
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file, metadata={"format": "pt"})
        file.chmod(0o644)  # safetensors writes files that only their owner can read
        (new / "config.json").write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        (new / "README.md").write_text(card, encoding="utf-8")
        tokenizer.save(new, config.max_length if max_length is None else max_length, config.num_token_types > 1)
