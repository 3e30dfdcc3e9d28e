"""May a mount be made here? One line for each way it may not."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.api.uri import parse_uri
from stoker.fuse import kernel
from stoker.node.mountinfo import mounts
from stoker.sources.base import SourceSpec

_DEAD = (errno.ENOTCONN, errno.ECONNABORTED, errno.ESTALE, errno.EIO)
_ANSWER_S = 2.0  # a dead connection answers at once; what takes longer lives, and is left alone


def check_mountpoint(mountpoint: str, sources: Sequence[SourceSpec]) -> None:
    """Raises StokerError: AlreadyMounted, Mountpoint{Missing,NotDirectory,NotEmpty,InsideSource}, PermissionDenied.

    A dead mount of ours (its processes were killed) is taken away and is no error.
    """
    _check_mounts(mountpoint)
    try:
        entries = os.listdir(mountpoint)
    except FileNotFoundError as error:
        step = f"mkdir -p {mountpoint}"
        raise StokerError(
            Reason.MountpointMissing, "there is no such folder", place=mountpoint, next_step=step
        ) from error
    except NotADirectoryError as error:
        step = "name a folder."
        raise StokerError(Reason.MountpointNotDirectory, "it is a file", place=mountpoint, next_step=step) from error
    except PermissionError as error:
        step = "name a folder that you own."
        raise StokerError(Reason.PermissionDenied, "it may not be read", place=mountpoint, next_step=step) from error
    if entries:
        step = "name an empty folder."
        raise StokerError(Reason.MountpointNotEmpty, "the folder is not empty", place=mountpoint, next_step=step)
    if not os.access(mountpoint, os.W_OK):
        step = "name a folder that you may write."
        raise StokerError(Reason.PermissionDenied, "it may not be written", place=mountpoint, next_step=step)
    _check_sources(mountpoint, sources)


def _check_mounts(mountpoint: str) -> None:
    found = [mount for mount in mounts() if mount.mountpoint == mountpoint]
    if not found:
        return
    if found[-1].fstype == kernel.FSTYPE and _is_dead(mountpoint):
        kernel.unmount(mountpoint, lazy=True)
        return
    what = found[-1].source or found[-1].fstype
    step = f"unmount it first (stoker unmount {mountpoint}), or name another folder."
    raise StokerError(Reason.AlreadyMounted, f"{what} is mounted there", place=mountpoint, next_step=step)


def _is_dead(mountpoint: str) -> bool:
    """Whether the mount's server is gone. Only asked of a mount that no living session of this node has.

    statfs and not stat: attributes are answered by the kernel for an hour, whoever is dead. In a thread that nobody
    waits for: a server that hangs would hang whoever asks.
    """
    code: list[int] = []

    def ask() -> None:
        try:
            os.statvfs(mountpoint)
        except OSError as error:
            code.append(error.errno or 0)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_ANSWER_S)
    return bool(code) and code[0] in _DEAD


def _check_sources(mountpoint: str, sources: Sequence[SourceSpec]) -> None:
    """A mount inside its own source would list itself."""
    real = os.path.realpath(mountpoint)
    for source in sources:
        uri = parse_uri(source.uri)
        if uri.scheme == "file":
            root = os.path.realpath(os.fsdecode(uri.prefix))
            if os.path.commonpath([real, root]) == root:
                step = "mount outside of the source."
                text = f"it lies below its own source {source.uri}"
                raise StokerError(Reason.MountpointInsideSource, text, place=mountpoint, next_step=step)
