from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from domainbert.base.choices import allow_import_arguments, allow_imports, choices_of, find_choice
from domainbert.base.errors import Problems
from domainbert.cli import main
from domainbert.encoders.config import EncoderConfig
from domainbert.settings.reader import Settings, read_settings
from domainbert.settings.tree import read_config
from domainbert.settings.yaml_files import dump_yaml
from domainbert.tokenization.config import TokenizerKindConfig
from domainbert.tokenization.kinds.byte_bpe.config import ByteBPE
from domainbert.tokenization.kinds.wordpiece.config import WordPiece
from tests.refusals import fact_rows, refused

CONFIG = """\
from dataclasses import dataclass
from fake_stages import Circle, Shape

open("imported", "a").write("shapes ")

@dataclass(frozen=True)
class Ring(Shape):
    radius: float = 2.0
    hole: int = 1
    def area(self): return 0.0

@dataclass(frozen=True)
class Circle(Shape):
    radius: float = 9.0
    def area(self): return 0.0

@dataclass(frozen=True)
class Unknown(Shape):
    size: "Nowhere" = 1
    def area(self): return 0.0

@dataclass(frozen=True)
class Abstract(Shape):
    size: int = 1

class Bare(Circle):
    pass

@dataclass(frozen=True)
class Other:
    size: int = 1

def function(): open("imported", "a").write("function ")
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_stages: ModuleType) -> Iterator[ModuleType]:
    """`mypkg.shapes`, `mypkg.broken` and `mypkgs`, on the path and not imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    files = {"mypkg/__init__": "", "mypkg/shapes": CONFIG, "mypkg/broken": "1 / 0", "mypkgs": "open('imported', 'w')"}
    Path("mypkg").mkdir()
    for name, text in files.items():
        Path(f"{name}.py").write_text(text)
    Path("source.txt").write_text("x")
    yield fake_stages
    allow_imports(None)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("mypkg", "mypkgs")]:
        del sys.modules[name]


def read(*texts: str, options: tuple[tuple[str, str], ...] = ()) -> tuple[Settings, list[Any]]:
    from fake_stages import use

    files = []
    for number, text in enumerate(texts):
        files.append(Path(f"{number}.yaml"))
        files[-1].write_text(f"source: source.txt\n{text}")
    problems = Problems("test")
    return read_settings(use, read_config(files, options), problems), fact_rows(problems.errors)


RING = "shape: {class_path: mypkg.shapes.Ring, hole: 3}\n"


def test_a_class_of_a_package_of_ones_own_is_imported_only_if_the_command_line_allows_it() -> None:
    expected = "one of Circle, Square (to use your package, add --allow-import mypkg to the command line)"
    row = ("0.yaml:2", "shape.class_path", "'mypkg.shapes.Ring' is not allowed", expected)
    assert read(RING)[1] == [row]
    allow_imports("mypkgs")
    assert read(RING)[1] == [row]  # mypkgs is another package than mypkg
    assert "mypkg" not in sys.modules
    allow_imports("mypkg")
    assert "mypkg.shapes" not in sys.modules
    settings, problems = read(RING)
    assert problems == [] and Path("imported").read_text() == "shapes "
    shape = settings.arguments["shape"]
    assert (type(shape).__module__, shape.radius, shape.hole) == ("mypkg.shapes", 2.0, 3)
    assert settings.plain["shape"] == {"class_path": "mypkg.shapes.Ring", "init_args": {"radius": 2.0, "hole": 3}}
    saved = dump_yaml({"shape": settings.plain["shape"]})
    assert read(saved)[0].arguments["shape"] == shape
    allow_imports(None)  # an imported package is not allowed either
    assert read(saved)[1][0][2].endswith("is not allowed")


def test_the_flag_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("use.yaml").write_text(f"source: source.txt\n{RING}")
    allow = ["--allow-import", "mypkg"]
    assert main(["use", "-c", "use.yaml", "--out", "one"]) == 2
    assert main(["use", "-c", "use.yaml", "--out", "one", *allow]) == 0
    assert main(["use", "-c", "one/config.yaml", "--out", "two"]) == 2  # what one run was allowed, the next is not
    assert main(["use", "-c", "one/config.yaml", "--out", "two", *allow]) == 0
    assert json.loads(Path("two/run.json").read_text())["config"]["shape"]["class_path"] == "mypkg.shapes.Ring"
    assert Path("one/arguments.txt").read_text() == Path("two/arguments.txt").read_text()
    Path("recipe.yaml").write_text(f"out: run\nstages: {{use: {{source: source.txt, {RING.strip()}}}}}\n")
    assert main(["run", "recipe.yaml"]) == 2
    assert "recipe.yaml:2: stages.use.shape.class_path: 'mypkg.shapes.Ring' is not allowed" in capsys.readouterr().err
    assert main(["run", "recipe.yaml", *allow]) == 0
    assert main(["use", "--shape.help", "mypkg.shapes.Ring", *allow]) == 0
    assert "--shape.hole HOLE" in capsys.readouterr().out
    assert main(["use", "--shape.help", "mypkg.shapes.Ring"]) == 2
    assert main(["use", "--allow-import"]) == 2


@pytest.mark.parametrize("module", ["mypkg", "mypkg.shapes", "json,mypkg"])
def test_a_package_or_a_module_may_be_allowed(module: str) -> None:
    allow_imports(module)
    assert read(RING)[1] == []
    assert allow_import_arguments() == ["--allow-import", module]
    allow_imports(None)
    assert allow_import_arguments() == []


def test_the_configurations_of_an_allowed_package_are_imported_with_it() -> None:
    """Model folders name families, tasks and kinds of vocabulary, which must be registered before they are read."""
    Path("mypkg/ring/parts").mkdir(parents=True)
    for name in ("ring/config.py", "ring/parts/hole_config.py", "ring/model.py", "ring/parts/configs.py"):
        Path("mypkg", name).write_text("")
    allow_imports("mypkg")
    found = {name for name in sys.modules if name.startswith("mypkg.")}
    assert found == {"mypkg.ring", "mypkg.ring.config", "mypkg.ring.parts", "mypkg.ring.parts.hole_config"}
    Path("mypkg/ring/last_config.py").write_text("1 / 0")
    with refused(problem="--allow-import: mypkg.ring.last_config cannot be imported:..."):
        allow_imports("mypkg")


def test_only_what_lies_below_the_allowed_module() -> None:
    allow_imports("mypkg.shapes")
    _, problems = read("shape: {class_path: mypkg.broken.Ring}\n")
    assert [row[2] for row in problems] == ["'mypkg.broken.Ring' is not allowed"]
    assert "mypkg.broken" not in sys.modules


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mypkg.shapes.Nothing", "mypkg.shapes.Nothing: not a subclass of fake_stages.Shape"),
        ("mypkg.shapes.function", "mypkg.shapes.function: not a subclass of fake_stages.Shape"),
        ("mypkg.shapes.Other", "mypkg.shapes.Other: not a subclass of fake_stages.Shape"),
        ("mypkg.shapes.Abstract", "mypkg.shapes.Abstract: not a subclass of fake_stages.Shape that implements all"),
        ("mypkg.shapes.Bare", "mypkg.shapes.Bare: not a dataclass"),
        (
            "mypkg.shapes.Unknown",
            "mypkg.shapes.Unknown: the type of a field is unknown (name 'Nowhere' is not defined)",
        ),
        ("mypkg.broken.Ring", "mypkg.broken cannot be imported: ZeroDivisionError: division by zero"),
        ("mypkg.none.Ring", "mypkg.none cannot be imported: ModuleNotFoundError: No module named 'mypkg.none'"),
        ("mypkg..Ring", "'mypkg..Ring' is not allowed"),
        ("mypkg.shapes.os.system", "mypkg.shapes.os cannot be imported: ModuleNotFoundError"),
    ],
)
def test_what_is_allowed_has_to_be_a_configuration(name: str, message: str) -> None:
    allow_imports("mypkg")
    _, problems = read(f"shape: {{class_path: {name}}}\n")
    ((place, where, problem, _),) = problems
    assert place == "0.yaml:2" and f"{where}: {problem}".startswith(f"shape.class_path: {message}")
    assert not Path("imported").exists() or Path("imported").read_text() == "shapes "


def test_a_class_of_the_same_name_is_another_class() -> None:
    allow_imports("mypkg")
    other = "shape: {class_path: mypkg.shapes.Circle}\n"
    settings, problems = read("shape: {class_path: Circle, radius: 5}\n", other)
    assert problems == [] and settings.arguments["shape"].radius == 9.0  # nothing of the first one stays
    assert read(other, "shape: {class_path: mypkg.shapes.Circle, radius: 5}\n")[0].arguments["shape"].radius == 5.0
    settings, _ = read(other, "shape: {class_path: Circle}\n")
    assert type(settings.arguments["shape"]).__module__ == "fake_stages"


@pytest.mark.parametrize("names", ["", "a,", "../x", "a b", "*", "a..b", "1a", "a-b"])
def test_what_cannot_be_allowed(names: str) -> None:
    with refused(where="--allow-import", found="'...'", expected="packages..."):
        allow_imports(names)


def test_a_module_that_cannot_be_imported_is_told_at_once() -> None:
    with refused(
        problem="--allow-import: nowhere cannot be imported...", hint="install it or add its folder to PYTHONPATH"
    ):
        allow_imports("nowhere")
    with refused(problem="--allow-import: mypkg.broken cannot be imported: ZeroDivisionError..."):
        allow_imports("mypkg.broken")
    assert find_choice(EncoderConfig, "mypkg.broken.X") is None


def test_classes_elsewhere_are_no_choices_though_they_are_imported() -> None:
    class Stray(EncoderConfig):
        model_type, max_length = "stray", 8

    choices_of.cache_clear()
    assert "Stray" not in choices_of(EncoderConfig) and Stray in EncoderConfig.__subclasses__()


def test_a_class_may_be_named_in_snake_case() -> None:
    for name, expected in {
        "byte_bpe": ByteBPE,
        "wordpiece": WordPiece,
        "word_piece": WordPiece,
        "Byte_BPE": None,
        "byte-bpe": None,
        "kinds.byte_bpe": None,
    }.items():
        assert find_choice(TokenizerKindConfig, name) is expected
    assert type(read("shape: {class_path: circle}\n")[0].arguments["shape"]).__name__ == "Circle"
    assert type(read("shape: circle\n")[0].arguments["shape"]).__name__ == "Circle"
