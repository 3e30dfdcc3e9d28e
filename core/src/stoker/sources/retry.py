"""Trying again while a source is listed, where that helps. Reads are not tried again here: who fetches decides that."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from stoker.api.reasons import Reason
from stoker.sources.base import SourceError

TRIES = 5
DEADLINE_S = 60.0
UNREACHED_DEADLINE_S = 20.0  # for a store that never answered: a wrong endpoint is found out soon
_LONGEST_WAIT_S = 10.0

T = TypeVar("T")


async def persistently(once: Callable[[], Awaitable[T]], answered: Callable[[], bool], place: str) -> T:
    """What `once` gives, with jittered back-off and a total deadline. Raises its last SourceError.

    `answered`: whether the store ever said anything.
    """
    began = time.monotonic()

    def left() -> float:
        return began + (DEADLINE_S if answered() else UNREACHED_DEADLINE_S) - time.monotonic()

    for attempt in range(1, TRIES + 1):
        try:
            async with asyncio.timeout(max(left(), 0.0)):
                return await once()
        except TimeoutError:
            step = "check the endpoint, and that it can be reached from this machine."
            raise SourceError(
                Reason.SourceUnavailable, "the store does not answer", place=place, next_step=step, retryable=True
            ) from None
        except SourceError as error:
            jitter = random.uniform(0, min(0.2 * 2**attempt, _LONGEST_WAIT_S))  # noqa: S311 - spreads clients only
            wait = max(error.retry_after_s, jitter)
            if not error.retryable or attempt == TRIES or wait > left():
                raise
        await asyncio.sleep(wait)
    raise AssertionError("the last attempt returns or raises")
