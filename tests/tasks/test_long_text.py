"""A long text is encoded in parts, and has the pieces, words and tags of the whole."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from domainbert.encoders.crf import Crf
from domainbert.labelled.tag_schemes import labels_of_types, spans_from_tags
from domainbert.tasks import word_task
from domainbert.tasks.ner.task import CrfNerTask, NerTask
from domainbert.tasks.word_task import aligned_contents, text_and_offsets
from domainbert.tokenization.splitting import align_raw
from tests.tokenization.properties import train_kind

_WORDS = [
    *["bank"] * 10,
    "court",
    "Courts'",
    "savings-group",
    "men's",
    "(a)",
    "...",
    "e\u0301te\u0301",
    "\u4e2d\u56fd",
    "x",
    "12.5%",
]
_GAPS = [*[" "] * 10, "  ", "    ", "\n", " \n", "\n ", "\t", "\u00a0", " \u0301", " \u200b "]


@pytest.mark.parametrize("kind", ["WordPiece", "ByteBPE", "Unigram"])
@pytest.mark.parametrize("splitting", [None, "whitespace", {"inside_left": "-", "inside_right": "-", "end": "%"}])
def test_the_parts_of_a_text_have_the_pieces_of_the_whole(kind, splitting, monkeypatch):
    draw = random.Random(0)
    texts = ["".join(draw.choice(_WORDS) + draw.choice(_GAPS) for _ in range(size)) for size in (400, 30, 0, 5)]
    texts = [*(f" \n{text}" for text in texts), ""]
    tokenizer = train_kind(kind, [Path(__file__).read_text(), *_WORDS], 320)
    monkeypatch.setattr(word_task, "_PART", 40)
    lengths = []
    encode = tokenizer.encode_with_offsets
    monkeypatch.setattr(
        tokenizer, "encode_with_offsets", lambda texts: [lengths.append(len(text)) for text in texts] and encode(texts)
    )
    parts = aligned_contents(tokenizer, [*texts, ["two", "words"]], splitting)
    assert max(lengths) < 250 < len(texts[0]) / 5 and len(lengths) > 30 and len(parts) == 6
    for text, found, wanted in zip(texts, parts, align_raw(tokenizer, texts, splitting), strict=False):
        for name in ("input_ids", "word_index", "starts_pretoken", "first_piece", "word_offsets"):
            assert np.asarray(getattr(found, name)).tolist() == np.asarray(getattr(wanted, name)).tolist(), name
        assert found.extra == wanted.extra
        text_of, offsets = text_and_offsets(text, found)
        assert text_of == text and [tuple(offset) for offset in offsets] == wanted.word_offsets
        assert all(type(place) is int for offset in offsets for place in offset)


@pytest.mark.parametrize("task_class", [NerTask, CrfNerTask])
@pytest.mark.parametrize("scheme", ["IOB2", "BIOES"])
def test_blocks_of_words_have_the_tags_and_scores_of_the_whole(task_class, scheme, monkeypatch):
    """Entities that extend over the end of a block included."""
    task, size = task_class(labels_of_types(["x", "y"], scheme)), 3_000
    task.min_score, generator = 0.4, torch.Generator().manual_seed(0)
    if task_class is CrfNerTask:
        task.crf = Crf(len(task.labels)).requires_grad_(False)
        task.crf.constrain(task.labels)
        for parameter in task.crf.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    logits = 3 * torch.randn(size, len(task.labels), generator=generator)
    logits[500:1_500, task.labels.index("I-x")] += 40  # an entity of a thousand words
    batch = {"items": torch.tensor([0]), "example": torch.zeros(size, dtype=torch.int64), "outputs": torch.arange(size)}
    (whole,) = task.decode(logits, batch)
    monkeypatch.setattr("domainbert.encoders.crf._BLOCK", 64)
    (blocks,) = task.decode(logits, batch)
    lengths = [end - start for start, end, _ in spans_from_tags(whole.tags)]
    assert blocks == whole and len(lengths) > 100 and max(lengths) >= 1_000
