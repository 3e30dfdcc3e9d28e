"""Progress on a terminal as one line that changes, elsewhere as a plain line every few seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

import click

_PLAIN_S = 5.0


class Listing:
    """`listing imagenet: 120,000 objects`, on standard error."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._terminal = sys.stderr.isatty()
        self._shown = False
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        if self._shown and self._terminal:
            click.echo("\r\x1b[K", nl=False, err=True)

    def listed(self, objects: int) -> None:
        """So many objects so far."""
        text = f"listing {self._name}: {objects:,} objects"
        if self._terminal:
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)
            self._shown = True
        elif time.monotonic() - self._last >= _PLAIN_S:
            click.echo(text, err=True)
            self._last = time.monotonic()
