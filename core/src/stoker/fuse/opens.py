"""Who has which file open, in shared memory, for sessions that answer OPEN (docs/design/fuse.md).

The kernel wants all opens of an inode to share one mode (cached or passthrough) and one backing id, or it fails them
with EIO. So all workers of a session share one table, which survives each of them: inode -> (mode, backing id, count)
and the set of open handles. A handle is the unique id of its OPEN, so replaying an OPEN or a RELEASE changes nothing.
The table is guarded by an fcntl lock, which dies with its holder; a holder that died in mid-change left `dirty` set,
and the next one counts again from the handles, and closes the backing ids that belong to none. One that was taken from
the kernel and not entered is found by its number: a connection gives them out in order.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

HANDLES = 1 << 16
INODES = 1 << 14

# Words of 8 bytes. A handle: unique id, inode. An inode: number, backing id (0 = cached mode), count of handles.
_DIRTY, _LAST_BACKING = 0, 1
_LOST_BACKINGS = 4  # ids above the last one entered that dead holders may have taken, one by each
_HANDLE_BASE, _HANDLE_WORDS = 512, 2
_INODE_BASE, _INODE_WORDS = _HANDLE_BASE + HANDLES * _HANDLE_WORDS, 3
TABLE_SIZE = (_INODE_BASE + INODES * _INODE_WORDS) * 8

_EMPTY, _GONE = 0, 1  # keys: no request and no file has these numbers (unique ids of requests are even and above 1)


class OpenTableFullError(Exception):
    """More files are open than the table holds."""


@dataclass(frozen=True, slots=True)
class Opened:
    """How an open file is served: `backing` is the passthrough id, 0 for cached mode."""

    handle: int
    backing: int


def create_table() -> int:
    """A memfd for the opens of one session; pages that are never touched cost nothing."""
    fd = os.memfd_create("stoker-opens", os.MFD_CLOEXEC)
    os.ftruncate(fd, TABLE_SIZE)
    return fd


class _Probe:
    """Linear probing over one region of the shared words; removal leaves a tombstone unless a gap follows."""

    def __init__(self, words: memoryview, base: int, width: int, slots: int) -> None:
        self.words, self._base, self._width, self._slots = words, base, width, slots

    def word(self, slot: int) -> int:
        return self._base + slot * self._width

    def find(self, key: int) -> int | None:
        slot = self._start(key)
        for _ in range(self._slots):
            held = self.words[self.word(slot)]
            if held == key:
                return slot
            if held == _EMPTY:
                return None
            slot = (slot + 1) % self._slots
        return None

    def room(self, key: int) -> int:
        """A free slot for a key that is not there; the caller writes its values first, its key last."""
        slot = self._start(key)
        for _ in range(self._slots):
            if self.words[self.word(slot)] <= _GONE:
                return slot
            slot = (slot + 1) % self._slots
        raise OpenTableFullError

    def remove(self, slot: int) -> None:
        """A tombstone right before a gap ends no probe sequence, so it becomes a gap too, and those before it."""
        following = self.words[self.word((slot + 1) % self._slots)]
        self.words[self.word(slot)] = _GONE
        while following == _EMPTY and self.words[self.word(slot)] == _GONE:
            self.words[self.word(slot)] = _EMPTY
            slot = (slot - 1) % self._slots

    def used(self) -> list[int]:
        """The slots that hold a key. All are copied at once: one by one takes tens of ms, and a death in mid-count
        begins the next count."""
        keys = self.words[self._base : self._base + self._slots * self._width : self._width].tolist()
        return [slot for slot, key in enumerate(keys) if key > _GONE]

    def _start(self, key: int) -> int:
        return (key * 0x9E3779B97F4A7C15 >> 17) % self._slots


class OpenTable:
    """The table of one session, mapped. `close_backing` gives an id back to the kernel; one that is gone is fine."""

    def __init__(self, fd: int, close_backing: Callable[[int], None] = lambda _backing: None) -> None:
        self._fd = fd
        self._close_backing = close_backing
        self._map = mmap.mmap(fd, TABLE_SIZE)
        words = memoryview(self._map).cast("Q")
        self._words = words
        self._handles = _Probe(words, _HANDLE_BASE, _HANDLE_WORDS, HANDLES)
        self._inodes = _Probe(words, _INODE_BASE, _INODE_WORDS, INODES)

    def open(self, unique: int, inode: int, backing: Callable[[], int]) -> Opened:
        """Enter one open. `backing()` is asked for a backing id (0 = cached mode) only for the first open of the inode.

        Raises OpenTableFullError.
        """
        with self._locked():
            at = self._inodes.find(inode)
            if self._handles.find(unique) is not None and at is not None:
                return Opened(unique, self._backing(at))
            slot = self._handles.room(unique)
            if at is None:
                at = self._inodes.room(inode)
                self._enter_inode(at, inode, backing())
            word = self._handles.word(slot)
            self._words[word + 1] = inode
            self._words[word] = unique
            self._words[self._inodes.word(at) + 2] += 1
            return Opened(unique, self._backing(at))

    def has(self, handle: int) -> bool:
        """Whether an open is entered."""
        with self._locked():
            return self._handles.find(handle) is not None

    def release(self, handle: int) -> None:
        """Take one open out, and close the backing id that nobody uses any more. An unknown handle changes nothing."""
        with self._locked():
            slot = self._handles.find(handle)
            if slot is None:
                return
            at = self._inodes.find(self._words[self._handles.word(slot) + 1])
            self._handles.remove(slot)
            if at is None:
                return
            word = self._inodes.word(at)
            self._words[word + 2] -= 1
            if not self._words[word + 2]:
                self._remove_inode(at)

    def passthrough_inodes(self) -> list[int]:
        """The inodes whose cache files the kernel itself has open (and those of a change that nobody ended)."""
        fcntl.lockf(self._fd, fcntl.LOCK_EX, 8)
        try:
            words = map(self._inodes.word, self._inodes.used())
            return [self._words[word] for word in words if self._words[word + 1]]
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 8)

    def close(self) -> None:
        for probe in (self._handles, self._inodes):
            probe.words = memoryview(b"")
        self._words.release()
        self._map.close()
        os.close(self._fd)

    def _backing(self, at: int) -> int:
        return self._words[self._inodes.word(at) + 1]

    def _enter_inode(self, slot: int, inode: int, backing: int) -> None:
        word = self._inodes.word(slot)
        self._words[word + 1], self._words[word + 2] = backing, 0
        self._words[word] = inode
        if backing:
            self._words[_LAST_BACKING] = backing

    def _remove_inode(self, slot: int) -> None:
        if backing := self._backing(slot):
            self._close_backing(backing)
        self._inodes.remove(slot)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self._fd, fcntl.LOCK_EX, 8)
        try:
            if self._words[_DIRTY]:
                self._recount()
            self._words[_DIRTY] = 1
            try:
                yield
            except OpenTableFullError:
                self._words[_DIRTY] = 0  # said before anything was changed
                raise
            self._words[_DIRTY] = 0
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 8)

    def _recount(self) -> None:
        """The last holder died in mid-change: count each inode's handles again, drop inodes without any.

        An id above the last one entered is in nobody's table.
        """
        last = self._words[_LAST_BACKING]
        for backing in range(last + 1, last + 1 + _LOST_BACKINGS):
            self._close_backing(backing)
        counts = Counter(self._words[self._handles.word(slot) + 1] for slot in self._handles.used())
        for slot in self._inodes.used():
            word = self._inodes.word(slot)
            if count := counts.get(self._words[word], 0):
                self._words[word + 2] = count
            else:
                self._remove_inode(slot)
