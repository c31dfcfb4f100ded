"""The stage `sample`: write synthetic data for trying the other stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from domainbert.base.fields import PositiveInt, Seed
from domainbert.base.progress import Progress
from domainbert.samples.datasets import (
    SPLITS,
    Abstract,
    LabelledText,
    SampleData,
    entity_strings,
    unseen_strings,
    write_conll,
    write_jsonl,
    write_text,
)
from domainbert.samples.writer import natural_text
from domainbert.stages.stage import stage


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Settings of `sample`."""

    seed: Seed = 0
    """Seed of the data. The same seed and sizes give identical files."""

    corpus_documents: PositiveInt = 4000
    """Number of abstracts of raw text, about 130 words each."""

    train_sentences: PositiveInt = 600
    """Number of sentences in ner/train.conll."""

    validation_sentences: PositiveInt = 300
    """Number of sentences in ner/validation.conll."""

    test_sentences: PositiveInt = 1000
    """Number of sentences in ner/test.conll."""

    train_texts: PositiveInt = 1000
    """Number of texts in classification/train.jsonl."""

    validation_texts: PositiveInt = 300
    """Number of texts in classification/validation.jsonl."""

    test_texts: PositiveInt = 1000
    """Number of texts in classification/test.jsonl."""

    def sizes(self, items: str) -> dict[str, int]:
        """Return the number of `sentences` or `texts` of each split."""
        return {split: getattr(self, f"{split}_{items}") for split in SPLITS}


@stage
def sample(out: Path, settings: Sample) -> dict[str, Any]:
    """Write synthetic impact-evaluation abstracts: raw text, entities to tag and texts to classify.

    The texts are generated from a grammar and word lists. `out` gets corpus.jsonl, ner/, classification/ and a
    README.md that describes the data.
    """
    sentences, texts = settings.sizes("sentences"), settings.sizes("texts")
    data = SampleData(settings.seed)
    ner, classification = data.ner(sentences), data.classification(texts)
    for split in SPLITS:
        write_conll(out / "ner" / f"{split}.conll", ner[split])
        write_jsonl(out / "classification" / f"{split}.jsonl", map(asdict, classification[split]))
    sizes, entities = Counter[str](), set[tuple[str, str]]()
    write_jsonl(out / "corpus.jsonl", _corpus_rows(data, settings.corpus_documents, sizes, entities))
    facts = {**sizes, **_statistics(ner, classification, entities)}
    write_text(out / "README.md", _readme(settings.seed, sentences, texts, facts))
    print("These data are synthetic, from studies that never happened: scores do not predict scores on real text.")
    return facts


def _corpus_rows(
    data: SampleData, documents: int, sizes: Counter[str], entities: set[tuple[str, str]]
) -> Iterator[dict[str, str]]:
    """Yield a row per abstract; count documents and words in `sizes`, and add (entity type, text) to `entities`."""
    with Progress("sample", documents) as progress:
        for number, abstract in enumerate(data.corpus(documents), start=1):
            sizes.update(documents=1, words=sum(map(len, abstract)))
            entities.update(entity_strings([abstract]))
            yield {"id": f"synthetic-{number:06}", "text": " ".join(map(natural_text, abstract))}
            progress.advance()


def _count_by_type(entities: Iterable[tuple[str, str]]) -> dict[str, int]:
    return dict(sorted(Counter(entity_type for entity_type, _ in entities).items()))


def _statistics(
    ner: dict[str, list[Abstract]],
    classification: dict[str, list[LabelledText]],
    in_corpus: set[tuple[str, str]],
) -> dict[str, Any]:
    test, unseen = unseen_strings(ner["train"], ner["test"])
    return {
        "distinct_entity_strings": _count_by_type(in_corpus),
        "ner": {split: _ner_statistics(abstracts) for split, abstracts in ner.items()},
        "classification": {
            split: dict(sorted(Counter(example.label for example in examples).items()))
            for split, examples in classification.items()
        },
        "test_entity_strings": len(test),
        "test_entity_strings_unseen_in_train": len(unseen) / max(len(test), 1),
        "unseen_test_entity_strings_in_corpus": len(unseen & in_corpus) / max(len(unseen), 1),
    }


def _ner_statistics(abstracts: list[Abstract]) -> dict[str, Any]:
    sentences = [sentence for abstract in abstracts for sentence in abstract]
    return {
        "abstracts": len(abstracts),
        "sentences": len(sentences),
        "words": sum(map(len, sentences)),
        "entities": _count_by_type(entity_strings(abstracts)),
    }


def _readme(seed: int, sentences: dict[str, int], texts: dict[str, int], facts: dict[str, Any]) -> str:
    distinct = facts["distinct_entity_strings"]
    template = files("domainbert.samples").joinpath("readme_template.md").read_text(encoding="utf-8")
    return template.format(
        seed=seed,
        documents=facts["documents"],
        words=facts["words"],
        ner=" / ".join(f"{size:,}" for size in sentences.values()),
        classification=" / ".join(f"{size:,}" for size in texts.values()),
        **{entity_type: distinct.get(entity_type, 0) for entity_type in ("outcome", "intervention", "population")},
        unseen=facts["test_entity_strings_unseen_in_train"],
        found=facts["unseen_test_entity_strings_in_corpus"],
    )
