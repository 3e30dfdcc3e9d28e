"""Wires the owner of the cache to the other processes: credit for fetchers, commits, evictions, checks after a boot.

The index is written by one thread; books and tables are touched by the loop only (docs/design/cache.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import structlog

from stoker.api.dataset import DataSet
from stoker.api.reasons import Reason
from stoker.cache.amount import Amount
from stoker.cache.boot import current_boot
from stoker.cache.credit import from_rows
from stoker.cache.jobs import Job
from stoker.cache.layout import PAGE, fetcher_of
from stoker.cache.owner import CacheOwner
from stoker.cache.presence import PresenceTable, create_table
from stoker.cache.tier import Tier
from stoker.fetch.files import file_of
from stoker.fetch.session import SessionSpec
from stoker.ipc.channel import AsyncChannel
from stoker.manifest.format import ROOT
from stoker.node.control import Control
from stoker.node.datasets import DataSets, policy_of
from stoker.node.eviction import EvictionRounds
from stoker.node.keeper import Keeper
from stoker.node.pins import Pins
from stoker.node.sessions import Session, Sessions
from stoker.node.status import Cached
from stoker.node.store import Entry, Share
from stoker.node.tiers import tier_configs

log = structlog.get_logger("stoker.cache")

_COMMIT_S = 0.5  # what a power loss can lose of the index; also how long evicted room waits
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
        self._control = Control(config["run_dir"], self)
        self._sessions: Sessions | None = None
        self._told: set[int] = set()  # fetchers that said what credit they hold
        self._all_told = asyncio.Event()
        self._checked = False
        self.data_sets = DataSets(config["state_dir"])
        for data_set in self.data_sets.load():
            owner.register(data_set.full_name, policy_of(data_set))
        self.pins = Pins(config["state_dir"], owner, self._run)
        self.pins.load()
        self.eviction = EvictionRounds(owner, keeper, self._control, self._fetchers, self._run)
        self.on_bad_pages: Callable[[int], None] = lambda _: None
        self.on_changed: Callable[[str, str, str], None] = lambda *_: None
        """Hears of an object that is not what was listed: session, path, and what was found."""
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
            shares = (Share("worker", tuple(fds)), Share("s3", tuple(fds)), Share("fetcher", ("presence.%d",)))
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

    def data_set_known(self, data_set: DataSet) -> None:
        """A DataSet is served here, or what it may hold was changed: it counts from the next grant and eviction on.

        Raises StokerError PinsDoNotFit for limits below what it pins."""
        self.pins.check_limits(data_set)
        self.data_sets.put(data_set)
        self._owner.register(data_set.full_name, policy_of(data_set))
        self._wake.set()

    async def forget_data_set(self, name: str) -> None:
        """A DataSet is not served here any more: it pins nothing, and what it holds goes first."""
        self.data_sets.remove(name)
        self._owner.forget(name)
        await self.pins.forget(name)
        self._wake.set()

    def held_by_data_sets(self) -> dict[str, Amount]:
        """What each holds; an object of several counts for each of them."""
        return dict(self._owner.usage_by_owner())

    def session_added(self, spec: SessionSpec) -> None:
        self._control.tell_fetchers({"op": "session", "spec": spec.to_json()})

    def session_ended(self, spec: SessionSpec) -> None:
        self._counted.pop(spec.id, None)
        self.eviction.session_ended(spec.id)
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

    async def let_go(self, oids: Sequence[bytes], data_set: str) -> list[bytes]:
        """Free what a DataSet needs no more; those that are being filled at this moment stay, and are given back."""
        await self._commit()
        return await self.eviction.let_go(oids, data_set, self._sessions.all() if self._sessions is not None else [])

    def when_s3_left(self, key: str, call: Callable[[], None]) -> None:
        """Call when no answer of the S3 endpoint is made of a session that newer ones have replaced."""
        self._control.tell_s3_leave(key, call)

    def tiers(self) -> list[dict[str, Any]]:
        """For status. What fetchers were promised is not shown as used: most of it is never put on disk."""
        return [
            {
                "path": tier.path,
                "limitBytes": tier.limit_bytes,
                "usedBytes": tier.used_bytes - tier.granted.bytes,
                "limitInodes": tier.limit_inodes,
                "usedInodes": tier.used_inodes - tier.granted.inodes,
                "pinnedBytes": tier.pinned.bytes,
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

    async def fetcher_hello(self, index: int, channel: AsyncChannel, hello: dict[str, Any]) -> None:
        """A fetcher came: a new one after what its predecessor left is saved, or one that outlived us."""
        if hello["alive"]:
            self._owner.adopt(index, from_rows(hello["credit"]))
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
        tier, account = int(message["tier"]), int(message["account"])
        wanted = int(message["bytes"]), int(message["inodes"])
        if len(self._told) < self._fetchers:
            given = None  # a fetcher that outlived the last daemon has not said yet what it holds
        else:
            given = self._owner.grant(index, tier, account, *wanted, int(message["asker"]))
            if (given.bytes, given.inodes) != wanted:
                for (other, where), accounts in self._owner.recall(index, tier, account).items():
                    self._control.tell_fetcher(other, {"op": "recall", "tier": where, "accounts": accounts})
                self._wake.set()
        return {
            "op": "granted",
            "seq": message["seq"],
            "bytes": given.bytes if given else 0,
            "inodes": given.inodes if given else 0,
            "incarnations": [given.first_incarnation, given.incarnations] if given else [0, 0],
        }

    def returned(self, index: int, message: dict[str, Any]) -> None:
        numbers = (int(message[name]) for name in ("tier", "account", "bytes", "inodes"))
        self._owner.returned(index, *numbers)

    def touched(self, by_data_set: dict[str, list[str]]) -> None:
        for data_set, oids in by_data_set.items():
            self._owner.touch(map(bytes.fromhex, oids), data_set)

    def table_full(self) -> None:
        self._wake.set()

    def fault(self, index: int, message: dict[str, Any]) -> None:
        self._owner.fault(index, int(message["tier"]), Reason(message["reason"]), message["message"])

    def stored(self, index: int, message: dict[str, Any]) -> None:
        self._owner.stored(index, int(message["tier"]))

    def event(self, message: dict[str, Any]) -> None:
        _event(message.get("reason", ""), message.get("message", ""))

    def source_changed(self, message: dict[str, Any]) -> None:
        self.on_changed(message["session"], message["path"], message["message"])

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
            if await self.eviction.round(self._sessions.all() if self._sessions is not None else []):
                self._wake.set()  # another round at once, until there is room

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
