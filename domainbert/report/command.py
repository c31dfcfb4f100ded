"""`domainbert report`: one page for a run or several, and the page that `domainbert run` leaves behind."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from domainbert.base.errors import DomainbertError
from domainbert.base.paths import check_whole
from domainbert.settings.command_line import Typed

FILE = "report.html"

FLAGS = {"out": "one", "attend": "one", "allow_import": "one"}
HELP = """\
usage: domainbert report RUN... [--out FILE]
       domainbert report MODEL --attend TEXT [--out FILE]

Write one page of HTML about a run, or several side by side: which system is better and by how much, learning curves,
scores against cost, the worst mistakes, data, settings. It is one file, reads without a network, and shows what is
there: nothing is trained or predicted for it. Systems of several runs are compared where the test set is the same.

  RUN          a folder that domainbert run has written, or that of a single stage
  --out FILE   where the page goes; report.html in the folder, where there is one RUN

With --attend the page is about one text and how the model in the folder MODEL reads it: which words made each label
that it predicts (this needs pip install 'domainbert[attribution]'), and where every attention head looks.

  --attend TEXT       at most 64 pieces of the vocabulary, special tokens included, to see where heads look
  --out FILE          attention.html in the current folder, unless it is told
  --allow-import PKG  let the model be of a family or a task in these packages of yours (PKG,PKG)
"""

_FEWER = (50, 20, 5, 0)  # mistakes of each system, until the page is small enough


def help_text() -> str:
    """Text of `domainbert report --help`."""
    return HELP


def perform(typed: Typed) -> int:
    """Write the page and print where; raises as `report`."""
    print(report(typed))
    return 0


def report(typed: Typed) -> str:
    """Write the page that the command line asks for, and return the closing line.

    Raises:
        DomainbertError: no run, or one that is not there; several without `--out`; an option that there is not.
    """
    folders = [Path(word) for word in typed.words]
    if typed.options or typed.files:
        name = typed.options[0][0] if typed.options else "-c"
        raise DomainbertError(f"--{name.lstrip('-')}: no such option of report; expected --out FILE or --attend TEXT")
    if "attend" in typed.flags:
        return _attend(typed)
    if not folders:
        raise DomainbertError("report: expected the folder of a run: domainbert report RUN... [--out FILE]")
    out = typed.flags.get("out")
    if len(folders) > 1 and not out:
        raise DomainbertError("report: expected --out FILE, for the page is of several runs")
    check_whole("--out", out or "")
    path = Path(out or folders[0] / FILE)
    if path.is_dir():
        path = path / FILE
    write_report(folders, path)
    return f"report: {path}"


def _attend(typed: Typed) -> str:
    from domainbert.report.attending import attend

    return attend(typed.words, typed.flags["attend"] or "", typed.flags.get("out"))


def write_report(folders: Sequence[Path], path: Path) -> None:
    """Write the page about the runs in these folders.

    Raises:
        DomainbertError: a folder is not there or holds no stage; the disk is full.
    """
    from domainbert.report.page import MOST_BYTES, page_text, save_page
    from domainbert.report.runs import read_runs
    from domainbert.report.sections import sections

    title = ", ".join(run.name for run in read_runs(folders))
    for most in _FEWER:
        text = page_text(f"Report: {title}", sections(read_runs(folders), most))
        if len(text.encode("utf-8")) <= MOST_BYTES:
            break
    save_page(path, text)


def report_after_run(out: Path) -> str:
    """Write the page of a run that has just ended, and return the line that says where; never an error.

    Whatever is wrong with the page, the run is done: the line says what, and how to try again.
    """
    try:
        write_report([out], out / FILE)
    except Exception as error:
        again = shlex.join(["domainbert", "report", str(out)])
        kind = "" if isinstance(error, DomainbertError) else f"{type(error).__name__}: "
        return f"warning: no {FILE}: {kind}{' '.join(str(error).split())}; to try again: {again}"
    return f"{out / FILE} shows the run in a browser."
