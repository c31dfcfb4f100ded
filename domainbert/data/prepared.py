"""The prepared corpus: token ids on disk, memory-mapped, read without copying.

`prepare` writes a folder that `datasets.load_from_disk` opens too:

    prepared.json             what the folder holds, the fingerprint of the tokenizer, the SHA-256 of each file
    tokenizer/                the tokenizer that made the ids
    dataset_dict.json         for datasets, as are the two JSON files in each split
    train/data-00000.arrow    Arrow stream files, a row a document: id, input_ids (no special tokens but those between
                              a text and its translation), starts_word (a bit a token), num_characters; language, if
                              the corpus has `languages`
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
    """Open folders that `prepare` wrote, all with the same tokenizer, one after the other as one corpus.

    Every file is hashed, about a second per gigabyte and processor: a bit that flipped on a disk is told here, and not
    by a training that fails, or learns nonsense, hours later. Of a corpus in parts the files were hashed as they were
    written, and by `merge`; from afar, as they are fetched. The fingerprint is that of the tokenizer to be used with
    them; None takes whichever it is. The `cache` is for a corpus whose parts are at a URL.

    >>> from domainbert import CorpusConfig, Source, open_prepared, prepare_corpus
    >>> corpus = CorpusConfig([Source("corpus.txt", documents="line")], validation_fraction=0.1)
    >>> _ = prepare_corpus(corpus, "model", "opened")
    >>> open_prepared(["opened"]).train.num_tokens
    2081

    Raises:
        DomainbertError: no folder, one that `prepare` did not finish, another tokenizer, a file that is missing or is
            not as it was written.
    """
    if not folders:
        raise DomainbertError("prepared: no folder; expected at least one")
    folders = [Path(folder) for folder in folders]
    facts = [read_facts(folder) for folder in folders]
    parted = [folder for folder, content in zip(folders, facts, strict=True) if "parts" in content]
    if parted and len(folders) > 1:
        raise DomainbertError(
            f"prepared: {parted[0]} is a corpus in parts; expected it alone: `merge` makes one of all"
        )
    expected = tokenizer_fingerprint or facts[0]["tokenizer_fingerprint"]
    whose = "the model's tokenizer" if tokenizer_fingerprint else f"the tokenizer of {folders[0]}"
    problems = Problems("prepared")
    for folder, content in zip(folders, facts, strict=True):
        if content["tokenizer_fingerprint"] != expected:
            found = content["tokenizer_fingerprint"][:12]
            problems.add(f"{folder}: prepared with another tokenizer ({found}); expected {whose} ({expected[:12]})")
        if (found := _alpha(content)) != (alpha := _alpha(facts[0])):
            problems.add(f"{folder}: prepared with languages.alpha {found}; expected {alpha}, as in {folders[0]}")
        check_files(folder, content, problems)
    if not parted and cache is not None and cache.url is not None:
        problems.add(f"cache.url: {cache.url}, but {folders[0]} is no corpus in parts; expected none")
    problems.raise_if_any()
    splits = _parted(folders[0], facts[0], cache) if parted else _whole(folders, facts)
    return PreparedCorpus(folders[0] / TOKENIZER_FOLDER, expected, facts[0]["vocab_size"], *splits)


def _whole(folders: Sequence[Path], facts: Sequence[dict[str, Any]]) -> Sequence[PreparedSplit]:
    """Both splits of folders, one after the other."""
    sampling = _sampling(facts)
    return [PreparedSplit(_files(folders, facts, split), sampling) for split in SPLITS]


def _parted(folder: Path, facts: Mapping[str, Any], cache: CacheConfig | None) -> Sequence[PreparedSplit]:
    """Both splits of a corpus in parts."""
    if cache is not None and cache.url is not None and facts["url"] is None:
        raise DomainbertError(f"cache.url: {cache.url}, but {folder} has its parts on this disk; expected none")
    root = facts["url"] if cache is None or cache.url is None else cache.url
    counts = np.load(folder / COUNTS_FILE, allow_pickle=False)
    return split_parts(facts["parts"], open_files(root or str(folder), cache), facts["window"], counts)


def _alpha(facts: Mapping[str, Any]) -> float | None:
    return facts["languages"]["alpha"] if "languages" in facts else None


def _sampling(facts: Sequence[Mapping[str, Any]]) -> LanguageSampling | None:
    """The languages of all folders together."""
    alpha = _alpha(facts[0])
    if alpha is None:
        return None
    return LanguageSampling(sorted({name for one in facts for name in one["languages"]["tokens"]}), Languages(alpha))


def _files(folders: Sequence[Path], facts: Sequence[dict[str, Any]], split: str) -> list[Path]:
    described = zip(folders, facts, strict=True)
    return [folder / split / file["name"] for folder, one in described for file in one["splits"][split]["files"]]
