"""How a fetcher puts pages on disk: one `Fill` per object, slots of its presence table, and the list of the doomed.

One per fetcher, in its event loop; no sockets. The owner's answers come in by `credit`, `doom`, `evicted`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Iterable, Sequence

import lmdb

from stoker.api.reasons import Reason
from stoker.cache.amount import Amount
from stoker.cache.credit import Credit, Place
from stoker.cache.fill import ChunkState, Fill
from stoker.cache.indexes import Indexes
from stoker.cache.layout import BLOCK, chunk_overhead, chunk_pages, object_folder, owner_id, pages_cost, tier_of
from stoker.cache.ledger import COMMON
from stoker.cache.presence import ACTIVE, OVERHEAD_PAID, PresenceTable
from stoker.cache.record import ChunkRecord, ObjectRecord
from stoker.cache.root import tier_seed

_REMEMBERED_EVICTIONS = 1 << 16
FIRST_RETRY_S = 0.5
"""A tier that refused is tried again after this long, then after twice as long each time, up to one of these:"""

FULL_RETRY_S = 10.0
"""Without space: eviction or its neighbours may have made room."""

FAILING_RETRY_S = 60.0
"""With I/O errors: rarely, so that each try costs little; one success makes it healthy."""

PRESS_S = 0.02
"""A full bucket makes us look through all slots (10 ms when all are used), not more often than this."""


class CacheWriter:
    """`tiers`: roots; `table`: this fetcher's own; `boot`: see `stoker.cache.boot`.

    `seeds`: of the tiers, when they are known; else the folders' markers are read. `on_event(tier, reason, message)` is
    told when a tier fails, and at each try as long as it does; `on_good(tier)` when something was stored there for
    the first time, and the first time after that; `on_table_full()` when the owner should drain now. A new fetcher
    clears the table (`table.clear()`) once the owner has drained it.
    """

    def __init__(
        self,
        tiers: Sequence[str],
        table: PresenceTable,
        boot: bytes,
        credit: Credit,
        *,
        seeds: Sequence[bytes] = (),
        on_event: Callable[[int, Reason, str], None] = lambda *_: None,
        on_good: Callable[[int], None] = lambda *_: None,
        on_table_full: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.roots = tuple(tiers)
        self.table = table
        self.credit = credit
        self._boot = boot
        self._seeds = tuple(seeds) or tuple(tier_seed(root) for root in tiers)
        self._indexes = Indexes(self.roots, clock)
        self._on_event = on_event
        self._on_good = on_good
        self._on_table_full = on_table_full
        self._clock = clock
        self._fills: dict[bytes, Fill] = {}
        self._slots: dict[int, tuple[Fill, int, ChunkState]] = {}
        self._failing_until = [0.0] * len(self.roots)
        self._retry_s = [FIRST_RETRY_S] * len(self.roots)
        self._good: set[int] = set()
        self._doomed: dict[bytes, asyncio.Event] = {}
        self._press_at = 0.0
        self.evicted_lately: dict[bytes, None] = {}
        """The last objects that were evicted: what is fetched of them again would not have been without."""

    # Filling

    def begin(self, oid: bytes, size: int, owner: str) -> Fill | None:
        """Begin to fill an object for the DataSet `owner` (`namespace/name`). None: it cannot be cached now (no tier, a
        failing tier, being evicted): serve it without the cache. Close what you get."""
        if not self.roots or size <= 0 or oid in self._doomed:
            return None
        fill = self._fills.get(oid)
        if fill is None:
            tier = tier_of(oid, self._seeds)
            known = self._known(tier, oid)
            payer = known.payer if known is not None else owner_id(owner)
            fill = self._fills[oid] = Fill(self, oid, size, payer, tier)
            fill.adopt(known.incarnation if known is not None else None)
        elif fill.users == 0:
            self._reopen(fill)
        fill.users += 1
        return fill

    async def begin_settled(self, oid: bytes, size: int, owner: str) -> Fill | None:
        """Like `begin`, but waits for the end of an eviction of this object."""
        while oid in self._doomed:
            await self._doomed[oid].wait()
        return self.begin(oid, size, owner)

    def collect(self, pressing: bool = False) -> int:
        """Free the slots whose pages the owner has indexed; call it about as often as the owner commits.

        Slots of open fills stay while their chunk is incomplete, unless it is `pressing`. Returns the slots in use.
        """
        for slot, (fill, chunk, state) in list(self._slots.items()):
            left = fill.users == 0 or pressing or self._left(fill, chunk, state)
            if left and not state.pending and self._settled(slot, state):
                self._free(slot, fill, state)
        return len(self._slots)

    def outstanding(self) -> dict[Place, Amount]:
        """What was granted and is not in the index, by tier and account: what `hello` tells a new owner."""
        sums = {place: Amount(*self.credit.unspent(place)) for place in self.credit.places()}
        for slot, (fill, chunk, state) in self._slots.items():
            accounted = self.table.progress(slot)[2]
            held = Amount(pages_cost(fill.size, chunk, state.reserved & ~accounted), 0)
            if not accounted:
                held += Amount(chunk_overhead(fill.size) if state.overhead else 0, 1 if state.inode else 0)
            sums[fill.place] = sums.get(fill.place, Amount()) + held
        for fill in self._fills.values():
            if fill.inode_pending:
                sums[fill.place] = sums.get(fill.place, Amount()) + Amount(0, 1)
        return {place: amount for place, amount in sums.items() if amount != Amount()}

    # Eviction

    def doom(self, oids: Iterable[bytes]) -> list[bytes]:
        """The owner wants to evict these. Returns those in use here; the others count as gone from now on."""
        self.collect()
        busy = []
        for oid in oids:
            if oid in self._fills:
                busy.append(oid)
            else:
                self._doomed.setdefault(oid, asyncio.Event())
        return busy

    def evicted(self, oids: Iterable[bytes]) -> None:
        """The owner has evicted these, or thought better of it: the index tells the truth again."""
        for oid in oids:
            event = self._doomed.pop(oid, None)
            if event is not None:
                event.set()
                self.evicted_lately[oid] = None
        while len(self.evicted_lately) > _REMEMBERED_EVICTIONS:
            del self.evicted_lately[next(iter(self.evicted_lately))]

    def undoom_all(self) -> None:
        """The owner is gone, and its plans with it."""
        for event in self._doomed.values():
            event.set()
        self._doomed.clear()

    # For fills

    def accepts(self, tier: int) -> bool:
        """Whether a tier takes new pages at the moment."""
        return self._clock() >= self._failing_until[tier]

    def tier_failed(self, tier: int, error: OSError) -> None:
        """The disk of a tier refused: nothing is written to it for a while. Told at each try."""
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = Reason.CacheFull if full else Reason.CacheDiskFailing
        if self.accepts(tier):  # what was on its way with the first that failed tells nothing new
            wait = min(self._retry_s[tier], FULL_RETRY_S if full else FAILING_RETRY_S)
            self._failing_until[tier], self._retry_s[tier] = self._clock() + wait, 2 * wait
            self._on_event(tier, reason, f"{error.strerror}; new data is read without cache")
        self._good.discard(tier)

    def try_again(self, tier: int) -> None:
        """The owner has made a tier anew: what was met on the old one is no reason to wait."""
        self._failing_until[tier], self._retry_s[tier] = 0.0, FIRST_RETRY_S

    def tier_stored(self, tier: int) -> None:
        """Something was stored in a tier."""
        if tier not in self._good:
            self._good.add(tier)
            self.try_again(tier)
            self._on_good(tier)

    def chunk_state(self, fill: Fill, chunk: int) -> ChunkState:
        """What the index holds of a chunk."""
        if fill.incarnation is None or fill.new:
            return ChunkState()
        record = self._record(fill.tier, fill.oid, chunk)
        if record is None or record.incarnation != fill.incarnation:
            return ChunkState()
        return ChunkState(present=record.present, allocated=record.allocated)

    def give_slot(self, fill: Fill, chunk: int, state: ChunkState) -> bool:
        """Key a slot of the table for a chunk."""
        assert fill.incarnation is not None
        taken = (fill.oid, chunk, fill.incarnation, fill.size, fill.owner, fill.tier)
        slot = self.table.take(*taken)
        if slot is None and self._clock() >= self._press_at:
            self._press_at = self._clock() + PRESS_S
            self.collect(pressing=True)
            slot = self.table.take(*taken)
        if slot is None:
            self._on_table_full()
            return False
        state.slot = slot
        self._slots[slot] = (fill, chunk, state)
        return True

    async def ensure_folder(self, tier: int, oid: bytes, asker: int) -> bool:
        """Whether the folder of an object is there, or can be paid."""
        if self._has_folder(tier, oid):
            return True
        return await self.credit.ensure((tier, COMMON), BLOCK, 1, asker)

    def be_folder(self, tier: int, oid: bytes) -> bool:
        """Have the folder of an object, paid for."""
        folder = object_folder(self.roots[tier], oid)
        if self._has_folder(tier, oid):
            return True
        common = tier, COMMON
        if not self.credit.spend(common, BLOCK, 1):
            return False
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            self.credit.refund(common, BLOCK, 1)
        except OSError as error:
            self.credit.refund(common, BLOCK, 1)
            self.tier_failed(tier, error)
            return False
        else:
            self.table.count_folder(tier)
        return True

    def _has_folder(self, tier: int, oid: bytes) -> bool:
        return os.path.isdir(object_folder(self.roots[tier], oid))

    def ended(self, fill: Fill) -> None:
        """The last user of a fill has closed it."""
        self._unreserve(fill)
        fill.detach()
        if not any(state.slot is not None for state in fill.chunks.values()):
            self._fills.pop(fill.oid, None)

    def restart(self, fill: Fill) -> None:
        """The file is gone (somebody removed it): what is on its way to the index stays with the old incarnation, which
        the owner replaces by the next one."""
        self._unreserve(fill)
        fill.detach()
        fill.abandon()

    def refresh(self, fill: Fill, chunks: Iterable[int]) -> None:
        """Take over what the owner has changed in the index: it may have found a page to be bad."""
        for chunk in chunks:
            state = fill.chunks.get(chunk)
            if state is None or fill.incarnation is None:
                continue
            on_the_way = self.table.progress(state.slot)[0] if state.slot is not None else 0
            record = self._record(fill.tier, fill.oid, chunk)
            indexed = record.present if record is not None and record.incarnation == fill.incarnation else 0
            state.present &= indexed | on_the_way

    def close(self) -> None:
        """Close files and indexes. What is in the table stays for the owner."""
        for fill in self._fills.values():
            fill.detach()
        self._indexes.close()

    # Inside

    def _known(self, tier: int, oid: bytes) -> ObjectRecord | None:
        try:
            return self._indexes.get(tier).object(oid)
        except (lmdb.Error, OSError) as error:
            self._index_failed(tier, error)
            return None

    def _record(self, tier: int, oid: bytes, chunk: int) -> ChunkRecord | None:
        try:
            return self._indexes.get(tier).chunk(oid, chunk)
        except (lmdb.Error, OSError) as error:
            self._index_failed(tier, error)
            return None

    def _index_failed(self, tier: int, error: Exception) -> None:
        self._indexes.drop(tier)
        self.tier_failed(tier, OSError(errno.EIO, f"the index cannot be read ({error})"))

    def _reopen(self, fill: Fill) -> None:
        """Fill again what the owner has not indexed yet."""
        for state in fill.chunks.values():
            if state.slot is not None:
                self.table.set_flags(state.slot, set_=ACTIVE)

    def _unreserve(self, fill: Fill) -> None:
        """Refund what was reserved and never put; leave the rest of each slot to the owner."""
        for chunk, state in fill.chunks.items():
            slot = state.slot
            if slot is None:
                continue
            unused = state.reserved & ~state.written
            state.reserved &= ~unused
            state.pending = 0
            if unused:
                self.table.unreserve(slot, unused)
            empty = state.overhead and not state.reserved and not self.table.progress(slot)[2]
            back = pages_cost(fill.size, chunk, unused) + (chunk_overhead(fill.size) if empty else 0)
            if empty:
                state.overhead = False
                self.table.set_flags(slot, clear=OVERHEAD_PAID)
            self.credit.refund(fill.place, back, 0)
            self.table.set_flags(slot, clear=ACTIVE)
            if not state.written:
                self._free(slot, fill, state)

    @staticmethod
    def _left(fill: Fill, chunk: int, state: ChunkState) -> bool:
        """Nothing more can come into this slot: its chunk is complete, or belongs to a file that is gone."""
        return state.present.bit_count() == chunk_pages(fill.size, chunk) or fill.chunks.get(chunk) is not state

    def _settled(self, slot: int, state: ChunkState) -> bool:
        present, committed, accounted = self.table.progress(slot)
        return present & ~committed == 0 and state.reserved & ~accounted == 0

    def _free(self, slot: int, fill: Fill, state: ChunkState) -> None:
        self.table.free(slot)
        del self._slots[slot]
        state.slot, state.reserved, state.written, state.overhead, state.inode = None, 0, 0, False, False
        if fill.users == 0 and not any(other.slot is not None for other in fill.chunks.values()):
            self._fills.pop(fill.oid, None)
