"""Fills, evictions, crashes and reboots in any order, against a model: never a wrong byte, never over a limit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rigs.cache import OWNER, CacheRig, Thing
from stoker.cache.accounts import AccountPolicy
from stoker.cache.amount import Amount
from stoker.cache.fill import Fill
from stoker.cache.layout import CHUNK, PAGE, owner_id
from stoker.cache.ledger import Limits
from stoker.cache.reader import BadPage

SIZES = (1, 4096, PAGE, PAGE + 1, 3 * PAGE - 5, 17 * PAGE, 70 * PAGE + 9, CHUNK + 2 * PAGE + 7)
THINGS = [Thing(f"thing-{number}", size) for number, size in enumerate(SIZES)] + [
    Thing("one", 5 * PAGE),
    Thing("other", 5 * PAGE),
]
LIMITS = st.sampled_from(
    [
        Limits(350 << 10, reserve_free=0),
        Limits(700 << 10, 16, reserve_free=0),
        Limits(3 << 20, 22, reserve_free=0, high=0.9, low=0.5),
        Limits(64 << 20, reserve_free=0),
    ]
)
POLICIES = st.sampled_from(
    [
        AccountPolicy(),
        AccountPolicy(bytes=300 << 10, priority=10),
        AccountPolicy(bytes=-(100 << 10), ttl_s=3),
        AccountPolicy(inodes=3, priority=500),
    ]
)
OTHER = "team/other"
things = st.sampled_from(THINGS)
owners = st.sampled_from([OWNER, OTHER])
spans = st.tuples(st.integers(0, 300), st.integers(1, 40))


def span_of(thing: Thing, span: tuple[int, int]) -> tuple[int, int]:
    first = span[0] % thing.pages
    return first, min(first + span[1], thing.pages)


class CacheMachine(RuleBasedStateMachine):
    @initialize(limits=LIMITS, fetchers=st.integers(1, 2), tiers=st.integers(1, 2), one=POLICIES, other=POLICIES)
    def begin(self, limits: Limits, fetchers: int, tiers: int, one: AccountPolicy, other: AccountPolicy) -> None:
        self.folder = tempfile.mkdtemp(prefix="stoker-machine-")
        self.limits = limits
        self.rig = CacheRig([f"{self.folder}/{n}" for n in range(tiers)], limits, fetchers, slots=32)
        self.rig.know({OWNER: one, OTHER: other})
        self.open_fills: list[tuple[Thing, Fill, int]] = []
        self.loop = asyncio.new_event_loop()

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.rig.close()
            self.loop.close()
            shutil.rmtree(self.folder)

    # Filling and reading

    @rule(thing=things, span=spans, owner=owners)
    def fill(self, thing: Thing, span: tuple[int, int], owner: str) -> None:
        first, last = span_of(thing, span)
        if self.loop.run_until_complete(self.rig.fill(thing, first, last, owner=owner)):
            assert self.read(thing, first, last) is not False  # a bad page is found out, not missed

    @rule(thing=things, span=spans)
    def read_cached(self, thing: Thing, span: tuple[int, int]) -> None:
        self.read(thing, *span_of(thing, span))

    @rule(thing=things, span=spans)
    def read_through(self, thing: Thing, span: tuple[int, int]) -> None:
        first, last = span_of(thing, span)
        self.loop.run_until_complete(self.rig.read_as_worker(thing, first, last))

    @rule(thing=things, owner=owners)
    def touch(self, thing: Thing, owner: str) -> None:
        self.rig.owner.touch([thing.oid], owner)

    @rule(name=owners, live=st.booleans())
    def live(self, name: str, live: bool) -> None:
        (self.rig.live.add if live else self.rig.live.discard)(name)

    @rule(thing=things, span=spans, write=st.booleans(), owner=owners)
    def leave_open(self, thing: Thing, span: tuple[int, int], write: bool, owner: str) -> None:
        first, last = span_of(thing, span)
        writer = self.rig.writer_of(thing)
        fill = writer.begin(thing.oid, thing.size, owner)
        if fill is None:
            return
        number = self.rig.writers.index(writer)
        self.open_fills.append((thing, fill, number))
        for start, stop in fill.missing(first, last):
            if self.loop.run_until_complete(fill.reserve(start, stop)) and write:
                fill.write(start, thing.span(start, stop))

    @precondition(lambda self: self.open_fills)
    @rule(which=st.integers(0, 99))
    def close_one(self, which: int) -> None:
        self.open_fills.pop(which % len(self.open_fills))[1].close()

    @rule()
    def commit(self) -> None:
        self.rig.clock.now += 1
        self.rig.commit()

    @rule()
    def run_without_settling(self) -> None:
        """The owner is killed between the commit and the news of it."""
        for job in self.rig.owner.drain():
            job.run()
        self.restart_owner()

    @rule()
    def evict(self) -> None:
        self.rig.evict_as_needed()

    # Faults

    @rule()
    def restart_owner(self) -> None:
        self.rig.kill_owner()
        self.rig.open_owner()

    @rule(which=st.integers(0, 1))
    def restart_fetcher(self, which: int) -> None:
        number = which % len(self.rig.writers)
        self.open_fills = [one for one in self.open_fills if one[2] != number]
        self.rig.replace_writer(number)

    @rule()
    def restart_in_order(self) -> None:
        self.open_fills.clear()
        self.rig.stop()
        self.rig.start()

    @rule(thing=things)
    def remove_a_file(self, thing: Thing) -> None:
        path = self.rig.path(thing)
        if path is not None and os.path.exists(path):
            os.unlink(path)

    @rule(harm=st.sampled_from(["none", "cut", "zero", "swap", "flip", "remove"]), seed=st.integers(0, 3))
    def power_cut(self, harm: str, seed: int) -> None:
        """A boot that loses what was not written: of every third file, all or some bytes are not what was stored."""
        self.rig.commit()
        self.open_fills.clear()
        self.rig.power_off()
        paths = [
            f"{folder}/{name}" for folder, _, names in os.walk(self.folder) for name in names if "objects" in folder
        ]
        if harm == "swap":
            swap(sorted(paths))
        else:
            for path in sorted(paths)[seed % 3 :: 3]:
                damage(path, harm)
        self.rig.start()
        self.check_books()
        self.read_all()

    @rule()
    def verify(self) -> None:
        self.rig.do(self.rig.owner.verify())
        self.read_all()

    # What holds

    def read(self, thing: Thing, first: int, last: int) -> bool | None:
        try:
            return self.rig.read(thing, first, last)
        except BadPage:
            return None

    def read_all(self) -> None:
        """Every page that the cache would give, by a worker that knows nothing yet."""
        reader = self.rig.new_reader()
        for thing in THINGS:
            for first in range(0, thing.pages, 16):
                with contextlib.suppress(BadPage):
                    self.rig.read(thing, first, min(first + 16, thing.pages), reader)
        reader.close()

    @invariant()
    def within_limits(self) -> None:
        if not hasattr(self, "rig"):
            return
        for number, usage in enumerate(self.rig.owner.usage()):
            nbytes, inodes = self.rig.disk_use(number)
            assert nbytes <= usage.used_bytes <= self.limits.bytes
            assert inodes <= usage.used_inodes
            assert not self.limits.inodes or usage.used_inodes <= self.limits.inodes
        accounts = self.rig.owner.accounts
        for name, policy in self.rig.policies.items():
            held = accounts.held(owner_id(name))
            assert policy.bytes <= 0 or held.bytes <= policy.bytes
            assert not policy.inodes or held.inodes <= policy.inodes

    @invariant()
    def complete_things_are_whole(self) -> None:
        if not hasattr(self, "rig"):
            return
        for thing in THINGS:
            hit = self.rig.reader.complete(thing.oid, thing.size)
            if hit is not None:
                assert os.pread(hit.fd, thing.size + 1, 0) == thing.data

    def check_books(self) -> None:
        """After a start the index names exactly the files that are there, and its sums are those of its records."""
        for tier in self.rig.owner.tiers:
            files = {name for _, _, names in os.walk(f"{tier.root}/objects") for name in names}
            assert tier.index is not None
            with tier.index.read() as txn:
                records = {oid: txn.object(oid) for oid in txn.object_ids(b"")}
            assert files == {f"{oid.hex()}.{record.incarnation}" for oid, record in records.items() if record}
            assert sum(record.accounted for record in records.values() if record) == tier.ledger.indexed.bytes
            assert len(records) == tier.ledger.indexed.inodes
            charged: dict[int, Amount] = {}
            for record in filter(None, records.values()):
                charged[record.payer] = charged.get(record.payer, Amount()) + Amount(record.accounted, 1)
            assert {payer: held for payer, held in tier.ledger.charged.items() if held != Amount()} == charged
        files_complete, present = self.rig.owner.counts([(thing.oid, thing.size) for thing in THINGS])
        assert 0 <= present <= sum(SIZES) + 10 * PAGE
        assert 0 <= files_complete <= len(THINGS)


def damage(path: str, harm: str) -> None:
    size = os.path.getsize(path)
    if harm == "remove":
        os.unlink(path)
        return
    with open(path, "r+b") as file:
        if harm == "cut":
            file.truncate(size // 2)
        elif harm == "zero":
            file.truncate(0)
            file.truncate(size)
        elif harm == "flip" and size:
            first = file.read(1)
            file.seek(0)
            file.write(bytes([first[0] ^ 1]))


def swap(paths: list[str]) -> None:
    for one, other in zip(paths[::2], paths[1::2], strict=False):
        os.rename(one, f"{one}-")
        os.rename(other, one)
        os.rename(f"{one}-", other)


TestCache = CacheMachine.TestCase
TestCache.settings = settings(
    max_examples=int(os.environ.get("STOKER_MACHINE_EXAMPLES", "25")),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
