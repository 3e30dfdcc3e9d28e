"""How things are timed and judged: paired runs that alternate, medians, and the spread beside them."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MIB = 1 << 20
_BUFFER = MIB


@dataclass(frozen=True, slots=True)
class Pair:
    """What Stoker and what it is compared with did, one after the other."""

    subject: float
    reference: float


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the results. A `ratio` of at least `bar` is what must hold, whichever way better is."""

    row: str
    reference_name: str
    unit: str
    bar: float
    pairs: Sequence[Pair]
    less_is_better: bool = False

    @property
    def subject(self) -> float:
        return statistics.median(pair.subject for pair in self.pairs)

    @property
    def reference(self) -> float:
        return statistics.median(pair.reference for pair in self.pairs)

    @property
    def ratio(self) -> float:
        """The median of the ratios of each pair: what slows the machine down for a while slows both."""
        ratio = statistics.median(pair.subject / pair.reference for pair in self.pairs)
        return 1 / ratio if self.less_is_better else ratio

    def to_json(self) -> dict[str, Any]:
        return {
            "row": self.row,
            "subject": round(self.subject, 2),
            "reference": round(self.reference, 2),
            "referenceName": self.reference_name,
            "ratio": round(self.ratio, 3),
            "bar": self.bar,
            "unit": self.unit,
            "runs": [[round(pair.subject, 2), round(pair.reference, 2)] for pair in self.pairs],
        }


def paired(runs: int, subject: Callable[[], float], reference: Callable[[], float]) -> list[Pair]:
    """Alternate, and alternate who begins."""
    pairs = []
    for run in range(runs):
        if run % 2:
            other, ours = reference(), subject()
        else:
            ours, other = subject(), reference()
        pairs.append(Pair(ours, other))
    return pairs


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


def list_names(folder: Path) -> float:
    """All names of a folder: entries/s."""
    begun = time.perf_counter()
    return len(os.listdir(folder)) / (time.perf_counter() - begun)


def shuffled(folder: Path, seed: int = 1) -> list[str]:
    """The files below a folder as an epoch reads them."""
    paths = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    random.Random(seed).shuffle(paths)
    return paths
