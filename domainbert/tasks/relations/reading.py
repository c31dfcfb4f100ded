"""Markers around entities in files, and those that a model reads there: settings that its folder keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from domainbert.base.errors import DomainbertError
from domainbert.labelled.contents import UnreadableContents
from domainbert.tasks.relations.config import RelationFormat, Relations
from domainbert.tasks.relations.marked import MarkedText, Markers
from domainbert.tokenization.load import DomainTokenizer

ADDED = ("[E1]", "[/E1]", "[E2]", "[/E2]")
"""The entries that a vocabulary gets, called as in Baldini Soares et al. 2019, in the order of `Markers`."""

_KEY = "domainbert_relations"  # of config.json
_OF_FORMAT = ("head_key", "tail_key", "head_markers", "tail_markers")


@dataclass(frozen=True)
class Reading:
    """The way in which a model reads the entities of a text."""

    kind: Literal["text", "tokens"]
    """See `Relations.markers`."""
    format: RelationFormat
    """Keys and markers of files."""

    @classmethod
    def of(cls, config: Relations) -> Reading:
        """That of the settings of a training."""
        return cls(config.markers, config.format)

    @classmethod
    def of_folder(cls, fields: Mapping[str, Any]) -> Reading:
        """That of a `config.json`; `DomainbertError` if it has none."""
        try:
            facts = dict(fields[_KEY])
            kind = facts.pop("markers")
            keys = {name: facts.pop(name) for name in _OF_FORMAT[:2]}
            before, after = (tuple(map(str, facts.pop(name))) for name in _OF_FORMAT[2:])
            if facts or kind not in ("text", "tokens") or not all(isinstance(key, str) for key in keys.values()):
                raise ValueError(f"found {fields[_KEY]!r:.200}")
            return cls(kind, RelationFormat(**keys, head_markers=_two(before), tail_markers=_two(after)))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DomainbertError(f"{_KEY}: {error}; expected what finetune writes for relations") from error

    def folder_facts(self) -> dict[str, Any]:
        """The key of `config.json` that `of_folder` reads."""
        facts = asdict(self.format)
        return {_KEY: {"markers": self.kind, **{name: facts[name] for name in _OF_FORMAT}}}

    @property
    def markers(self) -> Markers:
        """The markers that the model reads."""
        return ADDED if self.kind == "tokens" else self.format.markers

    @property
    def added_tokens(self) -> Sequence[str]:
        """Those that the vocabulary has to have as entries."""
        return ADDED if self.kind == "tokens" else ()

    def written(self, text: MarkedText) -> tuple[str, list[int]]:
        """A text as the model reads it, and where each of the four markers begins."""
        return text.written(self.markers, spaced=self.kind == "tokens")

    def check(self, tokenizer: DomainTokenizer, texts: Sequence[MarkedText]) -> None:
        """`DomainbertError` if the vocabulary cannot tell the markers apart, or a text holds an entry that is one."""
        pieces = tokenizer.encode(self.markers)
        for marker, ids in zip(self.markers, pieces, strict=True):
            alone = len(ids) == 1 or self.kind == "text"
            if not alone or tokenizer.unk_id in ids or pieces.count(ids) > 1:
                raise DomainbertError(
                    f"markers: {marker!r} is not in the vocabulary, or not different from another marker; "
                    "expected head_markers and tail_markers of the vocabulary, or markers: tokens"
                )
        found = {number: one for number, text in enumerate(texts) for one in self.added_tokens if one in text.text}
        if found:
            raise UnreadableContents(
                {number: f"the text contains {one}; expected {one} only as a marker" for number, one in found.items()}
            )


def _two(markers: Sequence[str]) -> tuple[str, str]:
    before, after = markers
    return before, after
