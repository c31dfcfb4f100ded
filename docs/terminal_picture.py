"""Draws the output of a command as SVG without external resources: the pictures of README and docs/.

COLUMNS=100 python docs/terminal_picture.py docs/pictures/runs.svg domainbert runs
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_SIZE, _CHARACTER, _LINE, _MARGIN = 14, 8.43, 20, 20  # pixels; a character of most monospaced fonts is 0.6 of the size


def terminal(lines: Sequence[str]) -> str:
    """Return lines of a terminal as SVG; lines that begin with `$` are commands."""
    width, height = round(_MARGIN * 2 + _CHARACTER * max(map(len, lines))), _MARGIN * 2 + _LINE * len(lines)
    rows = [_row(line, _MARGIN + _LINE * number + _SIZE) for number, line in enumerate(lines)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
            f"<title>{escape(lines[0])}</title>",
            '<rect width="100%" height="100%" rx="8" fill="#1e2127"/>',
            f'<g font-family="{_FONT}" font-size="{_SIZE}" fill="#dcdfe4">',
            *rows,
            "</g>",
            "</svg>\n",
        ]
    )


def _row(line: str, y: int) -> str:
    """Return a line of text as SVG, with an explicit length, so that columns align in every font."""
    if not line:
        return ""
    colour = ' fill="#98c379"' if line.startswith("$") else ""
    length = f'textLength="{_CHARACTER * len(line):.1f}" lengthAdjust="spacingAndGlyphs"'
    kept = escape(line).replace(" ", "\u00a0")  # SVG makes one of several spaces
    return f'<text x="{_MARGIN}" y="{y}" {length}{colour}>{kept}</text>'


def main(file: str, *command: str) -> None:
    """Run a command, and draw the command and its output."""
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [f"$ {shlex.join(command)}", *printed.rstrip("\n").splitlines()]
    Path(file).write_text(terminal(lines), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
