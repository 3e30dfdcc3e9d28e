"""What the rows work on: a folder on disk, a store with data in it, nodes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import obstore
from obstore.store import S3Store

from bench.measure import Pair, paired, settle
from bench.store import Store
from servers.node import Node, data_set, running_node

_PARALLEL_PUTS = 32
_LARGE, _QUICK_LARGE = 1 << 30, 128 << 20
_MOST_HELD = 2 << 30
_ON_DISK = "/var/tmp"
_FRESH = 5 << 30  # a cold read of 1 GiB touches twice that, and a preload of 2 GiB as much


def object_name(number: int) -> str:
    """Of a file or object below its folder or prefix: a thousand in each folder."""
    return f"{number // 1000:03d}/{number:06d}.bin"


@dataclass(frozen=True)
class Large:
    """Large objects below a prefix of the store, one for each run of a row."""

    prefix: str
    size: int

    def name(self, number: int) -> str:
        """Below the prefix."""
        return object_name(number)

    def key(self, number: int) -> str:
        return f"{self.prefix}/{self.name(number)}"


@dataclass
class Setup:
    """One run of the bench. `quick` is a tenth of the data."""

    root: Path
    store: Store
    quick: bool
    runs: int
    _nodes: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _count: int = 0
    _large: Large | None = None

    @property
    def large_size(self) -> int:
        """Of a large file or object."""
        return _QUICK_LARGE if self.quick else _LARGE

    def large(self) -> Large:
        """The rows share them: each has a node with an empty cache. The store has them in memory."""
        if self._large is None:
            self._large = Large("large", self.large_size)
            self.fill(self._large.prefix, self.runs, self._large.size)
        self.store.warm()
        return self._large

    def paired(self, subject: Callable[[], float], reference: Callable[[], float]) -> list[Pair]:
        """With the CPU time of the store beside each run; the machine is settled before each."""

        def settled(work: Callable[[], float]) -> Callable[[], float]:
            def run() -> float:
                settle(_FRESH // 4 if self.quick else _FRESH)
                return work()

            return run

        return paired(self.runs, settled(subject), settled(reference), self.store.cpu_seconds)

    def count(self, full: int) -> int:
        """So many files, or a tenth of them."""
        return full // 10 if self.quick else full

    def new_node(self, **settings: str) -> Node:
        """A node with an empty cache, on the disk where everything else is."""
        self._count += 1
        root = self.root / f"n{self._count}"
        root.mkdir()
        return self._nodes.enter_context(running_node(root, **self.store.environment, **settings))

    def drop_node(self, node: Node) -> None:
        """End a node and give its disk space back."""
        node.close()
        shutil.rmtree(node.root)

    def local_files(self, name: str, count: int, size: int) -> Path:
        """A folder of random files: the native reference and, by file://, a source."""
        folder = self.root / name
        for index in range(count):
            path = folder / object_name(index)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(size))
        return folder

    def fill(self, prefix: str, count: int, size: int) -> None:
        """Random objects below a prefix of the store."""
        objects = {f"{prefix}/{object_name(index)}": size for index in range(count)}
        asyncio.run(put_random(self.store.open(), objects))

    def fill_flat(self, prefix: str, count: int) -> None:
        """Objects of one byte, all in one folder."""
        asyncio.run(put_random(self.store.open(), {f"{prefix}/image-{index:07d}.jpeg": 1 for index in range(count)}))

    def s3(self, name: str, prefix: str) -> dict[str, Any]:
        return data_set(name, self.store.source(prefix))

    def file(self, name: str, folder: Path) -> dict[str, Any]:
        return data_set(name, {"name": name, "uri": f"file://{folder}/"})

    def close(self) -> None:
        self._nodes.close()


async def put_random(store: S3Store, objects: Mapping[str, int]) -> None:
    """Put an object of so many random bytes for each key."""
    pending = iter(objects.items())

    async def work() -> None:
        for key, size in pending:
            await obstore.put_async(store, key, os.urandom(size))

    await asyncio.gather(*(work() for _ in range(_at_once(objects))))


def _at_once(objects: Mapping[str, int]) -> int:
    """Large ones few at a time: each is held in memory."""
    return max(1, min(_PARALLEL_PUTS, len(objects), _MOST_HELD // max(objects.values())))


@contextlib.contextmanager
def work_folder(name: str) -> Iterator[Path]:
    """A folder on disk that is gone afterwards, on SIGTERM too; short, because the paths of sockets are."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    root = Path(tempfile.mkdtemp(prefix=f"stoker-{name}-", dir=_ON_DISK))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def bench_setup(store: Store, root: Path, *, quick: bool, runs: int) -> Iterator[Setup]:
    setup = Setup(root, store, quick, runs)
    try:
        yield setup
    finally:
        setup.close()
