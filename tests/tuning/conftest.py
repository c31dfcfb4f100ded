"""Workers on fake stages, and a PostgreSQL server of the tests' own."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.forked import SECONDS

FAKE = Path(__file__).with_name("fake_domainbert.py")
PASSWORD = "not-to-be-shown"


class Fake:
    """`domainbert` with the stage `learn`, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment: dict[str, str] = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def config(self, **changes: Any) -> Path:
        """`tune.yaml`, with changes."""
        usual: dict[str, Any] = {"out": "study", "stage": "learn", "settings": {"epochs": 3}, "trials": 4}
        usual |= {"objective": "validation/f1"}
        usual |= {"space": {"x": {"low": -1, "high": 1}}, "storage": {"heartbeat": 1, "grace": 3}}
        path = self.folder / "tune.yaml"
        path.write_text(yaml.safe_dump({**usual, **changes}, sort_keys=False))
        return path

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command."""
        command = [sys.executable, str(FAKE), *words]
        pipes: Mapping[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, text=True, **pipes)

    def run(self, *words: str) -> tuple[int, str]:
        """Run a command and return its exit code and output."""
        process = self.start(*words)
        said, _ = process.communicate(timeout=SECONDS)
        return process.returncode, said


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    """Fake stages in an empty folder."""
    return Fake(tmp_path)


@dataclass(frozen=True)
class Server:
    """A PostgreSQL server."""

    port: int
    control: Callable[..., None]
    """`pg_ctl` on its folder."""

    def start(self) -> None:
        """Begin, and wait until it is there."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
        self.control("-w", "-l", "log", "-o", options, "start")


@pytest.fixture(scope="session")
def postgresql(server: Server) -> tuple[str, str]:
    """The URL of a database on loopback, without its password; and the password."""
    return f"postgresql://tuner@127.0.0.1:{server.port}/postgres", PASSWORD


@pytest.fixture
def restart_postgresql(server: Server) -> Callable[[float], None]:
    """Return a function that stops the server for some seconds."""

    def restart(seconds: float) -> None:
        server.control("-m", "fast", "stop")
        time.sleep(seconds)
        server.start()

    return restart


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server of the tests' own."""
    programs = _programs()
    folder = Path(tempfile.mkdtemp(prefix="tune-postgresql-"))
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    (folder / "password").write_text(PASSWORD)
    if os.geteuid() == 0:  # the server refuses to run as root
        for path in (folder, folder / "password"):
            shutil.chown(path, user)
    run = _runner(user, folder)
    run(programs / "initdb", "-D", "data", "-U", "tuner", "--pwfile", "password", "--auth", "scram-sha-256", "-N")
    found = Server(_free_port(), partial(run, programs / "pg_ctl", "-D", "data"))
    found.start()
    try:
        yield found
    finally:
        found.control("-m", "immediate", "stop")
        shutil.rmtree(folder)


def _programs() -> Path:
    found = shutil.which("pg_ctl")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    folders = [folder for folder in folders if (folder / "initdb").exists() and (folder / "pg_ctl").exists()]
    if not folders:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    return folders[-1]


def _runner(user: str, folder: Path) -> Callable[..., None]:
    def run(*words: Any) -> None:
        extra = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
        command = list(map(str, words))
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=SECONDS, **extra)

    return run


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
