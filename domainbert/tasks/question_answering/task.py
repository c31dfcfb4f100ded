"""Extractive question answering: start and end of the answer in its context (Devlin et al. 2019, section 4.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields as fields_of
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.data.packing import Example, Window
from domainbert.encoders.families import SPAN_OUTPUTS
from domainbert.labelled.contents import Content, TextPair
from domainbert.labelled.row_values import problem_with_text, raise_problems
from domainbert.tasks.capabilities import DistillationTargets, ExampleFormatter, Inputs, TrainingHooks
from domainbert.tasks.question_answering.config import ANSWERS, QuestionAnswering
from domainbert.tasks.question_answering.files import Question
from domainbert.tasks.question_answering.reader import Reader, Reply, as_pairs
from domainbert.tasks.question_answering.scoring import AnswerScoring
from domainbert.tasks.question_answering.windows import (
    CLS,
    ENDS,
    STARTS,
    PairEncoder,
    Spans,
    best_spans,
    has_answer_in_window,
    log_probabilities,
    window_indices,
)
from domainbert.tasks.task import ADVICE, MIN_GAIN, Batch, Task
from domainbert.tokenization.load import DomainTokenizer

if TYPE_CHECKING:
    from torchmetrics import Metric

_SETTINGS = [field.name for field in fields_of(QuestionAnswering) if field.name not in ("format", "labels")]


class QuestionInputs(Inputs["QuestionAnsweringTask"]):
    """Questions with their contexts, under the keys "question" and "context"."""

    @override
    def content_of(self, task: QuestionAnsweringTask, row: Mapping[str, Any], text_key: str) -> TextPair:
        row = dict(row)
        raise_problems(problem_with_text(row, "question"), problem_with_text(row, "context"))
        return TextPair(row["question"], row["context"])

    @override
    def call(self, task: QuestionAnsweringTask) -> str:
        return 'answer("Who ruled?", "The court ruled.")'


class AnswerTrainingHooks(TrainingHooks["QuestionAnsweringTask"]):
    """Warns about a model that is no better than one that never answers."""

    @override
    def warnings(
        self, task: QuestionAnsweringTask, items: Sequence[Question], scores: Mapping[str, float]
    ) -> list[str]:
        baseline = sum(not item.answers for item in items) / len(items)  # F1 of never answering
        if baseline == 1 or scores["f1"] > baseline + MIN_GAIN:  # at 1 no model can be better
            return []
        comparison = f"F1 {100 * scores['f1']:.1f} on validation, while never answering gets"
        return [f"{comparison} {100 * baseline:.1f}; {ADVICE}"]


def answer_divergence(teacher: Tensor, student: Tensor, example: Tensor) -> Tensor:
    """Return the terms (N,) of the divergence, the mean of start and end as in the loss: one term per output.

    `example` (N,) is the example of each output. Outputs with example -1, which no window reads, are omitted.
    """
    valid = example >= 0
    log_p, log_q = (log_probabilities(logits[valid], example[valid]) for logits in (teacher, student))
    return (log_p.exp() * (log_p - log_q)).mean(dim=1)


class AnswerDistillationTargets(DistillationTargets["QuestionAnsweringTask"]):
    """Compares the distributions of start and end over [CLS] and the pieces of a context."""

    @override
    def facts(self, task: QuestionAnsweringTask, head: nn.Module) -> dict[str, Any]:
        """Return the cache key, with the maximum length of questions."""
        return {**super().facts(task, head), "max_question_length": task.config.max_question_length}


class AnswerFormatter(ExampleFormatter["QuestionAnsweringTask"]):
    """Shows start and end of the answer with characters of the context, or that a window has no answer."""

    @override
    def notes(self, task: QuestionAnsweringTask, item: Question, window: Window) -> list[tuple[str, str]]:
        notes = []
        for output, (starts, ends, first_char, char_end) in zip(window.outputs, window.targets, strict=True):
            place = "no answer in this window"
            if output != CLS:
                place = f"{item.context[first_char:char_end]!r}, characters {first_char}-{char_end}"
            targets = [name for name, is_target in (("start", starts), ("end", ends)) if is_target]
            notes.append((place, " and ".join(targets)))
        return notes


class QuestionAnsweringTask(Task[Question, Reply]):
    """Extractive question answering.

    Attributes:
        config: settings with the length limits of questions and answers.
        threshold: margin of no answer above which the model predicts no answer; None answers every question.
    """

    head = "span"
    loss_divisor = "num_examples"
    predictor = Reader
    scoring = AnswerScoring
    training_hooks = AnswerTrainingHooks()
    inputs = QuestionInputs()
    example_formatter = AnswerFormatter()
    distillation_targets = AnswerDistillationTargets(False, "examples", answer_divergence)

    def __init__(self, config: QuestionAnswering, threshold: float | None = None) -> None:
        super().__init__(SPAN_OUTPUTS)
        self.config: QuestionAnswering = config
        self.threshold = threshold
        self._reported: set[str] = set()  # truncated questions

    @classmethod
    @override
    def from_labels(cls, config: QuestionAnswering, labels: Sequence[str]) -> QuestionAnsweringTask:
        return cls(config)

    @classmethod
    @override
    def from_model_folder(cls, labels: Sequence[str], fields: Mapping[str, Any]) -> QuestionAnsweringTask:
        """Return the task of a model folder, from its entry in `config.json`.

        Without this entry, the task has the default limits and answers every question. Raise `DomainbertError` if the
        entry has unknown keys or an invalid threshold.
        """
        facts = fields.get(ANSWERS, {})
        valid_keys = isinstance(facts, dict) and set(facts) <= {*_SETTINGS, "threshold"}
        threshold = facts.get("threshold") if valid_keys else None
        if not valid_keys or (threshold is not None and type(threshold) not in (int, float)):
            expected = f"at most the keys {', '.join(_SETTINGS)}, and threshold with a number or null"
            raise DomainbertError(where=ANSWERS, found=f"{facts!r:.80}", expected=expected)
        return cls(QuestionAnswering(**{name: facts[name] for name in _SETTINGS if name in facts}), threshold)

    def model_config_fields(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """Return the limits, and the best threshold on validation if some questions have no answer."""
        threshold = round(scores["threshold"], 4) if "threshold" in scores else None
        return {ANSWERS: {**{name: getattr(self.config, name) for name in _SETTINGS}, "threshold": threshold}}

    @override
    def encode(self, items: Sequence[Question], tokenizer: DomainTokenizer, max_length: int) -> list[Example]:
        """Return questions as token ids and targets; print the number of answers that no window contains completely."""
        pairs = [item.content for item in items]
        # the first answer is the target
        answers = [[(answer.start, answer.end) for answer in item.answers[:1]] for item in items]
        examples = self._encoder(pairs, tokenizer, max_length).encode(pairs, answers)
        answered = [example for item, example in zip(items, examples, strict=True) if item.answers]
        num_lost = sum(not has_answer_in_window(example) for example in answered)
        if num_lost:
            print(
                f"questions with an answer that fits in no window of {max_length} tokens: {num_lost:,} of "
                f"{len(items):,}, trained as unanswerable (increase max_length)"
            )
        return examples

    @override
    def encode_contents(
        self, contents: Sequence[Content], tokenizer: DomainTokenizer, max_length: int
    ) -> list[Example]:
        pairs = as_pairs(contents)
        return self._encoder(pairs, tokenizer, max_length).encode(pairs, answers=None)

    def _encoder(self, pairs: Sequence[TextPair], tokenizer: DomainTokenizer, max_length: int) -> PairEncoder:
        encoder = PairEncoder(tokenizer, max_length, self.config.max_question_length)
        truncated = encoder.truncated_questions([pair.first for pair in pairs])
        # questions are reported once, not again in a later call
        new_lengths = [length for question, length in truncated.items() if question not in self._reported]
        if new_lengths:
            print(
                f"{len(new_lengths):,} questions are truncated to {self.config.max_question_length} pieces "
                f"(max_question_length); the longest has {max(new_lengths):,}"
            )
        self._reported.update(truncated)
        return encoder

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the mean of the cross-entropies of start and end over the positions of a window, summed over windows.

        The target of a window without the answer is [CLS].
        """
        targets = batch["targets"][:, [STARTS, ENDS]] == 1
        log_likelihood = log_probabilities(logits, window_indices(batch["outputs"]))
        return -log_likelihood[targets].sum() / 2  # the mean of start and end

    def metric(self) -> Metric:
        """Return the metric of F1 and exact match, at the best threshold if some questions have no answer."""
        from domainbert.metrics.modules import AnswerScores  # imports torchmetrics, which takes seconds

        return AnswerScores()

    @override
    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[Question]) -> None:
        decoded = self.decode(logits, batch)
        answers = [_text(item, spans) for item, spans in zip(items, decoded, strict=True)]
        metric.update(answers, [item.texts for item in items], [spans.margin for spans in decoded])

    def decode(self, logits: Tensor, batch: Batch) -> list[Spans]:
        """Return the best answer spans of each question."""
        return best_spans(logits, batch, self.config.max_answer_length, self.config.n_best)


def _text(item: Question, spans: Spans) -> str:
    """Return the text of the best span; empty without spans."""
    if not len(spans.characters):
        return ""
    start, end = spans.characters[0].tolist()
    return item.context[start:end]
