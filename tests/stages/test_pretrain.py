from __future__ import annotations

import json
import math
import unicodedata
from itertools import permutations
from pathlib import Path

import datasets
import pytest
import torch
import transformers
from safetensors.torch import load_file

from domainbert.corpus.config import CorpusConfig, Source
from domainbert.data.prepared import open_prepared
from domainbert.encoders.bert.config import BertConfig
from domainbert.models.static_embeddings import count_contexts, initialise_table, static_embeddings
from domainbert.stages.prepare import prepare
from domainbert.stages.pretrain import Pretrain, _compiles, pretrain
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer
from domainbert.training.config import Budget, OptimConfig
from domainbert.training.length_phases import LengthPhase
from tests.refusals import command_refused, refused

STANDSTILL = OptimConfig(lr=1e-12)


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def losses(result: dict) -> list[float]:
    return [row["loss"] for row in result["history"]]


def test_what_is_returned_and_saved(runs):
    result = json.loads(json.dumps(runs.results["pretrain"]))
    assert [row["step"] for row in result["history"]] == list(range(2, 21, 2))
    assert result["validation"] == result["history"][-1]
    assert set(result["validation"]) == {"step", "loss", "perplexity", "bits_per_character", "unigram_entropy"}
    assert losses(result)[-1] < losses(result)[0] - 0.3
    tokens = runs.results["prepare"]["splits"]["train"]["tokens"]
    rows = -(-tokens // 62)
    assert 20 * 16 * 60 < result["tokens_seen"] <= 20 * 16 * 62 and rows * 62 >= tokens
    assert 0.9 < result["row_fullness"] <= 1 and result["tokens_per_second"] > 0
    config = json.loads((runs / "pretrain/config.json").read_text())
    assert (config["architectures"], config["hidden_size"]) == (["BertForMaskedLM"], 64)
    assert f"{result['num_parameters']:,} parameters" in (runs / "pretrain/README.md").read_text()


def test_the_same_seed_gives_the_same_weights_and_another_one_others(runs):
    assert weights(runs.pretrain("again")) == weights(runs / "pretrain")
    assert weights(runs.pretrain("another-seed", max_steps=1, seed=1)) != weights(
        runs.pretrain("one-step", max_steps=1)
    )


def test_workers_and_validations_change_nothing(runs):
    assert weights(runs.pretrain("two-workers", num_workers=2, validate_every=7)) == weights(runs / "pretrain")


def test_called_again_it_resumes_and_refuses_the_checkpoints_of_other_settings(runs, tmp_path, capsys):
    settings = {"prepared": [runs / "prepare"], "encoder": runs.encoder, "max_length": 64, "batch_size": 16}
    settings |= {"budget": {"max_steps": 2}, "checkpoint_every": 1, **runs.training}
    pretrain(tmp_path, **settings)
    first = weights(tmp_path)
    pretrain(tmp_path, **settings | {"checkpoint_every": 2})
    assert weights(tmp_path) == first and "resuming from step 1 " in capsys.readouterr().out
    with refused(problem="...another training (seed was 0, is now 1)", expected="the same settings, or another `out`"):
        pretrain(tmp_path, **settings, seed=1)
    assert weights(tmp_path) == first


def test_micro_batches_give_the_same_loss_and_weights(runs):
    """Without dropout, which belongs to the micro-batch."""
    same = {"max_steps": 4, "dropout": 0.0, "optim": OptimConfig(lr=1e-3), "validate_every": 1}
    whole, parts = (
        losses(runs.results[runs.pretrain(f"micro-{size}", micro_batch_size=size, **same).name]) for size in (None, 4)
    )
    assert len(whole) == 4 and whole == pytest.approx(parts, abs=1e-5)
    assert whole[-1] < whole[0]
    one, other = (load_file(runs / f"micro-{size}/model.safetensors") for size in (None, 4))
    assert max(float((one[name] - other[name]).abs().max()) for name in one) < 1e-5
    # the override is of this training, not of the architecture
    assert json.loads((runs / "micro-4/config.json").read_text())["hidden_dropout_prob"] == 0.1


def test_layers_computed_again_and_a_micro_batch_that_was_looked_for_change_nothing(runs, capsys):
    """To the bit, with dropout."""
    changes = {"activation_checkpointing": True, "micro_batch_size": "auto"}
    assert weights(runs.pretrain("layers-again", **changes)) == weights(runs / "pretrain")
    assert "micro_batch_size: auto takes 16 of 16 rows at once" in capsys.readouterr().out
    assert runs.results["layers-again"]["micro_batch_size"] == 16


def test_going_on_from_a_model_begins_where_it_ended(runs):
    before = runs.results["pretrain"]["validation"]["loss"]
    going_on = {"encoder": None, "init_from": runs / "pretrain"}
    runs.pretrain("standstill", max_steps=1, optim=STANDSTILL, **going_on)
    assert runs.results["standstill"]["validation"]["loss"] == pytest.approx(before, abs=1e-5)
    runs.pretrain("going-on", seed=1, **going_on)
    assert runs.results["going-on"]["validation"]["loss"] < before - 0.02


def test_word_embeddings_start_from_the_contexts_of_the_corpus(runs, capsys):
    """And nothing else of the model, which masked LM learns better from."""
    still = {"max_steps": 1, "optim": STANDSTILL}
    random = load_file(runs.pretrain("random-embeddings", **still) / "model.safetensors")
    started = load_file(runs.pretrain("static-embeddings", **still, static_embeddings=True) / "model.safetensors")
    table = "bert.embeddings.word_embeddings.weight"
    corpus = open_prepared([runs / "prepare"])
    contexts = count_contexts(corpus.vocab_size, corpus.train.documents(10**9))
    vectors = static_embeddings(contexts, torch.Generator().manual_seed(0))
    known = vectors.any(dim=1)
    assert (
        f"{int(known.sum()):,} of {len(known):,} word embeddings start from their contexts" in capsys.readouterr().out
    )
    wanted = random[table].clone()
    initialise_table(wanted, vectors)
    assert 100 < int(known.sum()) < len(known) and (wanted != random[table]).any(dim=1).equal(known)
    torch.testing.assert_close(started[table], wanted, atol=1e-6, rtol=0)
    for name in random.keys() - {table}:
        torch.testing.assert_close(started[name], random[name], atol=1e-6, rtol=0)
    runs.pretrain("from-contexts", static_embeddings=True)
    assert losses(runs.results["from-contexts"])[-1] < losses(runs.results["pretrain"])[-1]


def test_going_on_from_a_model_without_the_head_makes_one(runs, capsys):
    runs.pretrain("from-tagger", max_steps=1, optim=STANDSTILL, encoder=None, init_from=runs / "ner-pretrained")
    assert "no weights for the head; initialised at random: cls.predictions" in capsys.readouterr().out
    best = json.loads((runs / "ner-pretrained/seeds.json").read_text())["best"]
    tagger = load_file(runs / "ner-pretrained" / best / "model.safetensors")
    after = load_file(runs / "from-tagger/model.safetensors")
    shared = tagger.keys() & after.keys()
    assert len(shared) > 30 and all(name.startswith("bert.") for name in shared)
    for name in shared:
        torch.testing.assert_close(after[name], tagger[name], atol=1e-6, rtol=0)
    assert any(name.startswith("cls.predictions") for name in after)


def test_muon_trains_and_logs_are_written(runs):
    often = {**runs.training["trainer"], "log_every_n_steps": 5}
    optim = OptimConfig("muon", lr=5e-3)
    folder = runs.pretrain("muon", optim=optim, loggers=("jsonl", "tensorboard"), trainer=often)
    assert weights(folder) != weights(runs / "pretrain")
    assert losses(runs.results["muon"])[-1] < losses(runs.results["muon"])[0] - 0.3
    lines = [json.loads(line) for line in (folder / "logs/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "train/loss" in line] == [5, 10, 15, 20]
    assert [line["step"] for line in lines if "validation/loss" in line] == list(range(2, 21, 2))
    assert list((folder / "logs/tensorboard").glob("events*"))


@pytest.mark.parametrize(
    ("changes", "where", "problem", "expected"),
    [
        ({"max_length": 97}, "max_length", "found 97", "at most 96, the number of positions of the..."),
        ({"encoder": None}, "encoder, init_from", "found neither", "exactly one of the two"),
        ({"init_from": Path(".")}, "encoder, init_from", "found both", "exactly one of the two"),
        (
            {"encoder": None, "init_from": Path("."), "static_embeddings": True},
            "static_embeddings",
            "found true next to init_from",
            "static_embeddings: false",
        ),
        ({"batch_size": 16, "micro_batch_size": 5}, "micro_batch_size", "found 5", "a divisor of..."),
        ({"encoder": None, "init_from": Path("nowhere")}, "init_from", "'nowhere' does not exist", "a file..."),
        ({"prepared": [Path("nowhere")]}, "prepared[0]", "'nowhere' does not exist", "a file or folder"),
    ],
)
def test_bad_input_is_named(runs, tmp_path, changes, where, problem, expected):
    with refused(where=where, problem=problem, expected=expected):
        runs.pretrain(str(tmp_path / "out"), **changes)


@pytest.fixture
def other_tokenizer(tmp_path: Path) -> DomainTokenizer:
    return DomainTokenizer(bert_backend({token: i for i, token in enumerate([*SPECIAL_TOKENS.values(), "a"])}, {}))


def test_a_model_with_another_tokenizer_than_the_corpus_is_named(runs, tmp_path, other_tokenizer):
    model = tmp_path / "model"
    model.mkdir()
    for file in (runs / "pretrain").iterdir():
        if file.is_file():
            (model / file.name).write_bytes(file.read_bytes())
    other_tokenizer.save(model)
    with refused(file="prepare", problem="prepared with another tokenizer", hint="run ... the model's..."):
        runs.pretrain(str(tmp_path / "out"), encoder=None, init_from=model)


def test_on_the_command_line_nothing_stays_behind(runs, tmp_path):
    words = ["--prepared", f'["{runs / "prepare"}"]', "--budget.max_steps", "1", "--out", str(tmp_path / "out")]
    words += ["--encoder", "BertConfig", "--encoder.max_position_embeddings", "32"]
    expected = "at most 32, the number of positions of the encoder"
    command_refused("pretrain", *words, where="max_length", found="128", expected=expected)
    assert not (tmp_path / "out").exists()


def test_a_budget_is_one_number(runs, tmp_path):
    with refused(found="2 of max_steps, max_tokens and max_epochs"):
        pretrain(tmp_path, prepared=[runs / "prepare"], budget=Budget(max_steps=1, max_epochs=1), encoder=BertConfig())


def test_a_model_that_goes_on_is_validated_before_its_first_step_and_on_the_text_it_may_forget(runs, capsys):
    changes = {"encoder": None, "init_from": runs / "pretrain", "seed": 1, "max_steps": 4, "validate_every": 2}
    runs.pretrain("goes-on", **changes, held_out={"general": runs / "prepare"})
    rows = runs.results["goes-on"]["history"]
    assert [row["step"] for row in rows] == [0, 2, 4]
    assert rows[0]["loss"] == pytest.approx(losses(runs.results["pretrain"])[-1], rel=1e-5), (
        "as it was when it was saved"
    )
    for row in rows:
        assert row["general_loss"] == row["loss"] and row["general_bits_per_character"] == row["bits_per_character"]
    assert f"general: loss {rows[2]['loss']:.4f}, from {rows[0]['loss']:.4f} at step 0" in capsys.readouterr().out


def test_all_phases_are_validated_on_rows_of_the_last_length(runs, capsys):
    """A model that does not move has the same loss throughout, as in a training on rows of that length alone."""
    phases = (LengthPhase(16, until=0.5), LengthPhase(64))
    start = {"encoder": None, "init_from": runs / "pretrain", "seed": 1, "optim": STANDSTILL, "validate_every": 1}
    runs.pretrain("phases", max_steps=4, **start, max_length=phases)
    result = runs.results["phases"]
    assert losses(result) == pytest.approx([losses(runs.results["pretrain"])[-1]] * 5, rel=1e-5)
    most = 2 * 64 * 14 + 2 * 16 * 62
    assert 0.9 * most < result["tokens_seen"] <= most
    text = capsys.readouterr().out
    assert "steps 1 to 2 of 64: " in text and "\nsteps 3 to 4 of 16: " in text and "4 steps in 2 phases" in text


def test_in_the_first_phase_only_embeddings_and_head_learn(runs):
    changes = {"encoder": None, "init_from": runs / "pretrain", "seed": 1}
    before = load_file(runs / "pretrain/model.safetensors")
    after = load_file(runs.pretrain("embeddings", **changes, max_steps=3, embedding_steps=3) / "model.safetensors")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert {"bert.embeddings.word_embeddings.weight", "cls.predictions.bias"} <= changed
    assert not any(name.startswith("bert.encoder.") for name in changed)
    later = load_file(runs.pretrain("both", **changes, max_steps=4, embedding_steps=3) / "model.safetensors")
    layers = [name for name in before if name.startswith("bert.encoder.")]
    assert layers and all(not torch.equal(before[name], later[name]) for name in layers)


def test_bits_per_character_are_those_of_a_hand_count(runs, tmp_path):
    """Of text beyond ASCII: characters, not bytes, counted after composition; each text by its own ratio."""
    kinds = {"mixed": "größe naïve €5 経済 cafe\u0301 😀 bank", "plain": "the bank raised its rate again"}
    theirs, ratios = transformers.AutoTokenizer.from_pretrained(runs / "vocab"), {}
    for name, words in kinds.items():
        file = tmp_path / f"{name}.txt"
        file.write_text("".join(f"{words} {number} {'x' * (number % 5)}end\n" for number in range(80)))
        corpus = CorpusConfig([Source(str(file), documents="line")], validation_fraction=0.3)
        folder = runs.run(f"prepare-{name}", prepare, corpus=corpus, tokenizer=runs / "vocab", num_workers=0)
        lines = file.read_text().splitlines()
        chosen = [lines[int(one.rpartition(":")[2]) - 1] for one in datasets.load_from_disk(folder)["validation"]["id"]]
        characters = sum(len(unicodedata.normalize("NFC", line)) for line in chosen)
        ratios[name] = sum(len(theirs.tokenize(line)) for line in chosen) / characters
        assert 10 < len(chosen) < 50 and sum(map(len, chosen)) - characters == len(chosen) * (name == "mixed")
    assert ratios["mixed"] > 1.2 * ratios["plain"]
    runs.pretrain("bits", 2, prepared=[runs / "prepare-mixed"], batch_size=2, held_out={"p": runs / "prepare-plain"})
    for row in runs.results["bits"]["history"]:
        assert row["bits_per_character"] == pytest.approx(row["loss"] / math.log(2) * ratios["mixed"], rel=1e-6)
        assert row["p_bits_per_character"] == pytest.approx(row["p_loss"] / math.log(2) * ratios["plain"], rel=1e-6)
        assert row["perplexity"] == pytest.approx(math.exp(row["loss"]), rel=1e-6)


def test_micro_batches_that_no_number_of_devices_makes_are_told_at_once(runs):
    settings = {"prepared": (runs / "prepare",), "encoder": BertConfig(), "budget": Budget(max_steps=1)}
    with refused(where="micro_batch_size", found="3", expected="a divisor of batch_size, 8"):
        Pretrain(**settings, batch_size=8, micro_batch_size=3)


def test_a_text_of_unknown_tokens_is_refused(runs, tmp_path):
    """Nothing of it can be hidden: as a corpus it would teach nothing, and as held-out text its loss is 0 / 0."""
    texts = ["".join(one) + "\n" for one in permutations("經濟政策銀", 5)]
    (tmp_path / "other.txt").write_text("".join(texts), encoding="utf-8")
    source = Source(str(tmp_path / "other.txt"), documents="line")
    corpus = CorpusConfig([source], validation_fraction=0.5, min_characters=1)
    prepare(out=tmp_path / "other", corpus=corpus, tokenizer=runs / "vocab")
    facts = {"problem": "all ... tokens of a split are unknown to the vocabulary or special"}
    facts |= {"expected": "some tokens that can be masked..."}
    with refused(where="prepared", **facts):
        runs.pretrain("unknown", prepared=[tmp_path / "other"], max_steps=1)
    with refused(where="held_out.other", **facts):
        runs.pretrain("unknown held out", held_out={"other": tmp_path / "other"}, max_steps=1)


@pytest.mark.parametrize(
    ("setting", "steps", "gpu", "accelerator", "wanted"),
    [
        ("auto", 500, True, None, True),
        ("auto", 499, True, None, False),
        ("auto", 500, False, None, False),
        ("auto", 500, True, "cpu", False),
        (True, 1, False, None, True),
        (False, 5000, True, None, False),
    ],
)
def test_compile_auto_is_for_long_trainings_on_a_gpu(monkeypatch, setting, steps, gpu, accelerator, wanted):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    trainer = {} if accelerator is None else {"accelerator": accelerator}
    settings = Pretrain(
        prepared=(Path("p"),), encoder=BertConfig(), budget=Budget(max_steps=steps), compile=setting, trainer=trainer
    )
    assert _compiles(settings, steps) == wanted
