"""Breadth-first order out of a depth-first walk: one stream of records, names and etags for each depth.

What a walk in order meets at one depth comes in breadth-first order, so the depths only need joining.
Numbers inside a level count from its start until they are written. All streams share one unnamed temporary file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import IO

from stoker.manifest.format import DIRECTORY, RECORD, ROOT

_BLOCK_BYTES = 64 << 10  # what a stream keeps in memory; there are three for each depth, and keys can be 500 deep


class Stream:
    """Bytes that are appended and later read once from the start."""

    def __init__(self, spool: IO[bytes]) -> None:
        self._spool = spool
        self._tail = bytearray()
        self._extents: list[tuple[int, int]] = []
        self.length = 0

    def append(self, data: bytes) -> None:
        self._tail += data
        self.length += len(data)
        if len(self._tail) >= _BLOCK_BYTES:
            self._extents.append((self._spool.tell(), len(self._tail)))
            self._spool.write(self._tail)
            self._tail = bytearray()

    def blocks(self) -> Iterator[bytes]:
        """What was appended, in blocks that end where an `append` ended. Nothing may be appended any more."""
        for at, length in self._extents:
            self._spool.seek(at)
            yield self._spool.read(length)
        yield bytes(self._tail)


class Level:
    """All nodes of one depth so far."""

    def __init__(self, spool: IO[bytes]) -> None:
        self.records, self.names, self.etags = Stream(spool), Stream(spool), Stream(spool)
        self.count = 0

    def append(
        self, name: bytes, flags: int, size: int, mtime_ns: int, source: int, etag: bytes, links: tuple[int, int, int]
    ) -> None:
        """`links`: the parent's place in the level above; first child's place in the level below and their number."""
        numbers = (size, mtime_ns, self.names.length, len(name), flags, len(etag), source, 0, self.etags.length)
        self.records.append(RECORD.pack(*numbers, *links))
        self.names.append(name)
        if etag:
            self.etags.append(etag)
        self.count += 1


class Levels:
    """The levels from the root down. Made deeper as the walk needs it."""

    def __init__(self, directory: str) -> None:
        self._spool = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 closed by close()
        self._levels: list[Level] = []

    def __getitem__(self, depth: int) -> Level:
        while depth >= len(self._levels):
            self._levels.append(Level(self._spool))
        return self._levels[depth]

    def close(self) -> None:
        self._spool.close()

    @property
    def count(self) -> int:
        return sum(level.count for level in self._levels)

    def write(self, write: Callable[[bytes], None]) -> tuple[int, int]:
        """Write records, names and etags of all levels; the lengths of names and etags."""
        above, here, names, etags = 0, ROOT, 0, 0
        for level in self._levels:
            below = here + level.count
            for block in level.records.blocks():
                write(_placed(block, names, etags, above, below))
            above, here = here, below
            names += level.names.length
            etags += level.etags.length
        for level in self._levels:
            for block in level.names.blocks():
                write(block)
        for level in self._levels:
            for block in level.etags.blocks():
                write(block)
        return names, etags


def _placed(block: bytes, names: int, etags: int, above: int, below: int) -> bytes:
    """The records of `block` with numbers that count from the start of the file's sections."""
    pack = RECORD.pack
    return b"".join(
        [
            pack(
                *(size, mtime, name + names, name_length, flags, etag_length, source, reserved, etag + etags),
                *(parent + above, first + below if flags & DIRECTORY else 0, count),
            )
            for size, mtime, name, name_length, flags, etag_length, source, reserved, etag, parent, first, count in (
                RECORD.iter_unpack(block)
            )
        ]
    )
