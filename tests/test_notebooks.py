"""The notebooks, executed from their first cell to their last; what they say is what the files hold."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = {path.stem: path for path in sorted(ROOT.glob("notebooks/*.ipynb"))}
IMAGE = "image/png"


def cells_of(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(NOTEBOOKS[name].read_text(encoding="utf-8"))["cells"]
    return found


class Executed:
    """A notebook after its execution: its variables, and what its cells have put out."""

    def __init__(self, name: str, parameters: str, variables: list[str], folder: Path) -> None:
        nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
        book = nbformat.read(NOTEBOOKS[name], as_version=4)
        (cell,) = (one for one in book.cells if "parameters" in one.metadata.get("tags", []))
        cell.source = f"from pathlib import Path\n{parameters}"
        results = ", ".join(f'"{variable}": {variable}' for variable in variables)
        book.cells.append(nbformat.v4.new_code_cell(f"import json\nprint(json.dumps({{{results}}}, default=str))"))
        place = {"metadata": {"path": str(folder)}}
        nbclient.NotebookClient(book, timeout=600, kernel_name="python3", resources=place).execute()
        self.cells = {one.id: one for one in book.cells}
        self.variables = json.loads(book.cells[-1].outputs[-1].text)

    def printed(self, cell: str) -> str:
        return "".join(one.text for one in self.cells[cell].outputs if one.get("name") == "stdout")

    def pictures(self) -> set[str]:
        """The cells that have drawn something."""
        return {
            name for name, one in self.cells.items() if any(IMAGE in o.get("data", {}) for o in one.get("outputs", []))
        }


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a notebook lies, in a checkout with `configs` alone; its kernel writes nothing elsewhere."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    for name, value in {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}.items():
        monkeypatch.setenv(name, value)
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("MPLBACKEND", raising=False)
    return tmp_path / "notebooks"


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_there_are_four() -> None:
    assert list(NOTEBOOKS) == ["01-quickstart", "02-your-own-corpus", "03-distillation", "04-error-analysis"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_stored_without_what_it_put_out(name: str) -> None:
    cells = cells_of(name)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    ids = [cell["id"] for cell in cells]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[a-z-]+", one) for one in ids)
    assert sum("parameters" in cell["metadata"].get("tags", []) for cell in code) == 1
    assert {key for cell in cells for key in cell["metadata"]} <= {"tags"}
    text = NOTEBOOKS[name].read_text(encoding="utf-8")
    assert set(json.loads(text)["metadata"]) == {"kernelspec", "language_info"}
    assert not re.search(r"/(home|tmp|work|Users|root)/", text)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_written_for_a_reader(name: str) -> None:
    cells = cells_of(name)
    kinds = [cell["cell_type"] for cell in cells]
    assert kinds[0] == "markdown"
    assert "code code code" not in " ".join(kinds)
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            assert "http" not in source and len(source.splitlines()) <= 65
            ast.parse(source)
        for link in re.findall(r"\]\(([^)#\s]+)", source) if cell["cell_type"] == "markdown" else []:
            assert (NOTEBOOKS[name].parent / link).is_file(), link


def test_errors_are_looked_at(runs, kernel: Path) -> None:
    parameters = f"RUN = DEMO = Path({str(runs / 'ner')!r})"
    variables = ["f1", "ece", "by_kind", "by_label", "per_type", "labels"]
    book = Executed("04-error-analysis", parameters, variables, kernel)
    metrics, said = read(runs / "ner/metrics.json"), book.variables
    systems = metrics["systems"]
    assert said["f1"] == {name: one["f1"] for name, one in systems.items()}
    assert said["ece"] == {name: one["reliability"]["ece"] for name, one in systems.items()}
    assert said["labels"] == systems["pretrained"]["confusion"]["labels"]
    assert said["per_type"] == systems["pretrained"]["per_type"]
    file = runs / "ner/mistakes/pretrained/seed-1.jsonl"
    mistakes = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert f"{len(mistakes):,} texts with a mistake" in book.printed("counted")
    assert sum(said["by_kind"].values()) == sum(len(one["kinds"]) for one in mistakes) > 0
    assert said["by_label"]["outcome"] == sum("outcome" in one["labels"] for one in mistakes)
    mark = (mistakes[0]["gold"] or mistakes[0]["predicted"])[0]
    assert f"{mistakes[0]['text'][mark['start'] : mark['end']]} ({mark['label']})" in book.printed("mistakes")
    assert book.pictures() == {"forest", "kinds", "confusion", "reliability"}
    assert not (runs.root.parent / "runs").exists(), "the demo was not run"


@pytest.mark.slow
def test_the_quickstart_says_what_its_files_hold(kernel: Path, tmp_path: Path) -> None:
    import lightning

    from domainbert import Pretraining, PretrainingData

    out = tmp_path / "out"
    out.mkdir()
    parameters = f"OUT = Path({str(out)!r})\nDOCUMENTS, SENTENCES, VOCAB_SIZE, STEPS, EPOCHS = 300, 100, 1024, 30, 3"
    book = Executed("01-quickstart", parameters, ["f1", "gain", "low", "high", "text", "validation"], kernel)
    metrics, said = read(out / "run/result/metrics.json"), book.variables
    assert said["f1"] == {name: one["f1"] for name, one in metrics["systems"].items()}
    (pair,) = metrics["paired"]
    assert [said["gain"], said["low"], said["high"]] == [pair["difference"], *pair["interval"]]
    assert f"[{100 * pair['interval'][0]:+.1f}, {100 * pair['interval'][1]:+.1f}]" in book.printed("result")
    assert book.printed("again").count("skipped (done)") == 4 and "run   tagger (never run)" in book.printed("dry-run")
    assert "4 of 4 stages done" in book.printed("next")
    assert said["text"] == json.loads((out / "sample/corpus.jsonl").open(encoding="utf-8").readline())["text"]
    module, data = Pretraining.from_pretrained(out / "pretrained"), PretrainingData(out / "prepared", batch_size=16)
    trainer = lightning.Trainer(logger=False, enable_progress_bar=False)
    (validation,) = trainer.validate(module, data, verbose=False)
    assert said["validation"] == pytest.approx(validation)
    assert f"{validation['validation/loss']:.2f}\n" in book.printed("loss")


@pytest.mark.slow
def test_a_corpus_of_ones_own_goes_all_the_way(kernel: Path, tmp_path: Path) -> None:
    from domainbert.stages.sample import sample

    out, mine = tmp_path / "out", tmp_path / "mine"
    sample(out=mine, corpus_documents=200, train_sentences=80, validation_sentences=40, seed=3)
    files = f"CORPUS = {str(mine / 'corpus.jsonl')!r}\n"
    files += "".join(f"{one.upper()} = {str(mine / 'ner' / one)!r} + '.conll'\n" for one in ("train", "validation"))
    parameters = f"OUT = Path({str(out)!r})\n{files}VOCAB_SIZE, STEPS, EPOCHS = 1024, 30, 2"
    book = Executed("02-your-own-corpus", parameters, ["f1", "pieces", "tokens", "losses", "seeds"], kernel)
    said = book.variables
    for name in ("tagger", "scratch"):
        scores = read(out / name / "seeds.json")["validation_f1"].values()
        assert said["f1"][name] == pytest.approx(sum(scores) / 2)
    assert said["seeds"] == read(out / "tagger/seeds.json")
    assert said["tokens"] == read(out / "prepare/prepared.json")["splits"]["train"]["tokens"]
    assert f"{said['pieces'][str(mine / 'ner/train.conll')]:.3f} pieces per word: train.conll" in book.printed("vocab")
    card = (out / "tagger" / said["seeds"]["best"] / "README.md").read_text(encoding="utf-8")
    assert book.printed("card") == f"{card}\n" and card.startswith("---\n")
    assert book.pictures() == {"curve"} and not (out / "sample").exists()
    assert (out / "recipe.yaml").read_text(encoding="utf-8") in book.printed("recipe")
    assert f"train: {mine / 'ner/train.conll'}" in book.printed("recipe")


@pytest.mark.slow
def test_a_student_is_compared_with_its_teacher(kernel: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    sizes = "DOCUMENTS, SENTENCES, VOCAB_SIZE, STEPS, EPOCHS, UNLABELLED = 500, 300, 1024, 150, 10, 100"
    book = Executed("03-distillation", f"OUT = Path({str(out)!r})\n{sizes}", ["kept", "speedup", "lost"], kernel)
    metrics, said = read(out / "result/metrics.json"), book.variables
    scores = {name: one["f1"] for name, one in metrics["systems"].items()}
    assert said["kept"] == {name: score / scores["teacher"] for name, score in scores.items()}
    costs = {name: one["cost"] for name, one in metrics["systems"].items()}
    assert said["speedup"] == costs["student"]["words_per_second"] / costs["teacher"]["words_per_second"]
    assert costs["student"]["parameters"] == costs["alone"]["parameters"] < costs["teacher"]["parameters"]
    assert said["lost"].keys() == {"student", "alone"} and book.pictures() == {"trade"}
