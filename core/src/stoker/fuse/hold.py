"""What the keeper does with a worker's clones while no worker serves them: hold requests, answer interrupts.

A reader that is killed waits in the kernel until its request is answered. So while a worker is down for longer than a
moment, its requests are taken into its pool (the next worker answers them from there) and only the interrupted ones are
answered, with EINTR: a killed process never stays in D state. The kernel hands an INTERRUPT to any of those who serve
the connection, and whoever took it may be dead: so the kernel is asked about each request that is held.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
from typing import NamedTuple

from stoker.fuse.fate import Fate, fate_of
from stoker.fuse.protocol import CHANGING, IN_HEADER, NO_REPLY, Op, RequestKey, encode_error
from stoker.fuse.slots import RECORD_SIZE, RequestPool


class Held(NamedTuple):
    """A request that waits: its record in the pool, its operation, the thread that waits for it."""

    record: int
    op: int
    thread: int


class Holder:
    """Holds for one worker; closed before a new worker is started."""

    def __init__(self, pool_fd: int) -> None:
        self._pool = RequestPool(pool_fd)
        self._epoll = select.epoll()
        self._fds: dict[int, int] = {}
        self._made: dict[int, int] = {}
        self._pending: dict[RequestKey, Held] = {}
        for left in self._pool.left():
            record = left.record if left.record >= 0 else self._take(left.session)
            if record is not None:
                _length, op, unique, _inode, _uid, _gid, thread, *_ = IN_HEADER.unpack_from(left.request)
                self._pending[left.session, unique] = Held(record, op, thread)

    def fileno(self) -> int:
        return self._epoll.fileno()

    def add(self, session: int, fd: int, made: int = 0) -> None:
        """Hold the requests of one session's clone too. Of two sessions with one number the older has ended: the one
        `made` later, or told again, takes the place of what it was.

        By a duplicate: epoll goes on to report a descriptor that was closed before it was taken out, for as long as
        another process has the same clone.
        """
        if made < self._made.get(session, 0):
            return
        self.remove(session, self._made.get(session, 0))
        own = self._fds[session] = os.dup(fd)
        self._made[session] = made
        with contextlib.suppress(OSError):
            self._epoll.register(own, select.EPOLLIN)

    def remove(self, session: int, made: int = 0) -> None:
        """It has ended; one that was made later and has its number by now stays."""
        if made < self._made.get(session, 0):
            return
        self._made.pop(session, None)
        own = self._fds.pop(session, None)
        if own is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(own)
            os.close(own)

    def on_readable(self) -> None:
        """Take what the kernel hands out now."""
        by_fd = {fd: session for session, fd in self._fds.items()}
        for fd, _events in self._epoll.poll(0):
            session = by_fd[fd]
            while not self._pool.full:
                self._pool.expect(session)
                try:
                    os.readv(fd, [self._pool.landing])
                except BlockingIOError:
                    break
                except OSError as error:
                    if error.errno not in (errno.EINTR, errno.ENOENT):
                        self.remove(session, self._made[session])
                        break
                    continue
                self._on_request(session, fd)

    def end_interrupted(self) -> None:
        """Answer those whose readers got a signal; forget those that have their answer."""
        for (session, unique), held in list(self._pending.items()):
            fd = self._fds.get(session)
            fate = Fate.WAITS if fd is None else fate_of(fd, unique, held.thread)
            # A RELEASE is for the worker: it has no reader.
            if fd is None or fate is Fate.WAITS or held.op == Op.RELEASE:
                continue
            del self._pending[session, unique]
            if fate is Fate.INTERRUPTED:
                if held.op == Op.OPEN:  # the dead worker may have entered it: its successor takes it out
                    self._pool.refuse(held.record)
                self._answer(fd, unique, errno.EINTR)
            if fate is Fate.ENDED or held.op != Op.OPEN:
                self._pool.release(held.record)

    def close(self) -> None:
        """Stop; the requests stay in the pool for the next worker."""
        for session in list(self._fds):
            self.remove(session, self._made[session])
        self._epoll.close()

    def _on_request(self, session: int, fd: int) -> None:
        length, op, unique, _inode, _uid, _gid, thread, *_ = IN_HEADER.unpack_from(self._pool.landing)
        if op in NO_REPLY or op == Op.INTERRUPT:  # `end_interrupted` asks; to ask here would bring the next INTERRUPT
            self._pool.answered()
        elif op in CHANGING or length > RECORD_SIZE - 24:
            self._answer(fd, unique, errno.EROFS if op in CHANGING else errno.ENAMETOOLONG)
            self._pool.answered()
        else:
            self._pending[session, unique] = Held(self._pool.keep(session), op, thread)

    @staticmethod
    def _answer(fd: int, unique: int, error: int) -> None:
        with contextlib.suppress(OSError):
            os.write(fd, encode_error(unique, error))

    def _take(self, session: int) -> int | None:
        """The landing request of the dead worker moves to the table, so that further ones can land."""
        length, op, *_ = IN_HEADER.unpack_from(self._pool.landing)
        if op in NO_REPLY or op == Op.INTERRUPT or length > RECORD_SIZE - 24 or self._pool.full:
            return None
        return self._pool.keep(session)
