"""From listed objects to lines that sort into a tree, and back.

A line is the path in the mount with NUL for each slash, two NULs, and the rest of the record. No component is empty and
none holds NUL, so plain byte order of lines is the order of paths component by component, each folder followed by all
that is below it (`a`, `a/b`, `a-b`), and of equal paths files come before the marker of a folder.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.manifest.format import ARCHIVED, DIRECTORY, WHOLE_SOURCE, ManifestSource
from stoker.manifest.hidden import HiddenKeys
from stoker.manifest.hiddentable import hidden_line
from stoker.manifest.names import hidden_reason
from stoker.sources.base import ObjectEntry

END = b"\0\0"
# is a folder's marker, rank of the source, attempt at listing it, flags, size, mtime_ns; the etag follows.
_REST = struct.Struct(">BHBBQq")
NO_RANK = 0xFFFF
"""Of a folder that no object is a marker of."""
_MAX_ETAG = 0xFFFF


class Line(NamedTuple):
    """One parsed line. `path` has NUL for each slash."""

    path: bytes
    marker: bool
    rank: int
    attempt: int
    flags: int
    size: int
    mtime_ns: int
    etag: bytes


def parse(line: bytes) -> Line:
    end = line.index(END)
    rest = end + len(END)
    marker, rank, attempt, flags, size, mtime_ns = _REST.unpack_from(line, rest)
    return Line(line[:end], marker, rank, attempt, flags, size, mtime_ns, line[rest + _REST.size :])


def folder_line(path: bytes) -> bytes:
    """The line of a folder that exists whatever is listed below it."""
    return path.replace(b"/", b"\0") + END + _REST.pack(True, NO_RANK, 0, DIRECTORY, 0, 0)


def ranks(sources: Iterable[ManifestSource]) -> list[int]:
    """The sources by who wins a path that several have: the deepest mount path first, then the order they are in."""
    numbered = list(enumerate(sources))
    numbered.sort(key=lambda item: -len([part for part in item[1].mount.split(b"/") if part]))
    return [number for number, _ in numbered]


class SourceLines:
    """Makes the lines of one attempt at listing one source."""

    def __init__(self, number: int, source: ManifestSource, rank: int, attempt: int = 0) -> None:
        self._number, self._source = number, source
        self.rank, self.attempt = rank, attempt
        self.hidden = HiddenKeys()
        self._hidden_lines: list[bytes] = []
        self._below = source.mount.replace(b"/", b"\0") + b"\0" if source.mount else b""
        self._single: ObjectEntry | None = None
        self.objects = 0
        """All that were listed, hidden ones too."""

    def take(self, entries: list[ObjectEntry]) -> list[bytes]:
        """The lines of a page of the listing. Raises StokerError for what no store should list."""
        self.objects += len(entries)
        lines = []
        prefix, cut = self._source.prefix, len(self._source.prefix)
        for entry in entries:
            key = entry.key
            relative = key[cut:]
            if not key.startswith(prefix) or not relative:
                lines += self._at_the_uri(entry)
            elif reason := hidden_reason(relative):
                self.hidden.add(reason, self._number, key)
                self._hidden_lines.append(self._hidden_line(relative, entry))
            else:
                lines.append(self._line(relative, entry))
        return lines

    def take_hidden(self) -> list[bytes]:
        """The lines of the table of hidden objects since the last call."""
        lines, self._hidden_lines = self._hidden_lines, []
        return lines

    def last(self) -> tuple[ManifestSource, list[bytes]]:
        """After the listing: the source as the manifest names it, and the line of the object that is the whole uri."""
        entry = self._single
        if entry is None:
            return self._source, []
        name = entry.key.rpartition(b"/")[2]
        reason = Reason.ShadowedByDirectory if self.objects > 1 else hidden_reason(name)
        if reason:
            self.hidden.add(reason, self._number, entry.key)
            return self._source, []
        return replace(self._source, single=entry.key), [self._line(name, entry, WHOLE_SOURCE)]

    def _at_the_uri(self, entry: ObjectEntry) -> list[bytes]:
        """The object whose key is the uri itself: the marker of the folder, or the one object of the source."""
        key, prefix = entry.key, self._source.prefix
        if key == prefix and (not key or key.endswith(b"/")):
            return [self._line(b"/", entry)] if self._source.mount else []
        if key not in (prefix, prefix.removesuffix(b"/")):
            text = f"the store listed {key!r}, which is not below {prefix!r}"
            raise StokerError(Reason.ManifestOutsideSource, text, place=self._source.uri)
        self._single = entry
        return []

    def _hidden_line(self, relative: bytes, entry: ObjectEntry) -> bytes:
        below = self._source.mount + b"/" if self._source.mount else b""
        etag = entry.etag.encode(errors="surrogateescape")
        flags = ARCHIVED if entry.archived else 0
        place = self.rank, self.attempt, flags
        try:
            return hidden_line(below + relative, *place, entry.size, entry.mtime_ns, etag[:_MAX_ETAG])
        except struct.error:
            raise self._impossible(entry) from None

    def _impossible(self, entry: ObjectEntry) -> StokerError:
        text = f"the store listed {entry.key!r} with a size, time or etag that cannot be"
        return StokerError(Reason.CorruptResponse, text, place=self._source.uri)

    def _line(self, relative: bytes, entry: ObjectEntry, flags: int = 0) -> bytes:
        etag = entry.etag.encode(errors="surrogateescape")
        flags |= ARCHIVED if entry.archived else 0
        marker = relative.endswith(b"/")
        path = self._below + relative.replace(b"/", b"\0")
        if marker:
            path, flags = path.rstrip(b"\0"), DIRECTORY | flags
        try:
            rest = _REST.pack(marker, self.rank, self.attempt, flags, entry.size, entry.mtime_ns)
        except struct.error:
            rest = b""
        if not rest or len(etag) > _MAX_ETAG:
            raise self._impossible(entry)
        return path + END + rest + etag
