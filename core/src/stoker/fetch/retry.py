"""Whether, and when, a failed request is made again; and how fast a store that says `slow down` is asked. Pure:
clock and randomness come from outside.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from stoker.api.reasons import Reason
from stoker.sources.base import SourceError

FIRST_WAIT_S, LAST_WAIT_S = 0.1, 10.0
"""0.1 s lets a restarted server come back; seven waits make 6 to 13 s in all."""

HALVE_EVERY_S = 1.0
"""One burst of refusals is one signal: the rate is halved for it once."""

HOLD_S = 0.1
"""After a refusal without Retry-After, all requests to the store pause this long."""


@dataclass(frozen=True, slots=True)
class Patience:
    """`retries` after the first try, `deadline_s` in all, `timeout_s` without a byte. Progress starts both anew."""

    retries: int
    deadline_s: float
    timeout_s: float


class Retry:
    """The tries of one range, over all its requests."""

    def __init__(
        self,
        patience: Patience,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.patience = patience
        self._clock = clock
        self._jitter = jitter
        self.progress()

    def progress(self) -> None:
        """Bytes came that need not be asked for again."""
        self._failures = self._refusals = 0
        self._deadline = self._clock() + self.patience.deadline_s

    def wait_after(self, error: SourceError) -> float | None:
        """Seconds until the next try; None when there is none. Refusals for load do not count as failures: they end
        with the deadline only."""
        if not error.retryable:
            return None
        if error.reason is Reason.Throttled:
            self._refusals += 1
        else:
            self._failures += 1
            if self._failures > self.patience.retries:
                return None
        tries = self._failures + self._refusals
        wait = min(LAST_WAIT_S, FIRST_WAIT_S * 2 ** (tries - 1)) * (0.5 + self._jitter() / 2)
        wait = max(wait, error.retry_after_s)
        return wait if self._clock() + wait < self._deadline else None


class Rate:
    """How many requests one store gets at once: all, until it refuses; then half as many, and one more per round."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.running = 0
        self.limit = math.inf
        self._held_until = 0.0
        self._halved_at = -math.inf
        self._before = 0.0

    def hold_s(self) -> float:
        """Seconds until the store may be asked again; 0 when it may now."""
        return max(0.0, self._held_until - self._clock())

    def fits(self) -> bool:
        return self.running < self.limit and not self.hold_s()

    def refused(self, retry_after_s: float) -> None:
        """The store said: slow down."""
        now = self._clock()
        self._held_until = max(self._held_until, now + (retry_after_s or HOLD_S))
        if now - self._halved_at < HALVE_EVERY_S:
            return
        self._halved_at = now
        self._before = max(self._before, float(self.running))
        self.limit = max(1.0, min(self.limit, self.running) / 2)

    def succeeded(self) -> None:
        """An answer came. Without a refusal on the way up to twice what was too much, there is no limit again."""
        if self.limit < math.inf:
            self.limit += 1 / self.limit
            if self.limit > 2 * self._before:
                self.limit, self._before = math.inf, 0.0
