"""When a store begins to answer, and with what status: told to whoever asked, in whose context the request is made.

Not for deciding what a status means, and not for bodies.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

_listener: ContextVar[Callable[[int], None] | None] = ContextVar("answered", default=None)


def listen(listener: Callable[[int], None]) -> None:
    """From now on in this task: `listener(status)` is called when the head of an answer has come."""
    _listener.set(listener)


def tell(status: int) -> None:
    """The head of an answer has come; 200 stands for what has no status, a local file."""
    if (listener := _listener.get()) is not None:
        listener(status)
