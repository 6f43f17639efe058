"""A server on this machine that plays the Hugging Face hub and ModelScope.

    with Hub({"owner/name": folder, "owner/name@v1": older_folder}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)

It speaks as much of both as their clients ask for, ranges of a file among it, and can misbehave:
`hub.fault` is one of FAULTS. `hub.requests` lists what was asked, "GET /path", with the range where one
was asked for: "GET /path bytes=1024-".
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
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_of_somebody_who_accepted"  # a gated repository opens to it
FAULTS = (
    "",
    "slow",  # accepts the connection and says nothing
    "broken",  # every answer is status 503
    "cut",  # ends each weight file in its middle
    "corrupt",  # changes a byte of each weight file
    "lie",  # publishes another sha256 of each weight file than it has
    "drip",  # sends each weight file in small pieces, for `drip_seconds` in all
    "babble",  # answers a web page to everything
    "redirect",  # sends each file's request on to another path, as a content network does
    "gated",  # gives files for TOKEN only, as the hub does
    "closed",  # and its list of files too
    "busy",  # answers every second request for a weight file with status 503
)
LARGE = (".safetensors", ".gguf", ".bin")  # kept in LFS, as the hubs do
DRIPS = 40  # pieces of a file, where none gets longer than LONGEST_DRIP
LONGEST_DRIP = 1 << 16  # bytes


class Hub:
    """The server; use it in a `with`."""

    def __init__(self, repositories: Mapping[str, Path]) -> None:
        self.repositories = dict(repositories)
        self.fault = ""
        self.drip_seconds = 5.0  # that one weight file takes under the fault "drip"
        self.turns = 0  # of the fault "busy"
        self.requests: list[str] = []
        self.tokens: list[tuple[str, str | None]] = []  # what was asked for, and with which Authorization
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.elsewhere = self.address  # where the fault "redirect" sends
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
            line.split(" ")[1].rpartition("%2F" if "FilePath" in line else "/")[2].rpartition("FilePath=")[2]
            for line in self.requests
            if line.startswith("GET") and ("/resolve/" in line or "FilePath=" in line)
        ]

    def ranges(self) -> list[str]:
        """The ranges that were asked for, "bytes=1024-"."""
        return [line.rpartition(" ")[2] for line in self.requests if " bytes=" in line]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                wanted = self.headers.get("Range")
                hub.requests.append(f"{self.command} {self.path}" + (f" {wanted}" if wanted else ""))
                hub.tokens.append((self.path, self.headers.get("Authorization")))
                try:
                    hub.answer(self)
                except (BrokenPipeError, ConnectionResetError):  # it was told to stop in the middle
                    self.close_connection = True

            do_HEAD = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        return Handler

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        address = urlsplit(request.path)
        path, asked = unquote(address.path).strip("/"), parse_qs(address.query)
        if self.fault == "slow":
            time.sleep(20)
        elif self.fault == "broken":
            send(request, 503, b"")
        elif not path:
            send(request, 200, b"a hub")
        elif self.fault == "babble":
            send(request, 200, b"<html>Log in to the hotel's network</html>")
        elif self.refuses(path) and request.headers.get("Authorization") != f"Bearer {TOKEN}":
            send(request, 403, b"{}", {"X-Error-Code": "GatedRepo"})
        elif path.startswith("api/v1/models/") and "FilePath" in asked:
            repository = path.removeprefix("api/v1/models/").removesuffix("/repo")
            self.send_file(request, self.repositories.get(repository), asked["FilePath"][0], path)
        elif path.startswith("api/v1/models/"):
            self.list_modelscope(request, path.removeprefix("api/v1/models/").removesuffix("/repo/files"))
        elif path.startswith("api/models/"):
            self.list_hub(request, path.removeprefix("api/models/"))
        else:
            repository, _, rest = path.removeprefix("elsewhere/").partition("/resolve/")
            revision, _, name = rest.rpartition("/")
            self.send_file(request, self.folder(repository, revision), name, path)

    def refuses(self, path: str) -> bool:
        return self.fault == "closed" or (self.fault == "gated" and "/resolve/" in path)

    def folder(self, repository: str, revision: str) -> Path | None:
        """What a repository holds at a branch, a tag or a commit."""
        for key, folder in self.repositories.items():
            name, _, tag = key.partition("@")
            if name == repository and revision in (tag or "main", tag or "master", commit(key)):
                return folder
        return None

    def list_hub(self, request: BaseHTTPRequestHandler, path: str) -> None:
        repository = "/".join(path.split("/")[:2])
        revision = path.partition("/revision/")[2] or path.partition("/tree/")[2] or "main"
        folder = self.folder(repository, revision)
        if repository not in self.repositories:
            send(request, 404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif folder is None:
            send(request, 404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif "/tree/" in path:
            entries = [
                {"type": "file", "path": p.name, "size": p.stat().st_size, "oid": git_id(p)}
                | self.lfs(p, "oid")
                for p in files(folder)
            ]
            send_json(request, entries)
        else:
            siblings = [
                {"rfilename": p.name, "size": p.stat().st_size, "blobId": git_id(p)} | self.lfs(p, "sha256")
                for p in files(folder)
            ]
            key = next(key for key, held in self.repositories.items() if held == folder)
            send_json(request, {"id": repository, "sha": commit(key), "siblings": siblings})

    def list_modelscope(self, request: BaseHTTPRequestHandler, repository: str) -> None:
        if repository not in self.repositories:
            send(request, 404, b"{}")
            return
        entries = [
            {"Type": "blob", "Path": p.name, "Size": p.stat().st_size, "Sha256": self.published(p)}
            for p in files(self.repositories[repository])
        ]
        send_json(request, {"Code": 200, "Data": {"Files": [{"Type": "tree", "Path": "figures"}, *entries]}})

    def send_file(self, request: BaseHTTPRequestHandler, folder: Path | None, name: str, path: str) -> None:
        file = (folder or Path("/nonexistent")) / name
        if not file.is_file():
            send(request, 404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        large = file.suffix in LARGE
        headers = {"X-Repo-Commit": self.commit_of(folder), "ETag": f'"{git_id(file)}"'}
        if large:
            headers |= {
                "X-Linked-Etag": f'"{self.published(file)}"',
                "X-Linked-Size": str(file.stat().st_size),
            }
        if self.fault == "redirect" and large and "/resolve/" in path and not path.startswith("elsewhere/"):
            send(request, 302, b"", headers | {"Location": f"{self.elsewhere}/elsewhere/{path}"})
            return
        if self.fault == "busy" and large and request.command == "GET":
            self.turns += 1
            if self.turns % 2:
                send(request, 503, b"")
                return
        content = file.read_bytes()
        if large and self.fault == "corrupt":
            middle = len(content) // 2
            content = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        status, part, more = ranged(content, request.headers.get("Range"))
        if large and self.fault == "drip":
            self.drip(request, status, part, headers | more, whole=len(content))
        else:
            send(request, status, part, headers | more, cut=large and self.fault == "cut")

    def drip(
        self,
        request: BaseHTTPRequestHandler,
        status: int,
        content: bytes,
        headers: Mapping[str, str],
        *,
        whole: int,
    ) -> None:
        """Send a part of a file as slowly as its share of `drip_seconds` says."""
        start(request, status, headers, len(content))
        if request.command == "HEAD":
            return
        length = min(max(whole // DRIPS, 1), LONGEST_DRIP)
        for begin in range(0, len(content), length):
            if self.fault == "drip":  # until the test has seen enough
                time.sleep(self.drip_seconds * length / whole)
            request.wfile.write(content[begin : begin + length])
            request.wfile.flush()

    def commit_of(self, folder: Path | None) -> str:
        return next((commit(key) for key, held in self.repositories.items() if held == folder), COMMIT)

    def published(self, path: Path) -> str:
        return "0" * 64 if self.fault == "lie" and path.suffix in LARGE else sha256(path)

    def lfs(self, path: Path, key: str) -> dict[str, Any]:
        if path.suffix not in LARGE:
            return {}
        return {"lfs": {key: self.published(path), "size": path.stat().st_size, "pointerSize": 134}}


def commit(key: str) -> str:
    """The commit of "owner/name" or "owner/name@tag"."""
    return hashlib.sha1(key.encode()).hexdigest() if "@" in key else COMMIT


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def ranged(content: bytes, wanted: str | None) -> tuple[int, bytes, dict[str, str]]:
    """The status, the bytes and the headers that answer a request for a range, or for all."""
    if wanted is None:
        return 200, content, {"Accept-Ranges": "bytes"}
    first, _, last = wanted.removeprefix("bytes=").partition("-")
    begin, end = int(first), min(int(last or len(content) - 1), len(content) - 1)
    if begin > end:
        return 416, b"", {"Content-Range": f"bytes */{len(content)}"}
    return 206, content[begin : end + 1], {"Content-Range": f"bytes {begin}-{end}/{len(content)}"}


def start(request: BaseHTTPRequestHandler, status: int, headers: Mapping[str, str], length: int) -> None:
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name, value)
    request.send_header("Content-Length", str(length))
    request.end_headers()


def send(
    request: BaseHTTPRequestHandler,
    status: int,
    content: bytes,
    headers: Mapping[str, str] | None = None,
    *,
    cut: bool = False,
) -> None:
    start(request, status, headers or {}, len(content))
    if request.command != "HEAD":
        request.wfile.write(content[: len(content) // 2] if cut else content)
    if cut:
        request.close_connection = True


def send_json(request: BaseHTTPRequestHandler, document: object) -> None:
    send(request, 200, json.dumps(document).encode(), {"Content-Type": "application/json"})


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def git_id(path: Path) -> str:
    content = path.read_bytes()
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
