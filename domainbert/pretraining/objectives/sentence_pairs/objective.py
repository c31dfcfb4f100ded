"""Masked LM on pairs of segments, with prediction of the relation between the segments.

Devlin et al. 2019 (BERT), section 3.1, task 2, and Lan et al. 2020 (ALBERT, arXiv:1909.11942), section 3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from torch import Tensor
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.data.packing import IGNORE_INDEX, Batch, Ints, PackedRows, RowPlan, fill_rows
from domainbert.data.splits import PreparedCorpus, PreparedSplit
from domainbert.encoders.families import PRETRAINING
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed
from domainbert.models.card import load_code
from domainbert.pretraining.losses import base_rate_warnings, cross_entropy, entropy, softmax_losses
from domainbert.pretraining.objective import (
    MODEL,
    BuiltModel,
    CorpusRows,
    InitialModels,
    Key,
    Models,
    Term,
    ValidationText,
)
from domainbert.pretraining.objectives.masked_lm.objective import MASKED, MaskedLMObjective
from domainbert.pretraining.objectives.sentence_pairs.plan import PairPlan, Texts, plan_pairs
from domainbert.pretraining.objectives.sentence_pairs.sentences import positions_where
from domainbert.tokenization.load import DomainTokenizer

if TYPE_CHECKING:
    from domainbert.pretraining.objectives.sentence_pairs.config import SentencePairs

PAIRS = "pairs"  # term of the loss
_LABEL_TEXTS = {
    "order": ("in order (0)", "swapped (1)"),
    "next": ("the second segment follows (0)", "the second segment is of another document (1)"),
}


@dataclass(frozen=True)
class PairedRows(PackedRows):
    """Rows of pairs; P is the maximum number of pairs in a row."""

    pairs: Ints  # (R, P) start of each pair in the flattened tokens; the start of the row in unused slots
    labels: Ints  # (R, P) see `Halves`; `IGNORE_INDEX` in unused slots


class SentencePairsObjective(MaskedLMObjective):
    """Masked LM and classification of pairs; the training loss is the sum of both mean losses, as in BERT and ALBERT.

    A pair is one text, `[CLS] A [SEP] B [SEP]`; token types distinguish the segments, positions continue across both.
    """

    config: SentencePairs
    inputs = (*Packed._fields, "positions", "targets", "pairs", "labels")
    measured = (MASKED, "targets", PAIRS, "num_pairs", "correct", "num_label_1")
    summary = "A model of masked words and of pairs of segments, pretrained with domainbert."
    usage = load_code("AutoModelForPreTraining")

    def __init__(self, config: SentencePairs, tokenizer: DomainTokenizer) -> None:
        super().__init__(config, tokenizer)
        self.terms = {**self.terms, PAIRS: Term(count="num_pairs")}

    def layout_rows(self, split: PreparedSplit, length: int) -> PairPlan:
        """Return a plan of rows of pairs, with room for the special tokens of a pair.

        Raises:
            DomainbertError: no piece can be a pair; the corpus has translations; or the relation is `next`, and the
                corpus has one document or several languages.
        """
        tokenizer = self.tokenizer
        if self.config.relation == "next" and split.languages is not None:
            raise DomainbertError(
                where="objective.relation",
                found="next with a corpus of several languages, where the language of a second segment would "
                "reveal the label",
                expected="objective.relation: order",
            )
        separators = np.asarray(tokenizer.template.separators)
        if len(positions_where(split, lambda ids: np.isin(ids, separators))):
            raise DomainbertError(
                "the corpus has pairs of a text and its translation, which SentencePairs would cut",
                where="prepared",
                expected="a corpus of single texts, or objective MaskedLM",
            )
        plan = split.row_plan(tokenizer, length, pairs=True)
        paired = plan_pairs(plan, self.config.relation, split, tokenizer)
        if not paired.num_pairs or (self.config.relation == "next" and split.num_documents < 2):
            needed = "2 documents for objective.relation: next" if paired.num_pairs else "texts of 4 or more tokens"
            raise DomainbertError("a split has too little text", where="prepared", expected=needed)
        return paired

    @override
    def pieces_read(self, plan: RowPlan, key: Key) -> Ints:
        return cast(PairPlan, plan).pieces_read(key)

    def read(self, split: PreparedSplit, plan: RowPlan, key: Key) -> CorpusRows:
        """Return the rows of a key (`PairedRows`), with the segments of its pass and the labels of the pairs."""
        paired = cast(PairPlan, plan)
        texts = paired.texts(key)
        segments = list(zip(texts.first.tolist(), texts.second.tolist(), strict=True))  # (start, end) each
        # token ids
        rows: list[list[Any]] = [[] for _ in key.rows]
        for row, label, (first, second) in zip(texts.rows.tolist(), texts.labels.tolist(), segments, strict=True):
            is_pair = label != IGNORE_INDEX
            rows[row].append((split.take(*first), split.take(*second)) if is_pair else split.take(*first))
        template = self.tokenizer.template
        packed = fill_rows(rows, plan.row_length, template, self.tokenizer.pad_id)
        # word starts, in the flattened rows; texts are ordered by row, like `first_positions`
        starts_word = np.zeros(packed.input_ids.size, dtype=np.bool_)
        for pair, position in zip(segments, packed.first_positions + 1, strict=True):  # + 1: after [CLS]
            for start, stop in pair:  # the second segment of a single piece is empty
                starts_word[position : position + stop - start] = split.take_starts(start, stop)
                position += stop - start + len(template.separators)
        pairs, labels = _pair_slots(texts, packed, paired.max_pairs)
        paired_rows = PairedRows(**vars(packed), pairs=pairs, labels=labels)
        return CorpusRows(paired_rows, starts_word.reshape(packed.input_ids.shape))

    def corrupt(self, rows: CorpusRows, key: Key) -> Batch:
        """Return the batch of masked LM with `token_type_ids` (R, S), `pairs` (R * P,), the start of each pair in the
        flattened tokens, and their `labels` (R * P,)."""
        packed = cast(PairedRows, rows.packed)
        pairs = {"pairs": packed.pairs.ravel(), "labels": packed.labels.ravel()}
        return {**super().corrupt(rows, key), "token_type_ids": packed.token_type_ids, **pairs}

    def notes(self, rows: CorpusRows, batch: Batch) -> list[list[str]]:
        """Return the notes of masked LM, and the label at the start of each pair."""
        notes, length = super().notes(rows, batch), rows.packed.input_ids.shape[1]
        for start, label in zip(batch["pairs"].tolist(), batch["labels"].tolist(), strict=True):
            if label != IGNORE_INDEX:
                notes[start // length][start % length] = _LABEL_TEXTS[self.config.relation][label]
        return notes

    def counts(self, plan: RowPlan, key: Key) -> dict[str, int]:
        """Return the numbers of masked tokens (`num_targets`) and of pairs (`num_pairs`), each at least 1."""
        paired = cast(PairPlan, plan)
        texts = paired.texts(key)
        masked = self.masker.num_masked(paired.num_maskable(texts, len(key.rows)), key.progress)
        return {
            "num_targets": max(int(masked.sum()), 1),
            "num_pairs": max(int((texts.labels != IGNORE_INDEX).sum()), 1),
        }

    def build(self, start: InitialModels) -> dict[str, BuiltModel]:
        """Return the encoder with a head for both tasks."""
        self.config.check(start.config)
        return {MODEL: BuiltModel(start.model(PRETRAINING), start.config, PRETRAINING)}

    def losses(self, models: Models, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the summed losses of masked LM and of the pairs."""
        logits, pair_logits = _logits(models[MODEL], batch)
        losses = softmax_losses(MASKED, logits, batch["targets"], self.config.z_loss)
        return losses | {PAIRS: cross_entropy(pair_logits, batch["labels"])}

    def measure(self, models: Models, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the sums of both losses, and the numbers of masked tokens (`targets`), pairs (`num_pairs`), correctly
        classified pairs (`correct`) and pairs with label 1 (`num_label_1`)."""
        targets, labels = batch["targets"], batch["labels"]
        logits, pair_logits = _logits(models[MODEL], batch)
        is_pair = labels != IGNORE_INDEX
        return {
            MASKED: cross_entropy(logits, targets),
            "targets": (targets != IGNORE_INDEX).sum(),
            PAIRS: cross_entropy(pair_logits, labels),
            "num_pairs": is_pair.sum(),
            "correct": ((pair_logits.argmax(dim=-1) == labels) & is_pair).sum(),
            "num_label_1": (labels == 1).sum(),
        }

    def report(self, sums: Mapping[str, Tensor], text: ValidationText) -> dict[str, float]:
        """Return the metrics of masked LM, and loss and accuracy of the pairs; `loss` is the sum of both losses.

        `base_rate_entropy` is the pair loss if the share of label 1 is predicted for each pair: ln 2 for one half.
        """
        metrics = super().report({"loss": sums[MASKED], "targets": sums["targets"]}, text)
        values = {name: float(value) for name, value in sums.items()}
        num_pairs = max(values["num_pairs"], 1)
        pair_loss = values[PAIRS] / num_pairs
        return {
            **metrics,
            "loss": metrics["loss"] + pair_loss,
            "masked_lm_loss": metrics["loss"],
            "pair_loss": pair_loss,
            "pair_accuracy": values["correct"] / num_pairs,
            "base_rate_entropy": entropy(values["num_label_1"] / num_pairs),
        }

    def judge(self, corpus: PreparedCorpus, validation: Mapping[str, float]) -> tuple[dict[str, Any], list[str]]:
        """Return the facts and warnings of masked LM, and a warning if the pair loss is hardly below the base rate."""
        facts, messages = super().judge(corpus, {**validation, "loss": validation["masked_lm_loss"]})
        loss, base_rate_entropy = validation["pair_loss"], validation["base_rate_entropy"]
        consequence = "the relation between segments has not been learned"
        return facts, messages + base_rate_warnings("the loss on pairs", loss, base_rate_entropy, consequence)

    @override
    def card_facts(self, validation: Mapping[str, float]) -> dict[str, str]:
        return {
            **super().card_facts({**validation, "loss": validation["masked_lm_loss"]}),
            "pairs": f"loss {validation['pair_loss']:.4f} nats, {validation['base_rate_entropy']:.4f} for a guess from "
            f"the shares of the labels; accuracy {validation['pair_accuracy']:.4f}",
        }


def _pair_slots(texts: Texts, packed: PackedRows, num_slots: int) -> tuple[Ints, Ints]:
    """Return the starts of pairs in the flattened tokens, and labels, (R, `num_slots`) each, as in `PairedRows`."""
    num_rows, length = packed.input_ids.shape
    row_starts = np.arange(num_rows) * length
    pairs = np.repeat(row_starts[:, None], num_slots, axis=1)
    labels = np.full((num_rows, num_slots), IGNORE_INDEX, dtype=np.int64)
    paired = texts.labels != IGNORE_INDEX
    rows = texts.rows[paired]  # ascending
    slots = np.arange(len(rows)) - np.searchsorted(rows, rows)  # number of earlier pairs in the row
    pairs[rows, slots] = packed.first_positions[paired]
    labels[rows, slots] = texts.labels[paired]
    return pairs, labels


def _logits(model: EncoderWithHead, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the logits of hidden tokens (R * K, V) and of pairs (R * P, 2)."""
    logits, pair_logits = model(Packed.of(batch), batch["positions"], batch["pairs"])
    return logits, pair_logits
