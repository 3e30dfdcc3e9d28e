"""How the reads of each data set went over the last minutes: what workers report and what is counted, made samples.

Bounded: a sample holds sums only, and is kept for KEEP_S. What they mean is decided in `whyslow.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from stoker.node.whyslow import COUNTED, Sample

SAMPLE_S = 2.0
KEEP_S = 900.0
MOST_DATA_SETS = 64
"""Data sets of which samples are kept; of those beyond the one that was read longest ago is forgotten."""

_LAG_S = 2.5  # by then all workers have told of a moment: they report each second
_MOST_READERS = 1024
_REMEMBERED_COUNTS = 3  # what is counted shows at once, who read it some seconds later
_PAUSE_S = 60.0  # a reader that asked for nothing for longer than this was not there meanwhile

Span = tuple[float, float]


@dataclass(slots=True)
class _Reader:
    first: float
    last: float
    waits: list[Span] = field(default_factory=list)


@dataclass(slots=True)
class _Pending:
    """What is known of a data set and not yet in a sample."""

    readers: dict[int, _Reader] = field(default_factory=dict)
    requests_s: float = 0.0

    def add(self, report: Mapping[str, Any]) -> None:
        self.requests_s += report["waited"] / 1e6
        for thread, first, last, flat in report["readers"]:
            if thread not in self.readers and len(self.readers) >= _MOST_READERS:
                continue
            reader = self.readers.setdefault(thread, _Reader(first / 1e6, last / 1e6))
            reader.first, reader.last = min(reader.first, first / 1e6), max(reader.last, last / 1e6)
            reader.waits += [(a / 1e6, b / 1e6) for a, b in zip(flat[::2], flat[1::2], strict=True)]

    def take(self, until: float) -> dict[int, _Reader]:
        """The readers up to a moment; what is later stays."""
        taken = {}
        for thread, reader in list(self.readers.items()):
            if reader.first > until:
                continue
            waits = [(a, min(b, until)) for a, b in reader.waits if a < until]
            taken[thread] = _Reader(reader.first, min(reader.last, until), waits)
            if reader.last <= until:
                del self.readers[thread]
            else:
                reader.first, reader.waits = until, [(max(a, until), b) for a, b in reader.waits if b > until]
        return taken


@dataclass(slots=True)
class _History:
    """The samples of a data set. `seen`: when each reader was seen last; `counts`: as they were at the last sample."""

    counts: Mapping[str, int]
    pending: _Pending = field(default_factory=_Pending)
    samples: deque[Sample] = field(default_factory=deque)
    seen: dict[int, float] = field(default_factory=dict)
    last: float = 0.0


class Paces:
    """Of all data sets. `counts()` gives what is counted of each, ever growing."""

    def __init__(self, workers: int, counts: Callable[[], Mapping[str, Mapping[str, int]]], now: float) -> None:
        self._counts = counts
        self._histories: dict[str, _History] = {}
        self._before = deque([counts()], maxlen=_REMEMBERED_COUNTS)
        self._worked = dict.fromkeys(range(workers), (0.0, 0.0))  # seconds at work, of how many
        self._sampled = now
        self.told = dict.fromkeys(range(workers), now)
        """When each worker reported last; its own clock, which is ours."""

    def heard(self, worker: int, message: Mapping[str, Any]) -> None:
        """A worker's report of a second."""
        at, (worked, of) = message["at"] / 1e6, self._worked.get(worker, (0.0, 0.0))
        self._worked[worker] = worked + message["busy"] / 1e6, of + max(0.0, at - self.told.get(worker, at))
        self.told[worker] = at
        for report in message["paces"]:
            self._history(report["dataSet"]).pending.add(report)

    def sample(self, now: float, lag_s: float = _LAG_S) -> None:
        """Make what happened since the last sample one, up to a moment ago."""
        counts = self._counts()
        self._before.append(counts)
        busy = prod(min(1.0, worked / of) if of else 0.0 for worked, of in self._worked.values())
        self._worked = dict.fromkeys(self._worked, (0.0, 0.0))
        for name, history in self._histories.items():
            self._sample(history, counts.get(name, history.counts), now, now - lag_s, busy)
        self._sampled = now

    def known(self) -> set[str]:
        """The data sets that were read lately."""
        return set(self._histories)

    def samples(self, data_set: str, since: float) -> list[Sample]:
        """Those that end after a moment, oldest first."""
        history = self._histories.get(data_set)
        return [sample for sample in history.samples if sample.stop > since] if history is not None else []

    def _sample(self, history: _History, counts: Mapping[str, int], now: float, until: float, busy: float) -> None:
        while history.samples and history.samples[0].stop < now - KEEP_S:
            history.samples.popleft()
        readers = history.pending.take(until)
        grown = {name: counts[name] - history.counts[name] for name in COUNTED}
        if not readers and not any(grown.values()):
            return
        requests_s, history.pending.requests_s = history.pending.requests_s, 0.0
        waited = sum(union_s(reader.waits) for reader in readers.values())
        reader_s = self._reader_s(history, readers)
        history.samples.append(Sample(self._sampled, now, reader_s, waited, requests_s, busy, len(readers), grown))
        history.counts = counts

    @staticmethod
    def _reader_s(history: _History, readers: Mapping[int, _Reader]) -> float:
        """Seconds of readers: each from where it was seen last, and one for the time between those that come and go."""
        spans = []
        for thread, reader in readers.items():
            before = history.seen.get(thread, reader.first)
            spans.append((before if reader.first - before <= _PAUSE_S else reader.first, reader.last))
            history.seen[thread] = reader.last
        history.seen = {t: last for t, last in history.seen.items() if history.last - last < _PAUSE_S}
        if not spans:
            return 0.0
        last = max(stop for _, stop in spans)
        begin = min(start for start, _ in spans)
        if history.last and 0 < begin - history.last <= _PAUSE_S:
            begin = history.last
        history.last = last
        return sum(stop - start for start, stop in spans) + (last - begin) - union_s(spans)

    def _history(self, data_set: str) -> _History:
        history = self._histories.pop(data_set, None)
        if history is None:
            if len(self._histories) >= MOST_DATA_SETS:
                del self._histories[next(iter(self._histories))]
            history = _History(self._before[0].get(data_set, dict.fromkeys(COUNTED, 0)))
        self._histories[data_set] = history
        return history


def union_s(spans: Iterable[Span]) -> float:
    """Seconds that are in at least one of the spans."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        if stop > end:
            total += stop - max(start, end)
            end = stop
    return total
