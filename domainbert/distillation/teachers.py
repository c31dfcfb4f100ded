"""The teachers of a task: fine-tuned models that give logits for every word or text."""

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
from domainbert.base.hashes import HASHES, hash_json
from domainbert.base.progress import Progress
from domainbert.corpus.config import CorpusConfig
from domainbert.corpus.documents import read_documents
from domainbert.corpus.sentences import sample_sentences
from domainbert.data.examples import Example
from domainbert.distillation.batches import output_index
from domainbert.distillation.soft_labels import Block, MeanLabels, cached_labels
from domainbert.encoders.biaffine import Biaffine
from domainbert.encoders.crf import crf_of
from domainbert.labelled.contents import Content, key_of_content, text_in
from domainbert.labelled.items import Labelled
from domainbert.models.folder import ModelFolder, open_model
from domainbert.serving.predictor import FineTuned, load_predictor
from domainbert.tasks.capabilities import need_teaching
from domainbert.tasks.task import Task, encode_file
from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.splitting import WordSplitting, split_words
from domainbert.training.config import Precision
from domainbert.training.precision import autocast_dtype

_CHECKED = 8  # examples


@dataclass(frozen=True)
class TransferText:
    """Texts that a student reads: labelled items, and sentences without labels."""

    labelled: Labelled[Any]
    sentences: Sequence[Content]

    @classmethod
    def of(
        cls, labelled: Labelled[Any], unlabelled: CorpusConfig | None, most: int | None, splitting: WordSplitting | None
    ) -> TransferText:
        """The training set, and at most `most` sentences of a corpus, split into words by `splitting`."""
        if unlabelled is None:
            return cls(labelled, [])
        texts = (document.text for document in read_documents(unlabelled))
        sentences, total = sample_sentences(texts, most, seed=0)
        print(f"unlabelled: {len(sentences):,} different sentences of {total:,}")
        return cls(labelled, unlabelled_contents(labelled, sentences, splitting))

    @property
    def items(self) -> Sequence[Any]:
        """The labelled items."""
        return self.labelled.items

    def encode(self, task: Task[Any, Any], tokenizer: DomainTokenizer, max_length: int) -> list[Example]:
        """All of it as examples, the labelled ones first."""
        unlabelled = task.encode_contents(self.sentences, tokenizer, max_length)
        return encode_file(task, self.labelled, tokenizer, max_length) + unlabelled

    def name(self, number: int) -> str:
        """Origin of a text, for messages."""
        if number < len(self.items):
            return f"the training text of line {self.labelled.where(number)}"
        return f"the unlabelled sentence {text_in(self.sentences[number - len(self.items)])!r}"

    @property
    def fingerprint(self) -> str:
        """A hash of the words, whatever their labels."""
        return hash_json([list(map(key_of_content, part)) for part in (self.labelled.contents, self.sentences)])


def unlabelled_contents(
    labelled: Labelled[Any], sentences: Sequence[str], splitting: WordSplitting | None
) -> Sequence[Content]:
    """Unlabelled sentences as the models read them: split into words where the labelled items are lists of words, so
    that teachers and student with different vocabularies have the same outputs."""
    if not any(isinstance(content, (list, tuple)) for content in labelled.contents[:1]):
        return sentences
    words = split_words(sentences, splitting)
    return [[text[start:stop] for start, stop in places] for text, places in zip(sentences, words, strict=True)]


@dataclass(frozen=True)
class Teachers:
    """Fine-tuned models that teach together, with the labels of the task in its order: their mean logits count."""

    predictors: Sequence[FineTuned]
    paths: Sequence[Path]
    """Their folders, whose weights are part of the cache's key."""
    cache: Path | None
    """See `cached_labels`; None asks them at every step."""
    top_k: int

    @property
    def max_length(self) -> int:
        """Tokens of the longest window that all of them have positions for."""
        return min(teacher.config.max_length for teacher in self.predictors)

    @property
    def usual_length(self) -> int:
        """Tokens of the longest window that all of them were trained for."""
        return min(teacher.max_length for teacher in self.predictors)

    @property
    def have_crf(self) -> bool:
        """Whether some have a CRF, so that their logits are log-marginals."""
        return any(crf_of(teacher.model.head) is not None for teacher in self.predictors)

    def read_as(self, tokenizer: DomainTokenizer) -> bool:
        """Whether all of them read the same tokens as this tokenizer's model."""
        return all(teacher.tokenizer.fingerprint == tokenizer.fingerprint for teacher in self.predictors)

    def kept(self, task: Task[Any, Any]) -> int:
        """Number of logits that a cache holds of each output: all but for a softmax, whose rest can be told."""
        teaching = need_teaching(task)
        columns = teaching.num_outputs(task)
        return min(self.top_k, columns) if teaching.is_softmax else columns

    def drops_logits(self, task: Task[Any, Any]) -> bool:
        """Whether a cache holds only the largest logits of each output."""
        return task.teaching is not None and self.kept(task) < task.teaching.num_outputs(task)

    def check(self, examples: Sequence[Example]) -> Teachers:
        """These teachers, after `DomainbertError` if the logits of one for the first examples are not finite."""
        for teacher in self.predictors:
            deque(teacher.logits([example for example in examples[:_CHECKED] if example.num_outputs]), maxlen=0)
        return self

    def soft_labels(self, text: TransferText, task: Task[Any, Any], sizes: Sequence[int]) -> MeanLabels:
        """The mean logits of all, each with its own vocabulary; from the cache if they are there, which holds those of
        each teacher by themselves.

        The labels of the task are the columns, and `sizes` the outputs of each example, as the student counts them.
        `DomainbertError` if a teacher's vocabulary divides a text into other words.
        """
        assert self.cache is not None
        found, teaching = [], need_teaching(task)
        for number, (path, teacher) in enumerate(zip(self.paths, self.predictors, strict=True), start=1):
            made_from = {
                "teacher": HASHES.of(open_model(path).path),
                "max_length": teacher.max_length,
                "dtype": str(teacher.dtype),
                "text": text.fingerprint,
                "labels": list(task.labels),
                "task": task.name,
                **teaching.facts(task),
            }
            ask = partial(_all_asked, teacher, path, text, task, sizes, f"ask teacher {number} of {len(self.paths)}")
            found.append(cached_labels(self.cache, made_from, sizes, teaching.num_outputs(task), self.kept(task), ask))
        return MeanLabels(found)


def load_teachers(
    paths: Sequence[Path],
    task: Task[Any, Any],
    precision: Precision,
    cache: Path | None,
    top_k: int,
    open_folder: Callable[[Path], ModelFolder] = open_model,
) -> Teachers:
    """The fine-tuned models; `DomainbertError` if one is for another task or has other labels."""
    teachers: list[FineTuned] = []
    for path in paths:
        predictor = load_predictor(open_folder(path), "32-true")
        teacher: FineTuned = predictor.runtime
        # the weights stay as they are: students begin with them
        teacher.dtype = None if task.scaling.full_precision else autocast_dtype(precision)
        if teacher.exported is not None:
            raise DomainbertError(f"teachers: {path} is exported for ONNX Runtime; expected a folder with its weights")
        if predictor.task.name != task.name:
            raise DomainbertError(f"teachers: {path} is for {predictor.task.name}; expected a model of the task")
        if sorted(teacher.labels) != sorted(task.labels):
            raise DomainbertError(
                f"teachers: {path} has the labels {', '.join(teacher.labels)}; the training set has "
                f"{', '.join(task.labels)}; expected the same"
            )
        if not set(task.inputs.kinds(task)) <= set(predictor.task.inputs.kinds(predictor.task)):
            found, wanted = (" and ".join(one.inputs.kinds(one)) for one in (predictor.task, task))
            raise DomainbertError(f"teachers: {path} reads {found}; expected a model of {wanted}")
        _order_labels(teacher, task.labels)
        task.scaling.init_head(task, teacher.model.head)
        teachers.append(teacher)
    return Teachers(teachers, paths, cache, top_k)


def _order_labels(teacher: FineTuned, labels: Sequence[str]) -> None:
    """Put a teacher's outputs, in memory, in the order of the task's labels."""
    order = torch.tensor([teacher.labels.index(label) for label in labels], device=teacher.device)
    head = teacher.model.head
    if isinstance(head, Biaffine):
        head.reorder(order)
    else:
        with torch.no_grad():
            for parameter in head.get_submodule("classifier").parameters():
                parameter.copy_(parameter[order])
    if (crf := crf_of(head)) is not None:
        crf.reorder(order)
    teacher.labels = tuple(labels)


def _all_asked(
    teacher: FineTuned, path: Path, text: TransferText, task: Task[Any, Any], sizes: Sequence[int], label: str
) -> Iterator[Block]:
    """Logits of one teacher for all texts, with its progress."""
    examples = text.encode(task, teacher.tokenizer, teacher.max_length)
    _check_sizes(examples, sizes, path, text)
    # the longest texts come first: by their number, the time left would be told too long
    with Progress(label, sum(example.num_tokens for example in examples if example.num_outputs), "tokens") as progress:
        yield from _asked(teacher, task, examples, progress)


def _asked(
    teacher: FineTuned, task: Task[Any, Any], examples: Sequence[Example], progress: Progress
) -> Iterator[Block]:
    """Logits of one teacher, with the progress in tokens; items without outputs are passed over."""
    starts = np.concatenate([[0], np.cumsum([example.num_outputs for example in examples])])
    full = [number for number, example in enumerate(examples) if example.num_outputs]
    for batch, logits in teacher.logits([examples[number] for number in full]):
        items = [full[item] for item in batch["items"].tolist()]
        sizes = [examples[item].num_outputs for item in items]
        index = output_index(batch["example"].cpu().numpy(), batch["outputs"].cpu().numpy(), sizes)
        outputs = {"output_index": torch.from_numpy(index).to(logits.device), "num_outputs_here": sum(sizes)}
        with torch.no_grad():
            values = need_teaching(task).teacher_logits(task, teacher.model.head, logits, batch | outputs)
        places = np.concatenate([np.arange(starts[item], starts[item + 1]) for item in items])
        yield places, values.float().cpu().numpy()
        progress.advance(sum(examples[item].num_tokens for item in items))


def _check_sizes(examples: Sequence[Example], sizes: Sequence[int], path: Path, text: TransferText) -> None:
    for number, (example, size) in enumerate(zip(examples, sizes, strict=True)):
        if example.num_outputs != size:
            raise DomainbertError(
                f"teachers: {path} splits {text.name(number)} into {example.num_outputs} words, and the student into "
                f"{size}; expected vocabularies that split words in the same way"
            )
