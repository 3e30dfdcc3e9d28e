"""The sessions of this node: made by a mount or a job, kept with the supervisor, told to workers and fetchers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog

from stoker.api.dataset import DataSet
from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.fetch.session import SessionSpec
from stoker.fuse import kernel
from stoker.fuse.opens import create_table
from stoker.manifest.manifest import Manifest
from stoker.node.generations import Generation, Generations
from stoker.node.keeper import Keeper
from stoker.node.mountpoint import check_mountpoint
from stoker.node.mounttable import MountTable
from stoker.node.resolve import Owner, Resolved, resolve, wants_passthrough
from stoker.node.store import Entry, Share

log = structlog.get_logger("stoker.node")

MAX_SESSIONS = 1024
_READY_TIMEOUT_S = 15.0


class Listeners(Protocol):
    """Who must know of sessions beside the workers."""

    def data_set_known(self, data_set: DataSet) -> None: ...

    def session_added(self, spec: SessionSpec) -> None: ...

    def session_ended(self, spec: SessionSpec) -> None: ...


@dataclass(slots=True)
class Session:
    """A live session. `mountpoint` is empty for one that only a job uses, and for a `newest` one, which shows the
    current generation by S3 while the mounts of its DataSet show older ones."""

    spec: SessionSpec
    manifest: Manifest
    mountpoint: str
    document: dict[str, Any]
    newest: bool = False
    made: int = 0

    @property
    def key(self) -> str:
        return f"session.{self.spec.id}"

    def resolved(self) -> Resolved:
        """The DataSet as it was handed over, with credentials."""
        credentials = {source.name: source.credentials.to_json() for source in self.spec.sources}
        return resolve(DataSet.from_body(self.document), credentials, "")


class Sessions:
    """Makes and ends sessions; one change of a mountpoint at a time, different ones beside each other."""

    def __init__(
        self, config: dict[str, Any], keeper: Keeper, generations: Generations, listeners: Listeners, table: MountTable
    ) -> None:
        self._workers = int(config["fuse_workers"])
        self._keeper = keeper
        self._generations = generations
        self._listeners = listeners
        self._table = table
        self._sessions: dict[int, Session] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._starting = 0

    def recover(self) -> None:
        """After a crash of the daemon: the mounts that the supervisor kept. Jobs, and their sessions, ended with it."""
        entries = [entry for entry in self._keeper.entries.values() if entry.key.startswith("session.")]
        for entry in sorted(entries, key=lambda entry: entry.data["made"], reverse=True):
            spec = SessionSpec.from_json(entry.data["spec"])
            # Of two that have one slot the older has ended: who kept it had not heard of that.
            kept = entry.data["mountpoint"] or entry.data["newest"]
            if not kept or spec.slot in self._sessions:
                self._listeners.session_ended(spec)
                self._keeper.drop(entry.key)
            else:
                manifest = Manifest.open(spec.manifest_path)
                data = entry.data
                session = Session(spec, manifest, data["mountpoint"], data["document"], data["newest"], data["made"])
                self._sessions[spec.slot] = session

    def all(self) -> list[Session]:
        return sorted(self._sessions.values(), key=lambda session: session.mountpoint)

    def mounted(self) -> int:
        return sum(bool(session.mountpoint) for session in self._sessions.values())

    def busy(self) -> bool:
        """Whether something is mounted or about to be."""
        return bool(self._sessions) or self._starting > 0

    def of(self, data_set: str) -> list[Session]:
        """Those of a DataSet, the oldest first."""
        mine = (session for session in self._sessions.values() if session.spec.data_set == data_set)
        return sorted(mine, key=lambda session: session.made)

    def mounts_of(self, data_set: str) -> list[Session]:
        """Those of them that are mounted, the oldest first."""
        return [session for session in self.of(data_set) if session.mountpoint]

    def by_slot(self, slot: int) -> Session | None:
        return self._sessions.get(slot)

    async def mount(self, resolved: Resolved, mountpoint: str, progress: Callable[[int], None]) -> Session:
        """List, mount, and return when the mount answers. The same mount again is fine. Raises StokerError."""
        with self.working():
            return await self._mount_and_wait(resolved, mountpoint, progress)

    async def _mount_and_wait(self, resolved: Resolved, mountpoint: str, progress: Callable[[int], None]) -> Session:
        async with self._alone(mountpoint):
            existing = self._at(mountpoint)
            if existing is not None and existing.document == resolved.data_set.to_document():
                return existing
            await asyncio.to_thread(check_mountpoint, mountpoint, resolved.sources)
            generation = await self._generations.list_sources(resolved, progress)
            session = await self._mount(resolved, mountpoint, generation)
        try:
            await self._wait_until_ready(session)
        except BaseException:
            await asyncio.shield(self.unmount(mountpoint, force=True))
            raise
        log.info("mounted", data_set=resolved.name, mountpoint=mountpoint, generation=generation.digest)
        return session

    async def view(self, resolved: Resolved, progress: Callable[[int], None]) -> Session:
        """A session for a job: that of a mount of the same document that shows the current generation, else one
        without a mount. Raises StokerError."""
        document = resolved.data_set.to_document()
        current = self._generations.current(resolved.name)
        for session in self._sessions.values():
            same = current is None or session.spec.manifest_path == current.path
            if session.document == document and session.mountpoint and same:
                return session
        with self.working():
            generation = await self._generations.list_sources(resolved, progress)
        self._listeners.data_set_known(resolved.data_set)
        spec, manifest = self._specify(resolved, generation, passthrough=False)
        session = Session(spec, manifest, "", document)
        await self._keep(session, {}, ())
        return session

    async def show(self, resolved: Resolved, generation: Generation) -> Session:
        """A session that shows a generation by S3 alone."""
        spec, manifest = self._specify(resolved, generation, passthrough=False)
        session = Session(spec, manifest, "", resolved.data_set.to_document(), newest=True)
        await self._keep(session, {}, (Share("s3"),))
        return session

    async def unmount(self, mountpoint: str, *, force: bool) -> None:
        """Take a mount away. Raises StokerError: NotMounted, MountBusy."""
        async with self._alone(mountpoint):
            session = self._at(mountpoint)
            if session is None:
                step = "see what is mounted: stoker status"
                raise StokerError(Reason.NotMounted, "Stoker mounted nothing there", place=mountpoint, next_step=step)
            await asyncio.to_thread(kernel.unmount, mountpoint, lazy=force)
            self.end(session)
        log.info("unmounted", data_set=session.spec.data_set, mountpoint=mountpoint)

    def orphaned(self, key: str) -> None:
        """No worker could serve a session for its `orphanTimeout`: end it, so that its readers fail and can go."""
        for session in self.all():
            if session.key == key:
                log.error("session aborted: no worker served it", mountpoint=session.mountpoint)
                self.end(session)

    def job_ended(self, slot: int) -> None:
        """A session that only a job used ends with it."""
        session = self._sessions.get(slot)
        if session is not None and not session.mountpoint and not session.newest:
            self.end(session)

    def connection_gone(self, session_id: str) -> None:
        """A worker found the connection unmounted from outside (`umount`), or aborted."""
        for session in self.all():
            # While an unmount of ours is under way the workers notice it too; that is no news.
            if session.spec.id == session_id and not self._alone(session.mountpoint).locked():
                log.info("unmounted from outside", mountpoint=session.mountpoint)
                self.end(session)

    def end(self, session: Session) -> None:
        """Forget a session whose connection is gone or that only a job used."""
        if self._sessions.pop(session.spec.slot, None) is None:
            return
        self._listeners.session_ended(session.spec)  # first: its counts are kept before it is forgotten
        self._keeper.drop(session.key)
        if session.mountpoint:
            self._table.remove(session.mountpoint)
        session.manifest.close()

    async def unmount_all(self) -> None:
        """At the end of the node. A mount that is in use is detached: its readers keep it until they close it."""
        for session in self.all():
            if session.mountpoint:
                with contextlib.suppress(StokerError):
                    await self.unmount(session.mountpoint, force=True)

    async def _mount(self, resolved: Resolved, mountpoint: str, generation: Generation) -> Session:
        self._listeners.data_set_known(resolved.data_set)
        offered = wants_passthrough(resolved.data_set.spec.mount)
        name = f"stoker:{resolved.name}"
        mounted = await asyncio.to_thread(kernel.mount, mountpoint, name, want_passthrough=offered)
        try:
            if resolved.data_set.spec.mount.passthrough == "Always" and not mounted.passthrough:
                step = "run as root on Linux 6.9 or later, or leave passthrough at Auto."
                text = "passthrough: Always, but the kernel does not give it to this user"
                raise StokerError(Reason.FuseUnavailable, text, place=mountpoint, next_step=step)
            spec, manifest = self._specify(resolved, generation, passthrough=mounted.passthrough)
            session = Session(spec, manifest, mountpoint, resolved.data_set.to_document())
            clones = {f"clone.{index}": kernel.clone(mounted.fd) for index in range(self._workers)}
            fds = {"main": mounted.fd, "opens": create_table(), **clones}
            self._table.add(mountpoint, resolved.name)
            orphan_timeout = resolved.data_set.spec.mount.orphan_timeout.seconds
            await self._keep(session, fds, (Share("worker", ("opens", "clone.%d")), Share("s3")), orphan_timeout)
        except BaseException:
            with contextlib.suppress(StokerError):
                await asyncio.to_thread(kernel.unmount, mountpoint, lazy=True)
            raise
        return session

    def _specify(
        self, resolved: Resolved, generation: Generation, *, passthrough: bool
    ) -> tuple[SessionSpec, Manifest]:
        manifest = Manifest.open(generation.path)
        owner = Owner(os.getuid(), os.getgid())
        contacted = generation.contacted or tuple(source.uri for source in resolved.sources)
        sources = tuple(replace(s, uri=uri) for s, uri in zip(resolved.sources, contacted, strict=True))
        spec = SessionSpec(
            id=secrets.token_hex(8),
            slot=self._free_slot(),
            data_set=resolved.name,
            manifest_path=generation.path,
            sources=sources,
            mount=resolved.mount_spec(owner, manifest.mean_size, passthrough=passthrough),
        )
        return spec, manifest

    async def _keep(
        self, session: Session, fds: dict[str, int], shares: tuple[Share, ...], orphan_timeout_s: float = 0.0
    ) -> None:
        spec = session.spec
        self._sessions[spec.slot] = session
        session.made = time.time_ns()
        data = {
            "slot": spec.slot,
            "made": session.made,
            "newest": session.newest,
            "spec": spec.to_json(),
            "mountpoint": session.mountpoint,
            "document": session.document,
            **({"orphanTimeout": orphan_timeout_s} if session.mountpoint else {}),
        }
        self._listeners.session_added(spec)
        await self._keeper.keep(Entry(session.key, fds, data, shares))

    async def _wait_until_ready(self, session: Session) -> None:
        """The mount answers a stat and the first entry of its root: only then is it ready."""

        def probe() -> None:
            os.stat(session.mountpoint)
            with os.scandir(session.mountpoint) as entries:
                next(entries, None)

        try:
            await asyncio.wait_for(asyncio.to_thread(probe), _READY_TIMEOUT_S)
        except (TimeoutError, OSError) as error:
            text = f"the mount does not answer ({error or 'timeout'})"
            step = "see the node's log."
            raise StokerError(Reason.Timeout, text, place=session.mountpoint, next_step=step) from error

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """A node that works on something does not end for having nothing to do."""
        self._starting += 1
        try:
            yield
        finally:
            self._starting -= 1

    def _free_slot(self) -> int:
        for slot in range(MAX_SESSIONS):
            if slot not in self._sessions:
                return slot
        step = "unmount some."
        raise StokerError(Reason.InvalidValue, f"{MAX_SESSIONS} sessions are the most of one node", next_step=step)

    def _at(self, mountpoint: str) -> Session | None:
        return next((s for s in self._sessions.values() if s.mountpoint == mountpoint), None)

    def _alone(self, mountpoint: str) -> asyncio.Lock:
        return self._locks.setdefault(mountpoint, asyncio.Lock())
