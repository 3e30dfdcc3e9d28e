"""A reboot played: the boot id is another, and the disk has lost or mixed up what was written before.

Read by pread, by mmap and through the kernel's passthrough, before and after the pages were compared with their
checksums: never a wrong byte, and what was lost is counted and fetched again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from servers.mapped import MappedReader
from servers.node import Node, data_set, processes_of, running_node, wait_for
from servers.stores import FolderStore

pytestmark = pytest.mark.fuse

SIZES = {"small/a": 40_000, "small/b": 40_000, "page": 16 << 10, "large/a": 5_000_000, "large/b": 5_000_000}


@dataclass
class Rebooted:
    """A node with a warm cache from an earlier boot; `boot` starts it again."""

    scratch: Path
    contents: dict[str, bytes]
    document: dict[str, Any]

    @property
    def cache(self) -> Path:
        return self.scratch / "cache"

    @contextlib.contextmanager
    def boot(self, name: str) -> Iterator[Node]:
        with running_node(self.scratch, STOKER_BOOT_ID=name, STOKER_FUSE_WORKERS="2") as node:
            yield node

    def load(self, paths: str = "**") -> None:
        """One life of the node in the boot before, with a clean stop at its end."""
        with self.boot("before") as node:
            document = {**self.document, "spec": {**self.document["spec"], "preload": {"paths": [paths]}}}
            node.ok("preload", "-f", "-", stdin=json.dumps(document))
            node.ok("node", "--stop")
            wait_for(lambda: not processes_of(self.scratch), what="the node ends")

    def files(self) -> list[Path]:
        return sorted(path for path in (self.cache / "objects").rglob("*") if path.is_file())

    def twins(self) -> list[tuple[Path, Path]]:
        """Pairs of cache files of one length."""
        by_size: dict[int, list[Path]] = {}
        for path in self.files():
            by_size.setdefault(path.stat().st_size, []).append(path)
        return [(paths[0], paths[1]) for paths in by_size.values() if len(paths) == 2]


def flipped(rig: Rebooted) -> None:
    """One bit in each page."""
    for path in rig.files():
        data = bytearray(path.read_bytes())
        for offset in range(5, len(data), 16 << 10):
            data[offset] ^= 1
        path.write_bytes(data)


def zeroed(rig: Rebooted) -> None:
    """Lengths and extents are on disk, the data is not: what journals of ext4 and XFS leave."""
    for path in rig.files():
        path.write_bytes(bytes(path.stat().st_size))


def one_page_zeroed(rig: Rebooted) -> None:
    for path in rig.files():
        with open(path, "r+b") as file:
            file.seek(path.stat().st_size // 2 // (16 << 10) * (16 << 10))
            file.write(bytes(min(16 << 10, path.stat().st_size)))


def truncated(rig: Rebooted) -> None:
    for path in rig.files():
        os.truncate(path, path.stat().st_size // 2)


def emptied(rig: Rebooted) -> None:
    for path in rig.files():
        os.truncate(path, 0)


def removed(rig: Rebooted) -> None:
    for path in rig.files():
        path.unlink()


def exchanged(rig: Rebooted) -> None:
    """Each has the bytes of the other."""
    assert rig.twins()
    for one, other in rig.twins():
        data = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(data)


def appended(rig: Rebooted) -> None:
    for path in rig.files():
        with open(path, "ab") as file:
            file.write(b"more")


HARMS = [flipped, zeroed, one_page_zeroed, truncated, emptied, removed, exchanged, appended]

Read = Callable[[Path], bytes]


@contextlib.contextmanager
def by_pread(_rig: Rebooted) -> Iterator[Read]:
    def read(path: Path) -> bytes:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return file.read()

    yield read


@contextlib.contextmanager
def by_mmap(rig: Rebooted) -> Iterator[Read]:
    reader = MappedReader()

    def read(path: Path) -> bytes:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        found = reader.read(os.fsencode(path), 0, path.stat().st_size)
        assert found is not None, "SIGBUS"
        return found

    with contextlib.closing(reader):
        yield read


WAYS = [by_pread, by_mmap]
MODES: dict[str, dict[str, Any]] = {
    "no-open": {"mount": {"passthrough": "Never"}},
    "passthrough": {"mount": {"passthrough": "Always"}, "cache": {"policy": "WholeFile"}},
}


@pytest.fixture(params=list(MODES))
def rig(request: pytest.FixtureRequest, scratch: Path) -> Rebooted:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("FUSE is not allowed here")
    if request.param == "passthrough" and os.geteuid() != 0:
        pytest.skip("passthrough needs root")
    store = FolderStore(scratch / "origin")
    contents = {name: os.urandom(size) for name, size in SIZES.items()}
    for name, data in contents.items():
        store.put(name, data)
    return Rebooted(scratch, contents, data_set("ds", store.source(), **MODES[request.param]))


def cache_status(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(node.ok("status", "--json"))["node"]["cache"]
    return found


def read_all(rig: Rebooted, node: Node, way: Callable[[Rebooted], contextlib.AbstractContextManager[Read]]) -> None:
    """At once after the reboot, and when all was compared: the right bytes, in the end all from cache again."""
    root = node.mount(rig.document)
    with way(rig) as read:
        for _ in range(2):
            assert {name: read(root / name) == data for name, data in rig.contents.items()} == dict.fromkeys(
                SIZES, True
            )
        wait_for(lambda: cache_status(node)["checked"], what="what earlier boots wrote is compared")
        assert {name: read(root / name) == data for name, data in rig.contents.items()} == dict.fromkeys(SIZES, True)
        before = node.status()
        assert before["cachedBytes"] == before["bytes"]
        assert {name: read(root / name) == data for name, data in rig.contents.items()} == dict.fromkeys(SIZES, True)
        after = node.status()
    assert after["bytesFromSource"] == before["bytesFromSource"]
    if before["passthrough"]:
        assert after["bytesFromCache"] == before["bytesFromCache"], "the kernel reads the compared files itself"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("harm", HARMS)
def test_what_a_reboot_harms_gives_no_wrong_byte(
    rig: Rebooted,
    harm: Callable[[Rebooted], None],
    way: Callable[[Rebooted], contextlib.AbstractContextManager[Read]],
) -> None:
    rig.load()
    harm(rig)
    with rig.boot("after") as node:
        read_all(rig, node, way)
        assert node.status()["bytesFromSource"] > 0
        status = cache_status(node)
        assert status["lostBytes"] > 0
        assert f"{status['badPages']:,} bad pages" in node.ok("status")


@pytest.mark.parametrize("way", WAYS)
def test_an_index_from_an_older_copy_gives_no_wrong_byte(
    rig: Rebooted, way: Callable[[Rebooted], contextlib.AbstractContextManager[Read]]
) -> None:
    """It knows nothing of the files that came later, and names them for other objects' files to come."""
    rig.load("small/a")
    shutil.copytree(rig.cache / "index", rig.scratch / "old-index")
    rig.load()
    shutil.rmtree(rig.cache / "index")
    shutil.copytree(rig.scratch / "old-index", rig.cache / "index")
    with rig.boot("after") as node:
        read_all(rig, node, way)
        assert cache_status(node)["lostBytes"] > 0


@pytest.mark.parametrize("way", WAYS)
def test_a_reboot_that_harms_nothing_loses_nothing(
    rig: Rebooted, way: Callable[[Rebooted], contextlib.AbstractContextManager[Read]]
) -> None:
    rig.load()
    with rig.boot("after") as node:
        read_all(rig, node, way)
        assert node.status()["bytesFromSource"] == 0
        assert cache_status(node)["lostBytes"] == 0
