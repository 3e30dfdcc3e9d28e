"""Room on a disk: bytes and inodes, added and compared together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Amount:
    """Bytes of disk and inodes."""

    bytes: int = 0
    inodes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.bytes + other.bytes, self.inodes + other.inodes)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.bytes - other.bytes, self.inodes - other.inodes)

    def at_least_nothing(self) -> Amount:
        return Amount(max(self.bytes, 0), max(self.inodes, 0))

    def smaller(self, other: Amount) -> Amount:
        """The lesser of each."""
        return Amount(min(self.bytes, other.bytes), min(self.inodes, other.inodes))


NOTHING = Amount()


def total(amounts: Iterable[Amount]) -> Amount:
    """All of them together."""
    nbytes = inodes = 0
    for amount in amounts:
        nbytes += amount.bytes
        inodes += amount.inodes
    return Amount(nbytes, inodes)
