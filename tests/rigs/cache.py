"""A whole cache in one process: owner, fetchers and a worker's reader on a real folder, with crashes and reboots."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from stoker.cache.accounts import AccountPolicy
from stoker.cache.amount import Amount
from stoker.cache.credit import Credit, Grant
from stoker.cache.jobs import EvictJob, Job
from stoker.cache.layout import PAGE, object_id, object_path, page_count
from stoker.cache.ledger import Limits
from stoker.cache.owner import CacheOwner
from stoker.cache.presence import PresenceTable, create_table
from stoker.cache.reader import BadPage, CacheReader
from stoker.cache.shares import Why
from stoker.cache.tier import TierConfig
from stoker.cache.writer import CacheWriter

OWNER = "team/data"
LEAST_BYTES = 1 << 20


class Thing:
    """An object version with bytes of its own: no two pages of any two things are equal."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size
        self.oid = object_id("s3://store/bucket", name.encode(), f"etag-{name}", size)
        self.pages = page_count(size)
        self.data = hashlib.shake_128(f"{name}:{size}".encode()).digest(size)

    def __repr__(self) -> str:
        return f"Thing({self.name!r}, {self.size})"

    def page(self, number: int) -> memoryview:
        return memoryview(self.data)[number * PAGE : (number + 1) * PAGE]

    def span(self, first: int, last: int) -> memoryview:
        return memoryview(self.data)[first * PAGE : min(last * PAGE, self.size)]


class Clock:
    """A clock that only tests move."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class CacheRig:
    """`fetchers` share one owner. Credit is asked for directly; a refusal recalls, evicts and asks once more."""

    def __init__(self, roots: Sequence[str], limits: Limits, fetchers: int = 1, slots: int = 64) -> None:
        self.configs = [TierConfig(root, limits) for root in roots]
        self.clock, self.events = Clock(), []
        self.boot = 1
        self.mark = 0
        self.live: set[str] = set()
        self.policies = {OWNER: AccountPolicy()}
        self.why: Counter[Why] = Counter()
        self.slots = slots
        self.fds = [create_table(slots) for _ in range(fetchers)]
        self.tables = [PresenceTable(fd, slots) for fd in self.fds]
        self.writers: list[CacheWriter | None] = [None] * fetchers
        self.start()

    @property
    def boot_id(self) -> bytes:
        return self.boot.to_bytes(16, "big")

    # Starting and ending

    def start(self) -> None:
        self.open_owner()
        for number in range(len(self.writers)):
            self.open_writer(number)
        self.reader = self.new_reader()

    def open_owner(self) -> None:
        self.owner = CacheOwner.open(
            self.configs,
            self.tables,
            self.boot_id,
            on_event=lambda *event: self.events.append(event),
            clock=self.clock,
            wall=self.clock,
        )
        for name, policy in self.policies.items():
            self.owner.register(name, policy)
        for number, writer in enumerate(self.writers):
            if writer is not None:
                self.owner.adopt(number, writer.outstanding())
                writer.undoom_all()
            else:
                self.do(self.owner.drain_dead(number))
                self.owner.buried(number)
        self.owner.recover()
        self.do(self.owner.drain())  # what was indexed and not settled counts twice until then

    def know(self, policies: Mapping[str, AccountPolicy]) -> None:
        """DataSets and what they may hold, now and after each restart."""
        self.policies.update(policies)
        for name, policy in policies.items():
            self.owner.register(name, policy)

    def open_writer(self, number: int) -> None:
        async def ask(tier: int, account: int, nbytes: int, inodes: int, asker: int) -> Grant:
            grant = self.owner.grant(number, tier, account, nbytes, inodes, asker)
            if grant.bytes >= min(nbytes, LEAST_BYTES) and grant.inodes >= min(inodes, 2):
                return grant
            self.make_room(number, tier, account)
            more = self.owner.grant(number, tier, account, nbytes - grant.bytes, inodes - grant.inodes, asker)
            writer = self.writers[number]
            assert writer is not None
            writer.credit.add((tier, account), grant)
            return more

        self.tables[number].clear()
        credit = Credit(ask, self.clock)
        self.writers[number] = CacheWriter(
            self.owner.roots,
            self.tables[number],
            self.boot_id,
            credit,
            on_event=lambda *event: self.events.append(event),
            clock=self.clock,
        )

    def new_reader(self) -> CacheReader:
        return CacheReader(self.owner.roots, self.tables, self.boot_id, clock=self.clock)

    def kill_owner(self) -> None:
        """As SIGKILL does: nothing is written, descriptors close."""
        for tier in self.owner.tiers:
            tier.let_go()

    def kill_writer(self, number: int) -> None:
        writer = self.writers[number]
        assert writer is not None
        writer.close()
        self.writers[number] = None

    def replace_writer(self, number: int) -> None:
        self.kill_writer(number)
        self.do(self.owner.drain_dead(number))
        self.owner.buried(number)
        self.open_writer(number)

    def stop(self) -> None:
        """Everything ends in order."""
        self.reader.close()
        for number, writer in enumerate(self.writers):
            if writer is not None:
                self.kill_writer(number)
                self.do(self.owner.drain_dead(number))
                self.owner.buried(number)
        self.owner.close()

    def power_off(self) -> None:
        """Everything ends at once, and the tables are lost."""
        self.reader.close()
        for number, writer in enumerate(self.writers):
            if writer is not None:
                self.kill_writer(number)
        self.kill_owner()
        self.free_tables()
        self.fds = [create_table(self.slots) for _ in self.fds]
        self.tables = [PresenceTable(fd, self.slots) for fd in self.fds]
        self.boot += 1

    def free_tables(self) -> None:
        for table, fd in zip(self.tables, self.fds, strict=True):
            table.close()
            os.close(fd)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.stop()
        self.free_tables()

    # Working

    def writer_of(self, thing: Thing) -> CacheWriter:
        writer = self.writers[int.from_bytes(thing.oid[:4], "big") % len(self.writers)]
        assert writer is not None
        return writer

    def do(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            job.run()
            job.settle()
            for gone in job.gone:
                self.reader.forget(gone.oid, gone.incarnation)
            self.owner.release(job)

    def commit(self) -> None:
        self.do(self.owner.drain())
        for writer in self.writers:
            if writer is not None:
                writer.collect()

    def make_room(self, fetcher: int, tier: int, account: int) -> None:
        """What the daemon does when it had to refuse credit."""
        for (other, where), accounts in self.owner.recall(fetcher, tier, account).items():
            writer = self.writers[other]
            for whose in accounts if writer is not None else ():
                self.owner.returned(other, where, whose, *writer.credit.give_back((where, whose)))
        self.evict_as_needed()

    def evict_as_needed(self) -> None:
        for job in self.owner.plan_eviction(live=self.live):
            busy = {oid for writer in self.writers if writer is not None for oid in writer.doom(job.oids)}
            wanted = list(job.oids)
            job.oids = [oid for oid in wanted if oid not in busy]
            self.do([job])
            self.why.update({why: objects for why, (objects, _) in job.evicted().items()})
            for writer in self.writers:
                if writer is not None:
                    writer.evicted(wanted)

    def evict(self, thing: Thing) -> None:
        """Take one object out of the cache."""
        job = EvictJob(self.owner.tiers[self.owner.tier_of(thing.oid)], self.owner._common)
        job.add(thing.oid, Why.Lru)
        self.do([job])

    def pin(self, owner: str, things: Sequence[Thing]) -> None:
        """These are all that a DataSet pins, from now on."""
        self.mark += 1
        account = self.owner.register(owner)
        self.do(self.owner.pins.jobs(account, self.mark, [(thing.oid, thing.size) for thing in things]))
        self.do(self.owner.pins.stale(account, self.mark))

    def unpin(self, owner: str) -> None:
        """A DataSet pins nothing any more."""
        self.do(self.owner.pins.stale(self.owner.register(owner), 0))

    async def fill(self, thing: Thing, first: int, last: int, bad: bool = False, owner: str = OWNER) -> bool:
        """What a fetcher does for a request. False: it could not be stored."""
        fill = self.writer_of(thing).begin(thing.oid, thing.size, owner)
        if fill is None:
            return False
        try:
            if bad:
                fill.drop(first, last)
            for start, stop in fill.missing(first, last):
                if not await fill.reserve(start, stop):
                    return False
                fill.write(start, thing.span(start, stop))
            return True
        except OSError:
            return False
        finally:
            fill.close()

    async def load(self, thing: Thing, owner: str = OWNER) -> bool:
        return await self.fill(thing, 0, thing.pages, owner=owner)

    def read(self, thing: Thing, first: int = 0, last: int | None = None, reader: CacheReader | None = None) -> bool:
        """Whether the pages are cached. Asserts that what the cache gives is right; BadPage is the caller's."""
        reader = reader or self.reader
        last = thing.pages if last is None else last
        hit = reader.find(thing.oid, thing.size, first, last)
        if hit is None:
            return False
        got = reader.read(hit, thing.oid, thing.size, first * PAGE, (last - first) * PAGE)
        assert got == thing.span(first, last), f"wrong bytes of {thing.name} [{first}, {last})"
        return True

    async def read_as_worker(self, thing: Thing, first: int, last: int) -> bool:
        """Find, else ask the fetcher, and again; a bad page is fetched again. Whether the cache answered."""
        for _ in range(3):
            try:
                if self.read(thing, first, last):
                    return True
                bad = False
            except BadPage as page:
                first_bad, last_bad, bad = page.first, page.last, True
            span = (first_bad, last_bad) if bad else (first, last)
            if not await self.fill(thing, *span, bad=bad):
                return False
        return False

    # Looking at the books and the disk

    def told(self, number: int) -> dict[tuple[int, int], Amount]:
        """What a fetcher would tell a new owner that it holds."""
        writer = self.writers[number]
        return writer.outstanding() if writer is not None else {}

    def kept(self, number: int) -> dict[tuple[int, int], Amount]:
        """What the owner has in its books of a fetcher."""
        return {
            (tier.number, account): amount
            for tier in self.owner.tiers
            for (fetcher, account), amount in tier.ledger.outstanding.items()
            if fetcher == number
        }

    def path(self, thing: Thing) -> str | None:
        """The file that the index names."""
        tier = self.owner.tiers[self.owner.tier_of(thing.oid)]
        assert tier.index is not None
        with tier.index.read() as txn:
            record = txn.object(thing.oid)
        return object_path(tier.root, thing.oid, record.incarnation) if record is not None else None

    def disk_use(self, tier: int = 0) -> tuple[int, int]:
        """(bytes, inodes) that a scan of the folder finds."""
        nbytes = inodes = 0
        root = self.configs[tier].path
        for folder, _, files in os.walk(root):
            for path in [folder, *(os.path.join(folder, name) for name in files)]:
                with contextlib.suppress(FileNotFoundError):
                    nbytes += os.lstat(path).st_blocks * 512
                    inodes += 1
        return nbytes, inodes


def things(name: str, count: int, pages: int = 16) -> list[Thing]:
    return [Thing(f"{name}-{number}", pages * PAGE) for number in range(count)]


async def load(rig: CacheRig, some: Iterable[Thing], owner: str) -> int:
    """How many could be stored."""
    stored = 0
    for thing in some:
        stored += await rig.load(thing, owner)
        rig.clock.now += 1
        rig.commit()
    return stored


def cached(rig: CacheRig, some: Iterable[Thing]) -> int:
    """How many are there."""
    return sum(rig.read(thing) for thing in some)
