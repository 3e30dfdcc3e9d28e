"""Sorting more lines than memory should hold: sorted runs in unnamed temporary files, merged. Knows no manifest.

The files have no name from the start, so nothing stays behind whatever ends the process.
"""

from __future__ import annotations

import heapq
import struct
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO

_LENGTH = struct.Struct("<I")
_OVERHEAD = 48  # bytes that a bytes object and its place in the list cost beside its content
_BUFFER_BYTES = 128 << 10


class ExternalSort:
    """Takes lines of bytes in any order, gives them back sorted. At most about `run_bytes` of them are in memory."""

    def __init__(self, directory: str, run_bytes: int) -> None:
        self._directory = directory
        self._run_bytes = run_bytes
        self._lines: list[bytes] = []
        self._used = 0
        self._runs: list[IO[bytes]] = []

    def extend(self, lines: list[bytes]) -> None:
        self._lines += lines
        self._used += sum(map(len, lines)) + _OVERHEAD * len(lines)
        if self._used >= self._run_bytes:
            self._spill()

    def sorted(self) -> Iterator[bytes]:
        """All lines in order, once; what was given is used up."""
        if not self._runs:
            self._lines.sort()
            self._lines.reverse()
            return _taken_from_the_end(self._lines)
        self._spill()
        return iter(heapq.merge(*(_read_run(run) for run in self._runs)))

    def close(self) -> None:
        self._lines.clear()
        for run in self._runs:
            run.close()

    def _spill(self) -> None:
        lines, self._lines, self._used = self._lines, [], 0
        lines.sort()
        run = tempfile.TemporaryFile(dir=self._directory, buffering=_BUFFER_BYTES)  # noqa: SIM115 closed by close()
        self._runs.append(run)
        run.writelines(_framed(lines))
        run.flush()


def _framed(lines: Iterable[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield _LENGTH.pack(len(line)) + line


def _read_run(run: IO[bytes]) -> Iterator[bytes]:
    run.seek(0)
    read = run.read
    while head := read(_LENGTH.size):
        yield read(_LENGTH.unpack(head)[0])


def _taken_from_the_end(lines: list[bytes]) -> Iterator[bytes]:
    """Memory is given back while the next stage allocates its own."""
    while lines:
        yield lines.pop()
