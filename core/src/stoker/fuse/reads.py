"""READ and OPEN: from the cache file at once, from its disk by a thread, from the source by a fetcher.

Nothing here waits: a read that cannot be answered now stays in the pending table with a deadline.
"""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason, errno_of
from stoker.cache.layout import CHUNK, fetcher_of, page_span
from stoker.cache.reader import BadPage, CacheReader, Hit
from stoker.fetch.client import FetchClient, Reply
from stoker.fetch.counters import Counter, Counters
from stoker.fetch.files import File
from stoker.fetch.protocol import FLAG_BAD_PAGE, FLAG_INLINE, KIND_LOAD, KIND_NOTE, KIND_READ, Status, mark_of
from stoker.fuse import kernel
from stoker.fuse.fate import Fate, fate_of
from stoker.fuse.opens import OpenTableFullError
from stoker.fuse.protocol import FOPEN_KEEP_CACHE, FOPEN_PASSTHROUGH, OPEN_OUT, READ_IN, RELEASE_IN, Op
from stoker.fuse.requests import Answers, Buffer, Request
from stoker.fuse.session import Session

_DISK_THREADS = 8  # one slow disk read never stops the loop; more only queue at the disk
_DISK_AHEAD = 4 << 20
_SPIN_S = 0.0005  # a good disk has answered by then; a thread costs 20 system calls and 0.2 ms of two cores
_REMEMBERED_ENDS = 4096
_REMEMBERED_HOT = 16384  # chunks: what a node fetches in a while of _CLEAN_S at 2 GB/s
_CLEAN_S = 35.0  # the kernel writes what has been dirty for 30 s (vm.dirty_expire_centisecs)
_MAX_TRIES = 4  # the cache may be evicted between "it is there" and the read; then the bytes come inline
_GRACE_S = 15.0  # a fetcher ends every request by its own deadline; this is for one that does not


@dataclass(slots=True)
class Waiting:
    """A request that waits for pages."""

    request: Request
    file: File
    offset: int
    length: int
    deadline: float
    tries: int = 0
    fetch_id: int = 0
    tired: bool = False  # it waited at the last tick already


@dataclass(slots=True)
class Reads:
    """The read path of one worker."""

    reader: CacheReader
    fetchers: Sequence[FetchClient]
    answers: Answers
    counters: Counters
    wake: Callable[[], None]  # makes the loop call `finish_disk_reads` (from any thread)
    touched: set[bytes] = field(default_factory=set)
    _ends: dict[bytes, int] = field(default_factory=dict)  # where the last read of an object from disk ended
    _read_hot: deque[tuple[float, File, int, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_HOT))
    _by_unique: dict[int, Waiting] = field(default_factory=dict)
    _by_fetch: dict[tuple[int, int], Waiting] = field(default_factory=dict)
    _done: deque[tuple[Waiting, Hit, Buffer | None]] = field(default_factory=deque)
    _soon: deque[tuple[Waiting, Hit, float]] = field(default_factory=deque)
    _threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_DISK_THREADS, thread_name_prefix="disk")
    )

    def read(self, request: Request) -> None:
        """READ: answer, or wait."""
        session = request.session
        _fh, offset, length, *_ = READ_IN.unpack_from(request.body)
        file = session.object(request.inode)
        length = min(length, file.size - offset)
        if length <= 0:
            self.answers.data(request)
            return
        if file.archived:
            self.answers.error(request, errno_of(Reason.Archived))
            return
        self.counters.add(session.slot, Counter.READS, 1)
        self.counters.add(session.slot, Counter.READ_BYTES, length)
        self._serve(Waiting(request, file, offset, length, self._deadline(session)), first=True)

    def open(self, request: Request) -> None:
        """OPEN of an answered-open session: what would fail fails here, and a complete file gets passthrough."""
        session = request.session
        if session.manifest.node(request.inode).is_dir:
            self.refuse(request, errno.EISDIR)
            return
        file = session.object(request.inode)
        if file.archived:
            self.refuse(request, errno_of(Reason.Archived))
        elif self._must_load(session, file) and not session.opens.has(request.unique):  # a predecessor entered it
            self._ask(Waiting(request, file, 0, file.size, self._deadline(session)), KIND_LOAD, 0)
        else:
            self._opened(request, file)

    def refuse(self, request: Request, code: int) -> None:
        """Answer with an error. An OPEN may be in the table already, entered by a predecessor."""
        if request.op == Op.OPEN:
            request.session.opens.release(request.unique)
        self.answers.error(request, code)

    def release(self, request: Request) -> None:
        """RELEASE: the last one of a passthrough file closes its backing id."""
        handle, *_ = RELEASE_IN.unpack_from(request.body)
        request.session.opens.release(handle)
        self.answers.data(request)

    def interrupt(self, unique: int) -> bool:
        """Answer a waiting request with EINTR; False when it is not here."""
        waiting = self._by_unique.pop(unique, None)
        if waiting is None:
            return False
        self._forget(waiting)
        self.refuse(waiting.request, errno.EINTR)
        return True

    def on_reply(self, fetcher: int, reply: Reply) -> None:
        """A fetcher has made pages readable, sends bytes, or says why not."""
        waiting = self._by_fetch.pop((fetcher, reply.id), None)
        if waiting is None:
            return
        waiting.fetch_id = 0
        if reply.status != Status.PRESENT and reply.mark not in (0, mark_of(waiting.file.oid)):
            self._serve(waiting, first=False)  # about another session that had this slot before, or has it next
        elif reply.status == Status.ERROR:
            self._refused(waiting, StokerError.from_json(reply.error()))
        elif waiting.request.op == Op.OPEN:
            self._by_unique.pop(waiting.request.unique, None)
            self._opened(waiting.request, waiting.file)
        elif reply.status == Status.DATA:
            self._answer(waiting, reply.data)
        else:
            self._serve(waiting, first=False)

    @property
    def spinning(self) -> bool:
        """Whether `look_again` should be called at once."""
        return bool(self._soon)

    def finish_disk_reads(self) -> None:
        """Answer what the threads have read since."""
        while self._done:
            waiting, hit, data = self._done.popleft()
            if self._by_unique.get(waiting.request.unique) is not waiting:
                continue  # interrupted, or past its deadline
            if data is None:
                self._miss(waiting, FLAG_BAD_PAGE)
            else:
                self._answer_from(waiting, hit, data)

    def end_interrupted(self) -> None:
        """Of those that wait for long: the notice that a reader was killed may have died with whoever took it."""
        for unique, waiting in list(self._by_unique.items()):
            if waiting.tired and fate_of(waiting.request.session.fd, unique) is Fate.INTERRUPTED:
                self.interrupt(unique)
            waiting.tired = True

    def expire(self) -> None:
        """No request waits without a deadline."""
        now = time.monotonic()
        self._drop_read(now)
        for waiting in [w for w in self._by_unique.values() if w.deadline < now]:
            self._forget(waiting)
            self._fail(waiting, StokerError(Reason.Timeout, "no answer from the fetcher"))

    def drop_session(self, session: Session) -> None:
        """The connection is gone: nobody waits for these answers."""
        for waiting in [w for w in self._by_unique.values() if w.request.session is session]:
            self._forget(waiting)
            self._by_unique.pop(waiting.request.unique, None)
            self.answers.nothing(waiting.request)

    @staticmethod
    def _deadline(session: Session) -> float:
        return time.monotonic() + session.spec.mount.deadline_s + _GRACE_S

    def _serve(self, waiting: Waiting, *, first: bool) -> None:
        """From the cache if the pages are there, else ask the fetcher."""
        file = waiting.file
        if not file.cacheable:
            self._miss(waiting, FLAG_INLINE)
            return
        pages = page_span(waiting.offset, waiting.length, file.size)
        hit = self.reader.find(file.oid, file.size, *pages)
        if hit is None:
            self._miss(waiting, 0)
            return
        self.touched.add(file.oid)
        if first:
            self.counters.add(waiting.request.session.slot, Counter.HIT_BYTES, waiting.length)
        if hit.trigger is not None and pages[0] <= hit.trigger < pages[1]:
            self._note(waiting)
        self._from_cache(waiting, hit)

    def _from_cache(self, waiting: Waiting, hit: Hit) -> None:
        file = waiting.file
        try:
            data = self.reader.read(hit, file.oid, file.size, waiting.offset, waiting.length, nowait=True)
        except BlockingIOError:
            self._from_disk(waiting, hit)
        except BadPage:
            self._miss(waiting, FLAG_BAD_PAGE)
        else:
            self._answer_from(waiting, hit, data)
            if file.oid in self._ends:
                self._ends[file.oid] = waiting.offset + waiting.length

    def _answer_from(self, waiting: Waiting, hit: Hit, data: Buffer) -> None:
        """Answer, and hold the bytes in memory once: the kernel keeps them for the mount from now on.

        By chunk, when its last byte was read: the kernel drops only whole folios, which are larger than one read. What
        was just fetched is not on disk yet, and giving it up would make this process write it: that comes later.
        """
        self._answer(waiting, data)
        stop = waiting.offset + waiting.length
        shared = waiting.request.session.spec.mount.passthrough  # there the mount's pages are those of the cache file
        if shared or (stop % CHUNK and stop != waiting.file.size):
            return
        start = (stop - 1) // CHUNK * CHUNK
        if waiting.file.oid in self._ends:
            os.posix_fadvise(hit.fd, start, stop - start, os.POSIX_FADV_DONTNEED)
        else:
            self._read_hot.append((time.monotonic() + _CLEAN_S, waiting.file, start, stop))

    def _drop_read(self, now: float) -> None:
        """Let go of chunks that were read while they were new: the kernel has written them to disk by now."""
        while self._read_hot and self._read_hot[0][0] < now:
            _due, file, start, stop = self._read_hot.popleft()
            hit = self.reader.find(file.oid, file.size, *page_span(start, stop - start, file.size))
            if hit is not None:
                os.posix_fadvise(hit.fd, start, stop - start, os.POSIX_FADV_DONTNEED)

    def _from_disk(self, waiting: Waiting, hit: Hit) -> None:
        """Ask the disk and look again soon; what takes longer is a thread's. For a sequential reader the disk is asked
        to go ahead, so that the next reads find memory."""
        sequential = self._ends.get(waiting.file.oid) == waiting.offset > 0
        os.posix_fadvise(hit.fd, waiting.offset, _DISK_AHEAD if sequential else waiting.length, os.POSIX_FADV_WILLNEED)
        if len(self._ends) > _REMEMBERED_ENDS:
            self._ends.clear()
        self._ends[waiting.file.oid] = waiting.offset + waiting.length
        self._wait(waiting)
        self._soon.append((waiting, hit, time.monotonic() + _SPIN_S))

    def look_again(self) -> None:
        """Answer what the disk has brought since."""
        for _ in range(len(self._soon)):
            waiting, hit, until = self._soon.popleft()
            file = waiting.file
            if self._by_unique.get(waiting.request.unique) is not waiting:
                continue  # interrupted
            try:
                data = self.reader.read(hit, file.oid, file.size, waiting.offset, waiting.length, nowait=True)
            except BlockingIOError:
                if time.monotonic() < until:
                    self._soon.append((waiting, hit, until))
                else:
                    self._threads.submit(self._disk_read, waiting, hit)
            except BadPage:
                self._miss(waiting, FLAG_BAD_PAGE)
            else:
                self._answer_from(waiting, hit, data)

    def _disk_read(self, waiting: Waiting, hit: Hit) -> None:
        """In a thread. None means that a page is not what it should be."""
        file = waiting.file
        data: Buffer | None
        try:
            data = self.reader.read(hit, file.oid, file.size, waiting.offset, waiting.length)
        except BadPage:
            data = None
        self._done.append((waiting, hit, data))
        self.wake()

    def _miss(self, waiting: Waiting, flags: int) -> None:
        waiting.tries += 1
        if waiting.tries > _MAX_TRIES:
            flags |= FLAG_INLINE
        self._ask(waiting, KIND_READ, flags)

    def _ask(self, waiting: Waiting, kind: int, flags: int) -> None:
        self._wait(waiting)
        index = self._fetcher(waiting.file)
        request = waiting.request
        waiting.fetch_id = self.fetchers[index].request(
            kind, flags, request.session.slot, request.inode, waiting.offset, waiting.length
        )
        self._by_fetch[index, waiting.fetch_id] = waiting

    def _note(self, waiting: Waiting) -> None:
        request = waiting.request
        client = self.fetchers[self._fetcher(waiting.file)]
        client.request(KIND_NOTE, 0, request.session.slot, request.inode, waiting.offset, waiting.length)

    def _fetcher(self, file: File) -> int:
        """An object belongs to exactly one fetcher: that makes single flight a matter of one process."""
        return fetcher_of(file.oid, len(self.fetchers))

    def _wait(self, waiting: Waiting) -> None:
        self.answers.keep(waiting.request)
        self._by_unique[waiting.request.unique] = waiting

    def _forget(self, waiting: Waiting) -> None:
        if waiting.fetch_id:
            index = self._fetcher(waiting.file)
            self._by_fetch.pop((index, waiting.fetch_id), None)
            self.fetchers[index].cancel(waiting.fetch_id)
            waiting.fetch_id = 0

    def _answer(self, waiting: Waiting, data: Buffer) -> None:
        self._by_unique.pop(waiting.request.unique, None)
        self.answers.data(waiting.request, data)

    def _refused(self, waiting: Waiting, error: StokerError) -> None:
        if waiting.request.op == Op.OPEN and error.reason is Reason.CacheFull:
            self._by_unique.pop(waiting.request.unique, None)  # a whole file that cannot fit is streamed
            self._opened(waiting.request, waiting.file)
        else:
            self._fail(waiting, error)

    def _fail(self, waiting: Waiting, error: StokerError) -> None:
        self._by_unique.pop(waiting.request.unique, None)
        self.counters.add(waiting.request.session.slot, Counter.ERRORS, 1)
        self.refuse(waiting.request, errno_of(error.reason))

    def _must_load(self, session: Session, file: File) -> bool:
        if session.spec.mount.policy != "WholeFile" or not file.cacheable or file.size == 0:
            return False
        return self.reader.complete(file.oid, file.size) is None

    def _opened(self, request: Request, file: File) -> None:
        session = request.session
        try:
            opened = session.opens.open(request.unique, request.inode, lambda: self._backing(session, file))
        except OpenTableFullError:
            self.refuse(request, errno.ENFILE)
            return
        flags = FOPEN_PASSTHROUGH if opened.backing else FOPEN_KEEP_CACHE
        self.answers.data(request, OPEN_OUT.pack(opened.handle, flags, opened.backing))

    def _backing(self, session: Session, file: File) -> int:
        """A backing id when the cache file is complete and verified this boot, else 0."""
        if not session.spec.mount.passthrough or not file.cacheable or file.size == 0:
            return 0
        hit = self.reader.complete(file.oid, file.size)
        if hit is None:
            return 0
        try:
            return kernel.open_backing(session.fd, hit.fd)
        except OSError:
            return 0  # the file system of the cache cannot be a backing one; cached mode works everywhere


def wake_event() -> tuple[int, Callable[[], None]]:
    """An eventfd and the function that makes it readable."""
    fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    return fd, lambda: os.eventfd_write(fd, 1)
