"""What can be refused before a node is started: in an instant, and with nothing left behind."""

from __future__ import annotations

import os
import shutil

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.cli.connect import settings
from stoker.cli.documents import Order


def check(order: Order, mountpoint: str) -> None:
    """Raises StokerError: FuseUnavailable, and what `stoker.node.mountpoint` and `stoker.node.resolve` refuse."""
    from stoker.node.launch import is_running
    from stoker.node.mountinfo import mounts
    from stoker.node.mountpoint import check_mountpoint
    from stoker.node.resolve import resolve

    _check_fuse()
    sources = resolve(order.data_set, {}, order.place).sources
    is_mounted = any(mount.mountpoint == mountpoint for mount in mounts())
    if not (is_mounted and is_running(settings())):  # else the node knows whether it is this very mount
        check_mountpoint(mountpoint, sources)


def _check_fuse() -> None:
    from stoker.fuse.kernel import open_device

    os.close(open_device())
    if os.geteuid() != 0 and shutil.which("fusermount3") is None:
        step = "install it (apt-get install fuse3), or run as root."
        raise StokerError(Reason.FuseUnavailable, "fusermount3 is not installed", next_step=step)
