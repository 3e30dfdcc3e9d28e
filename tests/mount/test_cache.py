"""The cache behind real mounts: over restarts, on several disks, and handed to the kernel."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from servers.node import Node, data_set, processes_of, wait_for
from servers.stores import FolderStore

pytestmark = pytest.mark.fuse

SIZES = {"small": 40_000, "page": 16 << 10, "large": 9_000_000, "other": 9_000_000}


def fill(store: FolderStore) -> dict[str, bytes]:
    contents = {name: os.urandom(size) for name, size in SIZES.items()}
    for name, data in contents.items():
        store.put(name, data)
    return contents


def preload(node: Node, document: dict[str, object]) -> None:
    node.ok("preload", "-f", "-", stdin=json.dumps(document))


def end(node: Node) -> None:
    node.ok("node", "--stop")
    wait_for(lambda: not processes_of(node.root), what="the node ends")


def test_what_was_cached_is_used_after_a_restart(node: Node, scratch: Path) -> None:
    store = FolderStore(scratch / "origin")
    contents = fill(store)
    document = data_set("ds", store.source())
    node.mount(document)
    preload(node, document)
    end(node)
    root = node.mount(document)
    assert {name: (root / name).read_bytes() for name in contents} == contents
    assert node.status()["bytesFromSource"] == 0


def test_several_disks_are_each_used(node: Node, scratch: Path) -> None:
    store = FolderStore(scratch / "origin")
    contents = {f"f{number}": os.urandom(30_000) for number in range(60)}
    for name, data in contents.items():
        store.put(name, data)
    runtime = {
        "apiVersion": "stoker.dev/v1alpha1",
        "kind": "CacheRuntime",
        "metadata": {"name": "disks"},
        "spec": {"tiers": [{"path": str(scratch / f"disk{n}"), "quota": "1Gi"} for n in (0, 1)]},
    }
    document = data_set("ds", store.source())
    root = scratch / "data"
    root.mkdir()
    node.ok("mount", "-f", "-", str(root), stdin=f"{json.dumps(runtime)}\n---\n{json.dumps(document)}\n")
    assert {name: (root / name).read_bytes() for name in contents} == contents
    counts = [sum(path.is_file() for path in (scratch / f"disk{n}" / "objects").rglob("*")) for n in (0, 1)]
    assert sum(counts) == 60
    assert min(counts) > 10
    tiers = node.api("GET", "/v1/status")["node"]["cache"]["tiers"]
    assert [tier["path"] for tier in tiers] == [str(scratch / "disk0"), str(scratch / "disk1")]


@pytest.mark.skipif(os.geteuid() != 0, reason="passthrough needs root")
def test_a_complete_file_is_read_by_the_kernel_itself(node: Node, scratch: Path) -> None:
    store = FolderStore(scratch / "origin")
    contents = fill(store)
    document = data_set("ds", store.source(), mount={"passthrough": "Always"})
    root = node.mount(document)
    if not node.status()["passthrough"]:
        pytest.fail("this kernel has no passthrough (Linux >= 6.9 has): mount should have refused")
    with open(root / "large", "rb") as early:
        assert early.read(100) == contents["large"][:100]
        preload(node, document)
        assert early.read() == contents["large"][100:], "an open from before keeps working"
    read_before = node.status()["bytesFromCache"] + node.status()["bytesFromSource"]
    assert {name: (root / name).read_bytes() for name in contents} == contents
    status = node.status()
    assert status["bytesFromCache"] + status["bytesFromSource"] == read_before, "no read reached a process of ours"
