"""Byte-level BPE from counted words to the files: bytes, ids, words and offsets, on hostile text."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import decoders

from domainbert.base.choices import named_files
from domainbert.data.examples import encode_words
from domainbert.tokenization.align import TREEBANK, align_text, align_words, basic_words
from domainbert.tokenization.config import TokenizerKindConfig
from domainbert.tokenization.extend import extend_tokenizer, words_to_add
from domainbert.tokenization.kind import Surface
from domainbert.tokenization.kinds.byte_bpe.config import ByteBPE
from domainbert.tokenization.kinds.byte_bpe.kind import byte_bpe_backend
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from domainbert.tokenization.special_tokens import bert_template, roberta_template
from domainbert.tokenization.surfaces import origins, vocabulary_of
from domainbert.tokenization.words import WordCounter
from tests.refusals import refused
from tests.tokenization.properties import check_encoding_in_pieces, hostile_text, names

_TEXTS = [
    "The bank's rates rose, and the banks' loans (US$5bn) fell by 3.5% ...",
    "banking in Kenya: the banker banks on rates\n\nThe loan rates of the bank",
    "caf\u00e9 cafe\u0301 \u4e2d\u56fd\u4eba\u6c11\u94f6\u884c the \u4e2d\u56fd bank \U0001f600",
    "\u0939\u093f\u0928\u094d\u0926\u0940",
]
_TRAIN = """
import json, sys
from pathlib import Path
from tests.tokenization.properties import train_kind
texts = json.loads(Path(sys.argv[1]).read_text())
train_kind("ByteBPE", texts, 512).save(Path(sys.argv[2]), 512)
"""
_HOSTILE = hostile_text(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])


def train(texts: list[str], vocab_size: int, lowercase: bool = False, **settings: list[str]) -> DomainTokenizer:
    """A vocabulary of the kind, as the stage makes it."""
    kind = ByteBPE(**settings).build()
    counter = WordCounter(10**9)
    for text in texts:
        counter.add(text)
    return DomainTokenizer(kind.train(kind.select(counter, lowercase, 10), vocab_size, lowercase, 2))


@pytest.fixture(scope="module")
def tokenizer() -> DomainTokenizer:
    return train(_TEXTS * 5, 320)


@pytest.fixture(scope="module", params=["bert", "roberta", None])
def pair(request: pytest.FixtureRequest, tokenizer: DomainTokenizer, tmp_path_factory: pytest.TempPathFactory):
    """The tokenizer read from a folder, of a model of some family or of none, by us and by transformers."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("saved")
    tokenizer.save(folder, 128)
    if request.param is not None:
        (folder / "config.json").write_text(json.dumps({"model_type": request.param, "vocab_size": 320}))
    return load_tokenizer(folder), transformers.AutoTokenizer.from_pretrained(folder)


def test_special_tokens_bytes_and_pieces(tokenizer: DomainTokenizer) -> None:
    assert tokenizer.tokens[:5] == ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    roles = (tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id, tokenizer.unk_id, tokenizer.mask_id)
    assert (roles, tokenizer.vocab_size, len(set(tokenizer.tokens))) == ((0, 1, 2, 3, 4), 320, 320)
    assert all(len(token) == 1 for token in tokenizer.tokens[5:261])
    assert tokenizer.template == roberta_template(0, 2)
    assert names(tokenizer, tokenizer.encode(["the bank's\nrates"])[0]) == ["Ġthe", "Ġbank", "'s", "Ċ", "r", "at", "es"]


@given(texts=st.lists(_HOSTILE, max_size=4))
def test_the_words_of_the_training_are_the_pretokens_of_the_encoding(texts: list[str]) -> None:
    counter, kind = WordCounter(10**9), ByteBPE().build()
    backend = byte_bpe_backend({}, [], kind.special_tokens)
    texts += ["\nThe\tbank \n\n  The\u00a0 \u00a0bank\n\n\n", " The\n\tbank\x1c .\x1c", "The\r\n\r\nbank's"]
    expected: Counter[str] = Counter()
    for text in texts:
        counter.add(text)
        expected.update(entry for entry, _ in backend.pre_tokenizer.pre_tokenize_str(text) if text.strip())
    words = counter.words(kind.word_splitter(backend))
    assert {kind.entry(word): count for word, count in words.items()} == expected
    assert kind.select(counter, False, 10).counts == expected


def test_a_word_after_a_line_break_becomes_a_piece() -> None:
    tokenizer = train(["Rates rose.\nThe bank\n\nThe loan\n\n\n\tThe rates"] * 20 + _TEXTS * 5, 320)
    assert names(tokenizer, tokenizer.encode(["rose\nThe"])[0])[-2:] == ["Ċ", "The"]
    assert "ĊĊĊ" in tokenizer.tokens


def test_special_tokens_behind_the_pieces(tokenizer: DomainTokenizer, tmp_path: Path) -> None:
    order = yaml.safe_load(named_files(TokenizerKindConfig)["modernbert"].read_text(encoding="utf-8"))["init_args"]
    other = train(_TEXTS * 5, 320, **order)
    assert other.tokens == [*tokenizer.tokens[5:], "[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    assert other.template == bert_template(316, 317)
    assert other.encode(_TEXTS) == [[piece - 5 for piece in ids] for ids in tokenizer.encode(_TEXTS)]
    other.save(tmp_path)
    assert load_tokenizer(tmp_path).special_tokens == other.special_tokens
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "modernbert"}))
    theirs = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(tmp_path)
    framed = [other.template.frame(ids)[0].tolist() for ids in other.encode(_TEXTS)]
    assert dict(theirs(_TEXTS)) == {"input_ids": framed, "attention_mask": [[1] * len(ids) for ids in framed]}


def test_special_tokens_as_in_roberta(tokenizer: DomainTokenizer) -> None:
    order = yaml.safe_load(named_files(TokenizerKindConfig)["roberta"].read_text(encoding="utf-8"))["init_args"]
    other = train(_TEXTS * 5, 320, **order)
    assert other.tokens == ["<s>", "<pad>", "</s>", "<unk>", *tokenizer.tokens[5:], "<mask>"]
    assert (other.template, other.pad_id) == (roberta_template(0, 2), 1)


def test_the_bytes_depend_on_the_words_alone(tmp_path: Path) -> None:
    chance = random.Random(0)
    words = ["".join(chance.choices("abcdefé中 ", k=chance.randint(1, 9))) for _ in range(900)]
    texts = [" ".join(chance.choices(words, k=60)) for _ in range(60)]
    digests = set()
    for threads, seed in (("1", "0"), ("4", "random")):
        (tmp_path / "texts.json").write_text(json.dumps(texts))
        environment = os.environ | {"RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": seed}
        out = tmp_path / threads
        subprocess.run(
            [sys.executable, "-c", _TRAIN, str(tmp_path / "texts.json"), str(out)], check=True, env=environment
        )
        digests.add(hashlib.sha256(b"".join(path.read_bytes() for path in sorted(out.iterdir()))).hexdigest())
        texts.reverse()
    assert len(digests) == 1


def test_sizes_that_cannot_be(tokenizer: DomainTokenizer) -> None:
    with refused(problem="vocab_size 250 (rounded to 256) is too small: ... need 261 pieces"):
        train(_TEXTS, 250)
    with refused(problem="...too small for vocab_size 6,400: ... it supports ... pieces"):
        train(_TEXTS, 6400)
    with refused(problem="the corpus has no words"):
        train(["", "  "], 320)


def test_uncased(tmp_path: Path) -> None:
    uncased = train(_TEXTS * 5, 320, lowercase=True)
    assert uncased.encode(["The CAFE\u0301 Bank"]) == uncased.encode(["the cafe bank"])
    assert vocabulary_of(uncased).lowercases
    uncased.save(tmp_path)
    theirs = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(tmp_path)
    assert theirs("The CAFE\u0301 Bank", add_special_tokens=False)["input_ids"] == uncased.encode(["the cafe bank"])[0]


@given(texts=st.lists(_HOSTILE, min_size=1, max_size=4))
def test_transformers_gives_the_same_ids(pair, texts: list[str]) -> None:
    ours, theirs = pair
    assert theirs(texts, add_special_tokens=False)["input_ids"] == ours.encode(texts)
    assert ours.backend.decode(ours.encode(texts)[0]).removeprefix(" ") == texts[0].removeprefix(" ")


def test_transformers_gives_the_same_ids_of_three_thousand_texts(pair) -> None:
    ours, theirs = pair
    chance = random.Random(0)
    drawn = [*"abcdefghij  \n\t.,'-%0159é中国ก\u0301\u200d👩", "bank", "The ", " rates", "\u00a0", "'s"]
    texts = ["".join(chance.choices(drawn, k=chance.randint(0, 40))) for _ in range(3_000)]
    framed = theirs(texts)["input_ids"]
    assert framed == [ours.template.frame(ids)[0].tolist() for ids in ours.encode(texts)]
    assert theirs(texts[1], texts[2])["input_ids"] == ours.template.frame(*ours.encode(texts[1:3]))[0].tolist()
    assert (theirs.pad_token_id, theirs.mask_token_id, theirs.model_max_length) == (1, 4, 128)
    hidden = theirs("The <mask> rates", add_special_tokens=False)["input_ids"]
    assert hidden == [*ours.encode(["The"])[0], 4, *ours.encode([" rates"])[0]], "the space before is the mask's"


@given(text=_HOSTILE, characters=st.integers(1, 8))
def test_encoding_in_pieces_gives_the_ids_and_words_of_the_whole(
    tokenizer: DomainTokenizer, text: str, characters: int
) -> None:
    check_encoding_in_pieces(tokenizer, text, characters)


def words_in(tokenizer: DomainTokenizer, text: str) -> list[str]:
    """The pieces of each word together, as text."""
    ((ids, starts),) = tokenizer.encode_with_starts([text])
    bounds = [*np.flatnonzero(starts).tolist(), len(ids)]
    return [decoders.ByteLevel().decode(names(tokenizer, ids[a:b].tolist())) for a, b in itertools.pairwise(bounds)]


def test_a_word_begins_with_each_pretoken(tokenizer: DomainTokenizer) -> None:
    assert words_in(tokenizer, "The men's  rate, 3.5%\nof") == [
        *(" The", " men", "'s", " ", " rate", ",", " 3", ".", "5", "%", "\n", "of")
    ]
    assert words_in(tokenizer, "cafe\u0301s \u0939\u093f\u0928\u094d\u0926") == [
        " cafe\u0301s",
        " \u0939\u093f\u0928\u094d\u0926",
    ]
    assert words_in(tokenizer, "") == []


def test_a_word_of_many_pieces_is_several(tokenizer: DomainTokenizer) -> None:
    ((ids, starts),) = tokenizer.encode_with_starts(["z" * 40])
    assert len(ids) == 41 and np.flatnonzero(starts).tolist() == [0, 16, 32]
    rare = "\u9f98" * 30  # three bytes each, not merged
    ((ids, starts),) = tokenizer.encode_with_starts([rare])
    assert len(ids) == 91 and np.flatnonzero(starts).tolist() == [0, 16, 34, 52, 70, 88], "between characters"
    assert "".join(words_in(tokenizer, rare)).strip() == rare


@given(text=_HOSTILE)
def test_words_of_a_text_are_bounded_and_whole_characters(tokenizer: DomainTokenizer, text: str) -> None:
    ((ids, starts),) = tokenizer.encode_with_starts([text])
    assert starts.dtype == np.bool_ and len(starts) == len(ids)
    assert not len(starts) or starts[0]
    sizes = np.diff(np.flatnonzero(starts), append=len(ids))
    assert sizes.max(initial=0) <= 16 + 3
    assert "".join(words_in(tokenizer, text)).removeprefix(" ") == text.removeprefix(" ")


@given(text=_HOSTILE)
def test_the_words_of_raw_text_are_the_basic_ones_where_pieces_allow(tokenizer: DomainTokenizer, text: str) -> None:
    (aligned,) = align_text(tokenizer, [text])
    (basic,) = basic_words([text])
    starts, ends = {start for start, _ in basic}, {end for _, end in basic}
    assert all(start in starts and end in ends for start, end in aligned.word_offsets)
    places = [place for offsets in aligned.word_offsets for place in offsets]
    assert places == sorted(places)
    covered = "".join(text[start:end] for start, end in aligned.word_offsets)
    assert all(text[start:end] in covered for start, end in basic), "no word is lost"
    assert len(aligned.first_piece) == len(aligned.word_offsets) == len(set(aligned.word_index))
    whole = tokenizer.encode([text])[0]
    assert aligned.input_ids == whole[len(whole) - len(aligned.input_ids) :] if basic else not aligned.input_ids


def test_offsets_in_raw_text(tokenizer: DomainTokenizer) -> None:
    text = "\n Cafe\u0301s in \u4e2d\u56fd\u2019s US$5bn \U0001f469\u200d\U0001f467\u200d\U0001f466 ..."
    (aligned,) = align_text(tokenizer, [text])
    assert [text[start:end] for start, end in aligned.word_offsets] == [
        *("Cafe\u0301s", "in", "\u4e2d\u56fd", "\u2019", "s", "US", "$", "5bn"),
        *("\U0001f469\u200d\U0001f467\u200d\U0001f466", "..", "."),
    ], "as in `basic_words`, but two words that one piece covers are one"
    (spaced,) = align_text(tokenizer, [" \U0001f469 x"])
    assert (spaced.input_ids, spaced.word_offsets) == (tokenizer.encode([" \U0001f469 x"])[0], [(1, 2), (3, 4)])
    read = [aligned.word_index[place] for place, starts in enumerate(aligned.starts_pretoken) if starts]
    assert read == list(range(len(aligned.word_offsets)))


@given(words=st.lists(_HOSTILE.map(lambda text: "".join(text.split())).filter(bool), min_size=1, max_size=8))
@example(words=["``", "óQ"])
def test_words_of_a_file_are_read_as_in_running_text_and_labelled_once(
    tokenizer: DomainTokenizer, words: list[str]
) -> None:
    (aligned,) = align_words(tokenizer, [words])
    text = " ".join(TREEBANK.get(word, word) for word in words)  # a file has `` for a quotation mark
    assert aligned.input_ids == tokenizer.encode([text])[0]
    assert sorted(set(aligned.word_index)) == list(range(len(words)))
    labels = ["O", "B-x", "I-x"]
    tags = [number % 3 for number in range(len(words))]
    for max_length in (7, 512):
        (example,) = encode_words([aligned], [tags], labels, max_length)
        found = [pair for window in example.windows for pair in zip(window.outputs, window.targets, strict=True)]
        assert [(word, tag) for word, tag in found if word >= 0] == list(enumerate(tags))


@pytest.mark.parametrize("space", ["\u00a0", "\n", "\u3000"])
def test_a_first_word_of_white_space_takes_no_piece_from_the_others(tokenizer: DomainTokenizer, space: str) -> None:
    first, rest = align_words(tokenizer, [[space, "the", "bank"], ["the", "bank"]])
    assert names(tokenizer, first.input_ids)[-2:] == names(tokenizer, rest.input_ids) == ["\u0120the", "\u0120bank"]
    assert first.word_index[-2:] == [1, 2] and tokenizer.unk_id not in first.input_ids


def test_more_words_leave_the_others_as_they_are(tokenizer: DomainTokenizer, tmp_path: Path) -> None:
    counted = {" rates": 9, " Kenya": 5, "Kenya": 2, " bank": 100, "\u4e2d\u56fd\u4eba\u6c11": 1}
    words = words_to_add(tokenizer, counted, 2)
    assert words == [" Kenya", "Kenya"]
    more = extend_tokenizer(tokenizer, [" Kenya", " \u94f6\u884c"])
    assert more.tokens[:320] == tokenizer.tokens
    assert more.encode(["in Kenya, \u94f6\u884c"])[0][-3:] == [320, tokenizer.encode([","])[0][-1], 321]
    assert more.encode([_TEXTS[0], "banking's"]) == tokenizer.encode([_TEXTS[0], "banking's"])
    assert vocabulary_of(more).surfaces[320:] == [Surface("Kenya", True), Surface("\u94f6\u884c", True)]
    more.save(tmp_path)
    assert load_tokenizer(tmp_path).fingerprint == more.fingerprint
    theirs = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(tmp_path)
    assert theirs("in Kenya", add_special_tokens=False)["input_ids"] == more.encode(["in Kenya"])[0]
    with refused(problem="...is in the vocabulary already"):
        extend_tokenizer(more, [" Kenya"])


def test_where_entries_come_from_in_another_kind(tokenizer: DomainTokenizer, make_tokenizer) -> None:
    wordpiece = make_tokenizer(["bank", "##ing", "##s", "the", ",", "##a", "##n", "a", "##k", "k", "b"])
    ours, theirs = vocabulary_of(tokenizer), vocabulary_of(wordpiece)
    ids = {token: number for number, token in enumerate(tokenizer.tokens)}
    found = origins(ours, theirs)
    copied = {
        token: theirs.tokens[found[ids[token]].pieces[0]] for token in ("Ġbank", "Ġthe", ",", "<s>", "<mask>", "a")
    }
    assert copied == {"Ġbank": "bank", "Ġthe": "the", ",": ",", "<s>": "[CLS]", "<mask>": "[MASK]", "a": "##a"}
    assert all(found[ids[token]].kind == "copied" for token in copied)
    assert found[ids["Ġ"]] == ("new", ()), "a space is nothing there"
    back = origins(theirs, ours)
    places = {token: number for number, token in enumerate(wordpiece.tokens)}
    assert back[places["bank"]] == ("copied", (ids["Ġbank"],))
    assert back[places["[SEP]"]] == ("copied", (ids["</s>"],))
    assert back[places["##a"]] == ("copied", (ids["a"],))
    spelt = tokenizer.backend.model.tokenize("ing")
    assert back[places["##ing"]].pieces == tuple(piece.id for piece in spelt)


@pytest.mark.parametrize("value", [False, True])
@pytest.mark.parametrize("name", ["RobertaTokenizer", "RobertaTokenizerFast", "PreTrainedTokenizerFast"])
def test_the_class_of_roberta_reads_its_prefix_space_from_the_configuration(
    tokenizer: DomainTokenizer, tmp_path: Path, value: bool, name: str
) -> None:
    tokenizer.save(tmp_path)
    state = json.loads((tmp_path / "tokenizer.json").read_text())
    state["pre_tokenizer"]["add_prefix_space"] = not value
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_class": name, "add_prefix_space": value}))
    theirs = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(tmp_path)
    for ours in (load_tokenizer(tmp_path), saved_and_loaded(load_tokenizer(tmp_path), tmp_path / "again")):
        texts = ["the bank's  rates\n", " Kenya", "caf\u00e9 \u4e2d\u56fd ..."]
        assert theirs(texts)["input_ids"] == [ours.template.frame(ids)[0].tolist() for ids in ours.encode(texts)]


def saved_and_loaded(tokenizer: DomainTokenizer, folder: Path) -> DomainTokenizer:
    """Return a tokenizer after saving and loading."""
    tokenizer.save(folder)
    return load_tokenizer(folder)


@pytest.mark.parametrize("add_prefix_space", [None, False, True])
def test_the_files_before_tokenizer_json(
    tokenizer: DomainTokenizer, tmp_path: Path, add_prefix_space: bool | None
) -> None:
    """`vocab.json` and `merges.txt`, which older RoBERTa models have alone."""
    model = json.loads(tokenizer.backend.to_str())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in model["merges"]))
    (tmp_path / "config.json").write_text('{"model_type": "roberta", "vocab_size": 320}')
    if add_prefix_space is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": add_prefix_space}))
    ours = load_tokenizer(tmp_path)
    theirs = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(tmp_path)
    texts = ["the bank's  rates\n", " Kenya", "caf\u00e9 \u4e2d\u56fd ..."]
    assert theirs(texts)["input_ids"] == [ours.template.frame(ids)[0].tolist() for ids in ours.encode(texts)]
    assert (ours.encode(texts) == tokenizer.encode(texts)) == bool(add_prefix_space)
    words = ["the", "banks", ","]
    assert align_words(ours, [words])[0].input_ids == ours.encode(["the banks ,"])[0], "each word with its space"
    ours.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").fingerprint == ours.fingerprint
    config = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
    assert config["add_prefix_space"] is bool(add_prefix_space), "transformers 4 reads it here alone"
    (tmp_path / "merges.txt").write_text("#version: 0.2\nx y z\n")
    with refused(problem="vocab.json and merges.txt are not a byte-level BPE..."):
        load_tokenizer(tmp_path)


def test_special_tokens_in_a_text_are_text(tokenizer: DomainTokenizer) -> None:
    for text in ("a <mask> b", "<s>", "x</s>y"):
        (ids,) = tokenizer.encode([text])
        assert not tokenizer.special_ids & set(ids)
        assert decoders.ByteLevel().decode(names(tokenizer, ids)).strip() == text
