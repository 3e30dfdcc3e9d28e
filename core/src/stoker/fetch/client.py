"""Asking a fetcher: `FetchClient` inside a worker's epoll loop, `AsyncFetchClient` inside the daemon's event loop.

Both outlive the fetcher: they connect again for ever, and ask again for all that is outstanding. Asking twice is
harmless. Deadlines are the caller's: give up with `cancel`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import socket
import time
from collections.abc import Callable

from stoker.api.errors import StokerError
from stoker.fetch.protocol import (
    KIND_CANCEL,
    KIND_LOAD,
    KIND_NOTE,
    ProtocolError,
    Reply,
    ReplyFrames,
    Request,
    Status,
)

__all__ = ["AsyncFetchClient", "FetchClient", "Reply"]

_FIRST_RETRY_S, _LAST_RETRY_S = 0.01, 1.0
_READ_BYTES = 1 << 20


class FetchClient:
    """One connection, never blocking. Call `fileno` in each round of the loop, and come back after `retry_s` at most.

    A connection that is lost is never followed by one with the same descriptor number unless `fileno` was -1 in
    between: whoever watches the number sees every change.
    """

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._sock: socket.socket | None = None
        self._frames = ReplyFrames()
        self._out = bytearray()
        self._ids = itertools.count(1)
        self._outstanding: dict[int, Request] = {}
        self._retry_at = 0.0
        self._wait_s = _FIRST_RETRY_S
        self._untold = False  # the loss of a connection that `fileno` has not shown yet

    def fileno(self) -> int:
        """The descriptor to watch; tries to connect when there is none and the time has come."""
        if self._untold:
            self._untold = False
        elif self._sock is None and self._clock() >= self._retry_at:
            self.reconnect()
        return -1 if self._sock is None else self._sock.fileno()

    @property
    def retry_s(self) -> float:
        """How soon `fileno` should be called again; infinite while connected."""
        return math.inf if self._sock is not None else max(0.0, self._retry_at - self._clock())

    @property
    def pending_output(self) -> bool:
        """Whether `on_writable` should be called."""
        return bool(self._out)

    def request(self, kind: int, flags: int, slot: int, inode: int, offset: int, length: int) -> int:
        """Ask. The answer comes from `on_readable`; a NOTE has none."""
        request = Request(next(self._ids), kind, flags, slot, inode, offset, length)
        if kind != KIND_NOTE:
            self._outstanding[request.id] = request
        self._send(request)
        return request.id

    def cancel(self, request_id: int) -> None:
        """No answer is wanted any more; one that is on its way already is dropped."""
        request = self._outstanding.pop(request_id, None)
        if request is not None:
            self._send(Request(request_id, KIND_CANCEL, 0, request.slot, request.inode, 0, 0))

    def on_readable(self) -> list[Reply]:
        """The answers that have arrived whole. A lost connection is made again here, or later by `fileno`."""
        if self._sock is None:
            return []
        try:
            data = self._sock.recv(_READ_BYTES)
            replies = self._frames.feed(data)
        except BlockingIOError:
            return []
        except (OSError, ProtocolError):
            data, replies = b"", []
        if not data:
            self.reconnect()
        return [reply for reply in replies if self._outstanding.pop(reply.id, None) is not None]

    def on_writable(self) -> None:
        """Send what the socket did not take before."""
        if self._sock is None or not self._out:
            return
        try:
            del self._out[: self._sock.send(self._out)]
        except BlockingIOError:
            return
        except OSError:
            self._out.clear()  # the end of the connection is there to be read, and all this is asked again

    def reconnect(self) -> None:
        """Connect, and ask again for all that is outstanding; failing that, wait a little longer each time."""
        old, self._sock = self._sock, None
        self._frames = ReplyFrames()
        self._out.clear()
        # The new socket is made before the old one is closed: two connections in a row differ in their numbers.
        self._sock = self._connect()
        if old is not None:
            self._untold = self._sock is None
            old.close()
        if self._sock is not None:
            for request in self._outstanding.values():
                self._out += request.pack()
            self.on_writable()

    def _connect(self) -> socket.socket | None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            sock.connect(self._path)
        except OSError:
            sock.close()
            self._retry_at = self._clock() + self._wait_s
            self._wait_s = min(2 * self._wait_s, _LAST_RETRY_S)
            return None
        self._wait_s = _FIRST_RETRY_S
        return sock

    def close(self) -> None:
        """End; nothing is asked again."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        self._outstanding.clear()
        self._retry_at = math.inf

    def _send(self, request: Request) -> None:
        if self._sock is None:
            return
        idle = not self._out
        self._out += request.pack()
        if idle:
            self.on_writable()


class AsyncFetchClient:
    """The same with `await`. Make it inside a running loop, close it there."""

    def __init__(self, path: str) -> None:
        self._client = FetchClient(path)
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._watched = -1
        self._writing = False
        self._retry: asyncio.TimerHandle | None = None

    async def load(self, slot: int, inode: int) -> None:
        """Make a whole object present in the cache. Raises StokerError."""
        reply = await self.ask(KIND_LOAD, 0, slot, inode, 0, 0)
        if reply.status == Status.ERROR:
            raise StokerError.from_json(reply.error())

    async def ask(self, kind: int, flags: int, slot: int, inode: int, offset: int, length: int) -> Reply:
        """One request and its answer, across the deaths of the fetcher. A cancelled caller cancels the request."""
        request = self._client.request(kind, flags, slot, inode, offset, length)
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[request] = answer
        self._watch()
        try:
            return await answer
        finally:
            del self._waiting[request]
            self._client.cancel(request)
            self._watch()

    def note(self, slot: int, inode: int, offset: int, length: int) -> None:
        """A reader reached a trigger page; dropped while the fetcher is away."""
        self._client.request(KIND_NOTE, 0, slot, inode, offset, length)
        self._watch()

    def close(self) -> None:
        self._unwatch()
        if self._retry is not None:
            self._retry.cancel()
        self._client.close()
        for answer in self._waiting.values():
            answer.cancel()

    def _watch(self) -> None:
        """Follow the connection; look again soon while there is none and somebody waits."""
        loop = asyncio.get_running_loop()
        fd = self._client.fileno()
        if fd != self._watched:
            self._unwatch()
        if fd < 0:
            if self._retry is None and self._waiting:
                self._retry = loop.call_later(self._client.retry_s, self._again)
            return
        if self._watched < 0:
            self._watched = fd
            loop.add_reader(fd, self._on_readable)
        if self._client.pending_output != self._writing:
            self._writing = not self._writing
            if self._writing:
                loop.add_writer(fd, self._on_writable)
            else:
                loop.remove_writer(fd)

    def _unwatch(self) -> None:
        if self._watched >= 0:
            loop = asyncio.get_running_loop()
            with contextlib.suppress(OSError, ValueError):
                loop.remove_reader(self._watched)
                loop.remove_writer(self._watched)
            self._watched, self._writing = -1, False

    def _again(self) -> None:
        self._retry = None
        self._watch()

    def _on_readable(self) -> None:
        for reply in self._client.on_readable():
            answer = self._waiting.get(reply.id)
            if answer is not None and not answer.done():
                answer.set_result(reply)
        self._watch()

    def _on_writable(self) -> None:
        self._client.on_writable()
        self._watch()
