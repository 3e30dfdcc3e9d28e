"""Who holds how much of a tier: pure accounting, no clock, no disk.

At every moment: indexed + outstanding (granted and not indexed yet) + zombies (unlinked, maybe still open) + fixed
(folders, index, marker) <= limit, and free space of the file system - outstanding >= floor. What is pinned and not
cached yet has its room kept: nobody else is granted it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stoker.cache.amount import NOTHING, Amount, total
from stoker.cache.layout import BLOCK
from stoker.cache.pinbook import PinBook

INDEX_BYTES_PER_OBJECT = 1024
"""Set aside per granted inode for its records and its name in the folder: 500 bytes measured, doubled for pages that
LMDB copies."""

INDEX_LEAST_BYTES = 192 << 10
INDEX_SLACK_BYTES = 128 << 20
"""Kept free for the index to grow by in a commit: LMDB copies each page it changes before it uses old ones again. Up to
192 KiB it may do that with all of it; later half of it is enough (it holds old copies already), and no commit of 8,192
objects touches more than the second figure."""

LEAST_GRANT_BYTES = 8 << 20
"""Small rooms go to whoever asks first (two chunks and more); the rest of the fetchers get it by recall."""


UNLIMITED = 1 << 62
NO_LIMIT = Amount(UNLIMITED, UNLIMITED)

COMMON = 0
"""The account of what belongs to no DataSet: folders."""

HEIR = -1
"""In the place of a fetcher: room that is kept for what another account is about to be charged for."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What an administrator allows. `bytes` < 0: leave that much of the file system free; 0: no limit but the floor."""

    bytes: int
    inodes: int = 0
    reserve_free: int = 150 << 20
    high: float = 1.0
    low: float = 0.7

    def floor(self) -> Amount:
        """What must stay free on the file system."""
        return Amount(max(self.reserve_free, -self.bytes), max(0, -self.inodes))

    def most(self) -> Amount:
        """What we may hold, whatever is free."""
        return Amount(
            self.bytes if self.bytes > 0 else UNLIMITED,
            self.inodes if self.inodes > 0 else UNLIMITED,
        )

    def low_mark(self, capacity: Amount, pinned: Amount) -> Amount:
        """Where eviction ends: pins take their room in any case, the share counts for the rest."""
        return _mark(capacity, pinned, self.low)

    def high_mark(self, capacity: Amount, pinned: Amount) -> Amount:
        """Where it begins."""
        return _mark(capacity, pinned, self.high)


@dataclass(slots=True)
class Ledger:
    """The books of one tier. `free` arguments: what statvfs says is available to us now."""

    limits: Limits
    indexed: Amount = NOTHING
    fixed: Amount = NOTHING
    index_bytes: int = 0
    """The part of `fixed` that is the index."""
    charged: dict[int, Amount] = field(default_factory=dict)
    """By account: its part of `indexed`. An account is a DataSet by its number (`layout.owner_id`)."""
    unlinked: dict[int, Amount] = field(default_factory=dict)
    """By account: files that are gone from the index and that somebody may still have open."""
    outstanding: dict[tuple[int, int], Amount] = field(default_factory=dict)
    """By (fetcher, account): credit that is not indexed yet."""
    pins: PinBook = field(default_factory=PinBook)

    def granted(self) -> Amount:
        """All credit that is not indexed yet."""
        return total(self.outstanding.values())

    @property
    def zombies(self) -> Amount:
        """All that is unlinked and maybe open."""
        return total(self.unlinked.values())

    def held(self) -> Amount:
        """Everything that counts."""
        return self.indexed + self.zombies + self.fixed + self.granted()

    def held_by(self, account: int) -> Amount:
        """Everything that counts for one account."""
        credit = total(amount for (_, whose), amount in self.outstanding.items() if whose == account)
        return self.charged.get(account, Amount()) + self.unlinked.get(account, Amount()) + credit

    def credit(self) -> dict[int, Amount]:
        """By account: credit that is not indexed yet."""
        found: dict[int, Amount] = {}
        for (_, whose), amount in self.outstanding.items():
            found[whose] = found.get(whose, Amount()) + amount
        return found

    def movable(self, account: int) -> Amount:
        """What it is charged for that can be evicted."""
        return (self.charged.get(account, Amount()) - self.pins.of(account).unmovable).at_least_nothing()

    def capacity(self, free: Amount) -> Amount:
        """What we could hold at most, as things are."""
        most, could = self.limits.most(), self.indexed + self.zombies + self.fixed + free - self.limits.floor()
        return Amount(min(most.bytes, could.bytes), min(most.inodes, could.inodes)).at_least_nothing()

    def slack_bytes(self) -> int:
        """Kept free for the index to grow by."""
        return max(INDEX_LEAST_BYTES - self.index_bytes, min(self.index_bytes // 2, INDEX_SLACK_BYTES))

    def room(self, free: Amount, account: int = COMMON) -> Amount:
        """What may still be granted to an account: room that is kept for pins of others is not."""
        granted, most, floor = self.granted(), self.limits.most(), self.limits.floor()
        kept = self.pins.kept_from(account) if account != COMMON else Amount()
        granted += kept
        index = self.slack_bytes() + granted.inodes * INDEX_BYTES_PER_OBJECT
        by_limit = most - self.held() - kept
        by_disk = free - granted - floor
        nbytes = min(by_limit.bytes, by_disk.bytes) - index
        return Amount(nbytes, min(by_limit.inodes, by_disk.inodes)).at_least_nothing()

    def grant(self, fetcher: int, account: int, wanted: Amount, free: Amount, most: Amount = NO_LIMIT) -> Amount:
        """Give what can be given: all of a small room, a quarter of a large one; `most` is the room of the account."""
        room = self.room(free, account)
        wanted = wanted.smaller(most.at_least_nothing())
        nbytes = min(wanted.bytes, max(room.bytes // 4, min(room.bytes, LEAST_GRANT_BYTES)))
        inodes = min(wanted.inodes, max(room.inodes // 4, min(room.inodes, 64)))
        # Each inode needs its part of the index as well, and is of no use without a block.
        inodes = min(inodes, room.bytes // (BLOCK + INDEX_BYTES_PER_OBJECT))
        nbytes = min(nbytes, room.bytes - inodes * INDEX_BYTES_PER_OBJECT)
        given = Amount(nbytes, inodes)
        self.outstanding[fetcher, account] = self.outstanding.get((fetcher, account), Amount()) + given
        return given

    def settle(self, fetcher: int, account: int, amount: Amount) -> None:
        """Credit has become indexed pages (`indexed` is set from the index itself) or came back unspent."""
        left = (self.outstanding.get((fetcher, account), Amount()) - amount).at_least_nothing()
        if left == Amount():
            self.outstanding.pop((fetcher, account), None)
        else:
            self.outstanding[fetcher, account] = left

    def void(self, fetcher: int) -> None:
        """A fetcher died and its table is drained: the rest of its credit was never used."""
        for key in [key for key in self.outstanding if key[0] == fetcher]:
            del self.outstanding[key]

    def unlink(self, account: int, amount: Amount) -> None:
        """Files left the index; `freed` when nobody can have them open any more."""
        self.unlinked[account] = self.unlinked.get(account, Amount()) + amount

    def freed(self, account: int, amount: Amount) -> None:
        """The room of unlinked files is free."""
        left = (self.unlinked.get(account, Amount()) - amount).at_least_nothing()
        if left == Amount():
            self.unlinked.pop(account, None)
        else:
            self.unlinked[account] = left

    def must_free(self, free: Amount, evicting: bool = False) -> Amount:
        """What eviction has to free whoever it belongs to: nothing below the high mark, else down to the low one.

        `evicting`: already on the way down. What is unlinked is about to be free anyway; credit is recalled.
        """
        capacity = (self.capacity(free) - Amount(self.slack_bytes(), 0)).at_least_nothing()
        held, high = self.held() + self.pins.reserved(self.credit()), self.limits.high
        if not evicting and held.bytes <= capacity.bytes * high and held.inodes <= capacity.inodes * high:
            return Amount()
        return self._above_low(capacity)

    def must_free_for(self, wanted: Amount, free: Amount) -> Amount:
        """What eviction has to free because so much credit was refused: nothing when there is room for it by now, else
        down to the low mark."""
        room = self.room(free)
        if room.bytes >= wanted.bytes and room.inodes >= wanted.inodes:
            return Amount()
        return self._above_low((self.capacity(free) - Amount(self.slack_bytes(), 0)).at_least_nothing())

    def _above_low(self, capacity: Amount) -> Amount:
        target = self.limits.low_mark(capacity, self.pins.whole)
        return (self.indexed + self.fixed - target).at_least_nothing()


def _mark(capacity: Amount, pinned: Amount, share: float) -> Amount:
    pinned = pinned.smaller(capacity)
    rest = capacity - pinned
    return pinned + Amount(int(rest.bytes * share), int(rest.inodes * share))
