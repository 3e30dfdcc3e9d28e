"""The requests a worker holds, in shared memory, so that its successor answers what it left (docs/design/fuse.md).

One pool per worker: a landing slot that the kernel copies each request into, and a table of pending requests that wait
for pages. A request is in one of them from the moment the kernel hands it out until after its answer. Only the worker
writes its pool; after its death only the successor, or the keeper while there is none (`hold.py`).
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass

LANDING_SIZE = 8192  # FUSE_MIN_READ_BUFFER: the kernel refuses to hand out requests into less
RECORD_SIZE = 384  # a header (40), the longest pending request: GETXATTR of a 255 byte name (40 + 8 + 256), and 24 ours
PENDING_RECORDS = 4096
MAX_DEATHS = 8
"""A request that was being processed when so many workers died is answered EIO. One that kills them does so each time;
someone who kills workers again and again (a test, the kernel short of memory) meets one replay twice or thrice."""

_HEADER = 4096
_RECORDS = _HEADER + LANDING_SIZE
POOL_SIZE = _RECORDS + PENDING_RECORDS * RECORD_SIZE

# Header words (8 bytes each): which session the landing slot belongs to, what is being processed, deaths of the landing
_SESSION, _BUSY, _LANDING_DEATHS = 0, 1, 2
_LANDING_BUSY = 1  # value of _BUSY for the landing slot; a pending record r has r + 2
# Record words: session + 1 (0 = free; written last), deaths, length of the request and whether it was refused
_R_SESSION, _R_DEATHS, _R_LENGTH, _R_BODY = 0, 1, 2, 24

_REFUSED = 1 << 32  # in the word of the length
_WORDS = _HEADER // 8


def create_pool() -> int:
    """A memfd for one worker's requests."""
    fd = os.memfd_create("stoker-requests", os.MFD_CLOEXEC)
    os.ftruncate(fd, POOL_SIZE)
    return fd


@dataclass(frozen=True, slots=True)
class Left:
    """A request that a dead worker left: `record` is -1 for the landing slot; `poisonous` after MAX_DEATHS.

    `refused`: the keeper has answered it with EINTR, or was about to.
    """

    record: int
    session: int
    request: bytes
    poisonous: bool
    refused: bool = False


class RequestPool:
    """The pool of one worker, mapped. `landing` is where the next request goes."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, POOL_SIZE)
        whole = memoryview(self._map)
        self._words = whole.cast("Q")
        self.landing = whole[_HEADER : _HEADER + LANDING_SIZE]
        self._length = self.landing[:4].cast("I")
        self._whole = whole
        self._free = [r for r in range(PENDING_RECORDS - 1, -1, -1) if not self._words[self._word(r)]]

    @staticmethod
    def _word(record: int) -> int:
        return (_RECORDS + record * RECORD_SIZE) // 8

    @property
    def full(self) -> bool:
        """Whether no further request may be taken from the kernel before one is answered."""
        return not self._free

    @property
    def pending(self) -> int:
        """Requests that wait for pages."""
        return PENDING_RECORDS - len(self._free)

    def expect(self, session: int) -> None:
        """Prepare the landing slot: empty, its pages resident, and naming the session whose descriptor is read next."""
        self.landing[0] = 0
        self.landing[4096] = 0
        self._length[0] = 0
        self._words[_SESSION] = session
        self._words[_LANDING_DEATHS] = 0
        self._words[_BUSY] = _LANDING_BUSY

    def answered(self) -> None:
        """The landing request has its answer (or needs none)."""
        self._length[0] = 0
        self._words[_BUSY] = 0

    def keep(self, session: int) -> int:
        """Move the landing request to the pending table: its record. The caller saw that the pool is not full."""
        record = self._free.pop()
        word = self._word(record)
        length = self._length[0]
        start = word * 8 + _R_BODY
        self._whole[start : start + length] = self.landing[:length]
        self._words[word + _R_DEATHS] = self._words[_LANDING_DEATHS]
        self._words[word + _R_LENGTH] = length
        self._words[word + _R_SESSION] = session + 1
        self.answered()
        return record

    def release(self, record: int) -> None:
        """A pending request has its answer."""
        self._words[self._word(record) + _R_SESSION] = 0
        self._free.append(record)

    def refuse(self, record: int) -> None:
        """The keeper answers a pending OPEN with an error; the next worker must see to what that OPEN has left."""
        self._words[self._word(record) + _R_LENGTH] |= _REFUSED

    def begin(self, record: int) -> None:
        """A left or pending request (-1: the landing one) is processed now: a death here counts against it."""
        self._words[_BUSY] = record + 2

    def end(self) -> None:
        self._words[_BUSY] = 0

    def left(self) -> list[Left]:
        """What a predecessor left, after counting its death against what it was processing."""
        busy = self._words[_BUSY]
        if busy == _LANDING_BUSY and self._length[0]:
            self._words[_LANDING_DEATHS] += 1
        elif busy >= 2:
            self._words[self._word(busy - 2) + _R_DEATHS] += 1
        self._words[_BUSY] = 0
        found = []
        if length := self._length[0]:
            poisonous = self._words[_LANDING_DEATHS] >= MAX_DEATHS
            found.append(Left(-1, self._words[_SESSION], bytes(self.landing[:length]), poisonous))
        for record in range(PENDING_RECORDS):
            word = self._word(record)
            if session := self._words[word + _R_SESSION]:
                start = word * 8 + _R_BODY
                length = self._words[word + _R_LENGTH]
                request = bytes(self._whole[start : start + (length & ~_REFUSED)])
                poisonous = self._words[word + _R_DEATHS] >= MAX_DEATHS
                found.append(Left(record, session - 1, request, poisonous, bool(length & _REFUSED)))
        return found
