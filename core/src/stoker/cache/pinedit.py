"""The part of an edit of the index that knows pins: who pins what, and the sums over pins, cached or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stoker.cache.index import IndexTxn
from stoker.cache.layout import object_cost
from stoker.cache.record import ObjectRecord, OwnerRecord, PinRecord, Totals

NOBODY: Mapping[int, PinRecord] = {}


@dataclass(frozen=True, slots=True)
class _Counted:
    """What the sums say of one object: who pins it, what it takes on disk (None: it is not cached), who is charged."""

    pinners: tuple[int, ...]
    accounted: int | None
    payer: int

    @classmethod
    def of(cls, pinners: Mapping[int, PinRecord], record: ObjectRecord | None) -> _Counted:
        return cls(tuple(pinners), None if record is None else record.accounted, 0 if record is None else record.payer)


@dataclass(slots=True)
class _Touched:
    size: int
    before: _Counted
    pinners: dict[int, PinRecord]


@dataclass(slots=True)
class PinEdit:
    """`owner` gives the sums of a DataSet to be changed. Where nothing is pinned it costs nothing."""

    txn: IndexTxn
    totals: Totals
    owner: Callable[[int], OwnerRecord]
    _touched: dict[bytes, _Touched] = field(default_factory=dict)

    def seen(self, oid: bytes, size: int, record: ObjectRecord | None) -> None:
        """An object is looked at for the first time, before anything of it is changed."""
        if self.totals.pinned_inodes and oid not in self._touched:
            self._look(oid, size, record)

    def pinned(self, oid: bytes) -> bool:
        """Whether somebody pins it. Of an object that was `seen`."""
        touched = self._touched.get(oid)
        return touched is not None and bool(touched.pinners)

    def pin(self, oid: bytes, size: int, record: ObjectRecord | None, pinner: int, mark: int) -> None:
        """A DataSet pins an object, or does so still."""
        touched = self._touched.get(oid) or self._look(oid, size, record)
        pin = PinRecord(size, mark)
        touched.pinners[pinner] = pin
        self.txn.put_pin(oid, pinner, pin)

    def unpin(self, oid: bytes, size: int, record: ObjectRecord | None, pinner: int) -> None:
        """A DataSet does not pin an object any more."""
        touched = self._touched.get(oid) or self._look(oid, size, record)
        if touched.pinners.pop(pinner, None) is not None:
            self.txn.drop_pin(oid, pinner)

    def finish(self, record_of: Callable[[bytes], ObjectRecord | None]) -> None:
        """Bring the sums up to what the objects are now."""
        for oid, touched in self._touched.items():
            after = _Counted.of(touched.pinners, record_of(oid))
            if after != touched.before:
                self._count(touched.before, touched.size, -1)
                self._count(after, touched.size, 1)

    def _look(self, oid: bytes, size: int, record: ObjectRecord | None) -> _Touched:
        pinners = self.txn.pinners(oid)
        touched = self._touched[oid] = _Touched(size, _Counted.of(pinners, record), pinners)
        return touched

    def _count(self, counted: _Counted, size: int, sign: int) -> None:
        if not counted.pinners:
            return
        cost = object_cost(size)
        filled = None if counted.accounted is None else min(counted.accounted, cost)
        everybody: list[Totals | OwnerRecord] = [self.totals, *map(self.owner, counted.pinners)]
        for sums in everybody:
            sums.pinned_bytes += sign * cost
            sums.pinned_inodes += sign
            if filled is not None:
                sums.filled_bytes += sign * filled
                sums.filled_inodes += sign
        if counted.accounted is not None:
            payer = self.owner(counted.payer)
            payer.unmovable_bytes += sign * counted.accounted
            payer.unmovable_inodes += sign
