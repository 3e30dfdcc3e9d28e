"""Descriptors with a name and a description, kept by one process for another so that they outlive it.

Supervisor, daemon and workers each hold every entry, so that any of them can give it to the others; a fetcher is sent
the part that is its own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stoker.ipc.channel import AsyncChannel, Channel


@dataclass(frozen=True, slots=True)
class Share:
    """Who else gets an entry: a role, one index of it or all (-1), and which of its descriptors.

    `%d` in a name stands for the index of the process, so that worker 1 is sent `clone.1`.
    """

    role: str
    names: tuple[str, ...] = ()
    index: int = -1

    def matches(self, role: str, index: int) -> bool:
        return self.role == role and self.index in (-1, index)


@dataclass(frozen=True, slots=True)
class Entry:
    """One kept thing: `fds` by name, `data` that describes it (may hold credentials: memory only, never in a repr)."""

    key: str
    fds: dict[str, int] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict, repr=False)
    shares: tuple[Share, ...] = ()

    def names_for(self, role: str, index: int) -> list[str] | None:
        """Which descriptors a process gets; None when the entry is not for it. Daemon and workers get everything."""
        if role in ("daemon", "worker"):
            return list(self.fds)
        found = [share for share in self.shares if share.matches(role, index)]
        if not found:
            return None
        names = (name.replace("%d", str(index)) for share in found for name in share.names)
        return [name for name in names if name in self.fds]

    def send_all(self, channel: Channel | AsyncChannel) -> None:
        """Send the entry with every descriptor."""
        self.send(channel, list(self.fds))

    def send(self, channel: Channel | AsyncChannel, names: Sequence[str]) -> None:
        """Send the entry with the descriptors named."""
        shares = [[share.role, list(share.names), share.index] for share in self.shares]
        message = {"op": "keep", "key": self.key, "names": list(names), "data": self.data, "shares": shares}
        channel.send(message, [self.fds[name] for name in names])

    @classmethod
    def received(cls, message: dict[str, Any], fds: list[int]) -> Entry:
        """The entry that `send` sent."""
        shares = tuple(Share(role, tuple(names), index) for role, names, index in message["shares"])
        return cls(message["key"], dict(zip(message["names"], fds, strict=True)), message["data"], shares)

    def close(self) -> None:
        for fd in self.fds.values():
            os.close(fd)
