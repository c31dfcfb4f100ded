from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, pre_tokenizers
from tokenizers.models import BPE

from domainbert.corpus.config import CorpusConfig, Source
from domainbert.encoders.packed import Packed
from domainbert.models.folder import open_model
from domainbert.models.loading import load_model
from domainbert.stages.transfer import transfer
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from tests.interface.snapshot import check_folder
from tests.model_cards import run_card
from tests.refusals import refused
from tests.tokenization.test_extend import SIZES, train, with_special_tokens_behind

EMBEDDINGS, BIAS = "bert.embeddings.word_embeddings.weight", "cls.predictions.bias"
OLD = ["bank", "##s", "##er", "loan", "pol", "##ic", "##y", "rate", "cut", "##ing", "s", "ing", ";"]
NEW = ["policy", "##ings", "bankers", "rate", "##s", "cut", "loans", "☃"]


def tokenizer_of(pieces: list[str]) -> DomainTokenizer:
    vocab = {token: number for number, token in enumerate([*SPECIAL_TOKENS.values(), *pieces])}
    return DomainTokenizer(bert_backend(vocab, {}), model_max_length=64)


def write_model(folder: Path, kind: str = "BertForMaskedLM", vocab_size: int = 18, **changes: Any) -> None:
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
    config = transformers.BertConfig(vocab_size=vocab_size, max_position_embeddings=32, **{**sizes, **changes})
    torch.manual_seed(0)
    model = getattr(transformers, kind)(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    model.save_pretrained(folder)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Path]:
    """Write the old model, the new tokenizer and a corpus, and run the stage; `results` holds its results."""
    texts = [f"Bankers cut rate {number}; policy of bankers, loans and bankers" for number in range(40)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    corpus = CorpusConfig([Source(str(tmp_path / "corpus.jsonl"))], validation_fraction=0.1)
    write_model(tmp_path / "old")
    tokenizer_of(OLD).save(tmp_path / "old")
    tokenizer_of(NEW).save(tmp_path / "new")

    def transferred(name: str, **arguments: Any) -> Path:
        out = tmp_path / name
        out.mkdir()
        usual: dict[str, Any] = {"model": tmp_path / "old", "corpus": corpus}
        if "extend" not in arguments:
            usual["tokenizer"] = tmp_path / "new"
        run.results[name] = transfer(out, **{**usual, **arguments})  # type: ignore[attr-defined]
        return out

    run = transferred
    run.results = {}  # type: ignore[attr-defined]
    return run


@pytest.mark.parametrize("method", ["mean", "fvt", "focus", "random"])
def test_the_same_vocabulary_is_the_identity(run: Callable[..., Path], tmp_path: Path, method: str) -> None:
    out = run("same", tokenizer=tmp_path / "old", method=method)
    old, new = load_file(tmp_path / "old/model.safetensors"), load_file(out / "model.safetensors")
    assert old.keys() == new.keys()
    assert all(torch.equal(old[name], new[name]) for name in old)
    before, after = (json.loads((folder / "config.json").read_text()) for folder in (tmp_path / "old", out))
    assert after == before | {"pad_token_id": 0}
    assert load_tokenizer(out).fingerprint == load_tokenizer(tmp_path / "old").fingerprint
    check_folder("transfer", out)


def test_each_entry_comes_from_where_it_should(run: Callable[..., Path], tmp_path: Path) -> None:
    old = load_file(tmp_path / "old/model.safetensors")
    pieces = {"policy": ["pol", "##ic", "##y"], "bankers": ["bank", "##er", "##s"], "loans": ["loan", "##s"]}
    shared = ["rate", "##s", "cut", *SPECIAL_TOKENS.values()]
    old_ids, new_ids = ({token: i for i, token in enumerate(tokenizer_of(part).tokens)} for part in (OLD, NEW))
    for method, ings in (("mean", ["ing", "##s"]), ("fvt", ["##ing", "##s"])):
        new = load_file(run(method, method=method) / "model.safetensors")
        assert {name for name in old if name not in (EMBEDDINGS, BIAS)} <= {
            name for name in new if torch.equal(new[name], old[name])
        }
        for name in (EMBEDDINGS, BIAS):
            assert new[name].shape == (13, *old[name].shape[1:])
            for token in shared:
                assert torch.equal(new[name][new_ids[token]], old[name][old_ids[token]])
            for token, parts in [*pieces.items(), ("##ings", ings)]:
                rows = old[name].numpy().astype(np.float64)[[old_ids[part] for part in parts]]
                np.testing.assert_allclose(new[name][new_ids[token]].numpy(), rows.mean(axis=0), rtol=1e-6, atol=1e-9)
    baseline = load_file(run("random", method="random") / "model.safetensors")[EMBEDDINGS]
    assert all(torch.equal(baseline[new_ids[token]], old[EMBEDDINGS][old_ids[token]]) for token in shared)
    assert not any(torch.allclose(baseline[new_ids[token]], new[EMBEDDINGS][new_ids[token]]) for token in pieces)
    assert not torch.equal(baseline, load_file(run("other", method="random", seed=1) / "model.safetensors")[EMBEDDINGS])


def test_transformers_loads_it_with_equal_logits(run: Callable[..., Path]) -> None:
    out = run("focus", method="focus")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(out).eval()
    model, folder, made = load_model(out, "masked_lm")
    assert made == [] and folder.vocab_size == 13
    ids = torch.tensor([transformers.AutoTokenizer.from_pretrained(out)("Bankers cut policy; x")["input_ids"]])
    assert ids.tolist() == [[2, *folder.tokenizer().encode(["Bankers cut policy; x"])[0], 3]]
    positions = torch.arange(ids.shape[1])
    with torch.inference_mode():
        ours = model.eval()(Packed(ids, positions[None], torch.ones_like(ids)), positions)
        torch.testing.assert_close(ours, theirs(ids).logits[0], atol=1e-6, rtol=1e-5)


def test_without_a_head_and_with_a_pooler_shared_words_give_the_same_states(
    run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_model(tmp_path / "base", "BertModel", vocab_size=24)  # more rows than entries
    tokenizer_of(OLD).save(tmp_path / "base")
    out = run("from-base", model=tmp_path / "base")
    before, after = (transformers.AutoModel.from_pretrained(path).eval() for path in (tmp_path / "base", out))
    with torch.inference_mode():
        one, other = (
            model(torch.tensor([[2, *tokenizer_of(pieces).encode(["Cut rate"])[0], 3]]))
            for model, pieces in ((before, OLD), (after, NEW))
        )
    rest = [name for name, _ in before.named_parameters() if name != "embeddings.word_embeddings.weight"]
    old, new = before.state_dict(), after.state_dict()
    assert any(name.startswith("pooler.") for name in rest) and all(torch.equal(old[name], new[name]) for name in rest)
    for state in ("last_hidden_state", "pooler_output"):  # the last bit may depend on where the weights lie in memory
        torch.testing.assert_close(one[state], other[state], atol=1e-6, rtol=0)
    assert len(load_model(out, "masked_lm")[2]) == 5, "the head is still to be made"
    assert "embeddings without a vocabulary entry: 6, which are left out" in capsys.readouterr().out


@pytest.mark.parametrize(("written", "kept"), [(20, 20), (64, 32), (None, 32)])
@pytest.mark.parametrize("vocabulary", [{}, {"extend": 1}])
def test_the_window_of_the_model_is_kept(
    run: Callable[..., Path], tmp_path: Path, written: int | None, kept: int, vocabulary: dict[str, int]
) -> None:
    """A tagger reads the windows of its fine-tuning; at most the positions, whatever the new tokenizer has."""
    file = tmp_path / "old" / "tokenizer_config.json"
    fields = {name: value for name, value in json.loads(file.read_text()).items() if name != "model_max_length"}
    file.write_text(json.dumps(fields if written is None else {**fields, "model_max_length": written}))
    assert load_tokenizer(run("out", **vocabulary)).model_max_length == kept


def test_extension(run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run("extended", extend=2)
    assert "added 2 words: bankers, policy" in capsys.readouterr().out
    tokenizer = open_model(out).tokenizer()
    assert tokenizer.tokens == [*tokenizer_of(OLD).tokens, "bankers", "policy"]
    old, new = (load_file(folder / "model.safetensors") for folder in (tmp_path / "old", out))
    for name in (EMBEDDINGS, BIAS):
        assert torch.equal(new[name][:18], old[name])
        torch.testing.assert_close(new[name][18], old[name][[5, 7, 6]].mean(dim=0))
    metrics = run.results["extended"]  # type: ignore[attr-defined]
    assert metrics["entries"] == {"copied": 18, "composed": 2, "new": 0}
    with refused(where="extend", found="9", expected="at most 3, the number of words of the corpus..."):
        run("too-many", extend=9)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("said", ["beside the roles", "before the roles", "added_tokens.json"])
def test_extension_keeps_added_tokens_with_their_vectors(
    run: Callable[..., Path], tmp_path: Path, name: str, said: str
) -> None:
    if said == "added_tokens.json" and name == "Unigram":
        pytest.skip("no vocabulary of this kind is read without a tokenizer.json")
    trained = train(name)
    behind = said == "before the roles"
    backend = with_special_tokens_behind(trained) if behind else Tokenizer.from_str(trained.backend.to_str())
    backend.add_tokens(["graft", "grafts", "new york", AddedToken("[E1]", special=True, normalized=False)])
    old, source = DomainTokenizer(backend, trained.special_tokens, 32), tmp_path / "added"
    write_model(source, vocab_size=old.vocab_size + 3)  # a table with rows to spare
    old.save(source)
    if said == "added_tokens.json":
        state = json.loads((source / "tokenizer.json").read_text())
        ids = {one["content"]: one["id"] for one in state["added_tokens"] if one["id"] >= trained.vocab_size}
        (source / "added_tokens.json").write_text(json.dumps(ids))
        (source / "tokenizer.json").unlink()
        (source / "vocab.txt").write_text("".join(f"{token}\n" for token in trained.tokens))
        (source / "vocab.json").write_text(json.dumps({token: n for n, token in enumerate(trained.tokens)}))
        merges = state["model"].get("merges", [])
        (source / "merges.txt").write_text("\n".join(["#version: 0.2", *map(" ".join, merges)]))
        (source / ("vocab.json" if name == "WordPiece" else "vocab.txt")).unlink()
    out = run(f"{name}-{said}", model=source, extend=4)
    new, places = open_model(out).tokenizer(), {token: number for number, token in enumerate(old.tokens)}
    assert new.tokens[: old.vocab_size] == old.tokens and new.vocab_size == old.vocab_size + 4
    before, after = (load_file(folder / "model.safetensors") for folder in (source, out))
    for table in (EMBEDDINGS, BIAS):
        assert torch.equal(after[table][: old.vocab_size], before[table][: old.vocab_size])
        assert len(after[table]) == new.vocab_size and after[table].isfinite().all()
    text = "grafts in new york [E1] policy"
    ids = new.encode([text])[0]
    assert [places[token] for token in ("grafts", "new york", "[E1]")] == [
        one for one in ids if one in range(places["graft"], places["[E1]"] + 1)
    ]
    theirs = transformers.AutoTokenizer.from_pretrained(out)
    assert theirs(text)["input_ids"] == new.template.frame(ids)[0].tolist()


def test_the_report(run: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    out = run("out")
    report = json.loads((out / "transfer.json").read_text())
    assert report["entries"] == {"copied": 8, "composed": 4, "new": 1}
    assert report["shares"] == {"copied": 8 / 13, "composed": 4 / 13, "new": 1 / 13}
    assert (report["method"], report["vocab_size"], report["drawn"]) == ("fvt", 13, 1)
    fallen = report["shortened_words"]
    assert [word["word"] for word in fallen] == ["bankers", "Bankers", "policy", "loans"]
    assert fallen[0] == {
        "word": "bankers",
        "before": ["bank", "##er", "##s"],
        "after": ["bankers"],
        "count": 2 * fallen[1]["count"],
    }
    words = 10 * fallen[1]["count"]  # words of a text, including its number
    assert report["pieces_saved"] == pytest.approx(sum(w["count"] * (len(w["before"]) - 1) for w in fallen) / words)
    printed = capsys.readouterr().out
    assert "entries: 61.5 % copied, 30.8 % composed, 7.7 % new; 0.9000 pieces per word fewer" in printed
    assert "corpus.jsonl: 40 documents" in printed
    assert "  policy (" in printed and "times): pol ##ic ##y -> policy" in printed
    assert report["source"] == "old"
    assert "| model | old |\n| method | fvt |" in (out / "README.md").read_text()
    run_card(out)


def test_a_byte_level_vocabulary_as_the_source(run: Callable[..., Path], tmp_path: Path) -> None:
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    merges = [("r", "a"), ("t", "e"), ("ra", "te"), ("\u0120", "rate")]
    pieces = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    ids = {piece: number for number, piece in enumerate(pieces)}
    backend = Tokenizer(BPE(ids, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.add_special_tokens(special)
    write_model(tmp_path / "bytes", vocab_size=len(pieces))
    backend.save(str(tmp_path / "bytes/tokenizer.json"))
    old = load_file(tmp_path / "bytes/model.safetensors")[EMBEDDINGS]
    new = load_file(run("from-bytes", model=tmp_path / "bytes") / "model.safetensors")[EMBEDDINGS]
    rows = dict(zip(tokenizer_of(NEW).tokens, new, strict=True))
    for token, source in {"[CLS]": "<s>", "[MASK]": "<mask>", "rate": "\u0120rate", "##s": "s"}.items():
        assert torch.equal(rows[token], old[ids[source]])
    torch.testing.assert_close(rows["cut"], old[[ids[piece] for piece in "\u0120cut"]].mean(dim=0))
    torch.testing.assert_close(rows["☃"], old[[ids[piece] for piece in ("\u0120", "â", "ĺ", "ĥ")]].mean(dim=0))


def test_what_cannot_be_transferred(run: Callable[..., Path], tmp_path: Path) -> None:
    with refused(where="tokenizer, extend", found="both", expected="exactly one..."):
        run("both", tokenizer=tmp_path / "new", extend=2)
    tokenizer_of([*OLD, "more"]).save(tmp_path / "old")
    with refused(file=f"{tmp_path}/old", problem="the tokenizer has 19 entries, but vocab_size ... only 18"):
        run("too-large")
    config = tmp_path / "old/config.json"
    config.write_text(config.read_text().replace('"model_type": "bert"', '"model_type": "t5"'))
    with refused(where="model_type", found="'t5'", expected="one of albert, bert..."):
        run("family")


def test_from_a_pretrained_model_to_a_new_vocabulary_and_on(runs: Any) -> None:
    """The recipe: `vocab` -> `transfer` -> `prepare` with the new vocabulary -> `pretrain` from there."""
    from domainbert.stages.prepare import prepare
    from domainbert.stages.vocab import vocab

    runs.run("larger-vocab", vocab, corpus=runs.corpus, vocab_size=1280, model_max_length=96)
    runs.run("transferred", transfer, model=runs / "pretrain", corpus=runs.corpus, tokenizer=runs / "larger-vocab")
    prepared = runs.run("prepare-larger", prepare, corpus=runs.corpus, tokenizer=runs / "transferred", num_workers=0)
    go_on = {"init_from": runs / "transferred", "encoder": None}
    dapt = runs.pretrain("dapt", max_steps=2, prepared=[prepared], **go_on)
    results = runs.results["transferred"]
    assert results["entries"]["composed"] > 200 and results["entries"]["new"] == 0 and results["pieces_saved"] > 0
    assert open_model(dapt).tokenizer().fingerprint == results["fingerprint"]
    assert open_model(dapt).vocab_size == 1280
    with refused(problem="prepared with another tokenizer"):
        runs.pretrain("foreign", prepared=[runs / "prepare"], **go_on)


def test_weights_that_do_not_fit(run: Callable[..., Path], tmp_path: Path) -> None:
    file = tmp_path / "old/model.safetensors"
    tensors = load_file(file)
    save_file(tensors | {EMBEDDINGS: tensors[EMBEDDINGS][:17].clone()}, file)
    with refused(file=f"{tmp_path}/old", problem=f"{EMBEDDINGS} has 17 rows", expected="18, vocab_size in config.json"):
        run("short")
    save_file(tensors | {EMBEDDINGS: tensors[EMBEDDINGS].to(torch.int8)}, file)
    with refused(problem=f"{EMBEDDINGS} holds torch.int8", expected="floating-point weights..."):
        run("quantised")
    save_file({name: tensor for name, tensor in tensors.items() if name != EMBEDDINGS}, file)
    with refused(file=f"{tmp_path}/old", found=f"no weights named {EMBEDDINGS}..."):
        run("none")
    save_file(tensors | {"cls.predictions.decoder.weight": tensors[EMBEDDINGS] + 1}, file)
    with refused(problem="...decoder.weight differs from ...word_embeddings.weight", expected="equal tensors..."):
        run("untied")
