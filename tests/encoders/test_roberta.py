"""What RoBERTa does otherwise than BERT."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
import transformers
import yaml

from domainbert.base.choices import named_files
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import EncoderConfig, VocabularyFacts
from domainbert.encoders.families import build_model, family, name_map
from domainbert.encoders.heads import MaskedLMHead
from domainbert.encoders.layers import Dropout
from domainbert.encoders.names import from_hugging_face
from domainbert.encoders.packed import Packed
from domainbert.encoders.roberta.config import RobertaConfig
from domainbert.encoders.xlm_roberta.config import XLMRobertaConfig
from domainbert.models.folder import open_model
from domainbert.models.loading import load_model, load_tensors
from domainbert.models.saving import save_model, save_with_vocabulary
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer
from tests.refusals import refused

CONFIG = RobertaConfig(24, 2, 3, 40, max_position_embeddings=20, type_vocab_size=1, initializer_range=0.3)


def tokens_of(length: int, seed: int = 0) -> Packed:
    ids = torch.randint(8, 40, (1, length), generator=torch.Generator().manual_seed(seed))
    return Packed(ids, torch.arange(length)[None], torch.ones_like(ids))


def tokenizer_of(pad_id: int) -> DomainTokenizer:
    tokens = [*SPECIAL_TOKENS.values(), *map(chr, range(97, 123)), *(f"x{n}" for n in range(9))]
    tokens.remove("[PAD]")
    tokens.insert(pad_id, "[PAD]")
    return DomainTokenizer(bert_backend({token: number for number, token in enumerate(tokens)}, {}))


@pytest.mark.parametrize(("positions", "pad_id", "length"), [(514, 1, 512), (512, 1, 510), (514, 0, 513), (40, 7, 32)])
def test_positions_before_the_first_token_s_are_no_room(positions, pad_id, length):
    fields = {"max_position_embeddings": positions, "pad_token_id": pad_id}
    assert RobertaConfig.from_json(fields).max_length == length
    assert RobertaConfig.from_json({"max_position_embeddings": positions}).max_length == positions - 2


@pytest.mark.parametrize("name", ["tiny", "small", "base"])
@pytest.mark.parametrize("kind", [RobertaConfig, XLMRobertaConfig])
def test_named_sizes_are_bert_s_with_what_roberta_was_published_with(kind, name):
    files = named_files(EncoderConfig)
    bert, own = (yaml.safe_load(files[one].read_text()) for one in (name, f"{kind.model_type}-{name}"))
    config = kind(**own["init_args"])
    assert own["class_path"] == kind.__name__ and config.max_length == 512
    assert config.sizes == dataclasses.replace(BertConfig(**bert["init_args"]).sizes, layer_norm_eps=1e-5)
    assert config.type_vocab_size == 1


@pytest.mark.parametrize("pad_id", [0, 1, 5])
def test_positions_are_counted_from_the_padding_on(pad_id):
    """As in transformers, for a text of the greatest length; and padded rows are texts alone."""
    theirs = transformers.RobertaForMaskedLM(
        transformers.RobertaConfig(vocab_size=40, pad_token_id=pad_id, **dataclasses.asdict(CONFIG))
    ).eval()
    config = RobertaConfig.from_json(theirs.config.to_dict())
    model = build_model(config, VocabularyFacts(40, pad_id), "masked_lm").eval()
    state, missing = from_hugging_face(theirs.state_dict(), name_map(config, "masked_lm"))
    assert not missing and config.max_length == 19 - pad_id
    model.load_state_dict(state)
    tokens = tokens_of(config.max_length)
    with torch.inference_mode():
        wanted = theirs(tokens.input_ids).logits[0]
        torch.testing.assert_close(model(tokens, torch.arange(config.max_length)), wanted, atol=1e-5, rtol=0)
        padded = tokens_of(8)._replace(segment_ids=(torch.arange(8) < 5).long()[None])
        padded = padded._replace(input_ids=padded.input_ids.where(padded.segment_ids > 0, pad_id))
        wanted = theirs(padded.input_ids, attention_mask=padded.segment_ids).logits[0, :5]
        torch.testing.assert_close(model(padded, torch.arange(5)), wanted, atol=1e-5, rtol=0)
    with pytest.raises(IndexError):
        model(tokens_of(config.max_length + 1), torch.arange(1))


def test_rows_of_the_padding_are_zero_and_stay_so():
    model = build_model(CONFIG, VocabularyFacts(40, 1), "masked_lm")
    embeddings = model.encoder.embeddings
    for table in (embeddings.word, embeddings.position):
        assert table.weight.any(dim=1).tolist() == [number != 1 for number in range(len(table.weight))]
    model(tokens_of(9), torch.arange(9)).sum().backward()
    assert not embeddings.position.weight.grad[:2].any() and embeddings.position.weight.grad[2:11].any(dim=1).all()


def test_a_pair_has_the_logits_of_transformers_whatever_rows_its_table_has(tmp_path):
    """A table with two rows, the default of the class: the saved tokenizer returns no token types."""
    torch.manual_seed(0)
    config = dataclasses.replace(CONFIG, type_vocab_size=2)
    tokens = [*SPECIAL_TOKENS.values(), "a", "loan", "bank"]
    tokenizer = DomainTokenizer(bert_backend({token: number for number, token in enumerate(tokens)}, {}))
    model = build_model(config, VocabularyFacts(len(tokens), tokenizer.pad_id), "sequence", 3).eval()
    save_model(tmp_path, model, config, tokenizer, "sequence", "", ("x", "y", "z"))
    encoded = transformers.AutoTokenizer.from_pretrained(tmp_path)("a loan", "a bank", return_tensors="pt")
    assert "token_type_ids" not in encoded
    ids = encoded["input_ids"]
    ours = model(Packed(ids, torch.arange(ids.shape[1])[None], torch.ones_like(ids)), torch.tensor([0]))
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    torch.testing.assert_close(ours, theirs(**encoded).logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("given", "rate"), [(None, 0.3), (0.5, 0.5)])
def test_heads_have_the_dropout_of_classifiers(given, rate):
    config = dataclasses.replace(CONFIG, hidden_dropout_prob=0.3, classifier_dropout=given)
    for kind, count in (("tokens", 1), ("sequence", 2)):
        head = build_model(config, VocabularyFacts(40, 1), kind, 3).head
        assert [part.rate for part in head.modules() if isinstance(part, Dropout)] == [rate] * count
    assert config.with_dropout(0.1).head_dropout == 0.1


def test_the_masked_lm_head_has_gelu_whatever_the_layers_have():
    model = build_model(dataclasses.replace(CONFIG, hidden_act="relu"), VocabularyFacts(40, 1), "masked_lm")
    assert isinstance(model.head, MaskedLMHead) and model.head.activation is torch.nn.functional.gelu


def test_special_ids_are_the_tokenizer_s(tmp_path):
    tokenizer = tokenizer_of(0)
    model = build_model(CONFIG, VocabularyFacts(40, tokenizer.pad_id), "masked_lm")
    save_model(tmp_path, model, CONFIG, tokenizer, "masked_lm", "card")
    fields = json.loads((tmp_path / "config.json").read_text())
    assert [fields[f"{name}_token_id"] for name in ("pad", "bos", "eos")] == [0, tokenizer.cls_id, tokenizer.sep_id]
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    tokens = tokens_of(18)
    with torch.inference_mode():
        found = load_model(tmp_path, "masked_lm")[0].eval()(tokens, torch.arange(18))
        torch.testing.assert_close(found, theirs(tokens.input_ids).logits[0], atol=1e-5, rtol=0)


def test_another_vocabulary_moves_the_positions_with_its_padding(tmp_path):
    """Positions keep their embeddings, so the encoder's output stays."""
    old, new = tokenizer_of(1), tokenizer_of(0)
    model = build_model(CONFIG, VocabularyFacts(40, 1), "masked_lm").eval()
    save_model(tmp_path / "old", model, CONFIG, old, "masked_lm", "card")
    folder = open_model(tmp_path / "old")
    save_with_vocabulary(tmp_path / "new", folder, load_tensors(folder.path, folder.config), new, "card")
    moved, opened, _ = load_model(tmp_path / "new", "masked_lm")
    assert opened.config.max_length == 19 and opened.tokenizer().pad_id == 0
    tokens = tokens_of(18)
    assert torch.equal(moved.eval()(tokens, torch.arange(18)), model(tokens, torch.arange(18)))
    table = moved.encoder.embeddings.position.weight
    assert torch.equal(table[-1], table[-2]), "one more position, a copy of the last"
    with refused(problem="the new tokenizer's padding has id 4", expected="an id of at most 1..."):
        save_with_vocabulary(tmp_path / "no", folder, load_tensors(folder.path, folder.config), tokenizer_of(4), "")


def test_a_tokenizer_with_another_padding_is_refused(tmp_path):
    model = build_model(CONFIG, VocabularyFacts(40, 1), "masked_lm")
    save_model(tmp_path, model, CONFIG, tokenizer_of(1), "masked_lm", "card")
    tokenizer_of(0).save(tmp_path, 18)
    with refused(problem="...padding has id 0, but pad_token_id in config.json is 1", expected="the tok... same id"):
        open_model(tmp_path).tokenizer()


@pytest.mark.parametrize(
    ("make", "where", "problem", "expected"),
    [
        (lambda: RobertaConfig.from_json({"pad_token_id": None}), "pad_token_id", "found None", "an integer below..."),
        (lambda: RobertaConfig.from_json({"pad_token_id": 511}), "pad_token_id", "found 511", "an integer below..."),
        (lambda: RobertaConfig(max_position_embeddings=4), "max_position_embeddings", "found 4", "5 or more..."),
        (
            lambda: family(CONFIG).encoder(CONFIG, VocabularyFacts(40, 3)),
            "...",
            "the tokenizer's padding has id 3",
            "an id of at most 1: a roberta encoder...",
        ),
    ],
)
def test_what_leaves_no_room_for_positions(make, where, problem, expected):
    with refused(where=where, problem=problem, expected=expected):
        make()
