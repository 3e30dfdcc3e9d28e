"""`stoker preload` against a node that answers over a real socket: progress, outcome, Ctrl-C."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def job(phase: str, version: int, **progress: int) -> dict[str, Any]:
    counts = {
        "filesTotal": 3,
        "filesDone": 0,
        "filesFailed": 0,
        "bytesTotal": 3000,
        "bytesDone": 0,
        "bytesPerSecond": 0,
        "percent": 0,
        "etaSeconds": 0,
    }
    return {
        "id": "preload-1",
        "operation": "Preload",
        "dataSet": "default/imagenet",
        "version": version,
        "phase": phase,
        "progress": {**counts, **progress},
        "failures": [],
        "skipped": {},
    }


def serve(api: Any, last: dict[str, Any]) -> None:
    states = iter([job("Running", 2, filesDone=1, bytesDone=1000), last])
    api.answers["POST /v1/jobs"] = lambda *_: [
        {"state": "listing", "objects": 0},
        {"state": "listing", "objects": 3},
        {"state": "started", "job": job("Pending", 1)},
    ]
    api.answers["GET /v1/jobs/preload-1"] = lambda *_: next(states)


def test_until_all_is_there(api: Any, stoker: Callable[..., Any], data_set: Path) -> None:
    serve(api, job("Succeeded", 3, filesDone=3, bytesDone=3000, percent=100))
    done = stoker("preload", "-f", data_set, "--path", "train/**", "--path", "x")
    assert done.code == 0
    assert done.out.startswith("preloaded imagenet: 3 files of 3, 2.9 KiB in ")
    assert done.err == ""
    (order,) = api.bodies("POST /v1/jobs")
    assert order["operation"] == "Preload"
    assert order["paths"] == ["train/**", "x"]
    assert order["document"]["metadata"]["name"] == "imagenet"
    assert order["place"] == f"{data_set}:1"
    assert list(order["credentials"]) == ["origin"]
    asked = [query["version"] for route, query, _body in api.asked if route.startswith("GET")]
    assert asked == ["1", "2"]


def test_what_failed_is_named_and_the_exit_code_says_partly(
    api: Any, stoker: Callable[..., Any], data_set: Path
) -> None:
    last = job("PartiallySucceeded", 3, filesDone=1, filesFailed=2, bytesDone=1000)
    last["failures"] = [{"path": "b.bin", "reason": "AccessDenied", "message": "403"}]
    last["skipped"] = {"NulByte": 4}
    serve(api, last)
    done = stoker("preload", "-f", data_set)
    assert done.code == 3
    assert "AccessDenied: b.bin: 403\n" in done.err
    assert "and 1 file more that failed" in done.err
    assert "4 NulByte" in done.err
    assert "again" in done.err


def test_nothing_loaded_is_a_failure(api: Any, stoker: Callable[..., Any], data_set: Path) -> None:
    serve(api, job("Failed", 3, filesFailed=3))
    assert stoker("preload", "-f", data_set).code == 1


def test_a_listing_that_fails_is_the_error_of_the_command(api: Any, stoker: Callable[..., Any], data_set: Path) -> None:
    problem = {"reason": "AccessDenied", "message": "403", "place": "s3://a/", "nextStep": "ask for s3:ListBucket."}
    api.answers["POST /v1/jobs"] = lambda *_: [{"state": "failed", "error": problem}]
    done = stoker("preload", "-f", data_set)
    assert (done.code, done.out) == (1, "")
    assert done.err == "AccessDenied: s3://a/: 403. Next: ask for s3:ListBucket.\n"


def test_ctrl_c_cancels_keeps_what_is_done_and_says_how_to_go_on(api: Any, data_set: Path) -> None:
    """In a process of its own, because the signal goes to a whole process."""
    child: list[subprocess.Popen[str]] = []

    def running(_query: dict[str, str], _body: Any) -> dict[str, Any]:
        child[0].send_signal(signal.SIGINT)
        return job("Running", 2, filesDone=1)

    serve(api, {})
    api.answers["GET /v1/jobs/preload-1"] = running
    api.answers["DELETE /v1/jobs/preload-1"] = lambda *_: job("Cancelled", 4, filesDone=1, bytesDone=1000)
    command = [sys.executable, "-m", "stoker.cli.main", "preload", "-f", str(data_set)]
    child.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    out, err = child[0].communicate(timeout=30)
    assert child[0].returncode == 3
    assert out.startswith("preloaded imagenet: 1 file of 3")
    assert "goes on from here" in err
    assert api.asked[-1][0] == "DELETE /v1/jobs/preload-1"


def test_on_a_terminal_there_is_a_bar(api: Any, data_set: Path) -> None:
    serve(api, job("Succeeded", 3, filesDone=3, bytesDone=3000, bytesPerSecond=1000, percent=100))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "stoker.cli.main", "preload", "-f", str(data_set)]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "140"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, env=env, check=True, timeout=30)
    os.close(theirs)
    shown = b""
    while piece := _read(ours):
        shown += piece
    os.close(ours)
    assert done.stdout.startswith(b"preloaded imagenet: 3 files of 3")
    assert b"listing imagenet: 3 objects" in shown
    assert b"preload imagenet" in shown
    assert b"100.0%  3/3 files  2.9 KiB/2.9 KiB" in shown


def _read(fd: int) -> bytes:
    """What a terminal shows; Linux says EIO when its last user is gone."""
    try:
        return os.read(fd, 65536)
    except OSError:
        return b""
