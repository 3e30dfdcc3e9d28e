"""Which objects to evict: a pure choice among candidates, least recently used first."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from stoker.cache.ledger import Amount

MOST_VICTIMS = 2048
"""In one round, so that a round takes milliseconds and credit flows between rounds."""

LOOK_AHEAD = 4
"""Candidates looked at per victim, to find objects that no live session uses before those that one may use."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An object that could be evicted. `owners`: ids of the DataSets that use it."""

    oid: bytes
    epoch: int
    disk_bytes: int
    owners: tuple[int, ...] = ()


def choose(
    candidates: Iterable[Candidate], needed: Amount, in_use: Collection[bytes], live: Collection[int]
) -> list[bytes]:
    """The victims that free `needed`, or as much of it as may be freed in one round.

    `candidates` come least recently used first. Never one `in_use` (open for passthrough, being filled). Objects of no
    `live` DataSet go first: the kernel hides warm reads from us, so those of a live one may be hotter than they look.
    """
    if not needed.bytes and not needed.inodes:
        return []
    idle: list[Candidate] = []
    live_ones: list[Candidate] = []
    freed = 0
    for looked, candidate in enumerate(candidates, 1):
        if candidate.oid not in in_use:
            is_live = any(owner in live for owner in candidate.owners)
            (live_ones if is_live else idle).append(candidate)
            freed += 0 if is_live else candidate.disk_bytes
        enough = freed >= needed.bytes and len(idle) >= needed.inodes
        if enough or len(idle) >= MOST_VICTIMS or looked >= MOST_VICTIMS * LOOK_AHEAD:
            break
    return _until_enough(idle + live_ones, needed)


def _until_enough(candidates: list[Candidate], needed: Amount) -> list[bytes]:
    victims: list[bytes] = []
    freed = 0
    for candidate in candidates[:MOST_VICTIMS]:
        if freed >= needed.bytes and len(victims) >= needed.inodes:
            break
        victims.append(candidate.oid)
        freed += candidate.disk_bytes
    return victims
