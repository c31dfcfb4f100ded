from __future__ import annotations

import dataclasses
import gc
import importlib
import pickle
import sys
from contextlib import nullcontext

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from domainbert.base.errors import DomainbertError
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.families import (
    architecture,
    build_model,
    config_class,
    family,
    family_names,
    head_kind_of,
    name_map,
)
from domainbert.encoders.names import to_hugging_face
from domainbert.encoders.packed import Packed
from domainbert.encoders.recording import record
from tests.refusals import refused


def test_every_family_has_what_the_protocol_asks_for():
    for name in family_names():
        config = config_class(name)()
        assert config.model_type == name and config.max_length > 0
        assert config_class(name).from_json(config.to_json() | {"id2label": {}, "new_in_2030": 1}) == config
        assert config.resized(config.sizes) == config
    with refused(where="model_type", found="'brt'"):
        config_class("brt")


def test_what_a_config_json_leaves_out_is_what_it_is_in_transformers(reference):
    """Every default of every family, and the ids of special tokens that it writes."""
    ours, theirs = type(reference.config).from_json({}), type(reference.their_config)()
    fields = [field.name for field in dataclasses.fields(ours)]
    wanted = {name: getattr(theirs, name) for name in fields if name not in reference.unlisted}
    assert {name: getattr(ours, name) for name in fields} == wanted | dict(reference.unlisted)
    assert len(fields) >= 9
    names = ("pad", "bos", "eos", "cls", "sep")
    ids = {f"{name}_token_id": getattr(theirs, f"{name}_token_id", None) for name in names}
    assert ours.special_ids == {name: number for name, number in ids.items() if number is not None}
    assert ours.pad_token_id == theirs.pad_token_id


def test_sizes_mean_the_same_in_every_family(reference):
    """`resized` undoes `sizes`, and another family takes them over."""
    for name in family_names():
        other = config_class(name)().resized(reference.config.sizes)
        fixed = {"layer_norm_eps": other.sizes.layer_norm_eps}
        assert other.model_type == name
        assert other.sizes == dataclasses.replace(reference.config.sizes, **fixed)


def test_classes_of_transformers_name_the_head(reference):
    for kind, written in reference.classes.items():
        assert architecture(reference.config, kind) == written.__name__
        assert head_kind_of(reference.config, written.__name__) == kind
    assert architecture(reference.config, "crf") == reference.classes["tokens"].__name__
    assert head_kind_of(reference.config, "SomeForMultipleChoice") is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classifier_dropout": None}, None),
        ({"hidden_dropout_prob": 0}, None),
        ({"classifier_dropout": "0.1"}, "classifier_dropout: found '0.1'; expected a number from 0 to below 1 or null"),
        ({"classifier_dropout": True}, "classifier_dropout: found True; expected a number from 0 to below 1 or null"),
        ({"hidden_size": None}, "hidden_size: found None; expected an integer"),
        ({"hidden_size": 48.0}, "hidden_size: found 48.0; expected an integer"),
        ({"hidden_act": ["gelu"]}, "hidden_act: found .*; expected one of"),
    ],
)
def test_values_of_a_config_json_have_the_types_of_the_fields(changes, message):
    with nullcontext() if message is None else pytest.raises(DomainbertError, match=message):
        found = config_class("roberta").from_json(changes).to_json()
        assert found == found | changes


def test_a_config_goes_to_another_process_with_all_it_was_read_from():
    config = config_class("bert").from_json({"new_in_2030": [1]}).replaced(hidden_size=24)
    again = pickle.loads(pickle.dumps(config))
    assert again.to_json() == config.to_json() and again.extra_fields == {"new_in_2030": [1]}


def test_a_head_that_a_family_does_not_have(reference):
    own = {"electra": "replaced, ", "bert": "pretraining, ", "albert": "pretraining, "}
    more = own.get(reference.config.model_type, "")
    wanted = f"no head of kind 'poem'; expected one of masked_lm, tokens, sequence, span, {more}crf"
    with pytest.raises(DomainbertError, match=wanted):
        build_model(reference.config, reference.vocabulary, "poem")


@pytest.mark.parametrize("kind", ["masked_lm", "tokens", "sequence", "span"])
def test_fresh_weights(reference, kind):
    """Same standard deviations, biases and norms as in transformers."""
    torch.manual_seed(0)
    pad, outputs = reference.vocabulary.pad_id, 2 if kind == "span" else 50
    model = build_model(reference.config, VocabularyFacts(5_000, pad), kind, outputs)
    config = reference.config_with(vocab_size=5_000, num_labels=outputs)
    theirs = reference.classes[kind](config).state_dict()
    for name, tensor in to_hugging_face(model.state_dict(), name_map(reference.config, kind)).items():
        if tensor.ndim == 2:
            errors = 4 / tensor.numel() ** 0.5  # four standard errors of the ratio of two deviations
            near = pytest.approx(theirs[name].std().item(), rel=max(0.05, errors))
            assert tensor.std().item() == near and 0 < tensor.std() < 0.2, name
        else:
            assert torch.equal(tensor, theirs[name]) and torch.equal(tensor, tensor[:1].expand_as(tensor)), name
    rows = model.encoder.input_embeddings.weight.any(dim=1)
    assert rows.tolist() == [number != pad for number in range(5_000)], "only the row of the padding is 0"


def test_dropout_is_only_the_rate():
    sizes = {"num_hidden_layers": 4, "layer_norm_eps": 1e-5}
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"), 0.3)
    assert BertConfig(**sizes).with_dropout(0.3) == BertConfig(**sizes, **rates)


def test_dropout_is_on_in_training_only(reference):
    torch.manual_seed(0)
    config = reference.config.with_dropout(0.4)
    encoder = family(config).encoder(config, reference.vocabulary)
    inputs = Packed(torch.arange(5, 25)[None], torch.arange(20)[None], torch.ones(1, 20, dtype=torch.int64))
    with torch.inference_mode():
        assert not torch.equal(encoder(inputs), encoder(inputs))
        encoder.eval()
        assert torch.equal(encoder(inputs), encoder(inputs))


@pytest.mark.slow
@pytest.mark.parametrize("make_reference", family_names(), indirect=True)
def test_what_is_compiled_drops_the_same(reference):
    torch.manual_seed(0)
    config = reference.config.with_dropout(0.4)
    encoder = family(config).encoder(config, reference.vocabulary)
    inputs = Packed(torch.arange(5, 25)[None], torch.arange(20)[None], torch.ones(1, 20, dtype=torch.int64))

    def run():
        torch.manual_seed(1)
        last = encoder(inputs)
        return [last, *torch.autograd.grad(last.square().sum(), list(encoder.parameters()))]

    plain = run()
    encoder.compile(backend="aot_eager", dynamic=False)  # needs no C compiler
    for one, other in zip(plain, run(), strict=True):
        torch.testing.assert_close(other, one, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("again", [False, True], ids=["kept", "computed again"])
def test_the_last_layer_computes_what_is_read(reference, again):
    """Packed rows with padding, of which 7 of 72 tokens are read, one of them twice."""
    torch.manual_seed(0)
    config = reference.config.with_dropout(0.0)
    encoder = family(config).encoder(config, reference.vocabulary)
    encoder.activation_checkpointing = again
    segments = torch.tensor([[1] * 9 + [2] * 15, [1] * 24, [1] * 3 + [2] * 4 + [0] * 17])
    places = torch.cat([torch.arange(n) for n in (9, 15, 24, 3, 4, 17)]).view(3, 24)
    tokens = Packed(torch.randint(5, 100, (3, 24)), places, segments)
    read = torch.tensor([30, 0, 8, 9, 30, 47, 54])

    def run(states):
        torch.manual_seed(1)
        with FlopCounterMode(display=False) as counter:
            found = states()
        gradients = torch.autograd.grad(found.square().sum(), list(encoder.parameters()), allow_unused=True)
        return counter.get_total_flops(), [found, *gradients]

    flops, found = run(lambda: encoder(tokens, read))
    all_flops, wanted = run(lambda: encoder(tokens).flatten(0, 1)[read])
    assert flops < 0.9 * all_flops
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)


def test_layers_that_are_computed_again_give_the_same_bits(reference):
    """With dropout, whatever of the encoder is looked into; and nothing is called differently."""
    torch.manual_seed(0)
    config = reference.config.with_dropout(0.4)
    encoder = family(config).encoder(config, reference.vocabulary)
    inputs = Packed(torch.arange(5, 25)[None], torch.arange(20)[None], torch.ones(1, 20, dtype=torch.int64))
    names, kept = list(encoder.state_dict()), {}

    def run(again):
        encoder.activation_checkpointing = again
        torch.manual_seed(1)
        recording, count = record(encoder, inputs, {2}), []
        looked_into = recording.projections[2].keys.square().sum() + recording.hidden[2].sum()
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: count.append(tensor) or tensor, lambda t: t):
            last = encoder(inputs)
        kept[again] = sum(tensor.numel() for tensor in count)
        loss = last.square().sum() + looked_into
        return [last, *recording.hidden, *torch.autograd.grad(loss, list(encoder.parameters()))]

    found, wanted = run(True), run(False)
    assert all(map(torch.equal, found, wanted)) and len(found) == len(wanted)
    assert list(encoder.state_dict()) == names and kept[True] < kept[False] / 3


FAMILY = {
    "mypkg/__init__.py": "",
    "mypkg/tiny/__init__.py": "",
    "mypkg/tiny/config.py": """\
from dataclasses import dataclass
from domainbert.encoders.bert.config import BertConfig

@dataclass(frozen=True)
class TinyConfig(BertConfig):
    model_type = "tiny"
""",
    "mypkg/tiny/model.py": "from domainbert.encoders.bert.model import FAMILY\n",
    "mypkg/tiny_mixed_case/__init__.py": "",
    "mypkg/tiny_mixed_case/config.py": """\
from dataclasses import dataclass
from domainbert.encoders.bert.config import BertConfig

@dataclass(frozen=True)
class TinyMixedCaseConfig(BertConfig):
    model_type = "tiny-mixed-case"
""",
    "mypkg/tiny_mixed_case/model.py": "FAMILY = 3\n",
    "mypkg/wrong/__init__.py": "",
    "mypkg/wrong/config.py": """\
from dataclasses import dataclass
from domainbert.encoders.bert.config import BertConfig

@dataclass(frozen=True)
class WrongConfig(BertConfig):
    model_type = "right"

@dataclass(frozen=True)
class LoneConfig(BertConfig):
    model_type = "wrong"
""",
}


@pytest.fixture
def own_families(tmp_path, monkeypatch):
    """The package `mypkg` with the family `tiny`, on the path."""
    for name, text in FAMILY.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "mypkg"]:
        del sys.modules[name]
    gc.collect()  # classes that nothing holds are subclasses no more


def test_a_family_of_ones_own_is_known_once_it_is_imported(own_families):
    with refused(where="model_type", found="'tiny'"):
        config_class("tiny")
    kind = importlib.import_module("mypkg.tiny.config").TinyConfig
    assert config_class("tiny") is kind and config_class("bert") is BertConfig
    config = kind.from_json({"model_type": "tiny", "hidden_size": 24})
    assert config.to_json()["model_type"] == "tiny" and config.hidden_size == 24
    assert family(config) is sys.modules["mypkg.tiny.model"].FAMILY


def test_a_family_of_ones_own_has_to_be_laid_out_as_one(own_families):
    module = importlib.import_module("mypkg.wrong.config")
    with refused(where="mypkg.wrong.config: model_type", found="'right'"):
        family(module.WrongConfig())
    with refused(where="mypkg.wrong", problem="no model.py beside config.py"):
        family(module.LoneConfig())


def test_a_folder_has_underscores_for_hyphens(own_families):
    kind = importlib.import_module("mypkg.tiny_mixed_case.config").TinyMixedCaseConfig
    assert config_class("tiny-mixed-case") is kind and "tiny-mixed-case" in family_names()
    with refused(where="mypkg.tiny_mixed_case.model", problem="FAMILY is 3"):
        family(kind())
