"""The admin API over TCP with mutual TLS: connections are bounded, and one that says nothing is ended.

Each connection is taken by itself, so that it is made with the certificates of this moment, and a client that hangs in
its handshake holds nobody but itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from aiohttp import web

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.node.admin.certificates import Certificates
from stoker.node.admin.serve import MAX_LINE
from stoker.node.keeper import Keeper
from stoker.node.store import Entry

log = structlog.get_logger("stoker.api")

MOST_CONNECTIONS = 256
_HANDSHAKES = 64  # of these; who has no certificate cannot take the place of who has
_HANDSHAKE_S = 5.0
_FIRST_REQUEST_S = 10.0
_KEEP_ALIVE_S = 30.0
_BACKLOG = 128
_LOOK_S = 1.0
_SAY_S = 1.0
_REST_S = 0.2  # after an accept that failed, as without descriptors

Application = Callable[[Callable[[web.Request], None]], web.Application]


class AdminPort:
    """Off when the configured port is 0."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._port = int(config["admin_port"])
        self._shaking: set[asyncio.Task[None]] = set()
        self._heard: weakref.WeakSet[asyncio.BaseTransport] = weakref.WeakSet()
        self._said = 0.0

    async def open(self, keeper: Keeper) -> None:
        """Listen. Raises StokerError when the files or the address cannot be used."""
        if not self._port:
            return
        self._certificates = Certificates(self._config)
        if "admin" not in keeper.entries:  # else an earlier daemon listened, and clients may wait there
            await keeper.keep(Entry("admin", {"listen": self._listen()}))
        self._sock = socket.socket(fileno=os.dup(keeper.entries["admin"].fds["listen"]))
        self._sock.setblocking(False)

    async def run(self, application: Application) -> None:
        """Serve for ever."""
        if not self._port:
            return
        runner = web.AppRunner(
            application(self._check), access_log=None, keepalive_timeout=_KEEP_ALIVE_S, max_line_size=MAX_LINE
        )
        await runner.setup()
        watch = asyncio.create_task(self._watch())
        try:
            await self._accept(runner)
        finally:
            watch.cancel()
            for task in self._shaking:
                task.cancel()
            await runner.cleanup()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            await asyncio.to_thread(self._certificates.look)

    async def _accept(self, runner: web.AppRunner) -> None:
        loop = asyncio.get_running_loop()
        assert runner.server is not None
        while True:
            try:
                connection, (peer, *_) = await loop.sock_accept(self._sock)
            except OSError as error:
                self._say("a connection cannot be taken", "", error)
                await asyncio.sleep(_REST_S)
                continue
            if len(self._shaking) >= _HANDSHAKES or len(runner.server.connections) >= MOST_CONNECTIONS:
                connection.close()
                self._say("there are too many connections", str(peer), None)
                continue
            task = asyncio.create_task(self._welcome(runner.server, connection, str(peer)))
            self._shaking.add(task)
            task.add_done_callback(self._shaking.discard)

    async def _welcome(self, server: web.Server, connection: socket.socket, peer: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            transport, _protocol = await loop.connect_accepted_socket(
                server,
                connection,
                ssl=self._certificates.context,
                ssl_handshake_timeout=_HANDSHAKE_S,
                ssl_shutdown_timeout=1.0,
            )
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            self._say("a client was refused", peer, error)
            return
        loop.call_later(_FIRST_REQUEST_S, self._end_if_silent, transport)

    def _end_if_silent(self, transport: asyncio.Transport) -> None:
        if transport not in self._heard:
            transport.abort()

    def _check(self, request: web.Request) -> None:
        """Each request. Raises StokerError CertificateRefused."""
        transport = request.transport
        found: ssl.SSLObject | None = transport.get_extra_info("ssl_object") if transport is not None else None
        certificate = found.getpeercert() if found is not None else None
        if transport is None or found is None or not certificate:
            raise StokerError(Reason.CertificateRefused, "there is none", next_step="send a client certificate.")
        self._heard.add(transport)
        self._certificates.check(found.context, certificate)

    def _say(self, text: str, peer: str, error: Exception | None) -> None:
        """Once in a second: whoever can reach the port could fill the log."""
        if time.monotonic() - self._said >= _SAY_S:
            self._said = time.monotonic()
            log.warning(text, peer=peer, error=str(error or ""), reason=Reason.CertificateRefused)

    def _listen(self) -> int:
        address = str(self._config["admin_address"])
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with contextlib.closing(socket.socket(family, socket.SOCK_STREAM)) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((address, self._port))
                sock.listen(_BACKLOG)
            except OSError as error:
                text = f"the admin port cannot be opened there ({(error.strerror or str(error)).lower()})"
                step = "set STOKER_ADMIN_PORT and STOKER_ADMIN_ADDRESS to what is free, or the port to 0."
                place = f"{address}:{self._port}"
                raise StokerError(Reason.NodeStartFailed, text, place=place, next_step=step) from error
            return sock.detach()
