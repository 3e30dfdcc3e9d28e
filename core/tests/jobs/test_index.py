"""The index job as the node runs it: a process, an order on its standard input, JSON lines out of it."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.api.globs import Globs
from stoker.manifest.manifest import Manifest
from stoker.manifest.verify import verify
from stoker.sources.base import SourceSpec

COMMAND = [sys.executable, "-m", "stoker.jobs.index"]


def order(folder: Path, *sources: SourceSpec) -> str:
    folder.mkdir(exist_ok=True)
    return json.dumps({"sources": [s.to_json() for s in sources], "directory": str(folder), "dataSet": "ns/ds"}) + "\n"


def run(folder: Path, *sources: SourceSpec) -> tuple[int, dict[str, Any]]:
    """The exit code and the last message."""
    text = order(folder, *sources)
    done = subprocess.run(COMMAND, input=text, capture_output=True, text=True, timeout=60, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(line["state"] in ("listing", "answered") for line in lines[:-1])
    assert done.stderr == ""
    return done.returncode, lines[-1]


def files(manifest_path: str) -> dict[bytes, bytes]:
    """Path in the mount -> key."""
    with contextlib.closing(Manifest.open(manifest_path)) as manifest:
        found = list(manifest.files_matching(Globs.compile(["**"])))
        return {manifest.path(inode): manifest.object(inode).version.key for inode in found}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    for name in ("a.tar", "sub/b.tar", "sub/c.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"12345")
    return root


def test_it_lists_all_sources_into_one_generation(tmp_path: Path, data: Path) -> None:
    specs = [
        SourceSpec("all", f"file://{data}/", "/", include=("**/*.tar",)),
        SourceSpec("sub", f"file://{data}/sub", "/more"),
        SourceSpec("one", f"file://{data}/a.tar", "/one"),
    ]
    code, done = run(tmp_path / "out", *specs)
    assert code == 0
    root = os.fsencode(data)
    assert files(done["path"]) == {
        b"a.tar": root + b"/a.tar",
        b"sub/b.tar": root + b"/sub/b.tar",
        b"more/b.tar": root + b"/sub/b.tar",
        b"more/c.txt": root + b"/sub/c.txt",
        b"one/a.tar": root + b"/a.tar",
    }
    assert (done["state"], done["files"], done["directories"], done["bytes"], done["hidden"]) == ("done", 5, 4, 25, {})
    assert done["contacted"] == [spec.uri for spec in specs]
    assert os.listdir(tmp_path / "out") == [done["digest"] + ".manifest"]
    verify(done["path"], specs)
    assert run(tmp_path / "out", *specs) == (0, done), "the same content is the same generation"


def test_a_source_without_an_object_is_an_error_unless_it_may_be_missing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, reason in (("empty", "SourceEmpty"), ("missing", "SourceNotFound")):
        spec = SourceSpec("s", f"file://{tmp_path}/{name}/")
        code, failed = run(tmp_path / "out", spec)
        assert (code, failed["state"], failed["error"]["reason"]) == (1, "failed", reason)
        assert failed["error"]["nextStep"]
        code, done = run(tmp_path / "out", SourceSpec("s", spec.uri, ignore_missing=True))
        assert (code, done["files"], done["directories"]) == (0, 0, 1)


def test_the_include_that_selects_nothing_is_named(tmp_path: Path, data: Path) -> None:
    _, failed = run(tmp_path / "out", SourceSpec("s", f"file://{data}/", include=("*.nothing",)))
    assert failed["error"]["reason"] == "SourceEmpty"
    assert "include" in failed["error"]["message"]
    assert "ignoreMissing: true" in failed["error"]["nextStep"]


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_store_that_is_down_is_replaced_by_its_replica(tmp_path: Path, data: Path) -> None:
    replica = f"file://{data}/a.tar"
    down = f"http://127.0.0.1:{closed_port()}"
    spec = SourceSpec("s", "https://store.example/x/a.tar", endpoint=down, replicas=(replica,))
    code, done = run(tmp_path / "out", spec)
    assert code == 0
    assert done["contacted"] == [replica]
    assert files(done["path"]) == {b"a.tar": os.fsencode(data) + b"/a.tar"}
    with contextlib.closing(Manifest.open(done["path"])) as manifest:
        assert (manifest.sources[0].uri, manifest.sources[0].contacted) == (spec.uri, replica)
        assert manifest.sources[0].origin == "file://"
    verify(done["path"], [spec])


def test_a_refusal_is_not_hidden_by_a_replica(tmp_path: Path, data: Path) -> None:
    spec = SourceSpec("s", f"file://{tmp_path}/missing/", replicas=(f"file://{data}/",))
    code, failed = run(tmp_path / "out", spec)
    assert (code, failed["error"]["reason"]) == (1, "SourceNotFound")


class OneFile(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        found = self.path == "/d/my%20file.tar?sig=secret"
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", "5")
        self.send_header("ETag", '"v1"')
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Quiet."""


@pytest.fixture
def web() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), OneFile) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_query_of_a_url_is_in_no_manifest(tmp_path: Path, web: str) -> None:
    spec = SourceSpec("s", "https://host.example/d/my%20file.tar?sig=secret", endpoint=web)
    code, done = run(tmp_path / "out", spec)
    assert code == 0
    assert b"secret" not in Path(done["path"]).read_bytes()
    assert files(done["path"]) == {b"my file.tar": b"d/my file.tar"}
    assert done["contacted"] == [spec.uri], "who reads it needs the query"
    verify(done["path"], [spec])


def test_terminated_it_leaves_nothing(tmp_path: Path, data: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        hanging = SourceSpec("s", "https://host.example/file", "/x", endpoint=address)
        text = order(tmp_path / "out", SourceSpec("d", f"file://{data}/"), hanging)
        with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
            assert job.stdin is not None
            job.stdin.write(text)
            job.stdin.flush()
            silent.settimeout(30)
            with silent.accept()[0]:  # it is listing, and waits for an answer
                job.send_signal(signal.SIGTERM)
                output, _ = job.communicate(timeout=30)
        assert job.returncode == 128 + signal.SIGTERM
        assert "done" not in output
        assert os.listdir(tmp_path / "out") == []


def test_a_folder_that_cannot_be_written_to_is_a_clear_error(tmp_path: Path, data: Path) -> None:
    gone = tmp_path / "out"
    text = order(gone, SourceSpec("d", f"file://{data}/"))
    gone.rmdir()
    done = subprocess.run(COMMAND, input=text, capture_output=True, text=True, timeout=60, check=False)
    failed = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 1
    assert "cannot write the manifest" in failed["error"]["message"]


def test_a_full_disk_leaves_nothing(tmp_path: Path, data: Path) -> None:
    text = order(tmp_path / "out", SourceSpec("d", f"file://{data}/"))
    limit = f"ulimit -f 2; exec {' '.join(COMMAND)}"  # blocks of 1 KiB: less than a header
    done = subprocess.run(["bash", "-c", limit], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "cannot write the manifest" in json.loads(done.stdout.splitlines()[-1])["error"]["message"]
    assert os.listdir(tmp_path / "out") == []
