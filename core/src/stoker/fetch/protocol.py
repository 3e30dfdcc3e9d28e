"""The frames between workers (and the daemon) and fetchers: fixed headers, little endian, bodies only in replies.

A request has no body. A reply with status DATA or ERROR is followed by `length` bytes: the bytes asked for, or a
StokerError as JSON. Any number of requests may be outstanding; replies come in any order. Not for control messages.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from stoker.api.errors import StokerError

KIND_READ, KIND_LOAD, KIND_NOTE, KIND_CANCEL = 1, 2, 3, 4
"""Make the span readable; make the whole object present; a trigger page was served; forget the request of this id."""

FLAG_BAD_PAGE, FLAG_INLINE, FLAG_EXACT, FLAG_READER = 1, 2, 4, 8
"""What the cache holds of the span is wrong: fetch it again. Answer with the bytes, whatever the cache holds. Read
nothing ahead of this request: whoever asks knows where it ends. A reader waits for this LOAD."""

_REQUEST = struct.Struct("<QBBHIQQ")
_REPLY = struct.Struct("<QBxxxIQ")
REQUEST_BYTES, REPLY_BYTES = _REQUEST.size, _REPLY.size

MOST_DATA = 64 << 20
"""Bytes of one reply's body; far above any READ of the kernel. More means that the stream is out of step."""


class Status(IntEnum):
    PRESENT = 0
    DATA = 1
    ERROR = 2


class ProtocolError(Exception):
    """The other end does not speak this protocol; the connection is of no more use."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. The LOAD of a whole object ignores `offset` and `length`."""

    id: int
    kind: int
    flags: int
    slot: int
    inode: int
    offset: int
    length: int

    def pack(self) -> bytes:
        return _REQUEST.pack(self.id, self.kind, self.flags, self.slot, self.length, self.inode, self.offset)


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply. `mark` of DATA and ERROR says which object they are about (`mark_of`; 0: no object was found), of
    PRESENT the incarnation of its cache file (0: there is none)."""

    id: int
    status: Status
    mark: int = 0
    data: bytes = b""

    def pack(self) -> bytes:
        return _REPLY.pack(self.id, self.status, len(self.data), self.mark) + self.data

    def error(self) -> dict[str, str]:
        """What `StokerError.from_json` reads, of a reply with status ERROR."""
        found: dict[str, str] = json.loads(self.data)
        return found

    @classmethod
    def failed(cls, request: int, mark: int, error: StokerError) -> Reply:
        return cls(request, Status.ERROR, mark, json.dumps(error.to_json()).encode())


def present(request: int, incarnation: int) -> bytes:
    """The packed reply of most requests."""
    return _REPLY.pack(request, Status.PRESENT, 0, incarnation)


def data_header(request: int, mark: int, length: int) -> bytes:
    """What stands before `length` bytes of data."""
    return _REPLY.pack(request, Status.DATA, length, mark)


def mark_of(oid: bytes) -> int:
    """What an asker compares before it believes DATA or ERROR: slots are used again, and for a moment after a session
    has ended the two ends may mean different sessions by one."""
    return int.from_bytes(oid[:8], "little") | 1


class RequestFrames:
    """Requests out of a byte stream that arrives in any pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Request]:
        """The requests that are complete now."""
        data = self._rest + data if self._rest else data
        whole = len(data) - len(data) % REQUEST_BYTES
        self._rest = data[whole:]
        return [
            Request(number, kind, flags, slot, inode, offset, length)
            for number, kind, flags, slot, length, inode, offset in _REQUEST.iter_unpack(memoryview(data)[:whole])
        ]


class ReplyFrames:
    """Replies out of a byte stream that arrives in any pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Reply]:
        """The replies that are complete now. Raises ProtocolError."""
        self._buffer += data
        replies = []
        at = 0
        for reply, end in self._parse():
            replies.append(reply)
            at = end
        del self._buffer[:at]
        return replies

    def _parse(self) -> Iterator[tuple[Reply, int]]:
        at = 0
        while at + REPLY_BYTES <= len(self._buffer):
            number, status, length, mark = _REPLY.unpack_from(self._buffer, at)
            if status > Status.ERROR or length > MOST_DATA:
                raise ProtocolError(f"a reply of status {status} and {length} bytes")
            end = at + REPLY_BYTES + length
            if end > len(self._buffer):
                return
            yield Reply(number, Status(status), mark, bytes(self._buffer[at + REPLY_BYTES : end])), end
            at = end
