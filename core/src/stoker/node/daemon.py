"""The daemon: composes cache, sessions, jobs and the admin API in one event loop, and outlives nothing by itself.

Everything that must survive it is in the store (`node/store.py`) or on disk. A new daemon finds both and goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import structlog
from aiohttp import web

from stoker import __version__
from stoker.api.dataset import DataSet
from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.cache.amount import Amount
from stoker.fetch.client import AsyncFetchClient
from stoker.fetch.counters import Node, create_counters
from stoker.fetch.session import SessionSpec
from stoker.fuse.slots import create_pool
from stoker.ipc.channel import Channel
from stoker.node.admin.port import AdminPort
from stoker.node.admin.serve import MAX_LINE, serve
from stoker.node.api import ROUTES
from stoker.node.cacheservice import CacheService
from stoker.node.counting import Counting, create_past
from stoker.node.endpoint import Endpoint
from stoker.node.generations import Generations
from stoker.node.handed import Handed
from stoker.node.jobs import Jobs
from stoker.node.keeper import Keeper
from stoker.node.mounttable import MountTable
from stoker.node.refresh import Refreshes
from stoker.node.sessions import Session, Sessions
from stoker.node.status import Reads, data_set_status, mount_status
from stoker.node.store import Entry, Share
from stoker.node.upkeep import Upkeep
from stoker.node.watching import Watching

log = structlog.get_logger("stoker.node")

_IDLE_CHECK_S = 0.5
_FAREWELL_S = 0.2  # the supervisor reads the reason before it sees this process end


class Daemon:
    """One life of the daemon process."""

    def __init__(self, config: dict[str, Any], channel: Channel, entries: dict[str, Entry]) -> None:
        self.started = datetime.now(UTC).isoformat()
        self._began = time.monotonic()
        self._config = config
        self._keeper = Keeper(config, channel, entries)
        self._cold = "cache" not in entries
        self._table = MountTable(config["state_dir"])
        self.ready = False
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.generations = Generations(config["state_dir"])
        self.endpoint = Endpoint(config)
        self._admin_port = AdminPort(config)

    async def run(self) -> None:
        """Until the node is told to end."""
        self._task(self._keeper.run())
        await asyncio.sleep(0)
        if self._cold:
            await asyncio.to_thread(self._table.clean_up)
        self.cache = await CacheService.open(self._config, self._keeper)
        await self._create_shared_memory()
        await self.endpoint.open(self._keeper)
        await self._admin_port.open(self._keeper)
        self.counting = Counting(self._keeper.entries, lambda: [session.spec for session in self.sessions.all()])
        self.generations.on_answered = self.counting.count_listing
        told = _Told(self.counting, self.cache)
        self.sessions = Sessions(self._config, self._keeper, self.generations, told, self._table)
        handed = Handed(self._keeper)
        serves_s3 = bool(self.endpoint.url)
        upkeep = self._upkeep = Upkeep(self.sessions, self.generations, handed, self.cache, serves_s3=serves_s3)
        self.refreshes = Refreshes(self.cache.data_sets, self.generations, self.sessions, handed, upkeep.look)
        self.cache.on_changed = self.refreshes.source_changed
        told.also(self.refreshes, upkeep)
        self.sessions.recover()
        self._keeper.on_orphan = self.sessions.orphaned
        self._keeper.on_replaced = lambda: self.counting.own.tally(Node.SUPERVISORS)
        fetchers = int(self._config["fetchers"])
        paths = [os.path.join(self._config["run_dir"], f"fetch-{j}.sock") for j in range(fetchers)]
        self._clients = [AsyncFetchClient(path) for path in paths]
        self.jobs = Jobs(self._load, self._source_bytes, self.sessions.job_ended)
        self.watching = Watching(self._config, self.counting, self.cache, self.sessions, self.jobs)
        self._task(self.watching.run())
        if self._cold:
            await self.watching.serve_tcp(cold=True)
        else:
            self._task(self.watching.serve_tcp(cold=False))
        self._task(self.cache.run(self.sessions))
        self._task(upkeep.run())
        self._task(self.refreshes.run())
        self._keeper.want({"fetcher": fetchers, "worker": int(self._config["fuse_workers"]), **self.endpoint.roles})
        await self._serve()

    def stop(self) -> None:
        self._stop.set()

    async def give_up(self, error: StokerError) -> None:
        """A node that cannot start ends, and says why to the command that started it."""
        self._keeper.exit(1, error.to_json())
        await asyncio.sleep(_FAREWELL_S)

    def reads(self, session: Session) -> Reads:
        """What was read through one session, over all processes."""
        return Reads.of(self.counting.of(session.spec))

    def _source_bytes(self, slot: int) -> int:
        session = self.sessions.by_slot(slot)
        return self.reads(session).from_source if session is not None else 0

    async def status(self) -> dict[str, Any]:
        """The document of `GET /v1/status`."""
        mounts = [await self.describe(session) for session in self.sessions.all() if session.mountpoint]
        node = {
            "pid": os.getpid(),
            "version": __version__,
            "uptimeSeconds": round(time.monotonic() - self._began),
            "s3": {"endpoint": self.endpoint.url},
            "cache": {
                "tiers": self.cache.tiers(),
                "evicted": {why: objects for why, (objects, _bytes) in self.counting.evictions().items()},
                **self.cache.losses(self._bad_pages()),
            },
        }
        jobs = [job.to_json() for job in self.jobs.all()]
        return {"node": node, "dataSets": self.data_sets(), "mounts": mounts, "jobs": jobs}

    def data_sets(self) -> list[dict[str, Any]]:
        """The DataSets that this node knows, what each holds and may hold."""
        held = self.cache.held_by_data_sets()
        mounts = Counter(session.spec.data_set for session in self.sessions.all() if session.mountpoint)
        return [
            {
                **data_set_status(data_set, held.get(data_set.full_name, Amount()), mounts[data_set.full_name]),
                **self.cache.pins.status(data_set.full_name),
                **self.refreshes.status(data_set),
            }
            for data_set in self.cache.data_sets.all()
        ]

    def data_set(self, name: str) -> dict[str, Any]:
        """One of them. Raises StokerError."""
        for found in self.data_sets():
            if found["name"] == name:
                return found
        raise _not_known(name)

    async def apply(self, data_set: DataSet) -> dict[str, Any]:
        """Take over what a document says of limits and pins. Raises StokerError PinsDoNotFit: nothing is changed then.

        What is not mounted gets its pins with the next mount: only then its files are known."""
        name, known = data_set.full_name, self.cache.data_sets
        before = known.get(name)
        self.cache.data_set_known(data_set)
        if sessions := self.sessions.mounts_of(name) or self.sessions.of(name):
            try:
                await self.cache.pins.follow(sessions[0], data_set.spec.pin)
            except StokerError:
                if before is not None:
                    self.cache.data_set_known(before)
                raise
        return self.data_set(name)

    async def pin_as_written(self, session: Session, data_set: DataSet) -> None:
        """The pins of a document, with its mount. Those that do not fit hinder no mount: status says it."""
        try:
            await self.cache.pins.follow(session, data_set.spec.pin)
        except StokerError as error:
            log.warning(error.message, reason=error.reason, data_set=session.spec.data_set)

    async def forget(self, name: str) -> None:
        """Serve a DataSet no more; what it holds goes first. Raises StokerError: DataSetNotFound, MountBusy."""
        if self.cache.data_sets.get(name) is None:
            raise _not_known(name)
        if self.sessions.mounts_of(name):
            step = "unmount it first: stoker unmount"
            raise StokerError(Reason.MountBusy, "it is mounted", place=name, next_step=step)
        await self.cache.forget_data_set(name)
        self.refreshes.forget(name)

    def _bad_pages(self) -> int:
        """What reads found to be wrong in the cache."""
        return sum(row["bad_pages"] for row in self.counting.by_data_set().values())

    async def describe(self, session: Session) -> dict[str, Any]:
        """One mount as `GET /v1/status` shows it."""
        cached = await self.cache.counts(session)
        pins = self.cache.pins.status(session.spec.data_set)
        changed = self.refreshes.changed_under(session.spec.id)
        return {**mount_status(session, self.reads(session), cached), **pins, **changed}

    async def _load(self, slot: int, inode: int) -> None:
        session = self.sessions.by_slot(slot)
        if session is not None:
            await self._clients[self.cache.fetcher_of(session, inode)].load(slot, inode)

    async def _serve(self) -> None:
        runner = web.AppRunner(serve(self, ROUTES), access_log=None, max_line_size=MAX_LINE)
        await runner.setup()
        path = os.path.join(self._config["run_dir"], "admin.sock")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        old = os.umask(0o177)
        try:
            await web.UnixSite(runner, path).start()
        finally:
            os.umask(old)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        self._task(self._admin_port.run(lambda check: serve(self, ROUTES, check)))
        self.ready = True
        log.info("node ready", admin=path, cold=self._cold)
        if float(self._config["idle_exit_seconds"]):
            self._task(self._exit_when_idle(float(self._config["idle_exit_seconds"])))
        await self._stop.wait()
        await self._end(runner, path)

    async def _end(self, runner: web.AppRunner, path: str) -> None:
        await self.refreshes.close()
        await self._upkeep.close()
        for job in self.jobs.all():
            await self.jobs.cancel(job)
        await self.sessions.unmount_all()
        await runner.cleanup()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._keeper.exit()
        await self.cache.close()
        log.info("node ended")

    async def _exit_when_idle(self, seconds: float) -> None:
        """A node that a command started ends some time after its last mount and job."""
        idle_since = time.monotonic()
        while time.monotonic() - idle_since < seconds:
            await asyncio.sleep(_IDLE_CHECK_S)
            if self.sessions.busy() or self.jobs.running():
                idle_since = time.monotonic()
        self.stop()

    async def _create_shared_memory(self) -> None:
        for index in range(int(self._config["fuse_workers"])):
            if f"pool.{index}" not in self._keeper.entries:
                share = (Share("worker", ("pool",), index),)
                await self._keeper.keep(Entry(f"pool.{index}", {"pool": create_pool()}, {}, share))
            await self._create_counters("worker", index)
        for index in range(int(self._config["fetchers"])):
            await self._create_counters("fetcher", index)
        await self._create_counters("daemon", 0)
        if "past" not in self._keeper.entries:
            await self._keeper.keep(Entry("past", {"past": create_past()}))

    async def _create_counters(self, role: str, index: int) -> None:
        key = f"counters.{role}.{index}"
        if key not in self._keeper.entries:
            share = (Share(role, ("counters",), index),)
            await self._keeper.keep(Entry(key, {"counters": create_counters()}, {}, share))

    def _task(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """A task that fails ends this daemon; the supervisor starts another, which begins from what is kept."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("daemon failed", error=repr(error), exc_info=error)
            os._exit(70)


class _Told:
    """Who hears of sessions: their counts, then the cache."""

    def __init__(self, counting: Counting, cache: CacheService) -> None:
        self._counting = counting
        self._cache = cache
        self._refreshes: Refreshes | None = None
        self._upkeep: Upkeep | None = None

    def also(self, refreshes: Refreshes, upkeep: Upkeep) -> None:
        """They are made after the sessions."""
        self._refreshes, self._upkeep = refreshes, upkeep

    def data_set_known(self, data_set: DataSet) -> None:
        self._cache.data_set_known(data_set)

    def session_added(self, spec: SessionSpec) -> None:
        self._counting.began(spec)
        self._cache.session_added(spec)
        if self._upkeep is not None:
            self._upkeep.look(spec.data_set)

    def session_ended(self, spec: SessionSpec) -> None:
        self._counting.ended(spec)
        self._cache.session_ended(spec)
        if self._refreshes is not None and self._upkeep is not None:
            self._refreshes.session_ended(spec.id)
            self._upkeep.look(spec.data_set)


def _not_known(name: str) -> StokerError:
    step = "see the DataSets of this node: stoker status"
    return StokerError(Reason.DataSetNotFound, "this node does not know it", place=name, next_step=step)


def _unforeseen(error: Exception) -> StokerError:
    log.error("unforeseen", error=repr(error), exc_info=error)
    text = f"{type(error).__name__}: {error}"
    return StokerError(Reason.NodeStartFailed, text, next_step="see the node's log.")


def run_daemon(config: dict[str, Any], channel: Channel, entries: dict[str, Entry]) -> None:
    """The daemon process."""

    async def main() -> None:
        daemon = Daemon(config, channel, entries)
        try:
            await daemon.run()
        except Exception as error:
            if daemon.ready:
                raise
            known = error if isinstance(error, StokerError) else _unforeseen(error)
            log.error("node cannot start", reason=known.reason, message=known.message, place=known.place)
            await daemon.give_up(known)

    asyncio.run(main())
