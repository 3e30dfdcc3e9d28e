"""A real HTTP server on a unix socket that answers as the node's admin API does, and the command run against it."""

from __future__ import annotations

import json
import shutil
import socketserver
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from stoker.cli.main import main

Answer = Callable[[dict[str, str], Any], Any]


@dataclass
class AdminApi:
    """`answers["GET /v1/status"]` gives a document, a list of documents (as lines), or (status, problem)."""

    socket: Path
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)

    def bodies(self, route: str) -> list[Any]:
        return [body for asked, _query, body in self.asked if asked == route]

    def answer(self, route: str, query: dict[str, str], body: Any) -> tuple[int, str, bytes]:
        self.asked.append((route, query, body))
        if route not in self.answers:
            return 404, "text/plain", b"no such route"
        found = self.answers[route](query, body)
        if isinstance(found, tuple):
            return found[0], "application/problem+json", json.dumps(found[1]).encode()
        if isinstance(found, list):
            return 200, "application/x-ndjson", b"".join(json.dumps(line).encode() + b"\n" for line in found)
        return 200, "application/json", json.dumps(found).encode()


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    api: AdminApi


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_: object) -> None: ...

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url = urlsplit(self.path)
        route = f"{self.command} {url.path}"
        status, kind, data = self.server.api.answer(route, dict(parse_qsl(url.query)), json.loads(body or b"null"))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = _any  # noqa: N815 - the names http.server calls


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folders of a node that does not run; short, because a unix socket's path is."""
    root = Path(tempfile.mkdtemp(prefix="stoker-cli-"))
    for name in ("state", "run", "cache"):
        monkeypatch.setenv(f"STOKER_{name.upper()}_DIR", str(root / name))
    monkeypatch.setenv("HOME", str(root))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.chdir(root)
    yield root
    shutil.rmtree(root)


@pytest.fixture
def api(place: Path) -> Iterator[AdminApi]:
    """A node that answers what the test says."""
    (place / "run").mkdir()
    found = AdminApi(place / "run" / "admin.sock")
    with _Server(str(found.socket), _Handler) as server:
        server.api = found
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        server.shutdown()
        thread.join()


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def stoker(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run a command in this process."""

    def run(*arguments: str | Path) -> Done:
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Done(int(end.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def write_data_set(place: Path) -> Callable[..., Path]:
    """A file of DataSets with these names, all of one local folder."""
    (place / "origin").mkdir()
    (place / "origin" / "a.bin").write_bytes(b"a")

    def write(*names: str) -> Path:
        path = place / "dataset.yaml"
        documents = [
            {
                "apiVersion": "stoker.dev/v1alpha1",
                "kind": "DataSet",
                "metadata": {"name": name},
                "spec": {"sources": [{"uri": f"file://{place}/origin/"}]},
            }
            for name in names
        ]
        path.write_text("---\n".join(json.dumps(document) + "\n" for document in documents))
        return path

    return write


@pytest.fixture
def data_set(write_data_set: Callable[..., Path]) -> Path:
    """A DataSet of one local folder."""
    return write_data_set("imagenet")
