"""Mutation testing: changes the package in hundreds of small wrong ways and says which of them no fast test notices.

    python tests/mutants                      judges a sample; resumes where it was interrupted
    python tests/mutants --list               prints the sample
    python tests/mutants --show 'NAME'        prints a mutant's diff

A mutant that the tests beside its module miss is given to the tests further off, too (`table.py`). One that no test can
notice because it computes the same is listed in `equivalent.json` with the reason, and does not count. The sample is
drawn by names that other changes of a module leave alone, so that it stays the same from release to release.

mutmut 3 was tried: it changes neither properties and other decorated functions nor constants of a module, its mutants
have numbers that shift with every edit, half of its survivors are wrong messages, and tests that start processes do
not see its mutants.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from judging import PACKAGE, ROOT, Slot, import_once, judge, passes
from mutations import Mutant, mutants
from table import TESTS

EQUIVALENT = Path(__file__).with_name("equivalent.json")
FLOOR = 0.92
Results = dict[str, dict[str, Any]]


def main() -> int:
    """Judge, report; 1 if the share that is noticed is below the floor."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs is ended, too
    options = parse()
    chosen = sample(options.sample, options.seed, options.only)
    if options.list or options.show:
        for mutant in chosen:
            if options.list:
                print(f"{mutant.line:4d} {mutant.name}")
            elif options.show in mutant.name:
                print(mutant.name, diff(mutant), sep="\n")
        return 0
    results: Results = json.loads(options.results.read_text()) if options.results.is_file() else {}
    work(chosen, results, options)
    return report(chosen, results, options.results)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tests/mutants", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--sample", type=int, default=250, help="how many mutants at most, drawn from all modules or --only"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--only", default="", help="modules whose path contains this")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no mutant after this time")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "mutants.json", help="where they are kept")
    parser.add_argument("--list", action="store_true", help="print the sample and judge nothing")
    parser.add_argument("--show", help="print the mutants whose name contains this and judge nothing")
    return parser.parse_args()


def sample(size: int, seed: int, only: str) -> list[Mutant]:
    """The mutants to judge, by module and line."""
    everything = []
    for module in (one for one in TESTS if only in one):
        everything += mutants(module, (ROOT / PACKAGE / module).read_text(encoding="utf-8"))
    drawn = sorted(everything, key=lambda one: one.rank(seed))[:size]
    return sorted(drawn, key=lambda one: (one.module, one.line, one.name))


def work(chosen: Sequence[Mutant], results: Results, options: argparse.Namespace) -> None:
    """Judge what has no verdict yet: first by the tests beside the module, then by those further off."""
    suites = {module: suite(module) for module in TESTS}
    end = time.monotonic() + 60 * options.minutes
    import_once()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        slots = [Slot(Path(folder) / str(number)) for number in range(max(options.jobs, 1))]
        for distance in (0, 1):
            groups: dict[tuple[str, ...], list[Mutant]] = {}
            for mutant in chosen:
                tests = TESTS[mutant.module][distance]
                if tests and is_open(results.get(mutant.name), mutant, suites[mutant.module], distance):
                    groups.setdefault(tests, []).append(mutant)
            number, total, begun = 0, sum(map(len, groups.values())), time.monotonic()
            print(f"{total} mutants, tests {('beside', 'further off')[distance]}", flush=True)
            for tests, group in groups.items():
                if time.monotonic() > end:
                    return
                seconds = passes(slots[0], tests)
                for mutant, verdict, took in judge(group, tests, seconds, slots, lambda: time.monotonic() > end):
                    number += 1
                    facts = {"verdict": verdict, "source": digest(mutant.source), "line": mutant.line}
                    results[mutant.name] = facts | {"suite": suites[mutant.module], "distance": distance}
                    save(results, options.results)
                    rest = (time.monotonic() - begun) / number * (total - number)
                    done = f"{number}/{total} {verdict:8} {took:5.1f} s, {rest / 60:.0f} min left"
                    print(f"{done}: {mutant.name}", flush=True)


def suite(module: str) -> str:
    """A hash of the tests of a module."""
    chosen = [ROOT / "tests" / "conftest.py", *(ROOT / one for tests in TESTS[module] for one in tests)]
    files = [file for one in chosen for file in (sorted(one.rglob("*.py")) if one.is_dir() else [one])]
    return digest(*(file.read_text(encoding="utf-8") for file in files))


def is_open(known: dict[str, Any] | None, mutant: Mutant, suite: str, distance: int) -> bool:
    """Whether a mutant is still to be judged: a survivor again when the tests have changed."""
    if mutant.name in equivalent():
        return False
    if known is None or known["source"] != digest(mutant.source):
        return distance == 0
    if known["verdict"] != "survived":
        return False
    return known["suite"] != suite if distance == 0 else known["suite"] == suite and known["distance"] < distance


def equivalent() -> dict[str, str]:
    """Names of mutants that compute the same, and why."""
    found: dict[str, str] = json.loads(EQUIVALENT.read_text(encoding="utf-8"))
    return found


def save(results: Results, path: Path) -> None:
    """Write the results; a reader finds the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(results, indent=1, sort_keys=True), encoding="utf-8")
    partial.replace(path)


def report(chosen: Sequence[Mutant], results: Results, path: Path) -> int:
    """Print the survivors and the share that is noticed, also as a table beside the results."""
    same = equivalent()
    counted = [one for one in chosen if one.name in results and one.name not in same]
    survivors = [one for one in counted if results[one.name]["verdict"] == "survived"]
    lines = [f"| {one.module}:{one.line} | `{one.change.replace('|', chr(92) + '|')}` |" for one in survivors]
    share = 1 - len(survivors) / max(len(counted), 1)
    waiting = len(chosen) - len(counted) - sum(one.name in same for one in chosen)
    summary = (
        f"{len(counted) - len(survivors)} of {len(counted)} mutants noticed ({share:.1%}; at least {FLOOR:.0%} "
        f"expected); {sum(one.name in same for one in chosen)} equivalent, {waiting} not judged"
    )
    path.with_suffix(".md").write_text("\n".join(["| survived | change |", "|---|---|", *lines, "", summary, ""]))
    print(*[f"survived: {one.name} (line {one.line})" for one in survivors], summary, sep="\n")
    return int(share < FLOOR or waiting > 0)


def diff(mutant: Mutant) -> str:
    """The lines that a mutant changes."""
    import ast

    old = ast.unparse(ast.parse((ROOT / PACKAGE / mutant.module).read_text(encoding="utf-8")))
    lines = difflib.unified_diff(old.splitlines(), mutant.source.splitlines(), lineterm="", n=1)
    return "\n".join(list(lines)[2:])


def digest(*texts: str) -> str:
    """A short hash of texts."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


if __name__ == "__main__":
    raise SystemExit(main())
