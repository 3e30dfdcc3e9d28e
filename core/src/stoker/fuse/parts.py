"""What a FUSE worker is started with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
