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

PAGE = 16 << 10
SIZES = {"small/a": 40_000, "small/b": 40_000, "page": PAGE, "large/a": 2_000_000, "large/b": 2_000_000}
"""Of the objects of one harm, in a folder of its name."""


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

    def files(self) -> dict[str, Path]:
        """The cache file of each object, found by its bytes."""
        names = {data: name for name, data in self.contents.items()}
        paths = [path for path in (self.cache / "objects").rglob("*") if path.is_file()]
        return {names[path.read_bytes()]: path for path in paths}


def flipped(paths: list[Path]) -> None:
    """One bit in each page."""
    for path in paths:
        data = bytearray(path.read_bytes())
        for offset in range(5, len(data), PAGE):
            data[offset] ^= 1
        path.write_bytes(data)


def zeroed(paths: list[Path]) -> None:
    """Lengths and extents are on disk, the data is not: what journals of ext4 and XFS leave."""
    for path in paths:
        path.write_bytes(bytes(path.stat().st_size))


def one_page_zeroed(paths: list[Path]) -> None:
    for path in paths:
        with open(path, "r+b") as file:
            file.seek(path.stat().st_size // 2 // PAGE * PAGE)
            file.write(bytes(min(PAGE, path.stat().st_size)))


def truncated(paths: list[Path]) -> None:
    for path in paths:
        os.truncate(path, path.stat().st_size // 2)


def emptied(paths: list[Path]) -> None:
    for path in paths:
        os.truncate(path, 0)


def removed(paths: list[Path]) -> None:
    for path in paths:
        path.unlink()


def exchanged(paths: list[Path]) -> None:
    """Each has the bytes of another one of its length, where there is one."""
    by_size: dict[int, list[Path]] = {}
    for path in paths:
        by_size.setdefault(path.stat().st_size, []).append(path)
    for one, other in (pair for pair in by_size.values() if len(pair) == 2):
        data = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(data)


def appended(paths: list[Path]) -> None:
    for path in paths:
        with open(path, "ab") as file:
            file.write(b"more")


HARMS = [flipped, zeroed, one_page_zeroed, truncated, emptied, removed, exchanged, appended]
SPARED = "spared"
"""A folder that nothing happens to."""

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


Way = Callable[[Rebooted], contextlib.AbstractContextManager[Read]]
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
    folders = [harm.__name__ for harm in HARMS] + [SPARED]
    contents = {f"{folder}/{name}": os.urandom(size) for folder in folders for name, size in SIZES.items()}
    for name, data in contents.items():
        store.put(name, data)
    return Rebooted(scratch, contents, data_set("ds", store.source(), **MODES[request.param]))


def cache_status(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(node.ok("status", "--json"))["node"]["cache"]
    return found


def wrong(rig: Rebooted, root: Path, read: Read) -> list[str]:
    """The files that do not have the source's bytes."""
    return [name for name, data in rig.contents.items() if read(root / name) != data]


def read_all(rig: Rebooted, node: Node, way: Way) -> None:
    """At once after the reboot, and when all was compared: the right bytes, in the end all from cache again."""
    root = node.mount(rig.document)
    with way(rig) as read:
        for _ in range(2):
            assert wrong(rig, root, read) == []
        wait_for(lambda: cache_status(node)["checked"], what="what earlier boots wrote is compared")
        assert wrong(rig, root, read) == []
        before = node.status()
        assert before["cachedBytes"] == before["bytes"]
        assert wrong(rig, root, read) == []
        after = node.status()
    assert after["bytesFromSource"] == before["bytesFromSource"]
    if before["passthrough"]:
        assert after["bytesFromCache"] == before["bytesFromCache"], "the kernel reads the compared files itself"


ALONE = [pytest.param([harm], id=harm.__name__, marks=pytest.mark.slow) for harm in HARMS]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("harms", [pytest.param(HARMS, id="all"), *ALONE])
def test_what_a_reboot_harms_gives_no_wrong_byte(
    rig: Rebooted, harms: list[Callable[[list[Path]], None]], way: Way
) -> None:
    rig.load()
    files = rig.files()
    assert files.keys() == rig.contents.keys()
    for harm in harms:
        harm([path for name, path in files.items() if name.startswith(f"{harm.__name__}/")])
    with rig.boot("after") as node:
        read_all(rig, node, way)
        fetched, status = node.status()["bytesFromSource"], cache_status(node)
        assert fetched > 0
        assert status["lostBytes"] > 0
        assert f"{status['badPages']:,} bad pages" in node.ok("status")
        harmed = sum(len(data) for name, data in rig.contents.items() if not name.startswith(SPARED))
        assert fetched <= harmed, "what nothing happened to is not fetched again"


@pytest.mark.parametrize("way", [by_pread, pytest.param(by_mmap, marks=pytest.mark.slow)])
def test_an_index_from_an_older_copy_gives_no_wrong_byte(rig: Rebooted, way: Way) -> None:
    """It knows nothing of the files that came later, and gives their numbers again."""
    rig.load(f"{SPARED}/**")
    shutil.copytree(rig.cache / "index", rig.scratch / "old-index")
    rig.load()
    shutil.rmtree(rig.cache / "index")
    shutil.copytree(rig.scratch / "old-index", rig.cache / "index")
    with rig.boot("after") as node:
        read_all(rig, node, way)
        assert cache_status(node)["lostBytes"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_reboot_that_harms_nothing_loses_nothing(rig: Rebooted, way: Way) -> None:
    rig.load()
    with rig.boot("after") as node:
        read_all(rig, node, way)
        assert node.status()["bytesFromSource"] == 0
        assert cache_status(node)["lostBytes"] == 0
