"""One reader, one large file: from the cache's disk, and cold from the store."""

from __future__ import annotations

import itertools
import time

import obstore

from bench.measure import MIB, Row, drop_caches, paired, read_whole
from bench.preloads import run_preload
from bench.setup import Setup


def seq_warm(setup: Setup) -> Row:
    """A cached file with kernel caches dropped, against the same file on the same disk."""
    size = 256 * MIB if setup.quick else 1024 * MIB
    origin = setup.local_files("seq", 1, size)
    node = setup.new_node()
    document = setup.file("seq", origin)
    data = node.mount(document)
    run_preload(node, document, {})
    name = "000/000000.bin"

    def read(folder: object) -> float:
        drop_caches()
        return read_whole(folder / name)  # type: ignore[operator]

    pairs = paired(setup.runs, lambda: read(data), lambda: read(origin))
    setup.drop_node(node)
    return Row("seq_warm", "native disk", "MB/s", 0.9, pairs)


def seq_cold_loopback(setup: Setup) -> Row:
    """An object that was never read, against one streamed GET into memory. Server and reader share the cores."""
    size = 256 * MIB if setup.quick else 1024 * MIB
    setup.fill("cold", setup.runs, size)
    node = setup.new_node()
    data = node.mount(setup.s3("cold", "cold"))
    ours, theirs = itertools.count(), itertools.count()

    def subject() -> float:
        return read_whole(data / "000" / f"{next(ours):06d}.bin")

    def reference() -> float:
        begun = time.perf_counter()
        got = sum(len(piece) for piece in obstore.get(setup.store.open(), f"cold/000/{next(theirs):06d}.bin").stream())
        return got / (time.perf_counter() - begun) / 1e6

    pairs = paired(setup.runs, subject, reference)
    setup.drop_node(node)
    return Row("seq_cold_loopback", "obstore to memory", "MB/s", 0.6, pairs)
