"""Memory that answers may hold together: who wants more than is left waits, first come first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Room:
    """`limit` bytes. What is larger than all of it is let through alone."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, count: int) -> Callable[[], None]:
        """Wait for room; the function that gives it back, which may be called again."""
        if self._waiting or not self._fits(count):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((count, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._give(count)
                raise
        else:
            self._used += count
        given = False

        def give() -> None:
            nonlocal given
            if not given:
                given = True
                self._give(count)

        return give

    def _fits(self, count: int) -> bool:
        return self._used + count <= self._limit or not self._used

    def _give(self, count: int) -> None:
        self._used -= count
        while self._waiting and (self._waiting[0][1].done() or self._fits(self._waiting[0][0])):
            count, turn = self._waiting.popleft()
            if not turn.done():
                self._used += count
                turn.set_result(None)
