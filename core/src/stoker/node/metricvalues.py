"""Where the values of metrics come from: functions from the facts of a node to labels and numbers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from stoker.cache.amount import Amount
from stoker.cache.usage import TierUsage
from stoker.fetch.counters import OPS, Node
from stoker.fuse.protocol import Op
from stoker.node.counting import MOST_DATA_SETS, OTHERS, Counting

US = 1e-6
TIER_STATES = ("ok", "recovering", "full", "failing")
PHASES = ("Pending", "Running", "Succeeded", "PartiallySucceeded", "Failed", "Cancelled")
STATUSES = ("none", "2xx", "3xx", "4xx", "5xx")
_OPS = {int(op): op.name.lower() for op in Op}

Values = Iterable[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is looked at for one answer. `cached`, `pinned`: bytes and inodes by data set and tier."""

    counting: Counting
    tiers: list[TierUsage]
    cached: Mapping[tuple[str, int], tuple[int, int]]
    pinned: Mapping[tuple[str, int], tuple[int, int]]
    mounts: int
    phases: Mapping[str, int]
    slots: tuple[int, int]
    version: str
    started: float


def by_data_set(*columns: tuple[str, tuple[str, ...]], scale: float = 1) -> Callable[[Facts], Values]:
    """Counts of each data set: a label value (empty: no label) and the counts that make it."""

    def values(facts: Facts) -> Iterator[tuple[tuple[str, ...], float]]:
        for name, row in facts.counting.by_data_set().items():
            for label, counts in columns:
                yield (name, label) if label else (name,), sum(row[count] for count in counts) * scale

    return values


def one(look: Callable[[Facts], float]) -> Callable[[Facts], Values]:
    return lambda facts: [((), look(facts))]


def tiers(look: Callable[[TierUsage], float]) -> Callable[[Facts], Values]:
    return lambda facts: [((str(number),), look(tier)) for number, tier in enumerate(facts.tiers)]


def disk_states(facts: Facts) -> Values:
    return [
        ((str(number), state), float(tier.state == state))
        for number, tier in enumerate(facts.tiers)
        for state in TIER_STATES
    ]


def disk_faults(facts: Facts) -> Values:
    return [((str(number), str(tier.reason)), 1.0) for number, tier in enumerate(facts.tiers) if tier.reason]


def listing(facts: Facts) -> Values:
    return [
        ((status,), facts.counting.own.told(Node(Node.LISTED_NONE + place)))
        for place, status in enumerate(STATUSES[1:], start=1)
    ]


def evictions(what: int) -> Callable[[Facts], Values]:
    return lambda facts: [((one.name,), counts[what]) for one, counts in facts.counting.evictions().items()]


def ops(facts: Facts) -> Values:
    counts = facts.counting.ops()
    known = [((name,), float(counts[op])) for op, name in _OPS.items()]
    return [*known, (("other",), sum(counts[op] for op in range(OPS) if op not in _OPS))]


def bad_pages(facts: Facts) -> Values:
    read = sum(row["bad_pages"] for row in facts.counting.by_data_set().values())
    return [(("read",), read), (("check",), facts.counting.own.told(Node.BAD_PAGES))]


def restarts(facts: Facts) -> Values:
    sums = dict.fromkeys(("daemon", "worker", "fetcher"), 0)
    for (role, _index), starts in facts.counting.told_by_each(Node.STARTS).items():
        sums[role] += max(0, starts - 1)
    sums["supervisor"] = facts.counting.told(Node.SUPERVISORS, ("daemon", "worker"))
    return [((role,), count) for role, count in sums.items()]


def bounded(held: Mapping[tuple[str, int], Amount]) -> dict[tuple[str, int], tuple[int, int]]:
    """Bytes and inodes of cached data sets: an index may know many that were mounted long ago. The largest by name."""
    order = sorted(held, key=lambda key: held[key].bytes, reverse=True)
    named = set(list(dict.fromkeys(name for name, _ in order))[:MOST_DATA_SETS])
    sums: dict[tuple[str, int], tuple[int, int]] = {}
    for (name, tier), amount in held.items():
        key = (name if name in named else OTHERS, tier)
        nbytes, inodes = sums.get(key, (0, 0))
        sums[key] = nbytes + amount.bytes, inodes + amount.inodes
    return sums


def cached(what: int) -> Callable[[Facts], Values]:
    return lambda facts: [((name, str(tier)), both[what]) for (name, tier), both in facts.cached.items()]


def pinned(what: int) -> Callable[[Facts], Values]:
    return lambda facts: [((name, str(tier)), both[what]) for (name, tier), both in facts.pinned.items()]
