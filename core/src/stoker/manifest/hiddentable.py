"""The table of objects that the tree does not show: hidden keys and the markers of folders, sorted by their key.

A key here is that of the whole DataSet, as the S3 endpoint shows it: the source's path, a slash, and the key below the
source. The source's own key follows from it as for a file. Not for counts and reasons: `hidden.py`.
"""

from __future__ import annotations

import mmap
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from stoker.manifest.format import ARCHIVED, HIDDEN, HIDDEN_BYTES, WHOLE_SOURCE, Header, ManifestSource, corrupt
from stoker.sources.base import ObjectVersion

MOST_KEY = 0xFFFF
# rank and attempt of the source, flags, size, mtime_ns; the etag follows.
_REST = struct.Struct(">HBBQq")
_END = b"\0\0"


class HiddenObject(NamedTuple):
    """One row. `number` counts from 0."""

    number: int
    key: bytes
    size: int
    mtime_ns: int
    source: int
    flags: int
    etag: str

    @property
    def archived(self) -> bool:
        return bool(self.flags & ARCHIVED)


def hidden_line(key: bytes, rank: int, attempt: int, flags: int, size: int, mtime_ns: int, etag: bytes) -> bytes:
    """A line that sorts by key, then by rank; NUL in a key is written as NUL and 255."""
    rest = _REST.pack(rank, attempt, flags & (ARCHIVED | WHOLE_SOURCE), size, mtime_ns)
    return key.replace(b"\0", b"\0\xff") + _END + rest + etag


def write_hidden(
    lines: Iterable[bytes], ranks: Sequence[int], stale: set[tuple[int, int]], keep: Callable[[bytes], None]
) -> Iterator[bytes]:
    """The records of sorted lines, of each key the first; `keep` takes what they point to, in their order."""
    at, before = 0, None
    for line in lines:
        end = _end_of_key(line)
        key = line[:end].replace(b"\0\xff", b"\0")
        rest = end + len(_END)
        rank, attempt, flags, size, mtime_ns = _REST.unpack_from(line, rest)
        etag = line[rest + _REST.size :]
        if key == before or (rank, attempt) in stale or len(key) > MOST_KEY:
            continue
        before = key
        yield HIDDEN.pack(size, mtime_ns, at, len(key), len(etag), ranks[rank], flags, 0)
        keep(key)
        keep(etag)
        at += len(key) + len(etag)


def _end_of_key(line: bytes) -> int:
    """Where the key ends: two NULs of which the first is not an escaped one."""
    at = line.index(b"\0")
    while line[at + 1] == 0xFF:
        at = line.index(b"\0", at + 2)
    return at


class HiddenTable:
    """Reads the table of an open manifest. Untrusted: every access is checked (StokerError ManifestCorrupt)."""

    def __init__(self, path: str, mapped: mmap.mmap, header: Header, sources: Sequence[ManifestSource]) -> None:
        self._path, self._mapped, self._sources = path, mapped, sources
        self._records_at, self._heap_at, self._heap_length = header.hidden_at, header.heap_at, header.heap_length
        self._mounts = [source.mount for source in sources]
        self.count = header.hidden

    def __getitem__(self, number: int) -> HiddenObject:
        size, mtime_ns, at, length, etag_length, source, flags, _ = self._record(number)
        start = self._heap_at + at
        etag = self._mapped[start + length : start + length + etag_length].decode(errors="surrogateescape")
        return HiddenObject(number, self._mapped[start : start + length], size, mtime_ns, source, flags, etag)

    def seek(self, key: bytes) -> int:
        """How many keys come before `key`."""
        return bisect_left(range(self.count), key, key=self._key)

    def find(self, key: bytes) -> int | None:
        number = self.seek(key)
        return number if number < self.count and self._key(number) == key else None

    def since(self, key: bytes) -> Iterator[HiddenObject]:
        """From `key` on, in order."""
        return (self[number] for number in range(self.seek(key), self.count))

    def version(self, row: HiddenObject) -> ObjectVersion:
        """The object version behind a row."""
        source = self._sources[row.source]
        if row.flags & WHOLE_SOURCE:
            if source.single is None:
                raise corrupt(self._path, f"hidden object {row.number} is the one object of a source that has none")
            return ObjectVersion(source.single, row.size, row.etag, row.mtime_ns)
        mount = self._mounts[row.source]
        if mount and not row.key.startswith(mount + b"/"):
            raise corrupt(self._path, f"hidden object {row.number} is not below the path of its source")
        below = row.key[len(mount) + 1 :] if mount else row.key
        return ObjectVersion(source.prefix + below, row.size, row.etag, row.mtime_ns)

    def check(self) -> None:
        """All rows: in order, without gaps, with nothing unknown."""
        at, before = 0, None
        for number in range(self.count):
            _, _, begin, length, etag_length, _, flags, reserved = self._record(number)
            key = self._key(number)
            if begin != at or (before is not None and key <= before):
                raise corrupt(self._path, f"hidden object {number} does not follow the one before it")
            if not key or flags & ~(ARCHIVED | WHOLE_SOURCE) or reserved:
                raise corrupt(self._path, f"hidden object {number} has fields that this format does not know")
            at, before = at + length + etag_length, key
        if at != self._heap_length:
            raise corrupt(self._path, "the hidden objects do not fill their section")

    def _key(self, number: int) -> bytes:
        record = self._record(number)
        start = self._heap_at + record[2]
        return self._mapped[start : start + record[3]]

    def _record(self, number: int) -> tuple[int, int, int, int, int, int, int, int]:
        if not 0 <= number < self.count:
            raise corrupt(self._path, f"there is no hidden object {number}")
        record: tuple[int, int, int, int, int, int, int, int]
        record = HIDDEN.unpack_from(self._mapped, self._records_at + number * HIDDEN_BYTES)
        if record[2] + record[3] + record[4] > self._heap_length or record[5] >= len(self._sources):
            raise corrupt(self._path, f"hidden object {number} points outside of its section")
        return record
