"""Who is alive: one lock file per role and index. A lock dies with its holder, a process id alone proves nothing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

LOCK_TIMEOUT_S = 20.0


def lock_path(run_dir: str, role: str, index: int) -> str:
    return os.path.join(run_dir, f"{role}-{index}.lock")


def hold_role(run_dir: str, role: str, index: int, timeout_s: float = LOCK_TIMEOUT_S) -> int:
    """Become the one process of this role and index: wait until the predecessor is dead. The lock's descriptor.

    Raises TimeoutError when the predecessor lives on.
    """
    fd = os.open(lock_path(run_dir, role, index), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    end = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        if time.monotonic() > end:
            os.close(fd)
            raise TimeoutError(f"another {role} {index} is still alive")
        time.sleep(0.002)
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode(), 0)
    return fd


def try_role(run_dir: str, role: str, index: int, timeout_s: float) -> int | None:
    """The same; None when the predecessor lives on."""
    with contextlib.suppress(TimeoutError):
        return hold_role(run_dir, role, index, timeout_s)
    return None


def living(run_dir: str, role: str, index: int) -> int | None:
    """A pidfd of the living process of this role and index, or None. Never of another process with a reused id."""
    try:
        fd = os.open(lock_path(run_dir, role, index), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        while True:
            pidfd = _pidfd(os.pread(fd, 32, 0))
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if pidfd is not None:
                    return pidfd  # locked still, after the pidfd was made: it is the holder's
                time.sleep(0.001)  # the holder is about to write its id
                continue
            if pidfd is not None:
                os.close(pidfd)
            return None
    finally:
        os.close(fd)


def _pidfd(written: bytes) -> int | None:
    try:
        return os.pidfd_open(int(written))
    except (ValueError, ProcessLookupError):
        return None
