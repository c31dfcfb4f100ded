"""Settings of extractive question answering. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.base.fields import Range, check_fields
from domainbert.labelled.file_sample import Sample
from domainbert.metrics.headline import Headline
from domainbert.tasks.config import DetectedTask, Distillation, Evaluation, FormatDetector, TaskConfig

_NUM_SPECIAL = 3  # special tokens of a pair; some vocabularies have one more

Pieces = Annotated[int, Range(1, 100_000)]


@dataclass(frozen=True)
class QuestionFormat:
    """Keys of questions, contexts and answers in a file."""

    kind: Literal["auto", "json", "jsonl"] = "auto"
    """`json` is SQuAD 1.1 or 2.0; `jsonl` has a question per line, with the keys `id`, `question`, `context` and
    `answers`, as in `datasets`; `auto` decides by the first line, and prints the format."""


ANSWERS = "domainbert_answers"
"""Key of `config.json`: length limits of questions and answers, and the no-answer threshold."""


class QuestionDetector(FormatDetector["QuestionAnswering"]):
    """Detects SQuAD files with articles and paragraphs, or rows with question, context and answers."""

    @override
    def detect(self, kind: type[QuestionAnswering], sample: Sample) -> DetectedTask | None:
        articles = sample.value.get("data") if isinstance(sample.value, dict) else None
        first_article = articles[0] if isinstance(articles, list) and articles else None
        if isinstance(first_article, dict) and "paragraphs" in first_article:
            return DetectedTask(kind(), "articles with paragraphs and questions, as SQuAD's", specificity=4)
        first_row = sample.rows[0] if sample.rows and sample.kind == "jsonl" else {}
        if not {"question", "context"} <= set(first_row) or not isinstance(first_row.get("answers"), dict):
            return None
        return DetectedTask(kind(), "rows with 'question', 'context' and 'answers'", specificity=4)

    @override
    def matches_model(self, head: str | None, fields: Mapping[str, Any]) -> bool:
        return head == "span"


class QuestionEvaluation(Evaluation):
    """Evaluation with the length limits of training."""

    @override
    def settings_from_model_config(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        facts = fields.get(ANSWERS)
        if not isinstance(facts, dict):
            return {}
        return {name: facts[name] for name in self.saved_settings if name in facts}


@dataclass(frozen=True)
class QuestionAnswering(TaskConfig):
    """Extractive question answering: a span of the context, or no answer. A model folder stores these settings.

    >>> from domainbert import QuestionAnswering
    >>> QuestionAnswering().name, QuestionAnswering().headline.name
    ('question_answering', 'F1')
    """

    title = "Question answering model"
    fixed_outputs = True
    pipeline_tag = "question-answering"
    headline = Headline("f1", "F1")
    reads_pairs = True
    format_detector = QuestionDetector()
    distillation = Distillation(shares_vocabulary=True)
    evaluation = QuestionEvaluation(saved_settings=("max_question_length", "max_answer_length", "n_best"))

    format: QuestionFormat = field(default_factory=QuestionFormat)
    """Format of the labelled files."""

    max_question_length: Pieces = 64
    """Maximum length of a question in pieces; longer questions are truncated, counted and reported."""

    max_answer_length: Pieces = 30
    """Maximum length of a predicted answer in pieces."""

    n_best: Annotated[int, Range(1, 1000)] = 20
    """Number of candidate answers of a prediction, best first; scores are a softmax over the candidates."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self)

    @override
    def check_window(self, max_length: int) -> None:
        if max_length <= self.max_question_length + _NUM_SPECIAL:
            raise DomainbertError(
                where="max_length",
                found=f"{max_length}, which leaves no room for the context after a question of "
                f"max_question_length {self.max_question_length}",
                expected=f"more than {self.max_question_length + _NUM_SPECIAL}, or a smaller max_question_length",
            )
