"""The owner of the cache: the only writer of indexes, the giver of credit, the chooser of victims. In the node daemon.

No sockets and no tasks in it: the daemon wires it. Methods run in the daemon's loop; what touches the disk for long is
a job (`stoker.cache.jobs`): `run` it in the one index thread, then `settle` it in the loop, one job at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import lmdb

from stoker.api.reasons import Reason
from stoker.cache.accounts import AccountPolicy, Accounts
from stoker.cache.amount import NOTHING, Amount
from stoker.cache.credit import Grant, Place
from stoker.cache.drain import take_work
from stoker.cache.evict import Evictions
from stoker.cache.jobs import CommitJob, Common, EvictJob, Job, ReopenJob, SweepJob
from stoker.cache.layout import PAGE, owner_id, tier_of
from stoker.cache.ledger import COMMON, HEIR
from stoker.cache.pins import Pins
from stoker.cache.presence import PresenceTable
from stoker.cache.record import OwnerRecord
from stoker.cache.tier import EventSink, Tier, TierConfig, open_tier
from stoker.cache.usage import TierUsage, usage_of
from stoker.cache.verify import VerifyJob, first_key


class CacheOwner:
    """`tables`: one per fetcher, in order. `on_event(tier, reason, message)` is told of failing tiers."""

    def __init__(self, tiers: Sequence[Tier], tables: Sequence[PresenceTable], boot: bytes) -> None:
        self.tiers = tuple(tiers)
        self._tables = tuple(tables)
        self._seeds = tuple(tier.seed for tier in tiers)
        self._names: dict[int, str] = {}
        self._common = Common(boot, self._names, self._uncommitted)
        self.accounts = Accounts(self.tiers)
        self.evictions = Evictions(self.tiers, self.accounts, self._common)
        self.pins = Pins(self.tiers, self.accounts, self._common)
        self._folders_seen = [self._folders_now(table) for table in tables]
        self.bad_pages = 0
        """Of earlier boots, found to be wrong and dropped."""
        self.lost_bytes = 0
        """What had been cached and was not there, or wrong, when files and indexes were compared."""

    @classmethod
    def open(
        cls,
        tiers: Sequence[TierConfig],
        tables: Sequence[PresenceTable],
        boot: bytes,
        *,
        on_event: EventSink = lambda *_: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        seeds: Sequence[bytes] = (),
    ) -> CacheOwner:
        """Open all tiers. Raises StokerError when a folder is foreign, read-only or locked; a full disk opens.

        `seeds`: of tiers that processes of this node use already: all of them open, whatever state their disks are in.
        """
        opened: list[Tier] = []
        try:
            for number, config in enumerate(tiers):
                seed = seeds[number] if seeds else None
                opened.append(open_tier(number, config, on_event, clock, wall, seed))
        except BaseException:
            for tier in opened:
                tier.close()
            raise
        return cls(opened, tables, boot)

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders, as workers and fetchers are told."""
        return tuple(tier.root for tier in self.tiers)

    @property
    def seeds(self) -> tuple[bytes, ...]:
        """What places objects on the tiers, as workers and fetchers are told."""
        return self._seeds

    def tier_of(self, oid: bytes) -> int:
        """Which tier holds an object."""
        return tier_of(oid, self._seeds)

    # Credit

    def grant(self, fetcher: int, tier: int, account: int, nbytes: int, inodes: int, asker: int = COMMON) -> Grant:
        """Answer `credit`. When it is less than asked for, `recall` from the others and plan an eviction."""
        wanted, room = Amount(nbytes, inodes), self.accounts.room(account)
        if wanted.smaller(room) != wanted:
            self.evictions.at_limit(account)
        return self.tiers[tier].grant(fetcher, account, wanted, room, asker or account)

    def recall(self, fetcher: int, tier: int, account: int) -> dict[tuple[int, int], list[int]]:
        """By (fetcher, tier): the accounts whose unspent credit stands in the way of a wish. Ask for it back."""
        found: dict[tuple[int, int], list[int]] = {}
        for other in self.tiers:
            for holder, whose in other.ledger.outstanding:
                mine = holder == fetcher and whose == account
                if holder != HEIR and whose != COMMON and not mine and (other.number == tier or whose == account):
                    found.setdefault((holder, other.number), []).append(whose)
        return found

    def returned(self, fetcher: int, tier: int, account: int, nbytes: int, inodes: int) -> None:
        """A fetcher gave credit back."""
        self.tiers[tier].ledger.settle(fetcher, account, Amount(nbytes, inodes))

    def adopt(self, fetcher: int, outstanding: Mapping[Place, Amount]) -> None:
        """A living fetcher told a new owner what it holds (`CacheWriter.outstanding`). Before the first `drain`."""
        for (tier, account), amount in outstanding.items():
            if tier < len(self.tiers):
                self.tiers[tier].ledger.outstanding[fetcher, account] = amount
        self._folders_seen[fetcher] = self._folders_now(self._tables[fetcher])

    # Health

    def fault(self, fetcher: int, tier: int, reason: Reason, message: str) -> None:
        """The disk of a tier refused a fetcher."""
        self.tiers[tier].health.bad(fetcher, reason, message)

    def stored(self, fetcher: int, tier: int) -> None:
        """A fetcher stored something, the first time or after a fault."""
        self.tiers[tier].health.good(fetcher)

    def reopen(self) -> list[ReopenJob]:
        """Now and then: jobs that open lost tiers anew; `sweep` each that `opened`. Faults that are over are told."""
        for tier in self.tiers:
            tier.settle()
        return [ReopenJob(tier, self._common) for tier in self.tiers if tier.lost]

    # Commit

    def register(self, data_set: str, policy: AccountPolicy | None = None) -> int:
        """Make a DataSet known, or change what it may hold. Returns its account."""
        number = owner_id(data_set)
        self._names[number] = data_set
        if policy is not None or not self.accounts.known(number):
            self.accounts.put(number, policy or AccountPolicy())
        return number

    def name_of(self, account: int) -> str:
        """The DataSet behind a number; the number itself when nobody has told."""
        return self._names.get(account, f"{account:016x}")

    def forget(self, data_set: str) -> None:
        """A DataSet is not known any more: what it holds goes first."""
        self.accounts.forget(owner_id(data_set))

    def touch(self, oids: Iterable[bytes], data_set: str = "") -> None:
        """These objects were read; kept until the next commit."""
        owner = owner_id(data_set) if data_set else None
        for oid in oids:
            tier = self.tiers[self.tier_of(oid)]
            tier.uses[(oid, owner)] = int(tier.wall())

    def drain(self, fetchers: Iterable[int] | None = None) -> list[Job]:
        """One job per tier with anything new; of all fetchers, or only of these (those that said hello). Settle them
        all before the next drain."""
        return self._drain(range(len(self._tables)) if fetchers is None else fetchers, dead=False)

    def drain_dead(self, fetcher: int) -> list[Job]:
        """The jobs that save what a dead fetcher left. When all are settled call `buried`; then a new one may start."""
        return self._drain([fetcher], dead=True)

    def buried(self, fetcher: int) -> None:
        """What a dead fetcher left is indexed; the rest of its credit is void."""
        for tier in self.tiers:
            tier.ledger.void(fetcher)

    def commit(self) -> list[Job]:
        """Drain, run and settle, all here and now. For tests, tools and the last commit of a stop."""
        return self._do(self.drain())

    # Eviction

    def plan_eviction(
        self, in_use: Collection[bytes] = frozenset(), live: Collection[str] = frozenset()
    ) -> list[EvictJob]:
        """Per tier that has to free something, a job with the victims of one round (at most 2,048).

        `in_use` are never chosen (open for passthrough). Ask the fetchers which are busy, take those out of `job.oids`,
        run and settle it, tell fetchers and workers of `job.gone`, and `release` it when all workers have answered.
        """
        owners = {owner_id(name) for name in live}
        jobs = (self.evictions.plan(tier, in_use, owners) for tier in self.tiers)
        return [job for job in jobs if job is not None]

    def release(self, job: Job) -> None:
        """No process holds the files of `job.gone` any more: their room is free."""
        for gone in job.gone:
            job.tier.ledger.freed(gone.payer, Amount(gone.disk_bytes, 1))

    # Start and background

    def sweep(self, only: Tier | None = None) -> Iterator[Job]:
        """The jobs that make files and indexes agree, one folder each. No credit of an unclean tier before the end.

        Take what dead fetchers left (`drain_dead`) first."""
        for tier in self.tiers if only is None else (only,):
            for prefix in range(256):
                job = SweepJob(tier, self._common, prefix=prefix)
                yield job
                self.lost_bytes += job.lost_bytes

    def recover(self) -> None:
        """The whole sweep, here and now. For tests and small caches."""
        self._do(self.sweep())

    def verify(self) -> Iterator[VerifyJob]:
        """The jobs of one pass over what earlier boots wrote. Run and settle each before you take the next."""
        for tier in self.tiers:
            start: bytes | None = first_key()
            while start is not None:
                job = VerifyJob(tier, self._common, start=start)
                yield job
                self.bad_pages += job.bad_pages
                self.lost_bytes += job.bad_pages * PAGE
                start = job.next_start

    # Reports

    def usage(self) -> list[TierUsage]:
        """What each tier holds, everything counted."""
        return [usage_of(tier) for tier in self.tiers]

    def usage_by_owner(self) -> Mapping[str, Amount]:
        """What each DataSet holds; an object of several counts for each of them."""
        sums: dict[str, Amount] = {}
        for (name, _tier), amount in self.usage_by_owner_and_tier().items():
            sums[name] = sums.get(name, Amount()) + amount
        return sums

    def usage_by_owner_and_tier(self) -> dict[tuple[str, int], Amount]:
        """The same for each tier."""
        held = ((t.number, owner, record) for t in self.tiers for owner, record in self._owners_of(t).items())
        return {
            (self._names.get(owner, record.name) or f"{owner:016x}", tier): Amount(record.disk_bytes, record.inodes)
            for tier, owner, record in held
        }

    def pinned_by_owner_and_tier(self) -> dict[tuple[str, int], Amount]:
        """What each DataSet pins of each tier, when all of it is cached."""
        books = ((tier.number, account, p) for tier in self.tiers for account, p in tier.ledger.pins.by.items())
        return {(self.name_of(account), tier): p.whole for tier, account, p in books if p.whole != NOTHING}

    def slots(self) -> tuple[int, int]:
        """How many slots of the presence tables hold something, and how many there are."""
        return sum(len(table.occupied()) for table in self._tables), sum(table.slots for table in self._tables)

    def counts(self, objects: Iterable[tuple[bytes, int]]) -> tuple[int, int]:
        """(files complete, bytes present) of (object id, size) pairs, each once, as of the last commit; 1 us each."""
        files = present = 0
        wanted: list[list[tuple[bytes, int]]] = [[] for _ in self.tiers]
        for oid, size in objects:
            if size and self.tiers:
                wanted[self.tier_of(oid)].append((oid, size))
            else:
                files += size == 0
        for tier, pairs in zip(self.tiers, wanted, strict=True):
            if tier.index is None or not pairs:
                continue
            with suppress(lmdb.Error, OSError), tier.index.read() as txn:
                for oid, size in pairs:
                    record = txn.object(oid)
                    held = min(record.present_bytes, size) if record is not None else 0
                    present += held
                    files += held == size
        return files, present

    def forget_dead_readers(self) -> None:
        """After the death of a worker or fetcher."""
        for tier in self.tiers:
            if tier.index is not None:
                tier.index.forget_dead_readers()

    def close(self) -> None:
        """A clean stop: call it after the last commit."""
        for tier in self.tiers:
            tier.close()

    # Inside

    @staticmethod
    def _do(jobs: Iterable[Job]) -> list[Job]:
        done = []
        for job in jobs:
            job.run()
            job.settle()
            done.append(job)
        return done

    def _drain(self, fetchers: Iterable[int], dead: bool) -> list[Job]:
        numbers = list(fetchers)
        works = [work for fetcher in numbers for work in take_work(self._tables[fetcher], fetcher, dead)]
        jobs: list[Job] = []
        for number, tier in enumerate(self.tiers):
            mine = [work for work in works if work.snapshot.tier == number]
            made = self._folders_made(number)
            if mine or made or tier.uses or dead:
                uses, tier.uses = tier.uses, {}
                jobs.append(
                    CommitJob(
                        tier,
                        self._common,
                        works=mine,
                        uses=uses,
                        tables=self._tables,
                        new_folders=made,
                        folders_seen=self._folders_seen,
                        dead=dead,
                    )
                )
        return jobs

    def _folders_now(self, table: PresenceTable) -> list[int]:
        return [table.folders_made(tier) for tier in range(len(self.tiers))]

    def _folders_made(self, tier: int) -> dict[int, int]:
        made = {}
        for fetcher, table in enumerate(self._tables):
            now = table.folders_made(tier)
            if now != self._folders_seen[fetcher][tier]:
                made[fetcher] = now
        return made

    def _uncommitted(self) -> set[tuple[bytes, int]]:
        """What the tables hold. In the index thread: it reads the tables and changes nothing."""
        slots = (table.snapshot(slot, dead=True) for table in self._tables for slot in table.occupied())
        return {(snap.oid, snap.incarnation) for snap in slots if snap is not None}

    @staticmethod
    def _owners_of(tier: Tier) -> dict[int, OwnerRecord]:
        if tier.index is None:
            return {}
        with tier.index.read() as txn:
            return txn.all_owners()
