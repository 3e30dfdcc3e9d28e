"""One message channel between two processes: JSON in SEQPACKET packets, file descriptors beside them.

Not for bulk data: page requests use the fetch protocol. A message larger than one packet is split; the first packet
carries the descriptors. Sending never blocks: what the peer does not take yet waits in an outbox that the owner flushes
when the socket is writable, so a stopped peer never stops a reader.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import os
import select
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]

_PACKET = 60_000  # bytes of JSON per packet; below the default socket buffer of 208 KiB, so a packet always fits
_MAX_FDS = 250  # the kernel's SCM_MAX_FD is 253
_LAST, _MORE = b"\0", b"\1"


class ChannelClosedError(ConnectionError):
    """The other process is gone or closed its end."""


class Channel:
    """A non-blocking channel over a connected SEQPACKET socket; `recv_wait` is for the few places that may block."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        sock.setblocking(False)
        self._outbox: deque[tuple[bytes, list[int]]] = deque()
        self._parts: list[bytes] = []
        self._fds: list[int] = []

    @classmethod
    def connect(cls, path: str) -> Channel:
        """Connect to the listening socket at `path`. Raises OSError when nobody listens."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            sock.connect(path)
        except OSError:
            sock.close()
            raise
        return cls(sock)

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(a), cls(b)

    def fileno(self) -> int:
        return self._sock.fileno()

    def detach(self) -> int:
        """Give the descriptor away (to a child process)."""
        return self._sock.detach()

    @property
    def pending(self) -> bool:
        """Whether the outbox holds packets that the peer has not taken yet."""
        return bool(self._outbox)

    def wait(self, events: int, timeout_s: float) -> bool:
        """Whether the socket is ready in time for `select.POLLIN` or `POLLOUT` (select() takes no file above 1,023)."""
        poll = select.poll()
        poll.register(self.fileno(), events)
        return bool(poll.poll(timeout_s * 1000))

    def peer_pid(self) -> int:
        """The process id of the peer when it connected (SO_PEERCRED)."""
        raw = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(raw[:4], "little", signed=True)

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Queue a message and send what the peer takes now. The descriptors are duplicated until they are sent."""
        if len(fds) > _MAX_FDS:
            raise ValueError(f"a message carries at most {_MAX_FDS} descriptors, not {len(fds)}")
        data = json.dumps(message, separators=(",", ":")).encode()
        copies = [os.dup(fd) for fd in fds]
        for start in range(0, len(data), _PACKET):
            last = start + _PACKET >= len(data)
            self._outbox.append(((_LAST if last else _MORE) + data[start : start + _PACKET], copies))
            copies = []
        self.flush()

    def flush(self) -> bool:
        """Send what waits in the outbox; True when it is empty. Raises ChannelClosedError."""
        while self._outbox:
            data, fds = self._outbox[0]
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
            try:
                self._sock.sendmsg([data], ancillary)
            except BlockingIOError:
                return False
            except OSError as error:
                raise ChannelClosedError(str(error)) from error
            self._outbox.popleft()
            for fd in fds:
                os.close(fd)
        return True

    def recv(self) -> tuple[Message, list[int]] | None:
        """The next whole message with its descriptors, or None when there is none yet. Raises ChannelClosedError."""
        while True:
            try:
                data, fds, _flags, _address = socket.recv_fds(self._sock, _PACKET + 16, _MAX_FDS)
            except BlockingIOError:
                return None
            except OSError as error:
                raise ChannelClosedError(str(error)) from error
            if not data:
                raise ChannelClosedError("the peer closed the channel")
            self._fds.extend(fds)
            self._parts.append(data[1:])
            if data[:1] == _LAST:
                message = json.loads(b"".join(self._parts))
                received, self._parts, self._fds = self._fds, [], []
                return message, received

    def close(self) -> None:
        for _data, fds in self._outbox:
            for fd in fds:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._outbox.clear()
        self._sock.close()


class AsyncChannel:
    """The same inside an asyncio loop: `await recv()`, `send()` never waits."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._inbox: asyncio.Queue[tuple[Message, list[int]] | None] = asyncio.Queue()
        self._closed = False
        self._loop.add_reader(channel.fileno(), self._on_readable)

    @classmethod
    async def connect(cls, path: str) -> AsyncChannel:
        return cls(Channel.connect(path))

    def peer_pid(self) -> int:
        return self._channel.peer_pid()

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Queue a message; on a closed channel it is dropped, and `recv` reports the end."""
        if self._closed:
            return
        try:
            self._channel.send(message, fds)
        except ChannelClosedError:
            self._end()
            return
        if self._channel.pending:
            self._loop.add_writer(self._channel.fileno(), self._on_writable)

    async def recv(self) -> tuple[Message, list[int]]:
        """The next message. Raises ChannelClosedError at the end, again and again."""
        item = await self._inbox.get()
        if item is None:
            self._inbox.put_nowait(None)
            raise ChannelClosedError("the peer closed the channel")
        return item

    def close(self) -> None:
        self._end()

    def _on_readable(self) -> None:
        try:
            while (item := self._channel.recv()) is not None:
                self._inbox.put_nowait(item)
        except ChannelClosedError:
            self._end()

    def _on_writable(self) -> None:
        try:
            if self._channel.flush():
                self._loop.remove_writer(self._channel.fileno())
        except ChannelClosedError:
            self._end()

    def _end(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._channel.fileno())
        self._loop.remove_writer(self._channel.fileno())
        self._channel.close()
        self._inbox.put_nowait(None)


def listen(path: str) -> socket.socket:
    """A listening SEQPACKET socket at `path`, for this user only; a stale socket file there is replaced."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.bind(path)
    os.chmod(path, 0o600)
    sock.listen(64)
    sock.setblocking(False)
    return sock
