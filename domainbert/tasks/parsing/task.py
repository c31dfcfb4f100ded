"""Dependency trees: a biaffine head that scores each word as head of each other one, and the labels of their arcs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.data.examples import Example, Ints, Window, window_bounds
from domainbert.data.packing import room_for_text
from domainbert.data.types import IGNORED
from domainbert.encoders.biaffine import Biaffine
from domainbert.encoders.crf import WordGrid
from domainbert.encoders.head_config import HeadConfig
from domainbert.labelled.contents import Content, text_of
from domainbert.labelled.items import Labelled, label_set
from domainbert.labelled.row_values import problem_with_strings
from domainbert.tasks.capabilities import Fitting, Inputs, Showing, Teaching
from domainbert.tasks.parsing.config import DECODING, Decoding, Parsing
from domainbert.tasks.parsing.files import Sentence
from domainbert.tasks.parsing.parser import ParsedWord, Parser, Tree
from domainbert.tasks.parsing.scoring import TreeScoring
from domainbert.tasks.parsing.spanning import best_tree, greedy_heads
from domainbert.tasks.task import ADVICE, Batch, Task
from domainbert.tasks.words import aligned_contents
from domainbert.tokenization.align import AlignedWords, align_words
from domainbert.tokenization.load import DomainTokenizer

if TYPE_CHECKING:
    from torchmetrics import Metric

_WORDS = "tokens"  # key of words in JSONL
_NEVER = -1e9  # the logarithm of no probability; finite, so that the difference of two is a number
_NEAR = 0.02  # of UAS: as good as no better


class WordInputs(Inputs["ParsingTask"]):
    """Words under "tokens", where a row has them, or its text."""

    @override
    def content_of(self, task: ParsingTask, row: Mapping[str, Any], text_key: str) -> Content:
        if _WORDS not in row:
            return text_of(row, text_key)
        if problem := problem_with_strings(dict(row), _WORDS):
            raise DomainbertError(problem)
        words: list[str] = row[_WORDS]
        return words


class ArcFitting(Fitting["ParsingTask"]):
    """Warns about a parser that is no better than the neighbour of each word as its head."""

    @override
    def warnings(self, task: ParsingTask, items: Sequence[Sentence], scores: Mapping[str, float]) -> list[str]:
        arcs = [(word, head) for sentence in items for word, head in enumerate(sentence.heads, 1)]
        beside = max(sum(head == word + step for word, head in arcs) for step in (-1, 1)) / len(arcs)
        if scores["uas"] > beside + _NEAR or beside == 1:
            return []
        always = f"attaching every word to its neighbour gets {100 * beside:.1f}"
        return [f"UAS {100 * scores['uas']:.1f} on validation, while {always}; {ADVICE}"]


class ArcTeaching(Teaching["ParsingTask"]):
    """Compares the distribution over all heads with all labels, for each word."""

    @override
    def teacher_logits(self, task: ParsingTask, head: nn.Module, logits: Tensor, batch: Batch) -> Tensor:
        """Return log-probabilities (words, (1 + W) x C), where W is the length of the longest sentence of the batch."""
        assert isinstance(head, Biaffine)
        if not bool((batch["outputs"] >= 0).any()):
            return logits[:0]  # sentences of no words
        grid = WordGrid(batch["example"], batch["outputs"])
        with torch.autocast(logits.device.type, enabled=False):
            joint = [
                one.flatten(1).clamp(min=_NEVER) for one in head.joint_scores(grid.fill(logits.float()), grid.lengths)
            ]
        widest = max(one.shape[1] for one in joint)
        return torch.cat([functional.pad(one, (0, widest - one.shape[1]), value=_NEVER) for one in joint])


class ArcShowing(Showing["ParsingTask"]):
    """Shows the label of a word's arc and its head, numbered from 1."""

    @override
    def shown_target(self, task: ParsingTask, target: Any) -> str:
        head, label = target.tolist()
        return f"{task.labels[label]} of {f'word {head}' if head else 'the root'}"


class ParsingTask(Task[Sentence, list[ParsedWord]]):
    """Gives each word a head and a label; a sentence that is longer than a window is scored as a whole.

    The head's outputs are projections of words: those of a sentence's words come from the windows that own them, and
    arcs are scored between all of them.
    """

    head = "biaffine"
    counted = "num_targets"
    predictor = Parser
    scoring = TreeScoring
    fitting = ArcFitting()
    inputs = WordInputs()
    showing = ArcShowing()
    teaching = ArcTeaching(is_softmax=False)  # the head gives projections of words, and no logits
    biaffine: Biaffine

    def __init__(self, labels: Sequence[str], decode: Decoding = "mst") -> None:
        super().__init__(labels)
        self.decoding = decode

    @classmethod
    def of_training(cls, config: Parsing, train: Labelled[Sentence]) -> ParsingTask:
        """The labels of a treebank, and the sizes that are asked for."""
        task = cls(label_set(train.items), config.decode)
        task.head_config = HeadConfig(cls.head, arc_size=config.arc_size, label_size=config.label_size)
        return task

    @classmethod
    @override
    def of_folder(cls, labels: Sequence[str], fields: Mapping[str, Any]) -> ParsingTask:
        return cls(labels, **Parsing.evaluation.settings_from_model_config(fields))

    def folder_facts(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """The way in which trees are made of scores."""
        return {DECODING: self.decoding}

    @override
    def attach_head(self, head: nn.Module) -> None:
        assert isinstance(head, Biaffine)
        self.biaffine = head

    @override
    def encode(self, items: Sequence[Sentence], tokenizer: DomainTokenizer, max_length: int) -> list[Example]:
        """The targets of a word are its head and its label."""
        number = {label: index for index, label in enumerate(self.labels)}
        targets = [[(head, number[label]) for head, label in sentence.arcs] for sentence in items]
        aligned = align_words(tokenizer, [sentence.words for sentence in items])
        return [_example(words, np.array(one), max_length) for words, one in zip(aligned, targets, strict=True)]

    @override
    def encode_contents(
        self, contents: Sequence[Content], tokenizer: DomainTokenizer, max_length: int
    ) -> list[Example]:
        """Examples of contents; `word_splitting` splits a text into words."""
        aligned = aligned_contents(tokenizer, contents, self.word_splitting)
        return [_example(words, np.full((len(words.first_piece), 2), IGNORED), max_length) for words in aligned]

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Negative log-likelihood of the heads, and of the labels given the right heads, summed over the words."""
        grid = WordGrid(batch["example"], batch["outputs"])
        known = grid.fill(batch["targets"][:, 0] != IGNORED)  # (E, W); false behind a sentence's end
        heads, labels = grid.fill(batch["targets"]).clamp(min=0).unbind(2)
        with torch.autocast(logits.device.type, enabled=False):
            words = grid.fill(logits.float())
            arcs = self.biaffine.arc_scores(words, grid.lengths)[known]
            labelled = self.biaffine.label_scores(words, heads, known)
            of_heads = functional.cross_entropy(arcs, heads[known], reduction="sum")
            return of_heads + functional.cross_entropy(labelled, labels[known], reduction="sum")

    def metric(self) -> Metric:
        """The attachment scores."""
        from domainbert.metrics.modules import AttachmentScores

        return AttachmentScores()

    @override
    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[Sentence]) -> None:
        gold = [items[item] for item in batch["items"].tolist()]
        predicted = [tree.arcs for tree in self.decode(logits, batch)]
        metric.update(predicted, [one.arcs for one in gold], [one.punctuation for one in gold])

    def decode(self, logits: Tensor, batch: Batch) -> list[Tree]:
        """The tree of each sentence; all of them have words."""
        grid = WordGrid(batch["example"], batch["outputs"])
        sizes, inside = grid.lengths.tolist(), grid.fill(batch["outputs"] >= 0)
        with torch.autocast(logits.device.type, enabled=False):
            words = grid.fill(logits.float())
            arcs = torch.log_softmax(self.biaffine.arc_scores(words, grid.lengths), dim=2)
            heads = self._heads(arcs, sizes)
            labels = torch.log_softmax(self.biaffine.label_scores(words, heads, inside), dim=1).max(dim=1)
        scores = (arcs.gather(2, heads.unsqueeze(2)).squeeze(2)[inside] + labels.values).exp()
        of_sentences = zip(*(found.split(sizes) for found in (heads[inside], labels.indices, scores)), strict=True)
        return [self._tree(*(found.tolist() for found in sentence)) for sentence in of_sentences]

    def _tree(self, heads: list[int], labels: list[int], scores: list[float]) -> Tree:
        return Tree([(head, self.labels[label]) for head, label in zip(heads, labels, strict=True)], scores)

    def _heads(self, arcs: Tensor, lengths: Sequence[int]) -> Tensor:
        """The heads (E, W) that log-probabilities (E, W, 1 + W) give; 0 behind a sentence's end."""
        decode = best_tree if self.decoding == "mst" else greedy_heads
        heads = torch.zeros(arcs.shape[:2], dtype=torch.int64)
        # a training that diverges gives no numbers: any tree will do, for it is told elsewhere
        tables = arcs.detach().nan_to_num(nan=0.0, neginf=-torch.inf).cpu().numpy()
        for row, table, length in zip(heads, tables, lengths, strict=True):
            row[:length] = torch.tensor(decode(table[:length, : length + 1]))
        return heads.to(arcs.device)


def _example(words: AlignedWords, targets: Ints, max_length: int) -> Example:
    """A sentence whose words are read at their first pieces; targets (words, 2) are heads and labels, or `IGNORED`."""
    ids, first = np.asarray(words.input_ids, dtype=np.int64), np.asarray(words.first_piece, dtype=np.int64)
    windows = []
    for start, stop, own, end in window_bounds(words.first_piece, len(ids), room_for_text(max_length, words.extra)):
        here = np.flatnonzero((first >= own) & (first < end))
        windows.append(Window(ids[start:stop], first[here] - start, here, targets[here], words.extra))
    return Example(tuple(windows), len(first))
