"""In the background: pages that an earlier boot wrote are compared with their checksums, and promoted or dropped."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from crc32c import crc32c

from stoker.cache.edit import IndexEdit
from stoker.cache.jobs import IndexJob
from stoker.cache.layout import CHUNK, PAGE, object_path, runs_of
from stoker.cache.record import ChunkRecord, chunk_key, split_chunk_key

CHUNKS_PER_STEP = 16
"""64 MiB at most: a step holds the index thread for about 0.1 s, so commits are not kept waiting."""

RECORDS_PER_STEP = 20_000


@dataclass
class VerifyJob(IndexJob):
    """One step, from the chunk key `start` on. Afterwards `next_start` is where the next one begins; None: all seen."""

    start: bytes = b""
    next_start: bytes | None = None
    bad_pages: int = 0
    _found: list[tuple[bytes, int, ChunkRecord, int, int]] = field(default_factory=list)

    def run(self) -> None:
        """Read and compare outside the transaction; store the verdicts in it."""
        if self.tier.index is None:
            return
        for oid, chunk, record in self._unverified():
            todo = record.present & ~record.verified_in(self.common.boot)
            good = self._compare(oid, chunk, record, todo)
            self._found.append((oid, chunk, record, good, todo & ~good))
        if self._found:
            super().run()

    def change(self, edit: IndexEdit) -> None:
        self.bad_pages = sum(edit.checked(*found) for found in self._found)

    def _unverified(self) -> list[tuple[bytes, int, ChunkRecord]]:
        assert self.tier.index is not None
        todo: list[tuple[bytes, int, ChunkRecord]] = []
        with self.tier.index.read() as txn:
            for seen, (key, record) in enumerate(txn.chunks_from(self.start)):
                if len(todo) >= CHUNKS_PER_STEP or seen >= RECORDS_PER_STEP:
                    self.next_start = key
                    return todo
                if record is not None and record.present & ~record.verified_in(self.common.boot):
                    todo.append((*split_chunk_key(key), record))
        self.next_start = None
        return todo

    def _compare(self, oid: bytes, chunk: int, record: ChunkRecord, todo: int) -> int:
        """The pages of `todo` whose bytes are right."""
        good = 0
        try:
            fd = os.open(object_path(self.tier.root, oid, record.incarnation), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return 0
        try:
            for first, last in runs_of(todo):
                good |= self._good_of_run(fd, chunk, record, first, last)
        finally:
            os.close(fd)
        return good

    def _good_of_run(self, fd: int, chunk: int, record: ChunkRecord, first: int, last: int) -> int:
        try:
            raw = os.pread(fd, (last - first) * PAGE, chunk * CHUNK + first * PAGE)
        except OSError:
            return 0  # an unreadable page is a bad one: it is fetched again
        good = 0
        for page in range(first, last):
            piece = raw[(page - first) * PAGE : (page - first + 1) * PAGE]
            if piece and crc32c(piece) == record.crcs[page]:
                good |= 1 << page
        return good


def first_key() -> bytes:
    """Where a pass begins."""
    return chunk_key(bytes(20), 0)
