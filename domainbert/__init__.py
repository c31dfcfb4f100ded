"""domainbert: small, fast BERT models of one domain, from raw text to NER F1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from domainbert.serving.by_name import load_classifier, load_tagger
    from domainbert.serving.predictor import load_predictor
    from domainbert.tasks.labelled import TextPair

    __version__: str

__all__ = ["TextPair", "__version__", "load_classifier", "load_predictor", "load_tagger"]


def __getattr__(name: str) -> Any:
    """Import torch only when a model is asked for; the version is that of the installed package."""
    if name == "__version__":
        from importlib.metadata import version

        return version("domainbert")
    if name == "TextPair":
        from domainbert.tasks.labelled import TextPair

        return TextPair
    if name in __all__:
        from domainbert.serving import by_name, predictor

        return getattr(predictor if name == "load_predictor" else by_name, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
