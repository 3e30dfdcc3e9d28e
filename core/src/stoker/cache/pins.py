"""Pins as the owner of the cache has them: whether they fit, and the jobs that write them (docs/design/cache.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from stoker.cache.accounts import Accounts
from stoker.cache.amount import NOTHING, Amount, total
from stoker.cache.jobs import Common
from stoker.cache.layout import BLOCK, tier_of
from stoker.cache.ledger import INDEX_BYTES_PER_OBJECT, NO_LIMIT
from stoker.cache.pinbook import Pinned
from stoker.cache.pinjobs import PINS_OF_A_JOB, PinJob, UnpinJob, Wanted, cost_of, new_to_all, only_of
from stoker.cache.tier import Tier

_FOLDERS = 256
"""Of a tier, each of a block and an inode: set aside when pins are accepted."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What pins would take. `whole`: of the DataSet's own; by tier and each object once, `others`: of the pins of all
    others; `by_tier`: of all pins then."""

    whole: Amount
    others: tuple[Amount, ...]
    by_tier: tuple[Amount, ...]


@dataclass(frozen=True, slots=True)
class Misfit:
    """Pins that cannot be kept: `wanted` is more than `free`; `where` a disk, or "" for a limit of the DataSet."""

    wanted: Amount
    free: Amount
    where: str


class Pins:
    """Of all tiers. What it returns is to be run and settled like all jobs of the owner."""

    def __init__(self, tiers: Sequence[Tier], accounts: Accounts, common: Common) -> None:
        self._tiers = tiers
        self._accounts = accounts
        self._common = common
        self._seeds = [tier.seed for tier in tiers]

    def demand(self, account: int, wanted: Iterable[Wanted]) -> Demand:
        """What it would take when this is all that a DataSet pins. Not in the loop: 5 us for each object."""
        whole, new = Amount(), [Amount() for _ in self._tiers]
        for batch in batches(wanted):
            whole += cost_of(batch)
            for tier, mine in self._by_tier(batch):
                if tier.index is not None:
                    with tier.index.read() as txn:
                        new[tier.number] += new_to_all(txn, mine, account)
        others = tuple(tier.ledger.pins.whole - self._only_of(tier, account) for tier in self._tiers)
        return Demand(whole, others, tuple(had + more for had, more in zip(others, new, strict=True)))

    def misfit(self, demand: Demand, limit: Amount) -> Misfit | None:
        """Why that could not be kept; None when it can. `limit`: of the DataSet, as `Accounts.limit` has it."""
        if demand.whole.smaller(limit) != demand.whole:
            return Misfit(demand.whole, limit, "")
        for tier, others, after in zip(self._tiers, demand.others, demand.by_tier, strict=True):
            most = self.most(tier, after)
            if after.smaller(most) != after:
                return Misfit(after - others, (most - others).at_least_nothing(), tier.root)
        return None

    def most(self, tier: Tier, pins: Amount) -> Amount:
        """What pins can have of a tier, when they have so many inodes."""
        if tier.index is None:
            return NOTHING
        ledger = tier.ledger
        lacking = max(0, pins.inodes - ledger.pins.filled.inodes)
        folders = max(0, _FOLDERS - len(tier.folders))
        around = Amount(ledger.slack_bytes() + lacking * INDEX_BYTES_PER_OBJECT + folders * BLOCK, folders)
        return (ledger.capacity(tier.free()) - ledger.fixed - around).at_least_nothing()

    def unkept(self) -> list[str]:
        """Tiers that cannot hold all their pins, as things are: others took the disk, or its limit was lowered."""
        whole = [(tier, tier.ledger.pins.whole) for tier in self._tiers]
        return [tier.root for tier, pins in whole if pins.smaller(self.most(tier, pins)) != pins]

    def jobs(self, account: int, mark: int, batch: Sequence[Wanted]) -> list[PinJob]:
        """The jobs that write so many pins."""
        room = self._accounts.room(account)
        found = []
        for tier, wanted in self._by_tier(batch):
            job = PinJob(tier, self._common, pinner=account, mark=mark, wanted=wanted)
            budget = cost_of(wanted).smaller(room)
            job.reserve(budget)
            room = room if room == NO_LIMIT else room - budget
            found.append(job)
        return found

    def stale(self, account: int, mark: int) -> Iterator[UnpinJob]:
        """The jobs that end all pins of a DataSet but those of a mark; mark 0: all. Settle each before the next."""
        for tier in self._tiers:
            job: UnpinJob | None = UnpinJob(tier, self._common, pinner=account, mark=mark)
            while job is not None and tier.ledger.pins.of(account).whole != NOTHING:
                yield job
                start = job.next_start
                job = None if start is None else UnpinJob(tier, self._common, pinner=account, mark=mark, start=start)

    def held(self) -> Mapping[int, Pinned]:
        """What each DataSet pins, over all tiers."""
        accounts = {account for tier in self._tiers for account in tier.ledger.pins.by}
        return {account: self.of(account) for account in accounts}

    def of(self, account: int) -> Pinned:
        """What one DataSet pins, over all tiers."""
        mine = [tier.ledger.pins.of(account) for tier in self._tiers]
        return Pinned(total(p.whole for p in mine), total(p.filled for p in mine), total(p.unmovable for p in mine))

    def _by_tier(self, batch: Sequence[Wanted]) -> list[tuple[Tier, list[Wanted]]]:
        found: list[tuple[Tier, list[Wanted]]] = [(tier, []) for tier in self._tiers]
        for oid, size in batch:
            found[tier_of(oid, self._seeds)][1].append((oid, size))
        return [(tier, mine) for tier, mine in found if mine]

    @staticmethod
    def _only_of(tier: Tier, account: int) -> Amount:
        if tier.index is None or tier.ledger.pins.of(account).whole == NOTHING:
            return NOTHING
        with tier.index.read() as txn:
            return only_of(txn, account)


def batches(wanted: Iterable[Wanted]) -> Iterator[list[Wanted]]:
    """As many as one job takes."""
    rest = iter(wanted)
    while batch := list(islice(rest, PINS_OF_A_JOB)):
        yield batch
