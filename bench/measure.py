"""How things are timed and judged: paired runs that alternate, medians, and the spread beside them."""

from __future__ import annotations

import mmap
import os
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MIB = 1 << 20
_BUFFER = MIB


@dataclass(frozen=True, slots=True)
class Pair:
    """What Stoker and what it is compared with did, one after the other; what the store's processes used meanwhile."""

    subject: float
    reference: float
    server_cpu_s: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the results. Where more is better the ratio must reach the bar; where less is better the subject must
    stay below it, in its own unit."""

    row: str
    reference_name: str
    unit: str
    bar: float
    pairs: Sequence[Pair]
    less_is_better: bool = False
    peer: str = ""

    @property
    def subject(self) -> float:
        return statistics.median(pair.subject for pair in self.pairs)

    @property
    def reference(self) -> float:
        return statistics.median(pair.reference for pair in self.pairs)

    @property
    def ratio(self) -> float:
        """The median of the ratios of each pair: what slows the machine down for a while slows both."""
        return statistics.median(pair.subject / pair.reference for pair in self.pairs)

    @property
    def met(self) -> bool:
        return self.subject <= self.bar if self.less_is_better else self.ratio >= self.bar

    def to_json(self) -> dict[str, Any]:
        line = {
            "row": self.row,
            "subject": round(self.subject, 2),
            "reference": round(self.reference, 2),
            "referenceName": self.reference_name,
            "ratio": round(self.ratio, 3),
            "better": "less" if self.less_is_better else "more",
            "bar": self.bar,
            "met": self.met,
            "unit": self.unit,
            "runs": [[round(pair.subject, 2), round(pair.reference, 2)] for pair in self.pairs],
        }
        servers = [pair.server_cpu_s for pair in self.pairs if pair.server_cpu_s is not None]
        if self.peer:
            line["peer"] = self.peer
        if servers:
            line["serverCpu"] = [round(statistics.median(side), 2) for side in zip(*servers, strict=True)]
        return line


def paired(
    runs: int,
    subject: Callable[[], float],
    reference: Callable[[], float],
    server_cpu: Callable[[], float] | None = None,
) -> list[Pair]:
    """Alternate, and alternate who begins. `server_cpu`: CPU seconds of the store so far."""

    def run(work: Callable[[], float]) -> tuple[float, float]:
        before = server_cpu() if server_cpu else 0.0
        result = work()
        return result, server_cpu() - before if server_cpu else 0.0

    pairs = []
    for number in range(runs):
        if number % 2:
            other, ours = run(reference), run(subject)
        else:
            ours, other = run(subject), run(reference)
        pairs.append(Pair(ours[0], other[0], (ours[1], other[1]) if server_cpu else None))
    return pairs


def settle(nbytes: int) -> None:
    """What earlier work left is on disk, and so much free memory was touched a moment ago.

    A virtual machine gives free memory back to its host, and touching it again costs more than reading a file into it
    does (docs/design/limits.md): it would be charged to whoever comes next.
    """
    os.sync()
    with mmap.mmap(-1, nbytes) as memory:
        for start in range(0, nbytes, mmap.PAGESIZE):
            memory[start] = 1


def drop_caches() -> bool:
    """Let the kernel forget pages, entries and inodes. False where only root may."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("3")
    except OSError:
        return False
    return True


def read_whole(path: Path) -> float:
    """One file from start to end with one reader: MB/s."""
    buffer, total = bytearray(_BUFFER), 0
    begun = time.perf_counter()
    fd = os.open(path, os.O_RDONLY)
    try:
        while count := os.readv(fd, [buffer]):
            total += count
    finally:
        os.close(fd)
    return total / (time.perf_counter() - begun) / 1e6


def read_each(paths: Iterable[str]) -> float:
    """Open, read and close one file after the other: files/s."""
    count, begun = 0, time.perf_counter()
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        while os.read(fd, _BUFFER):
            pass
        os.close(fd)
        count += 1
    return count / (time.perf_counter() - begun)


def read_each_by(threads: int, paths: Sequence[str]) -> float:
    """The same by so many threads, each with a share of them: files/s."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda share: read_each(paths[share::threads]), range(threads)))
    return len(paths) / (time.perf_counter() - begun)


def list_names(folder: Path) -> float:
    """All names of a folder: entries/s."""
    begun = time.perf_counter()
    return len(os.listdir(folder)) / (time.perf_counter() - begun)


def list_entries(folder: Path) -> float:
    """All entries of a folder with the attributes of each, as `ls -l` and most data loaders ask: entries/s."""
    begun = time.perf_counter()
    return stat_each(folder) / (time.perf_counter() - begun)


def stat_each(folder: Path) -> int:
    """Ask for the attributes of each entry of a folder: how many there are."""
    with os.scandir(folder) as entries:
        return sum(1 for entry in entries if entry.stat())


def shuffled(folder: Path, seed: int = 1) -> list[str]:
    """The files below a folder as an epoch reads them."""
    paths = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    random.Random(seed).shuffle(paths)
    return paths
