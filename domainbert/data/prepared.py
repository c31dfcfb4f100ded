"""Open a prepared corpus: token ids in memory-mapped files, read without copying.

`prepare` writes a folder that `datasets.load_from_disk` also opens:

    prepared.json             counts, fingerprint of the tokenizer, SHA-256 of each file
    tokenizer/                the tokenizer
    dataset_dict.json         for datasets, like the two JSON files in each split
    train/data-00000.arrow    Arrow stream files, one row per document: id, input_ids (without special tokens, except
                              between a text and its translation), starts_word (one bit per token), num_characters, and
                              language if the corpus has `languages`
    validation/...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from domainbert.base.errors import DomainbertError, Problems
from domainbert.corpus.languages import Languages
from domainbert.data.parts import COUNTS_FILE, split_parts
from domainbert.data.prepared_facts import SPLITS, TOKENIZER_FOLDER, check_files, read_facts
from domainbert.data.remote_files import CacheConfig, open_files
from domainbert.data.splits import LanguageSampling, PreparedCorpus, PreparedSplit


def open_prepared(
    folders: Sequence[Path], tokenizer_fingerprint: str | None = None, cache: CacheConfig | None = None
) -> PreparedCorpus:
    """Return one or several prepared folders, all with the same tokenizer, as one corpus.

    Every file is hashed (about one second per gigabyte and processor), so that a damaged file is reported here and not
    by a training hours later. The files of a corpus in parts are hashed by `prepare` and `merge`, or when they are
    fetched. A given `tokenizer_fingerprint` must be equal to the fingerprint of the corpus. `cache` is required if the
    parts are at a URL.

    >>> from domainbert import CorpusConfig, Source, open_prepared, prepare_corpus
    >>> corpus = CorpusConfig([Source("corpus.txt", documents="line")], validation_fraction=0.1)
    >>> _ = prepare_corpus(corpus, "model", "opened")
    >>> open_prepared(["opened"]).train.num_tokens
    2081

    Raises:
        DomainbertError: no folder, an unfinished folder, another tokenizer, or a missing or changed file.
    """
    if not folders:
        raise DomainbertError(where="prepared", found="an empty list", expected="at least one folder")
    folders = [Path(folder) for folder in folders]
    facts = [read_facts(folder) for folder in folders]
    in_parts = [folder for folder, content in zip(folders, facts, strict=True) if "parts" in content]
    if in_parts and len(folders) > 1:
        raise DomainbertError(
            where="prepared",
            found=f"{len(folders)} folders, but {in_parts[0]} was prepared with row_lengths",
            expected="one folder: to combine several that have row_lengths, run `merge`",
        )
    expected = tokenizer_fingerprint or facts[0]["tokenizer_fingerprint"]
    whose = "the model's tokenizer" if tokenizer_fingerprint else f"the tokenizer of {folders[0]}"
    problems = Problems("prepared")
    for folder, content in zip(folders, facts, strict=True):
        if content["tokenizer_fingerprint"] != expected:
            problems.add("prepared with another tokenizer", file=folder, hint=f"run `prepare` again with {whose}")
        alpha, first_alpha = (str(_language_alpha(part)).replace("None", "null") for part in (content, facts[0]))
        if alpha != first_alpha:
            problems.add(
                f"has corpus.languages.alpha {alpha}", file=folder, expected=f"{first_alpha}, as in {folders[0]}"
            )
        check_files(folder, content, problems)
    if not in_parts and cache is not None and cache.url is not None:
        problems.add(
            where="cache.url", found=f"{cache.url}, but {folders[0]} has no row_lengths", expected="no cache.url"
        )
    problems.raise_if_any()
    splits = _parted_splits(folders[0], facts[0], cache) if in_parts else _whole_splits(folders, facts)
    return PreparedCorpus(folders[0] / TOKENIZER_FOLDER, expected, facts[0]["vocab_size"], *splits)


def _whole_splits(folders: Sequence[Path], facts: Sequence[dict[str, Any]]) -> Sequence[PreparedSplit]:
    """Return the splits of corpora that were not prepared in parts, each split joined over the folders."""
    sampling = None
    alpha = _language_alpha(facts[0])
    if alpha is not None:
        languages = {name for content in facts for name in content["languages"]["tokens"]}
        sampling = LanguageSampling(sorted(languages), Languages(alpha))
    splits = []
    for split in SPLITS:
        paths: list[Path] = []
        for folder, content in zip(folders, facts, strict=True):
            paths += [folder / split / file["name"] for file in content["splits"][split]["files"]]
        splits.append(PreparedSplit(paths, sampling))
    return splits


def _parted_splits(folder: Path, facts: Mapping[str, Any], cache: CacheConfig | None) -> Sequence[PreparedSplit]:
    """The parts are at `cache.url`, at the URL in `facts` (the content of `prepared.json`), or else below `folder`."""
    if cache is not None and cache.url is not None and facts["url"] is None:
        raise DomainbertError(
            where="cache.url", found=f"{cache.url}, but {folder} has local parts", expected="no cache.url"
        )
    root = facts["url"] if cache is None or cache.url is None else cache.url
    counts = np.load(folder / COUNTS_FILE, allow_pickle=False)
    return split_parts(facts["parts"], open_files(root or str(folder), cache), facts["window"], counts)


def _language_alpha(facts: Mapping[str, Any]) -> float | None:
    return facts["languages"]["alpha"] if "languages" in facts else None
