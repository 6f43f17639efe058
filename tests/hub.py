"""A server on this machine that plays the Hugging Face hub and ModelScope.

    with Hub({"owner/name": folder}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)

It speaks as much of both as their clients ask for, and can misbehave: `hub.fault` is one of FAULTS.
`hub.requests` lists what was asked, "GET /path".
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FAULTS = (
    "",
    "slow",  # accepts the connection and says nothing
    "broken",  # every answer is status 503
    "cut",  # ends each weight file in its middle
    "corrupt",  # changes a byte of each weight file
    "babble",  # answers a web page to everything
    "redirect",  # sends each file's request on to another path, as a content network does
    "gated",
)
LARGE = (".safetensors", ".gguf", ".bin")  # kept in LFS, as the hubs do


class Hub:
    """The server; use it in a `with`."""

    def __init__(self, repositories: Mapping[str, Path]) -> None:
        self.repositories = dict(repositories)
        self.fault = ""
        self.requests: list[str] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Hub:
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def downloads(self) -> list[str]:
        """The names of the files whose content was asked for."""
        return [
            line.rpartition("/")[2]
            for line in self.requests
            if line.startswith("GET") and "/resolve/" in line
        ]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub.requests.append(f"{self.command} {self.path}")
                hub.answer(self)

            do_HEAD = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        return Handler

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(request.path).path).strip("/")
        if self.fault == "slow":
            time.sleep(20)
        elif self.fault == "broken":
            send(request, 503, b"")
        elif not path:
            send(request, 200, b"a hub")
        elif self.fault == "babble":
            send(request, 200, b"<html>Log in to the hotel's network</html>")
        elif path.startswith("api/v1/models/"):
            self.list_modelscope(request, path.removeprefix("api/v1/models/").removesuffix("/repo/files"))
        elif path.startswith("api/models/"):
            self.list_hub(request, path.removeprefix("api/models/"))
        else:
            self.send_file(request, path.removeprefix("models/").removeprefix("elsewhere/"), path)

    def list_hub(self, request: BaseHTTPRequestHandler, path: str) -> None:
        repository = "/".join(path.split("/")[:2])
        if self.fault == "gated":
            send(request, 403, b"{}", {"X-Error-Code": "GatedRepo"})
        elif repository not in self.repositories:
            send(request, 404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif "/tree/" in path:
            entries = [
                {"type": "file", "path": p.name, "size": p.stat().st_size, "oid": git_id(p)} | lfs(p, "oid")
                for p in self.files(repository)
            ]
            send_json(request, entries)
        else:
            siblings = [
                {"rfilename": p.name, "size": p.stat().st_size, "blobId": git_id(p)} | lfs(p, "sha256")
                for p in self.files(repository)
            ]
            send_json(request, {"id": repository, "sha": COMMIT, "siblings": siblings})

    def list_modelscope(self, request: BaseHTTPRequestHandler, repository: str) -> None:
        if repository not in self.repositories:
            send(request, 404, b"{}")
            return
        files = [
            {"Type": "blob", "Path": p.name, "Size": p.stat().st_size, "Sha256": sha256(p)}
            for p in self.files(repository)
        ]
        send_json(request, {"Code": 200, "Data": {"Files": [{"Type": "tree", "Path": "figures"}, *files]}})

    def send_file(self, request: BaseHTTPRequestHandler, inner: str, path: str) -> None:
        repository, _, rest = inner.partition("/resolve/")
        file = self.repositories.get(repository, Path("/nonexistent")) / rest.rpartition("/")[2]
        if not file.is_file():
            send(request, 404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        large = file.suffix in LARGE
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{git_id(file)}"'}
        if large:
            headers |= {"X-Linked-Etag": f'"{sha256(file)}"', "X-Linked-Size": str(file.stat().st_size)}
        if self.fault == "redirect" and large and not path.startswith("elsewhere/"):
            send(request, 302, b"", headers | {"Location": f"{self.address}/elsewhere/{path}"})
            return
        content = file.read_bytes()
        if large and self.fault == "corrupt":
            middle = len(content) // 2
            content = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        send(request, 200, content, headers, cut=large and self.fault == "cut")

    def files(self, repository: str) -> list[Path]:
        return sorted(path for path in self.repositories[repository].iterdir() if path.is_file())


def send(
    request: BaseHTTPRequestHandler,
    status: int,
    content: bytes,
    headers: Mapping[str, str] | None = None,
    *,
    cut: bool = False,
) -> None:
    request.send_response(status)
    for name, value in (headers or {}).items():
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(content[: len(content) // 2] if cut else content)
    if cut:
        request.close_connection = True


def send_json(request: BaseHTTPRequestHandler, document: object) -> None:
    send(request, 200, json.dumps(document).encode(), {"Content-Type": "application/json"})


def lfs(path: Path, key: str) -> dict[str, Any]:
    if path.suffix not in LARGE:
        return {}
    return {"lfs": {key: sha256(path), "size": path.stat().st_size, "pointerSize": 134}}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def git_id(path: Path) -> str:
    content = path.read_bytes()
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
