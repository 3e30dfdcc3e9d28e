"""The folder of one tier: made, recognised, locked and refused here. Nothing below it is read.

<root>/.stoker-cache   marker (JSON): this folder is ours; without it a folder with anything inside is not
<root>/objects/ab/     object files
<root>/index/          LMDB
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import uuid
from dataclasses import dataclass
from typing import Any

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason

MARKER = ".stoker-cache"
FORMAT = 1
_HARMLESS = {"lost+found", f"{MARKER}.new"}
"""What a new file system has; what a start leaves that was killed while it wrote the marker."""


@dataclass(slots=True)
class TierFolder:
    """A folder that is ours and locked for as long as this is open. `writable` is False when the disk takes nothing."""

    path: str
    seed: bytes
    lock_fd: int
    writable: bool = True

    def in_place(self) -> bool:
        """Whether the path still leads to this folder, with the marker and the folders in it."""
        try:
            names = (f"{self.path}/{name}" for name in (MARKER, "objects", "index"))
            return os.path.samestat(os.fstat(self.lock_fd), os.stat(self.path)) and all(map(os.path.exists, names))
        except OSError:
            return False

    def close(self) -> None:
        """Give the lock back."""
        os.close(self.lock_fd)


def tier_seed(root: str) -> bytes:
    """What places objects on this tier (`layout.tier_of`): it moves with the disk, not with the path."""
    return _seed(_read_marker(root))


def open_folder(path: str, seed: bytes | None = None) -> TierFolder:
    """Make or recognise a cache folder, private to this user whatever the umask, and take its lock.

    `seed`: of the tier that processes of this node know at this path, whatever the marker says.
    Raises StokerError: CacheFolderForeign, CacheFolderReadOnly, CacheFolderLocked, PermissionDenied.
    """
    root = os.path.realpath(path)
    try:
        _refuse_foreign(root)
        os.makedirs(root, mode=0o700, exist_ok=True)
        lock_fd = _lock(root)
    except OSError as error:
        raise _refusal(root, error) from error
    try:
        return _prepare(root, lock_fd, seed)
    except OSError as error:
        os.close(lock_fd)
        raise _refusal(root, error) from error
    except StokerError:
        os.close(lock_fd)
        raise


def _prepare(root: str, lock_fd: int, seed: bytes | None) -> TierFolder:
    _refuse_foreign(root)  # again, under the lock
    os.chmod(root, 0o700)
    writable = True
    try:
        marker = _read_marker(root)
    except FileNotFoundError:
        marker = {"format": FORMAT, "id": str(uuid.UUID(bytes=seed) if seed else uuid.uuid4())}
        writable = _write_marker(root, marker)
    if marker.get("format") != FORMAT:
        raise StokerError(
            Reason.CacheFolderForeign,
            f"the cache folder has format {marker.get('format')}, this version writes {FORMAT}",
            place=root,
            next_step="Use the version that made it, or remove the folder",
        )
    for name in ("objects", "index"):
        writable = _private_folder(f"{root}/{name}") and writable
    _make_files_private(root)
    return TierFolder(root, seed or _seed(marker), lock_fd, writable)


def _make_files_private(root: str) -> None:
    """Whatever made them wider: an earlier version, a copy, a careless chmod. Object files: see the sweep."""
    for path in (f"{root}/{MARKER}", f"{root}/index/data.mdb", f"{root}/index/lock.mdb"):
        with contextlib.suppress(FileNotFoundError):
            os.chmod(path, 0o600)


def _refuse_foreign(root: str) -> None:
    if root == "/":
        raise _foreign(root, "the root of the file system cannot be a cache folder")
    try:
        names = set(os.listdir(root))
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise _foreign(root, "it is a file, not a folder") from None
    if names and MARKER not in names and names - _HARMLESS:
        shown = ", ".join(sorted(names - _HARMLESS)[:3])
        raise _foreign(root, f"the folder holds files that Stoker did not make ({shown})")
    if MARKER in names:
        _read_marker(root)


def _foreign(root: str, message: str) -> StokerError:
    return StokerError(
        Reason.CacheFolderForeign, message, place=root, next_step="Name an empty or a new folder for the cache"
    )


def _lock(root: str) -> int:
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise StokerError(
            Reason.CacheFolderLocked,
            "another Stoker uses this cache folder",
            place=root,
            next_step="Stop it, or name another folder for this one",
        ) from None
    except OSError:
        os.close(fd)
        raise
    return fd


def _read_marker(root: str) -> dict[str, Any]:
    with open(f"{root}/{MARKER}", "rb") as file:
        raw = file.read(4096)
    try:
        marker = json.loads(raw)
        uuid.UUID(marker["id"])
    except (ValueError, KeyError, TypeError):
        raise _foreign(root, f"its {MARKER} is not one of ours") from None
    return dict(marker)


def _seed(marker: dict[str, Any]) -> bytes:
    return uuid.UUID(marker["id"]).bytes


def _write_marker(root: str, marker: dict[str, Any]) -> bool:
    """Under another name first; False when the disk is full: the tier then opens, and takes nothing."""
    draft = f"{root}/{MARKER}.new"
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "w") as file:
            os.fchmod(fd, 0o600)
            json.dump(marker, file)
            file.flush()
            os.fsync(fd)
        os.rename(draft, f"{root}/{MARKER}")
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return False
    return True


def _private_folder(path: str) -> bool:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return False
    os.chmod(path, 0o700)
    if not os.access(path, os.W_OK):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
    return True


def _refusal(root: str, error: OSError) -> StokerError:
    if error.errno == errno.EROFS:
        return StokerError(
            Reason.CacheFolderReadOnly,
            "the cache folder is on a read-only file system",
            place=root,
            next_step="Mount it read-write, or name another folder",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return StokerError(
            Reason.PermissionDenied,
            "no right to write in the cache folder",
            place=root,
            next_step="Give this user the folder, or name another one (STOKER_CACHE_DIR)",
        )
    return StokerError(
        Reason.CacheFolderReadOnly,
        f"the cache folder cannot be used: {error.strerror}",
        place=root,
        next_step="Name another folder for the cache",
    )
