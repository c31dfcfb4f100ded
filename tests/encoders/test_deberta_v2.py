"""What DeBERTa does otherwise than BERT."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
import transformers
import yaml
from safetensors.torch import load_file
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from domainbert.base.choices import named_files
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import EncoderConfig, VocabularyFacts
from domainbert.encoders.deberta_v2 import layers
from domainbert.encoders.deberta_v2.config import DebertaV2Config
from domainbert.encoders.deberta_v2.layers import bucket, distance_scores, neighbours
from domainbert.encoders.families import build_model, family, name_map
from domainbert.encoders.layers import Dropout, Segments, attend, segment_mask
from domainbert.encoders.names import to_hugging_face
from domainbert.encoders.packed import Packed
from domainbert.models.loading import load_model
from domainbert.models.saving import save_model
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer
from domainbert.training.throughput import flops_per_token
from tests.encoders.conftest import NUM_LABELS, VOCAB_SIZE, Reference, deberta_v2
from tests.refusals import refused

CONFIG = DebertaV2Config(
    *(24, 2, 3, 40),
    max_position_embeddings=40,
    relative_attention=True,
    pos_att_type="c2p|p2c",
    position_buckets=8,
    norm_rel_ebd="layer_norm",
    share_att_key=True,
    position_biased_input=False,
    initializer_range=0.3,
)
FACTS = VocabularyFacts(VOCAB_SIZE, 0)


def reference_of(config: DebertaV2Config) -> Reference:
    """Theirs is made of what a folder of ours says."""
    fields = config.to_json() | {"vocab_size": VOCAB_SIZE, "num_labels": NUM_LABELS}
    whole = deberta_v2("gelu")
    return dataclasses.replace(whole, config=config, their_config=transformers.DebertaV2Config.from_dict(fields))


def padded(*sizes: int) -> Packed:
    """Return one text per row; `sizes` are their numbers of tokens."""
    ids = torch.randint(5, VOCAB_SIZE, (len(sizes), max(sizes)), generator=torch.Generator().manual_seed(0))
    segments = (torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]).long()
    types = ids % 2
    return Packed(ids * segments, torch.arange(max(sizes)).expand_as(ids), segments, types)


@pytest.mark.parametrize(
    "changes",
    [
        {"max_position_embeddings": 512, "position_buckets": 256},
        {"share_att_key": False, "norm_rel_ebd": "none"},
        {"share_att_key": False, "pos_att_type": "p2c"},
        {"pos_att_type": "c2p"},
        {"position_buckets": -1, "max_relative_positions": 16},
        {"position_buckets": 78},
        {"conv_kernel_size": 3, "conv_act": "gelu"},
        {"conv_kernel_size": 5},
        {"embedding_size": 20, "type_vocab_size": 2},
        {"position_biased_input": True, "type_vocab_size": 2},
        {"legacy": False},
    ],
    ids=str,
)
def test_every_form_is_that_of_transformers(changes):
    """Hidden states of all layers, logits and gradients by name, in double precision, but for a root in theirs."""
    reference = reference_of(CONFIG.replaced(**changes))
    theirs = reference.theirs("masked_lm").double()
    model = build_model(reference.config, FACTS, "masked_lm").double().eval()
    names, state = name_map(reference.config, "masked_lm"), theirs.state_dict()
    model.load_state_dict({ours: torch.cat([state[name] for name in parts]) for ours, parts in names.items()})
    tokens = padded(200, 9, 131) if reference.config.max_length > 200 else padded(37, 9, 1, 20)
    real = tokens.segment_ids > 0
    wanted = theirs(
        tokens.input_ids,
        attention_mask=tokens.segment_ids,
        token_type_ids=tokens.token_type_ids,
        output_hidden_states=True,
    )
    found = model.encoder.hidden_states(tokens)
    for one, other in zip(wanted.hidden_states, found, strict=True):
        torch.testing.assert_close(other[real], one[real], atol=1e-6, rtol=0)
        assert other[real].std() > 0.5
    logits = model(tokens, real.flatten().nonzero().flatten())
    torch.testing.assert_close(logits, wanted.logits[real], atol=1e-5, rtol=1e-6)
    direction = torch.linspace(-1, 1, VOCAB_SIZE, dtype=torch.float64)
    (logits * direction).sum().backward()
    (wanted.logits[real] * direction).sum().backward()
    flat = to_hugging_face({name: one.grad for name, one in model.named_parameters()}, names)
    gradients = {name: one.grad for name, one in theirs.named_parameters() if one.grad is not None}
    assert flat.keys() == gradients.keys()
    for name, gradient in flat.items():
        limit = 1e-6 * max(1.0, float(gradients[name].abs().max()))
        torch.testing.assert_close(gradient, gradients[name], atol=limit, rtol=0, msg=name)


@pytest.mark.parametrize(("farthest", "buckets"), [(512, 256), (512, 128), (1024, 256), (128, 32), (40, 8)])
def test_buckets_are_those_of_transformers(farthest, buckets):
    """In double precision: theirs, in single, is the same for these numbers."""
    distances = torch.arange(-farthest - 200, farthest + 201)
    wanted = make_log_bucket_position(distances, buckets, farthest).long().tolist()
    assert [bucket(distance, buckets, farthest) for distance in distances.tolist()] == wanted
    assert wanted == [-number for number in reversed(wanted)]


def test_published_buckets():
    found = {distance: bucket(distance, 256, 512) for distance in (127, 128, 129, 131, 132, 200, 256, 400, 511)}
    assert found == {127: 127, 128: 128, 129: 129, 131: 131, 132: 131, 200: 169, 256: 192, 400: 233, 511: 255}


@pytest.mark.parametrize("length", [1, 2, 5, 64])
@pytest.mark.parametrize("block", [128, 5, 3])
def test_products_by_distance(length, block, monkeypatch):
    """Token by token, however many states are computed at once."""
    monkeypatch.setattr(layers, "_BLOCK", block)
    states, table = torch.randn(2, 3, length, 4).double(), torch.randn(3, 2 * length, 4).double()
    entry = length - 1 - torch.arange(length)[:, None] + torch.arange(length)
    wanted = (states @ table.transpose(-1, -2)).gather(-1, entry.expand(2, 3, length, length))
    torch.testing.assert_close(distance_scores(states, table), wanted)


def test_neighbours_are_of_the_same_text():
    states, texts = torch.arange(1.0, 7)[None, :, None], torch.tensor([[1, 1, 1, 2, 2, 0]])
    found = neighbours(states, texts, 3)[0, :, 0].tolist()
    assert found == [[0, 1, 2], [1, 2, 3], [2, 3, 0], [0, 4, 5], [4, 5, 0], [0, 6, 0]]


@pytest.mark.parametrize(
    "changes", [{"conv_kernel_size": 3}, {"position_buckets": 256, "max_position_embeddings": 512}]
)
def test_packed_texts_are_texts_alone(changes):
    config = CONFIG.replaced(**changes)
    torch.manual_seed(0)
    encoder = build_model(config, FACTS, "masked_lm").encoder.eval()
    sizes = [170, 3, 1, 140] if config.max_length > 300 else [12, 3, 1, 20]
    alone = [padded(size) for size in sizes]
    ids, places = (torch.cat([one[part] for one in alone], dim=1) for part in (0, 1))
    texts = torch.repeat_interleave(torch.arange(1, 5), torch.tensor(sizes))[None]
    with torch.inference_mode():
        together = encoder.hidden_states(Packed(ids, places, texts))
        for number, one in enumerate(alone, start=1):
            for layer, hidden in enumerate(encoder.hidden_states(one)):
                torch.testing.assert_close(together[layer][texts == number], hidden[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("changes", [{}, {"position_buckets": -1}, {"conv_kernel_size": 3}], ids=str)
def test_rows_may_be_longer_than_any_text(changes):
    """Fine-tuning packs texts into rows of 128 tokens, or of the next multiple of 8, however short the model's are."""
    torch.manual_seed(0)
    model = build_model(CONFIG.replaced(max_position_embeddings=20, **changes), FACTS, "tokens", 2).eval()
    alone, sizes = padded(20, 13, 17, 20), [20, 13, 17, 20]
    numbers = torch.arange(1, 5).repeat_interleave(torch.tensor(sizes))
    real = alone.segment_ids > 0
    row = Packed(*(part[real][None] for part in alone[:2]), numbers[None], alone.token_type_ids[real][None])
    torch.testing.assert_close(model.encoder(row)[0], model.encoder(alone)[real], atol=1e-5, rtol=0)


@pytest.mark.parametrize("training", [True, False])
def test_scores_and_softmax_are_in_single_precision_under_bf16(training):
    """Scores of some hundred that differ by tenths, which bf16 does not tell apart."""
    heads = torch.zeros(1, 1, 8, 8)
    bias = (256 + 0.2 * torch.arange(8.0)).expand(1, 1, 8, 8)
    segments = Segments(segment_mask(torch.ones(1, 8, dtype=torch.int64)))
    with torch.autocast("cpu", torch.bfloat16), torch.set_grad_enabled(training):
        found = attend(heads.bfloat16(), heads.bfloat16(), torch.eye(8).bfloat16()[None, None], segments, bias=bias)
    torch.testing.assert_close(found.float(), bias.softmax(-1), atol=2e-3, rtol=0)


def test_the_arithmetic_of_distances_is_counted():
    """A product of S x S for each term, beside the two that BERT has; and the convolution. What the rows of a batch
    share, distances with a projection of their own, is free."""

    def flops(config: DebertaV2Config) -> float:
        return flops_per_token(build_model(config, FACTS, "masked_lm"), 32, 0.15)

    plain = BertConfig(24, 2, 3, 40, max_position_embeddings=40)
    bert = flops_per_token(build_model(plain, FACTS, "masked_lm"), 32, 0.15)
    product = 3 * 2 * 24 * 32  # forward, and twice that backward
    assert flops(CONFIG) == pytest.approx(bert + 2 * 2 * product)
    assert flops(CONFIG.replaced(share_att_key=False)) == flops(CONFIG)
    assert flops(CONFIG.replaced(pos_att_type="c2p")) == pytest.approx(bert + 2 * product)
    convolution = 3 * 2 * 24 * 24 * 3
    assert flops(CONFIG.replaced(conv_kernel_size=3)) == pytest.approx(bert + 2 * 2 * product + convolution)


def test_depths_of_parameters():
    encoder = build_model(CONFIG.replaced(conv_kernel_size=3), FACTS, "masked_lm").encoder
    depths = {name: encoder.depth_of(name) for name, _ in encoder.named_parameters()}
    assert {depth for name, depth in depths.items() if name.startswith(("embeddings", "distances"))} == {0}
    assert depths["layers.0.conv.weight"] == 1 and depths["layers.1.attention.output.weight"] == 2


@pytest.mark.parametrize("name", ["tiny", "small", "base"])
def test_named_sizes_are_bert_s_with_what_version_3_was_published_with(name):
    files = named_files(EncoderConfig)
    bert, own = (yaml.safe_load(files[one].read_text()) for one in (name, f"deberta-v3-{name}"))
    config = DebertaV2Config(**own["init_args"])
    assert own["class_path"] == "DebertaV2Config"
    assert config.sizes == dataclasses.replace(BertConfig(**bert["init_args"]).sizes, layer_norm_eps=1e-7)
    assert (config.terms, config.num_distances, config.max_distance) == (("c2p", "p2c"), 256, 512)
    assert config.share_att_key and not config.position_biased_input and config.norm_rel_ebd == "layer_norm"


def test_heads_have_dropouts_and_an_activation_of_their_own():
    config = CONFIG.replaced(hidden_dropout_prob=0.3, pooler_dropout=0.2, cls_dropout=0.4, pooler_hidden_act="tanh")
    rates = {}
    for kind in ("tokens", "sequence"):
        head = build_model(config, FACTS, kind, 3).head
        rates[kind] = [part.rate for part in head.modules() if isinstance(part, Dropout)]
    assert rates == {"tokens": [0.3], "sequence": [0.2, 0.4]} and head.activation is torch.tanh
    assert config.replaced(cls_dropout=None).head_dropout == 0.3


@pytest.mark.parametrize(
    ("fields", "terms"),
    [("P2C|c2p", "p2c|c2p"), (["c2p", "p2c"], "c2p|p2c"), (["c2p"], "c2p"), ("", None), ([], None), (None, None)],
)
def test_terms_of_the_scores_are_text_or_a_list(fields, terms):
    relative = terms is not None
    config = DebertaV2Config.from_json({"pos_att_type": fields, "relative_attention": relative})
    assert config.pos_att_type == terms and config.to_json()["pos_att_type"] == terms


def test_widths_that_follow_from_others_are_read_and_not_kept():
    config = DebertaV2Config.from_json(
        {"hidden_size": 48, "num_attention_heads": 3, "pooler_hidden_size": 48}
        | {"attention_head_size": 16, "z_steps": 0}
    )
    written = config.to_json()
    assert written["z_steps"] == 0 and not {"pooler_hidden_size", "attention_head_size", "embedding_size"} & set(
        written
    )


RELATIVE = {"relative_attention": True, "pos_att_type": "c2p|p2c"}


@pytest.mark.parametrize(
    ("fields", "where", "found", "expected"),
    [
        ({"attention_head_size": 32}, "attention_head_size", "32", "only 64 is supported"),
        ({"pooler_hidden_size": 768}, "pooler_hidden_size", "768", "only 1536 is supported"),
        ({"conv_groups": 2}, "conv_groups", "2", "only 1 is supported"),
        ({**RELATIVE, "conv_kernel_size": 4}, "conv_kernel_size", "4", "an odd number, or 0 for none"),
        ({**RELATIVE, "pos_att_type": "p2p|c2p"}, "pos_att_type", "'p2p|c2p'", "c2p, p2c or c2p|p2c"),
        ({**RELATIVE, "pos_att_type": ["c2p", "c2p"]}, "pos_att_type", "'c2p|c2p'", "c2p, p2c or..."),
        ({"relative_attention": True}, "pos_att_type", "null next to relative_attention: true", "c2p, p2c or c2p|p2c"),
        (
            {"pos_att_type": "c2p"},
            "pos_att_type",
            "'c2p' without relative_attention",
            "relative_attention: true, or no...",
        ),
        ({"conv_kernel_size": 3}, "conv_kernel_size", "3 without relative_attention", "relative_attention: true..."),
        ({"position_biased_input": False}, "position_biased_input", "False without relative_attention", "..."),
        ({"norm_rel_ebd": "batch_norm"}, "norm_rel_ebd", "'batch_norm'", "one of 'none', 'layer_norm'"),
        ({"conv_act": "mish"}, "conv_act", "'mish'", "one of 'gelu', 'gelu_new', 'relu', 'silu', 'tanh'"),
        ({**RELATIVE, "position_buckets": 1}, "position_buckets", "1", "2 or more, or -1 for none"),
        (
            {**RELATIVE, "position_buckets": 256, "max_relative_positions": 64},
            "max_relative_positions",
            "64 with position_buckets=256",
            "130 or more (or set...",
        ),
        ({**RELATIVE, "embedding_size": 128}, "embedding_size", "128", "1536, as hidden_size"),
        ({"type_vocab_size": -1}, "type_vocab_size", "-1", "an integer from 0 to..."),
    ],
)
def test_keys_of_another_network_are_refused_by_name(fields, where, found, expected):
    with refused(where=where, found=found, expected=expected):
        DebertaV2Config.from_json(fields)


def test_a_folder_with_microsofts_names_of_the_head_keeps_them(tmp_path):
    reference = reference_of(CONFIG.replaced(legacy=False))
    theirs = reference.theirs("masked_lm")
    theirs.save_pretrained(tmp_path / "a")
    model, folder, made = load_model(tmp_path / "a", "masked_lm")
    assert made == [] and not folder.config.legacy
    assert family(folder.config).vocabulary_tensors(folder.config)[1] == "lm_predictions.lm_head.bias"
    vocab = {token: number for number, token in enumerate([*SPECIAL_TOKENS.values(), *map(chr, range(97, 123))])}
    save_model(tmp_path / "b", model, folder.config, DomainTokenizer(bert_backend(vocab, {})), "masked_lm", "card")
    assert load_file(tmp_path / "b/model.safetensors").keys() == load_file(tmp_path / "a/model.safetensors").keys()
    again, info = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "b", output_loading_info=True)
    assert not any(info.values())
    tokens = padded(17)
    with torch.inference_mode():
        wanted = theirs(tokens.input_ids).logits[0]
        torch.testing.assert_close(model.eval()(tokens, torch.arange(17)), wanted, atol=1e-5, rtol=0)
        torch.testing.assert_close(again(tokens.input_ids).logits[0], wanted, atol=1e-5, rtol=0)


def test_a_checkpoint_of_microsoft_is_read(tmp_path, capsys):
    """A pickle, whose `config.json` says nothing of the head, with a discriminator and absolute positions beside."""
    reference = reference_of(CONFIG)
    theirs = reference.theirs("masked_lm")
    theirs.config.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    fields = json.loads(file.read_text())
    for name in ("legacy", "architectures"):
        fields.pop(name, None)
    file.write_text(json.dumps(fields | {"pos_att_type": "p2c|c2p"}))
    tensors = {name: one for name, one in theirs.state_dict().items() if ".decoder." not in name}
    moved = {"cls.predictions.transform.": "lm_predictions.lm_head.", "cls.predictions.": "lm_predictions.lm_head."}
    for ours, microsofts in moved.items():
        tensors = {name.replace(ours, microsofts): one for name, one in tensors.items()}
    tensors |= {"mask_predictions.dense.weight": torch.zeros(3, 3), "deberta.embeddings.position_ids": torch.arange(4)}
    tensors["deberta.embeddings.position_embeddings.weight"] = torch.zeros(40, 24)
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    model, folder, made = load_model(tmp_path, "masked_lm")
    assert made == [] and folder.head is None
    printed = capsys.readouterr().out
    assert "unused weights: deberta.embeddings.position_embeddings.weight, mask_predictions.dense.weight" in printed
    tokens = padded(17)
    with torch.inference_mode():
        found = model.eval()(tokens, torch.arange(17))
        torch.testing.assert_close(found, theirs(tokens.input_ids).logits[0], atol=1e-5, rtol=0)
    assert sorted(load_model(tmp_path, "tokens", "abc")[2]) == ["classifier.bias", "classifier.weight"]
