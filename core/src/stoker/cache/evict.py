"""Plans evictions: whose objects, which of them and why. In the owner's loop; `jobs.EvictJob` does it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from stoker.cache.accounts import Accounts
from stoker.cache.amount import Amount, total
from stoker.cache.index import IndexTxn
from stoker.cache.jobs import Common, EvictJob
from stoker.cache.layout import owner_id, tier_of
from stoker.cache.ledger import COMMON
from stoker.cache.record import ObjectRecord
from stoker.cache.shares import Claim, Share, Why, eligible, goal, shares
from stoker.cache.tier import Tier

MOST_VICTIMS = 2048
"""In one round, so that a round takes milliseconds and credit flows between rounds."""


@dataclass(slots=True)
class _Campaign:
    """Room is being made on one tier for somebody whose wish was refused: how much is left to free."""

    left: Amount = field(default_factory=Amount)
    highest: int = 0


@dataclass(slots=True)
class _Round:
    """What one job is to do."""

    job: EvictJob
    in_use: Collection[bytes]
    freed: Amount = field(default_factory=Amount)

    @property
    def full(self) -> bool:
        return len(self.job.oids) >= MOST_VICTIMS


class Evictions:
    """Of all tiers."""

    def __init__(self, tiers: Sequence[Tier], accounts: Accounts, common: Common) -> None:
        self._tiers = tiers
        self._accounts = accounts
        self._common = common
        self._campaigns = [_Campaign() for _ in tiers]
        self._forced = [False] * len(tiers)
        self._shrinking: set[int] = set()
        """Accounts that met their own limit, and are on their way to its low mark."""

    def at_limit(self, account: int) -> None:
        """Credit was refused because of the account's own limit."""
        self._shrinking.add(account)

    def plan(self, tier: Tier, in_use: Collection[bytes], live: Collection[int]) -> EvictJob | None:
        """A job with the victims of one round on a tier, or None. `live`: accounts that somebody has mounted."""
        if tier.index is None:
            return None
        claims = self._claims(tier, live)
        wanted = self._shares(tier, claims)
        with tier.index.read() as txn:
            this = _Round(EvictJob(tier, self._common), in_use)
            for account, policy in self._accounts.all():
                if policy.ttl_s:
                    before = int(tier.wall() - policy.ttl_s)
                    self._take(this, txn, Share(account, Amount(), Why.Ttl), before)
            for share in self._over_limit(tier) + wanted:
                self._take(this, txn, share, None)
        campaign = self._campaigns[tier.number]
        campaign.left = (campaign.left - this.freed).at_least_nothing() if this.job.oids else Amount()
        return this.job if this.job.oids or this.job.dangling else None

    def let_go(self, oids: Iterable[bytes], data_set: str, in_use: Collection[bytes]) -> list[EvictJob]:
        """Per tier a job that frees objects which a DataSet needs no more; what another known one uses stays for that
        one, and what is `in_use` stays. For the rest as `CacheOwner.plan_eviction`."""
        by_tier: dict[int, list[bytes]] = {}
        seeds = [tier.seed for tier in self._tiers]
        for oid in oids:
            by_tier.setdefault(tier_of(oid, seeds), []).append(oid)
        jobs = (self._let_go(self._tiers[n], mine, owner_id(data_set), in_use) for n, mine in by_tier.items())
        return [job for job in jobs if job is not None]

    def _let_go(self, tier: Tier, oids: Iterable[bytes], account: int, in_use: Collection[bytes]) -> EvictJob | None:
        if tier.index is None:
            return None
        job = EvictJob(tier, self._common)
        with tier.index.read() as txn:
            for oid in oids:
                record = txn.object(oid)
                if record is None or account not in record.owners or oid in in_use or oid in job.reasons:
                    continue
                if txn.pinners(oid):
                    continue
                others = [owner for owner in record.owners if owner != account and self._accounts.known(owner)]
                if others and record.payer != account:
                    job.releases.append((oid, account))
                    continue
                job.add(oid, Why.Generation)
                amount = Amount(record.accounted, 1)
                if heir := self._heir(record, amount) if others else COMMON:
                    job.hand_over(oid, heir, amount)
        return job if job.oids or job.releases else None

    def _claims(self, tier: Tier, live: Collection[int]) -> list[Claim]:
        return [
            Claim(
                account,
                movable,
                self._accounts.policy(account).priority,
                account in live,
                self._accounts.known(account),
            )
            for account in tier.ledger.charged
            if (movable := tier.ledger.movable(account)) != Amount()
        ]

    def _shares(self, tier: Tier, claims: list[Claim]) -> list[Share]:
        """Who gives because the disk is too full, or because somebody's wish was refused."""
        wishes, tier.wishes = tier.wishes, {}
        needed = tier.ledger.must_free(tier.free(), self._forced[tier.number])
        self._forced[tier.number] = needed != Amount()
        if needed != Amount():
            return shares(claims, needed, None)
        campaign = self._campaigns[tier.number]
        if wishes:
            wanted = total(wishes.values())
            needed = tier.ledger.must_free_for(wanted, tier.free())
            campaign.highest = max(self._accounts.policy(account).priority for account in wishes)
            campaign.left = goal(eligible(claims, campaign.highest), wanted, needed, tier.ledger.limits.low)
        return shares(claims, campaign.left, campaign.highest)

    def _over_limit(self, tier: Tier) -> list[Share]:
        """What accounts at their own limit have to give on this tier: its part of what they can give at all."""
        found = []
        for account, policy in self._accounts.all():
            if not policy.bytes and not policy.inodes:
                self._shrinking.discard(account)
                continue
            limit, held = self._accounts.limit(account), self._accounts.held(account)
            pinned = self._accounts.pinned(account)
            high = tier.ledger.limits.high_mark(limit, pinned)
            if held.bytes > high.bytes or held.inodes > high.inodes:
                self._shrinking.add(account)
            if account not in self._shrinking:
                continue
            low = tier.ledger.limits.low_mark(limit, pinned)
            excess = (self._accounts.charged(account) - low).at_least_nothing()
            here, everywhere = tier.ledger.movable(account), self._accounts.movable(account)
            if excess == Amount() or everywhere == Amount():
                self._shrinking.discard(account)
            elif here != Amount():
                found.append(Share(account, _part(excess, here, everywhere), Why.Quota))
        return found

    def _take(self, this: _Round, txn: IndexTxn, share: Share, before: int | None) -> None:
        """Choose what one account gives: its least recently used, until the share is there; with `before` all that was
        last used before that second."""
        freed = given = Amount()
        for oid, record in self._oldest(this, txn, share.account):
            enough = given.bytes >= share.amount.bytes and given.inodes >= share.amount.inodes
            if this.full or (enough if before is None else record.epoch > before):
                break
            if oid in this.in_use or oid in this.job.reasons:
                continue
            amount = Amount(record.accounted, 1)
            this.job.add(oid, share.why)
            heir = self._heir(record, amount) if share.why in (Why.Ttl, Why.Quota, Why.Unreferenced) else COMMON
            if heir:
                this.job.hand_over(oid, heir, amount)
            else:
                freed += amount
            if not heir or share.why is Why.Quota:
                given += amount
        this.freed += freed

    @staticmethod
    def _oldest(this: _Round, txn: IndexTxn, account: int) -> Iterator[tuple[bytes, ObjectRecord]]:
        for epoch, oid in txn.oldest(account):
            record = txn.object(oid)
            if record is None or (record.payer, record.epoch) != (account, epoch):
                this.job.dangling.append((oid, account, epoch))
            else:
                yield oid, record

    def _heir(self, record: ObjectRecord, amount: Amount) -> int:
        """Another known user of an object who has room for it."""
        for owner in record.owners[1:]:
            if self._accounts.known(owner):
                room = self._accounts.room(owner)
                if room.bytes >= amount.bytes and room.inodes >= amount.inodes:
                    return owner
        return COMMON


def _part(of: Amount, here: Amount, everywhere: Amount) -> Amount:
    """The part of one tier, rounded up."""
    return Amount(
        -(-of.bytes * here.bytes // max(everywhere.bytes, 1)), -(-of.inodes * here.inodes // max(everywhere.inodes, 1))
    )
