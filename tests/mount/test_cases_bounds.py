"""CASES of area cache on real mounts: what is kept stays below its bounds, and a full disk fails no reader."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from servers.mounts import mount
from servers.node import running_node
from servers.scripted_store import ScriptedStore
from servers.watched import Watched

pytestmark = pytest.mark.fuse

MIB = 1 << 20


def quota_node(scratch: Path, **settings: str) -> Any:
    """A node whose cache is smaller than what is read through it."""
    return running_node(scratch, AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", **settings)


def disk_usage(folder: Path) -> int:
    """Bytes that files of the cache take on disk."""
    total = 0
    for below, _, files in os.walk(folder):  # what vanishes meanwhile is passed over
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(below, name)).st_blocks * 512
    return total


def read_all(root: Path, contents: dict[str, bytes], threads: int = 8) -> None:
    with ThreadPoolExecutor(threads) as pool:
        wrong = [
            key for key, same in pool.map(lambda k: (k, (root / k).read_bytes() == contents[k]), contents) if not same
        ]
    assert wrong == []


@pytest.fixture
def small_disk(scratch: Path) -> Iterator[Path]:
    """A file system of 96 MiB for the cache alone."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    folder = scratch / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "small", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)  # the node's end may have done it


class TestCA09:
    """azure-sdk-for-python#28946: the cache grows until the disk is full."""

    @pytest.fixture
    def contents(self, scripted_store: ScriptedStore) -> dict[str, bytes]:
        """128 MiB: large objects and small ones."""
        sizes = [8 * MIB + 1] * 14 + [100_000] * 160
        made = {f"f{number:03}": os.urandom(size) for number, size in enumerate(sizes)}
        for key, data in made.items():
            scripted_store.put(key, data)
        return made

    def test_ca_09_never_above_the_limit(
        self, scratch: Path, scripted_store: ScriptedStore, contents: dict[str, bytes]
    ) -> None:
        with quota_node(scratch, STOKER_CACHE_QUOTA="32Mi") as node:
            root = mount(node, scripted_store)
            with Watched(lambda: disk_usage(scratch / "cache" / "objects")) as watched:
                read_all(root, contents)
            tier = node.api("GET", "/v1/status")["node"]["cache"]["tiers"][0]
            again = mount(node, scripted_store, "again")
            read_all(again, contents)
        assert tier["limitBytes"] == 32 * MIB
        assert 0 < tier["usedBytes"] <= tier["limitBytes"]
        assert 8 * MIB < max(watched.seen) <= 32 * MIB

    def test_ca_09_leaves_free_what_a_negative_limit_says(
        self, scratch: Path, small_disk: Path, scripted_store: ScriptedStore, contents: dict[str, bytes]
    ) -> None:
        (small_disk / "of others").write_bytes(os.urandom(20 * MIB))
        settings = {"STOKER_CACHE_DIR": str(small_disk / "cache"), "STOKER_RESERVE_FREE": "1Mi"}
        with quota_node(scratch, STOKER_CACHE_QUOTA="-40Mi", **settings) as node:
            root = mount(node, scripted_store)
            with Watched(lambda: free(small_disk)) as watched:
                read_all(root, contents)
            used = node.api("GET", "/v1/status")["node"]["cache"]["tiers"][0]["usedBytes"]
        assert used > 0
        assert min(watched.seen) >= 40 * MIB

    def test_ca_09_a_disk_that_others_fill_is_read_past(
        self, scratch: Path, small_disk: Path, scripted_store: ScriptedStore, contents: dict[str, bytes]
    ) -> None:
        settings = {"STOKER_CACHE_DIR": str(small_disk / "cache"), "STOKER_RESERVE_FREE": "0"}
        with quota_node(scratch, STOKER_CACHE_QUOTA="64Mi", **settings) as node:
            root = mount(node, scripted_store)
            first, *rest = contents
            assert (root / first).read_bytes() == contents[first]
            fill(small_disk / "of others")
            read_all(root, {key: contents[key] for key in rest})


def free(folder: Path) -> int:
    info = os.statvfs(folder)
    return info.f_bavail * info.f_frsize


def fill(path: Path) -> None:
    """Until there is no room left."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(MIB))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def test_ca_05_evicted_under_a_reader(scratch: Path, scripted_store: ScriptedStore) -> None:
    first = os.urandom(12 * MIB)
    others = {f"o{number}": os.urandom(8 * MIB) for number in range(4)}
    for key, data in {"f": first, **others}.items():
        scripted_store.put(key, data)
    with quota_node(scratch, STOKER_CACHE_QUOTA="24Mi") as node:
        root = mount(node, scripted_store)
        with open(root / "f", "rb", buffering=0) as file:
            assert file.read(MIB) == first[:MIB]
            for key, data in others.items():
                assert (root / key).read_bytes() == data
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            assert file.read() == first[MIB:]
