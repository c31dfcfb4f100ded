"""domainbert: small, fast BERT models of one domain, from raw text to NER F1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from domainbert.inference import load_classifier, load_tagger

__all__ = ["load_classifier", "load_tagger"]


def __getattr__(name: str) -> Any:
    """Import torch only when a model is asked for."""
    if name in __all__:
        from domainbert import inference

        return getattr(inference, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
