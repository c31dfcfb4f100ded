"""Model folders of every family go to `transformers` and come from there."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from domainbert.base.errors import DomainbertError
from domainbert.encoders.families import family, name_map
from domainbert.encoders.layers import Attention, Dropout
from domainbert.encoders.names import to_hugging_face
from domainbert.encoders.packed import Packed
from domainbert.models.folder import open_model
from domainbert.models.loading import check_vocabulary, load_model, load_tensors, vocabulary_names
from domainbert.models.saving import save_model, save_with_vocabulary
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer
from tests.encoders.conftest import logits_of, parameters_of

AUTO = {
    "masked_lm": transformers.AutoModelForMaskedLM,
    "tokens": transformers.AutoModelForTokenClassification,
    "sequence": transformers.AutoModelForSequenceClassification,
    "span": transformers.AutoModelForQuestionAnswering,
}
LABELS = ["O", "B-x", "I-x", "B-y", "I-y"]
OUTPUTS = {"masked_lm": [], "tokens": LABELS, "sequence": LABELS, "span": ["start", "end"]}


def make_tokenizer(reference) -> DomainTokenizer:
    """With the padding where the reference has it."""
    tokens = [*SPECIAL_TOKENS.values(), *map(chr, range(97, 123))]
    tokens.remove("[PAD]")
    tokens.insert(reference.their_config.pad_token_id, "[PAD]")
    vocab = {token: number for number, token in enumerate(tokens)}
    return DomainTokenizer(bert_backend(vocab, {}))


def batch() -> Packed:
    """Three texts of 17 tokens."""
    ids = torch.randint(5, 101, (3, 17), generator=torch.Generator().manual_seed(0))
    return Packed(ids, torch.arange(17).expand(3, 17), torch.ones(3, 17, dtype=torch.int64))


def both_logits(model, theirs, head):
    tokens = batch()
    read = torch.arange(3) * 17 if head == "sequence" else torch.arange(3 * 17)
    with torch.inference_mode():
        wanted = logits_of(theirs.eval()(tokens.input_ids))
        return model.eval()(tokens, read), wanted if head == "sequence" else wanted.flatten(0, 1)


@pytest.mark.parametrize("head", list(AUTO))
def test_ours_loads_there(reference, head, tmp_path):
    model = reference.ours(head, reference.theirs(head))
    save_model(
        tmp_path,
        model,
        reference.config,
        make_tokenizer(reference),
        head,
        "card",
        OUTPUTS[head],
    )
    theirs, info = AUTO[head].from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    assert type(theirs) is reference.classes[head]
    found, wanted = both_logits(model, theirs, head)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
    if head != "masked_lm":
        assert theirs.config.id2label == dict(enumerate(OUTPUTS[head]))


@pytest.mark.parametrize("head", list(AUTO))
def test_theirs_loads_here(reference, head, tmp_path):
    theirs = reference.theirs(head)
    theirs.save_pretrained(tmp_path)
    model, folder, made = load_model(tmp_path, head)
    assert made == [] and folder.head == head and folder.config == reference.config and folder.vocab_size == 101
    assert load_model(tmp_path, head, folder.labels)[2] == [], "fine-tuning goes on from the head"
    assert folder.labels == (("start", "end") if head == "span" else tuple(f"LABEL_{number}" for number in range(5)))
    found, wanted = both_logits(model, theirs, head)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)


def test_an_encoder_without_a_head_and_without_a_prefix(reference, tmp_path):
    theirs = reference.theirs(None)
    theirs.save_pretrained(tmp_path)
    model, folder, made = load_model(tmp_path, "tokens", labels="abc", dropout=0.25)
    assert folder.head is None
    of_head = [theirs for ours, theirs in name_map(reference.config, "tokens").items() if ours.startswith("head.")]
    assert sorted(made) == sorted(name for names in of_head for name in names) >= ["classifier.bias"]
    assert model.head.classifier.out_features == 3
    assert {part.rate for part in model.modules() if isinstance(part, Dropout)} == {0.25}
    assert {part.dropout for part in model.modules() if isinstance(part, Attention)} == {0.25}
    assert folder.config == reference.config, "the folder keeps its own dropout"
    tokens = batch()
    with torch.inference_mode():
        wanted, found = theirs(tokens.input_ids).last_hidden_state, model.eval().encoder(tokens)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("head", list(AUTO))
def test_round_trip_is_exact(reference, head, tmp_path):
    model = reference.ours(head, reference.theirs(head))
    labels = OUTPUTS[head]
    save_model(tmp_path / "a", model, reference.config, make_tokenizer(reference), head, "card", labels)
    loaded, folder, made = load_model(tmp_path / "a", head)
    assert made == [] and folder.config == reference.config and folder.labels == tuple(labels)
    assert all(torch.equal(tensor, loaded.state_dict()[name]) for name, tensor in model.state_dict().items())
    save_model(tmp_path / "b", loaded, folder.config, make_tokenizer(reference), head, "card", labels)
    for name in ("model.safetensors", "config.json", "tokenizer.json", "vocab.txt"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_what_config_json_says_beside_stays(reference, tmp_path):
    """But for what belongs to the head that it was, the labels and the files."""
    reference.theirs("sequence").save_pretrained(tmp_path / "a")
    file = tmp_path / "a" / "config.json"
    more = {"new_in_2030": [1, {"a": None}], "use_cache": False, "problem_type": "regression", "auto_map": {"A": "b"}}
    more |= {"domainbert_task": "old", "torch_dtype": "float16", "tie_word_embeddings": False}
    file.write_text(json.dumps(json.loads(file.read_text()) | more))
    model, folder, _ = load_model(tmp_path / "a", "tokens", LABELS)
    save_model(tmp_path / "b", model, folder.config, make_tokenizer(reference), "tokens", "card", LABELS)
    written = json.loads((tmp_path / "b" / "config.json").read_text())
    assert written["new_in_2030"] == [1, {"a": None}] and written["use_cache"] is False
    assert not {"problem_type", "auto_map", "domainbert_task", "torch_dtype", "tie_word_embeddings"} & written.keys()
    assert written["id2label"] == {str(number): name for number, name in enumerate(LABELS)}
    smaller = folder.config.resized(dataclasses.replace(folder.config.sizes, num_layers=1)).with_dropout(0.0)
    assert smaller.to_json()["use_cache"] is False, "a student of the family, too"


@pytest.mark.parametrize("head", list(AUTO))
def test_tied_tensors_that_were_saved_twice(reference, head, tmp_path):
    """As older versions of transformers did; one that differs is refused where it would be used."""
    theirs = reference.theirs("masked_lm")
    theirs.save_pretrained(tmp_path)
    file, tied = tmp_path / "model.safetensors", family(reference.config).tied(reference.config)
    once = load_file(file)
    assert tied and not tied.keys() & once.keys()
    save_file({**once, **{copy: once[source].clone() for copy, source in tied.items()}}, file)
    model, _, made = load_model(tmp_path, head, OUTPUTS[head])
    assert all(not name.startswith(family(reference.config).prefix) or "pooler" in name for name in made)
    for copy, source in tied.items():
        save_file({**once, copy: once[source] + 1}, file)
        if head != "masked_lm":
            load_model(tmp_path, head, OUTPUTS[head])
            continue
        with pytest.raises(DomainbertError, match=re.escape(f"{copy} differs from {source}; expected equal tensors")):
            load_model(tmp_path, head)
    if head == "masked_lm":
        assert made == []
        torch.testing.assert_close(*both_logits(model, theirs, head), atol=1e-5, rtol=0)


@pytest.mark.parametrize("head", [None, *AUTO])
def test_the_name_map_covers_every_parameter(reference, head):
    names = name_map(reference.config, head)
    model = reference.ours(head or "masked_lm", reference.theirs(head or "masked_lm"))
    state = (model if head else torch.nn.ModuleDict({"encoder": model.encoder})).state_dict()
    assert set(names) == set(state)
    theirs = parameters_of(reference.theirs(head))
    if head is None:
        theirs = {f"{reference.classes[head].base_model_prefix}.{name}": tensor for name, tensor in theirs.items()}
    flat = {name: tensor.shape for name, tensor in to_hugging_face(state, names).items()}
    assert flat == {name: tensor.shape for name, tensor in theirs.items() if "pooler" not in name or head == "sequence"}


def test_another_vocabulary(reference, tmp_path):
    """Tensors with a row per vocabulary entry get the new length; the others stay."""
    theirs = reference.theirs("masked_lm")
    theirs.save_pretrained(tmp_path / "old")
    folder, tokenizer = open_model(tmp_path / "old"), make_tokenizer(reference)
    tensors = load_tensors(folder.path, folder.config)
    check_vocabulary(folder.path, tensors, folder.config, 101)
    shorter = {name: tensors[name][: tokenizer.vocab_size] for name in vocabulary_names(folder.config)}
    save_with_vocabulary(tmp_path / "new", folder, tensors | shorter, tokenizer, "card")
    smaller, info = AUTO["masked_lm"].from_pretrained(tmp_path / "new", output_loading_info=True)
    assert not any(info.values()) and smaller.config.vocab_size == tokenizer.vocab_size == 31
    ids = torch.arange(5, 31)[None]
    tokens = Packed(ids, torch.arange(26)[None], torch.ones_like(ids))
    with torch.inference_mode():
        wanted = theirs(ids).logits[0, :, :31]
        torch.testing.assert_close(smaller.eval()(ids).logits[0], wanted, atol=1e-5, rtol=0)
        found = load_model(tmp_path / "new", "masked_lm")[0].eval()(tokens, torch.arange(26))
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)


def test_half_precision_and_old_names_of_norms(reference, tmp_path):
    theirs = reference.theirs("masked_lm")
    theirs.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    old = {
        re.sub(r"([Nn]orm)\.weight$", r"\1.gamma", re.sub(r"([Nn]orm)\.bias$", r"\1.beta", name)): tensor.bfloat16()
        for name, tensor in load_file(file).items()
    }
    norms = [part for part in reference.ours("masked_lm", theirs).modules() if isinstance(part, torch.nn.LayerNorm)]
    assert sum("gamma" in name for name in old) == len(norms) >= 6
    save_file(old, file)
    model, _, made = load_model(tmp_path, "masked_lm")
    assert made == [] and {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(parameter.bfloat16())
    found, wanted = both_logits(model, theirs, "masked_lm")
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
