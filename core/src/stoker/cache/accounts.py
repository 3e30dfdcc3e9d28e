"""What each DataSet may hold on this node, over all its disks, and what it does hold.

An account is a DataSet by its number (`layout.owner_id`). Every object is charged to one account, every credit belongs
to one; files that are unlinked and maybe open count for it, too. So a limit is never passed, not even for a moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stoker.cache.amount import Amount, total
from stoker.cache.ledger import COMMON, NO_LIMIT, UNLIMITED
from stoker.cache.tier import Tier


@dataclass(frozen=True, slots=True)
class AccountPolicy:
    """`bytes` < 0: leave that much of the cache to others; 0: no limit. `ttl_s` after the last use; 0: none."""

    bytes: int = 0
    inodes: int = 0
    priority: int = 100
    ttl_s: float = 0.0

    def limit(self, capacity: Amount) -> Amount:
        """What it may hold of a cache of this capacity."""
        nbytes = self.bytes if self.bytes > 0 else max(0, capacity.bytes + self.bytes) if self.bytes else UNLIMITED
        return Amount(nbytes, self.inodes or UNLIMITED)


class Accounts:
    """The policies of the DataSets that this node knows. One that it does not know has no limit, and goes first."""

    def __init__(self, tiers: Sequence[Tier]) -> None:
        self._tiers = tiers
        self._policies: dict[int, AccountPolicy] = {}

    def put(self, account: int, policy: AccountPolicy) -> None:
        """A DataSet is known, or its policy is changed."""
        self._policies[account] = policy

    def forget(self, account: int) -> None:
        """A DataSet is not known any more."""
        self._policies.pop(account, None)

    def known(self, account: int) -> bool:
        return account in self._policies

    def policy(self, account: int) -> AccountPolicy:
        return self._policies.get(account, AccountPolicy())

    def all(self) -> list[tuple[int, AccountPolicy]]:
        """The known ones."""
        return list(self._policies.items())

    def limit(self, account: int) -> Amount:
        """What it may hold as things are."""
        return self.limit_of(account, self.policy(account))

    def limit_of(self, account: int, policy: AccountPolicy) -> Amount:
        """The same for a policy that it may get."""
        if account == COMMON or (not policy.bytes and not policy.inodes):
            return NO_LIMIT
        capacity = Amount()
        if policy.bytes < 0:
            capacity = total(tier.ledger.capacity(tier.free()) for tier in self._tiers)
        return policy.limit(capacity)

    def held(self, account: int) -> Amount:
        """All that counts for it, credit and unlinked files too."""
        return total(tier.ledger.held_by(account) for tier in self._tiers)

    def charged(self, account: int) -> Amount:
        """What it has in the index: what eviction can free."""
        return total(tier.ledger.charged.get(account, Amount()) for tier in self._tiers)

    def movable(self, account: int) -> Amount:
        """The part of that which is not pinned."""
        return total(tier.ledger.movable(account) for tier in self._tiers)

    def pinned(self, account: int) -> Amount:
        """What its pins take when all of them are cached."""
        return total(tier.ledger.pins.of(account).whole for tier in self._tiers)

    def room(self, account: int) -> Amount:
        """What may still be granted to it."""
        limit = self.limit(account)
        return NO_LIMIT if limit == NO_LIMIT else (limit - self.held(account)).at_least_nothing()
