"""How many entities `precision: auto` and `32-true` have in common, and the F1 of both.

    python benchmarks/predict_agreement.py MODEL TEST [--repair] --out FILE

MODEL is a fine-tuned folder, TEST the labelled file of a tagger, whose sentences are read as words and as raw text.
docs/speed.md has the numbers.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from side_by_side import hardware

from domainbert import load_tagger
from domainbert.base.files import write_json
from domainbert.labelled.formats import NerFormat
from domainbert.labelled.tag_schemes import spans_from_tags
from domainbert.metrics.entities import count_entities
from domainbert.tasks.ner.files import read_ner
from domainbert.training.precision import resolve_precision

Found = Sequence[set[tuple[int, int, str]]]


def agreement(exact: Found, other: Found) -> dict[str, float]:
    """Shares of the sentences with the same entities, and of the entities of each side that the other one has."""
    common = sum(len(a & b) for a, b in zip(exact, other, strict=True))
    same = sum(a == b for a, b in zip(exact, other, strict=True))
    return {
        "identical_sentences": same / len(exact),
        "of_full_precision": common / max(sum(map(len, exact)), 1),
        "of_auto": common / max(sum(map(len, other)), 1),
    }


def strict_f1(gold: Found, found: Found) -> float:
    """Micro F1 of whole entities."""
    kinds = sorted({kind for spans in [*gold, *found] for *_, kind in spans})
    tp, fp, fn = count_entities([sorted(s) for s in gold], [sorted(s) for s in found], kinds).sum(axis=(0, 1)).tolist()
    return 2 * tp / (2 * tp + fp + fn)


def main() -> None:
    """Predict with both and compare."""
    parser = argparse.ArgumentParser(description="Entities of precision auto against full precision")
    parser.add_argument("model", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--repair", action="store_true", help="read stray I- tags as B-")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    sentences = read_ner(options.test, NerFormat(repair=options.repair)).sentences
    words, gold = [one.words for one in sentences], [set(one.spans) for one in sentences]
    of_words: dict[str, Found] = {}
    of_text: dict[str, Found] = {}
    for precision in ("32-true", "auto"):
        tagger = load_tagger(options.model, precision)  # type: ignore[arg-type]
        of_words[precision] = [set(spans_from_tags(tags)) for tags in tagger.predict_words(words)]
        texts = tagger.predict_entities(" ".join(sentence) for sentence in words)
        of_text[precision] = [{(one.start, one.end, one.type) for one in found} for found in texts]
    result: dict[str, Any] = {
        "auto": resolve_precision("auto"),
        "hardware": hardware(),
        "sentences": len(words),
        "entities": sum(map(len, of_words["32-true"])),
        "f1": {precision: strict_f1(gold, found) for precision, found in of_words.items()},
        "words": agreement(of_words["32-true"], of_words["auto"]),
        "raw_text": agreement(of_text["32-true"], of_text["auto"]),
    }
    write_json(options.out, result)
    print(result)


if __name__ == "__main__":
    main()
