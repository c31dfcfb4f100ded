"""Registry of the encoder families: every subfolder with a `config.py` and a `model.py` is a family.

A user package can add a family in `mypkg/<model_type>/` (with _ for -): an installed package registers it by an entry
point (`domainbert.families`), or its `config.py` is imported with `--allow-import mypkg.<model_type>.config`. The
content of a model folder never causes an import.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from domainbert.base.choices import choices_of, concrete_subclasses
from domainbert.base.errors import DomainbertError
from domainbert.encoders.config import EncoderConfig, VocabularyFacts
from domainbert.encoders.head_config import HeadConfig

if TYPE_CHECKING:
    from domainbert.encoders.family import Family
    from domainbert.encoders.heads import EncoderWithHead
    from domainbert.encoders.names import NameMap

MASKED_LM, TOKENS, SEQUENCE, SPAN = "masked_lm", "tokens", "sequence", "span"
"""Kinds of head: vocabulary entries of tokens; labels of tokens; labels of texts; start and end scores of spans."""

SPAN_OUTPUTS = ("start", "end")
"""Names of the outputs of a span head, for which transformers has no names."""

REPLACED = "replaced"
"""Kind of head: logit that a token was replaced (Clark et al. 2020, section 2)."""

PRETRAINING = "pretraining"
"""Kind of head: masked LM, and whether the second segment of a pair follows the first (Devlin et al. 2019, section 3.1;
Lan et al. 2020, section 3.1)."""

CRF = "crf"
"""Kind of head: a token head with a linear-chain CRF over words."""

BIAFFINE = "biaffine"
"""Kind of head: scores of dependency arcs between words, and of their labels."""

_BASE_KIND = {CRF: TOKENS, BIAFFINE: None}
"""Heads that domainbert adds to all families, and the family's kind that they extend; None extends the encoder."""


def family_names() -> list[str]:
    """Return the `model_type` of all registered families, sorted, user packages included."""
    return sorted(_registered())


def config_class(model_type: str) -> type[EncoderConfig]:
    """Return the configuration class of a family. Raises `DomainbertError` if it is not registered."""
    registered = _registered()
    if model_type not in registered:
        raise DomainbertError(
            where="model_type",
            found=repr(model_type),
            expected=f"one of {', '.join(sorted(registered))} (--allow-import PKG allows a family of your own package)",
        )
    return registered[model_type]


def config_class_of(fields: Mapping[str, Any]) -> type[EncoderConfig]:
    """Return the configuration class for a `config.json`, by `model_type`, or without it by `architectures`.

    Raises `DomainbertError` if neither names a supported family.
    """
    if "model_type" in fields:
        return config_class(fields["model_type"])
    names = set(fields.get("architectures") or ())
    for cls in reversed(_registered().values()):  # domainbert's families first
        if any(names.intersection(classes) for classes in cls.architectures.values()):
            return cls
    reason = f"architectures is {sorted(names)}" if names else "no architectures from which to infer it"
    lines = ", ".join(f'"model_type": "{name}"' for name in family_names())
    raise DomainbertError(f"missing, and {reason}", where="model_type", expected=f"one of these lines: {lines}")


def family(config: EncoderConfig) -> Family[Any]:
    """Return the `Family` of a configuration; imports torch.

    Raises:
        DomainbertError: the package of the family has no valid `FAMILY`.
    """
    from domainbert.encoders.family import Family

    module = type(config).__module__
    if not _in_own_folder(type(config)):
        raise DomainbertError(
            where=f"{module}: model_type",
            found=repr(config.model_type),
            expected=f"{module.split('.')[-2]!r}, the name of the folder of config.py",
        )
    package = module.rpartition(".")[0]
    try:
        value = getattr(importlib.import_module(f"{package}.model"), "FAMILY", None)
    except ModuleNotFoundError as error:
        if error.name != f"{package}.model":
            raise
        raise DomainbertError(
            "no model.py beside config.py", where=package, expected="the encoder in model.py"
        ) from error
    if not isinstance(value, Family):
        raise DomainbertError(
            f"FAMILY is {value!r}", where=f"{package}.model", expected="a domainbert.encoders.family.Family()"
        )
    return value


def build_model(
    config: EncoderConfig, vocabulary: VocabularyFacts, head: HeadConfig | str, num_labels: int = 0
) -> EncoderWithHead:
    """Return a newly initialised encoder with a head. `head` is its configuration, or a kind with default options.

    `num_labels` is the number of outputs of a task's head. Raises `DomainbertError` if the family has no such head, or
    the vocabulary does not match the encoder.
    """
    from domainbert.encoders.biaffine import Biaffine
    from domainbert.encoders.crf import Crf
    from domainbert.encoders.heads import EncoderWithHead

    head = HeadConfig.of(head)
    builder, kind = family(config), head.kind
    encoder = builder.encoder(config, vocabulary)
    if kind not in head_kinds(config):
        kinds = ", ".join(head_kinds(config))
        raise DomainbertError(f"no head of kind {kind!r}", where=config.model_type, expected=f"one of {kinds}")
    if kind == BIAFFINE:
        biaffine = Biaffine(encoder.hidden_size, num_labels, config.sizes.dropout, **head.sizes)
        head = replace(head, arc_size=biaffine.arc_size, label_size=biaffine.label_size)
        return EncoderWithHead(encoder, biaffine, head)
    module = builder.head(base_kind(kind) or kind, config, encoder, num_labels)  # a CRF extends a token head
    if kind == CRF:
        module.crf = Crf(num_labels)
    return EncoderWithHead(encoder, module, head)


def head_kinds(config: EncoderConfig) -> list[str]:
    """Return the kinds of head of a family, with the kinds that domainbert adds to all families."""
    kinds = [kind for kind in config.architectures if kind is not None]
    return kinds + [kind for kind, base in _BASE_KIND.items() if base is None or base in kinds]


def base_kind(kind: str | None) -> str | None:
    """Return the kind of head of transformers that a kind of domainbert extends; None if it extends the encoder alone.
    Kinds that transformers has are returned unchanged."""
    return None if kind is None else _BASE_KIND.get(kind, kind)


def name_map(config: EncoderConfig, kind: str | None) -> NameMap:
    """Return the Hugging Face names by parameter, for the encoder with a head of this kind (None: no head)."""
    from domainbert.encoders.biaffine import BIAFFINE_NAMES
    from domainbert.encoders.crf import CRF_NAMES

    extra_names: dict[str | None, NameMap] = {CRF: CRF_NAMES, BIAFFINE: BIAFFINE_NAMES}
    return family(config).names(config, base_kind(kind)) | extra_names.get(kind, {})


def architecture(config: EncoderConfig, kind: str | None) -> str:
    """Return the name of the class in transformers for the encoder with a head of this kind (None: no head)."""
    written_class, *_ = config.architectures[base_kind(kind)]  # the first class is written, all are read
    return written_class


def head_kind_of(config: EncoderConfig, architecture: str) -> str | None:
    """Return the kind of head of a class of transformers; None for the encoder alone, or if it is not supported."""
    return next((kind for kind, classes in config.architectures.items() if architecture in classes), None)


def _registered() -> dict[str, type[EncoderConfig]]:
    """Return the configuration classes by `model_type`; domainbert's own are last, so that they take precedence."""
    choices_of(EncoderConfig)  # imports the families of domainbert and of installed packages
    classes = [cls for cls in concrete_subclasses(EncoderConfig) if _in_own_folder(cls)]
    classes.sort(key=lambda cls: cls.__module__.startswith("domainbert."))
    return {cls.model_type: cls for cls in classes}


def _in_own_folder(cls: type[EncoderConfig]) -> bool:
    folder = cls.__module__.rpartition(".")[0].rpartition(".")[2]
    return bool(folder) and folder == cls.model_type.replace("-", "_")
