"""Whether the kernel still waits for the answer to a request: asked of the kernel, which alone knows.

A request that a dead process left may have its answer already, and a notice that its reader was killed may have died
with whoever took it. An `EAGAIN` in reply to an INTERRUPT means "say it again"; the kernel looks the request up first,
so the result of the write tells, and nothing changes (fs/fuse/dev.c: fuse_dev_do_write, queue_interrupt).
"""

from __future__ import annotations

import errno
import os
from enum import Enum

from stoker.fuse.protocol import INTERRUPT_UNIQUE, encode_error


class Fate(Enum):
    """Of a request that was taken from the kernel."""

    WAITS = "its reader waits"
    INTERRUPTED = "its reader got a signal while it waited; the kernel hands the INTERRUPT out once more"
    ENDED = "it has its answer, or its connection is gone"


def fate_of(fd: int, unique: int) -> Fate:
    """`fd` must be the clone that handed the request out."""
    try:
        os.write(fd, encode_error(unique | INTERRUPT_UNIQUE, errno.EAGAIN))
    except OSError as error:
        return Fate.WAITS if error.errno == errno.EINVAL else Fate.ENDED
    return Fate.INTERRUPTED
