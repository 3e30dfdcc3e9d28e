"""The cache's disk fails under running readers: they go on from the source, the user is told once, caching resumes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rigs.disk import Disk, small_disk
from servers.mounts import mount
from servers.node import Node, running_node, wait_for
from servers.scripted_store import ScriptedStore

pytestmark = pytest.mark.fuse

PAGE = 16 << 10
SMALL, LARGE = 90_000, 3_000_000


@dataclass
class Rig:
    """A node whose cache is on a disk of its own, a mount, and readers of it that never stop."""

    node: Node
    disk: Disk
    store: ScriptedStore
    contents: dict[str, bytes] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @property
    def cache(self) -> Path:
        return self.disk.root / "cache"

    def fill(self, name: str, large: int = 1) -> list[str]:
        """New objects below a prefix; their keys."""
        made = {f"{name}/{number}": os.urandom(SMALL) for number in range(12)}
        made |= {f"{name}/large{number}": os.urandom(LARGE) for number in range(large)}
        for key, data in made.items():
            self.store.put(key, data)
        self.contents |= made
        return list(made)

    def mount(self, name: str, **spec: Any) -> Path:
        return mount(self.node, self.store, name, **spec)

    def check(self, root: Path, keys: list[str]) -> None:
        for key in keys:
            assert read_anew(root / key) == self.contents[key], key

    def wait_until_cached(self, root: Path, keys: list[str]) -> None:
        """Until reading them asks the store for nothing."""
        end = time.monotonic() + 30
        asked = -1
        while asked != len(self.store.requests):
            assert time.monotonic() < end, f"still not cached: {self.tier()}\n{self.node.log()[-5000:]}"
            asked = len(self.store.requests)
            self.check(root, keys)

    def tier(self) -> dict[str, Any]:
        found: dict[str, Any] = self.node.api("GET", "/v1/status")["node"]["cache"]["tiers"][0]
        return found

    def state(self) -> str:
        with contextlib.suppress(OSError):  # the daemon was killed
            return str(self.tier()["state"])
        return ""

    def events(self) -> list[str]:
        """The reasons of what the log says of the cache's disk, in order."""
        return [r for line in self.node.log().splitlines() for r in reasons(line) if r.startswith("Cache")]

    @contextlib.contextmanager
    def broken(self, fault: Callable[[Rig], None]) -> Iterator[tuple[Path, list[str], list[str]]]:
        """The disk fails under readers of a mount. The mount, what was read before, and what was not."""
        old, new = self.fill("old"), self.fill("new")
        root = self.mount("data")
        self.check(root, old)
        with self.readers(root, old):
            fault(self)
            self.check(root, new)
            yield root, old, new

    @contextlib.contextmanager
    def readers(self, root: Path, keys: list[str]) -> Iterator[None]:
        """Two threads that read these again and again, past the kernel's cache."""
        stop = threading.Event()

        def read() -> None:
            while not stop.is_set() and not self.wrong:
                try:
                    self.check(root, keys)
                except (OSError, AssertionError) as error:
                    self.wrong.append(f"{type(error).__name__}: {error}")

        threads = [threading.Thread(target=read, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join(30)
        assert not any(thread.is_alive() for thread in threads), "a reader hangs"
        assert not self.wrong


def reasons(line: str) -> list[str]:
    with contextlib.suppress(ValueError):
        return [str(json.loads(line).get("reason", ""))]
    return [word.partition("=")[2] for word in line.split() if word.startswith("reason=")]


def read_anew(path: Path) -> bytes:
    """Not from the kernel's cache of the mount."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return file.read()


@pytest.fixture
def rig(scratch: Path, scripted_store: ScriptedStore) -> Iterator[Rig]:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("FUSE is not allowed here")
    with small_disk(scratch) as disk:
        settings = {
            "STOKER_CACHE_DIR": str(disk.root / "cache"),
            "STOKER_CACHE_QUOTA": "0",
            "STOKER_RESERVE_FREE": "1Mi",
            "STOKER_FUSE_WORKERS": "2",
            "STOKER_FETCHERS": "2",
        }
        with running_node(scratch, **settings) as node:
            yield Rig(node, disk, scripted_store)


def full(rig: Rig) -> None:
    rig.disk.fill()


def no_inodes(rig: Rig) -> None:
    rig.disk.take_inodes()


def failing(rig: Rig) -> None:
    rig.disk.fail()


def deleted(rig: Rig) -> None:
    shutil.rmtree(rig.cache)


def repair(rig: Rig, fault: Callable[[Rig], None]) -> None:
    if fault is failing:
        rig.disk.replace()
    rig.disk.give_back()


FAULTS = {full: "CacheFull", no_inodes: "CacheFull", failing: "CacheDiskFailing"}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_disk_that_fails_fails_no_read_and_is_told_once(rig: Rig, fault: Callable[[Rig], None]) -> None:
    old, new, newer = rig.fill("old"), rig.fill("new"), rig.fill("newer")
    root = rig.mount("data")
    rig.check(root, old)
    assert rig.state() == "ok"
    assert not rig.events()
    with rig.readers(root, old):
        fault(rig)
        rig.check(root, new)
        wait_for(lambda: rig.state() in ("full", "failing"), what=f"status says {rig.state()}")
        rig.check(rig.mount("again"), new)
        for _ in range(3):
            rig.check(root, new)
        assert rig.events() == [FAULTS[fault]], rig.node.log()
        assert FAULTS[fault] in rig.node.ok("status")
        repair(rig, fault)
        wait_for(lambda: rig.check(root, newer) or rig.state() == "ok", what="the disk is used again")
        rig.wait_until_cached(root, newer)
        assert rig.events() == [FAULTS[fault], "CacheRecovered"], rig.node.log()


def test_a_cache_folder_that_is_deleted_is_made_anew(rig: Rig) -> None:
    with rig.broken(deleted) as (root, old, new):
        rig.wait_until_cached(root, new)
        rig.wait_until_cached(root, old)
        assert rig.cache.joinpath(".stoker-cache").exists()
        # Told by the daemon's next look at its disks, which may come after the first pages are there again.
        wait_for(lambda: "CacheRecovered" in rig.events(), what="the recovery is told")
        assert rig.events() == ["CacheDiskFailing", "CacheRecovered"], rig.node.log()


ALSO = [(failing, "daemon"), (deleted, "daemon")]
MORE = [(fault, victim) for fault in (*FAULTS, deleted) for victim in ("worker", "fetcher", "daemon")]


@pytest.mark.parametrize(
    ("fault", "victim"),
    [pytest.param(*both, marks=() if both in ALSO else pytest.mark.slow) for both in MORE],
)
def test_processes_that_die_while_the_disk_is_bad_come_back(
    rig: Rig, fault: Callable[[Rig], None], victim: str
) -> None:
    with rig.broken(fault) as (root, _old, new):
        for _ in range(2):
            for pid in rig.node.pids(victim):
                rig.node.kill(pid)
            wait_for(rig.state, what="the daemon answers")
            rig.check(root, new)
        rig.check(rig.mount("again"), new)
        repair(rig, fault)
        rig.wait_until_cached(root, new)


@pytest.mark.parametrize(
    "fault", [failing, *(pytest.param(f, marks=pytest.mark.slow) for f in (full, no_inodes, deleted))]
)
def test_passthrough_files_stay_readable(rig: Rig, fault: Callable[[Rig], None]) -> None:
    old, new = rig.fill("old"), rig.fill("new")
    root = rig.mount("data", mount={"passthrough": "Always"}, cache={"policy": "WholeFile"})
    rig.check(root, old)
    with open(root / old[-1], "rb") as early:
        fault(rig)
        os.posix_fadvise(early.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert early.read() == rig.contents[old[-1]]
        rig.check(root, [old[0], new[0]])  # a whole file is waited for, for some seconds, before it is streamed
