"""A trial mount in a temporary folder: whether FUSE is allowed here, and what the kernel offers.

`python -m stoker.cli.trial` is silent when it is, and says why when it is not.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass

from stoker.api.errors import StokerError
from stoker.fuse import kernel


@dataclass(frozen=True, slots=True)
class Offer:
    """What the kernel granted on a real connection."""

    passthrough: bool
    clone: str
    """Empty when a descriptor could be cloned, else why not."""


def trial_mount() -> Offer:
    """Mount, ask, unmount. Raises StokerError: FuseUnavailable, PermissionDenied."""
    folder = tempfile.mkdtemp(prefix="stoker-trial-")
    try:
        mounted = kernel.mount(folder, "stoker-trial", want_passthrough=True)
        try:
            return Offer(mounted.passthrough and _try_backing(mounted.fd), _try_clone(mounted.fd))
        finally:
            with contextlib.suppress(StokerError):
                kernel.unmount(folder, lazy=True)
            os.close(mounted.fd)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _try_backing(fd: int) -> bool:
    """The kernel may offer passthrough and still refuse a file, for want of rights."""
    with tempfile.TemporaryFile() as file:
        try:
            kernel.close_backing(fd, kernel.open_backing(fd, file.fileno()))
        except OSError:
            return False
    return True


def _try_clone(fd: int) -> str:
    try:
        os.close(kernel.clone(fd))
    except StokerError as error:
        return error.message
    return ""


if __name__ == "__main__":
    try:
        trial_mount()
    except StokerError as error:
        sys.exit(error.line())
