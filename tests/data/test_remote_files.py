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

import fsspec
import pytest
from fsspec.registry import known_implementations

from domainbert.base.errors import DomainbertError
from domainbert.base.paths import is_url
from domainbert.data import file_cache, remote_files, remote_store
from domainbert.data.cache_config import CacheConfig
from domainbert.data.remote_files import FileFacts, LocalFiles, RemoteFiles, open_files
from domainbert.data.remote_store import read_remote

FORK = multiprocessing.get_context("fork")
BLOCK = 1_000
SIZES = {"parts/00000/train/data.arrow": 2_500, "b": 1_000, "c": 999, "d e#1": 3_001, "empty": 0, "f": 1}


def content(name: str, size: int) -> bytes:
    return random.Random(name).randbytes(size)


def facts(name: str, size: int) -> FileFacts:
    return FileFacts(name, size, hashlib.sha256(content(name, size)).hexdigest())


FILES = [facts(name, size) for name, size in SIZES.items()]


class Server(ThreadingHTTPServer):
    """Serves `corpus/NAME`. A fault, by the number of a request from 1: "busy", "cut", "flip", "forbidden", "whole"."""

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
        self.requests: list[tuple[str, int, str]] = []  # name, first byte, fault
        self.mutex = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/corpus"

    def served(self) -> Counter[tuple[str, int]]:
        """Answers without a fault, by name and first byte."""
        return Counter((name, start) for name, start, fault in self.requests if not fault)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.split("?")[0].removeprefix("/corpus/").replace("%20", " ").replace("%23", "#")
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        with self.server.mutex:
            fault = self.server.fault(len(self.server.requests) + 1)
            self.server.requests.append((name, int(asked[1]) if asked else 0, fault))
        self.server.watch()
        whole = self.server.files.get(name)
        if whole is None or fault in ("busy", "forbidden"):
            self.send_error(404 if whole is None else {"busy": 503, "forbidden": 403}[fault])
            return
        ranged = asked is not None and fault != "whole"
        body = whole[int(asked[1]) : int(asked[2]) + 1] if asked and ranged else whole
        if fault == "flip":
            body = bytes([body[0] ^ 1]) + body[1:]
        self.send_response(206 if ranged else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        half = len(body) // 2
        self.wfile.write(body[:half])
        self.wfile.flush()
        self.server.half_sent.set()
        assert self.server.go_on.wait(60)
        time.sleep(self.server.chunk_seconds)
        if fault != "cut":
            self.wfile.write(body[half:])

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks, no waits before a try, and files that may leave as soon as they were used."""
    monkeypatch.setattr(remote_store, "_BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(remote_store, "_LONGEST_WAIT", 0.0)
    monkeypatch.setattr(file_cache, "_GRACE_SECONDS", 0.0)


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
    return CacheConfig(tmp_path / "cache", 1e-5)  # 10,000 bytes


def held(cache: CacheConfig) -> int:
    """Bytes in the folder, files on their way included."""
    total = 0
    for path in cache.folder.iterdir():
        if path.suffix == ".checked":
            continue
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def names(files: RemoteFiles) -> set[str]:
    """The corpus' names of the whole files in the folder, and whatever else there is."""
    known = {f"{files._prefix}-{file.sha256}": file.name for file in FILES}
    found = {path.name for path in files.cache.folder.glob("*")} - {"locks"}
    marks = {name for name in found if name.endswith(".checked")}
    assert marks <= {f"{name}.checked" for name in found}
    return {known.get(name, name) for name in found - marks}


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def blocks_of(*files: FileFacts) -> dict[tuple[str, int], int]:
    return {(file.name, start): 1 for file in files for start in range(0, file.bytes, BLOCK)}


def test_a_local_file_is_where_it_is(tmp_path: Path, cache: CacheConfig) -> None:
    (tmp_path / "b").write_bytes(content("b", 1_000))
    files = open_files(str(tmp_path), cache)
    assert isinstance(files, LocalFiles) and files.path(FILES[1]) == tmp_path / "b"
    files.prefetch(FILES)
    with pytest.raises(DomainbertError, match=r"/c: missing; expected 999 bytes$"):
        files.path(FILES[2])
    with pytest.raises(DomainbertError, match=r"/b: 1,000 bytes; expected 2,500 bytes$"):
        files.path(FILES[0]._replace(name="b"))
    assert not cache.folder.exists()


def test_what_is_a_url() -> None:
    assert all(map(is_url, ("s3://bucket/a", "file:///a", "memory://a", "HTTPS://host/a", "abfs+x://a")))
    assert not any(map(is_url, ("data/a", "/data/a", "c:/a", "c://a", "hub:a", "s3:bucket", "", "@prepare")))
    with pytest.raises(
        DomainbertError,
        match=r"^cache: not given, and s3://\*\*\*@b/c|^cache: not given, and s3://u:\*\*\*@b/c is read",
    ):
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
    assert read_remote(f"{url.rstrip('/')}/c") == content("c", 999)
    server.requests.clear()
    files = open_files(url, cache)
    assert isinstance(files, RemoteFiles)
    paths = [files.path(file) for file in FILES]
    assert [path.read_bytes() for path in paths] == [content(file.name, file.bytes) for file in FILES]
    assert {path.parent for path in paths} == {cache.folder} and len(set(paths)) == len(FILES)
    assert names(files) == set(SIZES) and held(cache) == sum(SIZES.values())
    if kind == "http":
        assert server.served() == blocks_of(*FILES) and len(server.requests) == 10
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
    with pytest.raises(DomainbertError, match=r"/corpus: b: '\.\./x'; expected a SHA-256$"):
        here.path(FILES[1]._replace(sha256="../x"))


def test_a_server_that_fails_cuts_and_errs(server: Server, cache: CacheConfig, capsys: pytest.CaptureFixture) -> None:
    faults = {2: "flip", 9: "cut", 14: "cut"}
    server.fault = lambda number: "busy" if number % 3 == 0 else faults.get(number, "")
    files = RemoteFiles(server.url, cache)
    for file in FILES:
        assert files.path(file).read_bytes() == content(file.name, file.bytes)
    first = FILES[0]
    assert server.requests[1] == (first.name, 1_000, "flip")
    # the first file came twice, since one of its bytes was wrong, and nothing else did
    assert server.served() == Counter(blocks_of(*FILES)) + Counter({(first.name, 0): 1, (first.name, 2_000): 1})
    assert held(cache) == sum(SIZES.values())
    lines = capsys.readouterr().out.splitlines()
    failed = [fault for _, _, fault in server.requests if fault]
    assert len(lines) == len(failed) and Counter(failed) == {"busy": 6, "cut": 1, "flip": 1}
    assert sum("503" in line and line.endswith("; tried again in 0 s") for line in lines) == 6
    found = r"http://127.0.0.1:\d+/corpus/parts/00000/train/data.arrow: SHA-256 [0-9a-f]{12}; expected "
    assert (
        sum(
            re.fullmatch(f"{found}{first.sha256[:12]}, as `prepare` wrote it; tried again", x) is not None
            for x in lines
        )
        == 1
    )


def test_a_server_without_ranges_sends_whole_files(server: Server, cache: CacheConfig) -> None:
    server.fault = lambda number: "whole"
    files = RemoteFiles(server.url, cache)
    assert all(files.path(file).read_bytes() == content(file.name, file.bytes) for file in FILES)
    assert len(server.requests) == 5  # the empty one is not asked for


def test_waits_are_the_same_each_time_and_the_last_error_is_one_sentence(
    server: Server, cache: CacheConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(remote_store, "_LONGEST_WAIT", 60.0)
    monkeypatch.setattr(time, "sleep", lambda seconds: waits.append(seconds) if seconds >= 1 else None)
    server.fault = lambda number: "busy"
    files = RemoteFiles(server.url.replace("//", "//me:hunter2@") + "?sig=s3cr3t", cache)
    with pytest.raises(DomainbertError) as error:
        files.path(FILES[1])
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60] and len(server.requests) == 10
    message = str(error.value)
    assert re.match(r"http://me:\*\*\*@127.0.0.1:\d+/corpus/b\?sig=\*\*\*: ClientResponseError: 503, ", message)
    hint = "the run goes on from its last checkpoint when it is started again"
    assert message.endswith(f" at the last of 10 tries; expected 1,000 bytes: {hint}")
    assert "hunter2" not in message and "s3cr3t" not in message and "\n" not in message
    assert names(files) == set()


def test_no_network_is_one_sentence(cache: CacheConfig) -> None:
    with pytest.raises(
        DomainbertError, match=r"^http://127\.0\.0\.1:9/x/b: ClientConnectorError: .* at the last of 10 tries;"
    ):
        RemoteFiles("http://127.0.0.1:9/x", cache).path(FILES[1])
    with pytest.raises(DomainbertError, match=r"^http://127\.0\.0\.1:9/x: .* at the last of 5 tries; expected a file"):
        read_remote("http://127.0.0.1:9/x")


def test_what_will_not_change_is_not_tried_again(server: Server, cache: CacheConfig) -> None:
    files = RemoteFiles(server.url, cache)
    with pytest.raises(DomainbertError, match=r"/corpus/none: FileNotFoundError: .*; expected 7 bytes: the run"):
        files.path(FileFacts("none", 7, "0" * 64))
    server.fault = lambda number: "forbidden"
    with pytest.raises(DomainbertError, match=r"/corpus/b: ClientResponseError: 403, "):
        files.path(FILES[1])
    assert len(server.requests) == 2
    server.fault = lambda number: "flip"
    with pytest.raises(DomainbertError, match=r"/corpus/b: SHA-256 [0-9a-f]{12}; expected [0-9a-f]{12}, as `prepare` "):
        files.path(FILES[1])
    assert len(server.requests) == 5 and names(files) == set()


def test_a_file_that_is_shorter_or_longer_there(server: Server, cache: CacheConfig) -> None:
    server.files["b"], server.files["c"] = content("b", 1_000)[:-1], content("c", 999) + b"!"
    files = RemoteFiles(server.url, cache)
    with pytest.raises(DomainbertError, match=r"/corpus/b: EOFError: 0 bytes from byte 999 on, where 1 were asked for"):
        files.path(FILES[1])
    assert files.path(FILES[2]).read_bytes() == content("c", 999)  # what was written, and the rest is not asked for


def test_what_is_not_installed_is_one_sentence(cache: CacheConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(known_implementations, "afar", {"class": "afar_absent.FileSystem", "err": "no"})
    with pytest.raises(
        DomainbertError, match=r"^afar://u:\*\*\*@b: needs a package that is not here: pip install afar-absent$"
    ):
        RemoteFiles("afar://u:secret@b", cache)
    with pytest.raises(
        DomainbertError, match=r"^nowhere://b: no such kind of URL; expected one of fsspec, such as s3://$"
    ):
        open_files("nowhere://b", cache)


def test_the_least_recently_used_leaves_and_a_map_of_it_stays(server: Server, tmp_path: Path) -> None:
    files = RemoteFiles(server.url, CacheConfig(tmp_path / "cache", 4.6e-6))
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


def test_a_file_that_never_finds_room(server: Server, tmp_path: Path) -> None:
    files = RemoteFiles(server.url, CacheConfig(tmp_path / "cache", 3e-6))
    assert files.path(FILES[0]).stat().st_size == 2_500
    with pytest.raises(
        DomainbertError,
        match=r"^cache.gigabytes: 3e-06, and a file of the corpus has 3,001 bytes; expected room for the files",
    ):
        files.path(FILES[3])
    assert names(files) == {FILES[0].name}
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(
        DomainbertError, match=r"^cache.folder: .*/file: cannot be written \(File exists\); expected a folder"
    ):
        RemoteFiles(server.url, CacheConfig(tmp_path / "file", 3e-6)).path(FILES[0])
    with pytest.raises(DomainbertError, match="folder: found '~/kept'; expected the whole path"):
        CacheConfig("~/kept", 1)


def test_a_file_in_use_stays_for_a_while(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_cache, "_GRACE_SECONDS", 1_000.0)
    files = RemoteFiles(server.url, CacheConfig(tmp_path / "cache", 3e-6))
    path, sleeps = files.path(FILES[0]), 0

    def sleep(seconds: float) -> None:
        nonlocal sleeps
        sleeps += seconds > 0  # the server sleeps for no time
        assert path.exists() or not seconds
        if sleeps == 3 and seconds:
            os.utime(path, (0, time.time() - 1_001))

    monkeypatch.setattr(time, "sleep", sleep)
    files.path(FILES[1])
    assert sleeps == 3 and names(files) == {"b"}


def test_a_damaged_copy_is_fetched_again_and_told(
    server: Server, cache: CacheConfig, capsys: pytest.CaptureFixture
) -> None:
    path = RemoteFiles(server.url, cache).path(FILES[0])
    whole = path.read_bytes()
    for damage, found in ((whole[:-1], "2,499 bytes"), (whole[:-1] + bytes([whole[-1] ^ 1]), "damaged")):
        path.write_bytes(damage)
        assert RemoteFiles(server.url, cache).path(FILES[0]).read_bytes() == whole
        assert capsys.readouterr().out == f"{path}: {found}; {server.url}/{FILES[0].name} is fetched again\n"
    assert len(server.requests) == 9
    assert RemoteFiles(server.url, cache).path(FILES[0]) == path and capsys.readouterr().out == ""


def test_a_run_hashes_the_copies_of_earlier_runs_once(
    server: Server, cache: CacheConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    monkeypatch.setattr(remote_files, "hash_file", lambda path: hashed.append(path.name) or FILES[1].sha256)
    first, run = RemoteFiles(server.url, cache), RemoteFiles(server.url, cache)
    assert first.run != run.run
    first.path(FILES[1])  # was hashed as it came
    assert hashed == []
    for files in (run, run, pickle.loads(pickle.dumps(run)), RemoteFiles(server.url, cache, run.run)):
        files.path(FILES[1])
    assert hashed == [run._name(FILES[1])]
    monkeypatch.setenv("DOMAINBERT_LAUNCH", "one")
    assert RemoteFiles(server.url, cache).run == RemoteFiles(server.url, cache).run == "one"
    RemoteFiles(server.url, cache).prefetch(FILES[1:2])
    wait_for(lambda: len(hashed) == 2)
    files = RemoteFiles(server.url, cache)
    assert files.path(FILES[1]).read_bytes() == content("b", 1_000) and len(hashed) == 2 and len(server.requests) == 1


def test_files_come_ahead_in_order_and_a_new_call_replaces_what_waits(server: Server, cache: CacheConfig) -> None:
    files = RemoteFiles(server.url, cache)
    big, b, c, d, _, f = FILES
    server.go_on.clear()
    files.prefetch([c, big, f])
    assert server.half_sent.wait(60)
    files.prefetch([d, c, b])
    server.go_on.set()
    wait_for(lambda: names(files) == {"b", "c", d.name})
    assert list(dict.fromkeys(name for name, _, _ in server.requests)) == ["c", d.name, "b"]
    assert files.path(b).read_bytes() == content("b", 1_000) and server.served() == blocks_of(b, c, d)
    files.prefetch([f])
    wait_for(lambda: "f" in names(files))  # by another thread: the first one has ended


def test_no_more_comes_ahead_than_finds_room(server: Server, tmp_path: Path) -> None:
    files = RemoteFiles(server.url, CacheConfig(tmp_path / "cache", 4.6e-6))
    big, b, c, d, _, f = FILES
    files.path(d)
    files.path(c)
    files.prefetch([c, big, b, big, d, f])  # 999 + 2,500 + 1,000; d finds no room, and f would come after it
    wait_for(lambda: names(files) == {"c", big.name, "b"})
    assert server.served() == blocks_of(b, c, d, big)
    files.path(f)
    assert names(files) == {"c", big.name, "b", "f"}
    files.prefetch([])


def test_what_is_used_first_leaves_last(server: Server, tmp_path: Path) -> None:
    files = RemoteFiles(server.url, CacheConfig(tmp_path / "cache", 4.6e-6))
    big, b, c = FILES[:3]
    for file in (big, b, c):
        files.path(file)
    files.prefetch([big, c, b])
    wait_for(lambda: files._ahead is not None and not files._ahead._runs)
    files.path(facts_of(server, "g", 102))
    assert names(files) == {big.name, "c", files._name(facts("g", 102))}


def facts_of(server: Server, name: str, size: int) -> FileFacts:
    server.files[name] = content(name, size)
    return facts(name, size)


def test_what_fails_ahead_is_left_to_the_one_who_needs_it(server: Server, cache: CacheConfig) -> None:
    files = RemoteFiles(server.url, cache)
    server.fault = lambda number: "busy" if number <= 3 else ""
    files.prefetch(FILES[1:3])
    wait_for(lambda: names(files) == {"c"})
    assert files.path(FILES[1]).read_bytes() == content("b", 1_000)
    assert [name for name, _, _ in server.requests] == ["b", "b", "b", "c", "b"]


def test_what_is_on_its_way_is_waited_for_also_by_a_forked_process(server: Server, cache: CacheConfig) -> None:
    files = RemoteFiles(server.url, cache)
    server.go_on.clear()
    files.prefetch(FILES[:2])
    assert server.half_sent.wait(60)
    results = FORK.SimpleQueue()

    def read_all() -> None:
        files.prefetch([FILES[2]])
        results.put([files.path(file).read_bytes() for file in FILES])

    workers = [FORK.Process(target=read_all) for _ in range(3)]
    for worker in workers:
        worker.start()
    server.go_on.set()
    expected = [content(file.name, file.bytes) for file in FILES]
    assert [results.get() for _ in workers] == [expected] * 3
    for worker in workers:
        worker.join()
    assert [files.path(file).read_bytes() for file in FILES] == expected
    assert server.served() == blocks_of(*FILES) and [worker.exitcode for worker in workers] == [0, 0, 0]


def test_spawned_processes_share_it_too(server: Server, cache: CacheConfig) -> None:
    files = RemoteFiles(server.url, cache)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        paths = list(pool.map(files.path, FILES * 2))
    assert paths == [files.path(file) for file in FILES] * 2
    assert Counter(name for name, _, _ in server.requests) == {file.name: 1 for file in FILES if file.bytes}


def test_the_folder_stays_below_its_bound_while_processes_read_in_other_orders(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_cache, "_GRACE_SECONDS", 0.2)
    many = [facts_of(server, f"many/{number}", 700 + 211 * number) for number in range(12)]
    cache, sizes = CacheConfig(tmp_path / "cache", 7e-6), []  # the largest has 3,021 bytes, all have 22,326
    server.watch = lambda: sizes.append(held(cache))
    server.fault = lambda number: {0: "busy", 5: "cut"}.get(number % 7, "")
    server.chunk_seconds = 0.002
    results = FORK.SimpleQueue()

    def read_all(seed: int) -> None:
        files, order = RemoteFiles(server.url, cache), random.Random(seed).sample(many, len(many))
        right = 0
        for place, file in enumerate(order):
            files.prefetch(order[place + 1 : place + 4])
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
    wait_for(lambda: len(sizes) == len(server.requests))  # of files fetched ahead that nobody waited for
    assert 5_000 < max(sizes) <= 7_000 and len(sizes) > 30


def test_a_killed_process_hinders_nobody(server: Server, cache: CacheConfig) -> None:
    files = RemoteFiles(server.url, cache)
    big, b, c = FILES[:3]
    server.go_on.clear()
    for file in (big, b):  # what the first one leaves is deleted when room is made for the second
        server.half_sent.clear()
        worker = FORK.Process(target=files.path, args=(file,))
        worker.start()
        assert server.half_sent.wait(60)
        os.kill(worker.pid or 0, signal.SIGKILL)
        worker.join()
        left = {path.name: path.stat().st_size for path in cache.folder.iterdir()}
        assert left == {f"{files._name(file)}.tmp": file.bytes, "locks": 0}
    server.go_on.set()
    assert files.path(b).read_bytes() == content("b", 1_000)
    (cache.folder / f"{files._name(big)}.tmp").write_bytes(b"left")
    assert files.path(c).read_bytes() == content("c", 999) and names(files) == {"b", "c"}
    assert files.path(big).read_bytes() == content(big.name, 2_500)


def test_two_threads_of_two_processes_may_wait_for_each_other(server: Server, cache: CacheConfig) -> None:
    files, results = RemoteFiles(server.url, cache), FORK.SimpleQueue()
    server.chunk_seconds = 0.2

    def read(ahead: FileFacts, now: FileFacts) -> None:
        files.prefetch([ahead])
        wait_for(lambda: files._copies.path(f"{files._name(ahead)}.tmp").exists())
        results.put(files.path(now).read_bytes() == content(now.name, now.bytes))
        files.path(ahead)  # a thread that fetches ahead ends with its process

    workers = [FORK.Process(target=read, args=pair) for pair in (FILES[:2], FILES[1::-1])]
    for worker in workers:
        worker.start()
    assert [results.get(), results.get()] == [True, True]
    for worker in workers:
        worker.join()
    assert server.served() == blocks_of(*FILES[:2])


@pytest.mark.parametrize("gigabytes", [0, -1, float("nan"), 1e7])
def test_a_cache_has_a_size(gigabytes: float) -> None:
    with pytest.raises(DomainbertError, match=r"^gigabytes: found .*; expected a number above 0 and up to 1e\+06$"):
        CacheConfig(Path("cache"), gigabytes)
    assert CacheConfig(Path("cache"), 200).bytes == 200_000_000_000


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
        files.prefetch(FILES)
        assert [files.path(file).read_bytes() for file in FILES] == [content(one.name, one.bytes) for one in FILES]
        assert read_remote("s3://corpora/law/c") == content("c", 999)
        with pytest.raises(DomainbertError, match=r"^s3://corpora/law/none: FileNotFoundError: .*; expected 7 bytes"):
            files.path(FileFacts("none", 7, "0" * 64))
    finally:
        store.stop()
