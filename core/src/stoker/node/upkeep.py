"""Makes what a data set takes on this node agree with the generations that are needed: those that are mounted, and the
current one. By level: it looks at what is so, whatever happened before, so a death in the middle is made good at the
next look. docs/design/generations.md has the cases.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import structlog

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.node.cacheservice import CacheService
from stoker.node.generations import Generations, job
from stoker.node.handed import Handed
from stoker.node.sessions import Session, Sessions

log = structlog.get_logger("stoker.node")

_AGAIN_S = 5.0


class Upkeep:
    """One life of the daemon. `serves_s3`: whether there is an endpoint that must show current generations."""

    def __init__(
        self, sessions: Sessions, generations: Generations, handed: Handed, cache: CacheService, *, serves_s3: bool
    ) -> None:
        self._sessions = sessions
        self._generations = generations
        self._handed = handed
        self._cache = cache
        self._serves_s3 = serves_s3
        self._leaving: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._closed = False
        self._one_at_a_time = asyncio.Lock()
        self._failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    def look(self, name: str) -> None:
        """Something about a data set changed."""
        if self._closed:
            return
        if name in self._tasks:
            self._again.add(name)
            return
        task = self._tasks[name] = asyncio.create_task(self._settle_all(name))
        task.add_done_callback(self._done)

    async def close(self) -> None:
        """The node ends. What is left to do is found at its next start."""
        self._closed = True
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def run(self) -> None:
        """Look at all that are on disk, and end with the first look that fails: that is a fault of this program."""
        for name in self._generations.names():
            self.look(name)
        raise await self._failed

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self._failed.done():
            self._failed.set_result(error)

    async def _settle_all(self, name: str) -> None:
        try:
            while True:
                self._again.discard(name)
                await self._settle(name)
                if name not in self._again:
                    return
        finally:
            del self._tasks[name]

    async def _settle(self, name: str) -> None:
        await self._settle_shown(name)
        self._forget_secrets(name)
        for path in self._generations.over(name, self._used(name)):
            async with self._one_at_a_time:
                await self._let_go(name, path)
        self._generations.tidy(name, self._used(name))

    def _used(self, name: str) -> list[str]:
        """Manifests that something shows, the current one first."""
        current = self._generations.current(name)
        shown = {session.spec.manifest_path for session in self._sessions.of(name)}
        return ([current.path] if current else []) + sorted(shown - {current.path if current else ""})

    async def _settle_shown(self, name: str) -> None:
        """While the newest mount shows an older generation, S3 has a session of its own that shows the current one."""
        current, sessions = self._generations.current(name), self._sessions.of(name)
        mounts = self._sessions.mounts_of(name)
        wanted = current is not None and bool(mounts) and mounts[-1].spec.manifest_path != current.path
        kept: Session | None = None
        if wanted and self._serves_s3 and current is not None:
            shown = [
                s for s in sessions if s.newest and s.spec.manifest_path == current.path and s.made > mounts[-1].made
            ]
            kept = shown[-1] if shown else None
            listed = self._handed.get(name).listed or mounts[-1].resolved()
            if kept is None and self._generations.listed_so(listed):
                kept = await self._sessions.show(listed, current)
        for session in self._sessions.of(name):
            if session.newest and session is not kept:
                self._end(session, at_once=not mounts)

    def _end(self, session: Session, *, at_once: bool) -> None:
        """Answers that are being sent end on what they began with."""
        if at_once:
            self._sessions.end(session)
        elif session.spec.id not in self._leaving:
            self._leaving.add(session.spec.id)
            self._cache.when_s3_left(session.key, lambda: self._left(session))

    def _left(self, session: Session) -> None:
        self._leaving.discard(session.spec.id)
        self._sessions.end(session)

    def _forget_secrets(self, name: str) -> None:
        """Credentials stay only as long as something is read, or listed by itself."""
        data_set = self._cache.data_sets.get(name)
        by_itself = data_set is not None and data_set.spec.refresh.interval.seconds
        if not self._sessions.of(name) and not self._sessions.busy() and not by_itself:
            self._handed.strip(name)

    async def _let_go(self, name: str, path: str) -> None:
        """Free what only one generation has that nothing uses any more."""
        used = self._used(name)
        busy = False
        try:
            async for oids in unneeded(path, used):
                busy = bool(await self._cache.let_go(oids, name)) or busy
        except StokerError as error:
            log.warning("generations cannot be compared", data_set=name, manifest=path, reason=error.reason)
        if busy:  # fetchers are filling some at this moment, for reads that nobody waits for any more
            asyncio.get_running_loop().call_later(_AGAIN_S, self.look, name)
        else:
            self._generations.let_go(name, path)


async def unneeded(old: str, others: list[str]) -> AsyncIterator[list[bytes]]:
    """The ids of what only `old` has, some at a time, found by a process of its own. Raises StokerError."""
    async with job("unneeded", {"old": old, "others": others}) as lines:
        async for line in lines:
            if line.get("state") == "done":
                return
            yield [bytes.fromhex(oid) for oid in line["oids"]]
    raise StokerError(Reason.ManifestCorrupt, "the comparison ended without a result", place=old)
