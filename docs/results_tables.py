"""Write the tables of results.md and results-appendix.md from benchmarks/results/quality/*.json.

    python docs/results_tables.py

The pages have regions: `<!-- table: NAME -->` is the table of NAME.json without its details, `<!-- all: NAME -->` the
whole table, `<!-- command: NAME -->` the commands that produce it; `<!-- end -->` ends a region. A file has

- `metric`, `interval`, `seeds`, `config`, `command` (lines), `date` and `commit` of the first report of the numbers;
- `columns`: `name`, the `format` and `unit` of numbers (neither for text), `detail` for the appendix only;
- `rows`: text or `{"value": ..., "interval": [low, high]}` by column, without the empty cells; `signed` for a row of
  differences, `detail` for the appendix only.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
DATA = DOCS.parent / "benchmarks/results/quality"
PAGES = [DOCS / "results.md", DOCS / "results-appendix.md"]
REGION = re.compile(r"<!-- (table|all|command): ([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)


def read(name: str) -> dict[str, Any]:
    """The content of a file of results."""
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def rewrite(page: str) -> str:
    """The page with the content of its regions replaced."""
    return REGION.sub(lambda region: _region(region[1], region[2]), page)


def _region(kind: str, name: str) -> str:
    results = read(name)
    content = _command(results) if kind == "command" else _table(results, details=kind == "all")
    return f"<!-- {kind}: {name} -->\n\n{content}\n\n<!-- end -->"


def _command(results: dict[str, Any]) -> str:
    return "\n".join(["```sh", *results["command"], "```"])


def _table(results: dict[str, Any], details: bool) -> str:
    columns = [column for column in results["columns"] if details or "detail" not in column]
    rows = [row for row in results["rows"] if details or "detail" not in row]
    head = f"| {' | '.join(column['name'] for column in columns)} |\n|{'---|' * len(columns)}"
    cells = [[_cell(column, row) for column in columns] for row in rows]
    return "\n".join([head, *("|" + "".join(f" {text} |" if text else " |" for text in line) for line in cells)])


def _cell(column: dict[str, Any], row: dict[str, Any]) -> str:
    cell = row.get(column["name"], "")
    if isinstance(cell, str):
        return cell
    format = f"+{column['format']}" if "signed" in row else column["format"]
    text = f"{cell['value']:{format}}{column.get('unit', '')}"
    return f"{text} [{', '.join(f'{end:{format}}' for end in cell['interval'])}]" if "interval" in cell else text


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(rewrite(page.read_text(encoding="utf-8")), encoding="utf-8")
