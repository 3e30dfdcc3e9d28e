"""The owner's writes. Each job is made in the owner's loop, `run` in the one thread that writes indexes, and then
`settle`d in the loop: books and tables are touched by the loop only, index and files by the thread only.

A job that fails leaves everything as it was; the same work comes again with the next one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import lmdb

from stoker.cache.amount import Amount
from stoker.cache.drain import settlement
from stoker.cache.edit import Gone, IndexEdit, SlotWork
from stoker.cache.layout import BLOCK, object_folder, object_path, parse_object_name
from stoker.cache.ledger import COMMON, HEIR
from stoker.cache.pinbook import Pinned
from stoker.cache.presence import PresenceTable
from stoker.cache.record import Totals
from stoker.cache.shares import Why
from stoker.cache.tier import Tier


class Job(Protocol):
    """`gone`, after `run`: incarnations that left the index. Workers must hear of them before `CacheOwner.release`."""

    tier: Tier
    gone: list[Gone]

    def run(self) -> None: ...
    def settle(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Common:
    """What the owner hands to every job: this boot, names of DataSets, and a look at what the presence tables hold."""

    boot: bytes
    names: dict[int, str]
    uncommitted: Callable[[], set[tuple[bytes, int]]]


@dataclass
class IndexJob:
    """What all jobs share: one transaction, unlinking after it, the sums handed back."""

    tier: Tier
    common: Common
    gone: list[Gone] = field(default_factory=list)
    error: Exception | None = None
    _totals: Totals | None = None
    _charged: dict[int, Amount] = field(default_factory=dict)
    _pinned: dict[int, Pinned] = field(default_factory=dict)
    _index_bytes: int = 0
    _folders: dict[str, int] = field(default_factory=dict)
    _kept: int = 0

    def run(self) -> None:
        """In the index thread."""
        if self.tier.index is None:
            return
        try:
            with self.tier.index.write() as txn:
                edit = IndexEdit(txn, self.common.boot, self.common.names)
                self.change(edit)
                edit.finish()
            self._totals, self._charged, self.gone = edit.totals, edit.charged(), edit.gone
            self._pinned = edit.pinned()
            self._unlink()
            self._index_bytes = self.tier.index.disk_bytes()
        except (lmdb.Error, OSError) as error:
            self.error = error

    def change(self, edit: IndexEdit) -> None:
        """The change itself."""
        raise NotImplementedError

    def learns_folders(self) -> bool:
        """Whether a folder that is seen for the first time is settled with this job: until then its credit counts."""
        return False

    def settle(self) -> None:
        """In the loop."""
        tier = self.tier
        if self._totals is None:
            if self.error is not None:
                tier.fail(self.error)
            return
        tier.recovered()
        tier.set_totals(self._totals)
        tier.ledger.charged.update(self._charged)
        for account, pinned in self._pinned.items():
            tier.ledger.pins.put(account, pinned)
        for gone in self.gone:
            tier.ledger.unlink(gone.payer, Amount(gone.disk_bytes, 1))
        tier.index_bytes = self._index_bytes or tier.index_bytes
        for folder, nbytes in self._folders.items():
            if not nbytes:
                tier.folders.pop(folder, None)
            elif folder in tier.folders or self.learns_folders():
                tier.folders[folder] = nbytes
        tier.refresh_fixed()

    def look_at(self, folder: str) -> None:
        """Note what a folder takes."""
        self._folders[os.path.basename(folder)] = 0
        with contextlib.suppress(FileNotFoundError):
            # A folder of btrfs or of a new tmpfs takes no blocks, and is still there.
            self._folders[os.path.basename(folder)] = max(os.stat(folder).st_blocks * 512, BLOCK)

    def remove_if_empty(self, folder: str) -> None:
        """Folders count as inodes, so empty ones go, unless a fetcher is about to make a file in it. Should it have
        begun in this moment, its file fails, and what it is for is read without cache once."""
        with contextlib.suppress(OSError):
            if os.listdir(folder):
                return
            prefix = bytes.fromhex(os.path.basename(folder))
            if not any(oid[:1] == prefix for oid, _ in self.common.uncommitted()):
                os.rmdir(folder)

    def _unlink(self) -> None:
        for gone in self.gone:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(object_path(self.tier.root, gone.oid, gone.incarnation))
        for folder in {object_folder(self.tier.root, gone.oid) for gone in self.gone}:
            self.remove_if_empty(folder)
            self.look_at(folder)


@dataclass
class CommitJob(IndexJob):
    """Index what fetchers have put on disk, and what was read."""

    works: Sequence[SlotWork] = ()
    uses: dict[tuple[bytes, int | None], int] = field(default_factory=dict)
    tables: Sequence[PresenceTable] = ()
    new_folders: dict[int, int] = field(default_factory=dict)
    """Per fetcher with new ones, how many folders it has made and paid for, ever."""
    folders_seen: list[list[int]] = field(default_factory=list)
    """Per fetcher and tier, how many of them are settled."""
    dead: bool = False

    def change(self, edit: IndexEdit) -> None:
        now = int(self.tier.wall())
        touched = set()
        for work in self.works:
            snap = work.snapshot
            if self.dead and not os.path.exists(object_path(self.tier.root, snap.oid, snap.incarnation)):
                continue
            edit.fill(work, now)
            touched.add(object_folder(self.tier.root, snap.oid))
        for (oid, owner), epoch in self.uses.items():
            edit.use(oid, epoch, owner)
        if self.new_folders:
            touched.update(entry.path for entry in os.scandir(f"{self.tier.root}/objects"))
        for folder in touched:
            self.look_at(folder)

    def learns_folders(self) -> bool:
        return bool(self.new_folders)

    def settle(self) -> None:
        super().settle()
        if self._totals is None:
            for key, epoch in self.uses.items():
                self.tier.uses.setdefault(key, epoch)
            return
        for work in self.works:
            before = self.tables[work.fetcher].settle(work.snapshot, work.present, work.held)
            if before is not None:
                snap = work.snapshot
                self.tier.ledger.settle(work.fetcher, snap.owner, settlement(snap, work.held, before))
        for fetcher, made in self.new_folders.items():
            count = max(0, made - self.folders_seen[fetcher][self.tier.number])
            self.tier.ledger.settle(fetcher, COMMON, Amount(count * BLOCK, count))
            self.folders_seen[fetcher][self.tier.number] += count


@dataclass
class EvictJob(IndexJob):
    """Take objects out of the index, then unlink their files; or charge another DataSet for them, which uses them, too.

    `oids` are those that are left to do; `reasons` of all that were chosen."""

    oids: list[bytes] = field(default_factory=list)
    reasons: dict[bytes, Why] = field(default_factory=dict)
    heirs: dict[bytes, tuple[int, Amount]] = field(default_factory=dict)
    """Who is charged from now on, and for how much."""
    dangling: list[tuple[bytes, int, int]] = field(default_factory=list)
    """Places in the order of eviction that no object stands for: object id, account, epoch."""
    releases: list[tuple[bytes, int]] = field(default_factory=list)
    """Object id and an account that does not use it any more, and is not charged for it."""

    def add(self, oid: bytes, why: Why) -> None:
        """One more victim."""
        self.oids.append(oid)
        self.reasons[oid] = why

    def hand_over(self, oid: bytes, heir: int, amount: Amount) -> None:
        """It stays, for another; its room is kept from now on."""
        self.heirs[oid] = heir, amount
        ledger = self.tier.ledger
        ledger.outstanding[HEIR, heir] = ledger.outstanding.get((HEIR, heir), Amount()) + amount

    def change(self, edit: IndexEdit) -> None:
        for oid in self.oids:
            if edit.is_pinned(oid):
                continue  # by now; it was not when this was planned
            if oid in self.heirs:
                edit.hand_over(oid, self.heirs[oid][0])
            else:
                edit.drop(oid)
        for place in self.dangling:
            edit.txn.displace(*place)
        for oid, account in self.releases:
            edit.release(oid, account)

    def settle(self) -> None:
        super().settle()
        for heir, amount in self.heirs.values():
            self.tier.ledger.settle(HEIR, heir, amount)

    def evicted(self) -> dict[Why, tuple[int, int]]:
        """After `run`: how many objects and bytes are gone, by reason."""
        found: dict[Why, tuple[int, int]] = {}
        for gone in self.gone:
            objects, nbytes = found.get(self.reasons[gone.oid], (0, 0))
            found[self.reasons[gone.oid]] = objects + 1, nbytes + gone.disk_bytes
        return found


@dataclass
class SweepJob(IndexJob):
    """Make one folder and its part of the index agree: after a crash, or after somebody removed files."""

    prefix: int = 0
    removed: int = 0
    lost_bytes: int = 0
    """What had been cached and is not any more."""

    def change(self, edit: IndexEdit) -> None:
        folder = object_folder(self.tier.root, bytes([self.prefix]))
        matched = set()
        files = self._files(folder)
        # Files, then tables, then index: what is being filled is in a table before its file is made, and leaves the
        # table only after it is in the index.
        on_the_way = self.common.uncommitted() if files else set()
        for name, entry in files:
            if self._is_right(edit, name, entry, name in on_the_way):
                matched.add(name[0])
        for oid in edit.txn.object_ids(bytes([self.prefix])):
            if oid not in matched:
                record = edit.txn.object(oid)
                self.lost_bytes += record.present_bytes if record is not None else 0
                edit.drop(oid)
        if self.removed:
            self.remove_if_empty(folder)
        self.look_at(folder)

    def _is_right(self, edit: IndexEdit, name: tuple[bytes, int], entry: os.DirEntry[str], on_the_way: bool) -> bool:
        oid, incarnation = name
        record = edit.txn.object(oid)
        if record is None or record.incarnation != incarnation:
            if not on_the_way and incarnation < self.tier.first_of_this_start:
                self.lost_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
                os.unlink(entry.path)
                self.removed += 1
            return False
        stat = entry.stat(follow_symlinks=False)
        if stat.st_size > record.size:
            return False  # not the file we wrote: the record is dropped, and the file unlinked with it
        if not on_the_way:
            edit.found(oid, stat.st_blocks * 512)
        if stat.st_mode & 0o077:
            os.chmod(entry.path, 0o600)
        return True

    def _files(self, folder: str) -> list[tuple[tuple[bytes, int], os.DirEntry[str]]]:
        try:
            os.chmod(folder, 0o700)
            entries = list(os.scandir(folder))
        except FileNotFoundError:
            return []
        named = ((parse_object_name(entry.name), entry) for entry in entries)
        return [(name, entry) for name, entry in named if name is not None and name[0][0] == self.prefix]

    def settle(self) -> None:
        super().settle()
        if self._totals is not None and self.prefix == 255:
            self.tier.swept = True


@dataclass
class ReopenJob(IndexJob):
    """Open a tier anew whose folder is not there any more, or was never there."""

    opened: bool = False

    def run(self) -> None:
        self.tier.reopen()
        self.opened = self.tier.index is not None

    def settle(self) -> None:
        """Nothing to settle: its books begin anew with the index."""
        if self.opened:
            self.tier.health.clear()
