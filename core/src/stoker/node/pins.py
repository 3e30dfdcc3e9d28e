"""The pins of the DataSets of this node: refused when they do not fit, written, and kept over restarts.

The index holds what is pinned; a file for each DataSet holds by which globs, and for which generation that was done.
A choice that was not written to its end (a crash) is written again when the DataSet is mounted next.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from stoker.api.dataset import DataSet
from stoker.api.errors import StokerError
from stoker.api.globs import Globs
from stoker.api.human import files, size
from stoker.api.reasons import Reason
from stoker.cache.amount import Amount
from stoker.cache.jobs import Job
from stoker.cache.layout import owner_id
from stoker.cache.ledger import UNLIMITED
from stoker.cache.owner import CacheOwner
from stoker.cache.pinjobs import Wanted
from stoker.cache.pins import Misfit, batches
from stoker.fetch.files import file_of
from stoker.manifest.manifest import Manifest
from stoker.node.datasets import policy_of
from stoker.node.sessions import Session
from stoker.node.statefolder import name_of, write_json

log = structlog.get_logger("stoker.pins")

_SUFFIX = ".json"
_STEP = "pin fewer files, unpin others (stoker unpin), or give the cache more room."


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is kept of one DataSet. `generation` "" and `files` -1: not written to the index to its end."""

    globs: tuple[str, ...] = ()
    mark: int = 0
    generation: str = ""
    files: int = -1

    def to_json(self) -> dict[str, Any]:
        return {"globs": list(self.globs), "mark": self.mark, "generation": self.generation, "files": self.files}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> _Kept:
        return cls(tuple(data["globs"]), int(data["mark"]), str(data["generation"]), int(data["files"]))


class Pins:
    """`run` does jobs of the owner. One change at a time: each counts on the numbers that the one before left."""

    def __init__(self, state_dir: str, owner: CacheOwner, run: Callable[[Iterable[Job]], Awaitable[None]]) -> None:
        self._root = os.path.join(state_dir, "pins")
        self._owner = owner
        self._run = run
        self._turn = asyncio.Lock()
        self._kept: dict[str, _Kept] = {}
        self._refused: dict[str, StokerError] = {}

    def load(self) -> None:
        """What is on disk. A file that cannot be read is logged: its pins are chosen again with the next mount."""
        os.makedirs(self._root, mode=0o700, exist_ok=True)
        for name in os.listdir(self._root):
            if name.endswith(_SUFFIX):
                try:
                    with open(os.path.join(self._root, name), encoding="utf-8") as file:
                        data = json.load(file)
                    self._kept[str(data["name"])] = _Kept.from_json(data)
                except (OSError, ValueError, KeyError, TypeError) as error:
                    log.warning("the pins of a DataSet cannot be read; pin again", file=name, error=str(error))

    async def follow(self, session: Session, globs: Sequence[str]) -> None:
        """Pin what the document of a DataSet says, in the generation of a session. Raises StokerError PinsDoNotFit:
        what was pinned stays so."""
        name = session.spec.data_set
        async with self._turn:
            before = self._kept.get(name, _Kept())
            if globs or before.globs:
                await self._choose(session, before, tuple(globs))

    async def forget(self, name: str) -> None:
        """A DataSet pins nothing any more."""
        async with self._turn:
            self._kept.pop(name, None)
            self._refused.pop(name, None)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(name))
            await self._end_others(owner_id(name), 0)

    def check_limits(self, data_set: DataSet) -> None:
        """Whether what a DataSet pins fits into the limits that it is to have. Raises StokerError PinsDoNotFit."""
        account, policy = owner_id(data_set.full_name), policy_of(data_set)
        whole, limit = self._owner.pins.of(account).whole, self._owner.accounts.limit_of(account, policy)
        if whole.smaller(limit) != whole:
            step = "unpin first (stoker unpin), or leave it a larger quota."
            text = f"{_room(whole)} are pinned, more than the new limit of {_limits(limit)}"
            raise StokerError(Reason.PinsDoNotFit, text, place=data_set.full_name, next_step=step)

    def status(self, name: str) -> dict[str, Any]:
        """For status: what is pinned, how much of it is cached, and why it is not what was wanted."""
        pinned = self._owner.pins.of(owner_id(name))
        refused, unkept = self._refused.get(name), self._owner.pins.unkept() if pinned.whole.inodes else []
        message = refused.message if refused is not None else _unkept(unkept)
        return {
            "pinnedBytes": pinned.whole.bytes,
            "pinnedFiles": pinned.whole.inodes,
            "pinnedCachedBytes": pinned.filled.bytes,
            "pinsFit": not message,
            "pinsMessage": message,
        }

    async def _choose(self, session: Session, before: _Kept, globs: tuple[str, ...]) -> None:
        name, manifest = session.spec.data_set, session.manifest
        account = self._owner.register(name)
        pinned = self._owner.pins.of(account).whole.inodes
        if (globs, manifest.digest, pinned) == (before.globs, before.generation, before.files):
            return
        try:
            await self._check(session, account, globs)
        except StokerError as error:
            self._refused[name] = error
            raise
        self._refused.pop(name, None)
        kept = _Kept(globs, before.mark + 1)
        self._save(name, kept)
        chosen = await self._write(account, kept.mark, _wanted(manifest, globs, session.spec.mount.policy))
        self._save(name, replace(kept, generation=manifest.digest, files=chosen))
        log.info("pinned", data_set=name, files=chosen, generation=manifest.digest)

    async def _check(self, session: Session, account: int, globs: tuple[str, ...]) -> None:
        files_of = _wanted(session.manifest, globs, session.spec.mount.policy)
        demand = await asyncio.to_thread(self._owner.pins.demand, account, files_of)
        misfit = self._owner.pins.misfit(demand, self._owner.accounts.limit(account))
        if misfit is not None:
            text = self._explain(session.spec.data_set, misfit)
            raise StokerError(Reason.PinsDoNotFit, text, place=session.spec.data_set, next_step=_STEP)

    async def _write(self, account: int, mark: int, pins: Iterator[Wanted]) -> int:
        """Pin all these, and unpin the others. Returns how many there are."""
        count, following = 0, batches(pins)
        nothing: list[Wanted] = []
        while batch := await asyncio.to_thread(next, following, nothing):
            count += len(batch)
            await self._run(self._owner.pins.jobs(account, mark, batch))
        await self._end_others(account, mark)
        return count

    async def _end_others(self, account: int, mark: int) -> None:
        for job in self._owner.pins.stale(account, mark):
            await self._run([job])

    def _explain(self, name: str, misfit: Misfit) -> str:
        asked, free = _room(misfit.wanted), _room(misfit.free)
        if not misfit.where:
            return f"{asked} are to be pinned; the DataSet may hold {_limits(misfit.free)}"
        held = self._owner.pins.held().items()
        others = [(self._owner.name_of(whose), p.whole) for whose, p in held if whose != owner_id(name)]
        others.sort(key=lambda row: row[1].bytes, reverse=True)
        by = ", ".join(f"{who} {_room(amount)}" for who, amount in others[:5]) or "nobody"
        return f"{asked} are to be pinned; {free} are free for pins on {misfit.where} (pinned by others: {by})"

    def _save(self, name: str, kept: _Kept) -> None:
        write_json(self._path(name), {"name": name, **kept.to_json()})
        self._kept[name] = kept

    def _path(self, name: str) -> str:
        return os.path.join(self._root, name_of(name) + _SUFFIX)


def _wanted(manifest: Manifest, globs: Sequence[str], policy: str) -> Iterator[Wanted]:
    """The object versions to be pinned. Raises StokerError ManifestCorrupt."""
    for inode in manifest.files_matching(Globs.compile(globs)):
        file = file_of(manifest, inode, policy)
        if file.size and file.cacheable and not file.archived:
            yield file.oid, file.size


def _room(amount: Amount) -> str:
    return f"{size(amount.bytes)} in {files(amount.inodes)}"


def _limits(limit: Amount) -> str:
    parts = [size(limit.bytes)] if limit.bytes < UNLIMITED else []
    return " and ".join([*parts, *([files(limit.inodes)] if limit.inodes < UNLIMITED else [])])


def _unkept(tiers: Sequence[str]) -> str:
    text = f"{', '.join(tiers)} cannot hold all that is pinned there: the disk has become smaller or fuller"
    return text if tiers else ""
