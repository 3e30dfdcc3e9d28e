"""Wires the owner of the cache to the other processes: credit for fetchers, commits, evictions, checks after a boot.

The index is written by one thread; books and tables are touched by the loop only (docs/design/cache.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import structlog

from stoker.api.reasons import Reason
from stoker.cache.boot import current_boot
from stoker.cache.jobs import EvictJob, Job
from stoker.cache.layout import PAGE, fetcher_of
from stoker.cache.owner import CacheOwner
from stoker.cache.presence import PresenceTable, create_table
from stoker.cache.tier import Tier
from stoker.fetch.counters import Eviction
from stoker.fetch.files import file_of
from stoker.fetch.session import SessionSpec
from stoker.fuse.opens import OpenTable
from stoker.ipc.channel import AsyncChannel
from stoker.manifest.format import ROOT
from stoker.node.control import Control
from stoker.node.keeper import Keeper
from stoker.node.sessions import Session, Sessions
from stoker.node.status import Cached
from stoker.node.store import Entry, Share
from stoker.node.tiers import tier_configs

log = structlog.get_logger("stoker.cache")

_COMMIT_S = 0.5  # what a power loss can lose of the index; also how long evicted room waits
_BUSY_ANSWER_S = 2.0  # a fetcher answers in microseconds; one that is stopped keeps its objects for this round
_COUNT_SHARE = 10  # counting a large data set may take at most a tenth of the time


@dataclass(slots=True)
class _Counted:
    """A count of a session's cached files, and when it was made and how long that took."""

    cached: Cached
    at: float
    took: float


class CacheService:
    """One life of the owner, in the daemon's loop."""

    def __init__(self, config: dict[str, Any], keeper: Keeper, owner: CacheOwner) -> None:
        self._keeper = keeper
        self._owner = owner
        self._fetchers = int(config["fetchers"])
        self._index_thread = ThreadPoolExecutor(1, thread_name_prefix="index")
        self._turn = asyncio.Lock()  # one group of jobs at a time: drained, run, settled
        self._wake = asyncio.Event()
        self._counted: dict[str, _Counted] = {}
        self._opens: dict[str, OpenTable] = {}
        self._control = Control(config["run_dir"], self)
        self._sessions: Sessions | None = None
        self._told: set[int] = set()  # fetchers that said what credit they hold
        self._all_told = asyncio.Event()
        self._checked = False
        self.on_evicted: Callable[[Eviction, int, int], None] = lambda *_: None
        self.on_bad_pages: Callable[[int], None] = lambda _: None
        self.on_pace: Callable[[int, Mapping[str, Any]], None] = lambda *_: None

    @classmethod
    async def open(cls, config: dict[str, Any], keeper: Keeper) -> CacheService:
        """Open the cache folders. Raises StokerError when one is not ours, locked or read-only."""
        fetchers = int(config["fetchers"])
        entry = keeper.entries.get("cache")
        fds = entry.fds if entry is not None else {f"presence.{j}": create_table() for j in range(fetchers)}
        tables = [PresenceTable(fds[f"presence.{j}"]) for j in range(fetchers)]
        configs = tier_configs(config)
        owner = await asyncio.to_thread(
            CacheOwner.open,
            configs,
            tables,
            current_boot(),
            on_event=lambda _tier, reason, text: _event(reason, text),
            seeds=[bytes.fromhex(seed) for seed in entry.data["seeds"]] if entry is not None else (),
        )
        if entry is None:
            data = {"tiers": list(owner.roots), "seeds": [seed.hex() for seed in owner.seeds]}
            shares = (Share("worker", tuple(fds)), Share("fetcher", ("presence.%d",)))
            await keeper.keep(Entry("cache", fds, data, shares))
        return cls(config, keeper, owner)

    async def run(self, sessions: Sessions) -> None:
        """Commit and evict for ever; make files and index agree after a start, then check what earlier boots wrote."""
        self._sessions = sessions
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._control.serve())
            tasks.create_task(self._commit_for_ever())
            tasks.create_task(self._check())

    async def close(self) -> None:
        """A clean stop: what is on disk is in the index."""
        await self._control.close()
        await self._commit()
        self._owner.close()
        self._index_thread.shutdown()

    # --- what sessions and status ask

    def session_added(self, spec: SessionSpec) -> None:
        self._owner.register(spec.data_set)
        self._control.tell_fetchers({"op": "session", "spec": spec.to_json()})

    def session_ended(self, spec: SessionSpec) -> None:
        self._counted.pop(spec.id, None)
        if (table := self._opens.pop(spec.id, None)) is not None:
            table.close()
        self._control.tell_fetchers({"op": "session-end", "id": spec.id, "slot": spec.slot})

    def fetcher_of(self, session: Session, inode: int) -> int:
        """Which fetcher an object belongs to."""
        oid = file_of(session.manifest, inode, session.spec.mount.policy).oid
        return fetcher_of(oid, self._fetchers)

    async def counts(self, session: Session) -> Cached:
        """How much of a session's generation is in cache, as of now for small ones."""
        known = self._counted.get(session.spec.id)
        if known is not None and time.monotonic() - known.at < known.took * _COUNT_SHARE:
            return known.cached
        await self._commit()
        began = time.monotonic()
        files, nbytes = await asyncio.to_thread(self._owner.counts, _objects(session))
        cached = Cached(files, nbytes)
        self._counted[session.spec.id] = _Counted(cached, time.monotonic(), time.monotonic() - began)
        return cached

    def tiers(self) -> list[dict[str, Any]]:
        """For status. What fetchers were promised is not shown as used: most of it is never put on disk."""
        return [
            {
                "path": tier.path,
                "limitBytes": tier.limit_bytes,
                "usedBytes": tier.used_bytes - tier.granted.bytes,
                "limitInodes": tier.limit_inodes,
                "usedInodes": tier.used_inodes - tier.granted.inodes,
                "state": tier.state,
                "reason": str(tier.reason or ""),
            }
            for tier in self._owner.usage()
        ]

    @property
    def owner(self) -> CacheOwner:
        return self._owner

    def absent_fetchers(self) -> list[int]:
        """Those that have no line to this daemon."""
        return sorted(set(range(self._fetchers)) - self._control.fetchers())

    def losses(self, found_by_readers: int) -> dict[str, Any]:
        """For status: whether what earlier boots wrote has been compared, and what was not there or wrong.

        `found_by_readers`: bad pages that reads met, and had fetched again."""
        return {
            "checked": self._checked,
            "badPages": self._owner.bad_pages + found_by_readers,
            "lostBytes": self._owner.lost_bytes + found_by_readers * PAGE,
        }

    # --- what the control socket hears

    async def fetcher_hello(self, index: int, channel: AsyncChannel, credit: list[list[int]]) -> None:
        """A fetcher came: a new one (no credit) after what its predecessor left is saved, or one that outlived us."""
        if credit:
            self._owner.adopt(index, [(nbytes, inodes) for nbytes, inodes in credit])
        else:
            async with self._turn:
                await self._run_in_turn(self._owner.drain_dead(index))
            self._owner.buried(index)
            self._owner.forget_dead_readers()
        self._told.add(index)
        if len(self._told) == self._fetchers:
            self._all_told.set()
        sessions = self._sessions.all() if self._sessions is not None else []
        channel.send(
            {
                "op": "welcome",
                "tiers": list(self._owner.roots),
                "seeds": [seed.hex() for seed in self._owner.seeds],
                "boot": current_boot().hex(),
                "sessions": [session.spec.to_json() for session in sessions],
            }
        )

    def grant(self, index: int, message: dict[str, Any]) -> dict[str, Any]:
        """Answer a wish for credit; a short one starts an eviction and calls back what others do not use."""
        tier, wanted = int(message["tier"]), (int(message["bytes"]), int(message["inodes"]))
        if len(self._told) < self._fetchers:
            given = None  # a fetcher that outlived the last daemon has not said yet what it holds
        else:
            given = self._owner.grant(index, tier, *wanted)
            if (given.bytes, given.inodes) != wanted:
                for other in self._owner.recall(index, tier):
                    self._control.tell_fetcher(other, {"op": "recall", "tier": tier})
                self._wake.set()
        return {
            "op": "granted",
            "seq": message["seq"],
            "bytes": given.bytes if given else 0,
            "inodes": given.inodes if given else 0,
            "incarnations": [given.first_incarnation, given.incarnations] if given else [0, 0],
        }

    def returned(self, index: int, message: dict[str, Any]) -> None:
        self._owner.returned(index, int(message["tier"]), int(message["bytes"]), int(message["inodes"]))

    def touched(self, oids: Iterable[str]) -> None:
        self._owner.touch(bytes.fromhex(oid) for oid in oids)

    def table_full(self) -> None:
        self._wake.set()

    def fault(self, index: int, message: dict[str, Any]) -> None:
        self._owner.fault(index, int(message["tier"]), Reason(message["reason"]), message["message"])

    def stored(self, index: int, message: dict[str, Any]) -> None:
        self._owner.stored(index, int(message["tier"]))

    def event(self, message: dict[str, Any]) -> None:
        _event(message.get("reason", ""), message.get("message", ""))

    def connection_gone(self, session_id: str) -> None:
        if self._sessions is not None:
            self._sessions.connection_gone(session_id)

    # --- background

    async def _commit_for_ever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), _COMMIT_S)
            self._wake.clear()
            await self._reopen()
            await self._commit()
            await self._evict()

    async def _reopen(self) -> None:
        """Tiers whose folder somebody removed or replaced begin anew."""
        for job in self._owner.reopen():
            await self._run([job])
            if job.opened:
                await self._sweep(job.tier)
                self._control.tell_fetchers({"op": "try-again", "tier": job.tier.number})

    async def _sweep(self, only: Tier | None = None) -> None:
        """Files and index made to agree."""
        for job in self._owner.sweep(only):
            await self._run([job])

    async def _commit(self) -> None:
        async with self._turn:
            await self._run_in_turn(self._owner.drain(self._told))

    async def _run(self, jobs: Iterable[Job]) -> None:
        async with self._turn:
            await self._run_in_turn(jobs)

    async def _run_in_turn(self, jobs: Iterable[Job]) -> None:
        loop = asyncio.get_running_loop()
        for job in jobs:
            await loop.run_in_executor(self._index_thread, job.run)
            job.settle()
            if job.gone:
                self._announce(job)

    def _announce(self, job: Job) -> None:
        """Files are unlinked; their room is free when no worker can have them open any more."""
        gone = [[item.oid.hex(), item.incarnation] for item in job.gone]
        self._control.tell_workers_evicted(gone, lambda: self._owner.release(job))

    async def _evict(self) -> None:
        """One round. The fetchers say what they are filling; those objects stay."""
        live = {s.spec.data_set for s in self._sessions.all()} if self._sessions is not None else set()
        for job in self._owner.plan_eviction(self._open_for_passthrough(), live):
            asked = list(job.oids)
            busy = await self._busy(job, asked)
            job.oids = [oid for oid in asked if oid not in busy]
            try:
                await self._run([job])
            finally:
                self._control.tell_fetchers({"op": "evicted", "oids": [oid.hex() for oid in asked]})
            reason = Eviction.Lru
            self.on_evicted(reason, len(job.gone), sum(gone.disk_bytes for gone in job.gone))
            log.info("evicted", objects=len(job.gone), tier=job.tier.root, reason=reason.name)

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

    def _open_for_passthrough(self) -> set[bytes]:
        """Objects whose cache files the kernel has open."""
        found: set[bytes] = set()
        for session in self._sessions.all() if self._sessions is not None else []:
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

    async def _check(self) -> None:
        """After a start: files and index made to agree, then pages of earlier boots read and compared."""
        await self._all_told.wait()
        await self._sweep()
        for verify in self._owner.verify():
            await self._run([verify])
            self.on_bad_pages(verify.bad_pages)
        self._checked = True
        if self._owner.bad_pages:
            _event(Reason.CacheCorrupt, f"{self._owner.bad_pages} pages of an earlier boot were wrong and are dropped")


def _objects(session: Session) -> Iterable[tuple[bytes, int]]:
    manifest, policy = session.manifest, session.spec.mount.policy
    for inode in range(ROOT, manifest.header.records + 1):
        if not manifest.node(inode).is_dir:
            file = file_of(manifest, inode, policy)
            yield file.oid, file.size


def _event(reason: Reason | str, text: str) -> None:
    log.warning(text, reason=str(reason))
