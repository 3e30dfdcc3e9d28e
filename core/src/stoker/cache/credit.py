"""What a fetcher may still put on each tier: spent at once, asked for ahead of need, never more than was granted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stoker.cache.amount import Amount
from stoker.cache.ledger import COMMON

BATCH_BYTES = 64 << 20
"""Asked for at once by an account that is used much: a second of a 500 MB/s link, and little beside any disk."""

BATCH_INODES = 1024

FIRST_BATCH = 8
"""An account asks for an eighth of that at first, for twice as much each time: many DataSets that are hardly read hold
little."""

_MOST = Amount(BATCH_BYTES, BATCH_INODES)
_FIRST = Amount(BATCH_BYTES // FIRST_BATCH, BATCH_INODES // FIRST_BATCH)

REFUSED_S = 0.1
"""After a refusal nothing is asked for this long: the owner needs a moment to evict, readers do not wait for it."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What the owner gave: bytes, inodes, and incarnation numbers [first, first + count)."""

    bytes: int = 0
    inodes: int = 0
    first_incarnation: int = 0
    incarnations: int = 0


Ask = Callable[[int, int, int, int, int], Awaitable[Grant]]
"""(tier, account, bytes, inodes, asker) -> Grant. Returns Grant() when refused or when the owner is away."""


Place = tuple[int, int]
"""(tier, account)."""


def to_rows(held: Mapping[Place, Amount]) -> list[list[int]]:
    """Credit as it is told to a new owner: tier, account, bytes, inodes."""
    return [[*place, amount.bytes, amount.inodes] for place, amount in held.items()]


def from_rows(rows: Iterable[Sequence[int]]) -> dict[Place, Amount]:
    """The inverse of `to_rows`."""
    return {(tier, account): Amount(*amount) for tier, account, *amount in rows}


@dataclass(slots=True)
class _Balance:
    bytes: int = 0
    inodes: int = 0
    blocks: list[tuple[int, int]] = field(default_factory=list)
    asking: asyncio.Future[None] | None = None
    refused_until: float = 0.0
    batch: Amount = _FIRST

    def grow(self) -> None:
        self.batch = (self.batch + self.batch).smaller(_MOST)


class Credit:
    """Balances by tier and account (a DataSet, or the common one). One event loop; `ask` asks the owner."""

    def __init__(self, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        self._balances: dict[Place, _Balance] = {}
        self._ask = ask
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, place: Place, grant: Grant) -> None:
        """Something was granted."""
        balance = self._of(place)
        balance.bytes += grant.bytes
        balance.inodes += grant.inodes
        if grant.incarnations:
            balance.blocks.append((grant.first_incarnation, grant.incarnations))

    def spend(self, place: Place, nbytes: int, inodes: int) -> bool:
        """Take from the balance; False, and nothing taken, when it is not enough."""
        if not self._enough(place, nbytes, inodes):
            return False
        balance = self._of(place)
        balance.bytes -= nbytes
        balance.inodes -= inodes
        return True

    def refund(self, place: Place, nbytes: int, inodes: int) -> None:
        """Take back what was spent and put nothing on disk."""
        balance = self._of(place)
        balance.bytes += nbytes
        balance.inodes += inodes

    def incarnation(self, place: Place) -> int:
        """A number that no other file of this tier ever had. Needs an inode to have been spent."""
        blocks = self._of(place).blocks
        first, count = blocks[0]
        if count == 1:
            blocks.pop(0)
        else:
            blocks[0] = (first + 1, count - 1)
        return first

    async def ensure(self, place: Place, nbytes: int, inodes: int, asker: int = COMMON) -> bool:
        """Whether `spend` of this much would succeed now, asking the owner first when the balance is short.

        `asker`: the account that it is for, when it is from the common one."""
        if not self._enough(place, nbytes, inodes):
            await self._refill(place, nbytes, inodes, asker or place[1])
        self._refill_ahead(place)
        return self._enough(place, nbytes, inodes)

    def unspent(self, place: Place) -> tuple[int, int]:
        """(bytes, inodes) that nothing was done with."""
        balance = self._of(place)
        return balance.bytes, balance.inodes

    def give_back(self, place: Place) -> tuple[int, int]:
        """The owner recalled: all unspent (bytes, inodes) go back to it."""
        balance = self._of(place)
        returned = balance.bytes, balance.inodes
        balance.bytes = balance.inodes = 0
        balance.batch = balance.batch.smaller(_FIRST)
        return returned

    def places(self) -> list[Place]:
        """Whatever was ever asked for."""
        return list(self._balances)

    def _of(self, place: Place) -> _Balance:
        balance = self._balances.get(place)
        if balance is None:
            balance = self._balances[place] = _Balance()
            if place[1] == COMMON:
                balance.batch = Amount()  # folders are few: one by one
        return balance

    def _enough(self, place: Place, nbytes: int, inodes: int) -> bool:
        balance = self._of(place)
        return balance.bytes >= nbytes and balance.inodes >= inodes and bool(balance.blocks or not inodes)

    def _refill_ahead(self, place: Place) -> None:
        balance = self._of(place)
        low = balance.bytes < balance.batch.bytes // 4 or balance.inodes < balance.batch.inodes // 4
        if low and balance.asking is None and self._clock() >= balance.refused_until:
            task = asyncio.ensure_future(self._refill(place, 0, 0, place[1]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _refill(self, place: Place, nbytes: int, inodes: int, asker: int) -> None:
        balance = self._of(place)
        while balance.asking is not None:
            await asyncio.shield(balance.asking)
            if self._enough(place, nbytes, inodes):
                return
        if self._clock() < balance.refused_until:
            return
        balance.asking = asyncio.get_running_loop().create_future()
        try:
            batch = balance.batch
            lacking = max(nbytes, batch.bytes) - balance.bytes, max(inodes, batch.inodes) - balance.inodes
            self.add(place, await self._ask(*place, max(lacking[0], 0), max(lacking[1], 0), asker))
            if balance.bytes < max(nbytes, 1) or balance.inodes < max(inodes, 1):
                balance.refused_until = self._clock() + REFUSED_S
            elif place[1] != COMMON:
                balance.grow()
        finally:
            balance.asking.set_result(None)
            balance.asking = None
