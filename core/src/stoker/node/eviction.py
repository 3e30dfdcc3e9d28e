"""Rounds of eviction in the daemon: the owner plans, fetchers say what is busy, the index thread does it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Sequence

import structlog

from stoker.cache.jobs import EvictJob, Job
from stoker.cache.layout import fetcher_of
from stoker.cache.owner import CacheOwner
from stoker.cache.shares import Why
from stoker.fetch.files import file_of
from stoker.fuse.opens import OpenTable
from stoker.node.control import Control
from stoker.node.keeper import Keeper
from stoker.node.sessions import Session

log = structlog.get_logger("stoker.cache")

_BUSY_ANSWER_S = 2.0  # a fetcher answers in microseconds; one that is stopped keeps its objects for this round


class EvictionRounds:
    """`run` does jobs of the owner, one group at a time; `on_evicted` is told why how many objects and bytes went."""

    def __init__(
        self,
        owner: CacheOwner,
        keeper: Keeper,
        control: Control,
        fetchers: int,
        run: Callable[[Iterable[Job]], Awaitable[None]],
    ) -> None:
        self._owner = owner
        self._keeper = keeper
        self._control = control
        self._fetchers = fetchers
        self._run = run
        self._opens: dict[str, OpenTable] = {}
        self.on_evicted: Callable[[Why, int, int], None] = lambda *_: None

    def session_ended(self, session_id: str) -> None:
        if (table := self._opens.pop(session_id, None)) is not None:
            table.close()

    async def round(self, sessions: Sequence[Session]) -> bool:
        """One round. The fetchers say what they are filling; those objects stay. Whether anything was evicted."""
        live = {session.spec.data_set for session in sessions}
        any_gone = False
        for job in self._owner.plan_eviction(self._open_for_passthrough(sessions), live):
            await self._do(job)
            any_gone = any_gone or bool(job.gone)
        return any_gone

    async def let_go(self, oids: Sequence[bytes], data_set: str, sessions: Sequence[Session]) -> list[bytes]:
        """Free objects that a DataSet needs no more. Those that are being filled stay, and are given back."""
        left: list[bytes] = []
        for job in self._owner.evictions.let_go(oids, data_set, self._open_for_passthrough(sessions)):
            left += await self._do(job)
        return left

    async def _do(self, job: EvictJob) -> list[bytes]:
        """What fetchers are filling stays; those objects."""
        asked = list(job.oids)
        busy = await self._busy(job, asked)
        job.oids = [oid for oid in asked if oid not in busy]
        try:
            await self._run([job])
        finally:
            self._control.tell_fetchers({"op": "evicted", "oids": [oid.hex() for oid in asked]})
        for why, (objects, nbytes) in job.evicted().items():
            self.on_evicted(why, objects, nbytes)
            log.info("evicted", objects=objects, bytes=nbytes, tier=job.tier.root, reason=why)
        return list(busy)

    async def _busy(self, job: EvictJob, asked: list[bytes]) -> set[bytes]:
        """Which of the objects fetchers are filling; those of a fetcher that does not answer count as busy."""
        by_fetcher: dict[int, list[bytes]] = {}
        for oid in asked:
            by_fetcher.setdefault(fetcher_of(oid, self._fetchers), []).append(oid)
        busy: set[bytes] = set()
        for index, oids in by_fetcher.items():
            question = {"op": "evict?", "tier": job.tier.number, "oids": [oid.hex() for oid in oids]}
            answer = await self._control.ask_fetcher(index, question, _BUSY_ANSWER_S)
            busy.update(oids if answer is None else map(bytes.fromhex, answer["oids"]))
        return busy

    def _open_for_passthrough(self, sessions: Sequence[Session]) -> set[bytes]:
        """Objects whose cache files the kernel has open."""
        found: set[bytes] = set()
        for session in sessions:
            if session.spec.mount.passthrough and session.mountpoint:
                inodes = self._open_table(session).passthrough_inodes()
                found.update(file_of(session.manifest, inode, session.spec.mount.policy).oid for inode in inodes)
        return found

    def _open_table(self, session: Session) -> OpenTable:
        table = self._opens.get(session.spec.id)
        if table is None:
            fd = os.dup(self._keeper.entries[session.key].fds["opens"])
            table = self._opens[session.spec.id] = OpenTable(fd)
        return table
