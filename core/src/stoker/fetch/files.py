"""From an inode of a generation to the object version behind it and its id: the one place where ids are made.

Workers, fetchers and the daemon must agree on an id, or a page is fetched and never found.
"""

from __future__ import annotations

from dataclasses import dataclass

from stoker.cache.layout import object_id, page_count
from stoker.manifest.manifest import Manifest
from stoker.sources.base import ObjectVersion


@dataclass(frozen=True, slots=True)
class File:
    """What a request needs of an inode. `cacheable` is false for `Bypass` and for objects without a validator."""

    oid: bytes
    size: int
    version: ObjectVersion
    source: int
    archived: bool
    cacheable: bool

    @property
    def pages(self) -> int:
        return page_count(self.size)


def file_of(manifest: Manifest, inode: int, policy: str) -> File:
    """Raises StokerError ManifestCorrupt."""
    ref = manifest.object(inode)
    version = ref.version
    oid = object_id(manifest.sources[ref.source].origin, version.key, version.etag, version.size)
    cacheable = bool(version.etag) and policy != "Bypass"
    return File(oid, version.size, version, ref.source, manifest.archived(inode), cacheable)
