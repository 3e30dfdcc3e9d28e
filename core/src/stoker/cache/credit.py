"""What a fetcher may still put on each tier: spent at once, asked for ahead of need, never more than was granted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

BATCH_BYTES = 64 << 20
"""Asked for at once: a second of a 500 MB/s link, and little beside any disk."""

BATCH_INODES = 1024

REFUSED_S = 0.1
"""After a refusal nothing is asked for this long: the owner needs a moment to evict, readers do not wait for it."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What the owner gave: bytes, inodes, and incarnation numbers [first, first + count)."""

    bytes: int = 0
    inodes: int = 0
    first_incarnation: int = 0
    incarnations: int = 0


Ask = Callable[[int, int, int], Awaitable[Grant]]
"""(tier, bytes, inodes) -> Grant. Returns Grant() when refused or when the owner is away."""


@dataclass(slots=True)
class _Balance:
    bytes: int = 0
    inodes: int = 0
    blocks: list[tuple[int, int]] = field(default_factory=list)
    asking: asyncio.Future[None] | None = None
    refused_until: float = 0.0


class Credit:
    """Balances per tier. One event loop; `ask` sends the wish to the owner."""

    def __init__(self, tiers: int, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        self._balances = [_Balance() for _ in range(tiers)]
        self._ask = ask
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, tier: int, grant: Grant) -> None:
        """Something was granted."""
        balance = self._balances[tier]
        balance.bytes += grant.bytes
        balance.inodes += grant.inodes
        if grant.incarnations:
            balance.blocks.append((grant.first_incarnation, grant.incarnations))

    def spend(self, tier: int, nbytes: int, inodes: int) -> bool:
        """Take from the balance; False, and nothing taken, when it is not enough."""
        if not self._enough(tier, nbytes, inodes):
            return False
        balance = self._balances[tier]
        balance.bytes -= nbytes
        balance.inodes -= inodes
        return True

    def refund(self, tier: int, nbytes: int, inodes: int) -> None:
        """Take back what was spent and put nothing on disk."""
        self._balances[tier].bytes += nbytes
        self._balances[tier].inodes += inodes

    def incarnation(self, tier: int) -> int:
        """A number that no other file of this tier ever had. Needs an inode to have been spent."""
        blocks = self._balances[tier].blocks
        first, count = blocks[0]
        if count == 1:
            blocks.pop(0)
        else:
            blocks[0] = (first + 1, count - 1)
        return first

    async def ensure(self, tier: int, nbytes: int, inodes: int) -> bool:
        """Whether `spend` of this much would succeed now, asking the owner first when the balance is short."""
        if not self._enough(tier, nbytes, inodes):
            await self._refill(tier, nbytes, inodes)
        self._refill_ahead(tier)
        return self._enough(tier, nbytes, inodes)

    def unspent(self, tier: int) -> tuple[int, int]:
        """(bytes, inodes) that nothing was done with."""
        balance = self._balances[tier]
        return balance.bytes, balance.inodes

    def give_back(self, tier: int) -> tuple[int, int]:
        """The owner recalled: all unspent (bytes, inodes) go back to it."""
        balance = self._balances[tier]
        returned = balance.bytes, balance.inodes
        balance.bytes = balance.inodes = 0
        return returned

    def _enough(self, tier: int, nbytes: int, inodes: int) -> bool:
        balance = self._balances[tier]
        return balance.bytes >= nbytes and balance.inodes >= inodes and bool(balance.blocks or not inodes)

    def _refill_ahead(self, tier: int) -> None:
        balance = self._balances[tier]
        low = balance.bytes < BATCH_BYTES // 4 or balance.inodes < BATCH_INODES // 4
        if low and balance.asking is None and self._clock() >= balance.refused_until:
            task = asyncio.ensure_future(self._refill(tier, 0, 0))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _refill(self, tier: int, nbytes: int, inodes: int) -> None:
        balance = self._balances[tier]
        if balance.asking is not None:
            await asyncio.shield(balance.asking)
            if self._enough(tier, nbytes, inodes):
                return
        if balance.asking is not None or self._clock() < balance.refused_until:
            return
        balance.asking = asyncio.get_running_loop().create_future()
        try:
            lacking = max(nbytes, BATCH_BYTES) - balance.bytes, max(inodes, BATCH_INODES) - balance.inodes
            self.add(tier, await self._ask(tier, max(lacking[0], 0), max(lacking[1], 0)))
            if balance.bytes < max(nbytes, 1) or balance.inodes < max(inodes, 1):
                balance.refused_until = self._clock() + REFUSED_S
        finally:
            balance.asking.set_result(None)
            balance.asking = None
