"""Exported models of every family and head, against `transformers` on the same folders."""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from _pytest.mark import ParameterSet

from domainbert.base.errors import DomainbertError
from domainbert.data.packing import Example, Window
from domainbert.encoders.albert.config import AlbertConfig
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import EncoderConfig, VocabularyFacts
from domainbert.encoders.crf import Crf, crf_of
from domainbert.encoders.deberta_v2.config import DebertaV2Config
from domainbert.encoders.distilbert.config import DistilBertConfig
from domainbert.encoders.electra.config import ElectraConfig
from domainbert.encoders.families import build_model, family_names, head_kinds
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.modernbert.config import ModernBertConfig
from domainbert.encoders.mpnet.config import MPNetConfig
from domainbert.encoders.roberta.config import RobertaConfig
from domainbert.encoders.xlm_roberta.config import XLMRobertaConfig
from domainbert.models.folder import open_model
from domainbert.models.loading import load_model
from domainbert.models.saving import save_model
from domainbert.serving.loaders import load_tagger
from domainbert.serving.onnx.decoders import CrfDecoder
from domainbert.serving.onnx.graph import need_onnx, quantize_int8, write_onnx
from domainbert.serving.onnx.parity import (
    Difference,
    largest_difference,
    logits_by_item,
    random_texts,
    single_window_example,
)
from domainbert.serving.onnx.session import OnnxModel, batches_by_length, pad_rows
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer
from tests.refusals import refused

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

LABELS = ["O", "B-x", "I-x", "B-y", "I-y"]
POSITIONS = 40
CONFIGS: dict[str, EncoderConfig] = {
    "albert": AlbertConfig(48, 4, 3, 80, max_position_embeddings=POSITIONS, embedding_size=20, num_hidden_groups=2),
    "bert": BertConfig(48, 2, 3, 80, max_position_embeddings=POSITIONS, type_vocab_size=3),
    "deberta-v2": DebertaV2Config(
        *(48, 2, 3, 80),
        max_position_embeddings=POSITIONS,
        relative_attention=True,
        pos_att_type="c2p|p2c",
        position_buckets=8,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        position_biased_input=False,
        conv_kernel_size=3,
    ),
    "distilbert": DistilBertConfig(48, 2, 3, 80, max_position_embeddings=POSITIONS),
    "electra": ElectraConfig(48, 2, 3, 80, max_position_embeddings=POSITIONS, embedding_size=20),
    "mpnet": MPNetConfig(48, 2, 3, 80, max_position_embeddings=POSITIONS + 2),
    "modernbert": ModernBertConfig(
        48, 3, 3, 80, max_position_embeddings=POSITIONS, local_attention=8, classifier_pooling="mean"
    ),
    "roberta": RobertaConfig(48, 2, 3, 80, max_position_embeddings=POSITIONS + 2, type_vocab_size=1),
    "xlm-roberta": XLMRobertaConfig(48, 2, 3, 80, max_position_embeddings=POSITIONS + 2, type_vocab_size=1),
}
AUTO = {
    "masked_lm": "AutoModelForMaskedLM",
    "pretraining": "AutoModelForPreTraining",
    "tokens": "AutoModelForTokenClassification",
    "crf": "AutoModelForTokenClassification",
    "sequence": "AutoModelForSequenceClassification",
    "span": "AutoModelForQuestionAnswering",
    "replaced": "AutoModelForPreTraining",
}
OUTPUTS = {"masked_lm": 31, "pretraining": 31, "span": 2, "biaffine": 400, "replaced": 1}
"""Numbers of outputs that differ from the number of labels; a biaffine head returns projections, scored outside."""


def labels_of(head: str) -> list[str]:
    """The labels of a folder with such a head."""
    return {"tokens": LABELS, "crf": LABELS, "sequence": LABELS, "biaffine": LABELS, "span": LABELS[:2]}.get(head, [])


def pad_of(config: EncoderConfig) -> int:
    """The padding's id in the vocabulary here."""
    return min(config.pad_token_id, 1)


@pytest.fixture(autouse=True)
def on_one_thread(one_thread: None) -> None:
    """Every test here."""


def make_tokenizer(pad_id: int = 0) -> DomainTokenizer:
    tokens = [*SPECIAL_TOKENS.values(), *map(chr, range(97, 123))]
    tokens.remove("[PAD]")
    tokens.insert(pad_id, "[PAD]")
    vocab = {token: number for number, token in enumerate(tokens)}
    return DomainTokenizer(bert_backend(vocab, {}), model_max_length=POSITIONS)


def make_model(config: EncoderConfig, head: str, seed: int = 0) -> EncoderWithHead:
    """Random weights, in which no bias is 0, no norm 1, no transition 0 and attention is far from uniform."""
    torch.manual_seed(seed)
    model = build_model(config, VocabularyFacts(31, pad_of(config)), head, len(labels_of(head)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    return model.eval()


def rows(sizes: list[int], length: int, pad_id: int = 0) -> dict[str, torch.Tensor]:
    """Return random ids (B, S); `sizes` are the numbers of text tokens at the start of each row."""
    ids = torch.randint(2, 31, (len(sizes), length), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(length) < torch.tensor(sizes).unsqueeze(1)).long()
    return {"input_ids": ids.where(mask > 0, pad_id), "attention_mask": mask}


def run(path: Path, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    types = torch.zeros_like(inputs["input_ids"])
    (output,) = session.run(None, {name: inputs.get(name, types).numpy() for name in names})
    return torch.from_numpy(output)


def every_kind() -> Iterator[ParameterSet]:
    """Family and head; an export takes some seconds, so that the fast tests make one only."""
    for name, head in ((one, head) for one in family_names() for head in head_kinds(CONFIGS[one])):
        marks = () if (name, head) == ("distilbert", "sequence") else pytest.mark.slow
        yield pytest.param((name, head), marks=marks, id=f"{name}-{head}")


@pytest.fixture(scope="module", params=every_kind())
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, Path]:
    """Family, head, and a model folder with `model.onnx` beside the weights."""
    name, head = request.param
    folder = tmp_path_factory.mktemp(f"{name}-{head}")
    config, model = CONFIGS[name], make_model(CONFIGS[name], head)
    save_model(folder, model, config, make_tokenizer(pad_of(config)), head, "card", labels_of(head))
    write_onnx(folder / "model.onnx", model)
    return name, head, folder


@pytest.mark.parametrize("sizes", [[1], [40], [7, 40, 1], [12] * 5, [3, 2, 9, 9, 1, 5, 8]])
def test_logits_are_those_of_transformers_for_any_batch_and_length(exported, sizes):
    """Logits of each head that transformers has, compared on text, not on padding."""
    transformers = pytest.importorskip("transformers")
    name, head, folder = exported
    if head not in AUTO:
        pytest.skip("transformers has no such head")
    theirs = getattr(transformers, AUTO[head]).from_pretrained(folder).eval()
    inputs = rows(sizes, max(sizes), pad_of(CONFIGS[name]))
    with torch.inference_mode():
        output = theirs(**inputs)
    if head == "span":
        wanted = torch.stack([output.start_logits, output.end_logits], dim=-1)
    else:
        wanted = output.prediction_logits if head == "pretraining" else output.logits
    if head == "replaced":
        wanted = wanted.unsqueeze(-1)
    found = run(folder / "model.onnx", inputs)
    assert found.shape == wanted.shape and found.dtype == torch.float32
    real = inputs["attention_mask"].bool() if head != "sequence" else torch.ones(len(sizes), dtype=torch.bool)
    torch.testing.assert_close(found[real], wanted[real], atol=1e-5, rtol=0)


def test_logits_of_padded_rows_are_those_of_packed_ones(exported):
    """The way of `predict` in ONNX Runtime and in torch: other rows, the same numbers, whatever the batch."""
    from domainbert.tasks.packed_logits import packed_logits

    _, head, folder = exported
    model, opened, _ = load_model(folder, head)
    tokenizer = opened.tokenizer()
    texts = [single_window_example(ids, head == "sequence", POSITIONS, 2) for ids in random_texts(31, POSITIONS - 2)]
    wanted = dict(logits_by_item(packed_logits(model.eval(), tokenizer, texts, torch.device("cpu"))))
    runtime = OnnxModel(folder / "model.onnx", tokenizer)
    for budget in (1, 70, 10_000):
        found = dict(logits_by_item(runtime.logits(texts, budget)))
        assert found.keys() == wanted.keys() == set(range(len(texts)))
        for item, logits in wanted.items():
            assert logits.shape == (texts[item].num_outputs, OUTPUTS.get(head, len(LABELS)))
            torch.testing.assert_close(found[item], logits, atol=1e-5, rtol=0)


def test_the_file_says_how_it_is_called_and_nothing_of_where_it_was_made(exported):
    name, head, folder = exported
    proto = onnx.load(folder / "model.onnx")
    onnx.checker.check_model(proto, full_check=True)
    assert (proto.ir_version, [(one.domain, one.version) for one in proto.opset_import]) == (9, [("", 20)])

    def shown(values):
        return {
            one.name: (
                one.type.tensor_type.elem_type,
                [d.dim_param or d.dim_value for d in one.type.tensor_type.shape.dim],
            )
            for one in values
        }

    names = ["input_ids", "attention_mask", *(["token_type_ids"] if name in ("albert", "bert", "electra") else [])]
    assert shown(proto.graph.input) == {one: (onnx.TensorProto.INT64, ["batch", "sequence"]) for one in names}
    wanted = ["batch", 5] if head == "sequence" else ["batch", "sequence", OUTPUTS.get(head, 5)]
    assert shown(proto.graph.output) == {"logits": (onnx.TensorProto.FLOAT, wanted)}
    content = (folder / "model.onnx").read_bytes()
    assert b".py" not in content and b"stack_trace" not in content and b"/domainbert" not in content
    assert sorted(path.suffix for path in folder.glob("model*")) == [".onnx", ".safetensors"]


@pytest.mark.slow
def test_token_types_count_where_the_family_has_them(tmp_path):
    transformers = pytest.importorskip("transformers")
    model = make_model(CONFIGS["bert"], "sequence")
    save_model(tmp_path, model, CONFIGS["bert"], make_tokenizer(), "sequence", "card", LABELS)
    write_onnx(tmp_path / "model.onnx", model)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    inputs = rows([9, 14], 14)
    inputs["token_type_ids"] = torch.tensor([[0] * 4 + [1] * 10, [0] * 6 + [2] * 8])
    with torch.inference_mode():
        wanted = theirs(**inputs).logits
    torch.testing.assert_close(run(tmp_path / "model.onnx", inputs), wanted, atol=1e-5, rtol=0)
    plain = run(tmp_path / "model.onnx", inputs | {"token_type_ids": torch.zeros(2, 14, dtype=torch.int64)})
    assert (plain - wanted).abs().max() > 1e-2


@pytest.mark.slow
def test_the_same_model_gives_the_same_bytes_and_a_failure_leaves_no_file(tmp_path, monkeypatch):
    model = make_model(CONFIGS["bert"], "tokens")
    for name in ("a", "b"):
        write_onnx(tmp_path / f"{name}.onnx", model)
        quantize_int8(tmp_path / f"{name}.onnx", tmp_path / f"{name}.int8.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert (tmp_path / "a.int8.onnx").read_bytes() == (tmp_path / "b.int8.onnx").read_bytes()
    assert len(list(tmp_path.iterdir())) == 4
    monkeypatch.setattr("domainbert.serving.onnx.graph._MAX_BYTES", 1000)
    with pytest.raises(DomainbertError, match=r"c\.onnx: 0\.0 GiB of weights; expected less than 2 GiB, the limit"):
        write_onnx(tmp_path / "c.onnx", model)
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.slow
def test_int8_is_small_close_and_always_the_same(tmp_path):
    config = BertConfig(128, 2, 2, 512, max_position_embeddings=POSITIONS)
    model = make_model(config, "tokens")
    write_onnx(tmp_path / "model.onnx", model)
    quantize_int8(tmp_path / "model.onnx", tmp_path / "model.int8.onnx")
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes["model.onnx"] > 3 * sizes["model.int8.onnx"]
    inputs = rows([12, 30, 3], 30)
    exact, once, again = (run(tmp_path / name, inputs) for name in ("model.onnx", "model.int8.onnx", "model.int8.onnx"))
    assert torch.equal(once, again)
    real = inputs["attention_mask"].bool()
    error = (once - exact)[real].std() / exact[real].std()
    assert 1e-4 < error < 0.2
    kinds = {node.op_type for node in onnx.load(tmp_path / "model.int8.onnx").graph.node}
    assert {"DynamicQuantizeLinear", "MatMulInteger"} <= kinds


@pytest.mark.slow
def test_tied_weights_are_in_the_file_once(tmp_path):
    config = BertConfig(32, 1, 2, 64, max_position_embeddings=16)
    model = build_model(config, VocabularyFacts(5_000, 0), "masked_lm").eval()
    write_onnx(tmp_path / "model.onnx", model)
    weights = sum(parameter.numel() * 4 for parameter in model.parameters())
    assert weights > 640_000 and (tmp_path / "model.onnx").stat().st_size < 1.2 * weights


def example(*sizes: int) -> Example:
    """Return an example with windows of these numbers of pieces; only the first piece is read."""
    one = np.asarray([0])
    windows = [Window(np.full(size, 7), one, one * 0 + n, one, 2) for n, size in enumerate(sizes)]
    return Example(tuple(windows), len(sizes))


def test_batches_hold_texts_of_like_length_within_the_budget():
    examples = [example(3), example(10), example(1, 2), example(4), example(10, 6), example(60)]
    batches = batches_by_length(examples, 30)
    assert batches == [[5], [1], [4], [3, 0, 2]]
    for batch in batches:
        width = max(len(window.input_ids) + 2 for item in batch for window in examples[item].windows)
        assert len(batch) == 1 or width * sum(len(examples[item].windows) for item in batch) <= 30
    assert batches_by_length([], 30) == []


def test_rows_are_padded_behind_their_text():
    tokenizer = make_tokenizer()
    examples = [single_window_example([10, 11, 12], False, POSITIONS, 2), example(1, 2)]
    batch = pad_rows(examples, [8, 3], tokenizer)
    cls, sep, pad = tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id
    assert batch["input_ids"].tolist() == [[cls, 10, 11, 12, sep], [cls, 7, sep, pad, pad], [cls, 7, 7, sep, pad]]
    assert batch["attention_mask"].tolist() == [[1] * 5, [1, 1, 1, 0, 0], [1, 1, 1, 1, 0]]
    assert batch["items"].tolist() == [8, 3] and batch["example"].tolist() == [0, 0, 0, 1, 1]
    assert batch["positions"].tolist() == [1, 2, 3, 6, 11] and batch["outputs"].tolist() == [0, 1, 2, 0, 1]
    at_cls = pad_rows([single_window_example([9], True, POSITIONS, 2)] * 2, [0, 1], tokenizer)
    assert at_cls["positions"].tolist() == [0, 3]


def test_made_up_texts_have_all_lengths():
    texts = random_texts(31, POSITIONS - 2)
    lengths = [len(text) for text in texts]
    assert lengths == sorted(set(lengths)) and lengths[0] == 1 and lengths[-1] == POSITIONS - 2 and len(lengths) > 8
    assert {int(entry) for text in texts for entry in text} <= set(range(31)) and len(set(texts[-1].tolist())) > 10
    assert [text.tolist() for text in random_texts(31, POSITIONS - 2)] == [text.tolist() for text in texts]


def test_a_difference_that_is_not_a_number_is_not_tolerable():
    wanted = {0: torch.tensor([[1.0, -20.0]]), 1: torch.tensor([[0.5, 0.0]])}
    near = {0: wanted[0] + 1.5e-3, 1: wanted[1]}
    apart = largest_difference(wanted, [wanted.items(), near.items()])
    assert apart.largest == pytest.approx(1.5e-3, rel=1e-2) and apart.scale == 20 and apart.tolerable
    assert not Difference(1.5e-3, 2.0).tolerable and Difference(9e-5, 0.01).tolerable
    assert not largest_difference(
        wanted, [wanted.items(), {**wanted, 1: torch.tensor([[float("nan"), 0.0]])}.items()]
    ).tolerable


def with_crf(crf):
    head = torch.nn.Linear(2, 5)
    head.crf = crf
    return head


def test_a_random_field_is_written_to_the_bit(tmp_path):
    crf = Crf(5)
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    crf.constrain(LABELS)
    head = with_crf(crf)
    CrfDecoder(head, LABELS).write(tmp_path)
    CrfDecoder(head, LABELS).read(tmp_path)
    found = head.crf
    assert found is not crf
    assert torch.equal(found.end, crf.end)
    assert torch.equal(found.start, torch.where(crf.allowed_first, crf.start, -1e4))
    assert torch.equal(found.transitions, torch.where(crf.allowed, crf.transitions, -1e4))
    fields = json.loads((tmp_path / "crf.json").read_text())
    assert fields["labels"] == LABELS and fields["transitions"][0][2] == -10000 and "Viterbi" in fields["how"]
    assert "domainbert_min_score" in fields["how"]
    with refused(file="crf.json", problem="labels differ from config.json", expected="O, B-x"):
        CrfDecoder(head, ["O", "B-x"]).read(tmp_path)


@pytest.mark.parametrize("text", [None, "{", "[]", '{"labels": ["O"], "start": [0], "transitions": [0], "end": [0]}'])
def test_a_broken_random_field_is_named(tmp_path, text):
    if text is not None:
        (tmp_path / "crf.json").write_text(text)
    with refused(file="crf.json", problem="not the CRF of an exported tagger..."):
        CrfDecoder(with_crf(Crf(1)), ["O"]).read(tmp_path)


def test_broken_and_foreign_files_are_named(tmp_path):
    path = tmp_path / "model.onnx"
    with refused(file=str(path), problem="ONNX Runtime cannot open it (...ile..."):
        OnnxModel(path, make_tokenizer())
    path.write_bytes(b"no protobuf")
    with refused(file="model.onnx", problem="ONNX Runtime cannot open it..."):
        OnnxModel(path, make_tokenizer())
    one = onnx.helper.make_tensor_value_info("pixels", onnx.TensorProto.FLOAT, ["n"])
    same = onnx.helper.make_tensor_value_info("same", onnx.TensorProto.FLOAT, ["n"])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["pixels"], ["same"])], "g", [one], [same])
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9)
    path.write_bytes(proto.SerializeToString())
    with refused(problem="inputs are pixels", expected="input_ids..."):
        OnnxModel(path, make_tokenizer())


def test_a_missing_package_names_the_extra(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(*names):
        def imported(name, *arguments, **more):
            if name.partition(".")[0] in names:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return real(name, *arguments, **more)

        return imported

    need_onnx()
    monkeypatch.setattr(builtins, "__import__", without("onnxscript"))
    with refused(where="export", problem="needs onnxscript", hint="run pip install 'domainbert[onnx]'"):
        need_onnx()
    monkeypatch.setattr(builtins, "__import__", without("onnxruntime"))
    with refused(file="model.onnx", problem="needs onnxruntime", hint="run pip install 'domainbert[onnx]'"):
        OnnxModel(tmp_path / "model.onnx", make_tokenizer())


@pytest.mark.slow
def test_an_exported_model_with_a_broken_weight_is_named(tmp_path):
    """Instead of decoding logits that are no numbers into `O` for every word."""
    model = make_model(CONFIGS["bert"], "tokens")
    save_model(tmp_path, model, CONFIGS["bert"], make_tokenizer(), "tokens", "card", LABELS)
    with torch.no_grad():
        model.head.get_parameter("classifier.weight")[1, 3] = torch.nan
    (tmp_path / "model.safetensors").unlink()
    write_onnx(tmp_path / "model.onnx", model)
    with refused(file="model.onnx", problem="the logits of the model are NaN or infinite", hint="... again"):
        load_tagger(tmp_path, "32-true").predict_entities(["a b c"])


def test_a_folder_is_an_exported_one_only_without_weights(tmp_path):
    model = make_model(CONFIGS["bert"], "crf")
    save_model(tmp_path, model, CONFIGS["bert"], make_tokenizer(), "crf", "card", LABELS)
    (tmp_path / "model.onnx").touch()
    assert open_model(tmp_path).onnx is None and crf_of(load_model(tmp_path, "crf")[0].head) is not None
    named = open_model(tmp_path / "model.int8.onnx")
    assert named.onnx == tmp_path / "model.int8.onnx" and named.path == tmp_path and named.labels == tuple(LABELS)
    (tmp_path / "model.safetensors").unlink()
    assert open_model(tmp_path).onnx == tmp_path / "model.onnx"
    with refused(file="model.onnx", problem="exported for ONNX Runtime", expected="the model folder..."):
        load_model(tmp_path, "crf")
