"""The encoder families: every folder here with a `config.py` and a `model.py` is one.

So is such a folder in a user package, `mypkg/<model_type>/` (with _ for -), if the package is installed and registers
it by an entry point (`domainbert.families`), or once its `config.py` has been imported (`--allow-import
mypkg.<model_type>.config`). Nothing is imported because a model folder names it.
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

TOKENS, SEQUENCE, SPAN = "tokens", "sequence", "span"
"""Kinds of head: a label for each of some tokens; a label for each text, from its [CLS] or from all of it; for each of
some tokens how well a span begins there, and how well it ends."""

SPAN_OUTPUTS = ("start", "end")
"""Names of the outputs of a head of spans; transformers gives them no names."""

REPLACED = "replaced"
"""For each token one number, the higher the likelier it is none of the text's own (Clark et al. 2020, section 2)."""

PRETRAINING = "pretraining"
"""That of masked LM, and for each pair of segments whether they follow each other (Devlin et al. 2019, section 3.1; Lan
et al. 2020, section 3.1)."""

CRF = "crf"
"""A linear-chain CRF over the words that a token head labels."""

BIAFFINE = "biaffine"
"""Scores of each word as head of each other one, and of labels for that."""

_ON_TOP_OF = {CRF: TOKENS, BIAFFINE: None}
"""Kinds of our own: one of a family's with more on top, or None, the encoder alone. No family has to know of them."""


def family_names() -> list[str]:
    """The `model_type` of every family that is known, those of user packages included."""
    return sorted(_known())


def config_class(model_type: str) -> type[EncoderConfig]:
    """The configuration class of a family; `DomainbertError` for one that is not supported."""
    known = _known()
    if model_type not in known:
        raise DomainbertError(
            f"model_type: found {model_type!r}; supported families are {', '.join(sorted(known))} "
            "(--allow-import names the module that defines one of your own)"
        )
    return known[model_type]


def config_class_of(fields: Mapping[str, Any]) -> type[EncoderConfig]:
    """The configuration class for a `config.json`: by `model_type`, or where an older file has none by `architectures`.

    `DomainbertError` if neither names a supported family.
    """
    if "model_type" in fields:
        return config_class(fields["model_type"])
    names = set(fields.get("architectures") or ())
    for kind in reversed(_known().values()):  # ours first
        if any(names.intersection(classes) for classes in kind.architectures.values()):
            return kind
    found = f"architectures is {sorted(names)}" if names else "no architectures from which to infer it"
    lines = ", ".join(f'"model_type": "{name}"' for name in family_names())
    raise DomainbertError(f"model_type: missing, and {found}; expected one of these lines: {lines}")


def family(config: EncoderConfig) -> Family[Any]:
    """The `Family` of a configuration (this imports torch); `DomainbertError` for one that is not laid out as such."""
    from domainbert.encoders.family import Family

    module = type(config).__module__
    if not _at_home(type(config)):
        raise DomainbertError(
            f"{module}: model_type is {config.model_type!r}; expected the name of the folder it is in"
        )
    package = module.rpartition(".")[0]
    try:
        found = getattr(importlib.import_module(f"{package}.model"), "FAMILY", None)
    except ModuleNotFoundError as error:
        if error.name != f"{package}.model":
            raise
        raise DomainbertError(f"{package}: no model.py; expected one beside {module}, with the encoder") from error
    if not isinstance(found, Family):
        raise DomainbertError(f"{package}.model: FAMILY is {found!r}; expected a Family of domainbert.encoders.family")
    return found


def build_model(
    config: EncoderConfig,
    vocabulary: VocabularyFacts,
    head: HeadConfig | str,
    num_labels: int = 0,
) -> EncoderWithHead:
    """Build a freshly initialised encoder with a head: a configuration, or one of the `head_kinds` with its defaults.

    `num_labels` are outputs of a task's head. `DomainbertError` where the family has no such head, or the encoder does
    not go with the vocabulary.
    """
    from domainbert.encoders.biaffine import Biaffine
    from domainbert.encoders.crf import Crf
    from domainbert.encoders.heads import EncoderWithHead

    head = HeadConfig.of(head)
    own, kind = family(config), head.kind
    encoder = own.encoder(config, vocabulary)
    if kind not in head_kinds(config):
        raise DomainbertError(f"{config.model_type}: no head of kind {kind!r}; it has {', '.join(head_kinds(config))}")
    if kind == BIAFFINE:
        biaffine = Biaffine(encoder.hidden_size, num_labels, config.sizes.dropout, **head.sizes)
        head = replace(head, arc_size=biaffine.arc_size, label_size=biaffine.label_size)
        return EncoderWithHead(encoder, biaffine, head)
    module = own.head(family_kind(kind) or kind, config, encoder, num_labels)
    if kind == CRF:
        module.crf = Crf(num_labels)
    return EncoderWithHead(encoder, module, head)


def head_kinds(config: EncoderConfig) -> list[str]:
    """The kinds of head that a family has, and ours that stand on them or on its encoder."""
    own = [kind for kind in config.architectures if kind is not None]
    return own + [kind for kind, base in _ON_TOP_OF.items() if base is None or base in own]


def family_kind(kind: str | None) -> str | None:
    """The kind of head that a family makes for it; None where it is the encoder alone."""
    return kind if kind is None else _ON_TOP_OF.get(kind, kind)


def name_map(config: EncoderConfig, kind: str | None) -> NameMap:
    """Our parameter names to those of Hugging Face, for the encoder with a head of this kind, or without one."""
    from domainbert.encoders.biaffine import BIAFFINE_NAMES
    from domainbert.encoders.crf import CRF_NAMES

    own: dict[str | None, NameMap] = {CRF: CRF_NAMES, BIAFFINE: BIAFFINE_NAMES}
    return family(config).names(config, family_kind(kind)) | own.get(kind, {})


def architecture(config: EncoderConfig, kind: str | None) -> str:
    """The class of transformers that loads the encoder with a head of this kind, or without one."""
    return config.architectures[family_kind(kind)][0]


def kind_of(config: EncoderConfig, architecture: str) -> str | None:
    """The kind of head that a class of transformers has; None where it is none of those here."""
    return next((kind for kind, classes in config.architectures.items() if architecture in classes), None)


def _known() -> dict[str, type[EncoderConfig]]:
    choices_of(EncoderConfig)  # imports ours, and those of installed packages
    kinds = [kind for kind in concrete_subclasses(EncoderConfig) if _at_home(kind)]
    ours_last = sorted(kinds, key=lambda kind: kind.__module__.startswith("domainbert."))
    return {kind.model_type: kind for kind in ours_last}


def _at_home(kind: type[EncoderConfig]) -> bool:
    """Whether a class stands in a folder that is called as its family is."""
    folder = kind.__module__.rpartition(".")[0].rpartition(".")[2]
    return bool(folder) and folder == kind.model_type.replace("-", "_")
