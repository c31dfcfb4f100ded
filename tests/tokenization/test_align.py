from __future__ import annotations

from collections.abc import Callable

from hypothesis import example, given
from hypothesis import strategies as st

from domainbert.tokenization.align import TREEBANK, align_text, align_words
from domainbert.tokenization.load import DomainTokenizer
from tests.refusals import refused

_TEXT = st.lists(
    st.sampled_from(
        ["the", "men's", "tokenizations", "Cafe\u0301", "中国", "☃", "a" * 101, "[MASK]", "\x00", "\u200b", "bank"]
    )
    | st.text(max_size=5),
    max_size=8,
)


def test_a_word_with_an_apostrophe_has_three_pretokens(make_tokenizer: Callable[..., DomainTokenizer]) -> None:
    tokenizer = make_tokenizer()
    [aligned] = align_words(tokenizer, [["the", "men's", "\x00", "tokenizations"]])
    assert [tokenizer.tokens[piece] for piece in aligned.input_ids] == [
        *["the", "men", "'", "s", "[UNK]", "token", "##ization", "##s"]
    ]
    assert aligned.word_index == [0, 1, 1, 1, 2, 3, 3, 3]
    assert aligned.starts_pretoken == [True, True, True, True, True, True, False, False]
    assert aligned.first_piece == [0, 1, 4, 5]


def test_names_of_marks_in_a_treebank_are_encoded_as_the_marks(make_tokenizer: Callable[..., DomainTokenizer]) -> None:
    tokenizer = make_tokenizer()
    words, marks = ["``", "the", "-LRB-", "bank", "-RRB-", "''"], ['"', "the", "(", "bank", ")", '"']
    assert align_words(tokenizer, [words, ["-LSB-"]]) == align_words(tokenizer, [marks, ["["]])


def test_offsets_are_characters_of_the_text(make_tokenizer: Callable[..., DomainTokenizer]) -> None:
    text = " The\x00 men's  tokenizations, cafe\u0301 中国"
    [aligned] = align_text(make_tokenizer(), [text])
    covered = [text[start:end] for start, end in aligned.word_offsets]
    assert covered == ["The", "men", "'", "s", "tokenizations", ",", "cafe\u0301", "中", "国"]


@given(sentences=st.lists(_TEXT, max_size=3))
@example(sentences=[["-LRB-", "a"]])
def test_words_are_tokenized_one_by_one(
    make_tokenizer: Callable[..., DomainTokenizer], sentences: list[list[str]]
) -> None:
    tokenizer = make_tokenizer()
    for words, aligned in zip(sentences, align_words(tokenizer, sentences), strict=True):
        printed = [TREEBANK.get(word, word) for word in words]
        pieces = [ids or [tokenizer.unk_id] for ids in tokenizer.encode(printed)]
        assert aligned.input_ids == [piece for ids in pieces for piece in ids]
        assert aligned.word_index == [word for word, ids in enumerate(pieces) for _ in ids]
        assert [aligned.word_index.index(word) for word in range(len(words))] == aligned.first_piece
        assert aligned.starts_pretoken == tokenizer.pieces.begins_word[aligned.input_ids].tolist()


@given(words=_TEXT)
def test_text_is_encoded_as_it_is(make_tokenizer: Callable[..., DomainTokenizer], words: list[str]) -> None:
    tokenizer, text = make_tokenizer(), " ".join(words)
    [aligned] = align_text(tokenizer, [text])
    assert [aligned.input_ids] == tokenizer.encode([text])
    assert sorted(set(aligned.word_index)) == list(range(len(aligned.word_offsets)))
    assert [piece for piece, starts in enumerate(aligned.starts_pretoken) if starts] == aligned.first_piece
    ends = [0, *(position for offsets in aligned.word_offsets for position in offsets)]
    assert ends == sorted(ends)
    assert ends[-1] <= len(text)


def test_half_a_surrogate_pair_is_refused(make_tokenizer: Callable[..., DomainTokenizer]) -> None:
    for align, given_texts in ((align_words, [["the", "x\ud800"]]), (align_text, ["x\ud800"])):
        with refused(problem="...ud800...half a surrogate pair"):
            align(make_tokenizer(), given_texts)  # type: ignore[operator]
