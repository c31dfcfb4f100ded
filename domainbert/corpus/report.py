"""Counts of the documents that were read, kept, dropped and changed, with reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from domainbert.base.errors import counted


@dataclass
class SourceReport:
    """Counts of a source, of documents if not stated otherwise. Always `read + copies == documents + dropped`."""

    path: str
    files: int = 0  # files read
    files_ignored: int = 0  # files in a folder or glob without a reader
    files_cut: int = 0  # files or datasets of an excerpt that were not read to the end
    read_as: Counter[str] = field(default_factory=Counter)  # .txt files by the detected format
    read: int = 0  # documents read
    read_characters: int = 0
    documents: Counter[str] = field(default_factory=Counter)  # kept documents by split, copies included
    characters: Counter[str] = field(default_factory=Counter)  # characters of `documents` by split
    copies: int = 0  # additional copies, by a weight above 1
    dropped: Counter[str] = field(default_factory=Counter)  # by reason
    changed: Counter[str] = field(default_factory=Counter)  # by the change in cleaning
    control_characters: int = 0  # characters removed by cleaning
    excluded_sentences: int = 0  # sentences removed by `exclude`

    def lines(self) -> list[str]:
        """Return the counts as lines to print."""
        kept = " and ".join(f"{self.documents[split]:,} {split}" for split in ("train", "validation"))
        copies = f", {self.copies:,} of them copies by weight" if self.copies else ""
        files = f" from {counted(self.files, 'files')}" if self.files else ""
        ignored = f" ({self.files_ignored:,} files of other kinds ignored)" if self.files_ignored else ""
        formats = "".join(f", {count:,} .txt read as {name}" for name, count in sorted(self.read_as.items()))
        changed = format_counts(self.changed)
        changed += f" ({self.control_characters:,} control characters)" if self.control_characters else ""
        changed += f" ({self.excluded_sentences:,} excluded sentences)" if self.excluded_sentences else ""
        return [
            f"{self.path}: {self.read:,} documents, {self.read_characters:,} characters read{files}{formats}{ignored}",
            f"  kept: {kept}{copies}",
            f"  dropped: {format_counts(self.dropped)}",
            f"  changed: {changed}",
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return all counts by name, as JSON values; without `files_cut` and `excluded_sentences` if they are 0."""
        counts = {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(self).items()}
        return {
            name: value for name, value in counts.items() if value or name not in ("files_cut", "excluded_sentences")
        }


@dataclass
class CorpusReport:
    """Counts of a corpus, a `SourceReport` per source; updated while the documents are read."""

    sources: list[SourceReport] = field(default_factory=list)
    selection: dict[str, Any] | None = None
    """Paths of the target texts (`like`), numbers of all and of kept training documents, and `mean_log_weight` of the
    kept and of the dropped documents; None without `select`."""
    exclusion: dict[str, Any] | None = None  # files of `exclude`, counts of indexed and of too short texts; or None

    def add_source(self, path: str) -> SourceReport:
        """Add a source with counts of 0, and return its report."""
        self.sources.append(SourceReport(path))
        return self.sources[-1]

    def add_counts(self, report: Mapping[str, Any]) -> None:
        """Add the counts of another report, as returned by `as_dict`, to the sources with the same paths."""
        self.exclusion = report.get("exclusion", self.exclusion)
        for counts in report["sources"]:
            source = next((source for source in self.sources if source.path == counts["path"]), None)
            source = source or self.add_source(counts["path"])
            for name, value in counts.items():
                count = getattr(source, name)
                if isinstance(count, Counter):
                    count.update(value)
                elif isinstance(count, int):  # not the path
                    setattr(source, name, count + value)

    @property
    def read(self) -> int:
        """Number of documents read, of all sources."""
        return sum(source.read for source in self.sources)

    def documents(self, split: str) -> int:
        """Return the number of documents kept for a split; a document that is repeated n times counts n times."""
        return sum(source.documents[split] for source in self.sources)

    @property
    def dropped(self) -> Counter[str]:
        """Number of dropped documents by reason."""
        return sum((source.dropped for source in self.sources), Counter())

    def lines(self) -> list[str]:
        """Return the counts as lines to print."""
        lines = [line for source in self.sources for line in source.lines()]
        return lines + self._exclusion_lines() + self._selection_lines()

    def _exclusion_lines(self) -> list[str]:
        if self.exclusion is None:
            return []
        counts = self.exclusion
        num_texts = counts.get("num_texts", counts.get("looked_for"))  # `looked_for`: a part of an earlier version
        texts = f"texts of {', '.join(counts['texts'])}: {num_texts:,}"
        texts += f" (ignored files of other kinds: {counts['files_ignored']:,})" if "files_ignored" in counts else ""
        return [f"exclude: {texts}; ignored texts of fewer than 8 words: {counts['too_short']:,}"]

    def _selection_lines(self) -> list[str]:
        if self.selection is None:
            return []
        facts, means = self.selection, self.selection["mean_log_weight"]
        weights = (f"{mean:+.3f} {side}" for side, mean in means.items() if mean is not None)
        return [
            f"select: kept {facts['kept']:,} of {facts['documents']:,} training documents, most similar to "
            f"{', '.join(facts['like'])}; mean log weight of an n-gram {', '.join(weights)}"
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return the counts of the sources, of the selection and of the exclusion if there are any, as JSON values."""
        others = {"selection": self.selection, "exclusion": self.exclusion}
        present = {name: value for name, value in others.items() if value is not None}
        return {"sources": [source.as_dict() for source in self.sources], **present}


def format_counts(counts: Counter[str]) -> str:
    """Format counts by reason: "1,200 exact duplicates, 3 empty"."""
    return ", ".join(f"{count:,} {reason}" for reason, count in sorted(counts.items())) or "nothing"
