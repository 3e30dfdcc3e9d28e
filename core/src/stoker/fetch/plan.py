"""Which ranges to ask the source for: pure arithmetic on page numbers. Nothing here knows a store or a file.

A range is asked once, covers only pages that are missing, and nothing beyond the request's pages and what the pattern
has earned (`streams.py`); a small object is asked whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stoker.cache.layout import PAGE, PAGES_PER_CHUNK, page_count

SMALL_BYTES = 512 << 10
"""An object of this size or less is fetched whole: the request costs more than its bytes (4 ms at 1 Gbit/s)."""

RANGE_PAGES = 2 * PAGES_PER_CHUNK
"""Pages of one request at most (8 MiB, aligned): 4 MiB at a time cost a store half as much CPU again (measured), and
with 16 MiB too few are on their way at once when a store is far."""

LOAD_PAGES = 2 * RANGE_PAGES
"""The same for loads (16 MiB): they have no reader that waits for the end of it, and a store needs less CPU again."""

Run = tuple[int, int]
"""Pages [first, last)."""


@dataclass(frozen=True, slots=True)
class Range:
    """One request to make. `demand`: a reader waits for some of its pages now."""

    first: int
    last: int
    demand: bool


def spans_to_consider(size: int, wanted: Run, ahead: Run | None) -> list[Run]:
    """The pages that a request may lead to fetch: its own, and what is earned; all of a small object."""
    if size <= SMALL_BYTES:
        return [(0, page_count(size))]
    return _joined([run for run in (wanted, ahead) if run is not None and run[0] < run[1]])


def subtract(runs: Iterable[Run], taken: Iterable[Run]) -> list[Run]:
    """The parts of `runs` that lie in none of `taken`."""
    left = list(runs)
    for first, last in taken:
        cut = []
        for start, stop in left:
            cut += [part for part in ((start, min(stop, first)), (max(start, last), stop)) if part[0] < part[1]]
        left = cut
    return left


def plan(missing: Iterable[Run], in_flight: Iterable[Run], wanted: Run, most: int = RANGE_PAGES) -> list[Range]:
    """Requests of at most `most` pages for what is missing and not on its way. `missing`: ordered runs; those that
    touch become one."""
    ranges = []
    for first, last in _joined(subtract(missing, in_flight)):
        for start, stop in _split(first, last, most):
            ranges.append(Range(start, stop, overlaps([(start, stop)], wanted)))
    return ranges


def overlaps(runs: Iterable[Run], wanted: Run) -> bool:
    """Whether some run has a page of `wanted`."""
    return any(first < wanted[1] and wanted[0] < last for first, last in runs)


def byte_span(run: Run, size: int) -> tuple[int, int]:
    """The bytes [start, stop) of the pages of a run."""
    return run[0] * PAGE, min(run[1] * PAGE, size)


def _joined(runs: Iterable[Run]) -> list[Run]:
    joined: list[Run] = []
    for first, last in sorted(runs):
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((first, last))
    return joined


def _split(first: int, last: int, most: int) -> Iterable[Run]:
    while first < last:
        stop = min(last, (first // most + 1) * most)
        yield first, stop
        first = stop
