"""Counts of the documents that were read, kept, dropped and changed, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class SourceReport:
    """The counts of one source. Always `read + copies == documents of both splits + dropped`."""

    path: str
    files: int = 0
    files_ignored: int = 0  # of a folder or glob, without a reader
    files_cut: int = 0  # of an excerpt: files, or datasets, that were not read to the end
    read_as: Counter[str] = field(default_factory=Counter)  # .txt files by the other kind of their first lines
    read: int = 0
    read_characters: int = 0
    documents: Counter[str] = field(default_factory=Counter)  # kept, by split, copies included
    characters: Counter[str] = field(default_factory=Counter)  # of these, by split
    copies: int = 0  # extra ones, because of a weight above 1
    dropped: Counter[str] = field(default_factory=Counter)  # by reason
    changed: Counter[str] = field(default_factory=Counter)  # by what cleaning changed in them
    control_characters: int = 0
    excluded_sentences: int = 0  # left out for `exclude`

    def lines(self) -> list[str]:
        """Two to four lines to print."""
        kept = " and ".join(f"{self.documents[split]:,} {split}" for split in ("train", "validation"))
        copies = f", {self.copies:,} of them copies by weight" if self.copies else ""
        files = f" from {self.files:,} {'file' if self.files == 1 else 'files'}" if self.files else ""
        ignored = f" ({self.files_ignored:,} files of other kinds ignored)" if self.files_ignored else ""
        told = "".join(f", {count:,} called .txt read as {kind}" for kind, count in sorted(self.read_as.items()))
        return [
            f"{self.path}: {self.read:,} documents, {self.read_characters:,} characters read{files}{told}{ignored}",
            f"  kept: {kept}{copies}",
            f"  dropped: {listed(self.dropped)}",
            f"  changed: {listed(self.changed)}"
            + (f" ({self.control_characters:,} control characters)" if self.control_characters else "")
            + (f" ({self.excluded_sentences:,} excluded sentences)" if self.excluded_sentences else ""),
        ]

    def as_dict(self) -> dict[str, Any]:
        """The counts as JSON can hold them; those of an excerpt and of `exclude` stand there if they are not 0."""
        counts = {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(self).items()}
        return {
            name: value for name, value in counts.items() if value or name not in ("files_cut", "excluded_sentences")
        }


@dataclass
class CorpusReport:
    """The counts of a corpus, one `SourceReport` per source; filled while the documents are read."""

    sources: list[SourceReport] = field(default_factory=list)
    selection: dict[str, Any] | None = None  # see `add_selection`
    exclusion: dict[str, Any] | None = None  # the files of `exclude`, how many texts are looked for, and too short

    def add_selection(self, like: Sequence[str], documents: int, kept: int, means: Sequence[float | None]) -> None:
        """Note how many training documents there were and were kept, and the mean log weights of kept and dropped."""
        counts = {"like": list(like), "documents": documents, "kept": kept}
        self.selection = {**counts, "mean_log_weight": dict(zip(("kept", "dropped"), means, strict=True))}

    def add_source(self, path: str) -> SourceReport:
        """Begin the counts of one more source."""
        self.sources.append(SourceReport(path))
        return self.sources[-1]

    def add(self, others: Mapping[str, Any]) -> None:
        """Add the counts of a report of other files, as `as_dict` gave them, to those of the same sources."""
        self.exclusion = others.get("exclusion", self.exclusion)
        for other in others["sources"]:
            found = next((source for source in self.sources if source.path == other["path"]), None)
            found = found or self.add_source(other["path"])
            for name, value in other.items():
                mine = getattr(found, name)
                if isinstance(mine, Counter):
                    mine.update(value)
                elif isinstance(mine, int):
                    setattr(found, name, mine + value)

    def ignore(self, files: Mapping[str, int]) -> None:
        """Note files of other kinds, by source."""
        for source in self.sources:
            source.files_ignored = files.get(source.path, 0)

    @property
    def read(self) -> int:
        """Documents read."""
        return sum(source.read for source in self.sources)

    def documents(self, split: str) -> int:
        """Documents kept for a split, copies included."""
        return sum(source.documents[split] for source in self.sources)

    @property
    def dropped(self) -> Counter[str]:
        """Documents dropped, by reason."""
        return sum((source.dropped for source in self.sources), Counter())

    def lines(self) -> list[str]:
        """The report as lines to print."""
        lines = [line for source in self.sources for line in source.lines()]
        return lines + self._exclusion_lines() + self._selection_lines()

    def _exclusion_lines(self) -> list[str]:
        if self.exclusion is None:
            return []
        found = self.exclusion
        told = f"{found['looked_for']:,} texts of {', '.join(found['texts'])}"
        told += f" ({found['files_ignored']:,} files of other kinds ignored)" if "files_ignored" in found else ""
        return [f"exclude: {told}; {found['too_short']:,} of fewer than 8 words are not looked for"]

    def _selection_lines(self) -> list[str]:
        if self.selection is None:
            return []
        facts, means = self.selection, self.selection["mean_log_weight"]
        shown = (f"{mean:+.3f} {side}" for side, mean in means.items() if mean is not None)
        return [
            f"select: kept {facts['kept']:,} of {facts['documents']:,} training documents, those most like "
            f"{', '.join(facts['like'])}; mean log weight of an n-gram {', '.join(shown)}"
        ]

    def as_dict(self) -> dict[str, Any]:
        """The report as values that JSON can hold."""
        others = {"selection": self.selection, "exclusion": self.exclusion}
        said = {name: value for name, value in others.items() if value is not None}
        return {"sources": [source.as_dict() for source in self.sources], **said}


def listed(counts: Counter[str]) -> str:
    """Counts by reason as text: "1,200 exact duplicates, 3 empty"."""
    return ", ".join(f"{count:,} {reason}" for reason, count in sorted(counts.items())) or "nothing"
