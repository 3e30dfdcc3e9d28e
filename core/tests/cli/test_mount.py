"""`stoker mount` against a node that answers over a real socket: what it is sent, what is said, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.fuse


def mounted(body: dict[str, Any], **more: Any) -> dict[str, Any]:
    name = body["document"]["metadata"]["name"]
    mount = {"dataSet": f"default/{name}", "mountpoint": body["mountpoint"], "files": 2, "bytes": 2048, "hidden": {}}
    return {"state": "ready", "mount": {**mount, **more}}


def test_one(api: Any, place: Path, stoker: Callable[..., Any], data_set: Path) -> None:
    api.answers["POST /v1/mounts"] = lambda _query, body: [{"state": "listing", "objects": 2}, mounted(body)]
    (place / "data").mkdir()
    done = stoker("mount", "-f", data_set, "./data")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"mounted default/imagenet at {place}/data: 2 files, 2.0 KiB\n"
    (order,) = api.bodies("POST /v1/mounts")
    assert order["mountpoint"] == str(place / "data")
    assert order["place"] == f"{data_set}:1"
    assert order["credentials"].keys() == {"origin"}


def test_hidden_keys_are_said(api: Any, place: Path, stoker: Callable[..., Any], data_set: Path) -> None:
    api.answers["POST /v1/mounts"] = lambda _query, body: [mounted(body, hidden={"NulByte": 3})]
    (place / "data").mkdir()
    assert "hidden: 3 NulByte" in stoker("mount", "-f", data_set, "data").out


def test_several_are_mounted_below_by_their_names(
    api: Any, place: Path, stoker: Callable[..., Any], write_data_set: Callable[..., Path], data_set: Path
) -> None:
    write_data_set("a", "b")
    api.answers["POST /v1/mounts"] = lambda _query, body: [mounted(body)]
    (place / "data").mkdir()
    assert stoker("mount", "-f", data_set, "data").code == 0
    assert [order["mountpoint"] for order in api.bodies("POST /v1/mounts")] == [f"{place}/data/a", f"{place}/data/b"]


def test_one_of_several_that_fails_stops_none_of_the_others(
    api: Any, place: Path, stoker: Callable[..., Any], write_data_set: Callable[..., Path], data_set: Path
) -> None:
    def answer(_query: dict[str, str], body: Any) -> list[dict[str, Any]]:
        if body["document"]["metadata"]["name"] == "a":
            return [{"state": "failed", "error": {"reason": "AccessDenied", "detail": "403", "place": "s3://a/"}}]
        return [mounted(body)]

    write_data_set("a", "b")
    api.answers["POST /v1/mounts"] = answer
    (place / "data").mkdir()
    done = stoker("mount", "-f", data_set, "data")
    assert done.code == 3
    assert done.err == "AccessDenied: s3://a/: 403.\n"
    assert "mounted default/b" in done.out


def test_the_folder_of_several_must_be_there(
    api: Any, stoker: Callable[..., Any], place: Path, data_set: Path, write_data_set: Callable[..., Path]
) -> None:
    write_data_set("a", "b")
    done = stoker("mount", "-f", data_set, "data")
    assert done.code == 1
    assert done.err.startswith("MountpointMissing: ")
    assert not api.asked


def test_standard_input(api: Any, place: Path, data_set: Path) -> None:
    api.answers["POST /v1/mounts"] = lambda _query, body: [mounted(body)]
    (place / "data").mkdir()
    command = [sys.executable, "-m", "stoker.cli.main", "mount", "-f", "-", "data"]
    done = subprocess.run(command, input=data_set.read_bytes(), capture_output=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    assert api.bodies("POST /v1/mounts")[0]["place"] == "standard input:1"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_foreground_stays_and_unmounts_at_the_end(api: Any, place: Path, data_set: Path, number: int) -> None:
    (place / "data").mkdir()
    api.answers["POST /v1/mounts"] = lambda _query, body: [mounted(body)]
    api.answers["GET /v1/status"] = lambda *_: {"mounts": [{"mountpoint": f"{place}/data"}]}
    api.answers["DELETE /v1/mounts"] = lambda *_: {"unmounted": True, "remaining": 0}
    command = [sys.executable, "-m", "stoker.cli.main", "mount", "-f", str(data_set), "data", "--foreground"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        assert child.stderr.readline() == "Ctrl-C unmounts.\n"
        while not any(route == "GET /v1/status" for route, *_ in api.asked):
            os.sched_yield()
        child.send_signal(number)
        out, err = child.communicate(timeout=30)
    assert (child.returncode, err) == (0, "")
    assert out.splitlines()[-1] == f"unmounted {place}/data"


def test_foreground_ends_when_someone_else_unmounts(
    api: Any, place: Path, stoker: Callable[..., Any], data_set: Path
) -> None:
    (place / "data").mkdir()
    api.answers["POST /v1/mounts"] = lambda _query, body: [mounted(body)]
    api.answers["GET /v1/status"] = lambda *_: {"mounts": []}
    assert stoker("mount", "-f", data_set, "data", "--foreground").code == 0
    assert api.asked[-1][0] == "GET /v1/status"


def test_a_runtime_given_to_a_running_node_is_not_passed_over_in_silence(
    api: Any, place: Path, stoker: Callable[..., Any], data_set: Path
) -> None:
    runtime = {
        "apiVersion": "stoker.dev/v1alpha1",
        "kind": "CacheRuntime",
        "metadata": {"name": "r"},
        "spec": {"tiers": [{"path": "/c", "quota": "1Gi"}]},
    }
    with data_set.open("a") as file:
        file.write("---\n" + json.dumps(runtime) + "\n")
    (place / "data").mkdir()
    api.answers["POST /v1/mounts"] = lambda _query, body: [mounted(body)]
    done = stoker("mount", "-f", data_set, "data")
    assert done.code == 0
    assert "runs already" in done.err
