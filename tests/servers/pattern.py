"""Objects of any size that take no memory."""

from __future__ import annotations

import random
from typing import SupportsIndex

_PERIOD = 1_000_003  # prime: no page, block or chunk looks like another


class Pattern(bytes):
    """Random bytes that repeat, for a store to send slices of."""

    size: int

    def __new__(cls, size: int, seed: int = 0) -> Pattern:
        self = super().__new__(cls, random.Random(seed).randbytes(_PERIOD))
        self.size = size
        return self

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: SupportsIndex | slice) -> bytes:  # type: ignore[override]
        assert isinstance(index, slice)
        start, stop, _ = index.indices(self.size)
        at = start % _PERIOD
        one = super().__getitem__(slice(None))
        return (one * ((stop - start) // _PERIOD + 2))[at : at + max(0, stop - start)]
