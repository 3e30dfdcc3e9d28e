"""The indexes of all tiers as one process reads them: opened when needed, and again when replaced."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from stoker.cache.index import IndexReader

LOOK_S = 0.5
"""How often it is looked whether an index is still that of its folder, which somebody may have removed."""


class Indexes:
    """One thread; `get` raises lmdb.Error or OSError when an index cannot be opened: `drop` it then."""

    def __init__(self, roots: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._roots = tuple(roots)
        self._clock = clock
        self._open: list[IndexReader | None] = [None] * len(self._roots)
        self._look_at = [0.0] * len(self._roots)

    def get(self, tier: int) -> IndexReader:
        index, now = self._open[tier], self._clock()
        if index is not None and now >= self._look_at[tier]:
            self._look_at[tier] = now + LOOK_S
            if not index.in_place():
                self.drop(tier)
                index = None
        if index is None:
            index = self._open[tier] = IndexReader(self._roots[tier])
        return index

    def drop(self, tier: int) -> None:
        index, self._open[tier] = self._open[tier], None
        if index is not None:
            index.close()

    def close(self) -> None:
        for tier in range(len(self._open)):
            self.drop(tier)
