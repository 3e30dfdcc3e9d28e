"""Listing: a large folder of a mount, the first entry after a mount, and a prefix of a store."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import obstore

from bench.measure import Pair, Row, drop_caches, paired
from bench.setup import Setup
from servers.node import Node
from stoker.sources import open_source
from stoker.sources.base import Credentials, SourceSpec

_ENTRIES = 100_000
_FIRST_ENTRY_MS = 50.0


class FlatFolder:
    """100,000 empty files in one folder (a tenth for quick), and a node."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._origin = setup.root / "flat"
        self._origin.mkdir()
        for index in range(setup.count(_ENTRIES)):
            (self._origin / f"image-{index:07d}.jpeg").touch()
        self._node: Node = setup.new_node()
        self._document = setup.file("flat", self._origin)

    def all_entries(self, row: str, listing: Callable[[Path], float]) -> Row:
        """The whole folder by `listing`, kernel caches dropped."""
        data = self._node.mount(self._document)

        def listed(folder: Path) -> float:
            drop_caches()
            return listing(folder)

        pairs = paired(self._setup.runs, lambda: listed(data), lambda: listed(self._origin))
        self._node.ok("unmount", str(data))
        return Row(row, "native disk", "entries/s", 0.8, pairs)

    def first_entry(self) -> Row:
        """The first entry right after a mount; the reference is the time allowed for it."""
        pairs = [Pair(self._first_ms(), _FIRST_ENTRY_MS) for _ in range(self._setup.runs)]
        return Row("first_entry", "allowed", "ms", _FIRST_ENTRY_MS, pairs, less_is_better=True)

    def close(self) -> None:
        self._setup.drop_node(self._node)

    def _first_ms(self) -> float:
        data = self._node.mount(self._document)
        begun = time.perf_counter()
        with os.scandir(data) as entries:
            next(entries)
        milliseconds = (time.perf_counter() - begun) * 1000
        self._node.ok("unmount", str(data))
        return milliseconds


def list_source(setup: Setup) -> Row:
    """All keys below a prefix of the store: our signed listing against obstore's."""
    count = setup.count(_ENTRIES)
    setup.fill("keys", count, 1)
    spec = SourceSpec(**setup.store.source("keys"), credentials=Credentials.from_json(setup.store.credentials))

    def subject() -> float:
        return count / asyncio.run(_ours(spec, count))

    def reference() -> float:
        begun = time.perf_counter()
        found = sum(len(chunk) for chunk in obstore.list(setup.store.open(), "keys", chunk_size=1000))
        _check(found, count)
        return count / (time.perf_counter() - begun)

    pairs = setup.paired(subject, reference)
    return Row("list_source", "obstore", "keys/s", 0.8, pairs)


async def _ours(spec: SourceSpec, count: int) -> float:
    begun = time.perf_counter()
    source = open_source(spec)
    found = 0
    async for page in source.list():
        found += len(page)
    await source.close()
    _check(found, count)
    return time.perf_counter() - begun


def _check(found: int, count: int) -> None:
    if found != count:
        raise RuntimeError(f"list_source: {found} keys of {count} were listed")
