"""Files from strangers: no name in a YAML or a model folder is imported, no pickle runs, and an error is raised."""

from __future__ import annotations

import base64
import json
import os
import pickle
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from domainbert.base.choices import is_choice
from domainbert.base.errors import DomainbertError
from domainbert.cli import main
from domainbert.runner.stage_table import STAGES, load_stage
from tests.refusals import command_refused, refused

CANARY = (
    "from pathlib import Path\nPath({marker!r}).touch()\nclass X: pass\ndef run(*_, **__): Path({marker!r}).touch()\n"
)


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that appears when the package `canary` is imported; it can be imported from here."""
    marker = tmp_path / "the canary is dead"
    (tmp_path / "canary").mkdir()
    for name in ("__init__", "sub", "config", "model"):
        (tmp_path / "canary" / f"{name}.py").write_text(CANARY.format(marker=str(marker)))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("some text\n")
    yield marker
    assert not marker.exists(), "the canary was imported"
    assert [name for name in sys.modules if name.partition(".")[0] == "canary"] == []


def said_by(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the command line says; it has to end with exit code 2 and in words."""
    assert main(words) == 2
    message = capsys.readouterr().err
    assert message.rpartition("domainbert: ")[1] and "Traceback" not in message
    return message


def abstract_keys() -> list[tuple[str, str, bool]]:
    """Every key of every stage that takes a `class_path`, as (stage, key, whether it takes a list of them)."""
    return [
        (stage, key, get_origin(hint) is list)
        for stage in STAGES
        for key, hint in get_type_hints(load_stage(stage).settings).items()
        if any(map(is_choice, [hint, *get_args(hint)]))
    ]


NAMES = (
    "canary",
    "canary.X",
    "os.system",
    "builtins.eval",
    "domainbert.models.loading.load_model",
    "BertConfig.X",
)


def test_every_key_that_takes_a_class_is_found() -> None:
    assert {
        ("pretrain", "encoder", False),
        ("finetune", "task", False),
        ("evaluate", "task", False),
        ("distill", "losses", True),
    } <= set(abstract_keys())


@pytest.mark.parametrize(
    ("stage", "key", "several", "name"),
    [*((*key, "canary.sub.X") for key in abstract_keys()), *(("pretrain", "encoder", False, name) for name in NAMES)],
)
def test_no_class_path_is_imported(
    canary: Path, capsys: pytest.CaptureFixture[str], stage: str, key: str, several: bool, name: str
) -> None:
    for text in (
        f"{{class_path: {name}}}",
        f"{{class_path: {name}, init_args: {{a: 1}}, dict_kwargs: {{b: 1}}}}",
        name,
    ):
        value, place = (f"[{text}]", f"{key}[0]") if several else (text, key)
        Path("a.yaml").write_text(f"{key}: {value}\n")
        message = said_by([stage, "-c", "a.yaml", "--out", "out"], capsys)
        assert f"{place}.class_path: '{name}' is not allowed" in message
        assert "is not allowed" in said_by([stage, f"--{key}", value, "--out", "out"], capsys)
    assert "no choice" in said_by([stage, f"--{key}.help", name], capsys)


PRETRAIN = {
    "!!python/object/apply:canary.run [1]": "not valid YAML here: the tag",
    "!!python/object/new:canary.X {}": "not valid YAML here: the tag",
    "!!python/name:canary.X ''": "not valid YAML here: the tag",
    "!!python/module:canary ''": "not valid YAML here: the tag",
    "!!python/object:canary.X {}": "not valid YAML here: the tag",
    "{? !!python/name:canary.X '' : 1}": "found a key that is not text",
    "{class_path: BertConfig, init_args: {class_path: canary.X, init_args: {}}}": "encoder.init_args: unknown key",
    "{class_path: BertConfig, init_args: {hidden_size: {class_path: canary.X}}}": "expected an integer from 1 to",
    "{class_path: BertConfig, dict_kwargs: {a: {class_path: canary.X}}}": "encoder.dict_kwargs: unknown key",
    "{class_path: BertConfig, __class__: canary.X}": "encoder.__class__: unknown key",
    "package:canary/encoder.yaml": "does not exist",
    "canary/__init__.py": "is not allowed",
}
KEYS = {
    "callbacks: [{class_path: canary.X}]": "callbacks: unknown key",
    "import: canary": "import: unknown key",
    "allow_import: canary": "allow_import: unknown key",
    "allow-import: canary": "allow-import: unknown key",
    "class_path: canary.X": "class_path: unknown key",
    "loggers: [canary.X]": "expected one of 'jsonl'",
    "loggers: [{class_path: canary.X}]": "expected one of 'jsonl'",
    "optim: {class_path: canary.X}": "optim.class_path: unknown key",
    "optim: {name: canary.X}": "optim.name: found 'canary.X'; expected one of",
    "precision: canary.X": "precision: found 'canary.X'; expected",
    "prepared: ['package:canary/x']": "does not exist",
    "prepared: ['package:canary.sub/x']": "no installed Python package",
    "trainer: {plugins: canary.X}": "trainer.plugins: domainbert sets it",
    "trainer: {callbacks: [canary.X]}": "trainer.callbacks: domainbert sets it",
    "trainer: {logger: {class_path: canary.X}}": "trainer.logger: domainbert sets it",
    "trainer: {model_registry: canary}": "trainer.model_registry: domainbert sets it",
    "trainer: {strategy: {class_path: canary.X}}": "trainer.strategy: found a mapping; expected one of",
    "trainer: {strategy: canary.X}": "trainer.strategy: found 'canary.X'; expected one of",
    "trainer: {accelerator: canary.X}": "trainer.accelerator: found 'canary.X'; expected one of",
    "trainer: {profiler: canary.X}": "trainer.profiler: found 'canary.X'; expected one of",
    "trainer: {profiler: [{class_path: canary.X}]}": "trainer.profiler: found a list; expected one of",
    "trainer: {max_time: {class_path: canary.X}}": "trainer.max_time: ends a training before",
    "trainer: {devices: [{class_path: canary.X}]}": "trainer.devices: found a list; expected a number of devices, -1",
    "trainer: {benchmark: {class_path: canary.X}}": "trainer.benchmark: found a mapping; expected true or false",
    "trainer: {canary.X: 1}": "trainer.canary.X: lightning.Trainer has no such argument",
}


@pytest.mark.parametrize("text", [*(f"encoder: {text}" for text in PRETRAIN), *KEYS])
def test_nothing_in_a_yaml_is_imported(canary: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    expected = KEYS[text] if text in KEYS else PRETRAIN[text.removeprefix("encoder: ")]
    Path("a.yaml").write_text(f"{text}\n")
    message = said_by(["pretrain", "-c", "a.yaml", "--out", "out"], capsys)
    assert expected in message and "a.yaml:1: " in message
    Path("recipe.yaml").write_text(f"out: run\nstages:\n  pretrain:\n    {text}\n")
    message = said_by(["run", "recipe.yaml"], capsys)
    assert expected in message and "recipe.yaml:4: " in message
    assert not Path("out").exists() and not Path("run").exists()


@pytest.mark.parametrize(
    ("text", "where", "problem"),
    [
        ("stages: {canary.X: {}}", "stages", "found name 'canary.X'"),
        ("stages: {x: {stage: canary.X}}", "stages.x.stage", "found 'canary.X'"),
        ("stages: {x: {stage: 'canary:run'}}", "stages.x.stage", "found 'canary:run'"),
        ("stages: {x: {stage: {class_path: canary.X}}}", "stages.x.stage", "found a mapping"),
        ("stages: {x: {stage: [vocab]}}", "stages.x.stage", "found a list"),
        ("allow_import: canary\nstages: {vocab: {}}", "allow_import", "unknown key"),
        ("vars: {a: {class_path: canary.X}}\nstages: {vocab: {}}", "vars.a", "found a mapping"),
    ],
)
def test_nothing_in_a_recipe_is_imported(canary: Path, text: str, where: str, problem: str) -> None:
    Path("recipe.yaml").write_text(f"out: run\n{text}\n")
    command_refused("run", "recipe.yaml", where=where, problem=problem)


def test_the_environment_allows_nothing(
    canary: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DOMAINBERT_ALLOW_IMPORT", "DOMAINBERT_IMPORT", "JSONARGPARSE_DEFAULT_ENV", "ALLOW_IMPORT"):
        monkeypatch.setenv(name, "canary")
    assert "is not allowed" in said_by(["pretrain", "--encoder", "canary.X", "--out", "out"], capsys)


@pytest.mark.parametrize("path", ["hub:canary", "hub:./canary", "hub:canary/canary", "hub:canary/sub.py"])
def test_a_dataset_runs_no_script(canary: Path, capsys: pytest.CaptureFixture[str], path: str) -> None:
    Path("canary/canary.py").write_text(CANARY.format(marker=str(canary)))
    message = said_by(["vocab", "--corpus.sources", f"[{{path: '{path}'}}]", "--out", "out"], capsys)
    said = "not a valid name on the Hugging Face hub" if "./" in path else "the dataset cannot be read"
    assert f"{path}: {said}" in message


class Payload:
    """Touches a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Path]]:
        return Path.touch, (self.marker,)


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    """A small model folder with a token head."""
    from domainbert.encoders.bert.config import BertConfig
    from domainbert.encoders.config import VocabularyFacts
    from domainbert.encoders.families import build_model
    from domainbert.models.saving import save_model
    from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
    from domainbert.tokenization.load import DomainTokenizer

    config = BertConfig(8, 1, 2, 16, max_position_embeddings=16)
    vocab = {token: number for number, token in enumerate([*SPECIAL_TOKENS.values(), "a", "b", "c"])}
    tokenizer = DomainTokenizer(bert_backend(vocab, {}))
    model = build_model(config, VocabularyFacts(8, tokenizer.pad_id), "tokens", 2)
    save_model(tmp_path / "model", model, config, tokenizer, "tokens", "# A card\n", ("O", "B-a"))
    return tmp_path / "model"


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_names_of_code_in_a_model_folder_mean_nothing(canary: Path, model_folder: Path) -> None:
    from domainbert.models.folder import open_model
    from domainbert.models.loading import load_model

    for name in ("modeling_canary", "configuration_canary", "canary"):
        (model_folder / f"{name}.py").write_text(CANARY.format(marker=str(canary)))
    (model_folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(canary)))
    auto = {
        "AutoConfig": "configuration_canary.X",
        "AutoModel": "modeling_canary.X",
        "AutoTokenizer": ["canary.X", None],
    }
    edit(
        model_folder / "config.json",
        auto_map=auto,
        tokenizer_class="canary.X",
        class_path="canary.X",
        _target_="canary.X",
    )
    edit(model_folder / "tokenizer_config.json", auto_map=auto, tokenizer_class="canary.X")
    _, folder, made = load_model(model_folder, "tokens")
    assert made == [] and folder.labels == ("O", "B-a") and folder.tokenizer().vocab_size == 8
    edit(model_folder / "config.json", architectures=["canary.Model"])
    assert open_model(model_folder).head is None


@pytest.mark.parametrize(
    ("changes", "file", "where", "problem", "expected"),
    [
        ({"model_type": "canary"}, "...", "model_type", "found 'canary'", "one of albert, bert..."),
        ({"model_type": "canary.sub"}, "...", "model_type", "found 'canary.sub'", "..."),
        ({"model_type": "../../canary"}, "...", "model_type", "found '../../canary'", "..."),
        ({"model_type": ["bert"]}, "...", "...", "not the config.json of a model...", "..."),
        ({"vocab_size": float("inf")}, "...", "vocab_size", "found inf", "an integer from 1 to..."),
        ({"vocab_size": "x"}, "...", "vocab_size", "found 'x'", "an integer from 1 to..."),
        ({"vocab_size": 10**11}, "...", "vocab_size", "found 100000000000", "an integer from 1..."),
        ({"vocab_size": 999_999_999}, "...", "...", "...has shape (8, 8)", "(999999999, 8) as..."),
        ({"intermediate_size": 1_000_000}, "...", "...", "...has shape (16, 8)", "(1000000, 8)..."),
        ({"domainbert_teachers": 5}, "config.json", "domainbert_teachers", "found 5", "a list, each item text"),
        ({"domainbert_teachers": None}, "config.json", "domainbert_teachers", "found None", "a list..."),
        ({"domainbert_teachers": [{}]}, "config.json", "domainbert_teachers[0]", "found {}", "text"),
        (
            {"id2label": {"0": {"class_path": "canary.X"}}},
            "config.json",
            "id2label",
            "found a label that is not text",
            "...",
        ),
        ({"id2label": ["a"]}, "...", "...", "not the config.json of a model...", "..."),
        ({"architectures": {"canary": 1}}, "...", "...", "not the config.json of a model...", "..."),
        ({"hidden_size": "8"}, "...", "hidden_size", "found '8'", "an integer from 1 to 1,000,000"),
        ({"num_hidden_layers": 1.5}, "...", "num_hidden_layers", "found 1.5", "an integer from..."),
        ({"num_hidden_layers": True}, "...", "num_hidden_layers", "found True", "..."),
        ({"layer_norm_eps": {"class_path": "canary.X"}}, "...", "layer_norm_eps", "...", "..."),
        ({"hidden_act": "canary.X"}, "...", "hidden_act", "found 'canary.X'", "one of 'gelu'..."),
    ],
)
def test_a_config_that_is_refused(
    canary: Path, model_folder: Path, changes: dict[str, Any], file: str, where: str, problem: str, expected: str
) -> None:
    from domainbert.models.loading import load_model

    edit(model_folder / "config.json", **changes)
    with refused(file=file, where=where, problem=problem, expected=expected):
        load_model(model_folder, "tokens")


@pytest.mark.parametrize("head", [None, "crf"])
def test_more_labels_than_weights_need_no_memory(model_folder: Path, head: str | None) -> None:
    from domainbert.serving.predictor import load_predictor

    labels = {str(number): f"B-{number}" for number in range(30_000)}
    edit(model_folder / "config.json", id2label=labels, domainbert_head=head)
    with refused(found="30,000 labels", expected="at most 4,000 for a CRF"):
        load_predictor(model_folder)
    edit(model_folder / "config.json", architectures=["BertForSequenceClassification"], domainbert_head=None)
    with refused(problem="...has shape (2, 8)", expected="(30000, 8) as config.json says..."):
        load_predictor(model_folder)


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", DEEP, "not the config.json of a model"),
        ("config.json", '{"a":' * 100_000, "not the config.json of a model"),
        ("tokenizer_config.json", DEEP, "not valid JSON"),
        ("special_tokens_map.json", DEEP, "not valid JSON"),
        ("tokenizer.json", DEEP, "the package `tokenizers` cannot read it"),
        ("tokenizer.json", "{}", "the package `tokenizers` cannot read it"),
        (
            "special_tokens_map.json",
            '{"pad_token": {"class_path": "canary.X"}}',
            "pad_token .*: found .*; expected a string",
        ),
        ("special_tokens_map.json", '{"pad_token": ["[PAD]"]}', "pad_token .*: found .*; expected a string"),
        (
            "tokenizer_config.json",
            '{"model_max_length": "512"}',
            "tokenizer_config.json: model_max_length: found '512'",
        ),
        ("tokenizer_config.json", '{"do_lower_case": "no"}', "tokenizer_config.json: do_lower_case: found 'no'"),
        ("tokenizer_config.json", '{"strip_accents": 5}', "tokenizer_config.json: strip_accents: found 5; expected"),
        ("tokenizer_config.json", '{"tokenize_chinese_chars": []}', "tokenize_chinese_chars: found .*; expected true"),
        ("tokenizer_config.json", '{"add_prefix_space": "no"}', "tokenizer_config.json: add_prefix_space: found 'no'"),
        ("tokenizer_config.json", '{"model_max_length": -1}', "tokenizer_config.json: model_max_length: found -1"),
        ("tokenizer_config.json", '{"model_max_length": NaN}', "tokenizer_config.json: model_max_length: found nan"),
    ],
)
def test_json_that_is_refused(model_folder: Path, name: str, content: str, message: str) -> None:
    from domainbert.models.folder import open_model

    if name == "special_tokens_map.json":
        (model_folder / "tokenizer_config.json").unlink()
    (model_folder / name).write_text(content)
    with pytest.raises(DomainbertError, match=f"{model_folder}.*{message}"):
        open_model(model_folder).tokenizer()


def test_null_is_the_default_of_a_flag(model_folder: Path) -> None:
    from domainbert.tokenization.load import load_tokenizer

    expected = load_tokenizer(model_folder).fingerprint
    edit(model_folder / "tokenizer_config.json", do_lower_case=None, tokenize_chinese_chars=None)
    assert load_tokenizer(model_folder).fingerprint == expected


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "README.md", "seeds.json"])
def test_a_pipe_in_a_model_folder_is_refused(model_folder: Path, name: str) -> None:
    """Nothing writes into the pipe, so a read would never end."""
    from domainbert.models.folder import open_model
    from domainbert.tokenization.load import load_tokenizer

    (model_folder / name).unlink(missing_ok=True)
    os.mkfifo(model_folder / name)
    for opens in (open_model, load_tokenizer):
        with refused(file=name, problem="is a pipe", expected="a regular file"):
            opens(model_folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"type": "canary.X"}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},  # Rust panics
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "((("}, "behavior": "Removed", "invert": False}},
        {"pre_tokenizer": {"type": "Custom", "class": "canary.X"}},
        {"decoder": {"type": "canary.X"}},
    ],
)
def test_a_tokenizer_that_is_refused(canary: Path, model_folder: Path, changes: dict[str, Any]) -> None:
    from domainbert.tokenization.load import load_tokenizer

    edit(model_folder / "tokenizer.json", **changes)
    with refused(file="tokenizer.json", problem="the package `tokenizers` cannot read it..."):
        load_tokenizer(model_folder)


def _replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def _charsmap(replacement: bytes) -> str:
    """A trie that has one unit and finds nothing, and its replacements."""
    return base64.b64encode(struct.pack("<II", 4, 0) + replacement + b"\0").decode()


_TENFOLD = _replace({"String": "b"}, "b" * 10)


@pytest.mark.parametrize(
    ("changes", "found", "expected"),
    [
        ({"vocab": {"a": 10**9}}, "the id 1,000,000,000", "ids up to about 8, the entries"),
        ({"normalizer": _replace({"String": "a"}, "b" * 1_001)}, "...may write 1,001 characters for one", "..."),
        ({"normalizer": _replace({"Regex": "x*"}, "b" * 1_000)}, "...may write 1,001 characters...", "..."),
        (
            {"normalizer": {"type": "Sequence", "normalizers": 9 * [_TENFOLD]}},
            "...may write 1,000,000,000 characters...",
            "...",
        ),
        (
            {"normalizer": {"type": "Precompiled", "precompiled_charsmap": _charsmap(b"b" * 2_000)}},
            "...may write 2,000...",
            "...",
        ),
    ],
)
def test_a_tokenizer_beyond_its_size_is_refused(
    model_folder: Path, changes: dict[str, Any], found: str, expected: str
) -> None:
    from domainbert.tokenization.load import load_tokenizer

    path = model_folder / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"] |= changes.pop("vocab", {})
    path.write_text(json.dumps(content | changes))
    with refused(found=found, expected=expected):
        load_tokenizer(model_folder)


@pytest.mark.parametrize("pattern", [{"String": "ab"}, {"Regex": "a+"}])
def test_a_tokenizer_may_replace_text_and_leave_ids_out(model_folder: Path, pattern: dict[str, str]) -> None:
    from domainbert.tokenization.load import load_tokenizer

    path = model_folder / "tokenizer.json"
    content = json.loads(path.read_text()) | {"normalizer": _replace(pattern, "b" * 999)}
    content["model"]["vocab"] |= {"a": 1_000}
    path.write_text(json.dumps(content))
    assert load_tokenizer(model_folder).vocab_size == 1_001


def safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(content) if length is None else length) + content + data


def tensor(start: int, end: int, dtype: str = "F32", shape: tuple[int, ...] = (2,)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}


WEIGHTS = {
    "empty": b"",
    "a pickle": None,
    "a header of 8 EiB": safetensors({}, length=2**63),
    "a header of 1 GB": safetensors({}, length=10**9),
    "overlapping tensors": safetensors({"a": tensor(0, 8), "b": tensor(4, 12)}, bytes(12)),
    "tensors beyond the end": safetensors({"a": tensor(0, 8)}, bytes(4)),
    "a shape that overflows": safetensors({"a": tensor(0, 8, shape=(2**40, 2**40))}, bytes(8)),
    "an object type": safetensors({"a": tensor(0, 8, dtype="OBJ")}, bytes(8)),
    "a deep header": safetensors(b'{"a":' * 100_000),
    "a header that is no object": safetensors(b"[" * 1000),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_that_are_refused(canary: Path, model_folder: Path, name: str) -> None:
    from domainbert.models.loading import load_model

    content = WEIGHTS[name]
    (model_folder / "model.safetensors").write_bytes(pickle.dumps(Payload(canary)) if content is None else content)
    with refused(file="model.safetensors", problem="not a readable safetensors file..."):
        load_model(model_folder, "tokens")


def test_a_pickle_instead_of_weights_is_not_read(canary: Path, model_folder: Path) -> None:
    from domainbert.models.loading import load_model

    (model_folder / "model.safetensors").unlink()
    for name in ("pytorch_model.bin", "model.pt", "training_args.bin", "optimizer.pt"):
        (model_folder / name).write_bytes(pickle.dumps(Payload(canary)))
    with refused(file="pytorch_model.bin", problem="holds more than tensors, or is damaged"):
        load_model(model_folder, "tokens")


def test_weights_of_another_kind_are_refused(model_folder: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    from domainbert.models.loading import load_model

    tensors = load_file(model_folder / "model.safetensors")
    name = "bert.embeddings.word_embeddings.weight"
    save_file(tensors | {name: tensors[name].to(torch.int8)}, model_folder / "model.safetensors")
    with refused(problem="...word_embeddings... holds torch.int8", expected="floating-point weights"):
        load_model(model_folder, "tokens")


@pytest.mark.parametrize("best", ["..", "../x", "/", "", ".", "absent", None, 5, {"a": 1}])
def test_the_best_seed_is_a_folder_beside(tmp_path: Path, best: Any) -> None:
    from domainbert.models.folder import best_seed_folder

    (tmp_path / "runs" / "seed-1").mkdir(parents=True)
    (tmp_path / "x").mkdir()
    (tmp_path / "runs" / "seeds.json").write_text(json.dumps({"best": best}))
    with refused(where="...seeds.json", problem="best is...", expected="the name of a folder next to this file"):
        best_seed_folder(tmp_path / "runs")
    for content in ("", "[]", "{}", DEEP):
        (tmp_path / "runs" / "seeds.json").write_text(content)
        with refused(expected="the ..."):
            best_seed_folder(tmp_path / "runs")


@pytest.mark.parametrize("content", [DEEP, '{"a":' * 100_000])
def test_lines_of_json_may_not_be_deep(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"text": "fine"}}\n{content}\n')
    words = ["vocab", "--corpus.sources", f"[{{path: '{tmp_path}/a.jsonl'}}]", "--out", str(tmp_path / "out")]
    assert "a.jsonl:2: " in said_by(words, capsys)


def test_names_that_no_file_can_have(canary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 5_000
    for words in (["-c", long], ["--prepared", long], ["--encoder", f"{long}.yaml"], ["--init_from", long]):
        assert "too long" in said_by(["pretrain", *words, "--out", "out"], capsys).lower()
