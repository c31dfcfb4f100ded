"""Every YAML in configs/ and every snippet of README, docs/ and the like is read by what reads it in earnest.

How a page says what a block is: a YAML with `stages` is a recipe, one with `space` a search. `# NAME.yaml` in its first
line is the file that commands name, `# NAME.yaml, for STAGE` the settings of a stage in such a file, and `# in STAGE`
some of its settings. Files of data may be missing here; nothing else may be wrong.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from domainbert import cli
from domainbert.base.errors import DomainbertError, Problems
from domainbert.labelled.formats import NerFormat
from domainbert.runner.recipe import read_recipe
from domainbert.runner.stage_table import STAGES, load_stage
from domainbert.settings.command_line import parse_arguments
from domainbert.settings.reader import read_settings
from domainbert.settings.tree import read_config
from domainbert.settings.yaml_files import load_yaml
from domainbert.tasks.classification.config import Classification, ClassificationFormat
from domainbert.tasks.classification.files import read as read_classification
from domainbert.tasks.multi_label.config import MultiLabel
from domainbert.tasks.multi_label.files import read as read_multi_label
from domainbert.tasks.ner.files import read_ner
from domainbert.tasks.parsing.config import Parsing
from domainbert.tasks.parsing.files import read as read_treebank
from domainbert.tasks.question_answering.config import QuestionAnswering
from domainbert.tasks.question_answering.files import read as read_questions
from domainbert.tasks.regression.config import Regression, RegressionFormat
from domainbert.tasks.regression.files import read as read_numbers
from domainbert.tasks.relations.config import Relations
from domainbert.tasks.token_labels.config import TokenLabels
from domainbert.tuning.config import TuneConfig
from domainbert.tuning.search import read_search

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks/README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
]
CONFIGS = sorted([*ROOT.glob("configs/*.yaml"), *ROOT.glob("configs/*/*.yaml")])
SIZES = [path for path in CONFIGS if path.parent.name == "encoders"]
RECIPES = [path for path in CONFIGS if path not in SIZES and "\nstages:" in path.read_text(encoding="utf-8")]

NOT_HERE = re.compile(
    r"does not exist; expected a file|neither exists nor matches as a glob"
    r"|no installed Python package has the name|cannot be downloaded from the hub"
)
NAMED = re.compile(r"# ([\w-]+\.yaml)(?:, for ([\w-]+))?\n")
SOME = re.compile(r"# in ([\w-]+)\n")
OTHER_COMMANDS = {".", "awk", "aws", "export", "hf", "python3", "tensorboard", ".venv/bin/pre-commit"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def fenced(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2])


BLOCKS = [block for page in PAGES for block in fenced(page)]


def of(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command line, without comments and variables of the environment before it."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        if words:
            yield words[words.index("|") + 1 :] if "|" in words else words  # what feeds a pipe is of the shell


def in_comments(config: Path) -> str:
    """The command lines that stand in the comments of a YAML."""
    comments = [line.removeprefix("#") for line in config.read_text(encoding="utf-8").splitlines() if line[:1] == "#"]
    found = re.findall(r"^   ?((?:[A-Z_]+=\S+ )?domainbert (?:.*\\\n)*.*)$", "\n".join(comments), re.MULTILINE)
    return "\n".join(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where commands find configs/ and the files that pages name."""
    place = tmp_path_factory.mktemp("pages")
    (place / "configs").symlink_to(ROOT / "configs")
    for block in of("yaml"):
        if named := NAMED.match(block.text):
            assert not (place / named[1]).exists(), f"{block}: {named[1]} is also a block elsewhere"
            (place / named[1]).write_text(block.text, encoding="utf-8")
    return place


@pytest.fixture(autouse=True)
def there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for name in ("DATA", "CORPUS", "LABELLED", "MODEL", "TEACHER"):
        monkeypatch.delenv(f"DOMAINBERT_{name}", raising=False)


def wrong(read: Callable[[], object]) -> list[str]:
    """Return the problems of a read, without missing files."""
    try:
        read()
    except DomainbertError as error:
        return [problem for problem in error.problems if not NOT_HERE.search(problem)]
    return []


def wrong_settings(stage: str, files: list[Path], options: list[tuple[str, str]], some: bool) -> list[str]:
    """Return the problems of settings of a stage or a search; `some`: required settings may be missing."""

    def read() -> None:
        problems = Problems(stage)
        tree = read_config(files, options)
        tree.value.pop("out", None)
        kind = TuneConfig if stage == "tune" else load_stage(stage).settings
        read_settings(kind, tree, problems, template=some)
        problems.raise_if_any()

    return wrong(read)


def test_everything_is_counted():
    assert Counter(block.language for block in BLOCKS) == {
        "yaml": 79, "sh": 93, "python": 35, "toml": 1, "conll": 5, "conllu": 1, "jsonl": 13, "json": 1, "csv": 3,
        "tsv": 1, "text": 8,
    }  # fmt: skip
    assert (len(RECIPES), len(SIZES), len(CONFIGS)) == (32, 26, 59)
    assert sum(len(list(commands(in_comments(config)))) for config in CONFIGS) == 38
    for page in PAGES:  # a block that is only indented would not be looked at
        outside = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        assert not re.findall(r"\n\n {4}.*", outside), page


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_config_is_one_of_what_can_be_read(config):
    path = config.relative_to(ROOT)
    if config in SIZES:
        assert wrong_settings("pretrain", [], [("encoder", str(path))], some=True) == []
    elif config in RECIPES:
        assert wrong(lambda: read_recipe(path, [], environment={})) == []
    else:
        assert wrong(lambda: read_search([path], [])) == []


@pytest.mark.parametrize("block", of("yaml"), ids=str)
def test_a_yaml_block_is_read(block, tmp_path):
    named, some = NAMED.match(block.text), SOME.match(block.text)
    file = tmp_path / "block.yaml"
    file.write_text(block.text, encoding="utf-8")
    if "\nstages:" in block.text:
        assert wrong(lambda: read_recipe(file, [], environment={})) == []
    elif "\nspace:" in block.text:
        assert wrong(lambda: read_search([file], [])) == []
    elif some:
        assert wrong_settings(some[1], [file], [], some=True) == []
    else:
        assert named and named[2], f"{block}: names neither its file nor its stage"
        assert wrong_settings(named[2], [file], [], some=False) == []


SHELL = [(f"{block}", block.text) for block in of("sh")]
SHELL += [(str(config.relative_to(ROOT)), text) for config in CONFIGS if (text := in_comments(config))]


@pytest.mark.parametrize("text", [text for _, text in SHELL], ids=[name for name, _ in SHELL])
def test_commands_are_taken(text, capsys):
    found = list(commands(text))
    assert found
    for words in found:
        check_command(words)


def check_command(words: list[str]) -> None:
    program, rest = words[0], words[1:]
    if program == "domainbert":
        check_domainbert(rest)
    elif program == "sbatch":
        script, *given = [word for word in rest if not word.startswith("--")]
        assert (ROOT / script).is_file()
        check_domainbert(["run", *given])
    elif program.startswith("configs/"):
        assert (ROOT / program).is_file()
        check_domainbert(rest)
    elif program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert {word for word in rest if "=" not in word} <= set(targets)
    elif program == "pip":
        extras = re.findall(r"^([\w-]+) = \[", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
        chosen = re.search(r"\[([\w,-]+)\]", rest[-1])
        assert rest[0] in ("download", "install") and set(chosen[1].split(",") if chosen else []) <= set(extras)
    elif program == "python":
        assert (ROOT / rest[0]).exists()
        scripts = (ROOT / rest[0]).parent.rglob("*.py")  # options may stand in a module that several share
        source = "".join(script.read_text(encoding="utf-8") for script in scripts)
        assert all(f'"{word}"' in source for word in rest if word.startswith("--")), words
    elif program == "bash":
        source = (ROOT / rest[0]).read_text(encoding="utf-8")
        assert all(f"{word})" in source for word in rest if word.startswith("--")), words
    else:
        assert program in OTHER_COMMANDS, words


def check_domainbert(words: list[str]) -> None:
    name, rest = words[0], words[1:]
    if any(word.endswith(("--help", ".help")) for word in rest):
        assert cli.main(words) == 0
        return
    typed = parse_arguments(rest, cli._STAGE_FLAGS if name in STAGES else cli.command_module(name).FLAGS)
    if name == "run":
        check_run(typed)
    elif name == "init":
        assert typed.words == [] and typed.options == [] and "labelled" in typed.flags
    elif name == "report":
        assert typed.words and not typed.options and not typed.files
    elif name == "push":
        assert len(typed.words) == 2 and not typed.options and not typed.files
    elif name == "tune":
        assert wrong(lambda: read_search([Path(file) for file in typed.files], typed.options)) == []
    elif name == "demo":
        assert typed.words == [] and typed.files == []
    elif name == "runs":
        assert len(typed.words) <= 1 and typed.files == [] and typed.options == []
    else:
        assert typed.words == []
        files = [Path(file) for file in typed.files if not file.startswith("runs/")]  # those a command has written
        if "allow_import" not in typed.flags:  # a package of the reader's
            assert wrong_settings(name, files, typed.options, some=len(files) < len(typed.files)) == []
            assert {"out", "print_config", "show"} & set(typed.flags) or typed.files


def check_run(typed) -> None:
    (recipe,) = typed.words
    assert wrong(lambda: read_recipe(Path(recipe), typed.options, environment={})) == []
    stages = load_yaml(Path(recipe)).value["stages"].value
    for flag in ("only", "from", "force"):
        assert set((typed.flags.get(flag) or "").split(",")) - {""} <= set(stages)


ENTITIES = [
    ("IOB2", ["intervention"], NerFormat()),
    ("IOB1", ["intervention"], NerFormat()),
    ("BIOES", ["intervention", "population"], NerFormat()),
    ("IOB2", ["intervention"], NerFormat(token_column="word", tag_column="tag")),
    ("IOB2", ["intervention", "population", "intervention"], NerFormat()),
    ("IOB2", ["intervention", "intervention"], NerFormat()),
    ("IOB2", ["intervention", "intervention"], NerFormat()),
]
LABELS = [
    [("trade", "work"), ("prices",), ()],
    [("trade", "work"), ()],
    [("trade", "work"), ("prices",), ()],
]
ANSWERS = [
    [["9 %"], []],
    [["2014"], ["enrolment"], []],
]
WORDS = [
    [["I-INT", "O", "I-PAR"]],
    [["NNS", "VBD"], ["DT", "NN"], ["NN", "VBD"]],
]
RELATIONS = [
    [("Losartan", "Ang II", "INHIBITOR"), ("losartan", "Ang II", "none"), ("Losartan", "[[(Ang II", "INHIBITOR")],
    [("Cash", "attendance", "raises"), ("attendance", "Cash", "none"), ("Loans", "not", "none")],
]
CLASSES = [
    ["positive", "negative", "null"],
    ["positive", "negative"],
    ["positive", "negative"],
    ["negative", "positive", "positive"],
    ["entailment", "contradiction", "neutral"],
]
NUMBERS = [[4.2, 2, 0], [7.5, -2]]


def test_sample_files_are_read(tmp_path):
    entities, classes, labels, numbers, answers, words, relations = [], [], [], [], [], [], []
    for number, block in enumerate(of("conll", "json", "jsonl", "csv", "tsv")):
        file = tmp_path / f"{number}.{block.language}"
        file.write_text(block.text, encoding="utf-8")
        assert len(block.text.splitlines()) == (7 if block.language == "json" else 3)
        if '"answers"' in block.text:
            answers.append([question.texts for question in read_questions(QuestionAnswering(), file).items])
        elif "I-INT" in block.text or "VBD" in block.text:
            words.append([one.tags for one in TokenLabels(outside=None).read(file).items])
        elif '"head"' in block.text or "<<" in block.text:
            relations.append([relation(item) for item in Relations().read(file).items])
        elif block.language == "conll" or ('"tokens"' in block.text or '"entities"' in block.text):
            format = ENTITIES[len(entities)][2]
            read = read_ner(file, format)
            types = [type for sentence in read.sentences for _, _, type in sentence.spans]
            entities.append((read.scheme, types, format))
        elif re.search(r"\blabels\b", block.text):
            labels.append([text.labels for text in read_multi_label(MultiLabel(), file).items])
        elif re.search(r"\bscore\b|\d$", block.text, re.MULTILINE):
            keys = ("sentence1", "sentence2", "score") if "score" in block.text else ()
            numbers.append(
                [text.number for text in read_numbers(Regression(format=RegressionFormat(*keys)), file).items]
            )
        else:
            format = ClassificationFormat(text_pair_key="text_pair" if "text_pair" in block.text else None)
            classes.append([text.label for text in read_classification(Classification(format=format), file).items])
    assert entities == ENTITIES
    assert classes == CLASSES
    assert labels == LABELS
    assert answers == ANSWERS
    assert numbers == NUMBERS
    assert (words, relations) == (WORDS, RELATIONS)


def relation(item) -> tuple[str, str, str]:
    """Both entities, and how they are related."""
    text, marks = item.content.text, item.content.marks
    head, tail = (text[marks[one][1] : marks[one + 1][0]].strip() for one in (0, 2))
    return head, tail, item.label


def test_sample_trees_are_read(tmp_path):
    (block,) = of("conllu")
    (tmp_path / "a.conllu").write_text(block.text, encoding="utf-8")
    (sentence,) = read_treebank(Parsing(), tmp_path / "a.conllu").items
    assert list(zip(sentence.words, sentence.heads, sentence.labels, strict=True)) == [
        ("Cash", 2, "compound"),
        ("transfers", 3, "nsubj"),
        ("helped", 0, "root"),
    ]


def cells() -> list[tuple[str, str]]:
    """Python of the notebooks, by cell."""
    found = []
    for notebook in sorted(ROOT.glob("notebooks/*.ipynb")):
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                found.append((f"{notebook.name}:{cell['id']}", "".join(cell["source"])))
    return found


PYTHON = [*((str(block), block.text) for block in of("python")), *cells()]


def test_there_are_cells():
    assert len(cells()) == 43


@pytest.mark.parametrize("text", [text for _, text in PYTHON], ids=[name for name, _ in PYTHON])
def test_python_names_what_there_is(text):
    """It compiles, its imports from domainbert exist, and stages accept their arguments."""
    tree, stages = ast.parse(text), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "domainbert":
            names = {alias.name: getattr(importlib.import_module(node.module), alias.name) for alias in node.names}
            stages |= names if node.module.startswith("domainbert.stages.") else {}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Name) and call.func.id in stages:
            taken = inspect.signature(stages[call.func.id]).parameters
            assert {keyword.arg for keyword in call.keywords} <= set(taken)


FILE = re.compile(r"# (mine/[\w/]+\.py)\n")


def test_examples_of_packages_are_the_files_that_other_tests_run():
    """Each guide shows the files of one example, at most 60 lines of code beside at most 60 lines of text."""
    shown = {}
    for block in of("python"):
        if file := FILE.match(block.text):
            source = (ROOT / "tests/user_package" / file[1]).read_text(encoding="utf-8")
            assert block.text.removeprefix(file[0]) == source, block
            shown.setdefault(block.page, []).append(source)
    assert [(page.name, len(sources)) for page, sources in shown.items()] == [
        ("add-a-family.md", 2),
        ("add-a-task.md", 2),
        ("add-an-objective.md", 2),
    ]
    for page, sources in shown.items():
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        assert lines_of("".join(sources)) <= 60 and lines_of(text) <= 60, page


def lines_of(text: str) -> int:
    """Number of lines that are not empty."""
    return sum(bool(line.strip()) for line in text.splitlines())


def test_predictions_of_pages_are_made(runs, tmp_path, monkeypatch):
    """The blocks that read what `make demo` and the economics runs have made, on the folders of the tests."""
    pytest.importorskip("transformers")
    for run in ("quickstart", "econ-small"):
        (tmp_path / "runs" / run).mkdir(parents=True)
        for name in ("ner", "ner-pretrained"):
            (tmp_path / "runs" / run / name).symlink_to(runs / name)
    (tmp_path / "runs/quickstart/direction-pretrained").symlink_to(runs / "classification-pretrained")
    monkeypatch.chdir(tmp_path)
    made = [block for block in of("python") if "runs/quickstart" in block.text or "runs/econ-small" in block.text]
    made = [block for block in made if "captum" not in block.text]  # has its own test
    assert len(made) == 6
    for block in made:
        exec(compile(block.text, str(block), "exec"), {})


def test_attributions_of_a_page_are_integrated_gradients(runs, tmp_path, monkeypatch):
    """Sundararajan et al. 2017, equation 3, by the midpoint rule: from [MASK]s, without special tokens."""
    pytest.importorskip("captum")
    import torch

    (tmp_path / "runs/quickstart").mkdir(parents=True)
    (tmp_path / "runs/quickstart/ner-pretrained").symlink_to(runs / "ner-pretrained")
    monkeypatch.chdir(tmp_path)
    (block,) = (block for block in of("python") if "captum" in block.text)
    exec(compile(block.text, str(block), "exec"), made := {})
    ids, baseline, model = made["ids"], made["baseline"], made["model"]
    assert "attendance".startswith(made["tokenizer"].convert_ids_to_tokens(int(ids[0, made["position"]])))
    embed = model.get_input_embeddings()
    there, here = embed(ids).detach(), embed(baseline).detach()
    points = (here + (torch.arange(400).view(-1, 1, 1) + 0.5) / 400 * (there - here)).requires_grad_()

    def scores(**inputs):
        return model(**inputs).logits[:, made["position"]].log_softmax(-1)[:, made["label"]]

    (gradients,) = torch.autograd.grad(scores(inputs_embeds=points).sum(), points)
    wanted = ((there - here) * gradients.mean(dim=0)).sum(dim=-1)[0]
    assert made["values"].tolist() == pytest.approx(wanted.tolist(), abs=0.01 * float(wanted.abs().sum()))
    difference = (scores(input_ids=ids) - scores(input_ids=baseline)).item()
    assert float(made["values"].sum()) == pytest.approx(difference, rel=0.01) and abs(difference) > 0.1


@pytest.mark.slow
def test_training_from_python_runs(tmp_path):
    """Run each block as a separate script, one after the other."""
    made = [block for block in of("python") if "runs/pretrain" in block.text]
    assert len(made) == 2
    for block in made:
        (tmp_path / "script.py").write_text(block.text, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=environment, check=True)


@pytest.mark.slow
def test_the_recipe_of_classification_runs(tmp_path, monkeypatch):
    """Shortened, on little sample data."""
    monkeypatch.chdir(tmp_path)
    sizes = ["corpus_documents=300", "train_texts=80", "validation_texts=40", "test_texts=40"]
    assert cli.main(["sample", "--out", "runs/sample", *(f"--{size}" for size in sizes)]) == 0
    short = ["vocab.vocab_size=2048", "pretrain.budget.max_epochs=1", "classes.seeds=1", "classes-scratch.seeds=1"]
    recipe = str(ROOT / "configs/classification.yaml")
    assert cli.main(["run", recipe, *(f"--stages.{value}" for value in short)]) == 0
    assert len((tmp_path / "runs/classification/labels/predictions.jsonl").read_text().splitlines()) == 300
