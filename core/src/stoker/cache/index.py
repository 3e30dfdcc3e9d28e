"""The index of one tier: an LMDB environment that the owner writes and every other process reads.

Opened after the fork, never WRITEMAP, never NOSYNC. `IndexReader` is for workers and fetchers, `IndexWriter` for the
owner alone, whose writes all happen in one thread. What is written is decided elsewhere (commit, sweep, verify).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import Any

import lmdb

from stoker.cache.record import (
    ChunkRecord,
    ObjectRecord,
    OwnerRecord,
    PinRecord,
    Totals,
    chunk_key,
    order_key,
    pin_key,
    split_order_key,
    split_pin_key,
)

MAP_BYTES = (1 << 40, 1 << 36, 1 << 32)
"""Address space, not disk: the first that the process may map (RLIMIT_AS). 1 TiB indexes about 3e9 small objects."""

MAX_READERS = 4096
"""126 killed readers fill LMDB's default table (measured)."""

LOCK_BYTES = 32 << 10
"""Of the lock file that get blocks before LMDB maps it: 510 readers. LMDB leaves it sparse, and on a full disk the
first store into a hole of a mapped file is SIGBUS (met in a test)."""

DATABASES = (b"chunks", b"objects", b"lru", b"owners", b"meta", b"pins")


def index_folder(root: str) -> str:
    """Where the index of a tier lies."""
    return f"{root}/index"


_Key = tuple[int, tuple[int, int]]

_shared: dict[_Key, tuple[Any, int]] = {}
"""(process, file) -> (environment, users): LMDB allows one environment per process, and a fetcher both reads and
fills. The process is part of the key, so that a fork never uses its parent's."""


def _file_of(folder: str) -> tuple[int, int] | None:
    """Which file the index of a folder is; None when there is none."""
    try:
        stat = os.stat(f"{folder}/data.mdb")
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def _acquire(folder: str, readonly: bool) -> tuple[Any, _Key]:
    file = _file_of(folder)
    env, users = _shared.get((os.getpid(), file), (None, 0)) if file is not None else (None, 0)
    if env is None:
        env = _open(folder, readonly)
        file = _file_of(folder)
    if file is None:
        env.close()
        raise lmdb.Error(f"{folder}: the index was removed")
    key = os.getpid(), file
    _shared[key] = (env, users + 1)
    return env, key


def _release(key: _Key) -> None:
    env, users = _shared.pop(key, (None, 0))
    if users > 1:
        _shared[key] = (env, users - 1)
    elif env is not None:
        env.close()


def _open(folder: str, readonly: bool) -> Any:
    for size in MAP_BYTES:
        with suppress(lmdb.MemoryError, MemoryError):
            return lmdb.open(
                folder,
                map_size=size,
                max_dbs=len(DATABASES),
                max_readers=MAX_READERS,
                readonly=readonly,
                create=not readonly,
                readahead=False,
                lock=True,
                mode=0o600,
            )
    raise MemoryError(f"no address space for the index in {folder}")


class IndexReader:
    """Look-ups without locks: begin and get take 0.9 us."""

    def __init__(self, root: str) -> None:
        self._folder = index_folder(root)
        self._env, self._key = _acquire(self._folder, readonly=True)
        try:
            self._chunks = self._env.open_db(b"chunks", create=False)
            self._objects = self._env.open_db(b"objects", create=False)
        except lmdb.Error:
            _release(self._key)
            raise

    def in_place(self) -> bool:
        """Whether this is still the index of the folder: somebody may have removed or replaced it."""
        return _file_of(self._folder) == self._key[1]

    def chunk(self, oid: bytes, chunk: int) -> ChunkRecord | None:
        """The record of one chunk."""
        key = chunk_key(oid, chunk)
        with self._env.begin(db=self._chunks) as txn:
            raw = txn.get(key)
        return ChunkRecord.unpack(key, raw) if raw is not None else None

    def object(self, oid: bytes) -> ObjectRecord | None:
        """The record of one object."""
        with self._env.begin(db=self._objects) as txn:
            raw = txn.get(oid)
        return ObjectRecord.unpack(oid, raw) if raw is not None else None

    def chunks(self, oid: bytes, count: int) -> list[ChunkRecord | None]:
        """The records of the first `count` chunks of an object, as of one moment."""
        with self._env.begin(db=self._chunks) as txn:
            return [ChunkRecord.unpack(key, txn.get(key)) for key in (chunk_key(oid, n) for n in range(count))]

    def close(self) -> None:
        """Unmap, unless another reader of this process goes on."""
        _release(self._key)


class IndexTxn:
    """One transaction of the owner: records in and out, nothing decided."""

    def __init__(self, txn: Any, index: IndexWriter) -> None:
        self._txn = txn
        self._dbs = index.databases

    def object(self, oid: bytes) -> ObjectRecord | None:
        return ObjectRecord.unpack(oid, self._txn.get(oid, db=self._dbs["objects"]))

    def put_object(self, oid: bytes, record: ObjectRecord) -> None:
        self._txn.put(oid, record.pack(oid), db=self._dbs["objects"])

    def drop_object(self, oid: bytes) -> None:
        self._txn.delete(oid, db=self._dbs["objects"])

    def chunk(self, oid: bytes, chunk: int) -> ChunkRecord | None:
        key = chunk_key(oid, chunk)
        return ChunkRecord.unpack(key, self._txn.get(key, db=self._dbs["chunks"]))

    def put_chunk(self, oid: bytes, chunk: int, record: ChunkRecord) -> None:
        key = chunk_key(oid, chunk)
        self._txn.put(key, record.pack(key), db=self._dbs["chunks"])

    def drop_chunks(self, oid: bytes) -> None:
        """Remove all chunk records of an object."""
        with self._txn.cursor(db=self._dbs["chunks"]) as cursor:
            more = cursor.set_range(chunk_key(oid, 0))
            while more and cursor.key()[: len(oid)] == oid:
                more = cursor.delete() and bool(cursor.key())

    def place(self, oid: bytes, payer: int, epoch: int) -> None:
        """Give an object a place in the order of eviction."""
        self._txn.put(order_key(payer, epoch, oid), b"", db=self._dbs["lru"])

    def displace(self, oid: bytes, payer: int, epoch: int) -> None:
        """Take an object out of the order of eviction."""
        self._txn.delete(order_key(payer, epoch, oid), db=self._dbs["lru"])

    def empty_sums(self) -> None:
        """Forget what can be made again from the object records: order of eviction and owners."""
        for name in ("lru", "owners"):
            self._txn.drop(self._dbs[name], delete=False)

    def owner(self, owner: int) -> OwnerRecord:
        key = owner.to_bytes(8, "big")
        return OwnerRecord.unpack(key, self._txn.get(key, db=self._dbs["owners"])) or OwnerRecord()

    def put_owner(self, owner: int, record: OwnerRecord) -> None:
        key = owner.to_bytes(8, "big")
        if record.empty:
            self._txn.delete(key, db=self._dbs["owners"])
        else:
            self._txn.put(key, record.pack(key), db=self._dbs["owners"])

    def pinners(self, oid: bytes) -> dict[int, PinRecord]:
        """Who has pinned an object."""
        found = self.pins_from(pin_key(oid, 0))
        return {pinner: pin for _key, whose, pinner, pin in takewhile(lambda row: row[1] == oid, found)}

    def pins_from(self, start: bytes) -> Iterator[tuple[bytes, bytes, int, PinRecord]]:
        """(key, object id, DataSet, pin) of all pins from the key `start` on."""
        with self._txn.cursor(db=self._dbs["pins"]) as cursor:
            if cursor.set_range(start):
                for key, raw in cursor.iternext():
                    pin = PinRecord.unpack(key, raw)
                    if pin is not None:
                        yield key, *split_pin_key(key), pin

    def put_pin(self, oid: bytes, pinner: int, pin: PinRecord) -> None:
        key = pin_key(oid, pinner)
        self._txn.put(key, pin.pack(key), db=self._dbs["pins"])

    def drop_pin(self, oid: bytes, pinner: int) -> None:
        self._txn.delete(pin_key(oid, pinner), db=self._dbs["pins"])

    def totals(self) -> Totals | None:
        return Totals.unpack(self._txn.get(Totals.KEY, db=self._dbs["meta"]))

    def put_totals(self, totals: Totals) -> None:
        self._txn.put(Totals.KEY, totals.pack(), db=self._dbs["meta"])

    def is_empty(self) -> bool:
        """Whether no object is indexed."""
        return next(self._keys("objects", b""), None) is None

    def object_ids(self, prefix: bytes) -> list[bytes]:
        """The ids of all indexed objects that begin with `prefix`."""
        return list(self._keys("objects", prefix))

    def oldest(self, payer: int) -> Iterator[tuple[int, bytes]]:
        """(epoch, object id) of what a DataSet is charged for, least recently used first."""
        with self._txn.cursor(db=self._dbs["lru"]) as cursor:
            if cursor.set_range(order_key(payer, 0, b"")):
                for key in cursor.iternext(keys=True, values=False):
                    whose, epoch, oid = split_order_key(key)
                    if whose != payer:
                        return
                    yield epoch, oid

    def chunks_from(self, start: bytes) -> Iterator[tuple[bytes, ChunkRecord | None]]:
        """(key, record) of all chunks from the key `start` on."""
        with self._txn.cursor(db=self._dbs["chunks"]) as cursor:
            if cursor.set_range(start):
                for key, raw in cursor.iternext():
                    yield key, ChunkRecord.unpack(key, raw)

    def all_owners(self) -> dict[int, OwnerRecord]:
        """What each owner holds."""
        with self._txn.cursor(db=self._dbs["owners"]) as cursor:
            found = {int.from_bytes(key, "big"): OwnerRecord.unpack(key, raw) for key, raw in cursor.iternext()}
        return {owner: record for owner, record in found.items() if record is not None}

    def _keys(self, db: str, prefix: bytes) -> Iterator[bytes]:
        with self._txn.cursor(db=self._dbs[db]) as cursor:
            if cursor.set_range(prefix):
                for key in cursor.iternext(keys=True, values=False):
                    if not key.startswith(prefix):
                        return
                    yield key


class IndexWriter:
    """The owner's side. Raises lmdb.Error or OSError when the disk does."""

    def __init__(self, root: str) -> None:
        folder = index_folder(root)
        self._lock_file = f"{folder}/lock.mdb"
        self._allocate_lock()
        self._env, self._key = _acquire(folder, readonly=False)
        try:
            self.databases = {name.decode(): self._env.open_db(name) for name in DATABASES}
        except lmdb.Error:
            _release(self._key)
            raise
        self._file = f"{folder}/data.mdb"

    def _allocate_lock(self) -> None:
        fd = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(fd, 0o600)
            os.posix_fallocate(fd, 0, LOCK_BYTES)
        finally:
            os.close(fd)

    @contextmanager
    def write(self) -> Iterator[IndexTxn]:
        """A transaction that is durable when the block ends, and undone when it raises."""
        with self._env.begin(write=True) as txn:
            yield IndexTxn(txn, self)

    @contextmanager
    def read(self) -> Iterator[IndexTxn]:
        """A view of one moment. Keep it short: pages that it can see are not used again."""
        with self._env.begin() as txn:
            yield IndexTxn(txn, self)

    def in_place(self) -> bool:
        """Whether this is still the index of the folder."""
        return _file_of(os.path.dirname(self._file)) == self._key[1]

    def disk_bytes(self) -> int:
        """What the index takes on disk."""
        return sum(os.stat(path).st_blocks * 512 for path in (self._file, self._lock_file))

    def forget_dead_readers(self) -> int:
        """Free the entries of killed processes; call it after each death."""
        return int(self._env.reader_check())

    def close(self) -> None:
        """Unmap."""
        _release(self._key)
