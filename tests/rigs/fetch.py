"""A whole fetcher on a real cache folder, with a daemon's stand-in on a real control socket, and a worker's reader.

`MemoryStore` is a source without a network that notes what was asked; real stores work through `open_source` as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from stoker.api.errors import StokerError
from stoker.cache.credit import from_rows
from stoker.cache.layout import PAGE, object_id, page_span
from stoker.cache.ledger import Limits
from stoker.cache.owner import CacheOwner
from stoker.cache.presence import PresenceTable, create_table
from stoker.cache.reader import CacheReader
from stoker.cache.tier import TierConfig
from stoker.fetch.client import AsyncFetchClient
from stoker.fetch.counters import Counters, create_counters
from stoker.fetch.fetcher import Fetcher
from stoker.fetch.protocol import KIND_LOAD, KIND_READ, Reply, Status
from stoker.fetch.session import MountSpec, SessionSpec
from stoker.ipc.channel import AsyncChannel, Channel, ChannelClosedError, Message, listen
from stoker.manifest.build import ManifestBuilder
from stoker.manifest.format import ManifestSource
from stoker.manifest.manifest import Manifest
from stoker.sources import open_source
from stoker.sources.base import ObjectEntry, ObjectVersion, Source, SourceSpec

DATA_SET = "team/data"
BOOT = bytes(16)
MEMORY = SourceSpec(name="memory", uri="s3://memory/")
_slots = itertools.count()


@dataclass
class MemoryStore:
    """Objects by key, with the ranges that were asked: (key, start, stop). `before` may wait or raise."""

    objects: dict[bytes, tuple[bytes, str]] = field(default_factory=dict)
    asked: list[tuple[bytes, int, int]] = field(default_factory=list)
    before: Callable[[bytes, int, int], Any] | None = None
    piece: int = 256 << 10
    origin: str = "s3://memory"
    prefix: bytes = b""

    def put(self, name: str, data: bytes, etag: str = "v1") -> bytes:
        self.objects[name.encode()] = data, etag
        return data

    def open(self, _spec: SourceSpec) -> Source:
        return self

    @property
    def bytes_asked(self) -> int:
        return sum(stop - start for _, start, stop in self.asked)

    async def list(self) -> AsyncIterator[list[ObjectEntry]]:
        yield [ObjectEntry(key, len(data), etag, 1) for key, (data, etag) in self.objects.items()]

    async def head(self, key: bytes) -> ObjectEntry:
        data, etag = self.objects[key]
        return ObjectEntry(key, len(data), etag, 1)

    async def read(self, version: ObjectVersion, start: int, stop: int, _piece: int = 0) -> AsyncIterator[memoryview]:
        self.asked.append((version.key, start, stop))
        if self.before is not None:
            await self.before(version.key, start, stop)
        data = memoryview(self.objects[version.key][0])
        for at in range(start, stop, self.piece):
            yield data[at : min(at + self.piece, stop)]

    async def close(self) -> None:
        pass


class Owner:
    """The cache's part of a daemon: credit, commits, evictions, over the real socket."""

    def __init__(self, run_dir: str, owner: CacheOwner) -> None:
        self._path = os.path.join(run_dir, "control.sock")
        self._owner = owner
        self._tasks: set[asyncio.Task[None]] = set()
        self._channels: set[AsyncChannel] = set()
        self.specs: list[SessionSpec] = []
        self.hellos: list[Message] = []
        self.messages: list[Message] = []
        self.granting = True
        self.mute = False

    def start(self) -> None:
        self._sock = listen(self._path)
        self._run(self._accept(self._sock))
        self._run(self._commit_for_ever())

    async def stop(self) -> None:
        """As if the daemon died."""
        for channel in self._channels:
            channel.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._sock.close()

    def tell(self, message: Message) -> None:
        for channel in self._channels:
            channel.send(message)

    def _run(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, sock: socket.socket) -> None:
        while True:
            connection, _ = await asyncio.get_running_loop().sock_accept(sock)
            self._run(self._serve(AsyncChannel(Channel(connection))))

    async def _serve(self, channel: AsyncChannel) -> None:
        self._channels.add(channel)
        with contextlib.suppress(ChannelClosedError):
            hello, _ = await channel.recv()
            self.hellos.append(hello)
            if hello["alive"]:
                self._owner.adopt(0, from_rows(hello["credit"]))
            else:
                self._do(self._owner.drain_dead(0))
                self._owner.buried(0)
            sessions = [spec.to_json() for spec in self.specs]
            roots, seeds = list(self._owner.roots), [seed.hex() for seed in self._owner.seeds]
            cache = {"tiers": roots, "seeds": seeds, "boot": BOOT.hex()}
            channel.send({"op": "welcome", **cache, "sessions": sessions})
            while True:
                message, _ = await channel.recv()
                self.messages.append(message)
                if message["op"] == "credit" and not self.mute:
                    channel.send(self._grant(message))
        channel.close()
        self._channels.discard(channel)

    def _grant(self, message: Message) -> Message:
        answer: Message = {"op": "granted", "seq": message["seq"], "bytes": 0, "inodes": 0, "incarnations": [0, 0]}
        if self.granting:
            numbers = (message[name] for name in ("tier", "account", "bytes", "inodes", "asker"))
            grant = self._owner.grant(0, *numbers)
            answer |= {"bytes": grant.bytes, "inodes": grant.inodes}
            answer["incarnations"] = [grant.first_incarnation, grant.incarnations]
        return answer

    async def _commit_for_ever(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            self._do(self._owner.drain())

    def _do(self, jobs: Iterable[Any]) -> None:
        for job in jobs:
            job.run()
            job.settle()
            self._owner.release(job)


class FetchRig:
    """One fetcher (number 0 of 1), its daemon, and one reader. Use as an async context."""

    def __init__(self, folder: str, limit_bytes: int = 1 << 30, opener: Callable[[SourceSpec], Source] = open_source):
        self.folder = folder
        self.opener = opener
        self.fds = {"presence": create_table(), "counters": create_counters()}
        self.table = PresenceTable(self.fds["presence"])
        self.counters = Counters(self.fds["counters"])
        config = TierConfig(os.path.join(folder, "cache"), Limits(limit_bytes, reserve_free=0))
        self.cache = CacheOwner.open([config], [self.table], BOOT)
        self.cache.register(DATA_SET)
        self.cache.recover()
        self.owner = Owner(folder, self.cache)
        self.reader = CacheReader(self.cache.roots, [self.table], BOOT)

    async def __aenter__(self) -> FetchRig:
        self.owner.start()
        self.start_fetcher()
        self.client = AsyncFetchClient(os.path.join(self.folder, "fetch-0.sock"))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.client.close()
        await self.stop_fetcher()
        await self.owner.stop()
        self.reader.close()
        self.cache.close()
        self.table.close()
        self.counters.close()
        for fd in self.fds.values():
            os.close(fd)

    def start_fetcher(self) -> None:
        fetcher = Fetcher(0, {"run_dir": self.folder, "fetchers": 1}, self.fds, self.opener)
        self.fetcher = fetcher
        self._running = asyncio.create_task(fetcher.run())

    async def stop_fetcher(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    async def mount(self, *sources: SourceSpec, **settings: Any) -> View:
        """List the sources and serve them as one session."""
        specs = sources or (MEMORY,)
        opened = [self.opener(spec) for spec in specs]
        listed = [
            ManifestSource(spec.name, spec.uri, spec.path, source.origin, source.prefix)
            for spec, source in zip(specs, opened, strict=True)
        ]
        with ManifestBuilder(listed, self.folder) as builder:
            for number, source in enumerate(opened):
                async for page in source.list():
                    builder.add(number, page)
                await source.close()
            summary = builder.finish()
        slot = next(_slots)
        spec = SessionSpec(f"s{slot}", slot, DATA_SET, summary.path, specs, MountSpec(**settings))
        self.owner.specs.append(spec)
        self.owner.tell({"op": "session", "spec": spec.to_json()})
        return View(self, spec)

    async def unmount(self, view: View) -> None:
        self.owner.specs.remove(view.spec)
        self.owner.tell({"op": "session-end", "id": view.spec.id, "slot": view.spec.slot})
        view.manifest.close()


class View:
    """A session as a worker has it."""

    def __init__(self, rig: FetchRig, spec: SessionSpec) -> None:
        self.rig = rig
        self.spec = spec
        self.manifest = Manifest.open(spec.manifest_path)

    def inode(self, path: str) -> int:
        inode: int | None = 1
        for name in path.encode().split(b"/"):
            assert inode is not None
            inode = self.manifest.lookup(inode, name)
        assert inode is not None, path
        return inode

    def oid(self, path: str) -> bytes:
        ref = self.manifest.object(self.inode(path))
        version = ref.version
        return object_id(self.manifest.sources[ref.source].origin, version.key, version.etag, version.size)

    def size(self, path: str) -> int:
        return self.manifest.object(self.inode(path)).version.size

    async def ask(self, path: str, offset: int, length: int, flags: int = 0, kind: int = KIND_READ) -> Reply:
        return await self.rig.client.ask(kind, flags, self.spec.slot, self.inode(path), offset, length)

    async def ask_data(self, path: str, offset: int, length: int, flags: int = 0) -> bytes:
        """The bytes of an answer. Raises StokerError."""
        reply = await self.ask(path, offset, length, flags)
        if reply.status == Status.ERROR:
            raise StokerError.from_json(reply.error())
        return reply.data

    async def load(self, path: str) -> None:
        """Raises StokerError."""
        reply = await self.ask(path, 0, 0, kind=KIND_LOAD)
        if reply.status == Status.ERROR:
            raise StokerError.from_json(reply.error())

    def cached(self, path: str, first: int = 0, last: int | None = None) -> bool:
        size = self.size(path)
        last = -(-size // PAGE) if last is None else last
        return self.rig.reader.find(self.oid(path), size, first, last) is not None

    async def read(self, path: str, offset: int, length: int) -> bytes:
        """As a worker reads: from the cache, with a note at a trigger, else by asking. Raises StokerError."""
        size, oid, reader = self.size(path), self.oid(path), self.rig.reader
        pages = page_span(offset, length, size)
        for _ in range(4):
            hit = reader.find(oid, size, *pages)
            if hit is not None:
                if hit.trigger is not None and pages[0] <= hit.trigger < pages[1]:
                    self.note(path, offset, length)
                return reader.read(hit, oid, size, offset, length)
            reply = await self.ask(path, offset, length)
            if reply.status == Status.ERROR:
                raise StokerError.from_json(reply.error())
            if reply.status == Status.DATA:
                return reply.data
        raise AssertionError(f"{path}: told to be present, and never found")

    def note(self, path: str, offset: int, length: int) -> None:
        self.rig.client.note(self.spec.slot, self.inode(path), offset, length)

    async def read_all(self, path: str, step: int = 128 << 10) -> bytes:
        size = self.size(path)
        return b"".join([await self.read(path, at, step) for at in range(0, size, step)])

    def counts(self) -> dict[str, int]:
        return self.rig.counters.read(self.spec.slot)
