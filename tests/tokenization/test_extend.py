from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, processors

from domainbert.tokenization.extend import extend_tokenizer, with_tokens, words_to_add
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from tests.refusals import refused
from tests.tokenization.properties import train_kind

Make = Callable[..., DomainTokenizer]
PIECES = ["bank", "##s", "##er", "loan"]


def test_the_words_that_save_most_pieces(make_tokenizer: Make) -> None:
    words = {"banks": 3, "bankers": 2, "bank": 100, "loans": 4, "unheard": 50, "bankss": 1, "bank" + "s" * 97: 9}
    assert words_to_add(make_tokenizer(PIECES), words, 3) == ["bankers", "loans", "banks"]
    assert words_to_add(make_tokenizer(PIECES), words, 4)[3:] == ["bankss"]
    with refused(where="extend", found="5", expected="at most 4, the number of words of the..."):
        words_to_add(make_tokenizer(PIECES), words, 5)


def test_old_entries_and_ids_stay(make_tokenizer: Make, tmp_path: Path) -> None:
    old = make_tokenizer(PIECES)
    new = extend_tokenizer(old, ["bankers", "loans"])
    assert new.tokens == [*old.tokens, "bankers", "loans"]
    assert (new.special_tokens, new.model_max_length) == (old.special_tokens, old.model_max_length)
    text = "The Bankers loaned banks loans"
    assert new.encode([text]) == [[1, 9, 1, 5, 6, 10]]
    assert old.encode(["bank loan"]) == new.encode(["bank loan"])
    new.save(tmp_path)
    assert load_tokenizer(tmp_path).fingerprint == new.fingerprint
    with refused(problem="'bank' is in the vocabulary already", expected="only new words"):
        extend_tokenizer(old, ["x", "bank"])


_STEMS = ("bank", "loan", "caf\u00e9", "rate", "price", "trade", "tax", "debt", "fund", "grow")
_WORDS = [stem + end for stem in _STEMS for end in ("", "s", "ed", "ing", "er", "ers", "able", "ment")]
SIZES = {"ByteBPE": 320, "Unigram": 128, "WordPiece": 192}
_ADDED = st.lists(
    st.builds(
        AddedToken,
        st.sampled_from(
            ["graft", "grafts", "new york", "[E1]", "\u00c9clair", "Graft", "  ", "\u20ac", "\u0120x", "##q"]
        )
        | st.text("graftGR\u00e9 <1", min_size=1, max_size=5),
        single_word=st.booleans(),
        lstrip=st.booleans(),
        rstrip=st.booleans(),
        normalized=st.booleans(),
        special=st.booleans(),
    ),
    max_size=5,
    unique_by=lambda token: token.content,
)


@pytest.fixture(scope="module", params=[(name, lowercase) for name in SIZES for lowercase in (False, True)])
def trained(request: pytest.FixtureRequest) -> DomainTokenizer:
    """A vocabulary of each kind, cased or not."""
    return train(*request.param)


def train(name: str, lowercase: bool = False) -> DomainTokenizer:
    """A small vocabulary of a kind, of words with the same endings."""
    return train_kind(name, [" ".join(_WORDS * 3)], SIZES[name], lowercase)


def with_special_tokens_behind(tokenizer: DomainTokenizer) -> Tokenizer:
    """The layout of ModernBERT: special tokens are added tokens behind the model's entries, except [UNK], which has
    to be one of them."""
    state = json.loads(tokenizer.backend.to_str())
    behind = [token for role, token in tokenizer.special_tokens.items() if role != "unk_token"]
    unknown, vocab = tokenizer.special_tokens["unk_token"], state["model"]["vocab"]
    if state["model"]["type"] == "Unigram":
        state["model"]["vocab"] = [entry for entry in vocab if entry[0] not in behind]
        state["model"]["unk_id"] = [entry[0] for entry in state["model"]["vocab"]].index(unknown)
    else:
        kept = [token for token in sorted(vocab, key=vocab.__getitem__) if token not in behind]
        state["model"]["vocab"] = {token: number for number, token in enumerate(kept)}
    state["added_tokens"] = [one for one in state["added_tokens"] if one["content"] == unknown]
    state["post_processor"] = None
    backend = Tokenizer.from_str(json.dumps(state))
    backend.add_tokens([AddedToken("|||IP|||", normalized=False)])
    backend.add_special_tokens(behind)
    cls, sep = (tokenizer.special_tokens[role] for role in ("cls_token", "sep_token"))
    backend.post_processor = processors.BertProcessing(*((one, backend.token_to_id(one)) for one in (sep, cls)))
    return backend


@given(added=_ADDED, behind=st.booleans(), count=st.integers(1, 4))
@example(added=[AddedToken(one) for one in ("graft", "grafts", "new york")], behind=False, count=2)
@example(added=[AddedToken("graft"), AddedToken(" a", normalized=False)], behind=False, count=1)
@example(added=[AddedToken("[E1]", special=True), AddedToken("[E2]", special=True)], behind=True, count=2)
def test_every_entry_keeps_its_id(trained: DomainTokenizer, added: list[AddedToken], behind: bool, count: int) -> None:
    backend = with_special_tokens_behind(trained) if behind else Tokenizer.from_str(trained.backend.to_str())
    backend.add_tokens(list({trained.pieces.fold(one.content): one for one in added}.values()))  # no two read alike
    old = DomainTokenizer(backend, trained.special_tokens, 64)
    counts = dict.fromkeys(["grafting", "engrafted", "atrraft"], 9) | dict.fromkeys(
        ["mulson", "quilum", "zinck", "hobo"], 2
    )
    if old.kind.name != "WordPiece":  # the space belongs to the word
        counts = {f" {word}": occurrences for word, occurrences in counts.items()}
    words = words_to_add(old, counts, count)
    new = extend_tokenizer(old, words)
    assert new.tokens == [*old.tokens, *map(old.kind.entry, words)]
    assert (new.special_tokens, new.special_ids, new.template) == (old.special_tokens, old.special_ids, old.template)
    for number, word in enumerate(words, old.vocab_size):
        assert new.encode([f", {word.strip()}"])[0][-1] == number, "a word that is added is found"
    kept = [one.content for one in added if backend.token_to_id(one.content) is not None]
    whole = [one for one in kept if len(old.encode([one])[0]) == 1]  # no other one is found in it
    texts = [*whole, *(word for word in _WORDS if not any(one.lower() in word for one in kept)), "[SEP], <mask>"]
    assert new.encode(texts) == old.encode(texts)
    with TemporaryDirectory() as folder:
        new.save(Path(folder))
        again, flags = load_tokenizer(Path(folder)), Tokenizer.from_file(f"{folder}/tokenizer.json")
    assert (again.tokens, again.fingerprint) == (new.tokens, new.fingerprint)
    before, after = (one.get_added_tokens_decoder() for one in (old.copy_backend(), flags))
    assert {number: (one.content, one.special) for number, one in before.items()} == {
        number: (one.content, one.special) for number, one in after.items()
    }
    marked = with_tokens(new, ["[HEAD]"])
    assert marked.tokens == [*new.tokens, "[HEAD]"] and extend_tokenizer(marked, ["x y"]).tokens[:-1] == marked.tokens


def test_an_entry_that_would_get_another_id_is_named(make_tokenizer: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = with_tokens(make_tokenizer(PIECES), ["[E1]"])
    monkeypatch.setattr(
        type(tokenizer.kind), "extend", lambda self, backend, model, entries: model["vocab"].update(entries)
    )
    with refused(problem="the new vocabulary has '' as id 9", expected="'[E1]'"):
        extend_tokenizer(tokenizer, ["loans"])
    state = json.loads(make_tokenizer(PIECES).backend.to_str())
    state["model"]["vocab"]["later"] = 12
    with refused(where="extend", problem="the ids of the vocabulary have a gap at 10", expected="ids..."):
        with_tokens(DomainTokenizer(Tokenizer.from_str(json.dumps(state))), ["[E1]", "[E2]"])
