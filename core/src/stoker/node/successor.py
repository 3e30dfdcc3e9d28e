"""Start a supervisor in the place of a dead one, and hand it everything: the daemon, or a worker when both are dead.

Only one supervisor runs: it holds the lock of its role. One that was not handed everything, because the giver died
meanwhile, ends; then another giver starts the next.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import structlog

from stoker.ipc.channel import AsyncChannel, Channel, ChannelClosedError, Message
from stoker.node.alive import living, try_role
from stoker.node.store import Entry

_HAND_OVER_S = 60.0  # an interpreter starts in a tenth of a second; on a machine without a free core it takes seconds

log = structlog.get_logger("stoker.node")


def start_supervisor(config: dict[str, Any]) -> tuple[subprocess.Popen[bytes], Channel]:
    """A new supervisor that waits at the other end of the channel for everything (`hand_over`)."""
    ours, theirs = Channel.pair()
    fd = theirs.detach()
    arguments = [sys.executable, "-m", "stoker.node.supervisor", json.dumps(config), str(fd)]
    process = subprocess.Popen(arguments, pass_fds=[fd], stdin=subprocess.DEVNULL, start_new_session=True)
    os.close(fd)
    return process, ours


def hand_over(channel: Channel | AsyncChannel, entries: dict[str, Entry], wanted: dict[str, int]) -> None:
    """Queue every entry, what is to run, and the word that this was all."""
    for entry in entries.values():
        entry.send_all(channel)
    if wanted:
        channel.send({"op": "want", "roles": wanted})
    channel.send({"op": "handed"})


class ThirdHolder:
    """What a worker keeps for the case that supervisor and daemon die in the same moment: everything they hold."""

    def __init__(self, config: dict[str, Any], entries: dict[str, Entry]) -> None:
        self._config = config
        self.entries = entries
        self._supervisor: subprocess.Popen[bytes] | None = None

    def keep(self, message: Message, fds: list[int]) -> None:
        """An entry that the supervisor sends, or sends again."""
        entry = Entry.received(message, fds)
        if (old := self.entries.get(entry.key)) is not None:
            old.close()
        self.entries[entry.key] = entry

    def kept(self) -> list[str]:
        return list(self.entries)

    def drop(self, key: str) -> None:
        if (entry := self.entries.pop(key, None)) is not None:
            entry.close()

    def revive(self) -> bool:
        """Start a supervisor if there is neither one nor a daemon that will, and no other worker is about to. Whether
        that was done."""
        if self._supervisor is not None and self._supervisor.poll() is None:
            return False
        if self._lives("daemon") or self._lives("supervisor"):
            return False
        lock = try_role(self._config["run_dir"], "revive", 0, timeout_s=0)
        if lock is None:
            return False
        log.warning("supervisor and daemon ended; starting another supervisor")
        self._supervisor, channel = start_supervisor(self._config)
        wanted = {"fetcher": int(self._config["fetchers"]), "worker": int(self._config["fuse_workers"])}
        if "s3" in self.entries:
            wanted["s3"] = int(self._config["s3_workers"])
        with contextlib.suppress(ChannelClosedError):
            hand_over(channel, self.entries, wanted)
        threading.Thread(target=_flush, args=(channel, lambda: os.close(lock)), daemon=True).start()
        return True

    def _lives(self, role: str) -> bool:
        pidfd = living(self._config["run_dir"], role, 0)
        if pidfd is not None:
            os.close(pidfd)
        return pidfd is not None


def _flush(channel: Channel, then: Callable[[], None]) -> None:
    """Until the supervisor has taken everything or is dead; reads go on meanwhile."""
    with contextlib.suppress(ChannelClosedError):
        while not channel.flush():
            channel.wait(select.POLLOUT, 1.0)
        channel.wait(select.POLLIN, _HAND_OVER_S)  # it closes its end when it has read all
    channel.close()
    then()
