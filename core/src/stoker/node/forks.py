"""The supervisor's line to the template: start it, ask it for children, start it again when it is gone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from stoker.ipc.channel import Channel, ChannelClosedError
from stoker.node.loop import Loop

_RESTART_S = 0.2  # one that cannot start is tried again five times a second


class Template:
    """`on_forked(role, index, pidfd)` hears of each child; `on_lost` of the end of the template.

    Forks that were asked for and not confirmed before the end may have happened: the children's locks tell.
    """

    def __init__(self, loop: Loop, on_forked: Callable[[str, int, int], None], on_lost: Callable[[], None]) -> None:
        self._loop = loop
        self._on_forked = on_forked
        self._on_lost = on_lost
        self._channel: Channel | None = None
        self._due = 0.0

    @property
    def running(self) -> bool:
        return self._channel is not None

    def be_running(self) -> None:
        """Started before it is needed: a fork after a crash must not wait for the imports."""
        if self._channel is None and time.monotonic() >= self._due:
            self._start()

    def fork(self, role: str, index: int, config: dict[str, Any], channel: Channel) -> bool:
        """Ask for a child that gets this end of a channel; False when there is no template now."""
        if self._channel is None:
            return False
        fd = channel.detach()
        try:
            self._channel.send({"op": "fork", "role": role, "index": index, "config": config}, [fd])
        except ChannelClosedError:
            self._lost()
            return False
        finally:
            os.close(fd)
        return True

    def close(self) -> None:
        """It ends by itself when the channel does."""
        if self._channel is not None:
            self._loop.forget(self._channel.fileno())
            self._channel.close()
            self._channel = None

    def _start(self) -> None:
        ours, theirs = Channel.pair()
        fd = theirs.detach()
        arguments = [sys.executable, "-m", "stoker.node.template", str(fd)]
        process = subprocess.Popen(arguments, pass_fds=[fd], stdin=subprocess.DEVNULL)
        os.close(fd)
        self._channel = ours
        self._loop.watch(ours.fileno(), lambda: self._on_readable(ours))
        pidfd = os.pidfd_open(process.pid)
        self._loop.watch(pidfd, lambda: self._reap(process, pidfd))

    def _reap(self, process: subprocess.Popen[bytes], pidfd: int) -> None:
        process.wait()
        self._loop.forget(pidfd)
        os.close(pidfd)

    def _on_readable(self, channel: Channel) -> None:
        try:
            while (item := channel.recv()) is not None:
                message, fds = item
                self._on_forked(message["role"], message["index"], fds[0])
        except ChannelClosedError:
            self._lost()

    def _lost(self) -> None:
        if self._channel is not None:
            self.close()
            self._due = time.monotonic() + _RESTART_S
            self._on_lost()
