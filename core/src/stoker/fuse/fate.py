"""Whether the kernel still waits for the answer to a request: asked of the kernel, which alone knows.

A request that a dead process left may have its answer already, and a notice that its reader was killed may have died
with whoever took it. An `EAGAIN` in reply to an INTERRUPT means "say it again"; the kernel looks the request up first,
so the result of the write tells, and nothing changes (fs/fuse/dev.c: fuse_dev_do_write, queue_interrupt).

A reader that handles its signal waits on: files of a disk know no EINTR either, and a write(2) from a mapped page would
fail with EFAULT, an open with EINTR although its handler restarts calls.
"""

from __future__ import annotations

import errno
import os
import re
import signal
from enum import Enum

from stoker.fuse.protocol import INTERRUPT_UNIQUE, encode_error


class Fate(Enum):
    """Of a request that was taken from the kernel."""

    WAITS = "its reader waits"
    INTERRUPTED = "its reader dies of a signal that it got; the kernel hands the INTERRUPT out once more"
    ENDED = "it has its answer, or its connection is gone"


_MASKS = re.compile(r"^(SigPnd|ShdPnd|SigBlk|SigIgn|SigCgt):\t([0-9a-f]+)$", re.MULTILINE)
_HARMLESS = (
    signal.SIGCHLD,
    signal.SIGCONT,
    signal.SIGURG,
    signal.SIGWINCH,
    signal.SIGSTOP,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
)
"""Signals that kill nobody who does not handle them."""


def fate_of(fd: int, unique: int, thread: int) -> Fate:
    """`fd` must be the clone that handed the request out, `thread` the one that it names as who asks."""
    try:
        os.write(fd, encode_error(unique | INTERRUPT_UNIQUE, errno.EAGAIN))
    except OSError as error:
        return Fate.WAITS if error.errno == errno.EINVAL else Fate.ENDED
    return Fate.INTERRUPTED if is_dying(thread) else Fate.WAITS


def is_dying(thread: int) -> bool:
    """Whether a signal that is pending will end it; True also where that cannot be seen: nobody must wait in vain."""
    if not thread:
        return True  # of a PID namespace that is not below ours
    try:
        with open(f"/proc/{thread}/status", encoding="ascii", errors="replace") as file:
            masks = {name: int(mask, 16) for name, mask in _MASKS.findall(file.read())}
        pending = masks["SigPnd"] | masks["ShdPnd"]
        survived = masks["SigBlk"] | masks["SigIgn"] | masks["SigCgt"]
    except (OSError, KeyError):
        return True
    for number in _HARMLESS:
        survived |= 1 << (number - 1)
    return bool(pending & ~survived)
