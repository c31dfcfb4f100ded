"""Writes the sample data in the formats that the other stages read, and a README that describes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from domainbert.samples.writer import Sentence

README = """\
# Synthetic impact-evaluation abstracts

**These data are synthetic.** No abstract, programme, place, survey, agency or number in them is real, and nothing can
be learnt from them about the world. They exist so that the whole path of domainbert can be tried in minutes, without a
download. Scores on them say nothing about scores on real text.

They were made by `domainbert sample` with `seed: {seed}`: a grammar and word lists written for domainbert, and a
random number generator. The same seed and sizes give the same files, byte for byte.

| file | what | size |
|---|---|---|
| `corpus.jsonl` | raw text, one abstract a line: `id`, `text` | {documents:,} abstracts, {words:,} words |
| `ner/*.conll` | word, tab, IOB2 tag; `-DOCSTART-` before every abstract | {ner} sentences |
| `classification/*.jsonl` | `text`, `label`: positive, negative or null | {classification} texts |

Sizes of labelled sets are given as train / validation / test. No sentence of a labelled set is part of another set or
of the corpus.

## Entities

The types are those of ECON-IE: intervention, outcome, population, coreference (a mention such as "the programme") and
effect_size. The corpus has {outcome:,} distinct outcomes, {intervention:,} interventions and {population:,}
populations.

What the task asks for:
- The same noun is an outcome in one phrase and part of an intervention in another ("maize yields", "maize yields
  bonuses"), part of a population, or a mere control variable, which is no entity.
- Names are invented, of programmes, places, surveys and agencies alike; only programmes are entities.
- Half of the words in the lists (nouns, names, verbs of change) never occur in the labelled training text as such. The
  corpus uses them all.
- {unseen:.0%} of the distinct interventions, outcomes and populations in test do not occur in train;
  {found:.0%} of those do occur in the corpus, without labels.

## Classes

The direction of the finding. Positive: things got better, which is a rise of something good or a fall of something bad.
Negative: they got worse. Null: no evidence of a change. Concessions, hopes, fears and reversals point elsewhere; the
label is that of the main finding.
"""


def write_conll(path: Path, abstracts: Iterable[Iterable[Sentence]]) -> None:
    """Write one word per line, a blank line after a sentence, `-DOCSTART-` before an abstract."""
    blocks: list[str] = []
    for abstract in abstracts:
        blocks.append("-DOCSTART-\tO\n")
        blocks += ["".join(f"{token.word}\t{token.tag}\n" for token in sentence) for sentence in abstract]
    write_text(path, "\n".join(blocks))


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object per line, as the rows come."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8 with plain line ends, on every system."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8"))
