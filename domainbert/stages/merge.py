"""`merge`: shards of a corpus, which `prepare` wrote in parts, become one corpus."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from domainbert.base.paths import check_url
from domainbert.base.ranges import Items, PositiveInt
from domainbert.base.validation import check_fields
from domainbert.stages.stage import stage


@dataclass(frozen=True, kw_only=True)
class Merge:
    """Settings of `merge`."""

    prepared: Annotated[list[Path], Items(different=True)]
    """Folders that `prepare` wrote with `corpus.shard`, all of them, in any order."""

    window: PositiveInt = 64
    """Parts whose rows are mixed in training. More mix better; all of them have to be at hand at once."""

    url: str | None = None
    """The URL of a copy of the folder that holds the shards, `s3://bucket/law`: trainings then read the parts from
    there, into their `cache`. None reads them where they are now."""

    def __post_init__(self) -> None:
        """Check the form of the URL."""
        check_fields(self)
        if self.url is not None:
            check_url("url", self.url)


@stage
def merge(out: Path, settings: Merge) -> dict[str, Any]:
    """Bind shards together: their files are checked and stay where they are, and `out` says where each part is.

    The batches of a training do not depend on the number of shards.

    Raises:
        DomainbertError: a shard is missing or there twice, shards are of different corpora or tokenizers, or a file is
            not as it was written.
    """
    from domainbert.data.parts_writer import bind_parts, read_shards
    from domainbert.tokenization.load import load_tokenizer

    shards = read_shards(settings.prepared)
    tokenizer, how = load_tokenizer(shards.tokenizer_folder), (settings.window, settings.url)
    facts = bind_parts(out, tokenizer, shards.parts, shards.corpus, *how)
    splits = [part["splits"] for part in facts["parts"]]
    counts: dict[str, Any] = {}
    for split in splits[0]:
        names = ("documents", "tokens", "characters")
        counts[split] = {name: sum(one[split][name] for one in splits) for name in names}
        print(f"{split}: {counts[split]['documents']:,} documents, {counts[split]['tokens']:,} tokens")
    return {"parts": len(splits), "splits": counts, "tokenizer_fingerprint": facts["tokenizer_fingerprint"]}
