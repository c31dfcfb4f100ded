"""Features that only ModernBERT has; the other modules here test what all families share."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch
import transformers
import yaml

from domainbert.base.choices import named_files
from domainbert.distillation.student_config import StudentConfig
from domainbert.distillation.students import build_student, student_config
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import EncoderConfig, VocabularyFacts
from domainbert.encoders.families import build_model, family, name_map
from domainbert.encoders.heads import EncoderWithHead, pool_texts
from domainbert.encoders.modernbert.config import GLOBAL, LOCAL, ModernBertConfig
from domainbert.encoders.names import from_hugging_face, to_hugging_face
from domainbert.encoders.packed import Packed
from domainbert.encoders.recording import record
from domainbert.models.folder import open_model
from domainbert.models.loading import load_model, load_tensors
from domainbert.models.saving import save_model, save_with_vocabulary
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer
from domainbert.training.throughput import flops_per_token
from tests.refusals import refused

VOCABULARY = VocabularyFacts(40, 0)
IDS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
CONFIG = ModernBertConfig(24, 4, 3, 40, max_position_embeddings=320, local_attention=16, initializer_range=0.1)
BIASED = dataclasses.replace(CONFIG, norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True)
CLASSES = {
    "masked_lm": transformers.ModernBertForMaskedLM,
    "tokens": transformers.ModernBertForTokenClassification,
    "sequence": transformers.ModernBertForSequenceClassification,
}


def both(config: ModernBertConfig, kind: str) -> tuple[EncoderWithHead, transformers.PreTrainedModel]:
    """Our model and theirs, with the same weights; no weight is 0 or 1."""
    torch.manual_seed(0)
    fields = config.to_json() | IDS | {"vocab_size": 40, "num_labels": 5}
    theirs = CLASSES[kind](transformers.ModernBertConfig(**fields)).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    model = build_model(config, VOCABULARY, kind, 5).eval()
    state, missing = from_hugging_face(theirs.state_dict(), name_map(config, kind))
    assert not missing
    model.load_state_dict(state)
    return model, theirs


def rows(sizes: list[list[int]], length: int) -> Packed:
    """Random ids in rows of texts of these lengths."""
    segments, places = torch.zeros(2, len(sizes), length, dtype=torch.int64)
    for row, texts in enumerate(sizes):
        numbers, counts = torch.arange(1, len(texts) + 1), torch.tensor(texts)
        segments[row, : sum(texts)] = torch.repeat_interleave(numbers, counts)
        places[row, : sum(texts)] = torch.cat([torch.arange(size) for size in texts])
    ids = torch.randint(5, 40, segments.shape, generator=torch.Generator().manual_seed(1))
    return Packed(ids * (segments > 0), places, segments)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("kind", list(CLASSES))
@pytest.mark.parametrize("window", [16, 128])
def test_long_texts(kind, window, pooling):
    """Beyond the windows, in blocks (16) and with masks (128): all hidden states, logits, and gradients by name."""
    if kind != "sequence" and pooling == "mean":
        return
    config = dataclasses.replace(BIASED, local_attention=window, classifier_pooling=pooling)
    model, theirs = both(config, kind)
    tokens = rows([[203], [131]], 203)
    assert (model.encoder.context(tokens).segments.window_mask.ndim == 3) == (window == 16)
    real = tokens.segment_ids > 0
    read = torch.tensor([0, 203]) if kind == "sequence" else real.flatten().nonzero().flatten()
    output = theirs(tokens.input_ids, attention_mask=tokens.segment_ids, output_hidden_states=True)
    for found, wanted in zip(model.encoder.hidden_states(tokens), output.hidden_states, strict=True):
        torch.testing.assert_close(found[real], wanted[real], atol=2e-5, rtol=0)
    wanted = output.logits if kind == "sequence" else output.logits.flatten(0, 1)[read]
    found = model(tokens, read)
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=0)
    direction = torch.randn(found.shape, generator=torch.Generator().manual_seed(2)) / len(found)
    (found * direction).sum().backward()
    (wanted * direction).sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    for name, gradient in to_hugging_face(gradients, name_map(config, kind)).items():
        torch.testing.assert_close(gradient, theirs.get_parameter(name).grad, atol=2e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize("kind", list(CLASSES))
def test_a_text_in_a_long_row_is_the_text_alone(kind):
    config = dataclasses.replace(BIASED, classifier_pooling="mean")
    model, theirs = both(config, kind)
    sizes = [[7, 100, 1, 60], [150, 2]]
    tokens = rows(sizes, 170)
    starts = [row * 170 + sum(sizes[row][:n]) for row in range(2) for n in range(len(sizes[row]))]
    for start, size in zip(starts, [*sizes[0], *sizes[1]], strict=True):
        read = torch.tensor([start]) if kind == "sequence" else torch.arange(start, start + size)
        with torch.inference_mode():
            wanted = theirs(tokens.input_ids.flatten()[None, start : start + size]).logits.flatten(0, -2)
            torch.testing.assert_close(model(tokens, read), wanted, atol=2e-5, rtol=0)


def test_means_are_over_the_tokens_of_a_text():
    tokens = rows([[3, 4], [5]], 8)
    hidden = torch.randn(2, 8, 6, generator=torch.Generator().manual_seed(0))
    found = pool_texts("mean", hidden, tokens.segment_ids, torch.tensor([8, 0, 5]))
    wanted = [hidden[1, :5].mean(0), hidden[0, :3].mean(0), hidden[0, 3:7].mean(0)]
    torch.testing.assert_close(found, torch.stack(wanted), atol=1e-6, rtol=0)


V5 = {
    "layer_types": [GLOBAL, LOCAL, GLOBAL, LOCAL],
    "rope_parameters": {
        GLOBAL: {"rope_type": "default", "rope_theta": 700.0},
        LOCAL: {"rope_type": "default", "rope_theta": 70.0},
    },
}
V4 = {"global_attn_every_n_layers": 2, "global_rope_theta": 700.0, "local_rope_theta": 70.0}


@pytest.mark.parametrize("keys", [V4, V5, {**V4, **V5}])
def test_keys_of_two_versions_of_transformers(keys):
    config = ModernBertConfig.from_json({"num_hidden_layers": 4, **keys})
    assert config == ModernBertConfig(num_hidden_layers=4, **V4)
    written = config.to_json()
    assert {name: written[name] for name in (*V4, *V5)} == {**V4, **V5}
    assert ModernBertConfig.from_json(written) == config
    theirs = transformers.ModernBertConfig(**written)
    assert theirs.layer_types == V5["layer_types"] and theirs.rope_parameters == V5["rope_parameters"]


def test_what_transformers_5_makes_of_older_keys_is_what_they_mean_here():
    for keys in ({}, {"global_rope_theta": 5.0}, {"local_attention": 20, "norm_eps": 1e-6}, {"num_hidden_layers": 1}):
        theirs = transformers.ModernBertConfig(**keys).to_dict()
        assert ModernBertConfig.from_json(theirs) == ModernBertConfig.from_json(keys), keys


def test_null_is_written_as_what_it_means():
    config = ModernBertConfig.from_json({"global_rope_theta": 9.0, "local_rope_theta": None})
    assert config.local_rope_theta == 9.0 == config.to_json()["rope_parameters"][LOCAL]["rope_theta"]
    assert ModernBertConfig.from_json({"initializer_cutoff_factor": None}).initializer_cutoff_factor == 3.0


@pytest.mark.parametrize(
    ("fields", "where", "found", "expected"),
    [
        ({"decoder_bias": False}, "decoder_bias", "False", "true, or no such key"),
        ({"rope_scaling": {"factor": 2.0}}, "rope_scaling", "{'factor': 2.0}", "null, or no such key"),
        (
            {"rope_parameters": {GLOBAL: {"rope_type": "yarn", "factor": 4.0}}},
            "rope_parameters",
            "...yarn...",
            "rope_type 'default' and a rope_theta under full_attention...",
        ),
        ({"rope_parameters": {"rope_theta": 3.0}}, "rope_parameters", "...", "rope_type 'default'..."),
        ({"rope_parameters": 3}, "rope_parameters", "3", "rope_type 'default'..."),
        (
            {"num_hidden_layers": 3, "layer_types": [LOCAL, GLOBAL, LOCAL]},
            "layer_types",
            "...",
            "a type for each of 3 layers: full_attention for the first of...",
        ),
        ({"layer_types": [GLOBAL]}, "layer_types", "...", "a type for each of 22 layers..."),
        ({"layer_types": "all"}, "layer_types", "'all'", "a type for each of 22 layers..."),
        ({"classifier_pooling": "max"}, "classifier_pooling", "'max'", "one of 'cls', 'mean'"),
        ({"classifier_activation": "tanh"}, "classifier_activation", "'tanh'", "one of 'gelu'..."),
        (
            {"hidden_size": 36, "num_attention_heads": 4},
            "num_attention_heads",
            "4, so that heads have width 9...",
            "...",
        ),
        ({"local_attention": 0}, "local_attention", "0", "an integer from 1..."),
    ],
)
def test_what_makes_another_network_is_refused(fields, where, found, expected):
    with refused(where=where, found=found, expected=expected):
        ModernBertConfig.from_json(fields)


@pytest.mark.parametrize(
    ("student", "types"),
    [
        (StudentConfig(every_nth_layer=2), [GLOBAL, LOCAL, LOCAL, GLOBAL]),
        (StudentConfig(every_nth_layer=3), [GLOBAL, GLOBAL, GLOBAL]),
        (StudentConfig(first_layers=5), [GLOBAL, LOCAL, LOCAL, GLOBAL, LOCAL]),
        (StudentConfig(layers=(0, 5, 6, 7)), [GLOBAL, LOCAL, GLOBAL, LOCAL]),
        (StudentConfig(), [GLOBAL, LOCAL, LOCAL] * 2 + [GLOBAL, LOCAL]),
    ],
)
def test_layers_of_a_student_stay_of_their_kind(student, types):
    """As read by transformers 5, and from the keys of transformers 4; the weights are the teacher's."""
    teacher_config = dataclasses.replace(CONFIG, num_hidden_layers=8)
    teacher = build_model(teacher_config, VOCABULARY, "masked_lm").eval()
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    config = student_config(student, teacher_config)
    written = config.to_json()
    assert written["layer_types"] == config.layer_types == types
    older = {name: value for name, value in written.items() if name not in V5}
    assert ModernBertConfig.from_json(older) == config
    model, taken = build_student(config, student, teacher, "masked_lm", 0, VOCABULARY)
    chosen = student.chosen_layers(8) or tuple(range(8))
    assert taken == ["embeddings", f"layers {', '.join(map(str, chosen))}", "head"]
    tokens = rows([[90]], 90)
    context, hidden = teacher.encoder.context(tokens), teacher.encoder.embed(tokens)
    for number in chosen:
        hidden = teacher.encoder.layers[number](hidden, context)
    torch.testing.assert_close(model.eval().encoder(tokens), teacher.encoder.finish(hidden, tokens), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("layers", "where", "found", "expected"),
    [
        ((3, 4), "student.layers", "3, 4", "layer 0 first, and only once..."),
        ((0, 1, 0), "layers", "[0, 1, 0]", "each layer once"),
        ((0, 1, 3, 6), "student", "layers 0, 1, 3, 6 of types...", "full_attention in every n-th layer..."),
    ],
)
def test_layers_that_make_no_encoder(layers, where, found, expected):
    config = dataclasses.replace(CONFIG, num_hidden_layers=8)
    with refused(where=where, found=found, expected=expected):
        student_config(StudentConfig(layers=layers), config)


@pytest.mark.parametrize("kind", ["masked_lm", "tokens"])
@pytest.mark.parametrize(("ours", "other"), [(CONFIG, BertConfig(24, 4, 3, 40)), (BertConfig(24, 4, 3, 40), CONFIG)])
def test_another_family_gives_its_words_alone(kind, ours, other):
    teacher = build_model(other, VOCABULARY, kind, 5)
    assert build_student(ours, StudentConfig(encoder=ours), teacher, kind, 5, VOCABULARY)[1] == ["embeddings"]


def test_a_new_head_starts_from_the_old_one_s_transform(tmp_path):
    """As in transformers, where all heads have it; the classifier is new."""
    tokenizer = DomainTokenizer(
        bert_backend({one: n for n, one in enumerate([*SPECIAL_TOKENS.values(), *map(chr, range(97, 132))])}, {})
    )
    model, _ = both(BIASED, "masked_lm")
    save_model(tmp_path / "a", model, BIASED, tokenizer, "masked_lm", "card")
    names = ["head.dense.bias", "head.dense.weight", "head.norm.bias", "head.norm.weight"]
    for kind in ("tokens", "sequence"):
        loaded, folder, made = load_model(tmp_path / "a", kind, "abc")
        assert sorted(made) == ["classifier.bias", "classifier.weight"]
        flat = to_hugging_face(loaded.state_dict(), name_map(folder.config, kind))
        source = to_hugging_face(model.state_dict(), name_map(BIASED, "masked_lm"))
        assert all(torch.equal(flat[name], source[name]) for name in names)
        theirs, info = CLASSES[kind].from_pretrained(tmp_path / "a", num_labels=3, output_loading_info=True)
        assert sorted(info["missing_keys"]) == sorted(made)
        assert torch.equal(theirs.head.dense.weight, flat["head.dense.weight"])
    fields = json.loads((tmp_path / "a" / "config.json").read_text())
    assert {name: fields[name] for name in IDS} == {
        "pad_token_id": tokenizer.pad_id,
        **dict.fromkeys(("bos_token_id", "cls_token_id"), tokenizer.cls_id),
        **dict.fromkeys(("eos_token_id", "sep_token_id"), tokenizer.sep_id),
    }


def test_another_vocabulary_has_its_embeddings_and_its_output_biases(tmp_path):
    tokens = [*SPECIAL_TOKENS.values(), *map(chr, range(97, 132))]
    old, new = (DomainTokenizer(bert_backend({one: n for n, one in enumerate(tokens[:end])}, {})) for end in (40, 30))
    model, _ = both(CONFIG, "masked_lm")
    save_model(tmp_path / "old", model, CONFIG, old, "masked_lm", "card")
    folder = open_model(tmp_path / "old")
    tensors = load_tensors(folder.path, folder.config)
    tensors |= {name: tensors[name][:30] for name in family(CONFIG).vocabulary_tensors(CONFIG)}
    save_with_vocabulary(tmp_path / "new", folder, tensors, new, "card")
    theirs, info = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "new", output_loading_info=True)
    assert not any(info.values()) and theirs.config.vocab_size == 30
    found, read = load_model(tmp_path / "new", "masked_lm")[0].eval(), torch.arange(20)
    text = Packed(read[None], read[None], torch.ones(1, 20, dtype=torch.int64))
    with torch.inference_mode():
        torch.testing.assert_close(found(text, read), model(text, read)[:, :30], atol=1e-6, rtol=0)
        torch.testing.assert_close(found(text, read), theirs.eval()(read[None]).logits[0], atol=2e-5, rtol=0)


@pytest.mark.parametrize("furthest", [1.0, 2.0, 3.0])
def test_weights_begin_truncated_and_smaller_where_they_write(furthest):
    torch.manual_seed(0)
    config = dataclasses.replace(
        CONFIG, hidden_size=96, intermediate_size=200, initializer_range=0.1, initializer_cutoff_factor=furthest
    )
    model = build_model(config, VocabularyFacts(500, 0), "tokens", 50)
    writing = 0.1 / math.sqrt(2 * 4)
    layer, head = model.encoder.layers[1], model.head
    expected = {
        model.encoder.word: 0.1,
        layer.attention.query_key_value: 0.1,
        layer.attention.output: writing,
        layer.feed_forward.expand: 0.1,
        layer.feed_forward.contract: writing,
        head.dense: writing,
        head.classifier: 96**-0.5,
    }
    for part, std in expected.items():
        assert 0.97 * furthest * std < part.weight.abs().max() <= furthest * std * (1 + 1e-6)


def test_arithmetic_of_windows():
    """A layer with windows of 16 tokens costs as if rows had 17."""
    model = build_model(CONFIG, VOCABULARY, "masked_lm")
    inputs, behind, head = 3 * 24 * 24, 24 * 24 + 3 * 24 * 40, 24 * 24 + 24 * 40
    for length, seen in ((128, 2 * 128 + 2 * 17), (10, 4 * 10)):
        linear = 4 * inputs + 3 * behind + 0.3 * (behind + head)
        assert flops_per_token(model, length, 0.3) == pytest.approx(6 * linear + 12 * 24 * seen)


def test_the_last_norm_is_as_high_as_the_last_layer():
    encoder = build_model(CONFIG, VOCABULARY, "masked_lm").encoder
    depths = {name: encoder.depth_of(name) for name, _ in encoder.named_parameters()}
    assert (depths["word.weight"], depths["word_norm.weight"], depths["last_norm.weight"]) == (0, 0, 4)
    assert [encoder.depth_of(f"layers.{n}.attention.output.weight") for n in range(4)] == [1, 2, 3, 4]


def test_projections_know_their_window():
    encoder = build_model(CONFIG, VOCABULARY, "masked_lm").encoder
    assert [record(encoder, rows([[9]], 9), {n}).projections[n].window for n in (1, 2, 3, 4)] == [None, 8, 8, None]


@pytest.mark.parametrize("name", ["tiny", "small", "base"])
def test_named_sizes(name):
    """As many weights in the layers as BERT's of the same name; the large one is the published one."""
    files = named_files(EncoderConfig)
    own = yaml.safe_load(files[f"modernbert-{name}"].read_text())
    config = ModernBertConfig(**own["init_args"])
    assert own["class_path"] == "ModernBertConfig" and config.classifier_pooling == "mean"
    if name == "base":
        assert config == dataclasses.replace(ModernBertConfig(), classifier_pooling="mean")
        return
    bert = BertConfig(**yaml.safe_load(files[name].read_text())["init_args"])
    assert config == config.with_dropout(bert.hidden_dropout_prob) != config.with_dropout(0.0)
    sizes, width = config.sizes, config.hidden_size
    layers = sizes.num_layers * (4 * width**2 + 3 * width * sizes.intermediate_size)
    assert layers == pytest.approx(bert.num_hidden_layers * 12 * bert.hidden_size**2, rel=0.1)
    assert (width, config.num_attention_heads) == (bert.hidden_size, bert.num_attention_heads)
