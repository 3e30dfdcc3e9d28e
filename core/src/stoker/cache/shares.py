"""Which DataSet gives how much when room is needed: a pure choice (docs/design/cache.md, Eviction)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from stoker.cache.amount import Amount, total


class Why(StrEnum):
    """Why an object was evicted; new ones stand at the end, because counts are kept by their place."""

    Ttl = "Ttl"
    """Not used for longer than its DataSet's `cache.ttl`."""
    Quota = "Quota"
    """Its DataSet is at its own limit."""
    Unreferenced = "Unreferenced"
    """Of a DataSet that this node does not know any more."""
    Priority = "Priority"
    """Room for a DataSet of higher priority."""
    Lru = "Lru"
    """Least recently used among equals."""
    Generation = "Generation"
    """Of an older generation of its DataSet, and of no other that is current or mounted."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What one DataSet holds of a disk, as far as it can be evicted. `live`: somebody has it mounted."""

    account: int
    held: Amount
    priority: int = 100
    live: bool = False
    known: bool = True


@dataclass(frozen=True, slots=True)
class Share:
    """What one DataSet has to give."""

    account: int
    amount: Amount
    why: Why


def eligible(claims: Sequence[Claim], highest: int | None) -> list[Claim]:
    """Those that may have to give for one of priority `highest`; None: all, because too much is held in any case."""
    return [c for c in claims if not c.known or highest is None or c.priority <= highest]


def shares(claims: Sequence[Claim], needed: Amount, highest: int | None) -> list[Share]:
    """Who gives what until `needed` is there: unknown ones first, then by priority; of these the unmounted first.

    Among equals the largest give, down to one common level: nobody is pushed below what all of them can have.
    """
    found: list[Share] = []
    top = max([c.priority for c in claims if c.known] + [highest or 0])
    left = needed
    for group in _groups(eligible(claims, highest)):
        if left == Amount():
            break
        nbytes = above_level([c.held.bytes for c in group], left.bytes)
        inodes = above_level([c.held.inodes for c in group], left.inodes)
        for claim, *amount in zip(group, nbytes, inodes, strict=True):
            if any(amount):
                why = Why.Unreferenced if not claim.known else Why.Priority if claim.priority < top else Why.Lru
                found.append(Share(claim.account, Amount(*amount), why))
        left = (left - Amount(sum(nbytes), sum(inodes))).at_least_nothing()
    return found


def above_level(held: Sequence[int], needed: int) -> list[int]:
    """What each gives: all above one level, chosen so that together it is `needed`, or everything."""
    if needed >= sum(held):
        return list(held)
    taken = 0
    ordered = sorted(held, reverse=True)
    for count, value in enumerate(ordered, 1):
        step = (value - (ordered[count] if count < len(ordered) else 0)) * count
        if taken + step >= needed:
            level = value - -(-(needed - taken) // count)
            return [max(0, value - level) for value in held]
        taken += step
    return list(held)


def goal(claims: Sequence[Claim], wanted: Amount, needed: Amount, low: float) -> Amount:
    """How much to free at once when `wanted` was refused and `needed` would bring the whole disk to its low mark: of
    those that may have to give, the same part as of the whole, so that few are not emptied for the rest."""
    held, least = total(claim.held for claim in claims), wanted.smaller(needed)
    part = Amount(int(held.bytes * (1 - low)), int(held.inodes * (1 - low))).smaller(needed)
    return Amount(max(part.bytes, least.bytes), max(part.inodes, least.inodes))


def _groups(claims: Sequence[Claim]) -> Iterator[list[Claim]]:
    """Those that give together, first those that give first."""

    def rank(claim: Claim) -> tuple[bool, int, bool]:
        return claim.known, claim.priority if claim.known else 0, claim.live and claim.known

    for key in sorted({rank(claim) for claim in claims}):
        yield [claim for claim in claims if rank(claim) == key]
