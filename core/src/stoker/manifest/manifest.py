"""An open manifest: look-ups, listings, paths and object versions straight from the mapped file.

Opening reads the header and the list of sources only. The file is untrusted: every access is bounds-checked and raises
StokerError ManifestCorrupt, never reads outside of it. Not for checking a whole file: `stoker.manifest.verify` does.
"""

from __future__ import annotations

import mmap
import os
import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from stoker.api.errors import StokerError
from stoker.api.globs import Globs
from stoker.manifest.format import (
    ARCHIVED,
    DIRECTORY,
    HEADER_BYTES,
    MAX_CATALOGUE_BYTES,
    RECORD,
    RECORD_BYTES,
    ROOT,
    WHOLE_SOURCE,
    Catalogue,
    Header,
    HiddenKey,
    ManifestSource,
    corrupt,
)
from stoker.manifest.hiddentable import HiddenTable
from stoker.manifest.walk import walk
from stoker.sources.base import ObjectVersion

_BATCH = 256  # records that a listing decodes at once: more than one READDIRPLUS answer holds, cheap to throw away
_PIECE_BYTES = 1 << 20
_NAME = struct.Struct("<QB")
_NAME_AT = 16
_NAMES_FROM = HEADER_BYTES - ROOT * RECORD_BYTES + _NAME_AT  # where the name of inode 0 would be
_PARENT = struct.Struct("<Q")
_PARENT_AT = 40
_CHILD = struct.Struct("<Qq8xBB38x")  # of a record: size, mtime_ns, name length, flags

Child = tuple[int, bytes, bool, int, int]
"""inode, name, is a directory, size, mtime_ns"""


class Node(NamedTuple):
    """One file or directory. A directory's `size` is 0; its children are `child_count` inodes from `child_first` on."""

    inode: int
    is_dir: bool
    size: int
    mtime_ns: int
    source: int
    archived: bool
    child_first: int
    child_count: int


class ObjectRef(NamedTuple):
    """Which object of which source a file is."""

    source: int
    version: ObjectVersion


class Record(NamedTuple):
    """One record as it is in the file."""

    size: int
    mtime_ns: int
    name_at: int
    name_length: int
    flags: int
    etag_length: int
    source: int
    reserved: int
    etag_at: int
    parent: int
    child_first: int
    child_count: int


class Manifest:
    """One generation. Safe to use in a process forked after `open`; usable until `close`."""

    def __init__(self, path: str, mapped: mmap.mmap, header: Header, catalogue: Catalogue) -> None:
        self._mapped = mapped
        self._records = header.records
        self._names_at, self._names_length = header.names_at, header.names_length
        self._etags_at, self._etags_length = header.etags_at, header.etags_length
        self._mounts = [source.mount for source in catalogue.sources]
        self.file = path
        self.header = header
        self.digest = header.digest.hex()
        self.files: int = header.files
        self.directories: int = header.directories
        self.bytes: int = header.total_bytes
        self.sources: tuple[ManifestSource, ...] = catalogue.sources
        self.hidden: dict[str, int] = catalogue.hidden
        self.hidden_objects = HiddenTable(path, mapped, header, catalogue.sources)
        self.hidden_samples: dict[str, tuple[HiddenKey, ...]] = catalogue.samples

    @classmethod
    def open(cls, path: str) -> Manifest:
        """Raises StokerError ManifestCorrupt, OSError."""
        with open(path, "rb") as file:
            header = Header.unpack(file.read(HEADER_BYTES), path)
            _check(header, os.fstat(file.fileno()).st_size, path)
            mapped = mmap.mmap(file.fileno(), header.file_length, access=mmap.ACCESS_READ)
        try:
            catalogue = Catalogue.unpack(mapped[header.catalogue_at :], path)
            return cls(path, mapped, header, catalogue)
        except StokerError:
            mapped.close()
            raise

    def close(self) -> None:
        self._mapped.close()

    @property
    def mean_size(self) -> int:
        """Mean size of the files, in bytes; 0 when there is none."""
        return self.bytes // self.files if self.files else 0

    def lookup(self, parent: int, name: bytes) -> int | None:
        """The inode of `name` in the directory `parent`; None when there is none."""
        record = self.record(parent)
        low, high = self._children_of(parent, record)
        mapped, names_at, names_end = self._mapped, self._names_at, self._etags_at
        while low < high:
            middle = (low + high) // 2
            # The same as `name`, without its calls: this is what a cold path look-up spends its time on.
            at, length = _NAME.unpack_from(mapped, _NAMES_FROM + middle * RECORD_BYTES)
            at += names_at
            if at + length > names_end:
                raise self._corrupt(f"the name of inode {middle} is outside of the names")
            found = mapped[at : at + length]
            if found == name:
                return middle
            if found < name:
                low = middle + 1
            else:
                high = middle
        return None

    def seek(self, parent: int, name: bytes) -> int:
        """How many children of the directory `parent` have a name before `name`: an offset for `children`."""
        first, end = self._children_of(parent, self.record(parent))
        return bisect_left(range(first, end), name, key=self.name)

    def hidden_inode(self, number: int) -> int:
        """A number for `object`, `etag` and `archived` of a hidden object. No directory has it."""
        return self._records + ROOT + number

    def archived(self, inode: int) -> bool:
        """Whether the object of a file, or a hidden object, must be restored before it can be read."""
        if inode > self._records:
            return self.hidden_objects[inode - self._records - ROOT].archived
        return bool(self.record(inode).flags & ARCHIVED)

    def etag(self, inode: int) -> str:
        """The etag of a file, as `ObjectVersion` has it."""
        if inode > self._records:
            return self.hidden_objects[inode - self._records - ROOT].etag
        return self._etag(inode, self.record(inode))

    def node(self, inode: int) -> Node:
        record = self.record(inode)
        flags = record.flags
        first, end = self._children_of(inode, record)
        return Node(
            inode,
            bool(flags & DIRECTORY),
            record.size,
            record.mtime_ns,
            record.source,
            bool(flags & ARCHIVED),
            first,
            end - first,
        )

    def children(self, inode: int, offset: int = 0) -> Iterator[Child]:
        """The children of a directory in name order, from its `offset`-th on; nothing for a file."""
        first, end = self._children_of(inode, self.record(inode))
        at = first + max(0, offset)
        while at < end:
            stop = min(at + _BATCH, end)
            yield from self._batch(at, stop)
            at = stop

    def name(self, inode: int) -> bytes:
        """The name of an inode in its directory; empty for the root."""
        if not ROOT <= inode <= self._records:
            raise self._corrupt(f"there is no inode {inode}")
        at, length = _NAME.unpack_from(self._mapped, _record_at(inode) + _NAME_AT)
        if at + length > self._names_length:
            raise self._corrupt(f"the name of inode {inode} is outside of the names")
        at += self._names_at
        return self._mapped[at : at + length]

    def path(self, inode: int) -> bytes:
        """The path inside the mount, without a leading slash; empty for the root."""
        names = []
        while inode != ROOT:
            names.append(self.name(inode))
            (parent,) = _PARENT.unpack_from(self._mapped, _record_at(inode) + _PARENT_AT)
            if not ROOT <= parent < inode:
                raise self._corrupt(f"inode {inode} has no parent before it")
            inode = parent
        return b"/".join(reversed(names))

    def object(self, inode: int, path: bytes | None = None) -> ObjectRef:
        """The object version that the file `inode` shows. `path`: of the inode, when known; saves the way up.

        Also of a hidden object (`hidden_inode`)."""
        if inode > self._records:
            row = self.hidden_objects[inode - self._records - ROOT]
            return ObjectRef(row.source, self.hidden_objects.version(row))
        record = self.record(inode)
        if record.flags & DIRECTORY:
            raise self._corrupt(f"inode {inode} is a directory, not an object")
        if record.source >= len(self.sources):
            raise self._corrupt(f"inode {inode} names a source that is not there")
        key = self._key(inode, record, self.path(inode) if path is None else path)
        version = ObjectVersion(key, record.size, self._etag(inode, record), record.mtime_ns)
        return ObjectRef(record.source, version)

    def files_matching(self, globs: Globs) -> Iterator[int]:
        """The inodes of the files whose path in the mount matches, in the order of their paths."""
        matches = globs.matches
        return (inode for inode, path, is_dir, _, _ in walk(self) if not is_dir and matches(path))

    def records(self) -> Iterator[tuple[int, Record]]:
        """All inodes in order with their raw records."""
        inode = ROOT
        while inode <= self._records:
            end = min(inode + _BATCH, self._records + 1)
            for fields in RECORD.iter_unpack(self._mapped[_record_at(inode) : _record_at(end)]):
                yield inode, Record._make(fields)
                inode += 1

    def content(self) -> Iterator[bytes]:
        """All that the digest covers, in pieces."""
        for at in range(HEADER_BYTES, self.header.file_length, _PIECE_BYTES):
            yield self._mapped[at : at + _PIECE_BYTES]

    def record(self, inode: int) -> Record:
        """The raw record. Raises StokerError ManifestCorrupt for a number that is no inode."""
        if not ROOT <= inode <= self._records:
            raise self._corrupt(f"there is no inode {inode}")
        return Record._make(RECORD.unpack_from(self._mapped, _record_at(inode)))

    def _children_of(self, inode: int, record: Record) -> tuple[int, int]:
        """First child and the inode behind the last one."""
        if not record.flags & DIRECTORY:
            return 0, 0
        first, end = record.child_first, record.child_first + record.child_count
        if first <= inode or end > self._records + 1:
            raise self._corrupt(f"the children of inode {inode} are outside of the records")
        return first, end

    def _batch(self, first: int, end: int) -> list[Child]:
        """The children `first` to `end`, whose names lie behind each other."""
        records = self._mapped[_record_at(first) : _record_at(end)]
        names_at, _ = _NAME.unpack_from(records, _NAME_AT)
        last_at, last_length = _NAME.unpack_from(records, len(records) - RECORD_BYTES + _NAME_AT)
        if not names_at <= last_at <= self._names_length - last_length:
            raise self._corrupt(f"the names of inodes {first} to {end - 1} are outside of the names")
        names = self._mapped[self._names_at + names_at : self._names_at + last_at + last_length]
        children, at, inode = [], 0, first
        for size, mtime_ns, length, flags in _CHILD.iter_unpack(records):
            stop = at + length
            children.append((inode, names[at:stop], flags & DIRECTORY != 0, size, mtime_ns))
            at = stop
            inode += 1
        # One entry with a bad name would make the kernel refuse the whole listing.
        if at != len(names) or b"/" in names or b"\0" in names or not all(child[1] for child in children):
            raise self._corrupt(f"the names of inodes {first} to {end - 1} are not names of files")
        return children

    def _key(self, inode: int, record: Record, path: bytes) -> bytes:
        source = self.sources[record.source]
        if record.flags & WHOLE_SOURCE:
            if source.single is None:
                raise self._corrupt(f"inode {inode} is the one object of a source that has none")
            return source.single
        mount = self._mounts[record.source]
        if not mount:
            return source.prefix + path
        if not path.startswith(mount + b"/"):
            raise self._corrupt(f"inode {inode} is not below the path of its source")
        return source.prefix + path[len(mount) + 1 :]

    def _etag(self, inode: int, record: Record) -> str:
        if record.etag_at + record.etag_length > self._etags_length:
            raise self._corrupt(f"the etag of inode {inode} is outside of the etags")
        at = self._etags_at + record.etag_at
        return self._mapped[at : at + record.etag_length].decode(errors="surrogateescape")

    def _corrupt(self, what: str) -> StokerError:
        return corrupt(self.file, what)


def _record_at(inode: int) -> int:
    return HEADER_BYTES + (inode - ROOT) * RECORD_BYTES


def _check(header: Header, length: int, path: str) -> None:
    if header.records == 0 or header.files + header.directories != header.records:
        raise corrupt(path, "the header's counts do not add up")
    if header.file_length != length:
        raise corrupt(path, f"it has {length} bytes where its header tells of {header.file_length}")
    if header.catalogue_length > MAX_CATALOGUE_BYTES:
        raise corrupt(path, "its list of sources is too long")
