"""How many bytes all transfers of a fetcher may hold in memory at once. Arithmetic only; who waits: `lanes.py`."""

from __future__ import annotations

NODE_BYTES = 256 << 20
"""For all fetchers of a node together."""


class Budget:
    """`limit` bytes. What is larger than all of it is let through alone, so nothing waits for ever."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def fits(self, cost: int) -> bool:
        return self.used + cost <= self.limit or not self.used

    def take(self, cost: int) -> None:
        self.used += cost

    def give(self, cost: int) -> None:
        self.used -= cost
