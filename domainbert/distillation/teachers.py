"""Teachers of a task: fine-tuned models that compute logits for every word or text."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from domainbert.base.errors import DomainbertError
from domainbert.base.files import HASHES, hash_json
from domainbert.base.progress import Progress
from domainbert.corpus.config import CorpusConfig
from domainbert.corpus.documents import read_documents
from domainbert.corpus.sentences import sample_sentences
from domainbert.data.packing import Example
from domainbert.distillation.batches import output_index
from domainbert.distillation.soft_labels import Block, SoftLabels, cached_labels
from domainbert.labelled.contents import Content, key_of_content, text_in
from domainbert.labelled.items import Labelled
from domainbert.models.folder import ModelFolder, open_model
from domainbert.models.loading import reorder_labels
from domainbert.serving.predictor import FineTuned, load_predictor
from domainbert.tasks.capabilities import require_distillation_targets
from domainbert.tasks.task import Task, encode_file
from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.splitting import WordSplitting, split_words
from domainbert.training.config import Precision
from domainbert.training.precision import autocast_dtype

_NUM_CHECKED = 8  # number of examples whose logits must be finite


@dataclass(frozen=True)
class TransferText:
    """Texts for a student: labelled items, and sentences without labels."""

    labelled: Labelled[Any]
    sentences: Sequence[Content]

    @classmethod
    def read(
        cls,
        labelled: Labelled[Any],
        unlabelled: CorpusConfig | None,
        max_sentences: int | None,
        splitting: WordSplitting | None,
    ) -> TransferText:
        """Return the labelled items with at most `max_sentences` random sentences of the corpus `unlabelled`.

        If `unlabelled` is None there are no sentences; if `max_sentences` is None, all sentences are taken. `splitting`
        splits the sentences into words if the labelled items are lists of words.
        """
        if unlabelled is None:
            return cls(labelled, [])
        texts = (document.text for document in read_documents(unlabelled))
        sentences, total = sample_sentences(texts, max_sentences, seed=0)
        print(f"unlabelled: {len(sentences):,} different sentences of {total:,}")
        return cls(labelled, unlabelled_contents(labelled, sentences, splitting))

    def encode(self, task: Task[Any, Any], tokenizer: DomainTokenizer, max_length: int) -> list[Example]:
        """Return the examples of all texts, labelled items first."""
        unlabelled = task.encode_contents(self.sentences, tokenizer, max_length)
        return encode_file(task, self.labelled, tokenizer, max_length) + unlabelled

    def describe(self, number: int) -> str:
        """Return a description of text `number` (labelled items first) for messages."""
        num_labelled = len(self.labelled.items)
        if number < num_labelled:
            return f"the training text at {self.labelled.location(number)}"
        return f"the unlabelled sentence {text_in(self.sentences[number - num_labelled])!r}"

    @property
    def fingerprint(self) -> str:
        """Hash of the words of all texts, without labels."""
        return hash_json([list(map(key_of_content, part)) for part in (self.labelled.contents, self.sentences)])


def unlabelled_contents(
    labelled: Labelled[Any], sentences: Sequence[str], splitting: WordSplitting | None
) -> Sequence[Content]:
    """Return the contents of unlabelled sentences in the form of the labelled items: lists of words, or texts.

    With lists of words, teachers and student with different vocabularies have the same outputs.
    """
    has_words = any(isinstance(content, (list, tuple)) for content in labelled.contents[:1])  # all are alike
    if not has_words:
        return sentences
    words = split_words(sentences, splitting)
    return [[text[start:stop] for start, stop in spans] for text, spans in zip(sentences, words, strict=True)]


@dataclass(frozen=True)
class Teachers:
    """Ensemble of fine-tuned models whose mean logits the student learns.

    Attributes:
        predictors: models, whose labels have the order of the task.
        paths: folders of the models; their weights are part of the cache key.
        cache: folder for `cached_labels`; None runs the teachers in every step.
        top_k: number of logits per output that the cache keeps.
    """

    predictors: Sequence[FineTuned]
    paths: Sequence[Path]
    cache: Path | None
    top_k: int

    @property
    def default_max_length(self) -> int:
        """Largest window, in tokens, with which all teachers were trained."""
        return min(teacher.max_length for teacher in self.predictors)

    def num_kept(self, task: Task[Any, Any]) -> int:
        """Return the number of logits per output in the cache: at most `top_k` for a softmax, otherwise all."""
        targets = require_distillation_targets(task)
        num_logits = targets.num_outputs(task)
        return min(self.top_k, num_logits) if targets.is_softmax else num_logits

    def drops_logits(self, task: Task[Any, Any]) -> bool:
        """Return whether the cache keeps only the largest logits of each word or text; False for a task without
        logits."""
        targets = task.distillation_targets
        if targets is None:
            return False
        num_logits = targets.num_outputs(task)  # per word or text
        return self.num_kept(task) < num_logits

    def check(self, examples: Sequence[Example]) -> Teachers:
        """Return these teachers; raise `DomainbertError` if a logit for one of the first examples is not finite."""
        for teacher in self.predictors:
            teacher.model.to(teacher.device)  # an earlier training may have moved it
            checked = [example for example in examples[:_NUM_CHECKED] if example.num_outputs]
            deque(teacher.logits(checked), maxlen=0)  # consumes the iterator, which raises the error
        return self

    def soft_labels(self, text: TransferText, task: Task[Any, Any], sizes: Sequence[int]) -> list[SoftLabels]:
        """Return the logits of each teacher for all texts, from the cache.

        Args:
            text: texts, which each teacher encodes with its own vocabulary.
            task: its labels are the columns of the logits.
            sizes: number of outputs of each text, as the student encodes it.
        """
        assert self.cache is not None
        targets = require_distillation_targets(task)
        by_teacher = []
        for number, (path, teacher) in enumerate(zip(self.paths, self.predictors, strict=True), start=1):
            made_from = {
                "teacher": HASHES.hash_path(open_model(path).path),
                "max_length": teacher.max_length,
                "dtype": str(teacher.dtype),
                "text": text.fingerprint,
                "labels": list(task.labels),
                "task": task.name,
                **targets.facts(task, teacher.model.head),
            }
            title = f"run teacher {number} of {len(self.paths)}"  # of the progress bar
            compute = partial(_text_logits, teacher, path, text, task, sizes, title)
            num_labels, num_kept = targets.num_outputs(task), self.num_kept(task)
            by_teacher.append(cached_labels(self.cache, made_from, sizes, num_labels, num_kept, compute))
        return by_teacher


def load_teachers(
    paths: Sequence[Path],
    task: Task[Any, Any],
    precision: Precision,
    cache: Path | None,
    top_k: int,
    open_folder: Callable[[Path], ModelFolder] = open_model,
) -> Teachers:
    """Load fine-tuned models; raise `DomainbertError` if a model has another task, other inputs or other labels."""
    teachers: list[FineTuned] = []
    for path in paths:
        predictor = load_predictor(open_folder(path), "32-true")
        teacher: FineTuned = predictor.runtime
        # the weights keep full precision: students copy them
        teacher.dtype = None if task.scaling.full_precision else autocast_dtype(precision)
        if teacher.exported is not None:
            raise DomainbertError(
                f"{path} is exported for ONNX Runtime", where="teachers", expected="a model folder with weights"
            )
        if predictor.task.name != task.name:
            raise DomainbertError(
                f"{path} is for {predictor.task.name}", where="teachers", expected=f"a model for {task.name}"
            )
        if sorted(teacher.labels) != sorted(task.labels):
            raise DomainbertError(
                f"{path} has the labels {', '.join(teacher.labels)}",
                where="teachers",
                expected=f"the labels of the training set, {', '.join(task.labels)}",
            )
        if not set(task.inputs.kinds(task)) <= set(predictor.task.inputs.kinds(predictor.task)):
            found, expected = (" and ".join(each.inputs.kinds(each)) for each in (predictor.task, task))
            raise DomainbertError(f"{path} reads {found}", where="teachers", expected=f"a model that reads {expected}")
        reorder_labels(teacher.model.head, teacher.labels, task.labels)
        teacher.labels = task.labels
        task.scaling.init_head(task, teacher.model.head)  # outputs get the units of the student's training
        teachers.append(teacher)
    return Teachers(teachers, paths, cache, top_k)


def _text_logits(
    teacher: FineTuned, path: Path, text: TransferText, task: Task[Any, Any], sizes: Sequence[int], title: str
) -> Iterator[Block]:
    """Yield the output numbers (n,) of each batch, counted over all texts, and their logits (n, labels) by one teacher.
    `sizes` has the number of outputs of each text; `title` names the progress bar."""
    examples = text.encode(task, teacher.tokenizer, teacher.max_length)
    _check_sizes(examples, sizes, path, text)
    bounds = np.concatenate([[0], np.cumsum(sizes)])  # text t has the outputs `bounds[t]:bounds[t + 1]`
    with_outputs = [number for number, size in enumerate(sizes) if size]  # numbers of texts
    teacher_logits = require_distillation_targets(task).teacher_logits
    # counts tokens because the longest texts come first: counting texts would overestimate the remaining time
    with Progress(title, sum(examples[number].num_tokens for number in with_outputs), "tokens") as progress:
        for batch, logits in teacher.logits([examples[number] for number in with_outputs]):
            batch_texts = [with_outputs[item] for item in batch["items"].tolist()]
            batch_sizes = [sizes[number] for number in batch_texts]
            index = output_index(batch["example"].cpu().numpy(), batch["outputs"].cpu().numpy(), batch_sizes)
            fields = {"output_index": torch.from_numpy(index).to(logits.device), "num_outputs_here": sum(batch_sizes)}
            with torch.no_grad():
                values = teacher_logits(task, teacher.model.head, logits, batch | fields)
            outputs = [np.arange(bounds[number], bounds[number + 1]) for number in batch_texts]
            yield np.concatenate(outputs), values.float().cpu().numpy()
            progress.advance(sum(examples[number].num_tokens for number in batch_texts))


def _check_sizes(examples: Sequence[Example], sizes: Sequence[int], path: Path, text: TransferText) -> None:
    for number, (example, size) in enumerate(zip(examples, sizes, strict=True)):
        if example.num_outputs != size:
            raise DomainbertError(
                f"{path} and the student split {text.describe(number)} into different numbers of words "
                f"({example.num_outputs} and {size})",
                where="teachers",
                expected="vocabularies that split words in the same way",
            )
