"""The wheel is built from the sdist, has every file of the package, and works where the repository is not."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from domainbert.cli import _COMMANDS
from domainbert.runner.stage_table import STAGES

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "domainbert"
SMALL = [
    *("--stages.sample.corpus_documents=60", "--stages.sample.train_texts=20"),
    *("--stages.sample.validation_texts=10", "--stages.sample.test_texts=10", "--stages.vocab.vocab_size=1024"),
    *("--stages.pretrain.budget.max_epochs=1", "--stages.ner-pretrained.max_epochs=1"),
    *("--stages.ner-pretrained.seeds=1", "--only=sample,vocab,prepare,pretrain,ner-pretrained"),
]
LOCAL = {"hub:sentence-transformers/all-MiniLM-L6-v2": "models/minilm", "max_epochs=10": "max_epochs=1"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    source = folder / "source"  # a build writes next to its source
    shutil.copytree(PACKAGE, source / "domainbert", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, source)
    with tarfile.open(built("build_sdist", source, folder)) as archive:
        archive.extractall(folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()
    return built("build_wheel", unpacked, folder)


def built(hook: str, source: Path, folder: Path) -> Path:
    """The archive that a build backend's hook (PEP 517) writes."""
    code = f"from setuptools import build_meta; build_meta.{hook}({str(folder)!r})"
    before = set(folder.iterdir())
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    (archive,) = set(folder.iterdir()) - before
    return archive


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin/ of an environment with the wheel, and with the libraries of this one but not its domainbert."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    # a folder that a .pth names comes after this one, and its own .pth files, as of an editable install, are not read
    names = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site_packages / "libraries.pth").write_text("\n".join(sorted(names)))
    return folder / "bin"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing of the repository."""
    return tmp_path_factory.mktemp("place")


def ran(place: Path, *words: str | Path) -> str:
    """What a program prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DOMAINBERT"))}
    environment |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    result = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def requirements(wheel: Path) -> list[Requirement]:
    """Return the requirements; requirements of an extra have a marker."""
    return [Requirement(text) for text in metadata(wheel).get_all("Requires-Dist", [])]


def test_the_wheel_has_the_files_of_the_package_and_no_others(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = {path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert names == {path.relative_to(ROOT).as_posix() for path in files}


def test_requirements_hold_here(wheel: Path) -> None:
    found = [one for one in requirements(wheel) if one.marker is None]
    assert {"torch", "lightning", "datasets"} <= {one.name for one in found}
    assert [str(one) for one in found if not one.specifier.contains(version(one.name))] == []
    assert metadata(wheel)["Requires-Python"] == ">=3.10"


def test_the_version_is_released_in_the_changelog_and_cited(wheel: Path) -> None:
    number, citation = metadata(wheel)["Version"], (ROOT / "CITATION.cff").read_text("utf-8")
    (date,) = re.findall(r'^date-released: "(.+)"$', citation, re.MULTILINE)
    assert f"\nversion: {number}\n" in citation
    assert f"\n## [{number}] - {date}\n" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def imports(path: Path) -> Iterator[str]:
    """Packages that a module imports when it is imported."""
    nodes: list[ast.AST] = list(ast.parse(path.read_text(encoding="utf-8")).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]
        elif not isinstance(node, ast.FunctionDef):
            nodes += ast.iter_child_nodes(node)


def test_every_imported_package_is_required(wheel: Path) -> None:
    """By the package, by an extra, or by a library that cannot do without it."""
    names = {"PIL": "pillow", "yaml": "pyyaml"}
    names |= {"markupsafe": "jinja2", "pydantic_core": "pydantic", "sqlalchemy": "optuna"}
    required = {re.sub(r"[-.]", "_", one.name.lower()) for one in requirements(wheel)}
    found = {name for path in PACKAGE.rglob("*.py") for name in imports(path)}
    found -= {"domainbert", *sys.stdlib_module_names}
    assert {name for name in found if names.get(name, name) not in required} == set()
    assert {"torch", "yaml", "onnx", "typing_extensions"} <= found


@pytest.mark.slow
def test_the_command_line_of_the_wheel_runs(wheel: Path, installed: Path, place: Path) -> None:
    code = "import domainbert; print(domainbert.__file__)"
    file = Path(ran(place, installed / "python", "-c", code).strip())
    assert file.is_relative_to(installed.parent)
    assert ran(place, installed / "domainbert", "--version") == f"domainbert {metadata(wheel)['Version']}\n"
    usage = ran(place, installed / "domainbert", "--help")
    assert all(f"\n  {name} " in usage for name in (*STAGES, *_COMMANDS))
    plan = ran(place, installed / "domainbert", "demo", "--dry-run").splitlines()
    assert len(plan) == 13 and plan[0].startswith("run   sample (never run)")


@pytest.mark.slow
def test_the_demo_and_the_example_of_the_readme_run_from_the_wheel(installed: Path, place: Path) -> None:
    ran(place, installed / "domainbert", "demo", *SMALL)
    assert (place / "runs/quickstart/report.html").is_file()
    sample = place / "runs/quickstart/sample/ner"
    for name, file in {"train": "train", "dev": "validation", "test": "test"}.items():
        shutil.copy(sample / f"{file}.conll", place / f"{name}.conll")
    shutil.copytree(place / "runs/quickstart/pretrain", place / "models/minilm")
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (block,) = (block for block in blocks if "L.Trainer(" in block)
    for named, here in LOCAL.items():
        assert named in block
        block = block.replace(named, here)
    (place / "example.py").write_text(block)
    printed = ran(place, installed / "python", "example.py")
    assert re.search(r"test/\S*f1", printed) and re.search(r"^\[.*\]$", printed, re.MULTILINE), printed
