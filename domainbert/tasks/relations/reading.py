"""Markers around entities in files and in the model's input; settings that a model folder stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from domainbert.base.errors import DomainbertError
from domainbert.labelled.contents import UnreadableContents
from domainbert.tasks.relations.config import RelationFormat, Relations
from domainbert.tasks.relations.marked import MarkedText, Markers
from domainbert.tokenization.load import DomainTokenizer

ADDED_MARKERS = ("[E1]", "[/E1]", "[E2]", "[/E2]")
"""Added vocabulary entries, with the names of Baldini Soares et al. 2019, in the order of `Markers`."""

_KEY = "domainbert_relations"  # of config.json
_FORMAT_FIELDS = ("head_key", "tail_key", "head_markers", "tail_markers")


@dataclass(frozen=True)
class MarkerReading:
    """How a model reads the entities of a text."""

    kind: Literal["text", "tokens"]
    """See `Relations.markers`."""
    format: RelationFormat
    """Keys and markers of files."""

    @classmethod
    def from_config(cls, config: Relations) -> MarkerReading:
        """Return the marker reading of a training with these settings."""
        return cls(config.markers, config.format)

    @classmethod
    def from_model_folder(cls, fields: Mapping[str, Any]) -> MarkerReading:
        """Return the marker reading in a `config.json`; raise `DomainbertError` if it is missing or invalid."""
        try:
            facts = dict(fields[_KEY])
            kind = facts.pop("markers")
            keys = {name: facts.pop(name) for name in _FORMAT_FIELDS[:2]}
            (before_head, after_head), (before_tail, after_tail) = (
                map(str, facts.pop(key)) for key in _FORMAT_FIELDS[2:]
            )
            if facts or kind not in ("text", "tokens") or not all(isinstance(key, str) for key in keys.values()):
                raise ValueError(f"found {fields[_KEY]!r:.200}")
            head_markers, tail_markers = (before_head, after_head), (before_tail, after_tail)
            return cls(kind, RelationFormat(**keys, head_markers=head_markers, tail_markers=tail_markers))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DomainbertError(f"{_KEY}: {error}; expected what finetune writes for relations") from error

    def model_config_fields(self) -> dict[str, Any]:
        """Return the `config.json` entry that `from_model_folder` reads."""
        facts = asdict(self.format)
        return {_KEY: {"markers": self.kind, **{name: facts[name] for name in _FORMAT_FIELDS}}}

    @property
    def markers(self) -> Markers:
        """Return the markers that the model reads."""
        return ADDED_MARKERS if self.kind == "tokens" else self.format.markers

    @property
    def added_tokens(self) -> Sequence[str]:
        """Return the markers that must be vocabulary entries; () if markers are plain text."""
        return ADDED_MARKERS if self.kind == "tokens" else ()

    def text_to_read(self, text: MarkedText) -> tuple[str, list[int]]:
        """Return a text as the model reads it, and the start of each of the four markers."""
        return text.with_markers(self.markers, spaced=self.kind == "tokens")

    def check(self, tokenizer: DomainTokenizer, texts: Sequence[MarkedText]) -> None:
        """Raise `DomainbertError` if the vocabulary cannot distinguish markers, or a text contains an added marker."""
        all_ids = tokenizer.encode(self.markers)
        for marker, ids in zip(self.markers, all_ids, strict=True):
            valid_length = len(ids) == 1 or self.kind == "text"
            if not valid_length or tokenizer.unk_id in ids or all_ids.count(ids) > 1:
                raise DomainbertError(
                    f"markers: {marker!r} is not in the vocabulary, or not different from another marker; "
                    "expected head_markers and tail_markers of the vocabulary, or markers: tokens"
                )
        problems = {
            index: f"the text contains {token}; expected {token} only as a marker"
            for index, text in enumerate(texts)
            for token in self.added_tokens
            if token in text.text
        }
        if problems:
            raise UnreadableContents(problems)
