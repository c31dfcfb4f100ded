"""The seal of a stage folder: what it was made from. Its key tells whether the folder is up to date."""

from __future__ import annotations

import json
import platform
import subprocess
import uuid
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from domainbert.base.hashes import FileHashes, hash_json
from domainbert.base.marks import BY_INPUT, ORDERED, SPEED_ONLY
from domainbert.base.ranks import launch_id, started_together
from domainbert.runner.stage_table import Stage
from domainbert.settings.deciding import named_content, without, without_speed, without_unknown
from domainbert.settings.reader import Settings, replace_strings
from domainbert.settings.schema import marked

_SHOWN = 40  # characters of a value in a message
_PACKAGES = ("domainbert", "torch", "lightning", "tokenizers", "datasets", "numpy")


def make_seal(
    stage: Stage,
    settings: Settings,
    hashes: FileHashes,
    stage_keys: Mapping[str, str],
    known: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything that decides what a stage writes, as plain values; `hash_json` of it is the stage's key.

    Settings that change only the speed are left out. Input files count by name and content, wherever they lie; those of
    a folder or pattern in their order, and the pattern as it is written; earlier stages by their own keys. A stream has
    no content that could count: each reading of it is a new one, the same for all processes of one launch.

    `known` is the seal that the folder of the stage has, if any. If nothing differs from it but settings that came with
    a later version, and have their defaults, that seal is the one: an update of domainbert does not run finished stages
    again.
    """
    inputs = {str(path): hashes.of(path) for path in settings.inputs}
    for path in settings.streams:
        inputs[str(path)] = f"stream {launch_id() if started_together() > 1 else uuid.uuid4().hex}"
    by_content = {path: named_content(path, digest) for path, digest in inputs.items()}
    config = without_speed(settings.plain, marked(stage.settings, SPEED_ONLY))
    config = replace_strings(config, {**by_content, **settings.references})
    stages = {name: stage_keys[name] for name in referred_stages(settings)}
    seal = {"stage": stage.name, "config": config, "inputs": inputs, "stages": stages}
    if order := {name: list(settings.plain[name]) for name in marked(stage.settings, ORDERED)}:
        seal["order"] = order
    if known is None or known["stage"] != stage.name:
        return seal
    as_then = in_terms_of(known, seal, settings)
    same = seal_key(as_then) == seal_key(known) or changed_parts(stage.parts, known, as_then)
    return as_then if same else seal


def in_terms_of(known: Mapping[str, Any], seal: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """A seal without what a `known` one, of an older version, could not have: settings that have their defaults, and
    the order of others."""
    config = without_unknown(seal["config"], settings.instance, known["config"])
    if known["config"].get("trainer") == {} and config.get("trainer", {}) is None:  # an older version told them apart
        config = {**config, "trainer": {}}
    found = {**known, **seal, "config": config}
    return found if "order" in known else {name: value for name, value in found.items() if name != "order"}


def seal_key(seal: Mapping[str, Any]) -> str:
    """The key of a stage: SHA-256 of the seal, in which the folders of inputs do not count. What says no more than the
    settings do is left out: inputs that are named there, and mappings in alphabetical order."""
    counted = {name: value for name, value in seal.items() if name != "order"}
    listed = [named_content(path, seal["inputs"][path]) for path in _listed(seal)]
    order = {name: keys for name, keys in seal.get("order", {}).items() if keys != sorted(keys)}
    further = {name: value for name, value in {"listed": listed, "order": order}.items() if value}
    return hash_json({**counted, "inputs": sorted(seal["inputs"].values()), **further})


def _listed(seal: Mapping[str, Any]) -> list[str]:
    """The inputs that settings do not name one by one: those of a folder or pattern."""
    named = json.dumps(seal["config"], ensure_ascii=False)
    return [path for path, digest in seal["inputs"].items() if named_content(path, digest) not in named]


def changed_parts(parts: str | None, old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, bool] | None:
    """The change in words, and whether parts are dropped, if nothing but the parts of a stage differs in two seals.

    `parts` is the setting that lists them (`Stage.parts`).
    """
    listed = [seal.get("config", {}).get(parts) for seal in (old, new)]
    if parts is None or not all(isinstance(one, list) for one in listed):
        return None
    keys = {seal_key({**seal, "config": without(seal["config"], [parts])}) for seal in (old, new)}
    if len(keys) > 1:
        return None
    before, after = listed
    kinds = {
        "new": [one for one in after if one not in before],
        "dropped": [one for one in before if one not in after],
        "kept": [one for one in after if one in before],
    }
    words = "; ".join(f"{kind} {', '.join(map(str, those))}" for kind, those in kinds.items() if those)
    return f"{parts}: {words}", bool(kinds["dropped"])


def changed_inputs(stage: Stage, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The change in words if nothing but input files differs in two seals of a stage that makes its output file by
    file; else empty."""
    by_input = any(new["config"].get(name) is not None for name in marked(stage.settings, BY_INPUT))
    same = by_input and len({_without_contents(seal) for seal in (old, new)}) == 1
    return "; ".join(differences(old, new)) or "input files changed" if same else ""


def _without_contents(seal: Mapping[str, Any]) -> str:
    """All of a seal but the contents of input files."""
    text = json.dumps([seal.get("stage"), seal["config"], seal.get("stages", {})], sort_keys=True)
    for digest in seal["inputs"].values():
        text = text.replace(digest, "")
    return text


def referred_stages(settings: Settings) -> list[str]:
    """Names of the earlier stages that settings refer to, sorted."""
    return sorted({stage_of(reference) for reference in settings.references.values()})


def stage_of(reference: str) -> str:
    """The stage that a reference names: `vocab` for `@vocab/vocab.txt`."""
    return reference.removeprefix("@").partition("/")[0]


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The differences between two seals in words."""
    changed = [f"stage {old.get('stage')} is now {new['stage']}"] if old.get("stage") != new["stage"] else []
    before, after = _flat(old.get("config", {})), _flat(new["config"])
    keys = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    changed += [_difference(key, before.get(key), after.get(key)) for key in keys]
    stages = old.get("stages", {})
    changed += [f"@{name} changed" for name, key in new["stages"].items() if stages.get(name, key) != key]
    before, after = old.get("inputs", {}), new["inputs"]  # those that settings name were compared already
    changed += [f"{path} changed" for path in _listed(new) if path in before and before[path] != after[path]]
    orders = old.get("order", {})
    changed += [f"order of {name} changed" for name, keys in new.get("order", {}).items() if orders.get(name) != keys]
    return changed


def _difference(key: str, before: Any, after: Any) -> str:
    """One difference in words, with the values if they are numbers or names; an input is known by its hash only."""
    values = [None if value is None else str(value) for value in (before, after)]
    plain = all(not isinstance(value, (dict, list)) for value in (before, after))
    if not plain or any(value is not None and len(value) > _SHOWN for value in values):
        return f"{key} changed"
    return f"{key} was {values[0] or 'not set'}, is now {values[1] or 'not set'}"


def versions() -> dict[str, str | None]:
    """Versions of Python and of the packages that matter, without importing them."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def git_commit() -> str | None:
    """The commit of the current folder; None outside a repository or without git."""
    try:
        command = ["git", "rev-parse", "HEAD"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def _flat(config: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(config, dict) and config:
        return {key: value for name in config for key, value in _flat(config[name], f"{prefix}{name}.").items()}
    return {prefix.rstrip(".").replace(".init_args", ""): config}
