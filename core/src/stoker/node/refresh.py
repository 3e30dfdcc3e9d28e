"""Refreshes: the sources of a served DataSet are listed again, by a command or by themselves every `refresh.interval`.

What was found is the current generation from then on. A listing that fails changes nothing but a condition.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from stoker.api.dataset import DataSet
from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.node.catalogue import NO_CHANGES, Generation, time_of
from stoker.node.datasets import DataSets
from stoker.node.generations import Generations
from stoker.node.handed import Handed
from stoker.node.resolve import Resolved, resolve
from stoker.node.sessions import Session, Sessions

log = structlog.get_logger("stoker.node")

_AT_ONCE = 2  # listings by themselves: each is a process that sorts, and mounts list beside them
_TICK_S = 0.25
_JITTER = 0.1
_LEAST_S = 1.0
_MOST_PATHS = 1000  # changed paths of a mount that are told apart; beyond them it is more than so many

_REFUSED = (Reason.AccessDenied, Reason.CredentialsExpired, Reason.CredentialsMissing)


@dataclass(slots=True)
class _Due:
    """When a data set is listed again by itself. Seconds of the monotonic clock."""

    at: float
    interval: float
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class _Changed:
    """What readers of one mount found to be changed."""

    paths: set[str] = field(default_factory=set)
    last: str = ""


class Refreshes:
    """One life of the daemon. `look` is called with the name of a data set whose current generation is another one."""

    def __init__(
        self,
        data_sets: DataSets,
        generations: Generations,
        sessions: Sessions,
        handed: Handed,
        look: Callable[[str], None],
    ) -> None:
        self._data_sets = data_sets
        self._generations = generations
        self._sessions = sessions
        self._handed = handed
        self._look = look
        self._turns: dict[str, asyncio.Lock] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._due: dict[str, _Due] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._last: dict[str, str] = {}
        self._changed: dict[str, _Changed] = {}
        self._changes: dict[str, float] = {}
        generations.on_listed = self._listed

    # --- by a command

    async def refresh(
        self, name: str, credentials: Mapping[str, Any], progress: Callable[[int], None] = lambda _: None
    ) -> dict[str, Any]:
        """List the sources of a DataSet again. `credentials`: of the user who asks, for where those that were handed
        over before do not reach. Raises StokerError; everything stays as it is then."""
        data_set = self._data_sets.need(name)
        async with self._turns.setdefault(name, asyncio.Lock()):
            before = self._generations.current(name)
            try:
                with self._sessions.working():
                    after = await self._list(data_set, credentials, progress)
            except StokerError as error:
                self._failed(name, before, error)
                raise
        said = self._said(name, before, after)
        if said["new"]:
            log.info("new generation", data_set=name, generation=after.digest, **said["changed"])
        return said

    async def _list(
        self, data_set: DataSet, credentials: Mapping[str, Any], progress: Callable[[int], None]
    ) -> Generation:
        handed = self._resolved(data_set, credentials)
        try:
            return await self._generations.list_sources(handed, progress)
        except StokerError as error:
            own = resolve(data_set, credentials, "")
            if error.reason not in _REFUSED or not any(credentials.values()) or own == handed:
                raise
        return await self._generations.list_sources(own, progress)

    def _resolved(self, data_set: DataSet, credentials: Mapping[str, Any]) -> Resolved:
        """The document as it is known now, with the credentials that came for each of its sources, or come now."""
        name = data_set.full_name
        came = [self._handed.get(name).resolved, *(session.resolved() for session in self._mounts(name))]
        bare = resolve(data_set, {}, "")
        found: dict[str, dict[str, str]] = {}
        for source in bare.sources:
            for resolved in came:
                for known in resolved.sources if resolved is not None else ():
                    if (known.name, known.uri, known.endpoint) == (source.name, source.uri, source.endpoint):
                        found.setdefault(source.name, known.credentials.to_json())
        return resolve(data_set, {**credentials, **found}, "")

    def _mounts(self, name: str) -> list[Session]:
        """The newest first."""
        return self._sessions.mounts_of(name)[::-1]

    def _said(self, name: str, before: Generation | None, after: Generation) -> dict[str, Any]:
        changed = before is None or before.digest != after.digest
        return {
            "dataSet": name,
            "new": changed,
            "generation": generation_status(after),
            "changed": after.changed if changed else NO_CHANGES,
            "keptBy": [s.mountpoint for s in self._mounts(name) if s.manifest.digest != after.digest],
        }

    # --- what is heard

    def _listed(self, resolved: Resolved, began: float) -> None:
        """A mount, a job or a refresh listed the sources, since `began`."""
        name = resolved.name
        self._handed.put(resolved, listed=True)
        self._last[name] = time_of(time.time())
        conditions = self._handed.get(name).conditions
        news = conditions.put("Indexed", True, "Listed")
        # What was found to be changed after this listing began may be newer than what it found.
        if conditions.holds("SourceChanged") and self._changes.get(name, 0.0) <= began:
            news = conditions.put("SourceChanged", False, "Listed") or news
        if news:
            self._handed.keep(name)
        self._look(name)

    def _failed(self, name: str, before: Generation | None, error: StokerError) -> None:
        stays = f"; generation {before.digest[:12]} stays" if before is not None else ""
        text = f"the sources cannot be listed{stays}: {error.line()}"
        if self._handed.get(name).conditions.put("Indexed", False, error.reason, text):
            log.warning("refresh failed", data_set=name, reason=error.reason, error=error.line())
            self._handed.keep(name)

    def source_changed(self, session_id: str, path: str, text: str) -> None:
        """A read found that an object is not what was listed."""
        session = next((s for s in self._sessions.all() if s.spec.id == session_id), None)
        if session is None:
            return
        name, seen = session.spec.data_set, self._changed.setdefault(session_id, _Changed())
        seen.last = path
        if len(seen.paths) < _MOST_PATHS:
            seen.paths.add(path)
        current = self._generations.current(name)
        if current is None or current.path != session.spec.manifest_path:
            return  # a newer generation is there already: new mounts are not touched
        self._changes[name] = time.monotonic()
        message = f"{path}: {text}; list the sources again: stoker refresh {name}"
        if self._handed.get(name).conditions.put("SourceChanged", True, Reason.SourceChanged, message):
            self._handed.keep(name)

    def applied(self, resolved: Resolved) -> None:
        """A document came without a mount; its credentials are of use when it is listed by itself."""
        if resolved.data_set.spec.refresh.interval.seconds or self._mounts(resolved.name):
            self._handed.put(resolved)

    def session_ended(self, session_id: str) -> None:
        self._changed.pop(session_id, None)

    def forget(self, name: str) -> None:
        """A DataSet is not served any more."""
        self._handed.forget(name)
        self._generations.forget(name)
        for known in (self._due, self._last, self._changes):
            known.pop(name, None)

    # --- for status

    def status(self, data_set: DataSet) -> dict[str, Any]:
        """What belongs to the status of a DataSet."""
        name = data_set.full_name
        current = self._generations.current(name)
        return {
            "generation": generation_status(current) if current is not None else None,
            "conditions": self._handed.get(name).conditions.to_json(),
            "refresh": {
                "intervalSeconds": data_set.spec.refresh.interval.seconds,
                "lastListedTime": self._last.get(name, ""),
            },
        }

    def changed_under(self, session_id: str) -> dict[str, Any]:
        """What belongs to the status of a mount."""
        seen = self._changed.get(session_id, _Changed())
        return {"sourceChanged": {"files": len(seen.paths), "lastPath": seen.last}}

    # --- by themselves

    async def run(self) -> None:
        """List what is due, for ever."""
        while True:
            self._plan(time.monotonic())
            for name, due in self._due.items():
                if due.task is None and time.monotonic() >= due.at:
                    due.task = asyncio.create_task(self._by_itself(name, due))
                    self._running.add(due.task)
                    due.task.add_done_callback(self._running.discard)
            await asyncio.sleep(_TICK_S)

    async def close(self) -> None:
        """The node ends: what is being listed is not."""
        self._due.clear()
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _plan(self, now: float) -> None:
        """After a start, or a change of the interval, the first is somewhere within one interval."""
        wanted = {
            d.full_name: max(_LEAST_S, s) for d in self._data_sets.all() if (s := d.spec.refresh.interval.seconds)
        }
        for name in self._due.keys() - wanted.keys():
            del self._due[name]
        for name, interval in wanted.items():
            due = self._due.get(name)
            if due is None or due.interval != interval:
                at = now + random.uniform(0, interval)  # noqa: S311 - spreads load, guards nothing
                self._due[name] = _Due(at, interval, due.task if due is not None else None)

    async def _by_itself(self, name: str, due: _Due) -> None:
        try:
            async with self._slots:
                with contextlib.suppress(StokerError):
                    await self.refresh(name, {})
        except Exception as error:
            log.exception("refresh failed", data_set=name, error=repr(error))
        finally:
            spread = random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311
            mine = self._due.get(name, due)
            mine.at, mine.task = time.monotonic() + mine.interval * spread, None


def generation_status(generation: Generation) -> dict[str, Any]:
    """A generation as API users see it."""
    return {
        "digest": generation.digest,
        "observedTime": generation.observed,
        "files": generation.files,
        "bytes": generation.bytes,
        "directories": generation.directories,
        "hidden": generation.hidden,
        "changed": {**NO_CHANGES, **generation.changed},
    }
