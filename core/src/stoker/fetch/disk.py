"""Writes pages to cache files in threads, one for each tier: a disk that stalls stops neither the loop nor other disks.

Jobs that wait together are done together, and the loop is told once (a hop per page would cost more than the write).
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from stoker.cache.fill import Fill, Written

_BATCH = 64


@dataclass(slots=True, eq=False)
class _Job:
    fill: Fill
    first: int
    pieces: Sequence[memoryview]
    done: asyncio.Future[Written]
    written: Written | None = None
    error: Exception | None = None


class Disk:
    """The writer threads of one fetcher. Made in its loop; the threads start with the first write."""

    def __init__(self, tiers: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._queues: list[queue.SimpleQueue[_Job | None]] = [queue.SimpleQueue() for _ in range(tiers)]
        self._started = [False] * tiers

    def put(self, fill: Fill, first: int, pieces: Sequence[memoryview]) -> asyncio.Future[Written]:
        """`Fill.put` in the thread of the fill's tier; done with OSError when it fails. Never cancel it: shield it, and
        keep the fill until it is done."""
        job = _Job(fill, first, pieces, self._loop.create_future())
        if not self._started[fill.tier]:
            self._started[fill.tier] = True
            threading.Thread(target=self._work, args=(fill.tier,), name=f"tier-{fill.tier}", daemon=True).start()
        self._queues[fill.tier].put(job)
        return job.done

    def close(self) -> None:
        """Let the threads end when they have done what waits."""
        for jobs in self._queues:
            jobs.put(None)

    def _work(self, tier: int) -> None:
        jobs = self._queues[tier]
        while (job := jobs.get()) is not None:
            batch = [job]
            while len(batch) < _BATCH and not jobs.empty() and (job := jobs.get()) is not None:
                batch.append(job)
            for one in batch:
                _do(one)
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(_settle, batch)
            if job is None:
                return


def _do(job: _Job) -> None:
    try:
        job.written = job.fill.put(job.first, job.pieces)
    except Exception as error:
        job.error = error


def _settle(batch: list[_Job]) -> None:
    for job in batch:
        if job.done.done():
            continue
        if job.written is not None:
            job.done.set_result(job.written)
        else:
            assert job.error is not None
            job.done.set_exception(job.error)
