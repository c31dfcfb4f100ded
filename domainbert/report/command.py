"""`domainbert report`: HTML report of one or several runs. `domainbert run` also writes it at the end."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from domainbert.base.errors import DomainbertError
from domainbert.base.paths import check_home_expanded
from domainbert.settings.command_line import ParsedArguments

FILE = "report.html"

FLAGS = {"out": "one", "attend": "one", "allow_import": "one"}
HELP = """\
usage: domainbert report RUN... [--out FILE]
       domainbert report MODEL --attend TEXT [--out FILE]

Write an HTML report of a run, or of several runs side by side: which system is better and by how much, learning
curves, scores against cost, the worst mistakes, data, settings. The report is a single file, needs no network
connection, and uses only existing results. Systems of several runs are compared if their test set is the same.

  RUN          output folder of domainbert run, or of a single stage
  --out FILE   file to write; default for a single RUN: report.html in its folder

With --attend, show the attention maps of all heads of the model in folder MODEL for a text.

  --attend TEXT       text of at most 64 tokens, special tokens included
  --out FILE          file to write; default: attention.html in the current folder
  --allow-import PKG  allow encoder families and tasks from your own packages (PKG,PKG)
"""

_MAX_MISTAKES = (50, 20, 5, 0)  # per system; the next value is tried if the page is too large


def perform(typed: ParsedArguments) -> int:
    """Write the page, print its path, and return exit code 0.

    With `--attend`, the page shows the attention of a model for a text; otherwise it is the report of the runs.
    """
    folders = [Path(word) for word in typed.words]
    if typed.options or typed.files:
        option = f"--{typed.options[0][0]}" if typed.options else "-c"
        raise DomainbertError("no such option of report", where=option, expected="--out FILE or --attend TEXT")
    if "attend" in typed.flags:
        from domainbert.report.attention_page import write_attention_report

        print(write_attention_report(typed.words, typed.flags["attend"] or "", typed.flags.get("out")))
        return 0
    if not folders:
        raise DomainbertError("expected the folder of a run: domainbert report RUN... [--out FILE]", where="report")
    out = typed.flags.get("out")
    if len(folders) > 1 and not out:
        raise DomainbertError(where="report", found=f"{len(folders)} runs without --out", expected="--out FILE")
    check_home_expanded("--out", out or "")
    path = Path(out or folders[0] / FILE)
    path = path / FILE if path.is_dir() else path
    left_out = write_report(folders, path)
    print("\n".join([f"report: {path}", *(f"warning: {message}" for message in left_out)]))
    return 0


def write_report(folders: Sequence[Path], path: Path) -> list[str]:
    """Write the report of the runs in these folders to `path`, with fewer mistakes if the page would be too large.

    Return the messages about files and folders that the report leaves out, and about a page that is too large even
    without mistakes: it has them all.
    """
    from domainbert.report.page import MAX_BYTES, page_text, save_page
    from domainbert.report.runs import missing_messages, read_runs
    from domainbert.report.sections import sections

    def read_page(max_mistakes: int) -> tuple[str, list[str]]:
        runs = read_runs(folders)  # again for each page, because `sections` adds to `missing` of the runs
        text = page_text(f"Report: {', '.join(run.name for run in runs)}", sections(runs, max_mistakes))
        return text, missing_messages(runs)

    for max_mistakes in _MAX_MISTAKES:  # in descending order, until the page is small enough
        text, messages = read_page(max_mistakes)
        if len(text.encode("utf-8")) <= MAX_BYTES:
            break
    else:
        text, messages = read_page(_MAX_MISTAKES[0])
        messages.append(f"{path}: the page has {len(text.encode('utf-8')):,} bytes, more than {MAX_BYTES:,}")
    save_page(path, text)
    return messages


def report_after_run(out: Path) -> str:
    """Write the report at the end of a run, and return a line with its path.

    Never raises: an error in the report must not fail the run. The line then has the error and the command to retry.
    """
    try:
        write_report([out], out / FILE)
    except Exception as error:
        retry_command = shlex.join(["domainbert", "report", str(out)])
        name = "" if isinstance(error, DomainbertError) else f"{type(error).__name__}: "
        return f"warning: {FILE} was not written: {name}{' '.join(str(error).split())}; to try again: {retry_command}"
    return f"report: {out / FILE} (open it in a browser)"
