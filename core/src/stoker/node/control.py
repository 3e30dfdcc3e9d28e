"""The control socket: where workers and fetchers report to the daemon, and where it asks and tells them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import structlog

from stoker.ipc.channel import AsyncChannel, Channel, ChannelClosedError, Message, listen

if TYPE_CHECKING:
    from stoker.node.cacheservice import CacheService

log = structlog.get_logger("stoker.node")

_Reader = tuple[str, int]
"""Role and index of a process that has cache files open: a worker, or one that serves S3."""


class Control:
    """The connections of one daemon's life. Each process connects again when the daemon was replaced."""

    def __init__(self, run_dir: str, service: CacheService) -> None:
        self._path = os.path.join(run_dir, "control.sock")
        self._service = service
        self._fetchers: dict[int, AsyncChannel] = {}
        self._workers: dict[_Reader, AsyncChannel] = {}
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Message | None]] = {}
        self._waiting: dict[int, tuple[set[_Reader], Callable[[], None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Accept for ever."""
        loop = asyncio.get_running_loop()
        sock = listen(self._path)
        while True:
            connection, _address = await loop.sock_accept(sock)
            task = asyncio.create_task(self._connection(AsyncChannel(Channel(connection))))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for channel in (*self._fetchers.values(), *self._workers.values()):
            channel.close()

    def fetchers(self) -> set[int]:
        """Those that are connected."""
        return set(self._fetchers)

    def tell_fetchers(self, message: Message) -> None:
        for channel in self._fetchers.values():
            channel.send(message)

    def tell_fetcher(self, index: int, message: Message) -> None:
        if (channel := self._fetchers.get(index)) is not None:
            channel.send(message)

    async def ask_fetcher(self, index: int, question: Message, timeout_s: float) -> Message | None:
        """The answer, or None when the fetcher is not there or does not answer."""
        channel = self._fetchers.get(index)
        if channel is None:
            return None
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        channel.send({**question, "seq": number})
        try:
            return await asyncio.wait_for(answer, timeout_s)
        except TimeoutError:
            return None
        finally:
            self._answers.pop(number, None)

    def tell_workers_evicted(self, objects: list[list[Any]], when_dropped: Callable[[], None]) -> None:
        """Workers drop what they have open of these; `when_dropped` is called when all have, or are dead."""
        self._tell(self._workers, {"op": "evicted", "objects": objects}, when_dropped)

    def tell_s3_leave(self, key: str, when_left: Callable[[], None]) -> None:
        """A session is to end that newer ones have replaced; `when_left` is called when no answer is made of it."""
        serving = {who: channel for who, channel in self._workers.items() if who[0] == "s3"}
        self._tell(serving, {"op": "leave", "key": key}, when_left)

    def _tell(self, readers: Mapping[_Reader, AsyncChannel], message: Message, when_all: Callable[[], None]) -> None:
        number = next(self._numbers)
        self._waiting[number] = (set(readers), when_all)
        for channel in readers.values():
            channel.send({**message, "seq": number})
        self._settle(number)

    async def _connection(self, channel: AsyncChannel) -> None:
        with contextlib.suppress(ChannelClosedError):
            message, fds = await channel.recv()
            _close(fds)
            if message["role"] == "fetcher":
                await self._serve_fetcher(int(message["index"]), channel, message)
            else:
                await self._serve_worker((message["role"], int(message["index"])), channel)
        channel.close()

    async def _serve_fetcher(self, index: int, channel: AsyncChannel, hello: Message) -> None:
        await self._service.fetcher_hello(index, channel, hello)
        self._fetchers[index] = channel
        try:
            while True:
                message, fds = await channel.recv()
                _close(fds)
                self._from_fetcher(index, channel, message)
        finally:
            if self._fetchers.get(index) is channel:
                del self._fetchers[index]

    def _from_fetcher(self, index: int, channel: AsyncChannel, message: Message) -> None:
        match message["op"]:
            case "credit":
                channel.send(self._service.grant(index, message))
            case "returned":
                self._service.returned(index, message)
            case "busy":
                answer = self._answers.get(message["seq"])
                if answer is not None and not answer.done():
                    answer.set_result(message)
            case "table-full":
                self._service.table_full()
            case "fault":
                self._service.fault(index, message)
            case "stored":
                self._service.stored(index, message)
            case "changed":
                self._service.source_changed(message)
            case "event":
                self._service.event(message)

    async def _serve_worker(self, who: _Reader, channel: AsyncChannel) -> None:
        self._workers[who] = channel
        try:
            while True:
                message, fds = await channel.recv()
                _close(fds)
                match message["op"]:
                    case "touch":
                        self._service.touched(message["data_sets"])
                    case "evicted-ack":
                        self._dropped(who, message["seq"])
                    case "pace":
                        self._service.on_pace(who[1], message)
                    case "session-gone":
                        self._service.connection_gone(message["id"])
        finally:
            if self._workers.get(who) is channel:
                del self._workers[who]
            for number in list(self._waiting):
                self._dropped(who, number)

    def _dropped(self, who: _Reader, number: int) -> None:
        if number in self._waiting:
            self._waiting[number][0].discard(who)
            self._settle(number)

    def _settle(self, number: int) -> None:
        left, when_dropped = self._waiting[number]
        if not left:
            del self._waiting[number]
            when_dropped()


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
