"""READ and OPEN: from the cache file at once, from its disk by a thread, from the source by a fetcher.

Nothing here waits: a read that cannot be answered now stays in the pending table with a deadline.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason, errno_of
from stoker.cache.layout import fetcher_of, page_span
from stoker.cache.reader import BadPage, CacheReader, Hit
from stoker.fetch.client import FetchClient, Reply
from stoker.fetch.counters import Counter, Counters
from stoker.fetch.files import File
from stoker.fetch.protocol import (
    FLAG_BAD_PAGE,
    FLAG_INLINE,
    FLAG_READER,
    KIND_LOAD,
    KIND_NOTE,
    KIND_READ,
    Status,
    mark_of,
)
from stoker.fetch.touched import Touched
from stoker.fuse import kernel
from stoker.fuse.diskreads import DiskReads
from stoker.fuse.fate import Fate, fate_of, is_dying
from stoker.fuse.opens import OpenTableFullError
from stoker.fuse.protocol import FOPEN_KEEP_CACHE, FOPEN_PASSTHROUGH, OPEN_OUT, READ_IN, RELEASE_IN, Op, RequestKey
from stoker.fuse.requests import Answers, Buffer, Request
from stoker.fuse.session import Session

_MAX_TRIES = 4  # the cache may be evicted between "it is there" and the read; then the bytes come inline


@dataclass(slots=True)
class Waiting:
    """A request that waits for pages, since `began`. `disk_since`: for the cache's disk, 0 when not."""

    request: Request
    file: File
    offset: int
    length: int
    began: float
    deadline: float
    cached: bool = True
    disk_since: float = 0.0
    tries: int = 0
    fetch_id: int = 0
    present: int = 0  # bytes of the file that were there at the last deadline
    tired: bool = False  # it waited at the last tick already


@dataclass(slots=True)
class Reads:
    """The read path of one worker."""

    reader: CacheReader
    fetchers: Sequence[FetchClient]
    answers: Answers
    counters: Counters
    disk: DiskReads
    touched: Touched = field(default_factory=Touched)
    _waiting: dict[RequestKey, Waiting] = field(default_factory=dict)
    _by_fetch: dict[tuple[int, int], Waiting] = field(default_factory=dict)

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
        now = time.monotonic()
        pace, thread = session.pace, request.thread
        pace.first.setdefault(thread, now)
        pace.last[thread] = now
        self._serve(Waiting(request, file, offset, length, now, now + session.deadline_s))

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
            now = time.monotonic()
            self._ask(Waiting(request, file, 0, file.size, now, now + session.deadline_s), KIND_LOAD, FLAG_READER)
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

    def interrupt(self, key: RequestKey) -> bool:
        """Answer a waiting request with EINTR, if who asked dies; False when it is not here."""
        waiting = self._waiting.get(key)
        if waiting is None:
            return False
        if is_dying(waiting.request.thread):  # else looked at again each second: the kernel tells only once
            self._interrupted(waiting)
        return True

    def on_reply(self, fetcher: int, reply: Reply) -> None:
        """A fetcher has made pages readable, sends bytes, or says why not."""
        waiting = self._by_fetch.pop((fetcher, reply.id), None)
        if waiting is None:
            return
        waiting.fetch_id = 0
        if reply.status != Status.PRESENT and reply.mark not in (0, mark_of(waiting.file.oid)):
            self._serve(waiting)  # about another session that had this slot before, or has it next
        elif reply.status == Status.ERROR:
            self._refused(waiting, StokerError.from_json(reply.error()))
        elif waiting.request.op == Op.OPEN:
            self._waits_no_more(waiting)
            self._opened(waiting.request, waiting.file)
        elif reply.status == Status.DATA:
            self._answer(waiting, reply.data)
        else:
            self._serve(waiting)

    def finish_disk_reads(self) -> None:
        """Answer what the disk has brought since."""
        for key, hit, data in self.disk.ended(self._waiting.__contains__):
            waiting = self._waiting.get(key)
            if waiting is None:
                continue  # interrupted, or past its deadline
            self._count_disk(waiting)
            waiting.disk_since = 0.0
            if data is None:
                self._miss(waiting, FLAG_BAD_PAGE)
            else:
                self._answer_from(waiting, hit, data)

    def end_interrupted(self) -> None:
        """Of those that wait for long: the notice that a reader was killed may have died with whoever took it."""
        for waiting in list(self._waiting.values()):
            request = waiting.request
            if waiting.tired and fate_of(request.session.fd, request.unique, request.thread) is Fate.INTERRUPTED:
                self._interrupted(waiting)
            waiting.tired = True

    def expire(self) -> None:
        """No request waits without a deadline."""
        now = time.monotonic()
        self.disk.let_go_written(now)
        for waiting in [w for w in self._waiting.values() if w.deadline < now and not self._comes(w)]:
            self._forget(waiting)
            self._fail(waiting, StokerError(Reason.Timeout, "no answer from the fetcher"))

    def drop_session(self, session: Session) -> None:
        """The connection is gone: nobody waits for these answers."""
        for waiting in [w for w in self._waiting.values() if w.request.session is session]:
            self._forget(waiting)
            self._waits_no_more(waiting)
            self.answers.nothing(waiting.request)

    def settle(self) -> None:
        """Count what those who still wait for a disk have waited: one that hangs shows while it does."""
        for waiting in self._waiting.values():
            if waiting.disk_since:
                self._count_disk(waiting)

    def _count_disk(self, waiting: Waiting) -> None:
        now = time.monotonic()
        self.counters.add(waiting.request.session.slot, Counter.DISK_US, int((now - waiting.disk_since) * 1e6))
        waiting.disk_since = now

    def _interrupted(self, waiting: Waiting) -> None:
        self._waits_no_more(waiting)
        self._forget(waiting)
        self.refuse(waiting.request, errno.EINTR)

    def _comes(self, waiting: Waiting) -> bool:
        """Whether an open that waits for its whole file waits on: there is more of it than at the last deadline."""
        if waiting.request.op != Op.OPEN:
            return False
        before, waiting.present = waiting.present, self.reader.present_bytes(waiting.file.oid, waiting.file.size)
        waiting.deadline = time.monotonic() + waiting.request.session.deadline_s
        return waiting.present > before

    def _serve(self, waiting: Waiting) -> None:
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
        self.touched.add(waiting.request.session.spec.data_set, file.oid)
        if hit.trigger is not None and pages[0] <= hit.trigger < pages[1]:
            self._note(waiting)
        self._from_cache(waiting, hit)

    def _from_cache(self, waiting: Waiting, hit: Hit) -> None:
        file = waiting.file
        try:
            data = self.reader.read(hit, file.oid, file.size, waiting.offset, waiting.length, nowait=True)
        except BlockingIOError:
            self._wait(waiting)
            waiting.disk_since = time.monotonic()
            self.disk.begin(waiting.request.key, file, hit, waiting.offset, waiting.length)
        except BadPage:
            self._miss(waiting, FLAG_BAD_PAGE)
        else:
            self._answer_from(waiting, hit, data)
            self.disk.found(file, waiting.offset + waiting.length)

    def _answer_from(self, waiting: Waiting, hit: Hit, data: Buffer) -> None:
        """Answer. Memory holds the bytes twice then, unless passthrough makes the mount's pages those of the file."""
        self._answer(waiting, data)
        if not waiting.request.session.spec.mount.passthrough:
            self.disk.let_go(waiting.file, hit, waiting.offset + waiting.length)

    def _miss(self, waiting: Waiting, flags: int) -> None:
        waiting.tries += 1
        waiting.cached = False
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
        request = waiting.request
        self.answers.keep(request)
        if request.key not in self._waiting:
            self._waiting[request.key] = waiting
            request.session.pace.began(request.thread, time.monotonic())

    def _waits_no_more(self, waiting: Waiting) -> None:
        request = waiting.request
        if self._waiting.pop(request.key, None) is not None:
            request.session.pace.ended(request.thread, time.monotonic())

    def _forget(self, waiting: Waiting) -> None:
        if waiting.fetch_id:
            index = self._fetcher(waiting.file)
            self._by_fetch.pop((index, waiting.fetch_id), None)
            self.fetchers[index].cancel(waiting.fetch_id)
            waiting.fetch_id = 0

    def _answer(self, waiting: Waiting, data: Buffer) -> None:
        request = waiting.request
        count = self.counters.hit if waiting.cached else self.counters.miss
        count(request.session.slot, waiting.length, time.monotonic() - waiting.began)
        self.answers.data(request, data)
        if request.record >= 0:
            self._waits_no_more(waiting)

    def _refused(self, waiting: Waiting, error: StokerError) -> None:
        if waiting.request.op == Op.OPEN and error.reason is Reason.CacheFull:
            self._waits_no_more(waiting)  # a whole file that cannot fit is streamed
            self._opened(waiting.request, waiting.file)
        else:
            self._fail(waiting, error)

    def _fail(self, waiting: Waiting, error: StokerError) -> None:
        self._waits_no_more(waiting)
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
