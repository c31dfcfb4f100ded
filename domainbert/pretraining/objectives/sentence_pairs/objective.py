"""Masked LM on pairs of segments, and whether the second one follows the first.

Devlin et al. 2019 (BERT), section 3.1, task 2, and Lan et al. 2020 (ALBERT, arXiv:1909.11942), section 3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from torch import Tensor
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.data.packing import Ints, PackedRows, RowPlan, fill_rows, plan_rows
from domainbert.data.splits import PreparedCorpus, PreparedSplit
from domainbert.data.types import IGNORED, Batch
from domainbert.encoders.families import PRETRAINING
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed
from domainbert.pretraining.base_rate import entropy, is_learnt
from domainbert.pretraining.config import CORPUS_ADVICE, MaskingConfig
from domainbert.pretraining.objective import MODEL, Built, CorpusRows, Key, Models, Objective, Term, ValidationText
from domainbert.pretraining.objectives.masked_lm.objective import MASKED, MaskedLMObjective
from domainbert.pretraining.objectives.sentence_pairs.plan import PairPlan, Texts, pair_plan
from domainbert.pretraining.objectives.sentence_pairs.sentences import places
from domainbert.pretraining.softmax import cross_entropy, softmax_losses
from domainbert.pretraining.start import Start
from domainbert.tokenization.load import DomainTokenizer

if TYPE_CHECKING:
    from domainbert.pretraining.objectives.sentence_pairs.config import SentencePairs

PAIRS = "pairs"  # the loss of pairs among the terms
_SAID = {
    "order": ("in order (0)", "swapped (1)"),
    "next": ("the second segment follows (0)", "the second segment is of another document (1)"),
}


@dataclass(frozen=True)
class PairedRows(PackedRows):
    """Rows of pairs: P of them, as many as any row has, are places for each row."""

    pairs: Ints  # (R, P) where the pairs begin in the flattened tokens; unused places are where the row begins
    labels: Ints  # (R, P) see `Halves`; `IGNORED` in unused places


class SentencePairsObjective(Objective["SentencePairs"]):
    """Masked LM and a question on pairs; the sum of both losses is trained, each a mean, as in BERT and ALBERT.

    A pair is one text, `[CLS] A [SEP] B [SEP]`; the token types tell the segments apart, positions run through both.
    """

    inputs = (*Packed._fields, "positions", "targets", "pairs", "labels")
    measured = (MASKED, "targets", PAIRS, "judged", "right", "apart")
    pipeline_tag = "fill-mask"
    summary = "A model of masked words and of pairs of segments, pretrained with domainbert."
    usage = (
        "from transformers import AutoModelForPreTraining\n\nmodel = AutoModelForPreTraining.from_pretrained(folder)"
    )

    def __init__(self, config: SentencePairs, tokenizer: DomainTokenizer) -> None:
        super().__init__(config, tokenizer)
        self.masked_lm = MaskedLMObjective(config, tokenizer)
        self.terms = {**self.masked_lm.terms, PAIRS: Term(count="num_pairs")}

    @override
    def for_training(self, corpus: PreparedCorpus) -> SentencePairsObjective:
        learnt = copy(self)
        learnt.masked_lm = self.masked_lm.for_training(corpus)
        return learnt

    def for_validation(self) -> SentencePairsObjective:
        """Always 15 % of single pieces, split 80/10/10."""
        return SentencePairsObjective(replace(self.config, masking=MaskingConfig()), self.tokenizer)

    def lay_out(self, split: PreparedSplit, length: int) -> PairPlan:
        """Plan of the rows: pieces with room for the special tokens of a pair.

        Raises:
            DomainbertError: no piece can be a pair, or the next segment is asked for, and there is one document, or
                the corpus has languages.
        """
        tokenizer, tokens = self.tokenizer, (split.document_offsets, split.take, split.take_starts)
        extra = tokenizer.template.extra(pair=True)
        if self.config.relation == "next" and split.languages is not None:
            raise DomainbertError(
                "relation: next, of a corpus with languages: a B of another language gives itself away; expected order"
            )
        between = np.asarray(tokenizer.template.separators)
        if len(places(split, lambda ids: np.isin(ids, between))):
            raise DomainbertError(
                "prepared: has texts with their translations, which SentencePairs would cut between the two; expected "
                "single texts, or MaskedLM (translation LM)"
            )
        plan = plan_rows(*tokens, tokenizer.vocab_size, tokenizer.special_ids, length, extra, split.languages)
        paired = pair_plan(plan, self.config.relation, split, tokenizer)
        if not paired.num_pairs or (self.config.relation == "next" and split.num_documents < 2):
            raise DomainbertError(
                f"prepared: a split has {paired.num_pairs:,} texts that can be cut in two, of {split.num_documents:,} "
                f"documents; expected one of 4 tokens or more for relation: {self.config.relation}, and two documents "
                "for next"
            )
        return paired

    @override
    def pieces_read(self, plan: RowPlan, key: Key) -> Ints:
        """Pieces that the model reads, those of exchanged segments included."""
        return cast(PairPlan, plan).pieces_read(key)

    def read(self, split: PreparedSplit, plan: RowPlan, key: Key) -> CorpusRows:
        """The rows of a key, their segments as the pass has them, and the labels of the pairs."""
        paired = cast(PairPlan, plan)
        texts = paired.texts(key)
        segments = [[*one, *other] for one, other in zip(texts.first.tolist(), texts.second.tolist(), strict=True)]
        rows: list[list[Any]] = [[] for _ in key.rows]
        for row, (a, b, c, d) in zip(texts.rows.tolist(), segments, strict=True):
            rows[row].append((split.take(a, b), split.take(c, d)) if d > c else split.take(a, b))
        template = self.tokenizer.template
        packed = fill_rows(rows, plan.row_length, template, self.tokenizer.pad_id)
        starts_word = np.zeros(packed.input_ids.size, dtype=np.bool_)
        for (a, b, c, d), first in zip(segments, packed.first_positions + 1, strict=True):
            starts_word[first : first + b - a] = split.take_starts(a, b)
            if d > c:
                behind = first + b - a + template.between
                starts_word[behind : behind + d - c] = split.take_starts(c, d)
        places = _pair_places(texts, packed, paired.most_pairs)
        return CorpusRows(PairedRows(**vars(packed), **places), starts_word.reshape(packed.input_ids.shape))

    def corrupt(self, rows: CorpusRows, key: Key) -> Batch:
        """The batch of masked LM, and beside it `token_type_ids` (R, S), the places in the flattened tokens where pairs
        begin, `pairs` (R * P,), and their `labels` (R * P,)."""
        packed = cast(PairedRows, rows.packed)
        pairs = {"pairs": packed.pairs.ravel(), "labels": packed.labels.ravel()}
        return {**self.masked_lm.corrupt(rows, key), "token_type_ids": packed.token_type_ids, **pairs}

    def notes(self, rows: CorpusRows, batch: Batch) -> list[list[str]]:
        """Those of masked LM, and at the beginning of each pair its label."""
        notes, length = self.masked_lm.notes(rows, batch), rows.packed.input_ids.shape[1]
        for place, label in zip(batch["pairs"].tolist(), batch["labels"].tolist(), strict=True):
            if label != IGNORED:
                notes[place // length][place % length] = _SAID[self.config.relation][label]
        return notes

    def counts(self, plan: RowPlan, key: Key) -> dict[str, int]:
        """`num_targets`: masked tokens; `num_pairs`: pairs; 1 where there is none to divide by."""
        paired = cast(PairPlan, plan)
        texts = paired.texts(key)
        masked = self.masked_lm.masker.num_masked(paired.num_maskable(texts, len(key.rows)), key.progress)
        return {"num_targets": max(int(masked.sum()), 1), "num_pairs": max(int((texts.labels != IGNORED).sum()), 1)}

    def build(self, start: Start) -> dict[str, Built]:
        """The encoder with a head for both; `DomainbertError` where its family has none."""
        config = start.config
        self.config.check(config)
        return {MODEL: Built(start.model(PRETRAINING), config, PRETRAINING)}

    def losses(self, models: Models, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Those of masked LM, and that of the pairs."""
        entries, pairs = _logits(models[MODEL], batch)
        of_tokens = softmax_losses(MASKED, entries, batch["targets"], self.config.z_loss)
        return {**of_tokens, PAIRS: cross_entropy(pairs, batch["labels"])}

    def measure(self, models: Models, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Both losses and what they are divided by, masked tokens and pairs that are `judged`; of these, how many are
        judged `right`, and how many are `apart`, with the label 1."""
        targets, labels = batch["targets"], batch["labels"]
        entries, pairs = _logits(models[MODEL], batch)
        judged = labels != IGNORED
        return {
            MASKED: cross_entropy(entries, targets),
            "targets": (targets != IGNORED).sum(),
            PAIRS: cross_entropy(pairs, labels),
            "judged": judged.sum(),
            "right": ((pairs.argmax(dim=-1) == labels) & judged).sum(),
            "apart": (labels == 1).sum(),
        }

    def report(self, sums: Mapping[str, Tensor], text: ValidationText) -> dict[str, float]:
        """The report of masked LM, but for the `loss`, which is the sum of both; of the pairs loss and accuracy.

        `base_rate_entropy` is the loss of saying of each pair how many of a hundred are apart: ln 2 where half are.
        """
        found = self.masked_lm.report({"loss": sums[MASKED], "targets": sums["targets"]}, text)
        number = {name: float(value) for name, value in sums.items()}
        count = max(number["judged"], 1)
        pair_loss = number[PAIRS] / count
        return {
            **found,
            "loss": found["loss"] + pair_loss,
            "masked_lm_loss": found["loss"],
            "pair_loss": pair_loss,
            "pair_accuracy": number["right"] / count,
            "base_rate_entropy": entropy(number["apart"] / count),
        }

    def baselines(self, corpus: PreparedCorpus) -> dict[str, float]:
        """Those of masked LM."""
        return self.masked_lm.baselines(corpus)

    def judge(self, corpus: PreparedCorpus, validation: Mapping[str, float]) -> tuple[dict[str, Any], list[str]]:
        """The judgement of masked LM; pairs of which only the share that is apart is known are a warning, too."""
        facts, warned = self.masked_lm.judge(corpus, {**validation, "loss": validation["masked_lm_loss"]})
        return facts, warned + warnings(validation["pair_loss"], validation["base_rate_entropy"])

    def flops_per_token(self, models: Models, length: int) -> float:
        """Those of masked LM; the pooler counts as if it ran at masked positions, which are more."""
        return self.masked_lm.flops_per_token(models, length)

    def card_facts(self, validation: Mapping[str, float]) -> dict[str, str]:
        """Those of masked LM, and the loss and accuracy on pairs."""
        return {
            **self.masked_lm.card_facts({**validation, "loss": validation["masked_lm_loss"]}),
            "pairs": f"loss {validation['pair_loss']:.4f} nats, {validation['base_rate_entropy']:.4f} without reading; "
            f"accuracy {validation['pair_accuracy']:.4f}",
        }


def _pair_places(texts: Texts, packed: PackedRows, most: int) -> dict[str, Ints]:
    """`pairs` and `labels` of `PairedRows`, (R, `most`) each."""
    count, length = packed.input_ids.shape
    pairs = np.repeat(np.arange(count)[:, None] * length, most, axis=1)
    labels = np.full((count, most), IGNORED, dtype=np.int64)
    paired = texts.labels != IGNORED
    rows = texts.rows[paired]
    slots = np.arange(len(rows)) - np.searchsorted(rows, rows)
    pairs[rows, slots], labels[rows, slots] = packed.first_positions[paired], texts.labels[paired]
    return {"pairs": pairs, "labels": labels}


def _logits(model: EncoderWithHead, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Of hidden tokens (R * K, V), and of pairs (R * P, 2)."""
    entries, pairs = model(Packed.of(batch), batch["positions"], batch["pairs"])
    return entries, pairs


def warnings(loss: float, base_rate_entropy: float) -> list[str]:
    """A loss on pairs that is hardly below what the base rate gives; both in nats per pair."""
    if is_learnt(loss, base_rate_entropy):
        return []
    return [
        f"the loss on pairs is {loss:.4f}, and {base_rate_entropy:.4f} is reached by saying the same of each pair: "
        f"how two segments belong together has not been learnt; {CORPUS_ADVICE}"
    ]
