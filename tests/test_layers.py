"""Who may import whom, read from the source of every module."""

from __future__ import annotations

import ast
import graphlib
import json
import subprocess
import sys
from collections.abc import Iterator

from domainbert.runner.stage_table import STAGES
from tests.package_source import ROOT, dotted_name, nodes, trees

LIBRARY = {
    0: "base",
    1: "corpus samples",
    2: "labelled",
    3: "tokenization encoders metrics",
    4: "models data",
    5: "training",
    6: "pretraining tasks",
    7: "serving",
    8: "distillation",
}
"""Importable without YAML, stages or run folders."""
EXPERIMENT = {
    9: "settings",
    10: "checks report",
    11: "stages",
    12: "runner",
    13: "tuning",
    14: "cli __main__",
}
LAYERS = LIBRARY | EXPERIMENT
LAYER_OF = {name: number for number, names in LAYERS.items() for name in names.split()}
HEAVY = ("torch", "lightning", "datasets", "pyarrow", "numpy", "transformers", "pandas")
KNOW_LIGHTNING = ("training", "pretraining", "tasks", "distillation", "stages")


def modules() -> dict[str, ast.Module]:
    """Dotted names below `domainbert` to syntax trees."""
    return {dotted_name(path).removesuffix(".__init__"): tree for path, tree in trees().items()}


def imports(tree: ast.Module, types: bool = True) -> Iterator[str]:
    """Everything a module imports, anywhere in it, as dotted names; without `types` nothing that only types need."""
    only_types: set[ast.AST] = set()
    for node in tree.body:
        if not types and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            only_types |= set(ast.walk(node))
    for node in nodes(tree):
        if node in only_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_all_modules_are_found_and_have_a_layer() -> None:
    found = modules()
    assert len(found) >= 95
    assert {"cli", "corpus.config", "encoders.bert.config", "stages.vocab", "settings.yaml_files"} <= set(found)
    top = {name.split(".")[0] for name in found if name != "__init__"}
    assert top == set(LAYER_OF)


def test_imports_go_down_or_stay_in_their_folder() -> None:
    wrong, seen = [], 0
    for module, tree in modules().items():
        own = module.split(".")[0]
        for name in imports(tree):
            parts = name.split(".")
            if parts[0] != "domainbert" or module == "__init__" or parts[1:2] == ["__version__"]:
                continue
            seen += 1
            other = parts[1]
            same_folder = own == other or (module == own and (ROOT / f"{other}.py").is_file())
            if LAYER_OF[other] > LAYER_OF[own] or (LAYER_OF[other] == LAYER_OF[own] and not same_folder):
                wrong.append(f"{module} (layer {LAYER_OF[own]}) imports {name} (layer {LAYER_OF[other]})")
    assert seen > 200
    assert wrong == []


def test_no_two_modules_import_each_other() -> None:
    """Whether at their top or inside a function; what only a type checker reads makes no circle."""
    found, graph = modules(), {}
    for module, tree in found.items():
        parts = [name.removeprefix("domainbert.").split(".") for name in imports(tree, types=False)]
        names = {".".join(part[:-1]) if ".".join(part) not in found else ".".join(part) for part in parts}
        graph[module] = {name for name in names if name in found and name != module}
    assert sum(map(len, graph.values())) > 500
    list(graphlib.TopologicalSorter(graph).static_order())


def test_only_training_code_knows_lightning() -> None:
    users = {module for module, tree in modules().items() if any(n.split(".")[0] == "lightning" for n in imports(tree))}
    assert "training.data_module" in users
    assert [user for user in users if user.split(".")[0] not in KNOW_LIGHTNING] == ["settings.trainer_arguments"]


def test_tokenization_and_configuration_are_free_of_torch() -> None:
    light = [m for m in modules() if m.startswith(("tokenization.", "corpus.", "labelled.")) or m.endswith("config")]
    assert len(light) >= 10
    wrong = {m: n for m in light for n in imports(modules()[m]) if n.split(".")[0] in ("torch", "lightning")}
    assert wrong == {}


def test_command_line_and_stages_import_nothing_heavy() -> None:
    names = [
        "domainbert.cli",
        "domainbert.runner.stage_command",
        "domainbert.runner.recipe",
        "domainbert.tuning.command",
    ]
    names += [target.partition(":")[0] for target in STAGES.values()]
    assert len(names) == 17
    code = (
        "import importlib, json, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == []


def test_labelled_files_are_read_without_anything_heavy() -> None:
    names = [f"domainbert.{module}" for module in modules() if module.startswith("labelled.")]
    assert len(names) >= 10
    code = (
        "import importlib, json, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == []


INTERNALS = ("training.lightning_internals", "tuning.trials", "encoders.torch_internals")
PUBLIC = {"_fields", "_replace", "_asdict", "_make", "_exit"}  # of named tuples, and os._exit


def private_names(tree: ast.Module) -> Iterator[str]:
    """Names with a leading underscore that are taken from other objects than `self`, or imported from the libraries."""
    for node in nodes(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            if node.attr not in PUBLIC and ast.unparse(node.value) not in ("self", "cls", "super()"):
                yield ast.unparse(node)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(("lightning", "optuna")):
            names = [part for one in node.names for part in f"{node.module}.{one.name}".split(".")]
            yield from (name for name in names if name.startswith("_"))


def test_what_is_private_to_a_library_stands_in_one_file() -> None:
    found = {module: list(private_names(tree)) for module, tree in modules().items()}
    assert {"strategy._ddp_kwargs", "trainer._checkpoint_connector"} <= set(found[INTERNALS[0]])
    assert {"trial._trial_id"} == set(found[INTERNALS[1]])
    operator, marker = "torch.ops.aten._flash_attention_forward", "has_flash._dynamo_marked_constant"
    assert {operator, marker, "torch._disable_dynamo"} == set(found[INTERNALS[2]])
    assert {module: names for module, names in found.items() if names and module not in INTERNALS} == {}
    inside = [dotted_name(path) for path in trees() if "fit_loop" in (ROOT / path).read_text(encoding="utf-8")]
    assert inside == [INTERNALS[0]], "the insides of Lightning's loops"
