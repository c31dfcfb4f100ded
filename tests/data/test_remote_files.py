import errno
import hashlib
import mmap
import multiprocessing
import os
import pickle
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pytest
from fsspec.callbacks import Callback
from fsspec.registry import known_implementations

from domainbert.base.errors import DomainbertError
from domainbert.base.paths import is_url
from domainbert.data import remote_files
from domainbert.data.remote_files import CacheConfig, FileFacts, LocalFiles, RemoteFiles, open_files
from tests.forked import SECONDS
from tests.refusals import refused

FORK = multiprocessing.get_context("fork")
SIZES = {"parts/00000/train/data.arrow": 2_500, "b": 1_000, "c": 999, "d e#1": 3_001, "empty": 0, "f": 1}


def content(name: str, size: int) -> bytes:
    return random.Random(name).randbytes(size)


def facts(name: str, size: int) -> FileFacts:
    return FileFacts(name, size, hashlib.sha256(content(name, size)).hexdigest())


FILES = [facts(name, size) for name, size in SIZES.items()]


class Server(ThreadingHTTPServer):
    """Serves `corpus/NAME`. A fault, by the number of a request from 1: "busy", "cut", "endless", "flip",
    "forbidden"."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {file.name: content(file.name, file.bytes) for file in FILES}
        self.fault: Callable[[int], str] = lambda number: ""
        self.watch: Callable[[], None] = lambda: None
        self.chunk_seconds = 0.0
        self.go_on = threading.Event()  # where a test clears it, answers stop in their middle
        self.go_on.set()
        self.half_sent = threading.Event()
        self.requests: list[tuple[str, str]] = []  # name, fault
        self.mutex = threading.Lock()
        self.endless_bytes = 0  # sent in answers without an end

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/corpus"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.split("?")[0].removeprefix("/corpus/").replace("%20", " ").replace("%23", "#")
        with self.server.mutex:
            fault = self.server.fault(len(self.server.requests) + 1)
            self.server.requests.append((name, fault))
        self.server.watch()
        whole = self.server.files.get(name)
        if whole is None or fault in ("busy", "forbidden"):
            self.send_error(404 if whole is None else {"busy": 503, "forbidden": 403}[fault])
            return
        body = whole
        if fault == "flip":
            body = bytes([body[0] ^ 1]) + body[1:]
        self.send_response(200)
        if fault == "endless":  # without a length, until the client leaves or a bound of the test
            self.end_headers()
            with suppress(ConnectionError):
                while self.server.endless_bytes < 100_000_000:
                    self.server.endless_bytes += self.wfile.write(bytes(100_000))
            return
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        half = len(body) // 2
        self.wfile.write(body[:half])
        self.wfile.flush()
        self.server.half_sent.set()
        assert self.server.go_on.wait(SECONDS)
        time.sleep(self.server.chunk_seconds)
        if fault != "cut":
            self.wfile.write(body[half:])

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The waits before a try, which take no time here; and files may leave as soon as they were used."""
    waits: list[int] = []
    monkeypatch.setattr(remote_files, "time", SimpleNamespace(time=time.time, time_ns=time.time_ns, sleep=waits.append))
    monkeypatch.setattr(remote_files, "_KEEP_SECONDS", 0.0)
    return waits


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.go_on.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def cache(tmp_path: Path) -> CacheConfig:
    return CacheConfig(str(tmp_path / "cache"), 1e-5)  # 10,000 bytes


def files_in(cache: CacheConfig) -> list[Path]:
    return [path for path in Path(cache.folder).iterdir() if path.name != ".lock"]


def names(files: RemoteFiles) -> set[str]:
    """The corpus' names of the files in the folder, and whatever else there is."""
    known = {f"{files._prefix}-{file.sha256}": file.name for file in FILES}
    return {known.get(path.name, path.name) for path in files_in(files.cache)}


def test_a_local_file_is_where_it_is(tmp_path: Path, cache: CacheConfig) -> None:
    (tmp_path / "b").write_bytes(content("b", 1_000))
    files = open_files(str(tmp_path), cache)
    assert isinstance(files, LocalFiles) and files.path(FILES[1]) == tmp_path / "b"
    with refused(problem="is missing", expected="999 bytes: copy..."):
        files.path(FILES[2])
    with refused(found="1,000 bytes", expected="2,500 bytes: copy it again, or run `prepare`"):
        files.path(FILES[0]._replace(name="b"))
    assert not Path(cache.folder).exists()


def test_what_is_a_url() -> None:
    assert all(map(is_url, ("s3://bucket/a", "file:///a", "memory://a", "HTTPS://host/a", "abfs+x://a")))
    assert not any(map(is_url, ("data/a", "/data/a", "c:/a", "c://a", "hub:a", "s3:bucket", "", "@prepare")))
    with refused(where="cache", problem="missing, but the parts are at..."):
        open_files("s3://u:secret@b/c", None)


@pytest.mark.parametrize("kind", ["memory", "file", "http"])
def test_the_same_bytes_from_anywhere_and_each_once(
    kind: str, tmp_path: Path, server: Server, cache: CacheConfig
) -> None:
    url = {"memory": f"memory://{tmp_path.name}/a/", "file": (tmp_path / "a").as_uri(), "http": server.url}[kind]
    if kind != "http":
        for file in FILES:
            fsspec.filesystem(kind, auto_mkdir=True).pipe_file(
                f"{url.rstrip('/')}/{file.name}", content(file.name, file.bytes)
            )
    files = open_files(url, cache)
    assert isinstance(files, RemoteFiles)
    paths = [files.path(file) for file in FILES]
    assert [path.read_bytes() for path in paths] == [content(file.name, file.bytes) for file in FILES]
    assert {path.parent for path in paths} == {Path(cache.folder)} and len(set(paths)) == len(FILES)
    assert names(files) == set(SIZES)
    if kind == "http":
        assert len(server.requests) == len(FILES)
        server.files.clear()
    else:
        fsspec.filesystem(kind).rm(url, recursive=True)
    for again in (files, pickle.loads(pickle.dumps(files)), RemoteFiles(url, cache)):
        assert [again.path(file) for file in FILES] == paths


def test_two_corpora_never_mix_and_a_password_is_no_part_of_a_name(server: Server, cache: CacheConfig) -> None:
    here, there = RemoteFiles(server.url, cache), RemoteFiles(server.url + "/", cache)
    other = RemoteFiles("memory://other", cache)
    fsspec.filesystem("memory").pipe_file("memory://other/b", content("b", 1_000))
    assert here.path(FILES[1]) == there.path(FILES[1]) != other.path(FILES[1])
    tokens = [RemoteFiles(f"{server.url}?token={secret}", cache).path(FILES[1]).name for secret in "ab"]
    assert tokens[0] == tokens[1] and "token" not in tokens[0] and len(server.requests) == 2
    with refused(file="corpus", found="the checksum '../x' of b in prepared.json", expected="a SHA-256: run..."):
        here.path(FILES[1]._replace(sha256="../x"))


def test_what_is_not_installed_is_one_sentence(cache: CacheConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(known_implementations, "afar", {"class": "fsspec.absent.FileSystem", "err": "install x"})
    with refused(file="afar://u:***@b", problem="needs a package that is not installed: install x"):
        RemoteFiles("afar://u:secret@b", cache)
    with refused(file="nowhere://b", problem="unknown protocol", expected="a protocol of fsspec, such as s3://"):
        open_files("nowhere://b", cache)


def test_the_least_recently_used_leaves_and_a_map_of_it_stays(server: Server, tmp_path: Path) -> None:
    files = RemoteFiles(server.url, CacheConfig(str(tmp_path / "cache"), 4.6e-6))
    big, b, c, d = FILES[:4]
    with open(files.path(b), "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    for one in (big, c, d):  # 1,000 + 2,500 + 999; for 3,001 more, b and big have to leave
        files.path(one)
    assert names(files) == {"c", "d e#1"} and bytes(mapped) == content("b", 1_000)
    files.path(c)
    files.path(big)  # now d is the one used longest ago
    assert names(files) == {"c", big.name}
    assert files.path(b).read_bytes() == content("b", 1_000) and names(files) == {"b", "c", big.name}


def test_only_copies_leave_to_make_room(server: Server, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    own = [cache / name for name in ("my-notes.txt", f"{'a' * 16}-{'b' * 63}", f"{'a' * 16}-{'b' * 64}.old")]
    for path in own:
        path.write_bytes(bytes(4_000))
        os.utime(path, (0, 0))  # the least recently used
    other_corpus = cache / f"{'a' * 16}-{'b' * 64}"
    other_corpus.write_bytes(bytes(4_000))
    os.utime(other_corpus, (0, 0))
    RemoteFiles(server.url, CacheConfig(str(cache), 4.6e-6)).path(FILES[1])
    assert not other_corpus.exists() and all(path.stat().st_size == 4_000 for path in own)


def test_a_file_that_never_finds_room(server: Server, tmp_path: Path) -> None:
    files = RemoteFiles(server.url, CacheConfig(str(tmp_path / "cache"), 3e-6))
    assert files.path(FILES[0]).stat().st_size == 2_500
    with refused(
        where="cache.gigabytes",
        found="3e-06, but one file of the corpus has 3.001e-06 gigabytes",
        expected="room for...",
    ):
        files.path(FILES[3])
    assert names(files) == {FILES[0].name}
    (tmp_path / "file").write_bytes(b"")
    with refused(where="cache.folder", found=".../file, which cannot be written (File exists)"):
        RemoteFiles(server.url, CacheConfig(str(tmp_path / "file"), 3e-6)).path(FILES[0])
    with refused(where="folder", found="'~/kept'", expected="the whole path..."):
        CacheConfig("~/kept", 1)


def facts_of(server: Server, name: str, size: int) -> FileFacts:
    server.files[name] = content(name, size)
    return facts(name, size)


def test_spawned_processes_share_it_too(server: Server, cache: CacheConfig) -> None:
    files = RemoteFiles(server.url, cache)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        paths = list(pool.map(files.path, FILES * 2))
    assert paths == [files.path(file) for file in FILES] * 2
    assert Counter(name for name, _ in server.requests) == Counter(SIZES.keys())


def test_the_folder_stays_below_its_bound_while_processes_read_in_other_orders(server: Server, tmp_path: Path) -> None:
    many = [facts_of(server, f"many/{number}", 700 + 211 * number) for number in range(12)]
    cache, sizes = CacheConfig(str(tmp_path / "cache"), 7e-6), []  # the largest has 3,021 bytes, all have 22,326
    server.watch = lambda: sizes.append(sum(path.stat().st_size for path in files_in(cache) if path.exists()))
    server.fault = lambda number: {0: "busy", 5: "cut"}.get(number % 7, "")
    server.chunk_seconds = 0.002
    results = FORK.SimpleQueue()

    def read_all(seed: int) -> None:
        files, order = RemoteFiles(server.url, cache), random.Random(seed).sample(many, len(many))
        right = 0
        for file in order:
            while True:
                with suppress(FileNotFoundError):  # on a busy machine it may be opened after the time in which it stays
                    right += files.path(file).read_bytes() == content(file.name, file.bytes)
                    break
        results.put(right)

    workers = [FORK.Process(target=read_all, args=(seed,)) for seed in range(3)]
    for worker in workers:
        worker.start()
    assert [results.get() for _ in workers] == [12, 12, 12]
    for worker in workers:
        worker.join()
    assert 5_000 < max(sizes) <= 7_000 and len(sizes) > 30


@pytest.mark.parametrize("gigabytes", [0, -1, float("nan"), 1e7])
def test_a_cache_has_a_size(gigabytes: float) -> None:
    with refused(where="gigabytes", expected="a number above 0 and up to 1e+06"):
        CacheConfig("cache", gigabytes)


def test_a_bucket(tmp_path: Path, cache: CacheConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    store = moto.ThreadedMotoServer(port=0)
    store.start()
    try:
        host, port = store.get_host_and_port()
        environment = {
            "ENDPOINT_URL": f"http://{host}:{port}",
            "ACCESS_KEY_ID": "a",
            "SECRET_ACCESS_KEY": "secret-value",
        }
        for name, value in (environment | {"DEFAULT_REGION": "us-east-1"}).items():
            monkeypatch.setenv(f"AWS_{name}", value)
        bucket = fsspec.filesystem("s3", skip_instance_cache=True)
        bucket.mkdir("corpora")
        for file in FILES:
            bucket.pipe_file(f"corpora/law/{file.name}", content(file.name, file.bytes))
        files = RemoteFiles("s3://corpora/law", cache)
        assert [files.path(file).read_bytes() for file in FILES] == [content(one.name, one.bytes) for one in FILES]
        with pytest.raises(
            DomainbertError, match=r"^s3://corpora/law/none: could .* \(FileNotFoundError: .*\); expected 7 bytes"
        ):
            files.path(FileFacts("none", 7, "0" * 64))
    finally:
        store.stop()


def test_a_server_that_fails_cuts_and_errs(server: Server, cache: CacheConfig, capsys: pytest.CaptureFixture) -> None:
    faults = {1: "busy", 2: "cut", 3: "flip", 6: "busy"}
    server.fault = lambda number: faults.get(number, "")
    files = RemoteFiles(server.url, cache)
    for file in FILES:
        assert files.path(file).read_bytes() == content(file.name, file.bytes)
    assert [name for name, _ in server.requests] == [FILES[0].name] * 4 + ["b", "c", "c", "d e#1", "empty", "f"]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and "503" in lines[0] and "503" in lines[3]
    assert lines[0].endswith("; retrying in 1 s") and lines[1].endswith("; retrying in 2 s")
    assert re.search(r"data.arrow: SHA-256 [0-9a-f]{12}; expected [0-9a-f]{12}; fetching it again$", lines[2])


def test_the_last_error_is_one_sentence_without_a_secret(server: Server, cache: CacheConfig, waits: list[int]) -> None:
    server.fault = lambda number: "busy"
    files = RemoteFiles(server.url.replace("//", "//me:hunter2@") + "?sig=s3cr3t", cache)
    with pytest.raises(DomainbertError) as error:
        files.path(FILES[1])
    assert waits == [1, 2, 4, 8, 16] and len(server.requests) == 6
    message = str(error.value)
    assert re.match(
        r"http://me:\*\*\*@127.0.0.1:\d+/corpus/b\?sig=\*\*\*: could not be read at try 6 of 6 \(ClientRes", message
    )
    hint = "check URL and network, then run the same command again to resume from the last checkpoint"
    assert message.endswith(f"); expected 1,000 bytes: {hint}")
    assert "hunter2" not in message and "s3cr3t" not in message and "\n" not in message
    assert names(files) == set()
    server.fault = lambda number: ""
    files.path(FILES[1])
    assert all(b"s3cr3t" not in path.read_bytes() and "s3cr3t" not in path.name for path in files_in(cache))


def test_no_network_is_one_sentence(cache: CacheConfig) -> None:
    with refused(file="http://127.0.0.1:9/x/b", problem="could not be read at try 6 of 6..."):
        RemoteFiles("http://127.0.0.1:9/x", cache).path(FILES[1])


def test_what_will_not_change_is_not_tried_again(server: Server, cache: CacheConfig) -> None:
    files = RemoteFiles(server.url, cache)
    with refused(file="corpus/none", problem="could ... (FileNotFoundError: ...)", expected="7 bytes: check..."):
        files.path(FileFacts("none", 7, "0" * 64))
    server.fault = lambda number: "forbidden"
    with refused(file="corpus/b", problem="could not be read at try 1 of 6 (ClientResponseError: 403,..."):
        files.path(FILES[1])
    assert len(server.requests) == 2
    server.fault = lambda number: "flip"
    with refused(file="corpus/b", problem="SHA-256...", expected="..., as `prepare`..."):
        files.path(FILES[1])
    server.files["c"] += b"!"
    with refused(file="corpus/c", problem="1,000 bytes", expected="999, as `prepare` wrote it..."):
        files.path(FILES[2])
    assert len(server.requests) == 6 and names(files) == set()


def test_the_whole_checksum_is_compared(server: Server, cache: CacheConfig) -> None:
    files, checksum = RemoteFiles(server.url, cache), FILES[1].sha256
    last_digit = f"{int(checksum[-1], 16) ^ 1:x}"
    with refused(file="corpus/b", problem=f"SHA-256 {checksum[:12]}", expected="..., as `prepare` wrote it..."):
        files.path(FILES[1]._replace(sha256=checksum[:-1] + last_digit))
    assert names(files) == set()


def test_an_answer_without_an_end_is_left_after_the_bytes_of_the_file(server: Server, cache: CacheConfig) -> None:
    """It is read a second time, as every copy of another size; the cache keeps nothing of it."""
    server.fault = lambda number: "endless"
    files = RemoteFiles(server.url, cache)
    with refused(file="corpus/b", problem="... bytes", expected="1,000, as `prepare` wrote it..."):
        files.path(FILES[1])
    assert len(server.requests) == 2 and server.endless_bytes < 50_000_000 and names(files) == set()


def test_a_copy_that_was_just_given_stays(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_files, "_KEEP_SECONDS", 1_000.0)
    files = RemoteFiles(server.url, CacheConfig(str(tmp_path / "cache"), 3e-6))
    path = files.path(FILES[0])
    files.path(FILES[1])
    assert names(files) == {FILES[0].name, "b"}
    os.utime(path, (0, time.time() - 1_001))
    files.path(FILES[2])
    assert names(files) == {"b", "c"}


def test_a_damaged_copy_is_fetched_again_and_told(
    server: Server, cache: CacheConfig, capsys: pytest.CaptureFixture
) -> None:
    path = RemoteFiles(server.url, cache).path(FILES[0])
    whole = path.read_bytes()
    for damage, found in ((whole[:-1], "2,499 bytes; "), (whole[:-1] + bytes([whole[-1] ^ 1]), "SHA-256 ")):
        path.write_bytes(damage)
        assert RemoteFiles(server.url, cache).path(FILES[0]).read_bytes() == whole
        text = capsys.readouterr().out
        assert text.startswith(f"{path}: {found}") and text.endswith(f"; fetching {server.url}/{FILES[0].name} again\n")
    assert len(server.requests) == 3
    assert RemoteFiles(server.url, cache).path(FILES[0]) == path and capsys.readouterr().out == ""


def test_a_killed_process_hinders_nobody(server: Server, cache: CacheConfig) -> None:
    files = RemoteFiles(server.url, cache)
    server.go_on.clear()
    worker = FORK.Process(target=files.path, args=(FILES[0],))
    worker.start()
    assert server.half_sent.wait(SECONDS)
    os.kill(worker.pid or 0, signal.SIGKILL)
    worker.join()
    server.go_on.set()
    assert files.path(FILES[1]).read_bytes() == content("b", 1_000)
    assert files.path(FILES[0]).read_bytes() == content(FILES[0].name, 2_500)


def test_a_full_disk_is_told_at_once(server: Server, cache: CacheConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Callback, "relative_update", full)  # called after each write
    with refused(file="...cache", problem="No space left on device: ... bytes are free", hint="free some space"):
        RemoteFiles(server.url, cache).path(FILES[0])
