"""Settings of a corpus and of its sources, as written in YAML."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.paths import check_hub_name
from domainbert.base.ranges import Items, PositiveFraction, PositiveInt, Range
from domainbert.base.validation import check_fields
from domainbert.corpus.languages import Languages, LanguageShares
from domainbert.corpus.sources import list_files

_HUB = "hub:"
_LANGUAGE = re.compile(r"[\w-]+")  # it stands in names of metrics
CorpusFormat = Literal["auto", "text", "jsonl", "csv", "parquet", "conll"]


@dataclass(frozen=True)
class Source:
    """One file, folder, glob or Hugging Face hub dataset.

    >>> from domainbert import Source
    >>> Source("texts/**/*.txt", documents="blank_line").weight
    1.0
    """

    shorthand = "path"  # no annotation, so no field; a text alone is the path

    path: str
    """A file (.txt, .jsonl, .csv, .parquet or .conll, plain, .gz or .zst), a folder of such files, a glob such as
    `texts/**/*.txt`, or `hub:NAME` for a dataset of the Hugging Face hub, which is streamed."""

    format: CorpusFormat = "auto"
    """The format of the files. "auto" tells it by the suffix, and ignores other files of a folder; a .txt file whose
    first lines are CoNLL or JSONL is read as such, and counted. Another value applies to all files, whatever their
    suffix."""

    text_key: str = "text"
    """The key (JSONL) or column (CSV, Parquet, hub) that holds the text."""

    translation_key: str | None = None
    """The key or column that holds the text's translation: a document is then a pair, `A [SEP] B` (translation LM)."""

    translation: Path | None = None
    """For a file of plain text with `documents: line`: the file whose line n is the translation of line n."""

    documents: Literal["file", "blank_line", "line"] = "file"
    """For plain text only. One document is a whole file, the text between blank lines, or a line."""

    weight: Annotated[float, Range(0, 1000, above=True)] = 1.0
    """Copies of a document: 2 writes each training document twice, 0.5 keeps half of all documents, chosen
    by their hash. A validation document is never written twice."""

    language: str | None = None
    """The language of the texts, by any name (`fr`): with `languages` each source has one, and several may have the
    same."""

    hub_config: str | None = None
    """The configuration (subset) of a hub dataset, where it has several."""

    hub_split: str = "train"
    """The split of a hub dataset that is read; domainbert makes its own split into training and validation."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.language is not None and not _LANGUAGE.fullmatch(self.language):
            raise DomainbertError(f"language: found {self.language!r}; expected letters, digits, - and _ (fr, zh-Hant)")
        if not self.path:
            raise DomainbertError("path: found ''; expected a file, folder, glob or hub:NAME")
        if self.translation is not None and (self.translation_key is not None or self.documents != "line"):
            beside = f"documents: {self.documents}" if self.translation_key is None else "translation_key"
            raise DomainbertError(
                f"translation: found beside {beside}; expected documents: line and no translation_key"
            )
        if self.path.startswith(_HUB):
            name, revision = check_hub_name(self.path)
            if revision is not None:
                found = f"found {self.path}; expected hub:{name}"
                raise DomainbertError(f"path: {found}, which is read as it is now on the hub")

    @property
    def hub_name(self) -> str | None:
        """`NAME` of `hub:NAME`, or None for a source on disk."""
        return self.path.removeprefix(_HUB) if self.path.startswith(_HUB) else None


@dataclass(frozen=True)
class Select:
    """The part of the documents that is kept: those most like some text, such as that of a task."""

    like: Annotated[list[Source], Items()]
    """Text of the task, labelled or not: of CoNLL the words are read, of JSONL the text under `text_key`. Never its
    test set, if you will report scores on it."""

    keep: PositiveFraction
    """The part of the training documents that is kept, 0.2 for a fifth: those with the highest importance weights of
    hashed n-grams (DSIR, Xie et al. 2023), as means over a document. A document is kept or dropped as a whole. The
    documents held out for validation stay as they are, so that runs with and without can be compared."""

    def __post_init__(self) -> None:
        check_fields(self)
        _check_read_alone(self.like, "like")

    def input_files(self, without: Collection[str] = ()) -> list[Path]:
        """All files that the documents are compared with; see `CorpusConfig.input_files`."""
        return list_files([source for source in self.like if source.path not in without], "like")


def _check_read_alone(sources: Sequence[Source], key: str) -> None:
    """`DomainbertError` for settings of sources of a corpus that mean nothing in texts that it is compared with."""
    for number, source in enumerate(sources):
        if source.weight != 1:
            raise DomainbertError(f"{key}[{number}].weight: found {source.weight:g}; expected 1, or none")
        if source.language is not None:
            raise DomainbertError(f"{key}[{number}].language: found {source.language}; expected none")


@dataclass(frozen=True)
class CorpusConfig:
    """Sources of the documents, the choice of those that are kept, and the share held out for validation.

    >>> from domainbert import CorpusConfig, Source
    >>> CorpusConfig([Source("law.jsonl"), Source("news.txt", weight=0.5)]).validation_fraction
    0.02
    """

    shorthand = "sources"  # a path alone is one source, a list is several

    sources: Annotated[list[Source], Items()]
    """Read in this order."""

    min_characters: PositiveInt = 20
    """Documents with fewer characters, after cleaning, are dropped."""

    deduplicate: bool = True
    """Drop a document whose cleaned text was read before, in any source."""

    near_duplicate_threshold: PositiveFraction | None = None
    """Also drop a document that shares at least this part (0.8, say) of its runs of five words with an earlier one:
    the Jaccard similarity, estimated by MinHash. Needs `pip install domainbert[near-duplicates]`."""

    validation_fraction: Annotated[float, Range(0, 1, below=True)] = 0.02
    """The part of the documents held out for validation, chosen by a hash of the cleaned text: a document never
    changes side, whatever else is in the corpus."""

    select: Select | None = None
    """Keep only the training documents that are most like some text: {like: labelled.conll, keep: 0.2}. The corpus is
    then read three times."""

    exclude: Annotated[list[Source], Items()] | None = None
    """Texts that must not be in it, such as test sets: of a document the sentences are left out that share a run of 13
    words with one of them, or have it as a whole if it is of 8 to 12 words. Shorter texts are not looked for. Of CoNLL
    the sentences are read, of JSONL the texts under `text_key`, of plain text the lines."""

    languages: Languages | None = None
    """Shares of the languages in the sample of `vocab` and in the batches of a training: {alpha: 0.3}. Each
    source then has a `language`, and none a `weight`."""

    def __post_init__(self) -> None:
        check_fields(self)
        _check_read_alone(self.exclude or (), "exclude")
        problems = Problems("corpus")
        for number, source in enumerate(self.sources):
            where = f"sources[{number}]"
            if self.languages is None and source.language is not None:
                found = f"found {source.language} without languages"
                problems.add(f"{where}.language: {found}; expected languages: {{alpha: 0.3}} beside the sources")
            elif self.languages is not None and source.language is None:
                problems.add(f"{where}.language: found none beside languages; expected the language of {source.path}")
            elif self.languages is not None and source.weight != 1:
                found = f"found {source.weight:g} beside languages"
                problems.add(f"{where}.weight: {found}, which say how often each is read; expected 1, or none")
        problems.raise_if_any()

    def check_prepared(self, in_parts: bool) -> None:
        """Check that a training and a validation split can be prepared of it, whole or in parts.

        Raises:
            DomainbertError: nothing is held out for validation; or the parts would depend on each other.
        """
        problems = Problems("prepare")
        if self.validation_fraction == 0:
            problems.add("corpus.validation_fraction: found 0; expected more, as a model is measured on some documents")
        if in_parts:
            for number, source in enumerate(self.sources):
                if source.hub_name is not None:
                    problems.add(f"row_lengths: found beside corpus.sources[{number}], {source.path}; expected files")
            for name in ("languages", "select"):
                if getattr(self, name) is not None:
                    problems.add(f"row_lengths: found beside corpus.{name}; expected one of the two")
        problems.raise_if_any()

    @property
    def language_names(self) -> list[str]:
        """The languages in the order of their sources; none where there is no `languages`."""
        return list(dict.fromkeys(source.language for source in self.sources if source.language is not None))

    def language_shares(self, sizes: Mapping[str, int]) -> LanguageShares | None:
        """The languages with their sizes, in any unit, and their shares; None where there is no `languages`."""
        if self.languages is None:
            return None
        return self.languages.shares({name: sizes.get(name, 0) for name in self.language_names})

    def input_files(self, without: Collection[str] = ()) -> list[Path]:
        """All files that will be read, those of `exclude` last, but of the sources with the paths `without`; hub
        datasets have none.

        Raises:
            DomainbertError: a file or folder does not exist, or a folder or glob holds nothing to read.
        """
        excluded = list_files([source for source in self.exclude or () if source.path not in without], "exclude")
        return list_files([source for source in self.sources if source.path not in without]) + excluded
