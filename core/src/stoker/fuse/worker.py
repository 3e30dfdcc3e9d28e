"""A FUSE worker: one event loop over its clones of every session's descriptor.

Requests come from the kernel, hits are answered in place, misses wait for a fetcher. State that must survive this
process lives in shared memory (`slots.py`, `opens.py`); everything else can be made again. docs/design/fuse.md has the
rules and the crash cases.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from stoker.api.errors import StokerError
from stoker.cache.presence import PresenceTable
from stoker.cache.reader import CacheReader
from stoker.fetch.client import FetchClient
from stoker.fetch.counters import Counter, Counters, Node
from stoker.fuse.diskreads import DiskReads
from stoker.fuse.fate import Fate, fate_of
from stoker.fuse.links import ControlLink, InterruptLink, KeeperLink
from stoker.fuse.parts import WorkerParts
from stoker.fuse.protocol import INTERRUPT_IN, NO_REPLY, Op
from stoker.fuse.reads import Reads, wake_event
from stoker.fuse.requests import Answers, Metadata, Request
from stoker.fuse.session import Session
from stoker.fuse.slots import Left, RequestPool
from stoker.ipc.channel import Channel, Message

log = structlog.get_logger("stoker.fuse")

_BATCH = 64  # requests taken from one session before the others get their turn
_TICK_S = 1.0
# Level-triggered and exclusive: of the workers that wait on one connection only one is woken for a request.
_CLONE_EVENTS = select.EPOLLIN | select.EPOLLEXCLUSIVE


class Worker:
    """Made after the fork; `run` ends at SIGTERM or when nobody keeps the descriptors any more."""

    def __init__(self, parts: WorkerParts, keeper: Channel) -> None:
        self._index = parts.index
        self._third = parts.third
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._sessions: dict[int, Session] = {}
        self._keys: dict[str, int] = {}
        self._said: set[str] = set()
        self._paused = False
        self._running = True
        self._pool = RequestPool(parts.pool)
        self._answers = Answers(self._pool, self._resume)
        self._reader = CacheReader(
            parts.tiers, [PresenceTable(fd) for fd in parts.presence], parts.boot, seeds=parts.seeds
        )
        paths = [os.path.join(parts.run_dir, f"fetch-{j}.sock") for j in range(len(parts.presence))]
        self._fetchers = [FetchClient(path) for path in paths]
        event, wake = wake_event()
        self._counters = Counters(parts.counters)
        self._counters.tally(Node.STARTS)
        self._busy_s = 0.0
        self._reads = Reads(self._reader, self._fetchers, self._answers, self._counters, DiskReads(self._reader, wake))
        self._metadata = Metadata(self._answers, self._cached_percent, self._expect_read)
        self._keeper = KeeperLink(parts, keeper, self._on_keeper)
        self._control = ControlLink(parts, self._on_control)
        self._interrupts = InterruptLink(parts, self._reads.interrupt)
        self._watch(event, lambda _events: self._on_disk(event))
        self._fetch_fds = [-1] * len(self._fetchers)
        self._fetch_masks = [0] * len(self._fetchers)

    def add_session(self, key: str, data: dict[str, Any], fds: dict[str, int]) -> None:
        """Serve one more connection; one that is served already (the keeper said it again) changes nothing.

        Of two that have one slot the older has ended: a keeper died before it could say so. The descriptors stay the
        caller's.
        """
        slot = int(data["slot"])
        for other in [other for other, its in self._keys.items() if its == slot and other != key]:
            if self._sessions[slot].made > data["made"]:
                return
            self._end_session(other)
        if slot in self._sessions or not data["mountpoint"]:
            return
        try:
            session = Session.from_entry(data, fds, self._index)
        except (StokerError, OSError) as error:
            log.error("session cannot be served", key=key, error=str(error))
            return
        self._counters.claim(slot, session.spec.id)
        self._sessions[slot] = session
        self._keys[key] = slot

    def replay(self) -> None:
        """Answer what a dead predecessor left, then begin to take requests."""
        for left in self._pool.left():
            session = self._sessions.get(left.session)
            if session is None:
                if left.record >= 0:
                    self._pool.release(left.record)
                continue
            self._pool.begin(left.record)
            self._replay(Request.parse(session, memoryview(left.request), left.record), left)
            self._pool.end()
        for session in self._sessions.values():
            self._serve(session)

    def _replay(self, request: Request, left: Left) -> None:
        if request.op in NO_REPLY or request.op == Op.INTERRUPT:
            self._dispatch(request)
            return
        fate = fate_of(request.session.fd, request.unique, request.thread)
        if fate is Fate.ENDED and not left.refused and request.op != Op.RELEASE:
            self._answers.nothing(request)
        elif left.refused or (fate is Fate.INTERRUPTED and request.op != Op.RELEASE):
            self._reads.refuse(request, errno.EINTR)
        elif left.poisonous:
            log.error("request killed worker after worker", op=request.op, inode=request.inode, unique=request.unique)
            self._reads.refuse(request, errno.EIO)
        else:
            self._dispatch(request)

    def run(self) -> None:
        """The loop."""
        signal.signal(signal.SIGTERM, lambda *_: self._stop())
        for link in (self._keeper, self._control, self._interrupts):
            self._watch_link(link)
        now = tick = time.monotonic()
        while self._running:
            self._watch_fetchers()
            found = self._poll()
            woken = time.monotonic()
            for fd, events in found:
                if handler := self._handlers.get(fd):
                    handler(events)
            if self._reads.disk.spinning:
                self._reads.finish_disk_reads()
            now = time.monotonic()
            self._busy_s += now - woken
            if now - tick >= _TICK_S:
                tick = now
                self._on_tick()

    # --- requests

    def _serve(self, session: Session) -> None:
        if not self._paused:
            self._watch(session.fd, lambda _events: self._on_requests(session), _CLONE_EVENTS)

    def _on_requests(self, session: Session) -> None:
        pool, fd, landing = self._pool, session.fd, [self._pool.landing]
        began = 0.0
        for _ in range(_BATCH):
            if pool.full:
                self._pause()
                break
            pool.expect(session.slot)
            try:
                os.readv(fd, landing)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT):
                    continue  # the request was interrupted before we got it
                self._connection_gone(session)
                return
            if not began:
                began = time.monotonic()
            self._dispatch(Request.parse(session, pool.landing))
        if began:
            self._counters.add(session.slot, Counter.SERVED_US, int((time.monotonic() - began) * 1e6))

    def _dispatch(self, request: Request) -> None:
        try:
            self._route(request)
        except StokerError as error:
            log.error("request failed", op=request.op, inode=request.inode, reason=error.reason, error=error.message)
            self._reads.refuse(request, errno.EIO)

    def _route(self, request: Request) -> None:
        op = request.op
        self._counters.count_op(op)
        if op == Op.READ:
            self._reads.read(request)
        elif op == Op.INTERRUPT:
            key = request.session.slot, INTERRUPT_IN.unpack_from(request.body)[0]
            self._answers.nothing(request)
            if not self._reads.interrupt(key):
                self._interrupts.broadcast(key)
        elif op == Op.OPEN and request.session.spec.mount.answered_open:
            self._reads.open(request)
        elif op == Op.RELEASE:
            self._reads.release(request)
        else:
            self._metadata.handle(request)

    def _cached_percent(self, session: Session, inode: int) -> int:
        file = session.object(inode)
        if not file.size:
            return 100
        return self._reader.present_bytes(file.oid, file.size) * 100 // file.size if file.cacheable else 0

    def _expect_read(self, session: Session, inode: int) -> None:
        with contextlib.suppress(StokerError):  # its read will say so
            node = session.manifest.node(inode)
            if not node.is_dir and self._reads.disk.expects(node.size):  # before its object is looked for
                self._reads.disk.expect(session.object(inode))

    def _pause(self) -> None:
        """The pending table is full: take nothing more before something is answered."""
        self._paused = True
        for session in self._sessions.values():
            self._unwatch(session.fd)

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            for session in self._sessions.values():
                self._serve(session)

    def _connection_gone(self, session: Session) -> None:
        """Unmounted, or aborted: the keeper's `drop` usually came first."""
        self._unwatch(session.fd)
        self._reads.drop_session(session)
        self._control.send({"op": "session-gone", "id": session.spec.id})

    def _on_disk(self, event: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(event)
        self._reads.finish_disk_reads()

    # --- messages

    def _on_keeper(self, message: Message, fds: list[int]) -> None:
        if message["op"] == "everything":  # follows, up to `ready`: what is not in it has ended meanwhile
            self._said = set()
        elif message["op"] == "ready":
            for key in [key for key in self._third.kept() if key not in self._said]:
                self._end_session(key)
                self._third.drop(key)
        elif message["op"] == "keep":
            self._said.add(message["key"])
            self._third.keep(message, fds)
            if message["key"].startswith("session."):
                self.add_session(message["key"], message["data"], dict(zip(message["names"], fds, strict=True)))
                session = self._sessions.get(int(message["data"]["slot"]))
                if session is not None and session.fd not in self._handlers:
                    self._serve(session)
        elif message["op"] == "drop":
            self._end_session(message["key"])
            self._third.drop(message["key"])

    def _end_session(self, key: str) -> None:
        session = self._sessions.pop(self._keys.pop(key, -1), None)
        if session is not None:
            self._unwatch(session.fd)
            self._reads.drop_session(session)
            session.close()

    def _on_control(self, message: Message) -> None:
        if message["op"] == "evicted":
            for oid, incarnation in message["objects"]:
                self._reader.forget(bytes.fromhex(oid), incarnation)
            self._control.send({"op": "evicted-ack", "seq": message["seq"]})

    def _on_tick(self) -> None:
        self._report()
        self._reads.expire()
        self._reads.end_interrupted()
        if self._control.connected and (touched := self._reads.touched.take()):
            self._control.send({"op": "touch", "data_sets": touched})
        if not self._keeper.connected and self._third.revive():
            self._counters.tally(Node.SUPERVISORS)
        if all([self._keeper.lost, self._control.lost]):  # both are asked: that is where each connects again
            log.error("supervisor and daemon are both gone; the mounts end")
            self._running = False

    def _report(self) -> None:
        """What the daemon shows of queues and paces; while it is away the paces wait for the next one."""
        self._reads.settle()
        self._counters.show(Node.PENDING, self._pool.pending)
        busy_us, self._busy_s = int(self._busy_s * 1e6), 0.0
        self._counters.tally(Node.BUSY_US, busy_us)
        if self._control.connected:
            now = time.monotonic()
            reports = [(session.spec.data_set, session.pace.report(now)) for session in self._sessions.values()]
            paces = [{"dataSet": name, **report} for name, report in reports if report is not None]
            self._control.send({"op": "pace", "at": int(now * 1e6), "busy": busy_us, "paces": paces})

    # --- the loop

    def _poll(self) -> list[tuple[int, int]]:
        if self._reads.disk.spinning:
            return self._epoll.poll(0)
        timeout = min((client.retry_s for client in self._fetchers), default=_TICK_S)
        with contextlib.suppress(InterruptedError):
            return self._epoll.poll(min(timeout, _TICK_S))
        return []

    def _watch_fetchers(self) -> None:
        """Follow each fetcher's socket over reconnects, and ask for writability only while something waits."""
        for index, client in enumerate(self._fetchers):
            fd = client.fileno()
            if fd != self._fetch_fds[index]:
                self._handlers.pop(self._fetch_fds[index], None)  # closing it took it out of the epoll set
                self._fetch_fds[index], self._fetch_masks[index] = fd, select.EPOLLIN
                if fd >= 0:
                    self._watch(fd, partial(self._on_fetcher, index))
            mask = select.EPOLLIN | (select.EPOLLOUT if client.pending_output else 0)
            if fd >= 0 and mask != self._fetch_masks[index]:
                self._fetch_masks[index] = mask
                self._epoll.modify(fd, mask)

    def _on_fetcher(self, index: int, events: int) -> None:
        client = self._fetchers[index]
        if events & select.EPOLLOUT:
            client.on_writable()
        if events & ~select.EPOLLOUT:
            for reply in client.on_readable():
                self._reads.on_reply(index, reply)

    def _watch_link(self, link: KeeperLink | ControlLink | InterruptLink) -> None:
        link.attach(self._watch, self._unwatch)

    def _watch(self, fd: int, handler: Callable[[int], None], events: int = select.EPOLLIN) -> None:
        if fd not in self._handlers:
            self._epoll.register(fd, events)
        self._handlers[fd] = handler

    def _unwatch(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(fd)

    def _stop(self) -> None:
        self._running = False
