"""Spans of words: their lengths, and masks that a plain loop over single draws finds, too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domainbert.base.counter_random import random_bits, uniform
from domainbert.base.errors import DomainbertError
from domainbert.data.packing import IGNORE_INDEX
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.masking import span_lengths
from domainbert.pretraining.objective import Key
from domainbert.pretraining.objectives.replaced_tokens.config import ReplacedTokens
from tests.pretraining.test_masking import CONTINUATION, MASK, SEP, VOCAB_SIZE, make_masker, make_rows, mask, words_of

CHOOSE, ACTION, REPLACE, LENGTH = 1, 2, 3, 10
PUBLISHED = {
    "geometric": [0.2 * 0.8 ** (length - 1) for length in range(1, 11)],
    "ngram": [1 / length for length in range(1, 4)],
}


@pytest.mark.parametrize(("kind", "mean"), [("geometric", 3.797), ("ngram", 18 / 11)])
def test_lengths_are_those_published(kind, mean):
    """The mean of SpanBERT's is 3.8 (section 3.1): a distribution that is cut at ten words and divided by its sum."""
    shares = np.asarray(PUBLISHED[kind]) / sum(PUBLISHED[kind])
    assert shares @ np.arange(1, len(shares) + 1) == pytest.approx(mean, abs=5e-4)
    edges = np.concatenate([[0.0], np.cumsum(shares)[:-1]])
    assert span_lengths(kind, edges + 1e-9).tolist() == list(range(1, len(shares) + 1))
    assert span_lengths(kind, edges[1:] - 1e-9).tolist() == list(range(1, len(shares)))
    assert span_lengths(kind, np.asarray([[np.nextafter(1, 0)]])).tolist() == [[len(shares)]]
    drawn = span_lengths(kind, uniform(random_bits(LENGTH, 3, np.arange(100_000))))
    assert abs(drawn.mean() - mean) < 4.5 * np.sqrt((shares @ np.arange(1, len(shares) + 1) ** 2 - mean**2) / 100_000)
    found = np.bincount(drawn, minlength=len(shares) + 1)[1:] / 100_000
    assert (np.abs(found - shares) < 4.5 * np.sqrt(shares * (1 - shares) / 100_000)).all()


def draw(*counters: int) -> float:
    return float(uniform(random_bits(*counters)))


def plainly(row: np.ndarray, kind: str, wanted: int, counters: tuple[int, int, int]) -> tuple[list[int], list[int]]:
    """Places that are hidden in a row, and what is read there, span by span and token by token."""
    words = words_of(row)
    in_order = sorted(range(len(words)), key=lambda word: draw(CHOOSE, *counters, words[word][0]))
    begins: dict[int, int] = {}
    for word in in_order:
        start = words[word][0]
        if start in begins:
            continue
        length = int(span_lengths(kind, np.asarray(draw(LENGTH, *counters, start))))
        places = [place for one in words[word : word + length] for place in one]
        for expected, place in enumerate(places, start):
            if place != expected or place in begins or len(begins) == wanted:
                break
            begins[place] = start
        if len(begins) == wanted:
            break
    read = []
    for place in sorted(begins):
        action = draw(ACTION, *counters, begins[place] if kind == "geometric" else place)
        other = 5 + int(random_bits(REPLACE, *counters, place)) % (VOCAB_SIZE - 5)
        read.append(MASK if action < 0.8 else other if action < 0.9 else int(row[place]))
    return sorted(begins), read


@pytest.mark.parametrize("kind", ["geometric", "ngram"])
@given(seed=st.integers(0, 10_000), rate=st.sampled_from([0.01, 0.15, 0.4, 0.95]))
@settings(max_examples=40, deadline=None)
def test_masks_are_those_of_a_loop_over_spans(kind, seed, rate):
    """Texts of several lengths, words of several pieces, unknown ones, padding; spans end at all of these."""
    rows, masker = make_rows(6, 40, seed), make_masker(spans=kind, mlm_probability=rate)
    masked = mask(masker, rows, row_ids=np.arange(6) + 9, epoch=2, seed=seed)
    assert masked.positions.shape == masked.labels.shape == (6, max(1, round(rate * 40)))
    for number, row in enumerate(rows):
        maskable = int((row >= 5).sum())
        wanted = max(1, round(rate * maskable)) if maskable else 0
        places, read = plainly(row, kind, wanted, (seed, 2, 9 + number))
        used = masked.labels[number] != IGNORE_INDEX
        assert len(places) == wanted == used.sum()
        assert masked.positions[number, used].tolist() == places
        assert masked.labels[number, used].tolist() == row[places].tolist()
        row[places] = read
        assert masked.input_ids[number].tolist() == row.tolist()


def long_rows(num_rows: int, words_are_single: bool) -> np.ndarray:
    high = 25 if words_are_single else VOCAB_SIZE
    rows = np.random.default_rng(0).integers(5, high, (num_rows, 512))
    rows[:, 0], rows[:, -1] = SEP, SEP
    return rows


def test_each_span_is_hidden_replaced_or_kept_as_a_whole():
    """In 80, 10 and 10 of a hundred spans; single tokens of n-grams are on their own."""
    rows = long_rows(400, words_are_single=True)
    whole = {}
    for kind in ("geometric", "ngram"):
        masked = mask(make_masker(spans=kind, mlm_probability=0.02), rows)  # next to no span touches another
        used = masked.labels != IGNORE_INDEX
        read = np.take_along_axis(masked.input_ids, masked.positions, axis=1)
        done = np.where(read == MASK, 0, np.where(read == masked.labels, 2, 1))
        spans = [
            done[row, used[row]][group]
            for row in range(len(rows))
            for group in stretches(masked.positions[row, used[row]])
        ]
        whole[kind] = np.mean([len(set(span.tolist())) == 1 for span in spans if len(span) > 1])
        if kind == "geometric":
            shares = np.bincount([int(span[0]) for span in spans], minlength=3) / len(spans)
            assert np.abs(shares - [0.8, 0.1, 0.1]).max() < 4.5 * np.sqrt(0.16 / len(spans))
    assert whole["geometric"] > 0.93 > 0.72 > whole["ngram"]


def stretches(places: np.ndarray) -> list[np.ndarray]:
    """Indices of neighbouring places."""
    return np.split(np.arange(len(places)), np.flatnonzero(np.diff(places) > 1) + 1)


def test_what_is_hidden_begins_and_ends_with_a_word_but_for_one_cut():
    rows = long_rows(50, words_are_single=False)
    masked = mask(make_masker(spans="geometric"), rows)
    assert masked.positions.shape == (50, 77)
    for row, places, labels in zip(rows, masked.positions, masked.labels, strict=True):
        places = places[labels != IGNORE_INDEX]
        assert len(places) == 76
        words = words_of(row)
        parts = [word for word in words if set(word) & set(places.tolist())]
        assert sum(not set(word) <= set(places.tolist()) for word in parts) <= 1
        assert len(stretches(places)) < len(parts) / 2, "more than two words in a row"


def test_a_row_depends_on_seed_epoch_and_its_number_only():
    masker, rows = make_masker(spans="geometric", mlm_probability=0.3), make_rows(20, 40)
    together = mask(masker, rows, epoch=3, seed=11)
    for part in ([4], [19, 0, 4], list(range(20))[::-1]):
        alone = mask(masker, rows[part], part, epoch=3, seed=11)
        for name in ("input_ids", "positions", "labels"):
            assert np.array_equal(getattr(alone, name), getattr(together, name)[part])


def test_rows_without_text_and_rows_without_a_wall_at_the_end():
    rows = np.asarray([[0, 0, 0, 0], [5, 25, 6, 7], [1, 1, 5, 8]])
    key = Key(0, 0, np.zeros(3, np.int64), np.arange(3))
    masked = make_masker(spans="ngram", mlm_probability=0.99).mask(rows, ~CONTINUATION[rows], key)
    assert (masked.labels != IGNORE_INDEX).sum(axis=1).tolist() == [0, 4, 2]


@pytest.mark.parametrize("settings_of", [MaskingConfig, ReplacedTokens])
def test_whole_words_beside_spans_are_an_error(settings_of):
    with pytest.raises(DomainbertError, match="whole_word: found true next to spans: ngram; expected only spans"):
        settings_of(whole_word=True, spans="ngram")
