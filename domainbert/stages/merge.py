"""The stage `merge`: combine corpora in parts, written by `prepare` with `row_lengths`, into one corpus."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from domainbert.base.errors import Problems
from domainbert.base.fields import Items, PositiveInt, check_fields
from domainbert.base.paths import check_url
from domainbert.stages.stage import stage


@dataclass(frozen=True, kw_only=True)
class Merge:
    """Settings of `merge`."""

    prepared: Annotated[list[Path], Items(unique=True)]
    """Folders that `prepare` wrote with the same tokenizer and `row_lengths`. Their parts are read in this order;
    duplicates are not removed."""

    window: PositiveInt = 64
    """Number of parts whose rows are shuffled together in training. More parts shuffle better; all must be on disk."""

    url: str | None = None
    """URL of a copy of the folder, or of the folder that contains all of them, such as `s3://bucket/law`: trainings
    download the parts from it into their `cache`. None reads the parts from the folders in `prepared`."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.url is not None:
            check_url("url", self.url)


@stage
def merge(out: Path, settings: Merge) -> dict[str, Any]:
    """Combine corpora that `prepare` wrote in parts into one corpus, without copying their files.

    The files of the parts are checked, and their paths are written to `out`.

    Raises:
        DomainbertError: a folder is not in parts, differs from the first in tokenizer or row lengths, or repeats a
            part; or a file has changed since it was written.
    """
    from domainbert.data.parts_writer import bind_parts, read_parts
    from domainbert.data.prepared_facts import TOKENIZER_FOLDER, read_facts
    from domainbert.tokenization.load import load_tokenizer

    problems, part_paths = Problems("prepared"), dict[tuple[str, ...], Path]()
    first_folder, first_fingerprint, first_lengths = settings.prepared[0], None, list[int]()
    for folder in settings.prepared:
        corpus = read_facts(folder)
        if "parts" not in corpus:
            problems.add("prepared without row_lengths", file=folder, hint="run prepare again with row_lengths")
            continue
        lengths = sorted(map(int, corpus["parts"][0]["splits"]["train"]["plans"]))
        if first_fingerprint is None:
            first_folder, first_fingerprint, first_lengths = folder, corpus["tokenizer_fingerprint"], lengths
        if corpus["tokenizer_fingerprint"] != first_fingerprint:
            problems.add(
                f"prepared with another tokenizer than {first_folder}", file=folder, expected="the same tokenizer"
            )
        if lengths != first_lengths:
            problems.add(file=folder, found=f"row_lengths {lengths}", expected=f"{first_lengths}, as in {first_folder}")
        for part in corpus["parts"]:
            path = folder / part["folder"]
            splits = [split for split in part["splits"].values() if split["documents"]]
            content = tuple(file["sha256"] for split in splits for file in split["files"]) or (str(path.resolve()),)
            earlier_path = part_paths.setdefault(content, path)  # `path` itself if the part is new
            if earlier_path is not path:
                problems.add(
                    f"the same part as {earlier_path}", file=path, hint="remove one of the folders from prepared"
                )
    problems.raise_if_any()

    tokenizer = load_tokenizer(settings.prepared[0] / TOKENIZER_FOLDER)
    facts = bind_parts(out, tokenizer, read_parts(part_paths.values()), settings.window, settings.url)
    splits = [part["splits"] for part in facts["parts"]]
    counts: dict[str, Any] = {}
    for split in splits[0]:
        names = ("documents", "tokens", "characters")
        counts[split] = {name: sum(part[split][name] for part in splits) for name in names}
        print(f"{split}: {counts[split]['documents']:,} documents, {counts[split]['tokens']:,} tokens")
    return {"parts": len(splits), "splits": counts, "tokenizer_fingerprint": facts["tokenizer_fingerprint"]}
