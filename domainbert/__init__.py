"""domainbert: small, fast BERT models of one domain, from raw text to NER F1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from domainbert.labelled.contents import TextPair
    from domainbert.serving.attention_maps import attention_maps
    from domainbert.serving.attributions import attributions
    from domainbert.serving.by_name import load_classifier, load_tagger
    from domainbert.serving.predictor import load_predictor

    __version__: str

__all__ = [
    "TextPair",
    "__version__",
    "attention_maps",
    "attributions",
    "load_classifier",
    "load_predictor",
    "load_tagger",
]


def __getattr__(name: str) -> Any:
    """Import torch only when a model is asked for; the version is that of the installed package."""
    if name == "__version__":
        from importlib.metadata import version

        return version("domainbert")
    if name == "TextPair":
        from domainbert.labelled.contents import TextPair

        return TextPair
    if name in __all__:
        from domainbert.serving import attention_maps, attributions, by_name, predictor

        homes = (attention_maps, attributions, by_name, predictor)
        return next(getattr(home, name) for home in homes if name in vars(home))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
