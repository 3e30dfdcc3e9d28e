"""Many small files with one reader: hot, and from the cache's disk."""

from __future__ import annotations

from pathlib import Path

from bench.measure import Row, drop_caches, paired, read_each, read_each_by, shuffled
from bench.preloads import run_preload
from bench.setup import Setup
from servers.node import Node

_SIZE = 64 << 10
_HOT_RUNS = 9  # the least that settles a ratio near its bar


class SmallFiles:
    """20,000 files of 64 KiB (a tenth for quick), cached; shared by both rows."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._origin = setup.local_files("many", setup.count(20_000), _SIZE)
        self._paths = shuffled(self._origin)
        self._node: Node = setup.new_node()
        document = setup.file("many", self._origin)
        self._data = self._node.mount(document)
        run_preload(self._node, document, {})

    def hot(self) -> Row:
        """Everything is in memory on both sides after one pass that is not timed."""
        ours, theirs = self._below(self._data), self._below(self._origin)
        read_each(ours)
        read_each(theirs)
        pairs = paired(max(self._setup.runs, _HOT_RUNS), lambda: read_each(ours), lambda: read_each(theirs))
        return Row("hot_small", "native disk", "files/s", 0.75, pairs)

    def from_disk(self, row: str, threads: int) -> Row:
        """Kernel caches dropped. Raises RuntimeError when anything came from the source."""
        before = self._node.status()["bytesFromSource"]
        few = slice(0, self._setup.count(8000))

        def read(paths: list[str]) -> float:
            drop_caches()
            return read_each_by(threads, paths[few]) if threads > 1 else read_each(paths[few])

        ours, theirs = self._below(self._data), self._below(self._origin)
        pairs = paired(self._setup.runs, lambda: read(ours), lambda: read(theirs))
        if self._node.status()["bytesFromSource"] != before:
            raise RuntimeError(f"{row}: cached files were read from the source")
        return Row(row, "native disk", "files/s", 0.6, pairs)

    def close(self) -> None:
        self._setup.drop_node(self._node)

    def _below(self, folder: Path) -> list[str]:
        return [f"{folder}/{path}" for path in self._paths]
