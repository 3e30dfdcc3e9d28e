"""From presence tables to work for the index: which pages are new, and what their commit settles. No index here."""

from __future__ import annotations

from stoker.cache.amount import Amount
from stoker.cache.edit import SlotWork
from stoker.cache.layout import chunk_overhead, chunk_pages, pages_cost
from stoker.cache.presence import INODE_PAID, OVERHEAD_PAID, PresenceTable, Snapshot


def take_work(table: PresenceTable, fetcher: int, dead: bool = False) -> list[SlotWork]:
    """What a table holds that is not in the index.

    Of a slot in use only published pages count; of one that is left, or whose fetcher is `dead`, also pages that were
    reserved and may hold blocks.
    """
    works = []
    for slot in table.occupied():
        snapshot = table.snapshot(slot, dead)
        if snapshot is None:
            continue
        present = snapshot.present & ~snapshot.committed
        left = dead or not snapshot.active
        held = present | (snapshot.reserved & ~snapshot.accounted if left else 0)
        if held:
            crcs = table.crcs(slot, chunk_pages(snapshot.size, snapshot.chunk)) if present else []
            works.append(SlotWork(fetcher, snapshot, present, held, crcs))
    return works


def settlement(snapshot: Snapshot, held: int, before: int) -> Amount:
    """The credit that was spent on what is now indexed: what was reserved and not accounted `before`, and with a slot's
    first pages what the slot says was paid beside them."""
    nbytes = pages_cost(snapshot.size, snapshot.chunk, held & snapshot.reserved & ~before)
    if before:
        return Amount(nbytes, 0)
    overhead = chunk_overhead(snapshot.size) if snapshot.flags & OVERHEAD_PAID else 0
    return Amount(nbytes + overhead, 1 if snapshot.flags & INODE_PAID else 0)
