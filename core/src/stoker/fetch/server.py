"""The fetcher's socket: requests in, replies out, in any order; a request whose asker is gone is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

import structlog

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.fetch.files import File
from stoker.fetch.protocol import (
    KIND_CANCEL,
    KIND_LOAD,
    KIND_NOTE,
    KIND_READ,
    Reply,
    Request,
    RequestFrames,
    data_header,
    mark_of,
    present,
)
from stoker.fetch.service import Service
from stoker.fetch.sessions import Session

log = structlog.get_logger("stoker.fetch")

TAKE_S = 30.0
"""An asker that does not read its answers for this long is cut off: it must not hold the memory of the others. It asks
again when it lives again."""


class Connection(asyncio.Protocol):
    """One worker, or the daemon."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._frames = RequestFrames()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._transport: asyncio.Transport | None = None
        self._drained = asyncio.Event()
        self._drained.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for request in self._frames.feed(data):
            self._take(request)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the name is the protocol's
        self._transport = None
        self._drained.set()
        for task in self._tasks.values():
            task.cancel()

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    def _take(self, request: Request) -> None:
        if request.kind == KIND_CANCEL:
            if (task := self._tasks.pop(request.id, None)) is not None:
                task.cancel()
        elif request.kind == KIND_NOTE:
            with contextlib.suppress(StokerError):
                self._service.note(request)
        elif request.kind in (KIND_READ, KIND_LOAD):
            task = asyncio.create_task(self._serve(request))
            self._tasks[request.id] = task
            task.add_done_callback(lambda _: self._tasks.pop(request.id, None))
        else:
            log.error("unknown kind of request", kind=request.kind)
            assert self._transport is not None
            self._transport.abort()

    async def _serve(self, request: Request) -> None:
        file: File | None = None
        try:
            session, file = await self._service.file_of(request)
            async with _limit(request, session.patience.deadline_s):
                await self._answer(session, file, request)
        except StokerError as error:
            self._send(Reply.failed(request.id, mark_of(file.oid) if file else 0, error).pack())
        except TimeoutError:
            late = StokerError(Reason.Timeout, "the source did not answer in time")
            self._send(Reply.failed(request.id, mark_of(file.oid) if file else 0, late).pack())
        except Exception as error:
            log.error("request failed", kind=request.kind, slot=request.slot, inode=request.inode, exc_info=error)
            internal = StokerError(Reason.Internal, repr(error), next_step="see the log.")
            self._send(Reply.failed(request.id, mark_of(file.oid) if file else 0, internal).pack())

    async def _answer(self, session: Session, file: File, request: Request) -> None:
        async with self._service.answer(session, file, request) as answer:
            if answer.data is None:
                self._send(present(request.id, answer.incarnation))
                return
            self._send(data_header(request.id, mark_of(answer.oid), len(answer.data)))
            self._send(answer.data)
            await self._taken()

    async def _taken(self) -> None:
        """The asker has read enough for more to be written: until then the bytes are ours to hold."""
        try:
            await asyncio.wait_for(self._drained.wait(), TAKE_S)
        except TimeoutError:
            if self._transport is not None:
                self._transport.abort()

    def _send(self, data: bytes | bytearray) -> None:
        if self._transport is not None:
            self._transport.write(data)


def _limit(request: Request, deadline_s: float) -> asyncio.Timeout:
    """A reader waits no longer than its deadline; a load takes as long as its bytes come."""
    return asyncio.timeout(deadline_s if request.kind == KIND_READ else None)


async def listen(path: str, service: Service) -> asyncio.Server:
    """Serve at `path`, for this user only; a socket file that a dead fetcher left is replaced."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(path)
    os.chmod(path, 0o600)
    return await asyncio.get_running_loop().create_unix_server(lambda: Connection(service), sock=sock, backlog=1024)
