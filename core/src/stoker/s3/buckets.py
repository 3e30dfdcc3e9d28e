"""The buckets of this node: for each DataSet that is mounted, its newest session."""

from __future__ import annotations

from typing import Any, NamedTuple

import structlog

from stoker.api.errors import StokerError
from stoker.fetch.files import File, file_of
from stoker.fetch.session import SessionSpec
from stoker.manifest.format import ROOT
from stoker.manifest.manifest import Manifest
from stoker.s3.listing import find
from stoker.s3.names import bucket_of

log = structlog.get_logger("stoker.s3")

_REMEMBERED = 1 << 14


class Object(NamedTuple):
    """One object: its inode for requests to a fetcher, and which version it is."""

    inode: int
    file: File


class Bucket:
    """One session as a bucket."""

    def __init__(self, spec: SessionSpec) -> None:
        self.spec = spec
        self.name = bucket_of(spec.data_set)
        self.manifest = Manifest.open(spec.manifest_path)
        self.newest_ns = self.manifest.node(ROOT).mtime_ns
        self._objects: dict[bytes, Object] = {}

    def object(self, key: bytes) -> Object | None:
        """The object of a key, remembered. Raises StokerError ManifestCorrupt."""
        found = self._objects.get(key)
        if found is None:
            inode = find(self.manifest, key)
            if inode is None:
                return None
            if len(self._objects) >= _REMEMBERED:
                self._objects.clear()
            found = self._objects[key] = Object(inode, file_of(self.manifest, inode, self.spec.mount.policy))
        return found

    def close(self) -> None:
        self.manifest.close()


class Buckets:
    """By name. Of several mounts of one DataSet the newest is served, and the one before it when that is gone."""

    def __init__(self) -> None:
        self._by_key: dict[str, Bucket] = {}

    def add(self, key: str, data: dict[str, Any]) -> Bucket | None:
        """A session that was mounted, or is told of again; None for one that is not to be served, or already is."""
        if key in self._by_key or not data["mountpoint"]:
            return None
        spec = SessionSpec.from_json(data["spec"])
        try:
            bucket = self._by_key[key] = Bucket(spec)
        except (StokerError, OSError) as error:
            log.error("session cannot be served", session=spec.id, data_set=spec.data_set, error=str(error))
            return None
        return bucket

    def drop(self, key: str) -> None:
        if (bucket := self._by_key.pop(key, None)) is not None:
            bucket.close()

    def keep_only(self, keys: set[str]) -> None:
        """These are all the sessions there are."""
        for key in self._by_key.keys() - keys:
            self.drop(key)

    def get(self, name: str) -> Bucket | None:
        return next((bucket for bucket in reversed(self._by_key.values()) if bucket.name == name), None)

    def all(self) -> list[Bucket]:
        """One for each name."""
        newest = {bucket.name: bucket for bucket in self._by_key.values()}
        return [newest[name] for name in sorted(newest)]

    def close(self) -> None:
        self.keep_only(set())
