"""A local server with the few endpoints of the Hugging Face hub that an upload uses; the uploaded files are kept."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WRITES, READS = "hf_writes", "hf_reads"
"""Tokens: of the user `me`, who may write to their own repositories; and one that may only read."""


class FakeHub(ThreadingHTTPServer):
    """`repositories` holds files by name, `created` and `commits` the requests of the client."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.created: list[dict[str, Any]] = []
        self.commits: list[str] = []
        self.blobs: dict[str, bytes] = {}  # by SHA-256


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    """Serve until the end of the context."""
    with FakeHub() as hub:
        thread = threading.Thread(target=hub.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def do_GET(self) -> None:
        self.answer(404, {"error": "Repository not found"})

    def do_PUT(self) -> None:  # the content of a large file
        content = self.body()
        name = hashlib.sha256(content).hexdigest()
        assert self.path == f"/blobs/{name}"
        self.server.blobs[name] = content
        self.answer(200, {})

    def do_POST(self) -> None:
        content = self.body()
        if self.path == "/api/validate-yaml":
            self.validate(json.loads(content)["content"])
        elif self.headers.get("authorization") is None:
            self.answer(401, {"error": "Invalid username or password."})
        elif self.headers["authorization"] != f"Bearer {WRITES}":
            self.answer(403, {"error": "Forbidden: you must use a write token"})
        elif self.path == "/api/repos/create":
            self.create(json.loads(content))
        elif self.path.endswith("/preupload/main"):
            names = [file["path"] for file in json.loads(content)["files"]]
            modes = ["lfs" if name.endswith((".safetensors", ".bin", ".onnx")) else "regular" for name in names]
            pairs = zip(names, modes, strict=True)
            answers = [{"path": name, "uploadMode": mode, "shouldIgnore": False} for name, mode in pairs]
            self.answer(200, {"files": answers})
        elif self.path.endswith(".git/info/lfs/objects/batch"):
            objects = json.loads(content)["objects"]
            links = [{"upload": {"href": f"{self.server.url}/blobs/{one['oid']}"}} for one in objects]
            answers = [{**one, "actions": link} for one, link in zip(objects, links, strict=True)]
            self.answer(200, {"transfer": "basic", "objects": answers})
        else:
            self.commit([json.loads(line) for line in content.splitlines()])

    def validate(self, card: str) -> None:
        errors = [{"message": '"license" must be one of the list'}] if "license: none" in card else []
        self.answer(400 if errors else 200, {"errors": errors, "warnings": []})

    def create(self, wanted: dict[str, Any]) -> None:
        owner = wanted.get("organization") or "me"
        if owner != "me":
            return self.answer(403, {"error": f"You don't have the rights to create a model under {owner}"})
        name = f"{owner}/{wanted['name']}"
        exists = name in self.server.repositories
        self.server.repositories.setdefault(name, {})
        self.server.created.append(wanted)
        self.answer(409 if exists else 200, {"url": f"{self.server.url}/{name}", "error": "You already have it"})

    def commit(self, lines: list[dict[str, Any]]) -> None:
        prefix, suffix = "/api/models/", "/commit/main"
        name = self.path.removeprefix(prefix).removesuffix(suffix)
        assert self.path == f"{prefix}{name}{suffix}" and name in self.server.repositories
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.server.commits.append(value["summary"])
            elif line["key"] == "lfsFile":
                self.server.repositories[name][value["path"]] = self.server.blobs[value["oid"]]
            else:
                assert line["key"] == "file" and value["encoding"] == "base64"
                self.server.repositories[name][value["path"]] = base64.b64decode(value["content"])
        self.answer(200, {"commitUrl": f"{self.server.url}/{name}/commit/{'a' * 40}", "commitOid": "a" * 40})

    def body(self) -> bytes:
        if self.headers.get("transfer-encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def answer(self, status: int, value: dict[str, Any]) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""
