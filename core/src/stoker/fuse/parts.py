"""What a FUSE worker is started with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from stoker.ipc.channel import Message


class Third(Protocol):
    """The third holder of everything that the supervisor keeps: this worker, beside supervisor and daemon."""

    def keep(self, message: Message, fds: list[int]) -> None:
        """The descriptors are the holder's from now on."""

    def drop(self, key: str) -> None: ...

    def kept(self) -> list[str]:
        """Of all that is kept."""

    def revive(self) -> bool:
        """Called again and again while the supervisor is away. Whether one was started."""


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """What a worker is started with: its place, the cache, and shared memory by descriptor."""

    index: int
    run_dir: str
    workers: int
    tiers: Sequence[str]
    seeds: Sequence[bytes]
    boot: bytes
    pool: int
    presence: Sequence[int]
    counters: int
    third: Third
