from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from domainbert.data.packing import best_fit_decreasing, fill_rows, pack_lengths, room_for_text
from domainbert.data.splits import plan_rows
from domainbert.tokenization.special_tokens import bert_template
from tests.refusals import refused


def best_fit_by_search(lengths: list[int], capacity: int) -> list[int]:
    """The rule as its docstring states it, in quadratic time."""
    rows = [-1] * len(lengths)
    used: list[int] = []
    filled: list[int] = []
    for time, item in enumerate(sorted(range(len(lengths)), key=lambda i: -lengths[i])):
        fitting = [row for row in range(len(used)) if used[row] + lengths[item] <= capacity]
        if not fitting:
            used.append(0)
            filled.append(0)
        row = max(fitting, key=lambda row: (used[row], filled[row])) if fitting else len(used) - 1
        rows[item], used[row], filled[row] = row, used[row] + lengths[item], time
    return rows


@given(st.integers(3, 40).flatmap(lambda c: st.tuples(st.just(c), st.lists(st.integers(3, c), max_size=60))))
def test_best_fit_decreasing_is_the_stated_rule(case):
    capacity, lengths = case
    assert best_fit_decreasing(np.asarray(lengths, dtype=np.int64), capacity).tolist() == best_fit_by_search(
        lengths, capacity
    )


@st.composite
def streams(draw):
    """Documents of an id stream in which ids 6-9 continue words, and a row length."""
    sizes = draw(st.lists(st.integers(0, 40), max_size=12))
    ids = draw(st.lists(st.sampled_from([1, 5, 6, 7, 8, 9]), min_size=sum(sizes), max_size=sum(sizes)))
    return (
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.asarray(ids, dtype=np.uint16),
        draw(st.integers(5, 16)),
    )


CONTINUATION = np.asarray([False] * 6 + [True] * 4)


def plan(offsets, ids, length):
    begins = ~CONTINUATION
    return plan_rows(
        offsets, lambda a, b: ids[a:b], lambda a, b: begins[ids[a:b]], len(begins), [0, 1, 2, 3, 4], length, 2
    )


@given(streams())
def test_every_token_is_in_one_piece_and_words_are_whole_where_they_fit(case):
    offsets, ids, length = case
    rows = plan(offsets, ids, length)
    pieces = sorted(zip(rows.starts.tolist(), (rows.starts + rows.lengths).tolist(), strict=True))
    assert [start for start, _ in pieces] == [0, *(stop for _, stop in pieces)][: len(pieces)]
    assert (pieces[-1][1] if pieces else 0) == len(ids)
    documents = set(offsets.tolist())
    for start, stop in pieces:
        assert 0 < stop - start <= length - 2
        assert not documents & set(range(start + 1, stop)), "a piece stays in its document"
        if stop not in documents:
            longest = ids[start : start + length - 1]  # one token more than fits
            word_starts = [i for i in range(1, len(longest)) if not CONTINUATION[longest[i]]]
            assert stop - start == (word_starts[-1] if word_starts else length - 2)

    rows_of_pieces = [slice(*bounds) for bounds in itertools.pairwise(rows.row_offsets.tolist())]
    assert len(rows_of_pieces) == rows.num_rows
    for row, own in enumerate(rows_of_pieces):
        starts, lengths = rows.starts[own], rows.lengths[own]
        text = np.concatenate([ids[start : start + size] for start, size in zip(starts, lengths, strict=True)])
        assert (lengths + 2).sum() <= length
        assert rows.text_tokens[row] == len(text) and rows.maskable_tokens[row] == (text != 1).sum()
    used = len(ids) + 2 * len(pieces)
    assert rows.fullness == pytest.approx(used / max(rows.num_rows * length, 1))
    again = plan(offsets, ids, length)
    assert np.array_equal(again.starts, rows.starts) and np.array_equal(again.row_offsets, rows.row_offsets)


def test_rows_are_more_than_99_percent_full():
    generator = np.random.default_rng(0)
    for median in (25, 200, 4_000):  # tweets, abstracts, articles
        sizes = np.maximum(generator.lognormal(np.log(median), 0.7, 1_500_000 // median).astype(np.int64), 1)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        ids = generator.choice([5, 6], size=offsets[-1], p=[0.8, 0.2])
        assert plan(offsets, ids, 128).fullness > 0.99


def test_a_small_example_in_full():
    # words: [5 6 6] [5] [5 7]   [5]   [5 8 8 8 8 8 8]   [5 5]
    ids = np.asarray([5, 6, 6, 5, 5, 7, 5, 5, 8, 8, 8, 8, 8, 8, 5, 5], dtype=np.uint16)
    rows = plan(np.asarray([0, 6, 7, 14, 16]), ids, 7)
    pieces = [
        [(int(rows.starts[p]), int(rows.lengths[p])) for p in range(first, last)]
        for first, last in itertools.pairwise(rows.row_offsets.tolist())
    ]
    # document 1 is cut before its third word, document 3 inside its one long word
    assert pieces == [[(7, 5)], [(0, 4)], [(4, 2)], [(12, 2)], [(6, 1), (14, 2)]]
    texts = [[ids[start : start + size] for start, size in row] for row in pieces]
    packed = fill_rows(texts[1::3], 7, bert_template(2, 3), 0)
    assert packed.input_ids.tolist() == [[2, 5, 6, 6, 5, 3, 0], [2, 5, 3, 2, 5, 5, 3]]
    assert packed.position_ids.tolist() == [[0, 1, 2, 3, 4, 5, 0], [0, 1, 2, 0, 1, 2, 3]]
    assert packed.segment_ids.tolist() == [[1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 2, 2, 2, 2]]
    assert packed.first_positions.tolist() == [0, 7, 10]


def test_texts_are_grouped_into_rows():
    assert pack_lengths(np.asarray([5, 10, 2, 6, 3]), 10) == [[1], [3, 4], [0, 2]]
    assert pack_lengths(np.zeros(0, dtype=np.int64), 10) == []


def test_an_empty_corpus_has_no_rows():
    for offsets in ([0], [0, 0, 0]):
        rows = plan(np.asarray(offsets), np.zeros(0, dtype=np.uint16), 8)
        assert rows.num_rows == 0 and rows.text_tokens.size == 0 and rows.fullness == 0.0


def test_a_row_without_room_for_text_is_refused():
    assert room_for_text(4, 3) == 1
    with refused(where="max_length", found="3"):
        plan_rows(np.array([0, 5]), None, None, 10, [0], 3, 3)
