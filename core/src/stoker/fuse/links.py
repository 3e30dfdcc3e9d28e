"""A worker's lines to the others: the keeper of descriptors, the daemon, and its sibling workers.

Each reconnects by itself. The reads go on whatever these do.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from stoker.fuse.parts import WorkerParts
from stoker.fuse.protocol import RequestKey
from stoker.ipc.channel import Channel, ChannelClosedError, Message

Watch = Callable[[int, Callable[[int], None]], None]
Unwatch = Callable[[int], None]

_LOST_S = 60.0  # a dead supervisor is replaced within a second or two; after this long nobody can
_KEY = struct.Struct("<QQ")


class _Link(ABC):
    """A channel that is made again when its peer is replaced."""

    def __init__(self, path: str, hello: Message, channel: Channel | None) -> None:
        self._path = path
        self._hello = hello
        self._channel = channel
        self._since = time.monotonic()
        self._watch: Watch = lambda _fd, _handler: None
        self._unwatch: Unwatch = lambda _fd: None

    @property
    def connected(self) -> bool:
        return self._channel is not None

    @property
    def lost(self) -> bool:
        """Whether the peer has been away for too long; trying to connect happens here, once per tick."""
        if self._channel is None:
            self._connect()
        return self._channel is None and time.monotonic() - self._since > _LOST_S

    def attach(self, watch: Watch, unwatch: Unwatch) -> None:
        """Join the event loop."""
        self._watch, self._unwatch = watch, unwatch
        if self._channel is None:
            self._connect()
        else:
            self._watch(self._channel.fileno(), lambda _events: self._on_readable())

    def send(self, message: Message) -> None:
        """Send, or drop it when nobody is there: everything sent here is a hint or is said again at `hello`."""
        if self._channel is None:
            return
        try:
            self._channel.send(message)
        except ChannelClosedError:
            self._disconnect()

    def _connect(self) -> None:
        try:
            self._channel = Channel.connect(self._path)
        except OSError:
            return
        self.send(self._hello)
        if self._channel is not None:
            self._watch(self._channel.fileno(), lambda _events: self._on_readable())

    def _disconnect(self) -> None:
        if self._channel is not None:
            self._unwatch(self._channel.fileno())
            self._channel.close()
            self._channel = None
            self._since = time.monotonic()

    def _on_readable(self) -> None:
        try:
            while self._channel is not None and (item := self._channel.recv()) is not None:
                self._on_message(*item)
        except ChannelClosedError:
            self._disconnect()

    @abstractmethod
    def _on_message(self, message: Message, fds: list[int]) -> None: ...


class KeeperLink(_Link):
    """To the supervisor: sessions with their descriptors."""

    def __init__(self, parts: WorkerParts, channel: Channel, on_message: Callable[[Message, list[int]], None]) -> None:
        hello = {"op": "hello", "role": "worker", "index": parts.index}
        super().__init__(os.path.join(parts.run_dir, "keeper.sock"), hello, channel)
        self._handle = on_message

    def _on_message(self, message: Message, fds: list[int]) -> None:
        self._handle(message, fds)


class ControlLink(_Link):
    """To the daemon: evictions come in, touches and lost connections go out."""

    def __init__(self, parts: WorkerParts, on_message: Callable[[Message], None]) -> None:
        hello = {"op": "hello", "role": "worker", "index": parts.index, "pid": os.getpid()}
        super().__init__(os.path.join(parts.run_dir, "control.sock"), hello, None)
        self._handle = on_message

    def _on_message(self, message: Message, fds: list[int]) -> None:
        for fd in fds:
            os.close(fd)
        self._handle(message)


class InterruptLink:
    """Between workers: the kernel gives an INTERRUPT to any of them, the request may wait in another."""

    def __init__(self, parts: WorkerParts, on_interrupt: Callable[[RequestKey], bool]) -> None:
        path = os.path.join(parts.run_dir, f"fuse-{parts.index}.sock")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.bind(path)
        os.chmod(path, 0o600)
        self._sock.setblocking(False)
        self._others = [os.path.join(parts.run_dir, f"fuse-{i}.sock") for i in range(parts.workers) if i != parts.index]
        self._on_interrupt = on_interrupt

    def attach(self, watch: Watch, _unwatch: Unwatch) -> None:
        watch(self._sock.fileno(), lambda _events: self._on_readable())

    def broadcast(self, key: RequestKey) -> None:
        """Tell the others. A full queue of a stopped worker is skipped; its successor finds the request in its pool."""
        for path in self._others:
            with contextlib.suppress(OSError):
                self._sock.sendto(_KEY.pack(*key), path)

    def _on_readable(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                session, unique = _KEY.unpack(self._sock.recv(_KEY.size))
                self._on_interrupt((session, unique))
