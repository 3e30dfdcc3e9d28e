"""The fetcher process: composes socket, line to the daemon, cache and sessions in one event loop.

It holds nothing that its successor needs: what it stored is in the presence table (memfd) and on disk, and who asked
asks again.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Mapping
from typing import Any

import structlog

from stoker.cache.credit import Credit
from stoker.cache.presence import PresenceTable
from stoker.cache.writer import CacheWriter
from stoker.fetch.budget import NODE_BYTES, Budget
from stoker.fetch.counters import Counters, Node
from stoker.fetch.disk import Disk
from stoker.fetch.lanes import Lanes
from stoker.fetch.link import Link
from stoker.fetch.objects import Objects
from stoker.fetch.server import listen
from stoker.fetch.service import Service
from stoker.fetch.session import SessionSpec
from stoker.fetch.sessions import Sessions
from stoker.fetch.store import OpenSource
from stoker.ipc.channel import Message
from stoker.sources import open_source

log = structlog.get_logger("stoker.fetch")

COLLECT_S = 0.5
"""As often as the owner commits."""


class Fetcher:
    """One life of the process. `config`: `run_dir`, `fetchers`; `fds`: `presence`, `counters`."""

    def __init__(
        self, index: int, config: Mapping[str, Any], fds: Mapping[str, int], opener: OpenSource = open_source
    ) -> None:
        self._path = os.path.join(config["run_dir"], f"fetch-{index}.sock")
        self._table = PresenceTable(fds["presence"])
        self._counters = Counters(fds["counters"])
        self._counters.tally(Node.STARTS)
        self._disk: Disk | None = None
        self.writer: CacheWriter | None = None
        self.budget = Budget(NODE_BYTES // int(config["fetchers"]))
        self._lanes = lanes = Lanes(self.budget)
        self._sessions = Sessions(lanes, self._counters, opener)
        hello = {"op": "hello", "role": "fetcher", "index": index, "pid": os.getpid()}
        self._link = Link(os.path.join(config["run_dir"], "control.sock"), hello, self)
        self._service = Service(self._sessions, lanes, self._link.tell)
        self._service.tell_changed = self._link.tell_changed

    async def run(self) -> None:
        """Serve until cancelled."""
        server = await listen(self._path, self._service)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._link.run())
                tasks.create_task(self._collect())
        finally:
            server.close()
            await self._close()

    # What the daemon says

    def welcomed(self, message: Message) -> None:
        """The first time: the cache begins. Sessions are these, from now on."""
        if self.writer is None:
            self._begin_cache(message["tiers"], [*map(bytes.fromhex, message["seeds"])], bytes.fromhex(message["boot"]))
        self._sessions.keep_only([SessionSpec.from_json(spec) for spec in message["sessions"]])
        log.info("fetcher ready", sessions=len(message["sessions"]))

    def session(self, spec: SessionSpec) -> None:
        self._sessions.add(spec)

    def session_ended(self, slot: int, session_id: str) -> None:
        self._sessions.end(slot, session_id)

    # Inside

    def _begin_cache(self, tiers: list[str], seeds: list[bytes], boot: bytes) -> None:
        """What a predecessor left in the table is in the index by now: the daemon drained it before its welcome."""
        self._table.clear()
        self._disk = Disk(len(tiers))
        self.writer = CacheWriter(
            tiers,
            self._table,
            boot,
            Credit(self._link.ask),
            seeds=seeds,
            on_event=self._link.tell_fault,
            on_good=lambda tier: self._link.send({"op": "stored", "tier": tier}),
            on_table_full=lambda: self._link.send({"op": "table-full"}),
        )
        self._service.objects = Objects(self.writer, self._disk, self._lanes)

    async def _collect(self) -> None:
        while True:
            await asyncio.sleep(COLLECT_S)
            if self.writer is not None:
                self.writer.collect()
            self._sessions.settle()
            self._counters.show(Node.WAITING, self._lanes.waiting)
            self._counters.show(Node.RUNNING, self._lanes.running)

    async def _close(self) -> None:
        if self._service.objects is not None:
            await self._service.objects.close()
        await self._sessions.close()
        if self._disk is not None:
            self._disk.close()
        if self.writer is not None:
            self.writer.close()


def run(index: int, config: dict[str, Any], fds: dict[str, int]) -> None:
    """The process: until SIGTERM."""

    async def main() -> None:
        fetcher = asyncio.ensure_future(Fetcher(index, config, fds).run())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, fetcher.cancel)
        await asyncio.wait([fetcher])
        if not fetcher.cancelled() and (error := fetcher.exception()) is not None:
            log.error("fetcher failed", error=repr(error), exc_info=error)
            raise SystemExit(70)

    log.info("fetcher begins", index=index)
    # By default the collector walks through what thousands of objects have made, every 700 more: 8 % of the loop.
    gc.set_threshold(20_000, 50, 100)
    asyncio.run(main())
