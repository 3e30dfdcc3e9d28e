"""Cached bytes that the disk must bring: asked for, looked for again, and left to a thread when the disk is slow.

Also which bytes of cache files the kernel need not keep in memory. Nothing here waits, and nothing answers a request.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from stoker.cache.layout import CHUNK, page_span
from stoker.cache.reader import BadPage, CacheReader, Hit
from stoker.fetch.files import File
from stoker.fetch.plan import SMALL_BYTES
from stoker.fuse.protocol import RequestKey

_THREADS = 8  # one slow disk read never stops the loop; more only queue at the disk
_AHEAD = 4 << 20
_SPIN_S = 0.0005  # a good disk has answered by then; a thread costs 20 system calls and 0.2 ms of two cores
_EXPECTED = 256  # small files looked up in a row of which none was read: somebody only looks
_REMEMBERED_ENDS = 4096
_REMEMBERED_CHUNKS = 16384  # what a node fetches in _CLEAN_S at 2 GB/s
_CLEAN_S = 35.0  # the kernel writes what has been dirty for 30 s (vm.dirty_expire_centisecs)


@dataclass(frozen=True, slots=True, eq=False)
class DiskRead:
    """Bytes of a cache file, for the request `key`. `until`: when it is a thread's."""

    key: RequestKey
    file: File
    hit: Hit
    offset: int
    length: int
    until: float


# With no bytes when a page is not what it should be.
Ended = tuple[RequestKey, Hit, memoryview | None]


@dataclass(slots=True)
class DiskReads:
    """Those of one worker. `wake` makes its loop call `ended`, from any thread."""

    reader: CacheReader
    wake: Callable[[], None]
    _ends: dict[bytes, int] = field(default_factory=dict)  # where the last read of an object from disk ended
    _expecting: int = _EXPECTED  # small files that may still be looked up before one is read
    _soon: deque[DiskRead] = field(default_factory=deque)
    _done: deque[Ended] = field(default_factory=deque)
    _hot: deque[tuple[float, File, int, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_CHUNKS))
    _threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_THREADS, thread_name_prefix="disk")
    )

    @property
    def spinning(self) -> bool:
        """Whether `ended` should be called again at once."""
        return bool(self._soon)

    def expects(self, size: int) -> bool:
        """Whether a file of this size that is looked up is worth `expect`."""
        return self._expecting > 0 and 0 < size <= SMALL_BYTES

    def expect(self, file: File) -> None:
        """A small file was looked up, and is most likely read next: its disk works while the answer is on its way."""
        if not file.cacheable or not self.expects(file.size):
            return
        hit = self.reader.find(file.oid, file.size, *page_span(0, file.size, file.size))
        if hit is not None:
            self._expecting -= 1
            os.posix_fadvise(hit.fd, 0, file.size, os.POSIX_FADV_WILLNEED)
            self._remember(file, 0)  # read from disk, so not to be kept in memory twice

    def begin(self, key: RequestKey, file: File, hit: Hit, offset: int, length: int) -> None:
        """Ask the disk. For a sequential reader it is asked to go ahead, so that the next reads find memory."""
        sequential = self._ends.get(file.oid) == offset > 0
        os.posix_fadvise(hit.fd, offset, _AHEAD if sequential else length, os.POSIX_FADV_WILLNEED)
        self._remember(file, offset + length)
        self._expecting = _EXPECTED
        self._soon.append(DiskRead(key, file, hit, offset, length, time.monotonic() + _SPIN_S))

    def found(self, file: File, stop: int) -> None:
        """A read was answered from memory: the next one begins at `stop`, if the file is read in order."""
        if file.oid in self._ends:
            self._ends[file.oid] = stop
            self._expecting = _EXPECTED

    def ended(self, wanted: Callable[[RequestKey], bool]) -> Iterator[Ended]:
        """What the disk has brought since. `wanted`: whether somebody still waits for a key."""
        for _ in range(len(self._soon)):
            read = self._soon.popleft()
            if not wanted(read.key):
                continue
            try:
                yield read.key, read.hit, self._read(read, nowait=True)
            except BlockingIOError:
                if time.monotonic() < read.until:
                    self._soon.append(read)
                else:
                    self._threads.submit(self._in_thread, read)
        while self._done:
            yield self._done.popleft()

    def let_go(self, file: File, hit: Hit, stop: int) -> None:
        """The bytes up to `stop` were answered, and the kernel keeps them for the mount: hold them in memory once.

        By chunk, when its last byte was read: the kernel drops only whole folios, which are larger than one read. What
        was just fetched is not on disk yet, and giving it up would make this process write it: that comes later.
        """
        if stop % CHUNK and stop != file.size:
            return
        start = (stop - 1) // CHUNK * CHUNK
        if file.oid in self._ends:
            os.posix_fadvise(hit.fd, start, stop - start, os.POSIX_FADV_DONTNEED)
        else:
            self._hot.append((time.monotonic() + _CLEAN_S, file, start, stop))

    def let_go_written(self, now: float) -> None:
        """Chunks that were read while they were new: the kernel has written them to disk by now."""
        while self._hot and self._hot[0][0] < now:
            _due, file, start, stop = self._hot.popleft()
            hit = self.reader.find(file.oid, file.size, *page_span(start, stop - start, file.size))
            if hit is not None:
                os.posix_fadvise(hit.fd, start, stop - start, os.POSIX_FADV_DONTNEED)

    def _remember(self, file: File, end: int) -> None:
        if len(self._ends) > _REMEMBERED_ENDS:
            self._ends.clear()
        self._ends[file.oid] = end

    def _in_thread(self, read: DiskRead) -> None:
        self._done.append((read.key, read.hit, self._read(read)))
        self.wake()

    def _read(self, read: DiskRead, nowait: bool = False) -> memoryview | None:
        try:
            return self.reader.read(read.hit, read.file.oid, read.file.size, read.offset, read.length, nowait)
        except BadPage:
            return None
