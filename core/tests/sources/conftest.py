"""Origins with the same few verbs: a real S3 server, the scripted store while it behaves, local files."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from servers.scripted_store import BUCKET, ScriptedStore
from servers.seaweedfs import ADMIN, SeaweedFS
from stoker.sources import open_source
from stoker.sources.base import Credentials, ObjectEntry, ObjectVersion, Source, SourceSpec

KEYS = Credentials("static", *ADMIN)


class Origin(Protocol):
    """A place with objects; a key is relative to its root, a uri is below it."""

    def put(self, key: str, data: bytes) -> None: ...
    def delete(self, key: str) -> None: ...
    def spec(self, below: str = "", **more: Any) -> SourceSpec: ...
    def key(self, key: str) -> bytes: ...


@dataclass
class Bucket:
    server: SeaweedFS
    bucket: str

    def put(self, key: str, data: bytes) -> None:
        self.server.client().put_object(Bucket=self.bucket, Key=key, Body=data)

    def delete(self, key: str) -> None:
        self.server.client().delete_object(Bucket=self.bucket, Key=key)

    def spec(self, below: str = "", **more: Any) -> SourceSpec:
        given = {"endpoint": self.server.endpoint, "credentials": KEYS, **more}
        return SourceSpec("source", f"s3://{self.bucket}/{below}", **given)

    def key(self, key: str) -> bytes:
        return key.encode()


@dataclass
class Scripted:
    store: ScriptedStore

    def put(self, key: str, data: bytes) -> None:
        self.store.put(key, data)

    def delete(self, key: str) -> None:
        del self.store.objects[key.encode()]

    def spec(self, below: str = "", **more: Any) -> SourceSpec:
        given = {"endpoint": self.store.endpoint, "credentials": KEYS, **more}
        return SourceSpec("source", f"s3://{BUCKET}/{below}", **given)

    def key(self, key: str) -> bytes:
        return key.encode()


@dataclass
class Folder:
    root: Path

    def put(self, key: str, data: bytes) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        new = self.root.parent / "new"
        new.write_bytes(data)
        new.rename(path)

    def delete(self, key: str) -> None:
        (self.root / key).unlink()

    def spec(self, below: str = "", **more: Any) -> SourceSpec:
        return SourceSpec("source", f"file://{self.root}/{below}", **more)

    def key(self, key: str) -> bytes:
        return os.fsencode(self.root / key)


@pytest.fixture(params=["seaweedfs", "scripted", "folder"])
def origin(request: pytest.FixtureRequest, tmp_path: Path) -> Origin:
    """Each kind of origin in turn, empty."""
    if request.param == "seaweedfs":
        server = request.getfixturevalue("seaweedfs")
        return Bucket(server, server.new_bucket())
    if request.param == "scripted":
        return Scripted(request.getfixturevalue("scripted_store"))
    (tmp_path / "root").mkdir()
    return Folder(tmp_path / "root")


@pytest.fixture
def scripted(scripted_store: ScriptedStore) -> Scripted:
    return Scripted(scripted_store)


Open = Callable[[SourceSpec], Source]


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    """Opens sources, and closes them at the end."""
    sources: list[Source] = []

    def open_it(spec: SourceSpec) -> Source:
        sources.append(open_source(spec))
        return sources[-1]

    yield open_it
    for source in sources:
        await source.close()


Listed = Callable[[Source], Awaitable[list[ObjectEntry]]]


@pytest.fixture
def listed() -> Listed:
    async def every(source: Source) -> list[ObjectEntry]:
        return [entry async for page in source.list() for entry in page]

    return every


Read = Callable[..., Awaitable[bytes]]


@pytest.fixture
def read() -> Read:
    """The bytes [start, stop) of a listed object; all of it by default."""

    async def some(source: Source, entry: ObjectEntry, start: int = 0, stop: int | None = None) -> bytes:
        version = ObjectVersion(entry.key, entry.size, entry.etag, entry.mtime_ns)
        pieces = source.read(version, start, entry.size if stop is None else stop)
        return b"".join([bytes(piece) async for piece in pieces])

    return some
