"""The owner's writes of pins, and how much room they ask for. docs/design/cache.md, Pins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from stoker.cache.amount import NOTHING, Amount
from stoker.cache.edit import IndexEdit
from stoker.cache.index import IndexTxn
from stoker.cache.jobs import IndexJob
from stoker.cache.layout import object_cost
from stoker.cache.ledger import HEIR
from stoker.cache.record import pin_key

PINS_OF_A_JOB = 4096
_LOOKED_AT = 16 * PINS_OF_A_JOB

Wanted = tuple[bytes, int]
"""(object id, size)."""


@dataclass
class PinJob(IndexJob):
    """One batch of pins of one DataSet. What is cached already and charged to another is charged to it, as far as
    `budget` goes: who pins a file pays for it."""

    pinner: int = 0
    mark: int = 0
    wanted: Sequence[Wanted] = ()
    budget: Amount = NOTHING

    def reserve(self, budget: Amount) -> None:
        """Keep room in the pinner's account for what it will be charged for."""
        self.budget = budget
        outstanding = self.tier.ledger.outstanding
        outstanding[HEIR, self.pinner] = outstanding.get((HEIR, self.pinner), Amount()) + budget

    def change(self, edit: IndexEdit) -> None:
        left, now = self.budget, int(self.tier.wall())
        for oid, size in self.wanted:
            edit.use(oid, now, self.pinner)
            edit.pin(oid, size, self.pinner, self.mark)
            taken = edit.take_over(oid, self.pinner, left)
            left -= taken

    def settle(self) -> None:
        super().settle()
        self.tier.ledger.settle(HEIR, self.pinner, self.budget)


@dataclass
class UnpinJob(IndexJob):
    """The next batch of pins of one DataSet that do not have its mark any more. `next_start` None: that was all."""

    pinner: int = 0
    mark: int = 0
    start: bytes = field(default_factory=lambda: pin_key(bytes(20), 0))
    next_start: bytes | None = None

    def change(self, edit: IndexEdit) -> None:
        stale: list[Wanted] = []
        for looked, (key, oid, pinner, pin) in enumerate(edit.txn.pins_from(self.start)):
            if len(stale) == PINS_OF_A_JOB or looked == _LOOKED_AT:
                self.next_start = key
                break
            if pinner == self.pinner and pin.mark != self.mark:
                stale.append((oid, pin.size))
        for oid, size in stale:
            edit.unpin(oid, size, self.pinner)


def cost_of(wanted: Iterable[Wanted]) -> Amount:
    """What objects take when all of them are cached."""
    nbytes = inodes = 0
    for _oid, size in wanted:
        nbytes += object_cost(size)
        inodes += 1
    return Amount(nbytes, inodes)


def new_to_all(txn: IndexTxn, wanted: Iterable[Wanted], pinner: int) -> Amount:
    """The part of objects that nobody else has pinned."""
    return cost_of((oid, size) for oid, size in wanted if not txn.pinners(oid).keys() - {pinner})


def only_of(txn: IndexTxn, pinner: int) -> Amount:
    """What the pins of one DataSet take that nobody else has pinned, too."""
    rows = ((oid, whose, pin.size) for _key, oid, whose, pin in txn.pins_from(pin_key(bytes(20), 0)))
    found = []
    for oid, group in groupby(rows, key=lambda row: row[0]):
        pins = list(group)
        if [whose for _oid, whose, _size in pins] == [pinner]:
            found.append((oid, pins[0][2]))
    return cost_of(found)
