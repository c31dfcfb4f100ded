"""Unigram from counted words to the files: pieces, ids, words and offsets, on hostile text."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from domainbert.base.choices import named_files
from domainbert.tokenization.align import TREEBANK, align_text, align_words
from domainbert.tokenization.config import TokenizerKindConfig
from domainbert.tokenization.extend import extend_tokenizer, words_to_add
from domainbert.tokenization.kind import Surface
from domainbert.tokenization.kinds.unigram import learning
from domainbert.tokenization.kinds.unigram.config import Unigram
from domainbert.tokenization.kinds.unigram.learning import learn_pieces
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from domainbert.tokenization.special_tokens import bert_template, roberta_template
from domainbert.tokenization.surfaces import origins, vocabulary_of
from domainbert.tokenization.words import WordCounter
from tests.refusals import refused
from tests.tokenization.properties import check_encoding_in_pieces, hostile_text, names

_STEMS = ["invest", "lend", "trad", "sav", "pric", "borrow", "farm", "house", "labour", "tax", "debt", "fund", "grow"]
_TEXTS = [
    "The bank's rates rose, and the banks' loans (US$5bn) fell by 3.5% ...",
    "banking in Kenya: the banker banks on rates\n\nThe loan rates of the bank",
    "caf\u00e9 cafe\u0301 \u4e2d\u56fd\u4eba\u6c11\u94f6\u884c the \u4e2d\u56fd bank \U0001f600 \u4e2d\u56fd",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e01\u0e32\u0e23\u0e40\u0e07\u0e34\u0e19 \u98df\u3079\u308b",
    " ".join(a + b for a in _STEMS for b in ("s", "ed", "er", "ers", "ing", "ings")),
]
LAYOUTS = {
    "albert": ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
    "xlm-roberta": ["<s>", "<pad>", "</s>", "<unk>", "...", "<mask>"],
    "deberta-v2": ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "...", "[MASK]"],
}
_TRAIN = """
import json, sys
from pathlib import Path
from tests.tokenization.test_unigram import train
train(json.loads(Path(sys.argv[1]).read_text()), 512).save(Path(sys.argv[2]), 512)
"""
_NAMES = tuple(itertools.chain.from_iterable(LAYOUTS.values()))
_HOSTILE = hostile_text(
    [name for name in _NAMES if name != "..."], "\u2581\ufb01\u00bd"
)  # the mark, a ligature, a fraction


def train(texts: list[str], vocab_size: int, lowercase: bool = False, layout: str = "albert", **more: bool):
    """A vocabulary of the kind, as the stage makes it."""
    kind = Unigram(LAYOUTS[layout], **more).build()
    counter = WordCounter(10**9)
    for text in texts:
        counter.add(text)
    return DomainTokenizer(kind.train(kind.select(counter, lowercase, 4), vocab_size, lowercase, 2))


@pytest.fixture(scope="module")
def tokenizer() -> DomainTokenizer:
    return train(_TEXTS * 5, 192)


@pytest.fixture(scope="module", params=[*LAYOUTS, None])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A tokenizer of each layout from a folder of a model of its family, by us and by transformers."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("saved")
    train(_TEXTS * 5, 192, layout=request.param or "albert").save(folder, 128)
    if request.param is not None:
        (folder / "config.json").write_text(json.dumps({"model_type": request.param, "vocab_size": 192}))
    return load_tokenizer(folder), transformers.AutoTokenizer.from_pretrained(folder)


def ways(word: str, pieces: dict[str, float]) -> Iterator[list[str]]:
    """All ways to spell a word."""
    if not word:
        yield []
    for stop in range(1, min(len(word), 16) + 1):
        if word[:stop] in pieces:
            yield from ([word[:stop], *rest] for rest in ways(word[stop:], pieces))


def counted(seed: int) -> dict[str, int]:
    """Short words of three letters."""
    chance = random.Random(seed)
    return {"".join(chance.choices("abc", k=chance.randint(1, 9))): chance.randint(0, 5) for _ in range(40)}


def test_seeds_are_frequent_and_go_on_in_more_than_one_way() -> None:
    words = counted(1) | {"abcabcabcabcabcabcabcabc": 3}
    occurrences: Counter[str] = Counter()
    for word, count in words.items():
        for start, stop in itertools.combinations(range(len(word) + 1), 2):
            occurrences[word[start:stop]] += count
    wanted = {
        text: float(count)
        for text, count in occurrences.items()
        if len(text) == 1
        or (
            (count >= 2 and len(text) <= 16)
            and (len(text) == 16 or all(occurrences[text + letter] < count for letter in "abc"))
        )
    }
    found = learning._seed_table(words, 2)
    pieces = [found.piece(number) for number in range(len(found.sizes))]
    assert pieces == sorted(wanted, key=lambda text: (len(text), text))
    assert dict(zip(pieces, found.occurrences.tolist(), strict=True)) == wanted
    kept = found.select(found.single)
    assert kept.pieces_at[0].tolist() == [{"a": 0, "b": 1, "c": 2}.get(one, 3) for one in found.text]
    assert kept.pieces_at[1:].tolist() == [[3] * len(found.text)] * 15


def test_expected_counts_are_sums_over_all_spellings() -> None:
    words = counted(0)
    spellings = learning._seed_table(words | {"d": 0}, 2)
    pieces = [spellings.piece(number) for number in range(len(spellings.sizes))]
    assert pieces[:4] == ["a", "b", "c", "d"] and len(pieces[-1]) > 3
    probabilities = np.random.default_rng(0).random(len(pieces))
    known = dict(zip(pieces, probabilities.tolist(), strict=True))
    wanted = dict.fromkeys(pieces, 0.0)
    for word, count in words.items():
        spelt = [(way, math.prod(known[piece] for piece in way)) for way in ways(word, known)]
        for way, weight in spelt:
            for piece in way:
                wanted[piece] += count * weight / sum(one for _, one in spelt)
    np.testing.assert_allclose(learning._expected_counts(spellings, probabilities), list(wanted.values()), rtol=1e-12)
    others = [
        sum(math.prod(known[one] for one in way) for way in ways(piece, known) if len(way) > 1) for piece in pieces
    ]
    others[:4] = [1, 1, 1, 1]
    np.testing.assert_allclose(learning._split_probabilities(spellings, probabilities), others, rtol=1e-12)


def test_probabilities_are_those_of_sentencepiece() -> None:
    """exp(digamma(n) - digamma(N)); digamma(1) is less Euler's constant, digamma(1/2) as much less 2 ln 2."""
    euler = 0.5772156649015329
    np.testing.assert_allclose(
        learning._digamma(np.array([1.0, 2.0, 0.5, 100.0])),
        [-euler, 1 - euler, -euler - 2 * math.log(2), 4.600161852738087],
        rtol=1e-8,
    )
    found = learning._probabilities(np.array([0.0, 1.0, 2.0]))
    np.testing.assert_allclose(found[2] / found[1], math.e, rtol=1e-9)
    assert found[0] == learning._probabilities(np.array([0.5, 1.0, 2.0]))[0], "half an occurrence at least"


def test_frequent_words_become_pieces_and_rare_ones_are_spelt() -> None:
    words = {"\u2581banking": 90, "\u2581bank": 100, "\u2581loaning": 80, "\u2581loan": 60, "\u2581seeing": 3}
    alphabet = sorted(set("".join(words)) | {"x"})
    found = dict(learn_pieces(words, alphabet, len(alphabet) + 4, 2))
    assert len(found) == len(alphabet) + 4 and alphabet == sorted(one for one in found if len(one) == 1)
    assert {"\u2581bank", "\u2581loan", "\u2581banking", "\u2581loaning"} < found.keys()
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert all(score == round(score, 6) < 0 for score in found.values())
    assert 0.9 < sum(map(math.exp, found.values())) <= 1.01


def test_words_that_are_level_are_chosen_by_their_characters() -> None:
    """The last digits of sums, which differ with their order, decide nothing."""
    chance = random.Random(0)
    orders = chance.sample(sorted(itertools.permutations("abcdef")), 400)
    words = {"\u2581" + "".join(order): 2 for order in orders}
    alphabet = ["\u2581", *"abcdef"]
    pieces = [piece for piece, _ in learn_pieces(words, alphabet, 200, 2)]
    assert sorted(pieces) == sorted([*alphabet, *sorted(words)[:193]])


def test_the_bytes_depend_on_the_words_alone(tmp_path: Path) -> None:
    chance = random.Random(0)
    words = ["".join(chance.choices("abcdef\u00e9\u4e2d ", k=chance.randint(1, 9))) for _ in range(900)]
    texts = [" ".join(chance.choices(words, k=60)) for _ in range(60)]
    digests = set()
    for threads, seed in (("1", "0"), ("4", "random")):
        (tmp_path / "texts.json").write_text(json.dumps(texts))
        environment = os.environ | {"RAYON_NUM_THREADS": threads, "OMP_NUM_THREADS": threads, "PYTHONHASHSEED": seed}
        out = tmp_path / threads
        command = [sys.executable, "-c", _TRAIN, str(tmp_path / "texts.json"), str(out)]
        subprocess.run(command, check=True, env=environment)
        digests.add(hashlib.sha256(b"".join(path.read_bytes() for path in sorted(out.iterdir()))).hexdigest())
        texts.reverse()
    assert len(digests) == 1


def test_special_tokens_stand_as_in_the_models_that_a_layout_is_of() -> None:
    albert, xlm, deberta = (train(_TEXTS * 5, 192, layout=layout) for layout in LAYOUTS)
    assert albert.tokens[:5] == LAYOUTS["albert"]
    assert (xlm.tokens[:4], xlm.tokens[-1]) == (LAYOUTS["xlm-roberta"][:4], "<mask>")
    assert (deberta.tokens[:4], deberta.tokens[-1]) == (LAYOUTS["deberta-v2"][:4], "[MASK]")
    roles = [(one.pad_id, one.unk_id, one.cls_id, one.sep_id, one.mask_id) for one in (albert, xlm, deberta)]
    assert roles == [(0, 1, 2, 3, 4), (1, 3, 0, 2, 191), (0, 3, 1, 2, 191)]
    assert (albert.template, xlm.template) == (bert_template(2, 3), roberta_template(0, 2))
    assert deberta.template == bert_template(1, 2)
    assert albert.tokens[5:] == xlm.tokens[4:-1] == deberta.tokens[4:-1], "the pieces are the same"


def test_layouts_have_names() -> None:
    files = named_files(TokenizerKindConfig)
    for name in ("bert", "electra"):
        assert yaml.safe_load(files[name].read_text(encoding="utf-8")) == {"class_path": "WordPiece"}
    for name, tokens in LAYOUTS.items():
        assert yaml.safe_load(files[name].read_text(encoding="utf-8")) == {
            "class_path": "Unigram",
            "init_args": {"special_tokens": tokens},
        }


@pytest.mark.parametrize(
    "tokens",
    [
        [],
        ["<pad>", "<unk>", "[CLS]", "[SEP]"],
        ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "<mask>"],
        ["<pad>", "<unk>", "[CLS]", "[SEP]", "<hidden>"],
        ["pad_token", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
        ["...", "<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "..."],
    ],
)
def test_a_list_without_a_token_of_each_role_is_refused(tokens: list[str]) -> None:
    expected = "five tokens in the order of their ids: [PAD] or <pad>, [UNK] or <unk>, [CLS] or <s>, ...One"
    with refused(where="special_tokens", expected=f"{expected}..."):
        Unigram(tokens)


def test_sizes_that_cannot_be() -> None:
    with refused(problem="vocab_size 100 (rounded to 128) is too small: ... need ... pieces"):
        train(
            [text + "\u00e4\u00f6\u00fc\u00df\u00f8\u00e5" + "".join(map(chr, range(0x400, 0x440))) for text in _TEXTS]
            * 5,
            100,
        )
    with refused(problem="...too small for vocab_size 6,400: ... it supports ... pieces"):
        train(_TEXTS, 6400)
    with refused(problem="the corpus has no words"):
        train(["", "  "], 320)


def test_what_is_learnt_from() -> None:
    counter = WordCounter(10**9)
    counter.add(
        "The bank's 3.5% \u4e2d\u56fd\u94f6\u884c: caf\u00e9 ... \ufb01n "
        + "x" * 40
        + " \u2603a\u2603b\n\u4e2d\u56fdabc"
    )
    words = Unigram().build().select(counter, False, 2)
    spelt = {word.replace("\u2581", "_"): count for word, count in words.counts.items()}
    assert spelt == {
        **{"_The": 1, "_bank": 1, "'": 1, "s": 1, "_3": 1, ".": 1, "5": 1, "%": 1, ":": 1, "_caf": 1, "_...": 1},
        **{"_fin": 1, "_" + "x" * 31: 1, "x" * 9: 1, "_\u2603": 1, "\u2603": 1, "a": 1, "b": 1, "abc": 1},
        "_\u4e2d\u56fd": 2,
    }
    assert words.rare_characters == {"\u00e9": 1, "\u884c": 1, "\u94f6": 1}
    assert "\u2603" in words.alphabet and "\u4e2d" in words.alphabet


def test_lowercased_with_and_without_accents(tmp_path: Path) -> None:
    plain, accented = (train(_TEXTS * 5, 192, lowercase=True, keep_accents=keep) for keep in (False, True))
    assert plain.encode(["The CAF\u00c9 Bank"]) == plain.encode(["the cafe bank"])
    assert accented.encode(["The CAFE\u0301 Bank"]) == accented.encode(["the caf\u00e9 bank"])
    assert accented.encode(["caf\u00e9"]) != accented.encode(["cafe"])
    assert vocabulary_of(plain).lowercases and vocabulary_of(accented).lowercases
    plain.save(tmp_path)
    theirs = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(tmp_path)
    assert theirs("The CAF\u00c9", add_special_tokens=False)["input_ids"] == plain.encode(["the cafe"])[0]


@given(texts=st.lists(_HOSTILE, min_size=1, max_size=4))
def test_transformers_gives_the_same_ids(pair, texts: list[str]) -> None:
    ours, theirs = pair
    got = theirs(texts, add_special_tokens=False, return_offsets_mapping=True)
    assert got["input_ids"] == ours.encode(texts)
    assert got["offset_mapping"] == [encoding.offsets for encoding in ours.encode_with_offsets(texts)]
    framed = [ours.template.frame(ids)[0].tolist() for ids in ours.encode(texts)]
    assert theirs(texts)["input_ids"] == framed


def test_transformers_frames_pairs_and_masks_alike(pair) -> None:
    ours, theirs = pair
    ids, types = ours.template.frame(*ours.encode(["the bank", "rates"]))
    found = theirs("the bank", "rates")
    assert found["input_ids"] == ids.tolist()
    assert found.get("token_type_ids", [0] * len(ids)) == types.tolist()
    assert (theirs.pad_token_id, theirs.mask_token_id, theirs.model_max_length) == (ours.pad_id, ours.mask_id, 128)
    hidden = theirs(f"The {theirs.mask_token} rates", add_special_tokens=False)["input_ids"]
    assert hidden == [*ours.encode(["The"])[0], ours.mask_id, *ours.encode(["rates"])[0]]
    assert theirs.decode(ours.encode([_TEXTS[1]])[0]) == " ".join(_TEXTS[1].split())


@given(text=_HOSTILE, characters=st.integers(1, 8))
def test_encoding_in_pieces_gives_the_ids_and_words_of_the_whole(
    tokenizer: DomainTokenizer, text: str, characters: int
) -> None:
    check_encoding_in_pieces(tokenizer, text, characters)


def words_in(tokenizer: DomainTokenizer, text: str) -> list[str]:
    """The pieces of each word together; "_" is the mark of a space."""
    ((ids, starts),) = tokenizer.encode_with_starts([text])
    bounds = [*np.flatnonzero(starts).tolist(), len(ids)]
    words = ["".join(names(tokenizer, ids[a:b].tolist())) for a, b in itertools.pairwise(bounds)]
    return [word.replace("\u2581", "_") for word in words]


def test_where_words_begin(tokenizer: DomainTokenizer) -> None:
    assert words_in(tokenizer, "The men's rate, US$3.5bn\nof") == [
        *("_The", "_men", "'", "s", "_rate", ",", "_US", "$", "3", ".", "5bn", "_of")
    ]
    assert words_in(tokenizer, "bank (x)") == ["_bank", "_(", "x", ")"]
    assert words_in(tokenizer, "\u0939\u093f\u0928\u094d\u0926\u0940s the") == [
        "_\u0939\u093f\u0928\u094d\u0926\u0940s",
        "_the",
    ]
    chinese = "\u4e2d\u56fd\u4eba\u6c11\u94f6\u884c" * 5
    found = words_in(tokenizer, f"the {chinese} bank")
    assert (found[0], "".join(found[1:-1]), found[-1]) == ("_the", f"_{chinese}", "_bank")
    assert len(found) > 7, "a sentence without spaces is no word"
    assert words_in(tokenizer, "") == []
    ((ids, starts),) = tokenizer.encode_with_starts(["z" * 40])
    assert len(ids) == 41 and np.flatnonzero(starts).tolist() == [0, 16, 32]


def test_rare_characters_are_unknown_one_by_one(tokenizer: DomainTokenizer) -> None:
    (encoding,) = tokenizer.encode_with_offsets(["bank\u2603\u2604s \u9f98\u4e2d\u56fd"])
    text = "bank\u2603\u2604s \u9f98\u4e2d\u56fd"
    unknown = [text[start:stop] for id, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True) if id == 1]
    assert unknown == ["\u2603\u2604", "\u9f98"], "and characters beside them are known"
    assert encoding.ids.count(tokenizer.unk_id) == 2


def test_offsets_are_those_of_the_text(tokenizer: DomainTokenizer) -> None:
    """A mark that is not merged with its word gets the offsets of the word's first character."""
    text = "\n Cafe\u0301s in \u4e2d\u56fd\u2019s 5bn \U0001f469\u200d\U0001f467 \ufb01x\u00bd \u0939\u093f"
    (encoding,) = tokenizer.encode_with_offsets([text])
    found = [(token, text[a:b]) for token, (a, b) in zip(encoding.tokens, encoding.offsets, strict=True)]
    assert found == [
        *[("\u2581", "C"), ("C", "C"), ("a", "a"), ("f", "f"), ("\u00e9", "e"), ("s", "s"), ("\u2581in", "in")],
        *[("\u2581\u4e2d\u56fd", "\u4e2d\u56fd"), ("\u2019", "\u2019"), ("s", "s"), ("\u2581", "5"), ("5", "5")],
        *[("b", "b"), ("n", "n")],
        *[("\u2581", "\U0001f469"), ("\U0001f469", "\U0001f469")],  # the joiner is a space
        *[("\u2581", "\U0001f467"), ("\U0001f467", "\U0001f467")],
        *[("\u2581", "\ufb01"), ("f", "\ufb01"), ("i", "\ufb01"), ("x", "x")],  # a ligature has two letters
        *[("1", "\u00bd"), ("\u2044", "\u00bd"), ("2", "\u00bd")],
        *[("\u2581", "\u0939"), ("\u0939", "\u0939"), ("\u093f", "\u093f")],
    ]
    (aligned,) = align_text(tokenizer, [text])
    assert [text[start:end] for start, end in aligned.word_offsets] == [
        *("Cafe\u0301s", "in", "\u4e2d\u56fd", "\u2019", "s", "5bn", "\U0001f469\u200d\U0001f467"),
        *("\ufb01x\u00bd", "\u0939\u093f"),
    ], "as in `basic_words`, but two words that one piece covers are one"


@given(words=st.lists(_HOSTILE.map(lambda text: "".join(text.split())).filter(bool), min_size=1, max_size=8))
@example(words=["``", "óQ"])
def test_words_of_a_file_are_read_as_in_running_text(tokenizer: DomainTokenizer, words: list[str]) -> None:
    (aligned,) = align_words(tokenizer, [words])
    assert sorted(set(aligned.word_index)) == list(range(len(words)))
    read = [piece for piece in aligned.input_ids if piece != tokenizer.unk_id]
    text = " ".join(TREEBANK.get(word, word) for word in words)  # a file has `` for a quotation mark
    assert read == [piece for piece in tokenizer.encode([text])[0] if piece != tokenizer.unk_id]


def test_more_words_leave_the_others_as_they_are(tmp_path: Path) -> None:
    for layout in LAYOUTS:
        tokenizer = train(_TEXTS * 5, 192, layout=layout)
        counted = {" the": 10**6, " \u2603\u2604": 10**6, " rising": 9000, " Kenyan": 500, "Kenyan": 2}
        words = words_to_add(tokenizer, counted, 2)
        assert words == [" rising", " Kenyan"]
        more = extend_tokenizer(tokenizer, words)
        assert more.tokens[:192] == tokenizer.tokens and more.mask_id == tokenizer.mask_id
        assert more.tokens[192:] == ["\u2581rising", "\u2581Kenyan"]
        assert more.encode(["Kenyan, rising."])[0][:2] == [193, tokenizer.encode([","])[0][-1]]
        assert more.encode([*_TEXTS, "arising risin \u2603"]) == tokenizer.encode([*_TEXTS, "arising risin \u2603"])
        assert vocabulary_of(more).surfaces[192:] == [Surface("rising", True), Surface("Kenyan", True)]
        more.save(tmp_path / layout)
        assert load_tokenizer(tmp_path / layout).fingerprint == more.fingerprint
        theirs = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(tmp_path / layout)
        assert theirs("in Kenyan", add_special_tokens=False)["input_ids"] == more.encode(["in Kenyan"])[0]
        with refused(problem="...is in the vocabulary already"):
            extend_tokenizer(more, [" rising"])


def test_where_entries_come_from_in_another_kind(tokenizer: DomainTokenizer, make_tokenizer) -> None:
    wordpiece = make_tokenizer(["bank", "##ing", "##s", "the", ",", "##a", "##n", "a", "##k", "k", "b", "rates"])
    ours, theirs = vocabulary_of(tokenizer), vocabulary_of(wordpiece)
    ids = {token: number for number, token in enumerate(tokenizer.tokens)}
    found = origins(ours, theirs)
    copied = {
        token: theirs.tokens[found[ids[token]].pieces[0]]
        for token in ("\u2581bank", "\u2581the", ",", "<pad>", "[MASK]", "a")
    }
    assert copied == {
        "\u2581bank": "bank",
        "\u2581the": "the",
        ",": ",",
        "<pad>": "[PAD]",
        "[MASK]": "[MASK]",
        "a": "##a",
    }
    assert found[ids["\u2581"]] == ("new", ()), "a space is nothing there"
    back = origins(theirs, ours)
    places = {token: number for number, token in enumerate(wordpiece.tokens)}
    assert back[places["bank"]] == ("copied", (ids["\u2581bank"],))
    assert back[places["##a"]] == ("copied", (ids["a"],))
    assert [tokenizer.tokens[piece] for piece in back[places["##ing"]].pieces] in (
        ["ing"],
        ["i", "n", "g"],
        ["in", "g"],
    )


def test_special_tokens_in_a_text_are_text() -> None:
    for layout in LAYOUTS:
        tokenizer = train(_TEXTS * 5, 192, layout=layout)
        for token in (*tokenizer.special_tokens.values(), "a <mask> b", "x</s>y", "[MASK][SEP]"):
            (ids,) = tokenizer.encode([token])
            assert not tokenizer.special_ids & set(ids)
            assert "".join(names(tokenizer, ids)).replace("\u2581", " ").strip() == token
