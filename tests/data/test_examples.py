from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from domainbert.data.examples import entry_ids, text_example, window_bounds, word_example
from domainbert.data.packing import IGNORE_INDEX, Example, Window, collate
from domainbert.tokenization.align import AlignedWords, align_text, align_words


@st.composite
def words_in_pieces(draw):
    """Pieces per word, and the room of a window."""
    return draw(st.lists(st.integers(1, 9), max_size=60)), draw(st.integers(1, 24))


def make_aligned(sizes: list[int]) -> AlignedWords:
    first = np.concatenate([[0], np.cumsum(sizes)])[: len(sizes)].astype(int).tolist()
    num_pieces = sum(sizes)
    return AlignedWords(
        input_ids=list(range(5, 5 + num_pieces)),
        word_index=np.repeat(np.arange(len(sizes)), sizes).tolist(),
        starts_pretoken=[piece in first or piece % 3 == 0 for piece in range(num_pieces)],
        first_piece=first,
        extra=2,
    )


@given(words_in_pieces())
def test_windows_cover_the_input_and_own_each_piece_once(case):
    sizes, room = case
    words = make_aligned(sizes)
    num_pieces = sum(sizes)
    bounds = window_bounds(words.first_piece, num_pieces, room)
    assert [piece for *_, own, end in bounds for piece in range(own, end)] == list(range(num_pieces))
    for start, stop, own, end in bounds:
        assert start <= own <= end <= stop <= start + room
    for (start, stop, _, end), (following, next_stop, own, _) in itertools.pairwise(bounds):
        assert start < following <= stop < next_stop, "windows advance, and leave no gap"
        assert end == own and abs((stop - own) - (own - following)) <= 1, "the overlap is shared in its middle"
        if following not in words.first_piece:
            # no word begins between the place wanted and the end of the window before
            wanted = min(start + max(room // 2, 1), num_pieces - room)
            assert following == wanted and not set(words.first_piece) & set(range(wanted, start + room))
    if num_pieces <= room:
        assert len(bounds) == 1


@given(words_in_pieces())
def test_every_word_is_decided_once_by_its_first_piece(case):
    sizes, room = case
    words = make_aligned(sizes)
    labels = [number % 4 for number in range(len(sizes))]
    inside = np.asarray([10, 11, 12, 13])
    example = word_example(words, labels, inside, room + 2)
    assert example.num_outputs == len(sizes)
    outputs, read = [], []
    for window in example.windows:
        assert len(window.input_ids) <= room
        assert len(window.positions) == len(window.outputs) == len(window.targets)
        pieces = window.input_ids[window.positions] - 5  # input_ids are 5 + the piece
        for piece, output, target in zip(
            pieces.tolist(), window.outputs.tolist(), window.targets.tolist(), strict=True
        ):
            word = words.word_index[piece]
            decides = piece == words.first_piece[word]
            assert output == (word if decides else -1)
            assert target == (labels[word] if decides else 10 + labels[word])
        outputs += [output for output in window.outputs.tolist() if output >= 0]
        read += pieces.tolist()
    assert outputs == list(range(len(sizes)))
    assert read == [piece for piece, starts in enumerate(words.starts_pretoken) if starts]
    unlabelled = word_example(words, None, inside, room + 2)
    assert all((window.targets == IGNORE_INDEX).all() for window in unlabelled.windows)
    assert [window.outputs.tolist() for window in unlabelled.windows] == [w.outputs.tolist() for w in example.windows]


def test_the_labels_of_mens(toy_tokenizer):
    # O, B-population, I-population
    aligned = align_words(toy_tokenizer, [["rates", "men's", "bankings"]])[0]
    assert [toy_tokenizer.tokens[i] for i in aligned.input_ids] == [
        "rate",
        "##s",
        "men",
        "'",
        "s",
        "bank",
        "##ing",
        "##s",
    ]
    (window,) = word_example(aligned, [0, 1, 2], np.asarray([0, 2, 2]), 64).windows
    assert window.positions.tolist() == [0, 2, 3, 4, 5]
    assert window.targets.tolist() == [0, 1, 2, 2, 2]
    assert window.outputs.tolist() == [0, 1, -1, -1, 2]


def test_a_word_that_tokenizes_to_nothing_still_has_an_output(toy_tokenizer):
    aligned = align_words(toy_tokenizer, [["\x00", "bank", "\u200d"], []])
    example, empty = (word_example(words, [1] * len(words.first_piece), np.arange(2), 64) for words in aligned)
    assert example.num_outputs == 3 and example.windows[0].outputs.tolist() == [0, 1, 2]
    assert empty.num_outputs == 0 and empty.num_tokens == 2


def test_a_long_text_is_read_in_windows_of_one_label(toy_tokenizer):
    words = align_text(toy_tokenizer, [" ".join(["rates"] * 20)])[0]
    example = text_example(words, 3, 18)  # 40 pieces, 16 a window
    assert [len(window.input_ids) for window in example.windows] == [16] * 4
    assert np.concatenate([window.targets for window in example.windows]).tolist() == [3] * 4
    assert {int(window.positions[0]) for window in example.windows} == {-1}
    assert example.num_tokens == 4 * 18 and example.num_outputs == 1


def test_collate_in_full(toy_tokenizer):
    sentences = align_words(toy_tokenizer, [["bank"], ["men's", "rates"]])
    examples = [word_example(words, [0] * len(words.first_piece), np.arange(1), 64) for words in sentences]
    batch = collate(examples, [7, 4], toy_tokenizer)
    cls, sep, pad = toy_tokenizer.cls_id, toy_tokenizer.sep_id, toy_tokenizer.pad_id
    ids = [cls, *sentences[0].input_ids, sep, cls, *sentences[1].input_ids, sep]
    assert batch["input_ids"].shape == (1, 16)
    assert batch["input_ids"][0].tolist() == ids + [pad] * (16 - len(ids))
    assert batch["position_ids"][0, :10].tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 5, 6]
    assert batch["segment_ids"][0, :11].tolist() == [1] * 3 + [2] * 7 + [0]
    assert batch["items"].tolist() == [7, 4]
    assert batch["positions"].tolist() == [1, 4, 5, 6, 7]
    assert batch["example"].tolist() == [0, 1, 1, 1, 1]
    assert batch["outputs"].tolist() == [0, 0, -1, -1, 1]
    assert batch["targets"].tolist() == [0, 0, 0, 0, 0]


def test_collate_pairs_in_full(toy_tokenizer):
    first, second = (np.asarray(one.input_ids) for one in align_text(toy_tokenizer, ["bank", "men's rates"]))
    read = np.asarray([-1, len(first) + len(toy_tokenizer.template.separators)])  # [CLS], the second text
    extra = toy_tokenizer.template.num_special_tokens(pair=True)
    window = Window(second, read, np.arange(2), np.asarray([3, 4]), extra, first)
    batch = collate([Example((window,), 2)], [9], toy_tokenizer)
    cls, sep, pad = toy_tokenizer.cls_id, toy_tokenizer.sep_id, toy_tokenizer.pad_id
    ids = [cls, *first, sep, *second, sep]
    assert window.num_tokens == len(ids) == 9 and batch["input_ids"][0].tolist() == [*ids, *[pad] * 7]
    assert batch["token_type_ids"][0].tolist() == [0] * 3 + [1] * 6 + [0] * 7
    assert batch["segment_ids"][0].tolist() == [1] * 9 + [0] * 7
    assert batch["input_ids"].flatten()[batch["positions"]].tolist() == [cls, second[0]]
    specials = {toy_tokenizer.cls_id, toy_tokenizer.sep_id, toy_tokenizer.pad_id}
    assert set(entry_ids([Example((window,), 2)], toy_tokenizer).tolist()) == {*first, *second, *specials}


def test_rows_grow_with_the_longest_window(toy_tokenizer):
    words = align_words(toy_tokenizer, [["bank"] * 131, ["bank"]])
    examples = [word_example(one, None, np.arange(1), 512) for one in words]
    assert collate(examples, [0, 1], toy_tokenizer)["input_ids"].shape == (1, 144)
    assert collate(examples[1:] * 100, range(100), toy_tokenizer)["input_ids"].shape == (5, 64)


def test_rows_have_the_length_that_is_computed_soonest(toy_tokenizer):
    """Tokens of all rows, then attention: (1, 128) has fewer than (3, 64); (3, 64) and (2, 96) have as many."""
    words = align_words(toy_tokenizer, [["bank"] * 40, ["bank"] * 61, ["bank"] * 28])
    middle, long, short = (word_example(one, None, np.arange(1), 512) for one in words)
    assert collate([middle] * 3, range(3), toy_tokenizer)["input_ids"].shape == (1, 128)
    assert collate([long, long, short], range(3), toy_tokenizer)["input_ids"].shape == (3, 64)


def test_entries_that_occur_are_those_of_the_batches(toy_tokenizer):
    aligned = align_text(toy_tokenizer, ["cash of the", "the loan " * 20])
    examples = [text_example(words, 0, 8) for words in aligned]
    in_batches = np.unique(collate(examples, [0, 1], toy_tokenizer)["input_ids"])
    specials = {toy_tokenizer.cls_id, toy_tokenizer.sep_id, toy_tokenizer.pad_id}
    assert entry_ids(examples, toy_tokenizer).tolist() == sorted({*in_batches.tolist(), *specials})
    assert set(entry_ids([], toy_tokenizer).tolist()) == specials
