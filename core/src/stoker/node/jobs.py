"""Preload jobs: every matching file of a generation is made present and readable from cache, with live progress."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from stoker.api.errors import StokerError
from stoker.api.globs import Globs
from stoker.api.reasons import Reason
from stoker.manifest.manifest import Manifest

log = structlog.get_logger("stoker.jobs")

_PARALLEL_FILES = 256  # outstanding loads of one job; bytes in flight are bounded by the fetchers
_FAILURES = 100  # reported one by one; all are counted
_RATE_WINDOW_S = 5.0
_UPDATES_PER_S = 5.0

Load = Callable[[int, int], Any]  # (session slot, inode) -> awaitable; raises StokerError


@dataclass(slots=True)
class Progress:
    """Counts of one job. They never go backwards."""

    files_total: int = 0
    files_done: int = 0
    files_failed: int = 0
    bytes_total: int = 0
    bytes_done: int = 0
    bytes_ended: int = 0  # of files that are done or failed
    loading: int = 0  # bytes of files that are being loaded now

    def advance(self, done: int) -> None:
        self.bytes_done = max(self.bytes_done, min(done, self.bytes_total))

    def to_json(self, rate: float) -> dict[str, int | float]:
        left = self.bytes_total - self.bytes_done
        finished = self.files_total == self.files_done + self.files_failed
        percent = 100.0 if finished else min(99.9, self.bytes_done * 100 / max(1, self.bytes_total))
        return {
            "filesTotal": self.files_total,
            "filesDone": self.files_done,
            "filesFailed": self.files_failed,
            "bytesTotal": self.bytes_total,
            "bytesDone": self.bytes_done,
            "bytesPerSecond": round(rate),
            "percent": round(percent, 1),
            "etaSeconds": round(left / rate) if rate > 0 else 0,
        }


@dataclass(slots=True)
class Job:
    """One preload. `version` grows with every change that a watcher should see."""

    id: str
    data_set: str
    slot: int
    paths: tuple[str, ...]
    skipped: dict[str, int]
    phase: str = "Pending"
    version: int = 0
    progress: Progress = field(default_factory=Progress)
    failures: list[dict[str, str]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    _samples: deque[tuple[float, int]] = field(default_factory=deque)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def finished(self) -> bool:
        return self.phase not in ("Pending", "Running")

    def changed(self) -> None:
        """Wake the watchers."""
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, version: int, timeout_s: float) -> None:
        """Until the job is newer than `version`, or the time is over."""
        if self.version <= version and not self.finished:
            await asyncio.wait([asyncio.ensure_future(self._changed.wait())], timeout=timeout_s)

    def sample(self) -> None:
        """Remember where the job is now, for its rate."""
        now = time.monotonic()
        self._samples.append((now, self.progress.bytes_done))
        while now - self._samples[0][0] > _RATE_WINDOW_S:
            self._samples.popleft()

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "operation": "Preload",
            "dataSet": self.data_set,
            "version": self.version,
            "phase": self.phase,
            "progress": self.progress.to_json(self._rate()),
            "failures": self.failures,
            "skipped": self.skipped,
        }

    def _rate(self) -> float:
        if len(self._samples) < 2:
            return 0.0
        (start, first), (end, last) = self._samples[0], self._samples[-1]
        return (last - first) / (end - start) if end > start else 0.0


class Jobs:
    """The jobs of this node."""

    def __init__(self, load: Load, source_bytes: Callable[[int], int], on_end: Callable[[int], None]) -> None:
        self._load = load
        self._source_bytes = source_bytes
        self._on_end = on_end
        self._jobs: dict[str, Job] = {}
        self._ids = itertools.count(1)

    def start(self, data_set: str, slot: int, manifest: Manifest, paths: Sequence[str]) -> Job:
        """Begin to load the files of `manifest` that match `paths`."""
        # Keys that a directory tree cannot show cannot be loaded by path: said in the result, never left out silently.
        skipped = dict(manifest.hidden) if tuple(paths) == ("**",) else {}
        job = Job(f"preload-{next(self._ids)}", data_set, slot, tuple(paths), skipped)
        self._jobs[job.id] = job
        job.task = asyncio.create_task(self._run(job, manifest))
        return job

    def get(self, job_id: str) -> Job:
        job = self._jobs.get(job_id)
        if job is None:
            step = "see the running jobs: stoker status"
            raise StokerError(Reason.SourceNotFound, f"there is no job {job_id}", place=job_id, next_step=step)
        return job

    def all(self) -> list[Job]:
        return list(self._jobs.values())

    def running(self) -> int:
        return sum(not job.finished for job in self._jobs.values())

    async def cancel(self, job: Job) -> None:
        """End a job; what it has loaded stays."""
        if job.task is not None and not job.finished:
            job.task.cancel()
            await asyncio.wait([job.task])

    async def _run(self, job: Job, manifest: Manifest) -> None:
        job.phase = "Running"
        watcher = asyncio.create_task(self._watch(job))
        try:
            files = await asyncio.to_thread(_matching, manifest, job.paths)
            job.progress.files_total = len(files)
            job.progress.bytes_total = sum(size for _inode, size in files)
            job.changed()
            pending = iter(files)
            workers = [self._worker(job, manifest, pending) for _ in range(min(_PARALLEL_FILES, len(files)))]
            await asyncio.gather(*workers)
            job.phase = _outcome(job)
        except asyncio.CancelledError:
            job.phase = "Cancelled"
        except Exception as error:  # whatever it is, the job ends: its watchers wait until it does
            known = error if isinstance(error, StokerError) else StokerError(Reason.Internal, repr(error))
            log.error("job failed", job=job.id, error=repr(error), exc_info=error)
            job.failures.append({"path": "", "reason": known.reason, "message": known.message})
            job.phase = "Failed"
        finally:
            watcher.cancel()
            job.progress.advance(job.progress.bytes_ended)
            job.sample()
            job.changed()
            self._on_end(job.slot)
        log.info("job ended", job=job.id, data_set=job.data_set, phase=job.phase, failed=job.progress.files_failed)

    async def _worker(self, job: Job, manifest: Manifest, pending: Iterator[tuple[int, int]]) -> None:
        progress = job.progress
        for inode, size in pending:
            progress.loading += size
            try:
                if size:
                    await self._load(job.slot, inode)
                progress.files_done += 1
            except StokerError as error:
                progress.files_failed += 1
                if len(job.failures) < _FAILURES:
                    path = manifest.path(inode).decode(errors="surrogateescape")
                    job.failures.append({"path": path, "reason": error.reason, "message": error.message})
            finally:
                progress.loading -= size
            progress.bytes_ended += size

    async def _watch(self, job: Job) -> None:
        """Several times a second: bytes so far, with those of the files that are being loaded."""
        began = self._source_bytes(job.slot)
        while True:
            await asyncio.sleep(1 / _UPDATES_PER_S)
            progress = job.progress
            partial = min(max(0, self._source_bytes(job.slot) - began - progress.bytes_ended), progress.loading)
            progress.advance(progress.bytes_ended + partial)
            job.sample()
            job.changed()


def _matching(manifest: Manifest, paths: Sequence[str]) -> list[tuple[int, int]]:
    """Inode and size of the matching files, in the order of the listing."""
    globs = Globs.compile(paths)
    return [(inode, manifest.node(inode).size) for inode in manifest.files_matching(globs)]


def _outcome(job: Job) -> str:
    progress = job.progress
    if not progress.files_failed and not job.skipped:
        return "Succeeded"
    return "PartiallySucceeded" if progress.files_done or not progress.files_failed else "Failed"
