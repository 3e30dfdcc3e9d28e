"""The sessions that a fetcher serves: their manifests, objects, and stores. Told by the daemon; asked by requests."""

from __future__ import annotations

import asyncio
import os

import structlog

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.fetch.counters import Counters
from stoker.fetch.files import File, file_of
from stoker.fetch.lanes import Lane, Lanes
from stoker.fetch.phases import Waits
from stoker.fetch.retry import Patience, Rate
from stoker.fetch.session import SessionSpec
from stoker.fetch.store import OpenSource, Store
from stoker.fetch.transfer import Tally
from stoker.manifest.manifest import Manifest
from stoker.sources import open_source
from stoker.sources.base import SourceSpec

log = structlog.get_logger("stoker.fetch")

UNKNOWN_WAIT_S = 20.0
"""A worker may know of a session before its fetcher does: the daemon may be on its way back."""

_REMEMBERED_FILES = 4096


class Session:
    """One session in this fetcher."""

    def __init__(self, spec: SessionSpec, stores: list[Store], tally: Tally) -> None:
        self.spec = spec
        self.tally = tally
        self.waits = Waits(tally.add)
        mount = spec.mount
        self.patience = Patience(mount.retries, mount.deadline_s, mount.request_timeout_s)
        self.stores = stores
        self._manifest = Manifest.open(spec.manifest_path)
        self._files: dict[int, File] = {}

    def file(self, inode: int) -> File:
        """Raises StokerError ManifestCorrupt."""
        found = self._files.get(inode)
        if found is None:
            if len(self._files) >= _REMEMBERED_FILES:
                self._files.clear()
            found = self._files[inode] = file_of(self._manifest, inode, self.spec.mount.policy)
        return found

    def path(self, inode: int) -> str:
        """For people: the path in the mount, or the key of an object that no mount shows."""
        manifest = self._manifest
        hidden = inode - manifest.hidden_inode(0)
        raw = manifest.hidden_objects[hidden].key if hidden >= 0 else manifest.path(inode)
        return raw.decode(errors="backslashreplace")

    async def close(self) -> None:
        self._manifest.close()
        for store in self.stores:
            await store.close()


class Sessions:
    """By slot."""

    def __init__(self, lanes: Lanes, counters: Counters, opener: OpenSource = open_source) -> None:
        self._lanes = lanes
        self._counters = counters
        self._opener = opener
        self._by_slot: dict[int, Session] = {}
        self._rates: dict[str, Rate] = {}
        self._news = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()

    def add(self, spec: SessionSpec) -> None:
        """Serve a session; one that is served already stays as it is."""
        served = self._by_slot.get(spec.slot)
        if served is not None:
            if served.spec.id == spec.id:
                return
            self.end(spec.slot, served.spec.id)
        try:
            stores = [Store(source, self._lane(source, spec), self._opener) for source in spec.sources]
            session = Session(spec, stores, Tally(self._counters, spec.slot))
        except (StokerError, OSError) as error:
            log.error("session cannot be served", session=spec.id, data_set=spec.data_set, error=str(error))
            return
        self._counters.claim(spec.slot, spec.id)
        self._by_slot[spec.slot] = session
        self._news.set()
        self._news = asyncio.Event()

    def keep_only(self, specs: list[SessionSpec]) -> None:
        """These are all the sessions there are."""
        ids = {spec.id for spec in specs}
        for slot, session in list(self._by_slot.items()):
            if session.spec.id not in ids:
                self.end(slot, session.spec.id)
        for spec in specs:
            self.add(spec)

    def end(self, slot: int, session_id: str) -> None:
        """What is on its way for it goes on; then its stores are closed."""
        session = self._by_slot.get(slot)
        if session is None or session.spec.id != session_id:
            return
        del self._by_slot[slot]
        task = asyncio.create_task(_close_later(session))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def get(self, slot: int) -> Session:
        """Raises StokerError."""
        session = self._by_slot.get(slot)
        if session is not None:
            return session
        try:
            async with asyncio.timeout(UNKNOWN_WAIT_S):
                while (session := self._by_slot.get(slot)) is None:
                    await self._news.wait()
        except TimeoutError:
            raise StokerError(Reason.NotMounted, f"no session has slot {slot}") from None
        return session

    def peek(self, slot: int) -> Session | None:
        return self._by_slot.get(slot)

    def settle(self) -> None:
        """Now and then: what readers have waited so far."""
        for session in self._by_slot.values():
            session.waits.settle()

    async def close(self) -> None:
        for task in self._closing:
            task.cancel()
        for session in self._by_slot.values():
            await session.close()
        self._by_slot.clear()

    def _lane(self, source: SourceSpec, spec: SessionSpec) -> Lane:
        """Its rate is that of the bucket, shared with every session that reads there."""
        bucket = "/".join(source.uri.split("/")[:3])
        rate = self._rates.setdefault(f"{source.endpoint} {bucket}", Rate())
        return Lane(self._lanes, spec.mount.read_ahead_threads, rate, _cores())


def _cores() -> int:
    return len(os.sched_getaffinity(0))


async def _close_later(session: Session) -> None:
    try:
        await asyncio.sleep(session.patience.deadline_s)
    finally:
        await session.close()
