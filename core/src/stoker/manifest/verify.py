"""The full check of a manifest that came from elsewhere: all of it is well formed, and nothing is outside its sources.

Linear in the size of the file. `Manifest` itself stays safe without it; this says whether a generation may be served.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote_to_bytes

from stoker.api.errors import StokerError
from stoker.api.globs import Selection
from stoker.api.reasons import Reason
from stoker.api.uri import parse_uri
from stoker.manifest.format import ARCHIVED, DIRECTORY, MAX_PATH, ROOT, WHOLE_SOURCE, ManifestSource, corrupt, shown_uri
from stoker.manifest.manifest import Manifest, Record
from stoker.manifest.names import is_name
from stoker.manifest.walk import walk
from stoker.sources import open_source
from stoker.sources.base import SourceSpec


def verify(path: str, specs: Sequence[SourceSpec]) -> None:
    """Raises StokerError ManifestCorrupt or ManifestOutsideSource, OSError. `specs` in the order of the DataSet."""
    with contextlib.closing(Manifest.open(path)) as manifest:
        _check_digest(manifest)
        _check_children(manifest)
        _Sections(manifest).check()
        manifest.hidden_objects.check()
        _check_sources(manifest, specs)
        _check_files(manifest, specs)


def _check_digest(manifest: Manifest) -> None:
    digest = hashlib.sha256()
    for piece in manifest.content():
        digest.update(piece)
    if digest.hexdigest() != manifest.digest:
        raise corrupt(manifest.file, "its content does not have the digest it names")


def _directories(manifest: Manifest) -> Iterator[tuple[int, Record]]:
    return ((inode, record) for inode, record in manifest.records() if record.flags & DIRECTORY)


def _check_children(manifest: Manifest) -> None:
    """Children fill all records behind the root, without a gap, in the order of their directories."""
    free = ROOT + 1
    for inode, record in _directories(manifest):
        if record.child_first != free or free <= inode:
            raise corrupt(manifest.file, f"the children of inode {inode} are not where breadth-first order puts them")
        free += record.child_count
    if free != manifest.header.records + 1:
        raise corrupt(manifest.file, "there are records that no directory has as children")


def _owners(manifest: Manifest) -> Iterator[int]:
    """The parent that each inode has to have, the root first."""
    yield 0
    for inode, record in _directories(manifest):
        for _ in range(record.child_count):
            yield inode


class _Sections:
    """Checks of each record on its own and against the one before it."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._names = self._etags = self._files = self._directories = self._bytes = 0
        self._before: tuple[int, bytes] = (0, b"")

    def check(self) -> None:
        for (inode, record), owner in zip(self._manifest.records(), _owners(self._manifest), strict=True):
            if record.parent != owner or record.name_at != self._names or record.etag_at != self._etags:
                raise corrupt(self._manifest.file, f"inode {inode} does not follow the one before it")
            self._check_name(inode, record, owner)
            fault = _fault_of_directory(record) if record.flags & DIRECTORY else self._fault_of_file(record)
            if fault:
                raise corrupt(self._manifest.file, f"inode {inode} has {fault}")
            self._count(record)
        self._check_totals()

    def _check_name(self, inode: int, record: Record, owner: int) -> None:
        if inode == ROOT:
            if record.name_length or not record.flags & DIRECTORY:
                raise corrupt(self._manifest.file, "the first record is not a root directory")
            return
        name = self._manifest.name(inode)
        if not is_name(name) or (owner, name) <= self._before:
            raise corrupt(self._manifest.file, f"inode {inode} has a name that is wrong or out of order")
        self._before = owner, name

    def _fault_of_file(self, record: Record) -> str:
        if record.flags & ~(ARCHIVED | WHOLE_SOURCE) or record.reserved:
            return "flags that this format version does not know"
        if record.source >= len(self._manifest.sources):
            return "a source that is not there"
        return "children, and is a file" if record.child_first or record.child_count else ""

    def _count(self, record: Record) -> None:
        self._names += record.name_length
        self._etags += record.etag_length
        self._bytes += record.size
        self._directories += record.flags & DIRECTORY
        self._files += not record.flags & DIRECTORY

    def _check_totals(self) -> None:
        header = self._manifest.header
        counted = (self._files, self._directories, self._bytes, self._names, self._etags)
        told = (header.files, header.directories, header.total_bytes, header.names_length, header.etags_length)
        if counted != told:
            raise corrupt(self._manifest.file, "the header's counts are not those of the records")


def _fault_of_directory(record: Record) -> str:
    rest = (record.size, record.etag_length, record.source, record.reserved)
    return "fields that a directory has not" if any(rest) or record.flags != DIRECTORY else ""


def _check_sources(manifest: Manifest, specs: Sequence[SourceSpec]) -> None:
    if len(manifest.sources) != len(specs):
        raise _outside(manifest, f"it has {len(manifest.sources)} sources where the data set has {len(specs)}")
    for source, spec in zip(manifest.sources, specs, strict=True):
        if (source.name, source.uri, source.path) != (spec.name, shown_uri(spec.uri), spec.path):
            raise _outside(manifest, f"its source {source.name!r} is not {spec.name!r} of the data set")
        if (source.contacted, source.origin) not in _places(spec):
            raise _outside(manifest, f"its source {source.name!r} was listed from {source.contacted!r} elsewhere")


def _places(spec: SourceSpec) -> Iterator[tuple[str, str]]:
    """What may have been listed, with the origin it has there: the origin is part of each object id in the cache."""
    for uri in (spec.uri, *spec.replicas):
        yield shown_uri(uri), open_source(replace(spec, uri=uri)).origin


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Which keys a source may have: those below a folder, or the one object that the uri names."""

    folder: bytes
    single: bytes
    selection: Selection

    @classmethod
    def of(cls, source: ManifestSource, spec: SourceSpec) -> _Bounds:
        uri = parse_uri(source.contacted)
        # The key of a url is its path as the server understands it; all else is taken as written.
        prefix = unquote_to_bytes(uri.prefix) if uri.scheme == "https" else uri.prefix
        folder = prefix if not prefix or prefix.endswith(b"/") else prefix + b"/"
        return cls(folder, prefix, Selection.compile(spec.include, spec.exclude))

    def hold(self, key: bytes) -> bool:
        if key == self.single:
            return self.selection.keeps(key.rpartition(b"/")[2])
        return key.startswith(self.folder) and self.selection.keeps(key[len(self.folder) :])


def _check_files(manifest: Manifest, specs: Sequence[SourceSpec]) -> None:
    pairs = zip(manifest.sources, specs, strict=True)
    bounds = [_Bounds.of(source, spec) for source, spec in pairs]
    for inode, path, is_dir, _, _ in walk(manifest):
        if len(path) > MAX_PATH:
            raise corrupt(manifest.file, f"the path of inode {inode} is too long")
        if not is_dir:
            reference = manifest.object(inode, path)
            if not bounds[reference.source].hold(reference.version.key):
                name = manifest.sources[reference.source].name
                raise _outside(manifest, f"{reference.version.key!r} is not in what its source {name!r} includes")
    _check_hidden(manifest, bounds)


def _check_hidden(manifest: Manifest, bounds: Sequence[_Bounds]) -> None:
    for row in manifest.hidden_objects.since(b""):
        key = manifest.hidden_objects.version(row).key
        if not bounds[row.source].hold(key):
            name = manifest.sources[row.source].name
            raise _outside(manifest, f"{key!r} is not in what its source {name!r} includes")


def _outside(manifest: Manifest, what: str) -> StokerError:
    step = "mount the data set again, which lists it anew."
    return StokerError(Reason.ManifestOutsideSource, what, place=manifest.file, next_step=step)
