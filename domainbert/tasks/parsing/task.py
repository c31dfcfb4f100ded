"""Dependency parsing: a biaffine head that scores arcs between all words, and their labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from domainbert.data.examples import window_bounds
from domainbert.data.packing import IGNORE_INDEX, Example, Ints, Window, room_for_text
from domainbert.encoders.biaffine import Biaffine
from domainbert.encoders.crf import WordGrid
from domainbert.encoders.head_config import HeadConfig
from domainbert.labelled.contents import Content, as_contents, text_of
from domainbert.labelled.row_values import problem_with_strings, raise_problems
from domainbert.tasks.capabilities import DistillationTargets, ExampleFormatter, Inputs, TrainingHooks
from domainbert.tasks.parsing.config import DECODING, Decoding, Parsing
from domainbert.tasks.parsing.files import Sentence
from domainbert.tasks.parsing.scoring import TreeScoring
from domainbert.tasks.parsing.trees import Tree, best_tree, greedy_heads
from domainbert.tasks.predictor import Predictor
from domainbert.tasks.task import ADVICE, MIN_GAIN, Batch, Task
from domainbert.tasks.word_task import aligned_contents, text_and_offsets
from domainbert.tokenization.align import AlignedWords, align_words
from domainbert.tokenization.load import DomainTokenizer

if TYPE_CHECKING:
    from torchmetrics import Metric

_WORDS_KEY = "tokens"  # key of words in JSONL
_LOG_ZERO = -1e9  # log of probability 0; finite, so that differences are not NaN


@dataclass(frozen=True)
class ParsedWord:
    """A word of a text: characters `start` to `end` (exclusive); `text` is the substring.

    `head` is the number of its head word, from 1, or 0 for the root; `score` as in `Tree`.
    """

    start: int
    end: int
    text: str
    head: int
    label: str
    score: float


class Parser(Predictor[list[ParsedWord]]):
    """Predictor of dependency trees for raw text, whose words are its pre-tokens, or lists of words."""

    kind = "a dependency parser with the labels"

    def _predict(self, texts: Sequence[Content]) -> list[list[ParsedWord]]:
        aligned = aligned_contents(self.tokenizer, texts, self.task.word_splitting)
        predictions = []
        for content, words, tree in zip(texts, aligned, self.predict_trees(texts), strict=True):
            text, offsets = text_and_offsets(content, words)
            arcs = zip(offsets, tree.arcs, tree.scores, strict=True)
            predictions.append(
                [ParsedWord(start, end, text[start:end], *arc, score) for (start, end), arc, score in arcs]
            )
        return predictions

    @override
    def as_json(self, prediction: list[ParsedWord]) -> dict[str, Any]:
        return {"words": [asdict(word) for word in prediction]}

    def predict_trees(self, texts: Iterable[Content] | Content) -> list[Tree]:
        """Return the tree of each text or list of words; without words it has no arcs."""
        contents = as_contents(texts)
        decoded = self._decode_examples(self.task.encode_contents(contents, self.tokenizer, self.max_length))
        return [decoded.get(index, Tree([], [])) for index in range(len(contents))]


class WordInputs(Inputs["ParsingTask"]):
    """Words under "tokens" if a row has this key, otherwise its text."""

    @override
    def content_of(self, task: ParsingTask, row: Mapping[str, Any], text_key: str) -> Content:
        if _WORDS_KEY not in row:
            return text_of(row, text_key)
        raise_problems(problem_with_strings(dict(row), _WORDS_KEY))
        words: list[str] = row[_WORDS_KEY]
        return words


class ArcTrainingHooks(TrainingHooks["ParsingTask"]):
    """Warns about a parser that is no better than an adjacent word as head of each word."""

    @override
    def warnings(self, task: ParsingTask, items: Sequence[Sentence], scores: Mapping[str, float]) -> list[str]:
        arcs = [(word, head) for sentence in items for word, head in enumerate(sentence.heads, 1)]
        # UAS of the better one of two parsers: the head of every word is the previous word, or the next word
        num_previous = sum(head == word - 1 for word, head in arcs)
        num_next = sum(head == word + 1 for word, head in arcs)
        baseline = max(num_previous, num_next) / len(arcs)
        if baseline == 1 or scores["uas"] > baseline + MIN_GAIN:  # at 1 no model can be better
            return []
        comparison = f"attaching every word to its neighbour gets {100 * baseline:.1f}"
        return [f"UAS {100 * scores['uas']:.1f} on validation, while {comparison}; {ADVICE}"]


class ArcDistillationTargets(DistillationTargets["ParsingTask"]):
    """Compares the joint distributions over heads and labels of each word."""

    @override
    def teacher_logits(self, task: ParsingTask, head: nn.Module, logits: Tensor, batch: Batch) -> Tensor:
        """Return log-probabilities (words, (1 + W) x C), where W is the length of the longest sentence of the batch."""
        assert isinstance(head, Biaffine)
        if not bool((batch["outputs"] >= 0).any()):
            return logits[:0]  # no sentence has words
        grid = WordGrid(batch["example"], batch["outputs"])
        with torch.autocast(logits.device.type, enabled=False):
            by_sentence = head.joint_scores(grid.fill(logits.float()), grid.lengths)
        flat = [scores.flatten(1).clamp(min=_LOG_ZERO) for scores in by_sentence]  # heads and labels in one axis
        width = max(scores.shape[1] for scores in flat)
        return torch.cat([functional.pad(scores, (0, width - scores.shape[1]), value=_LOG_ZERO) for scores in flat])


class ArcFormatter(ExampleFormatter["ParsingTask"]):
    """Shows the label of a word's arc and the number of its head, from 1."""

    @override
    def format_target(self, task: ParsingTask, target: Any) -> str:
        head, label = target.tolist()
        return f"{task.labels[label]} of {f'word {head}' if head else 'the root'}"


class ParsingTask(Task[Sentence, list[ParsedWord]]):
    """Dependency parsing; a sentence longer than a window is scored as a whole.

    The outputs of the biaffine head are projections of words. Each word of a sentence is projected in the window that
    owns it, and arcs are scored between all words.
    """

    head = "biaffine"
    loss_divisor = "num_targets"
    predictor = Parser
    scoring = TreeScoring
    training_hooks = ArcTrainingHooks()
    inputs = WordInputs()
    example_formatter = ArcFormatter()
    distillation_targets = ArcDistillationTargets(is_softmax=False)  # the head has projections instead of logits
    biaffine: Biaffine

    def __init__(self, labels: Sequence[str], decode: Decoding = "mst") -> None:
        super().__init__(labels)
        self.decoding = decode

    @classmethod
    @override
    def from_labels(cls, config: Parsing, labels: Sequence[str]) -> ParsingTask:
        """Return the task with the projection sizes of the settings."""
        task = cls(labels, config.decode)
        task.head_config = HeadConfig(cls.head, arc_size=config.arc_size, label_size=config.label_size)
        return task

    @classmethod
    @override
    def from_model_folder(cls, labels: Sequence[str], fields: Mapping[str, Any]) -> ParsingTask:
        return cls(labels, **Parsing.evaluation.settings_from_model_config(fields))

    def model_config_fields(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """Return the `config.json` entry with the decoding algorithm."""
        return {DECODING: self.decoding}

    @override
    def attach_head(self, head: nn.Module) -> None:
        assert isinstance(head, Biaffine)
        self.biaffine = head

    @override
    def encode(self, items: Sequence[Sentence], tokenizer: DomainTokenizer, max_length: int) -> list[Example]:
        """Return sentences as token ids and targets; the targets of a word are its head and label."""
        label_id = {label: index for index, label in enumerate(self.labels)}
        aligned = align_words(tokenizer, [sentence.words for sentence in items])
        examples = []
        for sentence, words in zip(items, aligned, strict=True):
            targets = np.array([(head, label_id[label]) for head, label in sentence.arcs])
            examples.append(_sentence_example(words, targets, max_length))
        return examples

    @override
    def encode_contents(
        self, contents: Sequence[Content], tokenizer: DomainTokenizer, max_length: int
    ) -> list[Example]:
        """Return contents as token ids, for prediction; `word_splitting` defines the words of a text."""
        examples = []
        for words in aligned_contents(tokenizer, contents, self.word_splitting):
            no_targets = np.full((len(words.first_piece), 2), IGNORE_INDEX)
            examples.append(_sentence_example(words, no_targets, max_length))
        return examples

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the negative log-likelihood of heads, and of labels given gold heads, summed over the words."""
        grid = WordGrid(batch["example"], batch["outputs"])
        mask = grid.fill(batch["targets"][:, 0] != IGNORE_INDEX)  # (E, W) sentences and words; false in padding
        heads, labels = grid.fill(batch["targets"]).clamp(min=0).unbind(2)  # unknown targets, outside `mask`, become 0
        with torch.autocast(logits.device.type, enabled=False):
            words = grid.fill(logits.float())
            arcs = self.biaffine.arc_scores(words, grid.lengths)[mask]
            label_scores = self.biaffine.label_scores(words, heads, mask)
            head_loss = functional.cross_entropy(arcs, heads[mask], reduction="sum")
            return head_loss + functional.cross_entropy(label_scores, labels[mask], reduction="sum")

    def metric(self) -> Metric:
        """Return the metric of attachment scores."""
        from domainbert.metrics.modules import AttachmentScores  # imports torchmetrics, which takes seconds

        return AttachmentScores()

    @override
    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[Sentence]) -> None:
        predicted = [tree.arcs for tree in self.decode(logits, batch)]
        metric.update(predicted, [sentence.arcs for sentence in items], [sentence.punctuation for sentence in items])

    def decode(self, logits: Tensor, batch: Batch) -> list[Tree]:
        """Return the tree of each sentence; every sentence has words."""
        grid = WordGrid(batch["example"], batch["outputs"])
        sizes = grid.lengths.tolist()
        inside = grid.fill(batch["outputs"] >= 0)  # (E, W) sentences and words; false in padding

        # the head of each word, its best label given this head, and their joint probability
        with torch.autocast(logits.device.type, enabled=False):
            words = grid.fill(logits.float())
            log_heads = torch.log_softmax(self.biaffine.arc_scores(words, grid.lengths), dim=2)  # (E, W, 1 + W)
            heads = self._heads(log_heads, sizes)  # (E, W)
            log_labels = torch.log_softmax(self.biaffine.label_scores(words, heads, inside), dim=1)  # (words, C)
        log_label, label_ids = log_labels.max(dim=1)
        log_head = log_heads.gather(2, heads.unsqueeze(2)).squeeze(2)[inside]
        scores = (log_head + log_label).exp().tolist()

        # divide the words of all sentences into sentences
        labels = [self.labels[label_id] for label_id in label_ids.tolist()]
        arcs = list(zip(heads[inside].tolist(), labels, strict=True))
        bounds = pairwise(accumulate(sizes, initial=0))
        return [Tree(arcs[start:end], scores[start:end]) for start, end in bounds]

    def _heads(self, log_heads: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the heads (E, W) of the words of E sentences, decoded from log-probabilities (E, W, 1 + W) of all
        heads; 0 in padding."""
        decode = best_tree if self.decoding == "mst" else greedy_heads
        heads = torch.zeros(log_heads.shape[:2], dtype=torch.int64)
        # NaN of a diverged training: any tree will do, as non-finite logits are reported elsewhere
        tables = log_heads.detach().nan_to_num(nan=0.0, neginf=-torch.inf).cpu().numpy()
        for row, table, length in zip(heads, tables, lengths, strict=True):
            row[:length] = torch.tensor(decode(table[:length, : length + 1]))
        return heads.to(log_heads.device)


def _sentence_example(words: AlignedWords, targets: Ints, max_length: int) -> Example:
    """Return the example of a sentence in overlapping windows. The head reads the first piece of each word, in the
    window that owns the piece; `targets` (words, 2) are the heads and labels of the words."""
    ids = np.asarray(words.input_ids, dtype=np.int64)
    first_pieces = np.asarray(words.first_piece, dtype=np.int64)
    bounds = window_bounds(words.first_piece, len(ids), room_for_text(max_length, words.extra))
    windows = []
    for start, stop, owned_start, owned_end in bounds:
        is_owned = (first_pieces >= owned_start) & (first_pieces < owned_end)
        word_indices = np.flatnonzero(is_owned)  # the outputs
        positions = first_pieces[word_indices] - start
        windows.append(Window(ids[start:stop], positions, word_indices, targets[word_indices], words.extra))
    return Example(tuple(windows), num_outputs=len(first_pieces))
