"""Tagged sentences as a test set, whatever is made of the tags."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.scoring import Scoring
from domainbert.tasks.tagged_files import TaggedFile, TaggedSentence


class TaggedScoring(Scoring):
    """Sentences in documents; predictions are the tags of their words, from `predict_words` of a predictor."""

    test: TaggedFile[Any]

    def __init__(self, config: TaskConfig, test: TaggedFile[Any]) -> None:
        super().__init__(config, test)
        self.suffix = f".{test.kind}"

    @property
    def num_units(self) -> int:
        """The documents."""
        return self.test.num_documents

    def predict(self, predictor: Any) -> list[list[str]]:
        """Tags of every sentence; one without words has none and is not shown to the model."""
        sentences = self.test.items
        remaining = iter(predictor.predict_words([sentence.words for sentence in sentences if sentence.words]))
        tags: list[list[str]] = [next(remaining, []) if sentence.words else [] for sentence in sentences]
        for sentence, one in zip(sentences, tags, strict=True):
            if len(sentence.words) != len(one):
                raise DomainbertError(
                    f"{self.test.path}:{sentence.line}: {len(sentence.words)} words but {len(one)} tags predicted"
                )
        return tags

    def row(self, item: TaggedSentence, prediction: list[str]) -> dict[str, Any]:
        """See `Scoring.row`."""
        return {"tokens": item.words, "gold": item.tags, "predicted": prediction}

    def write(self, path: Path, predictions: Sequence[list[str]]) -> None:
        """As the test set is: JSONL, or CoNLL with the columns that conlleval reads."""
        if self.test.kind == "jsonl":
            super().write(path, predictions)
        else:
            self.test.write(path, predictions)
