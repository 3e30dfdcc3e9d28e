"""Who reads an object in order, and how far ahead that has earned. Pure: no clock, no I/O.

A fetcher sees misses, and notes from readers that reach a trigger page; never the hits. So a stream is fed by triggers:
when its reader reaches the middle of what lies ahead, the window grows and the next part is fetched. Once the window
is at its largest it is kept full range by range: ranges that begin together end together, and a link would rest until
the next ones begin.
"""

from __future__ import annotations

from dataclasses import dataclass

from stoker.cache.layout import PAGE
from stoker.fetch.plan import RANGE_PAGES

MOST_RUNS = 16
"""Readers of one object at different places that are told apart; the least recently seen is forgotten first."""

EARN_REQUESTS = 6
EARN_PAGES = (768 << 10) // PAGE
"""A run of touching requests is a stream after 6 requests, or 2 that make 768 KiB. Earlier would be wrong: the kernel
makes up to 4 touching requests of 128 KiB of one random read of 256 KiB (nobody waits for the last of them), and a
window of 2 MiB behind each would fetch 10 times what is read."""

EARN_AT_START = 2
"""Of a run that begins where the object does: random readers rarely begin there, and programs that only look at a
header make one request of less than 128 KiB."""

GROWTH = 4
"""How many times larger the window is at each trigger: at 20 ms of latency each step is a pause."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """Fetch [first, last) before it is asked for; the reader that reaches page `trigger` should tell, and at each range
    that begins behind it."""

    first: int
    last: int
    trigger: int | None


@dataclass(slots=True)
class _Run:
    """Pages [low, high) that were asked for without a gap. A stream once `window` > 0: then all below `ahead` is
    fetched or being fetched. `grown`: how often a request began where the run ended."""

    low: int
    high: int
    requests: int = 1
    grown: int = 0
    window: int = 0
    ahead: int = 0
    trigger: int | None = None

    def distance(self, first: int) -> int | None:
        """How far from the reader's place a request lies; None when it is not this stream's."""
        inside = self.window and self.high - self.window <= first <= self.ahead + EARN_PAGES
        return abs(first - self.high) if inside else None


class Streams:
    """The streams of one object of `pages` pages. `block`: the first window, `most`: the largest, in pages."""

    def __init__(self, pages: int, block: int, most: int) -> None:
        self._pages = pages
        self._block = min(block, most)
        self._most = most
        self._runs: list[_Run] = []

    def seen(self, first: int, last: int) -> Ahead | None:
        """A reader asked for the pages [first, last), or reached them. What that has earned, if anything new."""
        if not self._most:
            return None
        stream = self._stream_at(first)
        if stream is None:
            return self._candidate(first, last)
        self._most_recent(stream)
        stream.high = max(stream.high, last)
        if stream.trigger is None or stream.high <= stream.trigger:
            return None if stream.high <= stream.ahead else self._extend(stream)
        stream.window = min(GROWTH * stream.window, self._most)
        return self._extend(stream)

    def _stream_at(self, first: int) -> _Run | None:
        near = [(d, n) for n, run in enumerate(self._runs) if (d := run.distance(first)) is not None]
        return self._runs[min(near)[1]] if near else None

    def _candidate(self, first: int, last: int) -> Ahead | None:
        run = self._grown_by(first, last) or self._begun(first, last)
        for other in self._runs:
            # Requests overtake each other on their way through the workers: one that came too early closes up here.
            if other is not run and other.requests == 1 and other.low - 1 <= run.high <= other.low and not other.window:
                run.high, run.requests = max(run.high, other.high), run.requests + 1
                self._runs.remove(other)
                break
        enough = run.requests >= (EARN_REQUESTS if run.low else EARN_AT_START) or run.high - run.low >= EARN_PAGES
        if not run.grown or not enough:
            return None
        run.window = self._block
        return self._extend(run)

    def _grown_by(self, first: int, last: int) -> _Run | None:
        run = next((run for run in self._runs if not run.window and run.high - 1 <= first <= run.high), None)
        if run is None:
            return None
        self._most_recent(run)
        if last > run.high:
            run.high = last
            run.requests += 1
            run.grown += 1
        return run

    def _begun(self, first: int, last: int) -> _Run:
        if len(self._runs) == MOST_RUNS:
            self._runs.pop(0)
        run = _Run(first, last)
        self._runs.append(run)
        return run

    def _most_recent(self, run: _Run) -> None:
        self._runs.remove(run)
        self._runs.append(run)

    def _extend(self, run: _Run) -> Ahead | None:
        step = run.window // 2 if run.window < self._most else min(run.window // 2, RANGE_PAGES)
        target, trigger = run.high + run.window, run.high + max(1, step)
        if run.window >= 2 * RANGE_PAGES:
            # Whole ranges: what is left of one would be a request of its own.
            target, trigger = (page - page % RANGE_PAGES for page in (target, trigger))
        target = min(self._pages, target)
        begin = max(run.ahead, run.high)
        run.ahead = max(run.ahead, target)
        # At the end of the object there is nothing behind the window to fetch, and nothing to tell.
        run.trigger = trigger if target < self._pages else None
        return Ahead(begin, target, run.trigger) if begin < target else None
