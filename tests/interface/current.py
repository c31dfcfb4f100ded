"""The current names of the interface: in Python, in YAML, and in the folders of a run."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING
from pathlib import Path
from typing import Any, get_args, get_type_hints

import domainbert
from domainbert.base.choices import as_plain, choices_of, is_choice
from domainbert.base.fields import field_types, strip_ranges
from domainbert.base.files import RUN
from domainbert.runner.stage_table import STAGES, load_stage
from domainbert.settings.schema import defaults_of, is_group
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.task import task_class
from domainbert.tuning.config import TuneConfig

METHODS = ["as_json", "encode", "from_pretrained", "labelled", "predict", "predict_entities", "predict_spans"]
METHODS += ["predict_texts", "predict_words", "predictor", "push_to_hub", "record_loss", "save", "save_pretrained"]
"""Methods and properties that README and the guides use; other methods override Lightning's, or serve other classes."""

# JSON of other libraries; keys whose content is internal or listed elsewhere; keys of mappings from names in the data
_THEIRS = {"config.json", "dataset_dict.json", "dataset_info.json", "special_tokens_map.json", "state.json"}
_THEIRS |= {"tokenizer.json", "tokenizer_config.json"}
_OPAQUE = {"history", "made_from", "other_files", "outputs", "parts", "plans", "stages"}
_BY_NAME = re.compile(r"\b(data|corpora|labels|probabilities|slices|systems|\w+_by_seed|(by|per)_\w+)$")
_ANY_NAME = {r"seed-\d+": "seed-*", r"^(cards|mistakes|predictions)/[^/]+/": r"\1/*/"}


def public_names() -> list[str]:
    """Return the public names with their parameters, and `METHODS` of their classes and of predictors."""
    values = {name: getattr(domainbert, name) for name in domainbert.__all__}
    predictors = [task_class(config).predictor for config in choices_of(TaskConfig).values()]
    names = [name + (_parameters(value) if callable(value) else "") for name, value in values.items()]
    for cls in [*predictors, *(value for value in values.values() if isinstance(value, type))]:
        for name in [name for name in METHODS if hasattr(cls, name)]:
            member = getattr(cls, name)
            names.append(f"{cls.__name__}.{name}" + (_parameters(member) if callable(member) else ""))
    return names


def _parameters(function: Any) -> str:
    """Return the parameters of a function: `(text, *, size=)`, where `=` means any default."""
    words, previous = [], inspect.Parameter.POSITIONAL_OR_KEYWORD
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and previous is parameter.POSITIONAL_OR_KEYWORD:
            words.append("*")
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        words.append(stars + name + ("" if parameter.default is parameter.empty else "="))
        previous = parameter.kind
    return f"({', '.join(word for word in words if word != 'self')})"


def settings() -> list[str]:
    """Return the keys of every stage and of `tune`, and the keywords of public classes, with their defaults.

    A class below a key, such as those that `task` selects from, is listed once, by its name.
    """
    queue: list[tuple[str, type]] = [("tune", TuneConfig), *((name, load_stage(name).settings) for name in STAGES)]
    for name in domainbert.__all__:  # such as FineTuning(..., settings: FineTuningSettings | None, **changes)
        value = getattr(domainbert, name)
        if callable(value) and "settings" in inspect.signature(value).parameters:
            queue += [(name, cls) for cls in _groups(get_type_hints(value.__init__)["settings"])]
    names: dict[str, None] = {}
    for owner, cls in queue:  # grows on the way
        if is_choice(cls):
            inner = [(f"{owner}.{name}", choice) for name, choice in choices_of(cls).items()]
            names |= dict.fromkeys(name for name, _ in inner)
        else:
            inner = [(group.__name__, group) for hint in field_types(cls).values() for group in _groups(hint)]
            names |= {f"{owner}.{name} = {_default(value)}": None for name, value in defaults_of(cls).items()}
        queue += [pair for pair in dict.fromkeys(inner) if pair not in queue]
    return list(names)


def _groups(hint: Any) -> Iterator[type]:
    """Yield the settings classes in a type: the type itself, its items, the members of a union, and so on."""
    hint = strip_ranges(hint)
    if is_group(hint):
        yield hint
    for member in get_args(hint):
        yield from _groups(member)


def _default(value: Any) -> str:
    return "required" if value is MISSING else json.dumps(as_plain(value, defaults=False), ensure_ascii=False)


def metric_names(logged: Iterable[str]) -> list[str]:
    """Return names of metrics; labels, as in `test/f1/LOC`, are `*`."""
    return [re.sub(r"^test/(f1|precision|recall|support)/.+", r"test/\1/*", name) for name in logged]


def files_of(folder: Path, pattern: str) -> list[str]:
    """Return the files in a folder; names from the data, such as seeds and systems, are `*`."""
    return [_general(path.relative_to(folder)) for path in folder.glob(pattern) if path.is_file()]


def keys_of(folder: Path, pattern: str) -> list[str]:
    """Return the keys of the JSON files in a folder: `metrics.json systems.*.f1`; of `run.json`, which all stages have,
    only the keys of the metrics."""
    keys = set()
    for path in folder.glob(pattern):
        if path.suffix in (".json", ".jsonl") and path.name not in _THEIRS:
            text = path.read_text(encoding="utf-8")
            values = [json.loads(line) for line in (text.splitlines() if path.suffix == ".jsonl" else [text])]
            below = "metrics." if path.name == RUN else ""
            keys |= {f"{_general(path.relative_to(folder))} {key}" for key in _keys(values) if key.startswith(below)}
    return sorted(keys)


def _keys(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _keys(item, f"{path}[]" if path else "")
    elif isinstance(value, dict):
        for name, item in value.items():
            key = f"{path}.{'*' if _BY_NAME.search(path) else name}".lstrip(".")
            yield key
            yield from _keys(item, key) if name not in _OPAQUE else ()


def _general(path: Path) -> str:
    text = path.as_posix()
    for pattern, replacement in _ANY_NAME.items():
        text = re.sub(pattern, replacement, text)
    return text
