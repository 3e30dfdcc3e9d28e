"""Mounts, changes at the source, bad answers, kills and reads in any order, against a model: never a wrong byte.

Every read gives bytes of the version that the mount's generation listed, or an errno that docs/SEMANTICS.md has for
what was done to that object; and it gives the bytes when nothing was.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, assume, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from rigs.mountmodel import Tree, Version, tree_of
from servers import scenarios
from servers.kills import VICTIMS, holders, whole
from servers.mapped import MappedReader
from servers.mounts import IMPATIENT
from servers.node import Node, alive, data_set, running_node, wait_for
from servers.scripted_store import Request, Response, Scenario, ScriptedStore, running_store
from stoker.api.dataset import DataSet
from stoker.api.errors import StokerError
from stoker.cli.client import AdminClient
from stoker.cli.documents import Order

pytestmark = pytest.mark.fuse

PAGE = 16 << 10
CHUNK = 4 << 20
SIZES = (0, 1, 100, PAGE, PAGE + 1, 5 * PAGE - 3, 20 * PAGE + 7, CHUNK + PAGE + 9)
DEADLINE_S = 20.0
"""No read may take longer, whatever the store does: 2 tries of 1 s, with their pauses, on a slow machine."""

REMEMBERED_S = 10.0
"""What was wrong may still be told this long: errors are remembered for some seconds, requests are still under way."""

NAMES = (b"a", b"b", b"A", b"a b", "\u00e9".encode(), "e\u0301".encode(), b"%2F", b"#?+&", b"\n", b"\x01", b"\xff\xfe")
ODD = (b"", b".", b"..", b"nul\0", b"n" * 255, b"n" * 256)
keys = st.lists(st.sampled_from(NAMES + ODD), min_size=1, max_size=3).map(b"/".join)
keys = st.one_of(keys, st.sampled_from(NAMES[:3]), keys.map(lambda key: key + b"/"))
offsets = st.integers(0, 1 << 30)


@dataclass
class Mount:
    """One generation, as the model knows it."""

    name: str
    root: bytes
    tree: Tree
    order: dict[str, Any]
    at: float


@dataclass
class World:
    """What is made once for many examples: a store, a node, a process that reads by mmap."""

    store: ScriptedStore
    node: Node
    mapped: MappedReader
    examples: int = 0
    holders: set[int] = field(default_factory=set)

    @property
    def admin(self) -> AdminClient:
        self.wait_until_whole()
        return AdminClient(str(self.node.root / "run" / "admin.sock"))

    def wait_until_whole(self) -> None:
        wait_for(lambda: whole(self.node), what="the node is whole")
        self.holders = holders(self.node)

    def kill(self, victim: str) -> None:
        """But never the last of those that hold everything."""
        if not {pid for pid in self.holders if alive(pid)} - set(VICTIMS[victim](self.node)[:1]):
            self.wait_until_whole()
        for pid in VICTIMS[victim](self.node)[:1]:
            self.node.kill(pid)


class MountMachine(RuleBasedStateMachine):
    """One example: keys below a prefix of its own."""

    world: ClassVar[World]

    @initialize()
    def begin(self) -> None:
        self.world.examples += 1
        self.prefix = b"example-%d/" % self.world.examples
        self.objects: dict[bytes, Version] = {}
        self.mounts: list[Mount] = []
        self.made = 0
        self.fault = ""
        self.healed = -1e9
        self.disturbed: dict[bytes, float] = {}
        self.scripted: set[bytes] = set()

    def teardown(self) -> None:
        for mount in getattr(self, "mounts", []):
            self.world.admin.unmount(os.fsdecode(mount.root), force=True)
        for key in getattr(self, "scripted", ()):
            self.world.store.objects.pop(self.prefix + key, None)

    # The source

    @rule(key=keys, size=st.sampled_from(SIZES), archived=st.sampled_from((False,) * 9 + (True,)))
    def put(self, key: bytes, size: int, archived: bool) -> None:
        self._put(key, os.urandom(size), archived)

    @precondition(lambda self: self.objects)
    @rule(data=st.data(), same_length=st.booleans())
    def replace(self, data: st.DataObject, same_length: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.objects)))
        old = self.objects[key]
        self._put(key, os.urandom(len(old.data) + (0 if same_length else 1 + len(old.data) // 3)), old.archived)

    @precondition(lambda self: self.objects)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        """The store loses the end of an object, and keeps its etag."""
        key = data.draw(st.sampled_from(sorted(self.objects)))
        stored = self.world.store.objects[self.prefix + key]
        self.world.store.objects[self.prefix + key] = replace(stored, data=stored.data[: len(stored.data) // 2])
        self.objects[key] = Version(stored.data[: len(stored.data) // 2], stored.etag, self.objects[key].archived)
        self.disturbed[key] = time.monotonic()

    @precondition(lambda self: self.mounts and self.mounts[-1].tree.files)
    @rule(data=st.data())
    def put_back(self, data: st.DataObject) -> None:
        """The version that a mount listed is there again."""
        key = data.draw(st.sampled_from(sorted(self.mounts[-1].tree.files)))
        version = self.mounts[-1].tree.files[key]
        self._put(key, version.data, version.archived, version.etag)

    @precondition(lambda self: self.objects)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.objects)))
        del self.objects[key], self.world.store.objects[self.prefix + key]
        self.disturbed[key] = time.monotonic()

    def _put(self, key: bytes, data: bytes, archived: bool, etag: str | None = None) -> None:
        store_class = "GLACIER" if archived else "STANDARD"
        self.world.store.put(self.prefix + key, data, etag, storage_class=store_class)
        self.objects[key] = Version(data, self.world.store.objects[self.prefix + key].etag, archived)
        self.disturbed[key] = time.monotonic()
        if key not in self.scripted:
            self.scripted.add(key)
            self.world.store.on(self.prefix + key, self._answer)

    def _answer(self, request: Request, right: Response) -> Response:
        """While there is a fault, what it makes of each answer that has bytes of an object."""
        if not self.fault or right.status not in (200, 206):
            return right
        return faults(self.world.store)[self.fault](request, right)

    # The store fails

    @rule(
        fault=st.sampled_from(
            sorted(
                (
                    "500",
                    "503",
                    "403",
                    "cut",
                    "reset",
                    "stall",
                    "silence",
                    "whole",
                    "short",
                    "long",
                    "range",
                    "shifted",
                    "redirect",
                )
            )
        )
    )
    def break_store(self, fault: str) -> None:
        self.fault = fault

    @precondition(lambda self: self.fault)
    @rule()
    def heal_store(self) -> None:
        self.fault = ""
        self.healed = time.monotonic()

    # Processes

    @precondition(lambda self: self.made)  # a mount is made when supervisor and daemon know of each other
    @rule(victim=st.sampled_from(sorted(VICTIMS)))
    def kill(self, victim: str) -> None:
        self.world.kill(victim)

    # Mounts

    @precondition(lambda self: len(self.mounts) < 3)
    @rule(policy=st.sampled_from(("Cache", "Cache", "WholeFile", "Bypass")))
    def mount(self, policy: str) -> None:
        self.made += 1
        name = f"m{self.world.examples}-{self.made}"
        source = {**self.world.store.source(self.prefix.decode()), "ignoreMissing": True}
        document = data_set(name, source, cache={"policy": policy}, mount=IMPATIENT, identity={"mode": "None"})
        root = self.world.node.root / name
        root.mkdir()
        order = Order(DataSet.from_body(document), "test").to_json()
        found = self.world.admin.mount({**order, "mountpoint": str(root)}, lambda _count: None)
        mount = Mount(name, os.fsencode(root), tree_of(self.objects), order, time.monotonic())
        self.mounts.append(mount)
        assert found["hidden"] == dict(mount.tree.hidden)
        assert found["files"] == len(mount.tree.files)
        assert found["directories"] == len(mount.tree.folders)
        assert found["bytes"] == sum(len(version.data) for version in mount.tree.files.values())

    @precondition(lambda self: self.mounts)
    @rule(number=st.integers(0, 2))
    def unmount(self, number: int) -> None:
        mount = self.mounts.pop(number % len(self.mounts))
        self.world.admin.unmount(os.fsdecode(mount.root), force=False)
        os.rmdir(mount.root)

    @precondition(lambda self: self.mounts)
    @rule(number=st.integers(0, 2))
    def preload(self, number: int) -> None:
        """It may fail where reads may; it is waited for, so that it is seen to end."""
        mount = self.mounts[number % len(self.mounts)]
        with contextlib.suppress(StokerError):  # a source that denies is not loaded
            job = self.world.admin.start_job({**mount.order, "operation": "Preload"}, lambda _count: None)
            end = time.monotonic() + 60
            while job["phase"] in ("Pending", "Running"):
                assert time.monotonic() < end, f"the preload does not end: {job}"
                job = self.world.admin.job(job["id"], job["version"])

    # What a mount shows

    @precondition(lambda self: self.mounts)
    @rule(number=st.integers(0, 2))
    def list(self, number: int) -> None:
        """Every folder, and every file's size."""
        mount = self.mounts[number % len(self.mounts)]
        for folder in mount.tree.folders:
            with os.scandir(os.path.join(mount.root, folder)) as found:
                shown = {entry.name: entry.is_dir() for entry in found}
            assert shown == mount.tree.entries(folder), folder
        for path, version in mount.tree.files.items():
            assert os.stat(os.path.join(mount.root, path)).st_size == len(version.data)

    @precondition(lambda self: any(mount.tree.files for mount in self.mounts))
    @rule(data=st.data(), offset=offsets, length=st.sampled_from((1, 4096, 3 * PAGE, 1 << 30)), anew=st.booleans())
    def pread(self, data: st.DataObject, offset: int, length: int, anew: bool) -> None:
        """Any part, or with the greatest length all of a file; `anew`: not from the kernel's memory."""
        mount, path = self._file(data)
        version = mount.tree.files[path]
        start = 0 if length > CHUNK else offset % (len(version.data) + 10)
        full = os.path.join(mount.root, path)
        self._check(mount, path, start, length, lambda: read_span(full, start, length, anew))

    @precondition(lambda self: any(mount.tree.files for mount in self.mounts))
    @rule(data=st.data(), offset=offsets, length=st.sampled_from((1, 4096, 3 * PAGE, 1 << 30)))
    def read_mapped(self, data: st.DataObject, offset: int, length: int) -> None:
        mount, path = self._file(data)
        version = mount.tree.files[path]
        assume(version.data)
        start = 0 if length > CHUNK else offset % len(version.data)
        full = os.path.join(mount.root, path)
        self._check(mount, path, start, length, lambda: (self.world.mapped.read(full, start, length), None))

    @precondition(lambda self: self.mounts)
    @rule(number=st.integers(0, 2), name=st.sampled_from(NAMES))
    def look_up_what_is_not_there(self, number: int, name: bytes) -> None:
        mount = self.mounts[number % len(self.mounts)]
        assume(name not in mount.tree.files and name not in mount.tree.folders)
        with pytest.raises(FileNotFoundError):
            os.stat(os.path.join(mount.root, name))

    def _file(self, data: st.DataObject) -> tuple[Mount, bytes]:
        mount = data.draw(st.sampled_from([mount for mount in self.mounts if mount.tree.files]))
        return mount, data.draw(st.sampled_from(sorted(mount.tree.files)))

    def _check(
        self, mount: Mount, path: bytes, start: int, length: int, read: Callable[[], tuple[bytes | None, int | None]]
    ) -> None:
        """Read, and compare what came with what may; once more for a while when an old trouble may still be told."""
        right = mount.tree.files[path].data[start : start + length]
        end = time.monotonic() + DEADLINE_S
        while True:
            began = time.monotonic()
            may, must_succeed, recent = self._allowed(mount, path)
            got, error = read()
            took = time.monotonic() - began
            assert took < DEADLINE_S, f"a read took {took:.1f} s"
            if got is None:
                note(f"{path!r} of {mount.name}: {errno.errorcode.get(error or 0, 'SIGBUS')}")
                assert error is None or error in may, f"{path!r}: {errno.errorcode[error]}, may be {may}"
                assert may, f"{path!r}: SIGBUS"
                if not must_succeed:
                    return
                assert recent, f"{path!r} failed, and nothing was wrong with it"
                assert time.monotonic() < end, f"{path!r} is not readable again"
                time.sleep(0.2)
                continue
            same = got == right if error is None else right.startswith(got)
            assert same, f"{path!r} of {mount.name} at {start}: wrong bytes, {len(got)} of {len(right)}"
            return

    def _allowed(self, mount: Mount, path: bytes) -> tuple[set[int], bool, bool]:
        """The errnos that may come; whether the bytes must come in the end; and whether something was wrong lately."""
        listed, now = mount.tree.files[path], self.objects.get(path)
        if listed.archived:
            return {errno.EACCES}, False, False
        if not listed.data:
            return set(), True, False
        may: set[int] = set()
        changed = now is None or now.etag != listed.etag
        lost = not changed and now is not None and now.data != listed.data
        if changed or lost:
            may.add(errno.ESTALE)
        if self.fault or lost:
            may |= {errno.EIO, errno.EACCES} if self.fault == "403" else {errno.EIO}
        must_succeed = not may
        lately = max(self.healed, self.disturbed.get(path, -1e9))
        recent = time.monotonic() - lately < REMEMBERED_S + DEADLINE_S
        if recent:
            may |= {errno.ESTALE, errno.EIO, errno.EACCES}
        return may, must_succeed, recent


def read_span(path: bytes, start: int, length: int, anew: bool) -> tuple[bytes | None, int | None]:
    """The bytes [start, start + length) as far as the file goes; or none, and the errno."""
    parts = []
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as error:
        return None, error.errno
    try:
        if anew:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        while length > 0 and (part := os.pread(fd, min(length, 1 << 20), start)):
            parts.append(part)
            start, length = start + len(part), length - len(part)
        return b"".join(parts), None
    except OSError as error:
        return None, error.errno
    finally:
        os.close(fd)


def faults(store: ScriptedStore) -> dict[str, Scenario]:
    """What a store does to a right answer."""
    return {
        "500": scenarios.refuses(500, "InternalError"),
        "503": scenarios.slow_down(),
        "403": scenarios.refuses(403, "AccessDenied"),
        "cut": scenarios.truncated(10),
        "reset": scenarios.truncated(PAGE + 10, reset=True),
        "stall": scenarios.stalls(10),
        "silence": scenarios.never_answers(),
        "whole": scenarios.ignores_range(store),
        "short": scenarios.short_body(),
        "long": scenarios.long_body(),
        "range": scenarios.with_headers(content_range="bytes 0-0/1"),
        "shifted": lambda request, right: scenarios.shifted(1)(request, right) if right.status == 206 else right,
        "redirect": scenarios.redirects("http://127.0.0.1:1/elsewhere"),
    }


@contextlib.contextmanager
def world(**cache: str) -> Iterator[World]:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("FUSE is not allowed here")
    folder = Path(tempfile.mkdtemp(prefix="stk-"))
    mapped = MappedReader()
    try:
        with running_store() as store, running_node(folder, STOKER_FUSE_WORKERS="2", **cache) as node:
            store.put("start", b"x")
            node.ok("unmount", str(node.mount(data_set("start", store.source("start"), identity={"mode": "None"}))))
            try:
                yield World(store, node, mapped)
            except BaseException:
                print(node.log()[-20000:])
                raise
    finally:
        mapped.close()
        shutil.rmtree(folder, ignore_errors=True)


A_FEW_PAGES = {"STOKER_CACHE_QUOTA": "700Ki", "STOKER_RESERVE_FREE": "1Mi"}
ENOUGH = {"STOKER_CACHE_QUOTA": "200Mi", "STOKER_RESERVE_FREE": "1Mi"}


def run(cache: dict[str, str], examples: int, steps: int, **more: Any) -> None:
    with world(**cache) as made:
        machine = type("Machine", (MountMachine,), {"world": made})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                deadline=None,
                print_blob=True,
                verbosity=Verbosity.verbose,  # the steps, with what came of each: shown when the test fails
                phases=(Phase.explicit, Phase.generate),  # a rerun on living processes takes another course
                suppress_health_check=list(HealthCheck),
                **more,
            ),
        )


@pytest.mark.parametrize("cache", [A_FEW_PAGES, ENOUGH], ids=["a few pages", "enough"])
def test_never_a_wrong_byte(cache: dict[str, str]) -> None:
    run(cache, 4, 25, derandomize=True, database=None)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("cache", [A_FEW_PAGES, ENOUGH], ids=["a few pages", "enough"])
def test_never_a_wrong_byte_for_long(cache: dict[str, str]) -> None:
    run(cache, 150, 50)
