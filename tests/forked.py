"""Scripts in a process of their own that starts with what this one has imported: Lightning alone takes ten seconds."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

SECONDS = 1800  # after which a script counts as hung, also on a busy machine


def run_script(code: str, folder: Path, *words: str, reimport: bool = False) -> str:
    """Run a script in `folder` with the arguments `words` and return its output. It must end without an error.

    If `reimport`, the script imports domainbert again.
    """

    def run() -> None:
        if reimport:
            for name in [name for name in sys.modules if name.partition(".")[0] == "domainbert"]:
                del sys.modules[name]
        os.chdir(folder)
        sys.argv = ["script.py", *words]
        sys.modules["__main__"] = main = ModuleType("__main__")
        exec(compile(code, "script.py", "exec"), main.__dict__)

    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        exit_code = _fork(run, output.fileno())
        output.seek(0)
        said = output.read()
    assert exit_code == 0, f"exit code {exit_code}:\n{said[-6000:]}"
    return said


DOMAINBERT = (
    "import sys, torch; from domainbert.cli import main; torch.set_num_threads(1); sys.exit(main(sys.argv[1:]))"
)


def domainbert(folder: Path, *words: object) -> str:
    """Run the command line in `folder` with one thread and return its output. It must end without an error."""
    return run_script(DOMAINBERT, folder, *map(str, words))


def _fork(run: Callable[[], None], output: int) -> int:
    """Exit code of a fork of this process that does `run` and prints into the file `output`."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    exit_code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        for number in (1, 2):
            os.dup2(output, number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
        run()
        exit_code = 0
    except SystemExit as error:
        exit_code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)
