"""The buckets of this node: for each DataSet that is mounted, its newest generation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import structlog

from stoker.api.errors import StokerError
from stoker.fetch.files import File, file_of
from stoker.fetch.session import SessionSpec
from stoker.ipc.channel import Message
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
        self._answers = 0
        self.on_idle: Callable[[], None] = lambda: None

    @property
    def idle(self) -> bool:
        """Whether no answer is made of it."""
        return not self._answers

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While an answer is made of it."""
        self._answers += 1
        try:
            yield
        finally:
            self._answers -= 1
            if not self._answers:
                self.on_idle()

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

    def __init__(self, say: Callable[[Message], None] = lambda _: None) -> None:
        self._by_key: dict[str, Bucket] = {}
        self._say = say
        self._leaving: dict[str, int] = {}

    def add(self, key: str, data: dict[str, Any]) -> Bucket | None:
        """A session that was mounted, or is told of again; None for one that is not to be served, or already is."""
        if key in self._by_key or not (data["mountpoint"] or data.get("newest")):
            return None
        spec = SessionSpec.from_json(data["spec"])
        try:
            bucket = self._by_key[key] = Bucket(spec)
        except (StokerError, OSError) as error:
            log.error("session cannot be served", session=spec.id, data_set=spec.data_set, error=str(error))
            return None
        bucket.on_idle = self._look
        self._look()
        return bucket

    def drop(self, key: str) -> None:
        if (bucket := self._by_key.pop(key, None)) is not None:
            bucket.close()
            self._look()

    def leave(self, key: str, seq: int) -> None:
        """The daemon ends a session that newer ones have replaced: say when no answer is made of it any more."""
        self._leaving[key] = seq
        self._look()

    def stay(self) -> None:
        """The daemon that asked is gone."""
        self._leaving.clear()

    def _look(self) -> None:
        for key, seq in list(self._leaving.items()):
            bucket = self._by_key.get(key)
            if bucket is None or (bucket.idle and self.get(bucket.name) is not bucket):
                del self._leaving[key]
                self._say({"op": "evicted-ack", "seq": seq})

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
