"""The daemon's side of the supervisor: what is kept there, and a new supervisor when the old one dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import structlog

from stoker.ipc.channel import AsyncChannel, Channel, ChannelClosedError
from stoker.node.alive import living
from stoker.node.store import Entry
from stoker.node.successor import hand_over, start_supervisor

_ASK_S = 1.0
_MOST_UNANSWERED = 5  # it answers in microseconds, and within a second or two while it sends to a stopped process

log = structlog.get_logger("stoker.node")


class Keeper:
    """Holds every entry as the supervisor does: whichever of the two dies is given everything again by the other."""

    def __init__(self, config: dict[str, Any], channel: Channel, entries: dict[str, Entry]) -> None:
        self._config = config
        self._first = channel
        self.entries = entries
        self._wanted: dict[str, int] = {}
        self._channel: AsyncChannel | None = None
        self._kept: dict[str, asyncio.Event] = {}
        self._unanswered: int | None = None  # questions; None before it said anything: it may take long to start
        self._supervisor: subprocess.Popen[bytes] | None = None
        self.on_replaced: Callable[[], None] = lambda: None
        self.on_orphan: Callable[[str], None] = self.drop  # what ends a session that no worker served for too long

    async def run(self) -> None:
        """Listen to the supervisor for ever; start another one when it is gone."""
        self._channel = AsyncChannel(self._first)
        self._say_wanted()
        watch = asyncio.create_task(self._watch())
        try:
            await self._listen()
        finally:
            watch.cancel()

    async def _listen(self) -> None:
        while self._channel is not None:
            try:
                message, fds = await self._channel.recv()
            except ChannelClosedError:
                await self._replace()
                continue
            for fd in fds:
                os.close(fd)
            self._unanswered = 0
            if message["op"] == "orphaned":
                self.on_orphan(message["key"])
            elif message["op"] == "kept" and (event := self._kept.pop(message["key"], None)) is not None:
                event.set()

    async def _watch(self) -> None:
        """One that lives and answers nothing any more is killed; its death is noticed as any other."""
        while True:
            await asyncio.sleep(_ASK_S)
            self._send({"op": "here?"})
            if self._unanswered is not None:
                self._unanswered += 1
            if (self._unanswered or 0) > _MOST_UNANSWERED:
                self._unanswered = None
                self._kill()

    def _kill(self) -> None:
        pidfd = living(self._config["run_dir"], "supervisor", 0)
        if pidfd is not None:
            log.error("supervisor does not answer; it is killed")
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)

    async def keep(self, entry: Entry) -> None:
        """Keep `entry` in both processes; returns when the supervisor has it."""
        self.entries[entry.key] = entry
        event = self._kept[entry.key] = asyncio.Event()
        if self._channel is not None:
            entry.send_all(self._channel)
        await event.wait()

    def drop(self, key: str) -> None:
        """Close an entry's descriptors here, there and in the workers."""
        entry = self.entries.pop(key, None)
        if entry is not None:
            self._send({"op": "drop", "key": key})
            entry.close()

    def want(self, roles: dict[str, int]) -> None:
        """How many processes of each role run beside the daemon."""
        self._wanted = roles
        self._say_wanted()

    def exit(self, code: int = 0, error: dict[str, str] | None = None) -> None:
        """End the node: the supervisor stops the others, and itself after the daemon."""
        self._send({"op": "exit", "code": code, "error": error or {}})

    def _say_wanted(self) -> None:
        if self._wanted:
            self._send({"op": "want", "roles": self._wanted})

    def _send(self, message: dict[str, Any]) -> None:
        if self._channel is not None:
            self._channel.send(message)

    async def _replace(self) -> None:
        """The supervisor died: the new one is handed every descriptor before anything else."""
        if self._supervisor is not None:
            await asyncio.to_thread(self._supervisor.wait)
        log.warning("supervisor ended; starting another")
        self._unanswered = None
        self._supervisor, channel = start_supervisor(self._config)
        self.on_replaced()
        self._channel = AsyncChannel(channel)
        hand_over(self._channel, self.entries, self._wanted)
