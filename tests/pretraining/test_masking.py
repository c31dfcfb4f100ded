from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from domainbert.data.packing import IGNORE_INDEX
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.masking import Masker
from domainbert.pretraining.objective import Key
from tests.refusals import refused

PAD, UNK, CLS, SEP, MASK = range(5)
VOCAB_SIZE = 40
CONTINUATION = np.arange(VOCAB_SIZE) >= 25  # 5-24 begin words


def make_masker(**config) -> Masker:
    return Masker(MaskingConfig(**config), MASK, VOCAB_SIZE, frozenset(range(5)))


def make_rows(num_rows: int, length: int, seed: int = 0) -> np.ndarray:
    """Rows of segments with their [CLS] and [SEP], some [UNK], and padding at the end."""
    generator = np.random.default_rng(seed)
    rows = np.zeros((num_rows, length), dtype=np.int64)
    for row in rows:
        start = 0
        while length - start >= 3 and generator.random() < 0.9:
            size = generator.integers(1, length - start - 1)
            row[start] = CLS
            row[start + 1 : start + 1 + size] = generator.choice([UNK, *range(5, VOCAB_SIZE)], size)
            row[start + 1 + size] = SEP
            start += size + 2
    return rows


def words_of(row: np.ndarray) -> list[list[int]]:
    """The positions of each word of a row, in the plainest way."""
    words: list[list[int]] = []
    for position, token in enumerate(row.tolist()):
        if token >= 5:
            if CONTINUATION[token] and position and row[position - 1] >= 5:
                words[-1].append(position)
            else:
                words.append([position])
    return words


def mask(masker: Masker, rows: np.ndarray, row_ids=None, epoch: int = 0, seed: int = 0, progress: float = 0.0):
    row_ids = np.arange(len(rows)) if row_ids is None else np.asarray(row_ids)
    return masker.mask(rows, ~CONTINUATION[rows], Key(seed, 0, np.full(len(rows), epoch), row_ids, progress))


def test_counts_are_exact_where_random_numbers_are_equal(monkeypatch):
    monkeypatch.setattr("domainbert.pretraining.masking.uniform", lambda bits: np.full(bits.shape, 0.25))
    masked = mask(make_masker(mlm_probability=0.4), np.asarray([[CLS, 5, 6, 7, 8, 9, 10, SEP], [CLS, SEP, *[PAD] * 6]]))
    assert masked.positions.tolist() == [[1, 2, 0], [0, 0, 0]]
    assert masked.labels.tolist() == [[5, 6, IGNORE_INDEX], [IGNORE_INDEX] * 3]


@given(st.integers(0, 10_000), st.sampled_from([0.01, 0.15, 0.4, 0.9]), st.booleans())
def test_exact_counts_and_only_text_is_hidden(seed, rate, whole_word):
    masker = make_masker(mlm_probability=rate, whole_word=whole_word)
    rows = make_rows(12, 30, seed)
    before = rows.copy()
    masked = mask(masker, rows, seed=seed)
    assert np.array_equal(rows, before), "the input is left alone"
    assert masked.positions.shape == masked.labels.shape == (12, max(1, round(rate * 30)))
    for row, hidden, positions, labels in zip(rows, masked.input_ids, masked.positions, masked.labels, strict=True):
        used = labels != IGNORE_INDEX
        maskable = int((row >= 5).sum())
        assert used.sum() == (max(1, round(rate * maskable)) if maskable else 0)
        assert used[: used.sum()].all() and (positions[~used] == 0).all()
        chosen = positions[used]
        assert (np.diff(chosen) > 0).all()
        assert (row[chosen] >= 5).all() and np.array_equal(row[chosen], labels[used])
        others = np.setdiff1d(np.arange(30), chosen)
        assert np.array_equal(hidden[others], row[others])
        assert np.isin(hidden[chosen], [MASK, *range(5, VOCAB_SIZE)]).all()


@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.15, 0.4]))
def test_words_are_hidden_whole_unless_none_fits_in_what_is_left(seed, rate):
    masker = make_masker(mlm_probability=rate, whole_word=True)
    rows = make_rows(12, 30, seed)
    masked = mask(masker, rows, seed=seed)
    for row, positions, labels in zip(rows, masked.positions, masked.labels, strict=True):
        chosen = set(positions[labels != IGNORE_INDEX].tolist())
        split = [word for word in words_of(row) if chosen & set(word) and not chosen >= set(word)]
        untouched = [word for word in words_of(row) if not chosen & set(word)]
        left = sum(len(chosen & set(word)) for word in split)
        # every word that could still be hidden whole is longer than the number of tokens left to hide
        assert not split or all(len(word) > left for word in split + untouched)


def test_the_80_10_10_split_and_uniform_choice():
    rows = np.full((4_000, 102), SEP)
    rows[:, 1:101] = np.random.default_rng(0).integers(5, VOCAB_SIZE, (4_000, 100))
    masked = mask(make_masker(), rows)
    row = np.arange(4_000)[:, None]
    assert masked.labels.shape == (4_000, 15) and (masked.labels != IGNORE_INDEX).all()
    new, n = masked.input_ids[row, masked.positions], 60_000
    assert not (masked.input_ids[rows >= 5] < MASK).any(), "no other special token replaces a hidden one"

    def check(found: int, rate: float) -> None:
        """Within 4.5 standard deviations of the binomial distribution."""
        assert abs(found - n * rate) < 4.5 * np.sqrt(n * rate * (1 - rate))

    replaced_by_itself = 0.1 / (VOCAB_SIZE - 5)
    check((new == MASK).sum(), 0.8)
    check((new == masked.labels).sum(), 0.1 + replaced_by_itself)
    random = new[(new != MASK) & (new != masked.labels)]
    check(len(random), 0.1 - replaced_by_itself)
    counts = np.bincount(random, minlength=VOCAB_SIZE)
    assert (counts[:5] == 0).all() and np.abs(counts[5:] - len(random) / 35).max() < 4.5 * np.sqrt(len(random) / 35)
    places = np.bincount(masked.positions.ravel(), minlength=102)
    assert places[0] == places[101] == 0
    assert np.abs(places[1:101] - n / 100).max() < 4.5 * np.sqrt(n / 100)


@pytest.mark.parametrize("whole_word", [False, True])
def test_a_row_depends_on_seed_epoch_and_its_number_only(whole_word):
    masker, rows = make_masker(whole_word=whole_word), make_rows(20, 40)
    together = mask(masker, rows, epoch=3, seed=11)
    for part in ([4], [19, 0, 4], list(range(20))[::-1]):
        alone = mask(masker, rows[part], part, epoch=3, seed=11)
        for name in ("input_ids", "positions", "labels"):
            assert np.array_equal(getattr(alone, name), getattr(together, name)[part])
    full = np.tile(rows[(rows >= 5).sum(axis=1).argmax()], (40, 1))
    for ids, epoch, seed in ((range(40), 3, 11), ([0] * 40, range(40), 11)):
        epochs = np.broadcast_to(np.asarray(epoch), 40).copy()
        masks = masker.mask(full, ~CONTINUATION[full], Key(seed, 0, epochs, np.asarray(list(ids))))
        assert len(np.unique(masks.positions, axis=0)) > 30, "rows and epochs have masks of their own"
    seeds = [mask(masker, full[:1], epoch=3, seed=seed).positions[0].tolist() for seed in range(40)]
    assert len(np.unique(seeds, axis=0)) > 30


def test_golden_example():
    row = np.asarray([[CLS, 5, 6, 25, 7, UNK, 8, 26, 27, SEP, CLS, 9, 10, 28, 11, SEP, PAD, PAD]])
    pieces = mask(make_masker(mlm_probability=0.4), row, [17], epoch=2, seed=5)
    assert pieces.positions.tolist() == [[1, 7, 12, 14, 0, 0, 0]]
    assert pieces.labels.tolist() == [[5, 26, 10, 11, -100, -100, -100]]
    assert pieces.input_ids.tolist() == [[2, 4, 6, 25, 7, 1, 8, 38, 27, 3, 2, 9, 4, 28, 4, 3, 0, 0]]
    words = mask(make_masker(mlm_probability=0.4, whole_word=True), row, [17], epoch=2, seed=5)
    assert words.positions.tolist() == [[1, 12, 13, 14, 0, 0, 0]]
    assert words.labels.tolist() == [[5, 10, 28, 11, -100, -100, -100]]
    assert words.input_ids.tolist() == [[2, 4, 6, 25, 7, 1, 8, 26, 27, 3, 2, 9, 4, 4, 4, 3, 0, 0]]


@pytest.mark.parametrize(
    ("changes", "where", "found", "expected"),
    [
        ({"mlm_probability": 0.0}, "mlm_probability", "0.0", "a number above 0 and below 1"),
        ({"mlm_probability": 1.0}, "mlm_probability", "1.0", "a number above 0 and below 1"),
        ({"random_share": 0.3}, "random_share", "0.3", "at most 0.2, because the sum with mask_share=0.8..."),
        ({"mask_share": -0.1}, "mask_share", "-0.1", "a number from 0 to 1"),
    ],
)
def test_shares_that_make_no_sense(changes, where, found, expected):
    with refused(where=where, found=found, expected=expected):
        MaskingConfig(**changes)
