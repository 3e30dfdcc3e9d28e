"""`stoker status` and `stoker unmount` against a node that answers over a real socket."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.cli.render import generation, trouble

MOUNT: dict[str, Any] = {
    "id": "1",
    "dataSet": "default/imagenet",
    "mountpoint": "/mnt/imagenet",
    "state": "ready",
    "generation": "0123456789abcdef",
    "files": 1_281_167,
    "directories": 1000,
    "bytes": 3 << 30,
    "cachedBytes": (3 << 30) - 1,
    "cachedFiles": 1_281_166,
    "cachedPercent": 99.99,
    "hitRatio": None,
    "bytesFromCache": 0,
    "bytesFromSource": 1536,
    "hidden": {"NulByte": 1, "EmptyComponent": 2},
    "mode": "no-open",
    "passthrough": True,
    "sourceChanged": {"files": 0, "lastPath": ""},
}
TIER = {
    "path": "/cache",
    "limitBytes": 1 << 40,
    "usedBytes": 3 << 30,
    "limitInodes": 9,
    "usedInodes": 5,
    "pinnedBytes": 0,
    "state": "ok",
    "reason": "",
}
HELD = {
    "name": "default/held",
    "heldBytes": 5 << 30,
    "heldFiles": 1234,
    "pinnedFiles": 100,
    "pinnedBytes": 4 << 30,
    "pinnedCachedBytes": 1 << 30,
    "pinsFit": True,
    "quotaBytes": 6 << 30,
    "quotaInodes": 0,
    "priority": 321,
    "ttlSeconds": 7200.0,
    "mounts": 0,
    "generation": {
        "digest": "fedcba9876543210",
        "observedTime": "2026-01-02T03:04:05Z",
        "changed": {"added": 1200, "removed": 0, "modified": 3},
    },
    "conditions": [{"type": "Indexed", "status": "False", "reason": "AccessDenied", "message": "not allowed"}],
}
UNUSED = {
    **HELD,
    **dict.fromkeys(("heldBytes", "heldFiles", "pinnedFiles", "pinnedBytes"), 0),
    "name": "default/unused",
    "generation": None,
    "conditions": [],
}
JOB = {
    "id": "preload-1",
    "operation": "Preload",
    "dataSet": "default/imagenet",
    "version": 3,
    "phase": "Running",
    "progress": {
        "filesTotal": 4000,
        "filesDone": 120,
        "filesFailed": 2,
        "bytesTotal": 40 << 30,
        "bytesDone": 1 << 30,
        "bytesPerSecond": 1 << 20,
        "percent": 2.5,
        "etaSeconds": 95,
    },
    "failures": [],
}


def status(*mounts: dict[str, Any], jobs: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    node = {
        "pid": 1,
        "version": "0.1.0",
        "uptimeSeconds": 5,
        "cache": {"tiers": [TIER], "checked": True, "badPages": 0, "lostBytes": 0},
    }
    return {"node": node, "dataSets": [HELD, UNUSED], "mounts": list(mounts), "jobs": list(jobs)}


def test_the_table_has_what_a_user_asks_for(api: Any, stoker: Callable[..., Any]) -> None:
    api.answers["GET /v1/status"] = lambda *_: status(MOUNT, jobs=(JOB,))
    done = stoker("status")
    assert done.code == 0
    for shown in ("default/imagenet", "/mnt/imagenet", "0123456789ab", "1,281,167", "3.0 GiB", "99.9%", "1.5 KiB"):
        assert shown in done.out
    assert "100" not in done.out.split("99.9%")[0].rpartition("\n")[2]  # never full before the last byte is there
    assert "hidden keys: 2 EmptyComponent, 1 NulByte" in done.out
    assert "120 of 4,000 files, 1.0 GiB of 40.0 GiB (2.5%), 1.0 MiB/s, 1m35s left, 2 files failed" in done.out
    assert "/cache" in done.out
    assert "4.0 GiB, 25.0% cached" in done.out
    for shown in ("default/held", "5.0 GiB", "1,234", "321", "at most 6.0 GiB, for 2h00m after the last use"):
        assert shown in done.out
    assert "unused" not in done.out


def test_json_is_the_document_of_the_api(api: Any, stoker: Callable[..., Any]) -> None:
    api.answers["GET /v1/status"] = lambda *_: status(MOUNT)
    assert json.loads(stoker("status", "--json").out) == status(MOUNT)


def test_no_node_is_a_state_and_no_error(place: Path, stoker: Callable[..., Any]) -> None:
    assert "Nothing is mounted" not in stoker("status").out
    assert "nothing is mounted" in stoker("status").out
    done = stoker("status", "--json")
    assert done.code == 0
    assert json.loads(done.out) == {"node": None, "dataSets": [], "mounts": [], "jobs": []}
    assert not (place / "run").exists()


def test_a_socket_that_nobody_listens_on_is_no_node(api: Any, place: Path, stoker: Callable[..., Any]) -> None:
    import socket

    (place / "run" / "admin.sock").unlink()
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(place / "run" / "admin.sock"))
    assert json.loads(stoker("status", "--json").out)["node"] is None


def test_an_error_of_the_node_is_shown_as_its_own(api: Any, stoker: Callable[..., Any]) -> None:
    problem = {
        "reason": "CacheDiskFailing",
        "detail": "input/output error",
        "place": "/cache",
        "nextStep": "replace it.",
    }
    api.answers["GET /v1/status"] = lambda *_: (422, problem)
    done = stoker("status")
    assert done.code == 1
    assert done.err == "CacheDiskFailing: /cache: input/output error. Next: replace it.\n"


def test_something_else_behind_the_socket(api: Any, stoker: Callable[..., Any]) -> None:
    done = stoker("status")
    assert done.code == 1
    assert "no such route" in done.err


class TestUnmount:
    def test_one(self, api: Any, stoker: Callable[..., Any]) -> None:
        api.answers["GET /v1/status"] = lambda *_: status(MOUNT)
        api.answers["DELETE /v1/mounts"] = lambda *_: {"unmounted": True, "remaining": 0}
        done = stoker("unmount", "/mnt/imagenet/")
        assert (done.code, done.out) == (0, "unmounted /mnt/imagenet\n")
        assert api.asked[-1][1] == {"mountpoint": "/mnt/imagenet", "force": "0"}

    def test_those_below(self, api: Any, stoker: Callable[..., Any]) -> None:
        other = {**MOUNT, "mountpoint": "/mnt/more/b"}
        api.answers["GET /v1/status"] = lambda *_: status(MOUNT, other)
        api.answers["DELETE /v1/mounts"] = lambda *_: {"unmounted": True, "remaining": 0}
        assert stoker("unmount", "/mnt/more", "--force").out == "unmounted /mnt/more/b\n"
        assert api.asked[-1][1]["force"] == "1"
        assert stoker("unmount", "--all").out == "unmounted /mnt/imagenet\nunmounted /mnt/more/b\n"

    def test_busy(self, api: Any, stoker: Callable[..., Any]) -> None:
        api.answers["GET /v1/status"] = lambda *_: status(MOUNT)
        problem = {
            "reason": "MountBusy",
            "message": "a process uses it",
            "place": "/mnt/imagenet",
            "nextStep": "--force",
        }
        api.answers["DELETE /v1/mounts"] = lambda *_: (409, problem)
        done = stoker("unmount", "/mnt/imagenet")
        assert done.code == 1
        assert done.err.startswith("MountBusy: /mnt/imagenet")

    def test_again_is_fine(self, place: Path, stoker: Callable[..., Any]) -> None:
        (place / "data").mkdir()
        done = stoker("unmount", "data")
        assert (done.code, done.out) == (0, f"nothing is mounted at {place}/data\n")

    def test_a_wrong_name_is_not(self, place: Path, stoker: Callable[..., Any]) -> None:
        done = stoker("unmount", "dta")
        assert done.code == 1
        assert done.err.startswith(f"NotMounted: {place}/dta: there is no such folder")

    def test_a_mount_of_others_is_left_alone(self, place: Path, stoker: Callable[..., Any]) -> None:
        done = stoker("unmount", "/proc")
        assert done.code == 1
        assert "a proc is mounted there" in done.err


@pytest.mark.parametrize("running", [True, False])
def test_node_stop(place: Path, stoker: Callable[..., Any], request: pytest.FixtureRequest, running: bool) -> None:
    if running:
        api = request.getfixturevalue("api")
        api.answers["POST /v1/shutdown"] = lambda *_: {"stopping": True}
    done = stoker("node", "--stop")
    assert (done.code, done.out) == (0, "the node ends\n" if running else "no node is running\n")


def test_what_is_wrong_between_data_sets_and_sources_is_a_line_each() -> None:
    changed = {**MOUNT, "sourceChanged": {"files": 2, "lastPath": "a/b"}}
    first, *_, last = trouble(status(changed))
    assert first == "default/held: AccessDenied: not allowed"
    assert last.startswith("/mnt/imagenet: SourceChanged: 2 files changed at the source, the last is a/b; ")
    assert generation(HELD["generation"]) == ("fedcba987654", "2026-01-02T03:04:05Z", "+1,200 ~3")
    assert generation(None) == ("-", "-", "-")
