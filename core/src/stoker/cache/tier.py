"""One tier as its owner holds it: folder, index, books and health. Jobs (`stoker.cache.jobs`) change it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import lmdb

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.cache.amount import Amount
from stoker.cache.credit import Grant
from stoker.cache.health import Health
from stoker.cache.index import IndexTxn, IndexWriter, index_folder
from stoker.cache.layout import BLOCK, parse_object_name
from stoker.cache.ledger import Ledger, Limits
from stoker.cache.record import SUMS_VERSION, OwnerRecord, Totals
from stoker.cache.root import TierFolder, open_folder

INCARNATIONS_AHEAD = 1 << 20
"""Set aside in the index at a time; what a stop leaves of them is never used: there are 2^64."""

FIXED_INODES = 6
"""Root, marker, objects/, index/ and its two files."""

FAILING_S = 10.0
"""A tier whose index could not be written grants nothing for this long."""

_OWNER, _ROOM = "owner", "room"
"""Who met a fault, beside the fetchers by their numbers."""

EventSink = Callable[[int, Reason, str], None]


@dataclass(frozen=True, slots=True)
class TierConfig:
    """One disk of the cache."""

    path: str
    limits: Limits


@dataclass(slots=True)
class Tier:
    """`index` None: the disk takes none at the moment; nothing is cached here then. `folder` None: not even that."""

    number: int
    config: TierConfig
    root: str
    seed: bytes
    folder: TierFolder | None
    index: IndexWriter | None
    ledger: Ledger
    on_event: EventSink
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    next_incarnation: int = 0
    last_incarnation: int = 0
    first_of_this_start: int = 0
    swept: bool = False
    was_clean: bool = False
    folders: dict[str, int] = field(default_factory=dict)
    index_bytes: int = 0
    uses: dict[tuple[bytes, int | None], int] = field(default_factory=dict)
    wishes: dict[int, Amount] = field(default_factory=dict)
    """By account: credit that was refused for lack of room here, since the last plan of an eviction."""
    failing_until: float = 0.0
    short_of_room: bool = False
    health: Health = field(init=False)

    def __post_init__(self) -> None:
        self.health = Health(
            lambda reason, text: self.on_event(self.number, reason, f"{self.root}: {text}"), self.clock
        )

    @property
    def state(self) -> str:
        """`ok`, `recovering` (no new credit yet), or why nothing is stored."""
        if self.health.state != "ok":
            return self.health.state
        return "ok" if self.swept or self.was_clean else "recovering"

    def free(self) -> Amount:
        """What the file system would still give us."""
        if self.folder is None:
            return Amount()  # known to be away: when to look again is not put off by who asks
        try:
            stats = os.statvfs(self.root)
        except OSError as error:
            self.fail(error)
            return Amount()
        inodes = stats.f_favail if stats.f_files else 1 << 60  # btrfs has no table of inodes and says 0
        return Amount(stats.f_bavail * stats.f_frsize, inodes)

    def grant(self, fetcher: int, account: int, wanted: Amount, most: Amount, asker: int) -> Grant:
        """Credit for a fetcher; less than wanted, or nothing, when there is no room. `most`: what the account's own
        limit leaves to it; `asker`: whose wish it is."""
        if self.index is None or not (self.swept or self.was_clean) or self.clock() < self.failing_until:
            return Grant()
        free = self.free()
        given = self.ledger.grant(fetcher, account, wanted, free, most)
        possible = wanted.smaller(most)
        self._look_at_room(possible, given, free)
        if given != possible:
            self.wishes[asker] = possible - given
        elif asker == account:
            self.wishes.pop(account, None)
        if self.next_incarnation + given.inodes > self.last_incarnation:
            self._more_incarnations()
        first = self.next_incarnation
        self.next_incarnation += given.inodes
        return Grant(given.bytes, given.inodes, first, given.inodes)

    def refresh_fixed(self) -> None:
        """What folders, index and marker take."""
        nbytes = self.index_bytes + sum(self.folders.values()) + 4 * BLOCK
        self.ledger.index_bytes = self.index_bytes
        self.ledger.fixed = Amount(nbytes, len(self.folders) + FIXED_INODES)

    def set_totals(self, totals: Totals) -> None:
        """Take over the sums of the index."""
        self.ledger.indexed = Amount(totals.disk_bytes, totals.inodes)
        self.ledger.pins.whole = Amount(totals.pinned_bytes, totals.pinned_inodes)
        self.ledger.pins.filled = Amount(totals.filled_bytes, totals.filled_inodes)

    def fail(self, error: Exception) -> None:
        """The disk or the index refused. Reads go on; nothing is granted for a while."""
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        full = full or (isinstance(error, lmdb.DiskError) and "No space" in str(error))
        reason = Reason.CacheFull if full else Reason.CacheDiskFailing
        self.health.bad(_OWNER, reason, f"{error}; new data is read without cache")
        self.failing_until = self.clock() + FAILING_S

    def recovered(self) -> None:
        """A write succeeded again."""
        self.health.good(_OWNER)

    def settle(self) -> None:
        """Now and then: a fault may be over."""
        if self.short_of_room and not _short(self.free(), self.ledger.limits.floor()):
            self.short_of_room = False
            self.health.good(_ROOM)
        self.health.settle()

    def _look_at_room(self, wanted: Amount, given: Amount, free: Amount) -> None:
        """Nothing could be given because others took what is to stay free: that is no matter of eviction. Bytes are of
        no use without inodes."""
        nothing = not given.bytes or (wanted.inodes and not given.inodes)
        if nothing and _short(free, self.ledger.limits.floor()):
            self.short_of_room = True
            text = "others take the space that is to stay free; new data is read without cache"
            self.health.bad(_ROOM, Reason.CacheFull, text)

    def reopen(self) -> None:
        """In the index thread, when the folder is not in its place any more, or could not be opened: begin anew there.

        Incarnations go on: readers may still have files of the old folder open."""
        self.swept = self.was_clean = False
        if self.folder is not None:
            text = "the cache folder was removed or replaced; it is made anew"
            self.health.bad(_OWNER, Reason.CacheDiskFailing, text)
        self.let_go()
        try:
            self.folder = open_folder(self.config.path, self.seed)
            self.index = _open_index(self)
            _begin(self)
        except (lmdb.Error, OSError, StokerError) as error:
            self.let_go()
            self.fail(error)

    def let_go(self) -> None:
        """Close what is open."""
        if self.index is not None:
            self.index.close()
        if self.folder is not None:
            self.folder.close()
        self.index = self.folder = None

    @property
    def lost(self) -> bool:
        """Whether it is time to `reopen`."""
        if self.index is None or self.folder is None:
            return self.clock() >= self.failing_until
        return not (self.folder.in_place() and self.index.in_place())

    def close(self) -> None:
        """Record a clean stop and let go."""
        if self.index is not None:
            with contextlib.suppress(lmdb.Error, OSError), self.index.write() as txn:
                totals = txn.totals() or Totals()
                totals.clean = self.swept and not self.ledger.granted().inodes and not self.ledger.zombies.inodes
                txn.put_totals(totals)
        self.let_go()

    def _more_incarnations(self) -> None:
        assert self.index is not None
        with self.index.write() as txn:
            totals = txn.totals() or Totals()
            self.next_incarnation = max(self.next_incarnation, totals.next_incarnation)
            self.last_incarnation = self.next_incarnation + INCARNATIONS_AHEAD
            totals.next_incarnation = self.last_incarnation
            txn.put_totals(totals)


def open_tier(
    number: int,
    config: TierConfig,
    on_event: EventSink,
    clock: Callable[[], float],
    wall: Callable[[], float],
    seed: bytes | None = None,
) -> Tier:
    """Open or make a tier. Raises StokerError (see `open_folder`). A broken index is thrown away with the objects it
    named: the cache can lose everything but the truth.

    `seed`: of a tier that processes of this node use already: it opens, whatever state its disk is in."""
    folder = None
    if seed is None:
        folder = open_folder(config.path)
        seed = folder.seed
    root = os.path.realpath(config.path)
    tier = Tier(number, config, root, seed, folder, None, Ledger(config.limits), on_event, clock, wall)
    if folder is None:
        tier.reopen()
        return tier
    try:
        tier.index = _open_index(tier)
        _begin(tier)
    except (lmdb.Error, OSError) as error:
        if tier.index is not None:
            tier.index.close()
            tier.index = None
        tier.fail(error)
    return tier


def _short(free: Amount, floor: Amount) -> bool:
    return free.bytes < floor.bytes or free.bytes < BLOCK or free.inodes < max(floor.inodes, 1)


def _open_index(tier: Tier) -> IndexWriter:
    try:
        return _sound_index(IndexWriter(tier.root))
    except (lmdb.CorruptedError, lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.PageNotFoundError) as error:
        tier.on_event(tier.number, Reason.CacheCorrupt, f"{tier.root}: the index is broken ({error}); begun anew")
        shutil.rmtree(index_folder(tier.root))
        os.mkdir(index_folder(tier.root), 0o700)
        return IndexWriter(tier.root)


def _sound_index(index: IndexWriter) -> IndexWriter:
    try:
        with index.read() as txn:
            if txn.totals() is None and not txn.is_empty():
                raise lmdb.CorruptedError("its sums are missing")
    except lmdb.Error:
        index.close()
        raise
    return index


def _first_totals(root: str) -> Totals:
    """Of a new index: files of a lost one are to be swept, and their names not to be used again."""
    names = (parse_object_name(name) for _, _, files in os.walk(f"{root}/objects") for name in files)
    newest = max((name[1] for name in names if name is not None), default=0)
    return Totals(next_incarnation=newest + 1, clean=newest == 0)


def rebuild_sums(txn: IndexTxn) -> None:
    """An index of an earlier version: its order of eviction and its sums by DataSet are made again from the objects."""
    txn.empty_sums()
    owners: dict[int, OwnerRecord] = {}
    for oid in txn.object_ids(b""):
        record = txn.object(oid)
        if record is None:
            continue
        txn.place(oid, record.payer, record.epoch)
        for owner in record.owners:
            sums = owners.setdefault(owner, OwnerRecord())
            sums.disk_bytes, sums.inodes = sums.disk_bytes + record.accounted, sums.inodes + 1
        payer = owners.setdefault(record.payer, OwnerRecord())
        payer.charged_bytes, payer.charged_inodes = payer.charged_bytes + record.accounted, payer.charged_inodes + 1
    for owner, sums in owners.items():
        txn.put_owner(owner, sums)


def _begin(tier: Tier) -> None:
    assert tier.index is not None
    with tier.index.write() as txn:
        totals = txn.totals() or _first_totals(tier.root)
        tier.was_clean = totals.clean
        if totals.version != SUMS_VERSION:
            totals.version = SUMS_VERSION
            rebuild_sums(txn)
        tier.set_totals(totals)
        owners = txn.all_owners()
        tier.ledger.charged = {owner: Amount(r.charged_bytes, r.charged_inodes) for owner, r in owners.items()}
        tier.ledger.pins.by = {owner: record.pinned for owner, record in owners.items() if record.pins}
        totals.next_incarnation = max(totals.next_incarnation, tier.last_incarnation, int(tier.wall()) << 20)
        tier.first_of_this_start = tier.next_incarnation = totals.next_incarnation
        tier.last_incarnation = tier.next_incarnation + INCARNATIONS_AHEAD
        totals.next_incarnation, totals.clean = tier.last_incarnation, False
        txn.put_totals(totals)
    tier.folders.clear()
    for entry in os.scandir(f"{tier.root}/objects"):
        tier.folders[entry.name] = max(entry.stat().st_blocks * 512, BLOCK)
    tier.index_bytes = tier.index.disk_bytes()
    tier.refresh_fixed()
