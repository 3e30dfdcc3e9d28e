"""Random reads of a large object that was never read: bytes fetched from the store for each byte read."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

from bench.measure import Pair, Row
from bench.setup import Setup
from servers.node import Node

_KIB = 1 << 10
_QUIET_S = 0.3  # nothing has come for so long: what was fetched ahead is here, too
_MOST_S = 10.0

Reader = Callable[[Path, list[int], int], None]


def amplification_256k(setup: Setup) -> Row:
    """400 reads of 256 KiB by pread, at random multiples of 4 KiB (an eighth for quick, of a smaller object)."""
    return _row(setup, "amplification_256k", 1.1, by_pread, 400, 256 * _KIB)


def amplification_4k(setup: Setup) -> Row:
    """2,000 reads of 4 KiB by pread."""
    return _row(setup, "amplification_4k", 4.5, by_pread, 2000, 4 * _KIB)


def amplification_mmap_4k(setup: Setup) -> Row:
    """2,000 faults of 4 KiB in a mapping."""
    return _row(setup, "amplification_mmap_4k", 34, by_mmap, 2000, 4 * _KIB)


def _row(setup: Setup, row: str, bar: float, read: Reader, count: int, size: int) -> Row:
    large, node = setup.large(), setup.new_node()
    data = node.mount(setup.s3(row.replace("_", "-"), large.prefix))
    reads = count // 8 if setup.quick else count
    pairs = []
    for number in range(setup.runs):
        offsets = random_offsets(reads, size, large.size, seed=number)
        before = node.status()["bytesFromSource"]
        read(data / large.name(number), offsets, size)
        pairs.append(Pair((settled_bytes(node) - before) / (reads * size), 1.0))
    setup.drop_node(node)
    return Row(row, "bytes read", "x", bar, pairs, less_is_better=True)


def random_offsets(count: int, size: int, total: int, seed: int) -> list[int]:
    """Where to read, the same in each run of the bench."""
    numbers = random.Random(seed)
    return [numbers.randrange((total - size) // 4096) * 4096 for _ in range(count)]


def by_pread(path: Path, offsets: list[int], size: int) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        for offset in offsets:
            os.pread(fd, size, offset)
    finally:
        os.close(fd)


def by_mmap(path: Path, offsets: list[int], _size: int) -> None:
    with open(path, "rb") as file, contextlib.closing(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)) as mapped:
        for offset in offsets:
            mapped[offset]


def settled_bytes(node: Node, mount: str = "data") -> int:
    """Bytes fetched, once no more come."""
    return settled(lambda: int(node.status(mount)["bytesFromSource"]))


def settled(count: Callable[[], int]) -> int:
    """A count that grows, once it does not grow any more."""
    last, since, begun = count(), time.monotonic(), time.monotonic()
    for _ in itertools.count():
        time.sleep(0.05)
        now = time.monotonic()
        if (value := count()) != last:
            last, since = value, now
        elif now - since > _QUIET_S or now - begun > _MOST_S:
            break
    return last
