"""What can be seen of a node from outside: metrics, health, and why reads are slow. Composes, decides nothing."""

from __future__ import annotations

import asyncio
import time
from collections import Counter as Count
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web

from stoker import __version__
from stoker.api.errors import StokerError
from stoker.api.names import full_name
from stoker.api.reasons import Reason
from stoker.node.metrics import CONTENT_TYPE, Exposition
from stoker.node.metricvalues import Facts, bounded
from stoker.node.pace import KEEP_S, SAMPLE_S, Paces
from stoker.node.whyslow import Mounted, analyse

if TYPE_CHECKING:
    from stoker.node.cacheservice import CacheService
    from stoker.node.counting import Counting
    from stoker.node.jobs import Jobs
    from stoker.node.sessions import Session, Sessions

log = structlog.get_logger("stoker.node")

_SILENT_S = 10.0  # a worker reports each second; one that hangs in the kernel is not well
_REPORT_S = 3.0
_RETRY_S = 1.0  # the port of a daemon that was killed is free in a moment


class Watching:
    """One life of the daemon."""

    def __init__(
        self, config: dict[str, Any], counting: Counting, cache: CacheService, sessions: Sessions, jobs: Jobs
    ) -> None:
        self._config = config
        self._counting = counting
        self._cache = cache
        self._sessions = sessions
        self._jobs = jobs
        self._started = time.time()
        self._exposition = Exposition()
        self._paces = Paces(int(config["fuse_workers"]), counting.by_data_set, time.monotonic())
        cache.on_pace = self._paces.heard
        cache.eviction.on_evicted = counting.own.evicted
        cache.on_bad_pages = counting.count_bad_pages

    async def run(self) -> None:
        """Take samples for ever."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            self._paces.sample(time.monotonic())

    async def metrics(self, _request: web.Request | None = None) -> web.Response:
        cached = await asyncio.to_thread(self._cache.owner.usage_by_owner_and_tier)
        facts = Facts(
            counting=self._counting,
            tiers=self._cache.owner.usage(),
            cached=bounded(cached),
            pinned=bounded(self._cache.owner.pinned_by_owner_and_tier()),
            mounts=self._sessions.mounted(),
            phases=Count(job.phase for job in self._jobs.all()),
            slots=self._cache.owner.slots(),
            version=__version__,
            started=self._started,
        )
        return web.Response(body=self._exposition.text(facts), headers={"Content-Type": CONTENT_TYPE})

    async def health(self, _request: web.Request | None = None) -> web.Response:
        """200 while every process of the node does its work, else 503 with what does not."""
        silent_since = time.monotonic() - _SILENT_S
        silent = [f"worker {index} is silent" for index, at in self._paces.told.items() if at < silent_since]
        gone = [f"fetcher {index} is away" for index in self._cache.absent_fetchers()]
        wrong = silent + gone
        return web.json_response({"healthy": not wrong, "problems": wrong}, status=503 if wrong else 200)

    async def why_slow(self, name: str, path: str, since_s: float) -> dict[str, Any]:
        """The reads of a data set, else of the one mounted at a path, in the last seconds. Raises StokerError."""
        if not 1 <= since_s <= KEEP_S:
            step = f"ask for 1s to {KEEP_S / 60:g}m."
            raise StokerError(Reason.InvalidValue, f"no samples of {since_s:g} s are kept", place=name, next_step=step)
        data_set, session = self._find(name, path)
        await self._reported()
        now = time.monotonic()
        self._paces.sample(now, lag_s=0)
        mount = session.spec.mount if session is not None else None
        mounted = (
            Mounted(mount.read_ahead_max, mount.read_ahead_threads, mount.policy, mount.passthrough)
            if mount is not None
            else Mounted()
        )
        return {"dataSet": data_set, **analyse(self._paces.samples(data_set, now - since_s), mounted).to_json()}

    def _find(self, name: str, path: str) -> tuple[str, Session | None]:
        full = full_name(name)
        mounted = [session for session in self._sessions.all() if session.mountpoint]
        for session in mounted:
            if session.spec.data_set == full:
                return full, session
        for session in mounted:
            if session.mountpoint == path:
                return session.spec.data_set, session
        if full in self._paces.known():
            return full, None
        step = "see what is mounted: stoker status"
        raise StokerError(Reason.NotMounted, "no such data set was read here lately", place=name, next_step=step)

    async def _reported(self) -> None:
        """Until all workers have told of everything up to now; one that hangs is not waited for."""
        asked, end = time.monotonic(), time.monotonic() + _REPORT_S
        while min(self._paces.told.values()) < asked and time.monotonic() < end:  # noqa: ASYNC110 - several workers
            await asyncio.sleep(0.05)

    async def serve_tcp(self, cold: bool) -> None:
        """Metrics and health for whoever can reach the port. Raises StokerError at the first start of a node."""
        port = int(self._config["metrics_port"])
        if not port:
            return
        app = web.Application()
        app.add_routes([web.get("/metrics", self.metrics), web.get("/healthz", self.health)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        while True:
            try:
                await web.TCPSite(runner, self._config["metrics_address"], port).start()
                return
            except OSError as error:
                place = f"{self._config['metrics_address']}:{port}"
                text = f"metrics cannot be served there ({error.strerror or error})"
                if cold:
                    step = "set STOKER_METRICS_PORT and STOKER_METRICS_ADDRESS to what is free, or the port to 0."
                    raise StokerError(Reason.NodeStartFailed, text, place=place, next_step=step) from error
                log.warning(text, reason=Reason.NodeStartFailed, place=place)
                await asyncio.sleep(_RETRY_S)
