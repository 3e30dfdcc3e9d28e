"""All counts of the node: of its processes, of living sessions, and of data sets whose sessions have ended.

What is shown never goes back: counts of an ended session are added to a row of its data set, in shared memory that
outlives the daemon as those of the other processes do. One writer: the daemon.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from stoker.cache.shares import Why
from stoker.fetch.counters import NAMES, Counter, Counters, Latency, Node, tag_of, total
from stoker.fetch.session import SessionSpec
from stoker.node.store import Entry

MOST_DATA_SETS = 1024
"""Data sets that one node can tell apart by name; those beyond are counted together."""
OTHERS = "(others)"

_NAME_BYTES = 512  # 63 of a namespace, a slash, 253 of a name
_COUNTS_AT = 64
_WORDS = 128
_HEADER_WORDS = 512
_COUNT = len(Counter)
_BYTES = 8 * (_HEADER_WORDS + (MOST_DATA_SETS + 1) * _WORDS)
# Header: row + 1 of a change that is being made (0: none), the tag of the session it is about, its new counts.
_CHANGING, _ABOUT, _NEW = 0, 1, 8

Row = dict[str, int]


def create_past() -> int:
    """A memfd for the counts of what has ended."""
    fd = os.memfd_create("stoker-past", os.MFD_CLOEXEC)
    os.ftruncate(fd, _BYTES)
    return fd


class Past:
    """The rows of data sets. A change that a death interrupted is finished by the next daemon."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, _BYTES)
        self._words = memoryview(self._map).cast("Q")
        self._rows: dict[str, int] = {}
        for row in range(MOST_DATA_SETS + 1):
            if (name := self._name(row)) == "":
                break
            self._rows[name] = row
        if changing := self._words[_CHANGING]:
            self._finish(changing - 1)

    def all(self) -> dict[str, Row]:
        return {name: self._read(row) for name, row in self._rows.items()}

    def last(self) -> int:
        """The tag of the session that was added last: should its end be told again, it is in here already."""
        return self._words[_ABOUT]

    def add(self, data_set: str, counts: Row, session: str) -> None:
        row = self._row(data_set)
        before = self._read(row)
        for counter, name in NAMES.items():
            self._words[_NEW + counter] = before[name] + counts[name]
        self._words[_CHANGING] = row + 1
        self._finish(row)
        self._words[_ABOUT] = tag_of(session)

    def _finish(self, row: int) -> None:
        at = self._at(row) + _COUNTS_AT
        self._words[at : at + _COUNT] = self._words[_NEW : _NEW + _COUNT]
        self._words[_CHANGING] = 0

    def _row(self, data_set: str) -> int:
        if data_set not in self._rows:
            row = len(self._rows)
            name = data_set if row < MOST_DATA_SETS else OTHERS
            if name not in self._rows:
                encoded = name.encode()[:_NAME_BYTES]
                start = 8 * self._at(row)
                self._map[start : start + len(encoded)] = encoded
                self._rows[name] = row
            return self._rows[name]
        return self._rows[data_set]

    def _read(self, row: int) -> Row:
        at = self._at(row) + _COUNTS_AT
        words = self._words[at : at + _COUNT].tolist()
        return {name: words[counter] for counter, name in NAMES.items()}

    def _name(self, row: int) -> str:
        start = 8 * self._at(row)
        return bytes(self._map[start : start + _NAME_BYTES]).rstrip(b"\0").decode()

    @staticmethod
    def _at(row: int) -> int:
        return _HEADER_WORDS + row * _WORDS


@dataclass(slots=True)
class _Ended:
    """A session that has ended, and what of its counts is in the past: some still come, of what was on its way."""

    spec: SessionSpec
    added: Row


class Counting:
    """`living` names the sessions there are. `own` are the counts that the daemon itself writes."""

    def __init__(self, entries: dict[str, Entry], living: Callable[[], Iterable[SessionSpec]]) -> None:
        self._living = living
        self._past = Past(entries["past"].fds["past"])
        self._processes = {
            (role, int(index)): Counters(entry.fds["counters"])
            for key, entry in entries.items()
            if key.startswith("counters.")
            for _, role, index in [key.split(".")]
        }
        self._ended: dict[int, _Ended] = {}
        self.own = self._processes["daemon", 0]
        self.own.tally(Node.STARTS)

    def of(self, spec: SessionSpec) -> Row:
        """What was read through one session, over all processes."""
        return total(counters.read(spec.slot, spec.id) for counters in self._processes.values())

    def ended(self, spec: SessionSpec) -> None:
        """Its slot may be given away from now on."""
        self._add_late(spec.slot)
        counts = self.of(spec)
        if self._past.last() != tag_of(spec.id):
            self._past.add(spec.data_set, counts, spec.id)
        self._ended[spec.slot] = _Ended(spec, counts)

    def began(self, spec: SessionSpec) -> None:
        """Its slot may have been that of another one."""
        self._add_late(spec.slot)
        self._ended.pop(spec.slot, None)

    def settle(self) -> None:
        """Now and then: what came after the end of a session."""
        for slot in list(self._ended):
            self._add_late(slot)

    def _add_late(self, slot: int) -> None:
        if (ended := self._ended.get(slot)) is None:
            return
        now = self.of(ended.spec)
        late = {name: max(0, now[name] - ended.added[name]) for name in now}
        if any(late.values()):
            self._past.add(ended.spec.data_set, late, ended.spec.id)
            ended.added = now

    def by_data_set(self) -> dict[str, Row]:
        """Counts since the node began."""
        self.settle()
        found = self._past.all()
        for spec in self._living():
            if self._past.last() == tag_of(spec.id):
                continue  # its end was interrupted by a death, and is about to be noticed
            name = spec.data_set if spec.data_set in found or len(found) < MOST_DATA_SETS else OTHERS
            found[name] = total([found.get(name, {}), self.of(spec)])
        return found

    def count_bad_pages(self, pages: int) -> None:
        """Found by a check, not by a read."""
        self.own.tally(Node.BAD_PAGES, pages)

    def count_listing(self, status: int, count: int) -> None:
        """Requests of an index job that were answered so."""
        self.own.tally(Node(Node.LISTED_2XX + max(0, min(status // 100 - 2, 3))), count)

    def told(self, what: Node, roles: Sequence[str]) -> int:
        return sum(counters.told(what) for (role, _), counters in self._processes.items() if role in roles)

    def told_by_each(self, what: Node) -> dict[tuple[str, int], int]:
        return {process: counters.told(what) for process, counters in self._processes.items()}

    def ops(self) -> list[int]:
        return [sum(counts) for counts in zip(*(c.ops() for c in self._processes.values()), strict=True)]

    def evictions(self) -> dict[Why, tuple[int, int]]:
        return self.own.evictions()

    def latency(self, latency: Latency) -> tuple[list[int], int]:
        """Count of each bucket, and the sum in microseconds."""
        found = [counters.latency(latency) for counters in self._processes.values()]
        return [sum(counts) for counts in zip(*(buckets for buckets, _ in found), strict=True)], sum(
            s for _, s in found
        )
