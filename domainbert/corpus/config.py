"""Settings of a corpus and its sources."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.fields import Items, PositiveFraction, PositiveInt, Range, check_fields
from domainbert.base.paths import check_hub_name
from domainbert.corpus.files import reads_below
from domainbert.corpus.languages import Languages, LanguageShares
from domainbert.corpus.sources import files_of_source, list_files

_HUB = "hub:"
_LANGUAGE = re.compile(r"[\w-]+")  # a language is a part of metric names
CorpusFormat = Literal["auto", "text", "jsonl", "csv", "parquet", "conll"]


@dataclass(frozen=True)
class Source:
    """A file, folder, glob or Hugging Face hub dataset.

    >>> from domainbert import Source
    >>> Source("texts/**/*.txt", documents="blank_line").weight
    1.0
    """

    shorthand = "path"  # no annotation, so it is no field; a single text is the path

    path: str
    """File (.txt, .jsonl, .csv, .parquet or .conll, plain, .gz or .zst), folder of such files, glob such as
    `texts/**/*.txt`, or `hub:NAME` for a dataset of the Hugging Face hub, which is streamed."""

    format: CorpusFormat = "auto"
    """Format of the files. "auto" uses the suffix and ignores files with other suffixes; a .txt file whose first lines
    are CoNLL or JSONL is read in that format. Another value applies to all files, with any suffix."""

    text_key: str = "text"
    """Key (JSONL) or column (CSV, Parquet, hub) of the text."""

    translation_key: str | None = None
    """Key or column of the translation. Each document is then a pair, `A [SEP] B` (translation LM)."""

    translation: Path | None = None
    """File whose line n is the translation of line n; only for a plain text file with `documents: line`."""

    documents: Literal["file", "blank_line", "line"] = "file"
    """Unit of a document in plain text: a whole file, the text between blank lines, or a line. Other files have a
    document per row."""

    weight: Annotated[float, Range(0, 1000, exclude_low=True)] = 1.0
    """Number of copies of each document: 2 writes training documents twice, 0.5 keeps half of all documents, selected
    by hash. Validation documents are never duplicated."""

    language: str | None = None
    """Language of the texts, any name (`fr`); required with `languages`. Several sources may have the same language."""

    hub_config: str | None = None
    """Configuration (subset) of a hub dataset, if it has several."""

    hub_split: str = "train"
    """Split to read from a hub dataset; domainbert splits it into training and validation documents."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(self.path) if isinstance(self.path, Path) else self.path)
        check_fields(self)
        if self.language is not None and not _LANGUAGE.fullmatch(self.language):
            raise DomainbertError(
                where="language", found=repr(self.language), expected="letters, digits, - and _ (fr, zh-Hant)"
            )
        if not self.path:
            raise DomainbertError(where="path", found="''", expected="a file, folder, glob or hub:NAME")
        if self.translation is not None and self.translation_key is not None:
            raise DomainbertError(where="translation", found="next to translation_key", expected="only one of the two")
        if self.translation is not None and self.documents != "line":
            raise DomainbertError(
                where="translation", found=f"next to documents: {self.documents}", expected="documents: line"
            )
        if self.path.startswith(_HUB):
            name, revision = check_hub_name(self.path)
            if revision is not None:
                raise DomainbertError(
                    where="path", found=self.path, expected=f"hub:{name} (revisions are not supported)"
                )

    @property
    def num_files(self) -> int:
        """Number of files on disk, without a translation."""
        return 0 if self.hub_name is not None else len(files_of_source(self))

    def reads_below(self, folder: Path) -> bool:
        """Return whether files that are written into a folder, or below it, would become files of the source."""
        return self.hub_name is None and reads_below(self.path, folder)

    @property
    def hub_name(self) -> str | None:
        """`NAME` of `hub:NAME`, or None for a source on disk."""
        return self.path.removeprefix(_HUB) if self.path.startswith(_HUB) else None


@dataclass(frozen=True)
class Select:
    """Selection of the documents that are most similar to a target text, such as the text of a task."""

    like: Annotated[list[Source], Items()]
    """Target texts, labelled or not: the words of CoNLL, the text under `text_key` of JSONL. Do not use a test set on
    which you will report scores."""

    keep: PositiveFraction
    """Fraction of the training documents to keep: the documents with the highest mean importance weight of hashed
    n-grams (DSIR, Xie et al. 2023). Validation documents are not selected, so that runs with and without `select` can
    be compared."""

    def __post_init__(self) -> None:
        check_fields(self)
        _check_reference_texts(self.like, "like")

    def input_files(self, without: Collection[str] = ()) -> list[Path]:
        """Return the files of the target texts; see `CorpusConfig.input_files`."""
        return list_files([source for source in self.like if source.path not in without], "like")

    @property
    def all_sources(self) -> dict[str, Source]:
        """Sources by the name of their setting."""
        return {f"like[{index}]": source for index, source in enumerate(self.like)}


def _check_reference_texts(sources: Sequence[Source], key: str) -> None:
    # a weight or language has no effect on texts that a corpus is compared with
    for index, source in enumerate(sources):
        if source.weight != 1:
            raise DomainbertError(
                where=f"{key}[{index}].weight", found=f"{source.weight:g}", expected=f"no weight in {key}"
            )
        if source.language is not None:
            raise DomainbertError(
                where=f"{key}[{index}].language", found=repr(source.language), expected=f"no language in {key}"
            )


@dataclass(frozen=True)
class CorpusConfig:
    """Sources of the documents, filters, and the fraction for validation.

    >>> from domainbert import CorpusConfig, Source
    >>> CorpusConfig([Source("law.jsonl"), Source("news.txt", weight=0.5)]).validation_fraction
    0.02
    """

    shorthand = "sources"  # a single path is a list of one source

    sources: Annotated[list[Source], Items()]
    """Sources of the documents, read in this order."""

    min_characters: PositiveInt = 20
    """Minimum number of characters of a document after cleaning; shorter documents are dropped."""

    deduplicate: bool = True
    """Drop exact duplicates: documents with the same cleaned text as an earlier document of any source."""

    near_duplicate_threshold: PositiveFraction | None = None
    """Also drop near duplicates: documents whose Jaccard similarity of five-word runs with an earlier document,
    estimated by MinHash, is at least this value, such as 0.8. Needs `pip install domainbert[near-duplicates]`."""

    validation_fraction: Annotated[float, Range(0, 1, exclude_high=True)] = 0.02
    """Fraction of the documents held out for validation, selected by a hash of the cleaned text: the split of a
    document does not depend on the other documents."""

    select: Select | None = None
    """Keep only the training documents that are most similar to a target text: {like: labelled.conll, keep: 0.2}. The
    corpus is then read three times."""

    exclude: Annotated[list[Source], Items()] | None = None
    """Texts to remove from the corpus, such as test sets. Drops every sentence that shares a run of 13 words with one
    of the texts, or contains a whole text of 8 to 12 words; shorter texts are ignored. A text is a sentence of CoNLL,
    a text under `text_key` of JSONL, or a line of plain text."""

    languages: Languages | None = None
    """Sampling of languages for `vocab` and for the batches of a training: {alpha: 0.3}. Each source then needs a
    `language` and must have no `weight`."""

    def __post_init__(self) -> None:
        check_fields(self)
        _check_reference_texts(self.exclude or (), "exclude")
        problems = Problems("corpus")
        for index, source in enumerate(self.sources):
            where = f"sources[{index}]"
            if self.languages is None and source.language is not None:
                hint = "set languages: {alpha: 0.3} next to sources or no language"
                problems.add(where=f"{where}.language", found=f"{source.language!r} without languages", hint=hint)
            elif self.languages is not None and source.language is None:
                problems.add(
                    "missing with languages", where=f"{where}.language", expected=f"the language of {source.path}"
                )
            elif self.languages is not None and source.weight != 1:
                found = f"{source.weight:g} next to languages, which sets the share of each language"
                problems.add(where=f"{where}.weight", found=found, expected="no weight")
        problems.raise_if_any()

    def check_preparable(self, in_parts: bool) -> None:
        """Raise `DomainbertError` if `prepare` cannot split the corpus into training and validation documents.
        Validation needs documents. With `in_parts`, the corpus is prepared in parts that must not depend on each
        other."""
        problems = Problems("prepare")
        if self.validation_fraction == 0:
            problems.add(
                where="corpus.validation_fraction", found="0", expected="a positive value: validation needs documents"
            )
        if in_parts:
            for index, source in enumerate(self.sources):
                if source.hub_name is not None:
                    found = f"next to {source.path} (corpus.sources[{index}])"
                    problems.add(where="row_lengths", found=found, expected="only sources on disk, or no row_lengths")
            for name in ("languages", "select"):
                if getattr(self, name) is not None:
                    problems.add(where="row_lengths", found=f"next to corpus.{name}", expected="only one of the two")
        problems.raise_if_any()

    @property
    def language_names(self) -> list[str]:
        """Distinct languages in the order of their sources; [] without `languages`."""
        return list(dict.fromkeys(source.language for source in self.sources if source.language is not None))

    def language_shares(self, sizes: Mapping[str, int]) -> LanguageShares | None:
        """Return the sampling shares of the languages, or None without `languages`. `sizes` maps each language to the
        size of its text, in any unit; 0 if it is missing."""
        if self.languages is None:
            return None
        return self.languages.shares({name: sizes.get(name, 0) for name in self.language_names})

    def input_files(self, without: Collection[str] = ()) -> list[Path]:
        """Return all input files, the files of `exclude` last. Skips sources with a path in `without`; hub datasets
        have no files."""
        excluded = list_files([source for source in self.exclude or () if source.path not in without], "exclude")
        return list_files([source for source in self.sources if source.path not in without]) + excluded

    @property
    def all_sources(self) -> dict[str, Source]:
        """Sources by the name of their setting, also the sources of `exclude`."""
        sources = {f"sources[{index}]": source for index, source in enumerate(self.sources)}
        return sources | {f"exclude[{index}]": source for index, source in enumerate(self.exclude or ())}
