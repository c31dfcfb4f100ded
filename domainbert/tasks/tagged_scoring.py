"""Base class for scoring tagged sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.labelled.tagged_files import TaggedFile, TaggedSentence
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.scoring import Scoring
from domainbert.tasks.words import TaggedWords


class TaggedScoring(Scoring):
    """Scoring of sentences in documents; predictions are tags of words from `tag_words` of a predictor."""

    test: TaggedFile[Any]

    def __init__(self, config: TaskConfig, test: TaggedFile[Any], train: TaggedFile[Any] | None = None) -> None:
        super().__init__(config, test, train)
        self.suffix = ".conll" if test.kind == "conll" and test.fits_columns else ".jsonl"

    def predict(self, predictor: Any) -> list[TaggedWords]:
        """Return the tags of every sentence; a sentence without words has none and is not given to the model."""
        sentences, empty = self.test.items, TaggedWords([], [])
        remaining = iter(predictor.tag_words([sentence.words for sentence in sentences if sentence.words]))
        tagged: list[TaggedWords] = [next(remaining, empty) if sentence.words else empty for sentence in sentences]
        for sentence, (tags, _) in zip(sentences, tagged, strict=True):
            if len(sentence.words) != len(tags):
                raise DomainbertError(
                    f"{self.test.path}:{sentence.line}: {len(sentence.words)} words but {len(tags)} tags predicted"
                )
        return tagged

    @override
    def row(self, item: TaggedSentence, prediction: TaggedWords) -> dict[str, Any]:
        return {"tokens": item.words, "gold": item.tags, "predicted": prediction.tags}

    def write(self, path: Path, predictions: Sequence[TaggedWords]) -> None:
        """Write CoNLL for conlleval if the test set is CoNLL and all its sentences fit columns, otherwise JSONL."""
        if self.suffix == ".conll":
            self.test.write(path, [prediction.tags for prediction in predictions])
        else:
            super().write(path, predictions)
