"""Tagged sentences as a test set, whatever is made of the tags."""

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
    """Sentences in documents; predictions are the tags of their words, from `tag_words` of a predictor."""

    test: TaggedFile[Any]

    def __init__(self, config: TaskConfig, test: TaggedFile[Any], train: TaggedFile[Any] | None = None) -> None:
        super().__init__(config, test, train)
        self.suffix = ".conll" if test.kind == "conll" and test.fits_columns else ".jsonl"

    def predict(self, predictor: Any) -> list[TaggedWords]:
        """Tags of every sentence; one without words has none and is not shown to the model."""
        sentences, empty = self.test.items, TaggedWords([], [])
        remaining = iter(predictor.tag_words([sentence.words for sentence in sentences if sentence.words]))
        tagged: list[TaggedWords] = [next(remaining, empty) if sentence.words else empty for sentence in sentences]
        for sentence, one in zip(sentences, tagged, strict=True):
            if len(sentence.words) != len(one.tags):
                raise DomainbertError(
                    f"{self.test.path}:{sentence.line}: {len(sentence.words)} words but {len(one.tags)} tags predicted"
                )
        return tagged

    @override
    def row(self, item: TaggedSentence, prediction: TaggedWords) -> dict[str, Any]:
        return {"tokens": item.words, "gold": item.tags, "predicted": prediction.tags}

    def write(self, path: Path, predictions: Sequence[TaggedWords]) -> None:
        """Write CoNLL with the columns that conlleval reads if the test set is CoNLL and every sentence has a place in
        columns, else JSONL."""
        if self.suffix == ".conll":
            self.test.write(path, [one.tags for one in predictions])
        else:
            super().write(path, predictions)
