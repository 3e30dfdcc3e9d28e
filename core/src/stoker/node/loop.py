"""The supervisor's event loop: descriptors and what to do when they are readable. Nothing but the standard library."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable


class Loop:
    """Level-triggered. Forget a descriptor before you close it: its number may be another's the next moment."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}

    def watch(self, fd: int, handler: Callable[[], None]) -> None:
        if fd not in self._handlers:
            self._epoll.register(fd, select.EPOLLIN)
        self._handlers[fd] = handler

    def forget(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(fd)

    def turn(self, timeout_s: float) -> None:
        """Wait for something to be readable, and handle it."""
        for fd, _events in self._epoll.poll(timeout_s):
            if handler := self._handlers.get(fd):
                handler()
