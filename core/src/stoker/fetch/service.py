"""What each kind of request means: read, load, note; from the cache where it can be, else with the bytes in the answer.

Not for sockets (`server.py`) and not for single flight (`objects.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.cache.layout import PAGE, page_span
from stoker.fetch.counters import Counter
from stoker.fetch.files import File
from stoker.fetch.flight import Failures, ObjectState
from stoker.fetch.lanes import Lanes, Priority, Ticket
from stoker.fetch.objects import Objects
from stoker.fetch.protocol import FLAG_BAD_PAGE, FLAG_EXACT, FLAG_INLINE, FLAG_READER, KIND_LOAD, Request
from stoker.fetch.sessions import Session, Sessions
from stoker.fetch.store import Store
from stoker.fetch.transfer import Asked, BytesSink, transfer
from stoker.sources.base import SourceError

log = structlog.get_logger("stoker.fetch")

WHOLE_RETRY_S = 10.0
"""A whole file that did not fit is tried again after this long, by the next read."""

TELL_EVERY_S = 60.0
"""The same failure of the same source is told once per minute."""

MOST_CHANGED = 256
"""Changed objects that are told of in one minute."""

MOST_FAILED = 1024
"""Files with failures beside the cache that are kept until somebody looks which of them are over."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`data` None: the pages are in the cache file of `incarnation`."""

    oid: bytes
    incarnation: int = 0
    data: bytearray | None = None


class Service:
    """Answers requests. `objects` is None until the owner has said where the cache is."""

    def __init__(
        self,
        sessions: Sessions,
        lanes: Lanes,
        tell: Callable[[Reason, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sessions = sessions
        self.objects: Objects | None = None
        self._lanes = lanes
        self._tell = tell
        self._clock = clock
        self._failed: dict[tuple[int, int], Failures] = {}
        """By session and inode: reads without the cache."""
        self._told: dict[tuple[str, Reason], float] = {}
        self._told_changed: dict[tuple[str, int], float] = {}
        self.tell_changed: Callable[[str, str, str], None] = lambda *_: None
        """Hears of objects that are not what was listed: session, path, what was found."""

    async def file_of(self, request: Request) -> tuple[Session, File]:
        """Raises StokerError."""
        session = await self.sessions.get(request.slot)
        file = session.file(request.inode)
        if file.archived:
            step = "restore it in its store, then mount again."
            raise StokerError(Reason.Archived, "the object is archived", place=_place(file), next_step=step)
        return session, file

    @asynccontextmanager
    async def answer(self, session: Session, file: File, request: Request) -> AsyncIterator[Answer]:
        """The answer to READ or LOAD; its bytes count as memory in use until the block ends. Raises StokerError."""
        try:
            if request.kind == KIND_LOAD:
                yield Answer(file.oid, await self._load(session, file, bool(request.flags & FLAG_READER)))
                return
            length = min(request.length, file.size - request.offset)
            incarnation = 0 if length <= 0 else await self._cached(session, file, request, length)
            if incarnation is not None:
                yield Answer(file.oid, incarnation)
                return
            data, ticket = await self._inline(session, file, request, length)
            try:
                yield Answer(file.oid, 0, data)
            finally:
                self._lanes.give_memory(ticket)
        except StokerError as error:
            self._report(session, request.inode, file, error)
            raise

    def note(self, request: Request) -> None:
        """A reader reached a trigger page."""
        session = self.sessions.peek(request.slot)
        if session is None or self.objects is None:
            return
        file = session.file(request.inode)
        span = page_span(request.offset, request.length, file.size)
        if file.cacheable and span[0] < span[1]:
            self.objects.note(session, file, span)

    async def _load(self, session: Session, file: File, reader_waits: bool) -> int:
        if not file.size:
            return 0
        if not file.cacheable:
            bypass = session.spec.mount.policy == "Bypass"
            why = (
                "policy Bypass keeps nothing" if bypass else "the store gives no ETag for it, so no version can be kept"
            )
            raise StokerError(
                Reason.UnsupportedCombination, why, place=_place(file), next_step="read it without preload."
            )
        if self.objects is None:
            raise StokerError(Reason.CacheFull, "there is no cache yet", place=_place(file))
        return await self.objects.load(session, file, session.waits if reader_waits else None)

    async def _cached(self, session: Session, file: File, request: Request, length: int) -> int | None:
        """The incarnation that holds the pages now; None when the answer must carry the bytes."""
        objects = self.objects
        if objects is None or not file.cacheable or request.flags & FLAG_INLINE:
            return None
        store = session.stores[file.source]
        state = objects.state(session, file)
        wanted = page_span(request.offset, length, file.size)
        if store.has_replicas and (store.down or state.failures.get(*wanted, self._clock())):
            return None
        if error := state.failures.get(*wanted, self._clock()):
            raise error
        if session.spec.mount.policy == "WholeFile":
            self._load_behind(session, request.inode, file, state, objects)
        try:
            bad, exact = bool(request.flags & FLAG_BAD_PAGE), bool(request.flags & FLAG_EXACT)
            return await objects.read(session, file, wanted, bad, exact=exact)
        except SourceError as error:
            if not _elsewhere(store, error):
                raise
            store.failed()
            return None

    def _load_behind(self, session: Session, inode: int, file: File, state: ObjectState, objects: Objects) -> None:
        """`WholeFile`: the first read brings the whole file."""
        if state.loading is not None or self._clock() < state.load_again_at:
            return
        task = state.loading = asyncio.create_task(self._quiet_load(session, inode, file, state, objects))
        task.add_done_callback(lambda _: setattr(state, "loading", None))

    async def _quiet_load(self, session: Session, inode: int, file: File, state: ObjectState, objects: Objects) -> None:
        try:
            await objects.load(session, file)
        except StokerError as error:
            state.load_again_at = self._clock() + WHOLE_RETRY_S
            self._report(session, inode, file, error)

    async def _inline(self, session: Session, file: File, request: Request, length: int) -> tuple[bytearray, Ticket]:
        """Like `_bytes`; what failed a moment ago fails at once."""
        key, wanted = (request.slot, request.inode), page_span(request.offset, length, file.size)
        known = self._failed.get(key)
        if known is not None and (error := known.get(*wanted, self._clock())):
            raise error
        try:
            return await self._bytes(session, file, request.offset, length)
        except StokerError as error:
            self._remember(key, wanted, error)
            raise

    def _remember(self, key: tuple[int, int], wanted: tuple[int, int], error: StokerError) -> None:
        now = self._clock()
        if len(self._failed) >= MOST_FAILED:
            self._failed = {key: failures for key, failures in self._failed.items() if not failures.over(now)}
        self._failed.setdefault(key, Failures()).add(*wanted, error, now)

    async def _bytes(self, session: Session, file: File, offset: int, length: int) -> tuple[bytearray, Ticket]:
        """Exactly these bytes, from the source or a replica of it; nothing is stored. The ticket holds their memory."""
        store = session.stores[file.source]
        if not store.down:
            try:
                return await self._from(Asked(store.primary, file.version, offset, offset + length), session, store)
            except SourceError as error:
                if not _elsewhere(store, error):
                    raise
                store.failed()
        failure: SourceError | None = None
        for source, version in store.copies(file.version):
            try:
                return await self._from(Asked(source, version, offset, offset + length), session, store)
            except SourceError as error:
                failure = error
        assert failure is not None
        raise failure

    async def _from(self, asked: Asked, session: Session, store: Store) -> tuple[bytearray, Ticket]:
        length = asked.stop - asked.start
        sink = BytesSink()
        ticket = store.lane.ticket(Priority.DEMAND, -(-length // PAGE), length)
        with session.waits.waiting(ticket.phases):
            await transfer(asked, sink, ticket, self._lanes, session.patience, session.tally, keep_memory=True)
        session.tally.add(Counter.INLINE_BYTES, length)
        return sink.data, ticket

    def _report(self, session: Session, inode: int, file: File, error: StokerError) -> None:
        place = session.stores[file.source].spec.uri
        now = self._clock()
        if error.reason is Reason.SourceChanged:
            self._report_changed(session, inode, error, now)
            return
        if now < self._told.get((place, error.reason), 0.0):
            return
        self._told[place, error.reason] = now + TELL_EVERY_S
        log.warning(
            "read failed", data_set=session.spec.data_set, reason=error.reason, place=error.place, error=error.message
        )
        self._tell(error.reason, f"{session.spec.data_set}: {error.line()}")

    def _report_changed(self, session: Session, inode: int, error: StokerError, now: float) -> None:
        """Each object is told once per minute, with the path that a reader knows; of very many only the first ones."""
        key = session.spec.id, inode
        if now < self._told_changed.get(key, 0.0):
            return
        if len(self._told_changed) >= MOST_CHANGED:
            self._told_changed = {key: until for key, until in self._told_changed.items() if now < until}
            if len(self._told_changed) >= MOST_CHANGED:
                return
        self._told_changed[key] = now + TELL_EVERY_S
        path, data_set = session.path(inode), session.spec.data_set
        log.warning(
            "object changed", data_set=data_set, reason=error.reason, path=path, place=error.place, error=error.message
        )
        self.tell_changed(session.spec.id, path, error.message)


def _elsewhere(store: Store, error: SourceError) -> bool:
    """Whether a replica may serve what the source itself did not."""
    return store.has_replicas and error.reason in (Reason.SourceUnavailable, Reason.Throttled)


def _place(file: File) -> str:
    return file.version.key.decode(errors="backslashreplace")
