"""One request of the kernel, held until it is answered, and the answers that need no page."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass

from stoker.fuse.protocol import (
    CHANGING,
    GETXATTR,
    HEADER_SIZE,
    IN_HEADER,
    NO_REPLY,
    OUT_HEADER,
    READ_IN,
    Op,
    RequestKey,
    encode_error,
)
from stoker.fuse.session import Session
from stoker.fuse.slots import RequestPool

Buffer = bytes | bytearray | memoryview

XATTRS = (b"user.stoker.uri", b"user.stoker.etag", b"user.stoker.cached")


@dataclass(slots=True)
class Request:
    """A request: `record` is its place in the pending table, -1 while it is in the landing slot; `thread` asks."""

    session: Session
    unique: int
    op: int
    inode: int
    body: memoryview
    thread: int
    record: int = -1

    @property
    def key(self) -> RequestKey:
        return self.session.slot, self.unique

    @classmethod
    def parse(cls, session: Session, raw: memoryview, record: int = -1) -> Request:
        length, op, unique, inode, _uid, _gid, thread, *_ = IN_HEADER.unpack_from(raw)
        return cls(session, unique, op, inode, raw[HEADER_SIZE:length], thread, record)


class Answers:
    """Sends answers and keeps the pool in step: a slot is cleared only after its answer has left."""

    def __init__(self, pool: RequestPool, on_release: Callable[[], None]) -> None:
        self._pool = pool
        self._on_release = on_release

    def keep(self, request: Request) -> None:
        """The answer comes later: the request leaves the landing slot."""
        if request.record < 0:
            request.record = self._pool.keep(request.session.slot)

    def data(self, request: Request, *buffers: Buffer) -> None:
        """Answer with a body. The buffers must be private memory, never a mapping that can fault."""
        total = OUT_HEADER.size + sum(map(len, buffers))
        self._write(request, [OUT_HEADER.pack(total, 0, request.unique), *buffers])

    def error(self, request: Request, code: int) -> None:
        self._write(request, [encode_error(request.unique, code)])

    def nothing(self, request: Request) -> None:
        """The request needs no answer."""
        if request.record < 0:
            self._pool.answered()
        else:
            self._pool.release(request.record)
            self._on_release()

    def _write(self, request: Request, buffers: list[Buffer]) -> None:
        # ENOENT: answered by a predecessor before it died, or interrupted. ENODEV: unmounted.
        with contextlib.suppress(OSError):
            os.writev(request.session.fd, buffers)
        self.nothing(request)


class Metadata:
    """Requests that are answered at once from the manifest and the cache's index."""

    def __init__(
        self,
        answers: Answers,
        cached_percent: Callable[[Session, int], int],
        on_lookup: Callable[[Session, int], None],
    ) -> None:
        self._answers = answers
        self._on_lookup = on_lookup
        self._cached_percent = cached_percent
        self._ops: dict[int, Callable[[Request], Buffer | int]] = {
            Op.LOOKUP: self._lookup,
            Op.GETATTR: lambda r: r.session.tree.getattr(r.inode),
            Op.READDIR: lambda r: r.session.tree.readdir(r.inode, *_span(r)),
            Op.READDIRPLUS: lambda r: r.session.tree.readdirplus(r.inode, *_span(r)),
            Op.STATFS: lambda r: r.session.tree.statfs(),
            Op.GETXATTR: self._getxattr,
            Op.LISTXATTR: self._listxattr,
            Op.DESTROY: lambda _: b"",
        }

    def handle(self, request: Request) -> None:
        """Answer. What has no use here is ENOSYS, which the kernel remembers (OPEN, OPENDIR, ACCESS)."""
        if request.op in NO_REPLY:
            self._answers.nothing(request)
            return
        handler = self._ops.get(request.op)
        if handler is None:
            self._answers.error(request, errno.EROFS if request.op in CHANGING else errno.ENOSYS)
            return
        answer = handler(request)
        if isinstance(answer, int):
            self._answers.error(request, answer)
        else:
            self._answers.data(request, answer)

    def _lookup(self, request: Request) -> Buffer | int:
        answer = request.session.tree.lookup(request.inode, bytes(request.body[:-1]))
        if isinstance(answer, bytes) and (inode := int.from_bytes(answer[:8], "little")):
            self._on_lookup(request.session, inode)
        return answer

    def _getxattr(self, request: Request) -> Buffer | int:
        size, _ = GETXATTR.unpack_from(request.body)
        name = bytes(request.body[GETXATTR.size : -1])
        if name not in XATTRS or request.session.manifest.node(request.inode).is_dir:
            return errno.ENODATA
        return _sized(self._xattr(request.session, request.inode, name), size)

    def _listxattr(self, request: Request) -> Buffer | int:
        size, _ = GETXATTR.unpack_from(request.body)
        is_dir = request.session.manifest.node(request.inode).is_dir
        return _sized(b"" if is_dir else b"".join(name + b"\0" for name in XATTRS), size)

    def _xattr(self, session: Session, inode: int, name: bytes) -> bytes:
        if name == b"user.stoker.uri":
            return session.uri(inode).encode(errors="surrogateescape")
        if name == b"user.stoker.etag":
            return session.manifest.object(inode).version.etag.encode(errors="surrogateescape")
        return str(self._cached_percent(session, inode)).encode()


def _span(request: Request) -> tuple[int, int]:
    """Offset and size of a listing request."""
    _fh, offset, size, *_ = READ_IN.unpack_from(request.body)
    return offset, size


def _sized(value: bytes, size: int) -> Buffer | int:
    """An extended attribute as the kernel wants it: its length when it asks with size 0."""
    if size == 0:
        return GETXATTR.pack(len(value), 0)
    return value if len(value) <= size else errno.ERANGE
