"""A process that serves S3: one event loop over its listening socket, the fetchers, the keeper and the daemon.

It holds nothing that must outlive it: the socket is kept by the supervisor, so that clients wait while it is started
again. docs/design/s3.md has the crash cases.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import structlog
from aiohttp import web

from stoker.cache.presence import PresenceTable
from stoker.cache.reader import CacheReader
from stoker.fetch.client import AsyncFetchClient
from stoker.fetch.counters import Counters
from stoker.ipc.channel import AsyncChannel, Channel, ChannelClosedError, Message
from stoker.s3.auth import Auth
from stoker.s3.buckets import Buckets
from stoker.s3.evictions import Evictions
from stoker.s3.keys import KeyRing
from stoker.s3.operations import Operations
from stoker.s3.reads import Reads

log = structlog.get_logger("stoker.s3")

ROLE = "s3"
_BACKLOG = 1024
_KEEP_ALIVE_S = 75.0
_LINE_BYTES = 32 << 10  # a key of 1,024 bytes, percent-encoded, and the query of a presigned URL
_TICK_S = 1.0
_RETRY_S = 0.05
_LOST_S = 60.0  # a dead supervisor or daemon is replaced within a second or two; after this long nobody can
_GRACE_S = 3.0  # for answers that are being sent when the node ends


@dataclass(frozen=True, slots=True)
class S3Parts:
    """What the process is started with: its place, the cache, and what is kept for it by descriptor."""

    index: int
    run_dir: str
    state_dir: str
    tiers: Sequence[str]
    seeds: Sequence[bytes]
    boot: bytes
    presence: Sequence[int]
    counters: int
    listening: int


class S3Process:
    """Made after the fork; `run` ends at SIGTERM, or when supervisor and daemon are both gone for good."""

    def __init__(self, parts: S3Parts, keeper: Channel) -> None:
        self._parts = parts
        self._first = keeper
        self._hello = {"op": "hello", "role": ROLE, "index": parts.index, "pid": os.getpid()}
        self._reader = CacheReader(
            parts.tiers, [PresenceTable(fd) for fd in parts.presence], parts.boot, seeds=parts.seeds
        )
        self._counters = Counters(parts.counters)
        self._buckets = Buckets(self._say)
        self._lost: dict[str, float] = {}
        self._control: AsyncChannel | None = None
        self._stop = asyncio.Event()

    def add_session(self, key: str, data: dict[str, Any]) -> None:
        """One more DataSet to serve; one that is served already stays."""
        bucket = self._buckets.add(key, data)
        if bucket is not None:
            self._counters.claim(bucket.spec.slot, bucket.spec.id)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        paths = [os.path.join(self._parts.run_dir, f"fetch-{j}.sock") for j in range(len(self._parts.presence))]
        self._reads = Reads(self._reader, [AsyncFetchClient(path) for path in paths], self._counters)
        self._evictions = Evictions(self._reader, self._reads, self._say)
        operations = Operations(Auth(KeyRing(self._parts.state_dir)), self._buckets, self._reads)
        tasks = [asyncio.create_task(work) for work in (self._keeper_line(), self._control_line(), self._ticks())]
        async with self._serving(operations):
            tasks.append(asyncio.create_task(self._wait_for_stop()))
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for task in done:
            task.result()  # a line that failed ends this process; the supervisor starts another

    async def _wait_for_stop(self) -> None:
        await self._stop.wait()

    @asynccontextmanager
    async def _serving(self, operations: Operations) -> AsyncIterator[None]:
        server = web.Server(
            operations.handle,
            access_log=None,
            keepalive_timeout=_KEEP_ALIVE_S,
            max_line_size=_LINE_BYTES,
            max_field_size=_LINE_BYTES,
        )
        sock = socket.socket(fileno=os.dup(self._parts.listening))
        sock.setblocking(False)
        listening = await asyncio.get_running_loop().create_server(server, sock=sock, backlog=_BACKLOG)
        log.info("s3 endpoint ready", port=sock.getsockname()[1])
        try:
            yield
        finally:
            listening.close()
            await server.shutdown(_GRACE_S)

    # --- the supervisor

    async def _keeper_line(self) -> None:
        """Sessions come and go. After the supervisor was replaced all of them are said again, up to `ready`."""
        channel: AsyncChannel | None = AsyncChannel(self._first)
        said: set[str] | None = None
        while True:
            if channel is None:
                channel, said = await self._connect("keeper"), set()
            try:
                message, fds = await channel.recv()
            except ChannelClosedError:
                channel.close()
                channel = None
                continue
            for fd in fds:
                os.close(fd)
            said = self._on_keeper(message, said)

    def _on_keeper(self, message: Message, said: set[str] | None) -> set[str] | None:
        key = message.get("key", "")
        if message["op"] == "keep" and key.startswith("session."):
            if said is not None:
                said.add(key)
            self.add_session(key, message["data"])
        elif message["op"] == "drop":
            self._buckets.drop(key)
        elif message["op"] == "ready" and said is not None:
            self._buckets.keep_only(said)
            return None
        return said

    # --- the daemon

    async def _control_line(self) -> None:
        """Evictions come in, touches go out."""
        while True:
            channel = await self._connect("control")
            self._control = channel
            try:
                while True:
                    message, fds = await channel.recv()
                    for fd in fds:
                        os.close(fd)
                    if message["op"] == "evicted":
                        self._evictions.take(message)
                    elif message["op"] == "leave":
                        self._buckets.leave(message["key"], message["seq"])
            except ChannelClosedError:
                self._control = None
                self._evictions.forget()  # its successor counts what is on disk
                self._buckets.stay()
                channel.close()

    def _say(self, message: Message) -> None:
        if self._control is not None:
            self._control.send(message)

    async def _ticks(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            if self._control is not None and (touched := self._reads.touched.take()):
                self._say({"op": "touch", "data_sets": touched})

    async def _connect(self, name: str) -> AsyncChannel:
        path = os.path.join(self._parts.run_dir, f"{name}.sock")
        self._lost[name] = time.monotonic()
        while True:
            try:
                channel = await AsyncChannel.connect(path)
            except OSError:
                if len(self._lost) == 2 and time.monotonic() - max(self._lost.values()) > _LOST_S:
                    log.error("supervisor and daemon are both gone; the endpoint ends")
                    self._stop.set()
                await asyncio.sleep(_RETRY_S)
                continue
            del self._lost[name]
            channel.send(self._hello)
            return channel


def run(parts: S3Parts, keeper: Channel, sessions: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """The process. `sessions`: key and data of those there are."""

    async def main() -> None:
        process = S3Process(parts, keeper)
        for key, data in sessions:
            process.add_session(key, data)
        await process.run()

    asyncio.run(main())
