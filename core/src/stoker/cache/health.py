"""Whether a tier takes data: what owner and fetchers met on its disk, made into one fault that is told once."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

from stoker.api.reasons import Reason

SETTLED_S = 2.0
"""A fault is over when nobody met it for this long: on a disk that is just about full writes succeed now and then."""

_WORST_FIRST = (Reason.CacheDiskFailing, Reason.CacheFull)


class Health:
    """The faults of one tier. `tell(reason, message)` hears of the first, of a worse one, and of the end of all."""

    def __init__(self, tell: Callable[[Reason, str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._clock = clock
        self._faults: dict[Hashable, Reason] = {}
        self._told: Reason | None = None
        self._last = 0.0

    @property
    def state(self) -> str:
        """`ok`, `full` or `failing`."""
        return {None: "ok", Reason.CacheFull: "full"}.get(self._told, "failing")

    @property
    def reason(self) -> Reason | None:
        """The word for the state; None when all is well."""
        return self._told

    def bad(self, who: Hashable, reason: Reason, message: str) -> None:
        """The disk refused `who`."""
        self._faults[who] = reason
        self._last = self._clock()
        worst = self._worst()
        if self._told is None or (worst is not None and _rank(worst) < _rank(self._told)):
            self._told = worst
            self._tell(reason, message)

    def good(self, who: Hashable) -> None:
        """It works again for `who`."""
        if self._faults.pop(who, None) is not None:
            self._last = self._clock()

    def clear(self) -> None:
        """It is another disk now: what anybody met on the old one is over."""
        self._faults.clear()
        self._last = self._clock()

    def settle(self) -> None:
        """Call it now and then: a fault that is over is told as over."""
        if self._told is not None and not self._faults and self._clock() - self._last >= SETTLED_S:
            self._told = None
            self._tell(Reason.CacheRecovered, "the disk takes data again; reads are cached")

    def _worst(self) -> Reason | None:
        return next((reason for reason in _WORST_FIRST if reason in self._faults.values()), None)


def _rank(reason: Reason) -> int:
    return _WORST_FIRST.index(reason)
