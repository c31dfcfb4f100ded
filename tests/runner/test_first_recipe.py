"""`domainbert init`: the data it finds, the numbers it chooses, the recipe it writes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from domainbert.base.errors import DomainbertError
from domainbert.cli import main
from domainbert.corpus.config import CorpusConfig, Source
from domainbert.corpus.documents import read_documents
from domainbert.labelled.sets import LabelledFile
from domainbert.runner.first_recipe import sizes
from domainbert.runner.first_recipe.command import _text_lengths
from domainbert.runner.first_recipe.corpus import corpus_facts
from domainbert.runner.first_recipe.labelled import Splits, divide, find_splits
from domainbert.runner.first_recipe.sizes import Machine
from domainbert.runner.first_recipe.writing import in_yaml
from domainbert.settings.yaml_files import Loader
from domainbert.tasks.classification.config import Classification, ClassificationFormat
from domainbert.tasks.ner.files import read_ner
from tests.refusals import command_refused, refused
from tests.samples.task_data import write_task_data

ROOT = Path(__file__).parents[2]
LAPTOP = Machine(2, 24.0, None, bf16=True)
SERVER = Machine(16, 128.0, "NVIDIA H100", bf16=True)
KINDS = ("ner", "classification", "relations", "pairs", "questions", "token_labels", "trees")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("domainbert.runner.first_recipe.command.this_machine", lambda: LAPTOP)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from domainbert.stages.sample import sample

    out = tmp_path_factory.mktemp("data") / "sample"
    names = [f"{split}_{items}" for split in ("train", "validation", "test") for items in ("sentences", "texts")]
    sample(out=out, corpus_documents=60, **dict.fromkeys(names, 60) | {"train_sentences": 150})
    texts = dict.fromkeys(("train", "validation", "test"), 60)
    write_task_data(out, 0, {**texts, "train": 150}, texts)
    return out


def init(*words: object) -> None:
    assert main(["init", *map(str, words)]) == 0


def stages(recipe: str = "recipe.yaml") -> dict[str, Any]:
    text = Path(recipe).read_text(encoding="utf-8")
    assert "docs/" not in text, "a user of the installed package does not have these files"
    return yaml.load(text, Loader)["stages"]


def labelled(path: Path, count: int) -> Path:
    rows = [{"text": f"In Zürich 🍰 {number} fell.", "label": "ab"[number % 2]} for number in range(count)]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", [*KINDS, "numbers", "labels"])
def test_what_is_written_of_each_task_can_be_run_as_it_is(sample, kind, capsys):
    """All early checks pass: files, labels, lengths. Texts of the held-out sets stay out of the corpus where its reader
    finds them: not the second ones of pairs, questions, or the words of trees."""
    folder = sample / kind if kind in KINDS else Path("mine")
    if kind not in KINDS:
        folder.mkdir()
        for split in ("train", "dev", "test"):
            values = [0.5, 2, 7.25] if kind == "numbers" else [["a"], ["a", "b"], []]
            rows = [{"text": f"Item {n} œ Zürich", "label": values[n % 3]} for n in range(30)]
            (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    init("--labelled", folder, "--corpus", sample / "corpus.jsonl")
    capsys.readouterr()
    assert main(["run", "recipe.yaml", "--dry-run"]) == 0
    names = ["vocab", "prepare", "check", "pretrain", "finetune-pretrained", "finetune-scratch", "result"]
    planned = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [(words[0], words[1]) for words in planned] == [("run", name) for name in names]
    made = stages()
    assert made["pretrain"]["masking"] == {"mlm_probability": 0.3, "final_mlm_probability": 0.15}
    assert made["prepare"]["corpus"] == made["vocab"]["corpus"]
    suffix = {"ner": "conll", "token_labels": "conll", "classification": "jsonl", "relations": "jsonl"}.get(kind)
    excluded = [str(folder / f"{split}.{suffix}") for split in ("validation", "test")] if suffix else None
    assert made["prepare"]["corpus"].get("exclude") == excluded
    assert all(
        re.search(r"[\w}\]] {2,}# \S", line) for line in Path("recipe.yaml").read_text().splitlines() if numeric(line)
    )


def test_the_held_out_texts_are_named_as_the_corpus_reads_them():
    """Under another key, beside shorter ones, in a file of their own, of another Unicode form; in no other file."""
    long = "A de\u0301fla\u0301tion of eight words or more \u2028 is looked for in item {}"
    corpus = Path("corpus.txt")
    corpus.write_text("".join(f"{long.format(n)} {n}, and more of it.\n\n" for n in range(20)), encoding="utf-8")
    for form in ("rows", "lines", "tabs", "short"):
        Path(form).mkdir()
        for split in ("train", "dev", "test"):
            texts = [long.format(n) if form != "short" and n % 2 else f"Short {split} {n}" for n in range(40)]
            rows = [{"id": f"x{n}", "sentence": text, "label": "ab"[n % 3 % 2]} for n, text in enumerate(texts)]
            if form == "lines":
                Path(form, f"{split}_text.txt").write_text(
                    "\n".join(text.replace("\u2028", "") for text in texts) + "\n"
                )
                Path(form, f"{split}_labels.txt").write_text("".join(f"{row['label']}\n" for row in rows))
            elif form == "tabs":
                lines = ["sentence\tlabel", *(f"{row['sentence']}\t{row['label']}" for row in rows)]
                Path(form, f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
            else:
                text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
                Path(form, f"{split}.jsonl").write_text(text, encoding="utf-8")
        keys = () if form == "lines" else ("--text_key", "sentence")
        init("--labelled", form, "--corpus", corpus, *keys, "--out", f"{form}.yaml")
    written = {form: stages(f"{form}.yaml")["prepare"]["corpus"].get("exclude") for form in ("rows", "lines", "tabs")}
    assert written == {
        "rows": [{"path": f"rows/{split}.jsonl", "text_key": "sentence"} for split in ("dev", "test")],
        "lines": [f"lines/{split}_text.txt" for split in ("dev", "test")],
        "tabs": None,
    }
    assert "exclude" not in stages("short.yaml")["prepare"]["corpus"]
    excluded = [Source(**one) for one in written["rows"]]
    source = Source("corpus.txt", documents="blank_line")
    left = [document.text for document in read_documents(CorpusConfig([source], exclude=excluded))]
    assert [int(text.split(" ")[-6].rstrip(",")) for text in left] == list(range(0, 20, 2))


def numeric(line: str) -> bool:
    """Whether a line of a recipe sets a number."""
    return bool(re.match(r" +\w+: \[?[\d.]+(e-\d+)?\b", line))


def test_the_same_data_give_the_same_bytes_and_nothing_is_replaced_unasked(sample, capsys):
    words = ("--labelled", sample / "ner/train.conll", "--corpus", sample / "corpus.jsonl", "--out", "a.yaml")
    init(*words)
    files = ["a.yaml", *(f"a-data/{name}.conll" for name in ("train", "validation", "test"))]
    first = [Path(file).read_bytes() for file in files]
    capsys.readouterr()
    command_refused("init", *words, file="a.yaml", problem="already exists", hint="use another --out, or --force to...")
    Path("a.yaml").unlink()
    command_refused("init", *words, file="a-data", problem="already exists", hint="use another --out...")
    init(*words, "--force")
    assert [Path(file).read_bytes() for file in files] == first


def test_no_data_are_replaced_even_when_asked():
    data = Path("own-data")
    data.mkdir()
    file = labelled(data / "train.jsonl", 50)
    before = file.read_bytes()
    for source in (file, data):
        words = ("init", "--labelled", source, "--model", "m", "--out", "own.yaml", "--force")
        hint = "the split sets would be written to own-data, which contains..."
        command_refused(*words, where="--out", found="'own.yaml'", hint=hint)
    words = ("init", "--labelled", file, "--model", "m", "--out", file, "--force")
    command_refused(*words, where="--out", found="'own-data/train.jsonl'", expected="a file that ends in .yaml")
    assert file.read_bytes() == before and sorted(data.iterdir()) == [file]


def test_one_file_alone_is_divided_by_documents_and_nothing_is_lost(sample, capsys):
    whole = read_ner(sample / "ner/train.conll")
    init("--labelled", sample / "ner/train.conll", "--corpus", sample / "corpus.jsonl")
    said = capsys.readouterr().out
    assert "the single set is split by documents into train (81 %), validation (9 %) and test (10 %), in " in said
    assert "), so intervals are wide" in said
    parts = [read_ner(Path(f"recipe-data/{split}.conll")) for split in ("train", "validation", "test")]
    texts = [{" ".join(sentence.words) for sentence in part.items} for part in parts]
    assert sum((Counter(" ".join(s.words) for s in part.items) for part in parts), Counter()) == Counter(
        " ".join(sentence.words) for sentence in whole.items
    )
    assert sum(part.num_documents for part in parts) == whole.num_documents
    assert len(texts[0]) > len(texts[2]) > 0 and len(texts[1]) > 0
    assert stages()["result"]["test"] == "recipe-data/test.conll"


def test_a_file_without_documents_is_divided_by_what_it_has(sample, capsys):
    init("--labelled", labelled(Path("texts.jsonl"), 60), "--corpus", sample / "corpus.jsonl")
    assert "the single set is split by texts into train (81 %)" in capsys.readouterr().out


def test_a_single_held_out_set_is_the_test_set(tmp_path, capsys):
    folder = tmp_path / "mine"
    folder.mkdir()
    labelled(folder / "train.jsonl", 100)
    dev = labelled(folder / "dev.jsonl", 30)
    (folder / "README.md").write_text("about")
    (tmp_path / "corpus.txt").write_text("Prices fell in the towns.\n\n" * 3 + "And rose again in all of them.\n")
    init("--labelled", folder, "--corpus", "corpus.txt")
    said = capsys.readouterr().out
    assert "labelled  " in said and "train 90, validation 10, test 30" in said
    assert "dev.jsonl is the only held-out set, so it is the test set; a tenth of training becomes validation" in said
    assert "not used in the folder: README.md" in said
    made = stages()
    assert made["result"]["test"] == str(dev)
    assert made["finetune-scratch"]["validation"] == "recipe-data/validation.jsonl"
    rows = Path("recipe-data/train.jsonl").read_text() + Path("recipe-data/validation.jsonl").read_text()
    assert sorted(rows.splitlines()) == sorted((folder / "train.jsonl").read_text().splitlines())


def test_a_label_of_one_document_is_trained_on(tmp_path, sample):
    rows = [{"text": f"Text {n} of all.", "label": f"rare {n}" if n < 30 else "usual"} for n in range(100)]
    Path("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    init("--labelled", "a.jsonl", "--corpus", sample / "corpus.jsonl")
    assert main(["run", "recipe.yaml", "--dry-run"]) == 0
    train = Path("recipe-data/train.jsonl").read_text()
    assert [n for n in range(30) if f'"rare {n}"' not in train] == []


def test_a_folder_is_understood_by_the_usual_names(tmp_path):
    for name in ("en-TRAIN_text.txt", "en-TRAIN_labels.txt", "devel.text", "devel.label", "notes.md", ".hidden"):
        (tmp_path / name).write_text("1\n")
    found = find_splits(tmp_path)
    assert found.sets == {
        "train": LabelledFile(text=tmp_path / "en-TRAIN_text.txt", label=tmp_path / "en-TRAIN_labels.txt"),
        "test": LabelledFile(text=tmp_path / "devel.text", label=tmp_path / "devel.label"),
    }
    assert found.unused == ("notes.md",)


def test_a_folder_that_is_not_understood_is_refused(tmp_path):
    def said(path: Path) -> str:
        with pytest.raises(DomainbertError) as error:
            find_splits(path)
        return str(error.value)

    expected = "expected a file with 'train' in its name (optional: files with 'dev' or 'validation', and 'test')"
    missing = "no such file or folder; expected labelled files (docs/reference/labelled-files.md)"
    assert said(tmp_path / "no") == f"--labelled: {tmp_path}/no: {missing}"
    (tmp_path / "a.jsonl").write_text("")
    assert said(tmp_path) == f"--labelled: {tmp_path}: no training set among the files ('a.jsonl'); {expected}"
    (tmp_path / "french").mkdir()
    (tmp_path / "french/train.conll").write_text("")
    assert said(tmp_path).startswith(
        f"--labelled: {tmp_path}: no training set, but sets in its subfolders 'french'; use the path of a subfolder"
    )
    (tmp_path / "train.jsonl").write_text("")
    (tmp_path / "train.csv").write_text("")
    assert said(tmp_path) == (
        f"{tmp_path}: found 'train.csv', 'train.jsonl' for the train set; "
        "expected one file, or the texts in a file with 'text' in its name and the labels in a file with 'label'"
    )


def test_what_is_missing_is_asked_for(tmp_path):
    file = labelled(tmp_path / "a.jsonl", 30)
    (empty := tmp_path / "empty.jsonl").write_text("")
    model = ("--labelled", file, "--model", "m")
    expected = "a labelled file or folder (docs/reference/labelled-files.md)"
    command_refused("init", where="init", problem="no --labelled", expected=expected)
    for words, where, problem, expected in (
        (("--labelled", file), "init", "neither --corpus nor --model", "--corpus ..."),
        (
            ("--labeled", file),
            "init",
            "found '--labeled', which is not an option of init",
            "did you mean '--labelled'?",
        ),
        (
            (*model[:2], "--corpus", "${data}/a.txt"),
            "--corpus",
            "found ... which a recipe reads as a variable or a stage",
            "...",
        ),
        ((*model, "--out", ""), "--out", "found ''", "a file that ends in .yaml"),
        ((*model, "--out", "."), "--out", "found '.'", "a file that ends in .yaml"),
        ((*model, "--run_folder", " "), "--run_folder", "found ''", "the folder..."),
        ((*model[:2], "--corpus", "none"), "--corpus", "found 'none', which neither exists...", "..."),
        ((*model, "--task", "NER"), "--task", "no task 'NER'", "did you mean 'Ner'?"),
        (("--labelled", empty, "--model", "m"), "", "is empty", "labelled texts"),
    ):
        command_refused("init", *words, where=where, problem=problem, expected=expected)
    assert not Path("recipe.yaml").exists()


def test_tags_that_a_scheme_forbids_are_mended_and_told(tmp_path, sample, capsys):
    folder = tmp_path / "tags"
    folder.mkdir()
    for split in ("train", "dev", "test"):
        stray = "" if split == "train" else "again I-x\n\n"
        (folder / f"{split}.conll").write_text("Zürich B-x\nfell O\n\n" * 20 + stray, encoding="utf-8")
    init("--labelled", folder, "--corpus", sample / "corpus.jsonl")
    said = capsys.readouterr().out
    found = f"{folder}/dev.conll:61: I-x begins the sentence, which IOB2 forbids"
    assert f"repaired while reading: 2 problems, such as {found}\n" in said
    task = {"class_path": "Ner", "init_args": {"format": {"repair": True}}}
    assert [stages()[name]["task"] for name in ("finetune-scratch", "result")] == [task, task]
    assert main(["run", "recipe.yaml", "--dry-run"]) == 0


def test_a_general_model_is_tuned_as_it_is_and_after_pretraining_where_there_is_a_corpus(runs, capsys):
    init("--labelled", runs / "sample/ner", "--model", runs / "pretrain", "--out", "a.yaml")
    assert list(stages("a.yaml")) == ["finetune-general", "result"]
    _, _, words, short = (shlex.split(line, comments=True) for line in capsys.readouterr().out.splitlines()[-4:])
    assert words == ["domainbert", "run", "a.yaml"] and short[3:5] == ["--out", "runs/a-short"]
    length = {"--stages.finetune-general.max_epochs": "2", "--stages.finetune-general.seeds": "[1]"}
    assert dict(zip(short[5::2], short[6::2], strict=True)) == length
    assert main([*short[1:], "--dry-run"]) == 0
    corpus = ("--corpus", runs / "sample/corpus.jsonl", "--out", "b.yaml")
    init("--labelled", runs / "sample/ner", "--model", runs / "pretrain", *corpus)
    made = stages("b.yaml")
    assert list(made) == ["prepare", "dapt-stable", "dapt", "finetune-general", "finetune-dapt", "result"]
    first, second = made["dapt-stable"], made["dapt"]
    assert first["init_from"] == made["prepare"]["tokenizer"] == made["finetune-general"]["model"]
    phases = [(one["masking"]["mlm_probability"], one["schedule"]["name"]) for one in (first, second)]
    assert phases == [(0.3, "constant"), (0.15, "linear")] and second["init_from"] == "@dapt-stable"
    assert [one["budget"]["max_epochs"] for one in (first, second)] == [0.8, 0.2]
    assert "seed" not in first and second["seed"] == 1, "the default is 0"
    assert made["finetune-dapt"] == {**made["finetune-general"], "model": "@dapt"}
    assert made["result"]["models"] == {"dapt": "@finetune-dapt", "general": "@finetune-general"}
    assert made["dapt"]["max_length"] == 96, "the model has no more positions"
    assert "gained 1.4 points [+0.5, +2.3]" in Path("b.yaml").read_text()
    assert main(["run", "a.yaml", "--dry-run"]) == main(["run", "b.yaml", "--dry-run"]) == 0


def test_a_teacher_is_asked_for_the_task_and_on_the_corpus(runs, sample, capsys):
    models = ("--model", runs / "pretrain", "--teacher", runs / "pretrain")
    init("--labelled", runs / "sample/ner", *models, "--out", "a.yaml")
    made = stages("a.yaml")
    assert list(made) == ["finetune-general", "finetune-teacher", "finetune-student", "result"]
    teacher, student = made["finetune-teacher"], made["finetune-student"]
    assert student["teachers"] == [f"@finetune-teacher/seed-{seed}" for seed in teacher["seeds"]]
    alone = made["finetune-general"]
    assert teacher["task"] == {"class_path": "Ner", "init_args": {"head": "crf"}}
    assert student["task"] == made["result"]["task"] == alone["task"] == "Ner", "transformers loads a linear head"
    assert student["model"] == alone["model"] and teacher["max_epochs"] == alone["max_epochs"] > 8, (
        "few items: 600 steps"
    )
    assert "unlabelled" not in student and set(made["result"]["models"]) == {"student", "teacher", "general"}
    texts = labelled(Path("numbers.jsonl"), 40).read_text().replace('"a"', "1.5").replace('"b"', "-2.5")
    Path("numbers.jsonl").write_text(texts.replace("2.5}", "3.5}", 9))
    init("--labelled", "numbers.jsonl", *models, "--corpus", sample / "corpus.jsonl", "--out", "b.yaml")
    student = stages("b.yaml")["finetune-student"]
    assert student["losses"][0]["class_path"] == "SoftTargets" and "prepare" not in stages("b.yaml")
    assert student["unlabelled"]["select"]["like"] == student["train"]
    sentences = Path("numbers.jsonl").read_text().replace('"text"', '"sentence"')
    Path("sentences.jsonl").write_text(sentences)
    init("--labelled", "sentences.jsonl", *models, "--corpus", sample / "corpus.jsonl", "--out", "e.yaml")
    student = stages("e.yaml")["finetune-student"]
    assert student["unlabelled"]["select"]["like"] == [{"path": student["train"], "text_key": "sentence"}]
    assert main(["run", "e.yaml", "--dry-run"]) == 0
    init("--labelled", sample / "questions", *models, "--out", "c.yaml")
    init("--labelled", sample / "trees", *models, "--out", "d.yaml")
    students = {name: stages(f"{name}.yaml")["finetune-student"] for name in "abcd"}
    assert {one["losses"][0]["class_path"] for one in students.values()} == {"SoftTargets"}
    assert ["cache" in one for one in students.values()] == [True, True, True, False], "trees have no logits to keep"
    assert {main(["run", f"{name}.yaml", "--dry-run"]) for name in students} == {0}
    capsys.readouterr()
    words = ("init", "--labelled", sample / "ner", "--teacher", runs / "pretrain", "--corpus", sample)
    hint = "add --model with the small model that the teacher trains"
    command_refused(*words, where="--teacher", found="without --model", hint=hint)
    shutil.copytree(runs / "pretrain", "other")
    tokenizer = Path("other/tokenizer.json")
    tokenizer.write_text(tokenizer.read_text().replace('"##a"', '"##0a"', 1))
    words = ("init", "--labelled", sample / "trees", "--model", "other", "--teacher", runs / "pretrain")
    problem = f"{runs / 'pretrain'} has another vocabulary than --model"
    command_refused(*words, where="--teacher", problem=problem, hint="use two models...")
    corpus = ("--corpus", sample / "corpus.jsonl")
    problem = "cannot be used with --teacher, because the task reads pairs of texts"
    words = ("init", "--labelled", sample / "pairs", *models, *corpus)
    command_refused(*words, where="--corpus", problem=problem, hint="remove --corpus")


def test_a_recipe_of_it_runs_to_its_end(sample, capsys):
    """Shortened by options alone."""
    init("--labelled", sample / "classification", "--corpus", sample / "corpus.jsonl")
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 16}
    short = {"vocab.vocab_size": 512, "prepare.num_workers": 0, "pretrain.budget.max_epochs": 0.2}
    short |= {f"pretrain.encoder.{name}": value for name, value in small.items()}
    for name in ("finetune-pretrained", "finetune-scratch"):
        short |= {f"{name}.max_epochs": 1, f"{name}.seeds": "[1]", f"{name}.precision": "32-true"}
    short |= {"result.bootstrap_resamples": 100, "pretrain.precision": "32-true"}
    assert main(["run", "recipe.yaml", *(f"--stages.{key}={value}" for key, value in short.items())]) == 0
    assert "result  pretrained  macro F1" in capsys.readouterr().out
    scores = json.loads(Path("runs/recipe/result/metrics.json").read_text())
    assert set(scores["systems"]) == {"pretrained", "scratch"} and scores["gold"] == 60


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"]), max_size=20)
PLAIN = st.recursive(
    TEXTS | st.integers() | st.booleans() | st.none() | st.floats(0, 1000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "path"]), inner, max_size=2),
    max_leaves=6,
)


@given(PLAIN)
@example(2.5e-4)
@example("1e-3")
@example("no")
@example("2010")
def test_values_are_in_yaml_what_they_are(value):
    assert yaml.load(f"key: {in_yaml(value)}", Loader)["key"] == value


def test_a_path_cannot_break_out_of_a_comment(tmp_path, sample):
    folder = tmp_path / "a\nout: elsewhere\u2028out: there"
    folder.mkdir()
    for split in ("train", "dev", "test"):
        labelled(folder / f"{split}.jsonl", 30)
    init("--labelled", folder, "--corpus", sample / "corpus.jsonl")
    made = yaml.safe_load(Path("recipe.yaml").read_text(encoding="utf-8"))
    assert made["out"] == "runs/recipe"
    assert made["stages"]["result"]["test"] == str(folder / "test.jsonl")


def test_sizes_follow_the_words_of_the_corpus_and_the_machine():
    def of(words: int, where: Machine = LAPTOP) -> tuple[Any, ...]:
        return (
            sizes.vocab_size(words, "").value,
            sizes.encoder(words, "", where)[1].value,
            sizes.pretraining_budget(words).value["max_epochs"],
            sizes.pretraining_batch_size(words).value,
        )

    assert [sizes.vocab_size(words, "").value for words in (2_685, 5_000, 33_718, 99_999)] == [512, 1024, 2048, 2048]
    assert of(500_000) == (4096, "tiny", 10, 16)
    assert of(2_000_000) == (8192, "modernbert-small", 10, 32)
    assert of(4_700_000) == (16384, "modernbert-small", 5, 32), "as configs/econ/small.yaml, but for the passes"
    assert of(100_000_000) == (32768, "medium", 2, 64)
    assert of(1_000_000_000) == (32768, "medium", 1, 64), "base takes a GPU"
    assert of(1_000_000_000, SERVER) == (32768, "base", 1, 64)


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_snippet_for_lightning_has_these_numbers(page):
    """For MiniLM-L6 and 1,000 sentences, as the page says."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (block,) = (block for block in blocks if 'save_pretrained("runs/tagger")' in block)
    names = ("lr", "head_lr", "batch_size", "max_epochs")
    found = [float(re.search(rf"\b{name}=([\d.e-]+)", block)[1]) for name in names]
    choices = [sizes.fine_tuning_batch_size(1000), sizes.fine_tuning_epochs(1000)]
    assert found == [sizes.fine_tuning_lr(384, True).value, 1e-3, *(choice.value for choice in choices)]
    assert "1,000 sentences" in text


def test_fine_tuning_follows_the_items_and_the_encoder():
    assert [sizes.fine_tuning_epochs(items).value for items in (500, 600, 1786, 4632, 50_000, 10**6)] == [
        19,
        16,
        8,
        8,
        4,
        2,
    ]
    epochs = [sizes.fine_tuning_epochs(items, minimum=5).value for items in (500, 1861, 4632, 10**6)]
    assert epochs == [19, 6, 5, 2], "a teacher, which is large"
    assert [sizes.fine_tuning_batch_size(items).value for items in (500, 3999, 4000)] == [16, 16, 32]
    assert [sizes.fine_tuning_lr(hidden, True).value for hidden in (128, 256, 384, 768)] == [5e-4, 1e-3, 3e-4, 5e-5]
    assert [sizes.fine_tuning_lr(hidden, False).value for hidden in (128, 256, 384, 768)] == [5e-4, 5e-4, 1e-4, 2e-5]
    pass_in_phases, five_million = (
        [{"max_epochs": 0.8}, {"max_epochs": 0.2}],
        [{"max_tokens": 5_600_000}, {"max_tokens": 1_400_000}],
    )
    adaptations = ((5_000_000, True, pass_in_phases), (20_000_000, True, five_million), (10**9, False, pass_in_phases))
    for words, small, budgets in adaptations:
        assert [choice.value for choice in sizes.adaptation_budgets(words, small)] == budgets
    assert [sizes.micro_batch_size(*few) for few in ((256, SERVER), (384, LAPTOP))] == [None, None]
    assert sizes.micro_batch_size(384, SERVER).value == "auto"
    assert sizes.micro_batch_size(384, replace(LAPTOP, memory_gib=6.0)).value == 8, "`auto` measures only a GPU"
    assert [sizes.pretraining_optim(hidden).value["lr"] for hidden in (128, 256, 384, 768)] == [2e-3] * 4
    assert [sizes.seeds(items).value for items in (4632, 10**6)] == [[1, 2, 3], [1]]


def test_a_window_takes_99_of_100_texts():
    assert sizes.window([*[100] * 99, 4000], True, 512).value == 128
    assert sizes.window([*[100] * 90, *[140] * 10], True, 512) == (256, "99 % of the texts have at most 140 tokens")
    assert sizes.window([100, 140], True, 512) == (256, "99 % of the texts have at most 140 tokens")
    assert sizes.window([900], True, 512).reason.endswith("900 tokens; longer texts are split into windows")
    assert sizes.window([200], False, 192).value == 192
    assert sizes.window([*[100] * 99, 300], True, 512, whole_texts=True) == (
        512,
        "100 % of the texts have at most 300 tokens",
    )


def test_special_tokens_take_room_in_a_window(monkeypatch):
    """A text of 98 words has about 127 tokens, which with [CLS] and [SEP] do not fit into 128."""
    template = SimpleNamespace(num_special_tokens=lambda pair: 4 if pair else 2)  # as of RoBERTa
    tokenizer = SimpleNamespace(template=template, encode=lambda texts: [text.split() for text in texts])
    folder = SimpleNamespace(tokenizer=lambda: tokenizer)
    monkeypatch.setattr("domainbert.models.folder.open_model", lambda path: folder)
    pairs = Classification(format=ClassificationFormat(text_pair_key="other"))
    for task, estimated, counted in ((Classification(), 2, 2), (pairs, 3, 4)):
        labelled: Any = SimpleNamespace(texts=[["word"] * 98, ["word"]], task=task)
        lengths, _ = _text_lengths(labelled, None)
        assert lengths == [127 + estimated, 1 + estimated] and sizes.window(lengths, False, 512).value == 256
        assert _text_lengths(labelled, "model") == ([98 + counted, 1 + counted], True)


def test_documents_of_plain_text_are_told_apart(tmp_path):
    def found(text: str) -> tuple[Any, int, int]:
        Path("a.txt").write_text(text, encoding="utf-8")
        facts = corpus_facts("a.txt", None)
        return facts.source.get("documents"), facts.documents, facts.words

    assert found("Prices in Zürich fell 🍰.\n" + "Then they rose again.\n") == ("line", 2, 9)
    assert found("Prices in Zürich fell 🍰.\nAnd on.\n\nThen they rose again.\n") == ("blank_line", 2, 11)
    Path("b.txt").write_text("Another file of plain text.")
    assert "documents" not in corpus_facts("*.txt", None).source


def test_documents_that_a_corpus_drops_are_counted(sample, tmp_path, capsys):
    texts = [
        "Prices fell again in Zürich.",
        "Too short",
        "Prices fell again in Zürich.",
        "Short",
        "They rose in March.",
    ]
    Path("short.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in [*texts, "x" * 30]))
    init("--labelled", sample / "ner", "--corpus", "short.jsonl")
    dropped = "dropped: 1 exact duplicates, 3 shorter than 20 characters (corpus.min_characters, corpus.deduplicate)"
    line = f"short.jsonl: 2 documents, 6 words; {dropped}"
    assert line in capsys.readouterr().out
    comment = re.sub(r"\n#\s+", " ", Path("recipe.yaml").read_text(encoding="utf-8"))
    assert f"corpus    {line}" in comment


def test_this_machine_is_described(monkeypatch, tmp_path):
    limit = tmp_path / "memory.max"
    limit.write_text(f"{3 * 2**30}\n")
    monkeypatch.setattr(sizes, "_MEMORY_LIMIT", limit)
    found = sizes.this_machine()
    assert found.cores >= 1 and found.memory_gib == 3
    assert LAPTOP.describe() == "2 cores, 24 GiB of memory, no GPU, fast bf16"


def test_help_and_the_check_of_what_is_asked_import_nothing_heavy():
    code = "import sys, domainbert.runner.first_recipe.command as one; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert {"torch", "numpy", "lightning", "jinja2", "tokenizers"} & set(done.stdout.split()) == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ner", "stance"])
def test_sets_of_economics(econ_data, name):
    init("--labelled", econ_data / name, "--corpus", econ_data / "corpus.jsonl.gz")
    assert main(["run", "recipe.yaml", "--dry-run"]) == 0
    made = stages()
    assert (made["vocab"]["vocab_size"], made["pretrain"]["encoder"]) == (16384, "modernbert-small")
    rates = {"ner": 1e-3, "stance": 5e-4}
    assert made["finetune-scratch"]["optim"]["lr"] == rates[name], "as configs/econ/small.yaml"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ner/ncbi-disease", "citation", "chemprot", "pico"])
def test_sets_of_biomedicine(bio_data, runs, name):
    init("--labelled", bio_data / name, "--model", runs / "pretrain")
    assert main(["run", "recipe.yaml", "--dry-run"]) == 0
    tasks = {"ner/ncbi-disease": "Ner", "citation": "Classification", "chemprot": "Relations", "pico": "TokenLabels"}
    assert stages()["result"]["task"] == tasks[name]


def three_sets(folder: Path, names: str = "{}.jsonl") -> Path:
    folder.mkdir()
    for split in ("train", "dev", "test"):
        labelled(folder / names.format(split), 60)
    return folder


@pytest.mark.parametrize("name", ["a\u0085b", "a\u2028b", "a\nb", "a\x7fb \u202eq", "'\"#: {}é🍰"])
def test_a_folder_of_any_name_is_found_again(sample, name):
    folder = three_sets(Path(name))
    init("--labelled", folder, "--corpus", sample / "corpus.jsonl")
    assert stages()["result"]["test"] == str(folder / "test.jsonl")
    assert main(["run", "recipe.yaml", "--dry-run"]) == 0


def test_a_file_that_a_recipe_cannot_name_is_refused(sample):
    corpus = ("--corpus", sample / "corpus.jsonl")
    words = ("init", "--labelled", three_sets(Path("v"), "${{x}}-{}.jsonl"), *corpus)
    found = "'v/${x}-train.jsonl', which a recipe reads as a variable or a stage"
    command_refused(*words, found=found, expected="a path or key without '${' that does not begin with '@'")
    words = ("init", "--labelled", three_sets(Path(os.fsdecode(b"s\xff"))), *corpus)
    command_refused(*words, where=r"'s\udcff'", problem="this name is not UTF-8", hint="rename the file or folder")
    assert not Path("recipe.yaml").exists()


def test_a_long_path_leaves_room_for_its_reason(sample):
    folder = Path("d" * 120)
    folder.mkdir()
    for split, part in (("train", "train"), ("dev", "validation"), ("test", "test")):
        shutil.copy(Path(__file__).parents[1] / f"golden/data/ner-{part}.conll", folder / f"{split}.conll")
    init("--labelled", folder, "--corpus", sample / "corpus.jsonl")
    lines = Path("recipe.yaml").read_text().splitlines()
    assert [line for line in lines if "ddd" in line and "  # " in line] == []
    assert main(["run", "recipe.yaml", "--dry-run"]) == 0


def test_a_key_that_a_recipe_cannot_name_is_refused(sample):
    rows = [{"text": f"Text {number}.", "@class": "ab"[number % 2]} for number in range(60)]
    Path("a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for words in ((), ("--label_key", "@class")):
        found, expected = "'@class', which a recipe reads as a variable or a stage", "a path or key without..."
        corpus = ("--corpus", sample / "corpus.jsonl")
        command_refused("init", "--labelled", "a.jsonl", *corpus, *words, found=found, expected=expected)


def test_a_corpus_that_would_contain_its_run_is_refused(sample):
    folder = three_sets(Path("v"))
    hint = "the recipe would write to..."
    command_refused("init", "--labelled", folder, "--corpus", ".", where="--corpus", found="'.'", hint=hint)
    assert not Path("recipe.yaml").exists()


@pytest.mark.parametrize(
    ("labels", "where", "problem", "expected"),
    [
        ("ab" * 5, "...", "a.jsonl without its test set has 9 documents", "at least 10 documents or..."),
        ("abcdefghijkl", "a.jsonl", "each document that was drawn for a held-out set has a...", "..."),
    ],
)
def test_a_set_that_is_too_small_to_be_divided_is_named(labels: str, where: str, problem: str, expected: str) -> None:
    rows = [{"text": f"Text {n}.", "label": label} for n, label in enumerate(labels)]
    Path("a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with refused(where=where, problem=problem, expected=expected):
        divide(Splits({"train": Path("a.jsonl")}), Classification(), Path("out"))


def test_a_set_without_any_label_is_refused(sample):
    Path("a.jsonl").write_text("".join(json.dumps({"text": f"Text {n}.", "labels": []}) + "\n" for n in range(60)))
    words = ("init", "--labelled", "a.jsonl", "--corpus", sample / "corpus.jsonl")
    command_refused(*words, where="train", problem="no text has a label", expected="at least one under 'labels'")


def test_a_key_that_no_row_has_is_named(sample):
    words = ("--labelled", labelled(Path("a.jsonl"), 60), "--corpus", sample / "corpus.jsonl")
    for option in ("text_key", "label_key"):
        problem, expected = f"--{option} nope: no row has this key", "one of 'text', 'label'"
        command_refused("init", *words, f"--{option}", "nope", file="a.jsonl", problem=problem, expected=expected)
    Path("a.jsonl").write_text("".join(json.dumps({"text": f"Text {n}.", "label": n > 9}) + "\n" for n in range(60)))
    command_refused("init", *words, expected='...; its first row has text: "Text 0.", label: false')


def test_a_folder_of_several_seeds_is_not_pretrained_further(runs):
    model = runs / "ner-pretrained"
    words = ("--labelled", runs / "sample/ner", "--model", model)
    found = f"'{model}', which holds a fine-tuned model for each seed"
    error = command_refused("init", *words, "--corpus", runs / "sample/corpus.jsonl", where="--model", found=found)
    best = error["expected"].rpartition(" ")[2]
    assert Path(best).parent == model
    init("--labelled", runs / "sample/ner", "--model", best, "--corpus", runs / "sample/corpus.jsonl")
    assert main(["run", "recipe.yaml", "--dry-run"]) == 0
