"""Memory that answers may hold together: who wants more than is left waits, first come first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from stoker.fetch.budget import Budget


class Room:
    """`limit` bytes. What is larger than all of it is let through alone."""

    def __init__(self, limit: int) -> None:
        self._budget = Budget(limit)
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, count: int) -> Callable[[], None]:
        """Wait for room; the function that gives it back, which may be called again."""
        if self._waiting or not self._budget.fits(count):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((count, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._give(count)
                raise
        else:
            self._budget.take(count)
        given = False

        def give() -> None:
            nonlocal given
            if not given:
                given = True
                self._give(count)

        return give

    def _give(self, count: int) -> None:
        self._budget.give(count)
        while self._waiting and (self._waiting[0][1].done() or self._budget.fits(self._waiting[0][0])):
            count, turn = self._waiting.popleft()
            if not turn.done():
                self._budget.take(count)
                turn.set_result(None)
