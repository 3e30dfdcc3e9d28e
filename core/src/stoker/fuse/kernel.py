"""The kernel's side of a mount: open /dev/fuse, mount, answer INIT, clone, backing files, unmount.

Works as root by mount(2) and for an ordinary user through fusermount3. Every call here may block for a moment; none may
be made for a mount whose server is not there (a stat on a dead mount can hang), so nothing here stats a mountpoint.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import shutil
import socket
import struct
import subprocess
from dataclasses import dataclass

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.fuse.protocol import MAX_READ, InitRequest, decode_init, encode_init

FSTYPE = "fuse.stoker"  # so that PRUNEFS of updatedb and the like can name it

_CLONE = 0x8004E500  # FUSE_DEV_IOC_CLONE = _IOR(229, 0, u32)
_BACKING_OPEN = 0x4010E501  # FUSE_DEV_IOC_BACKING_OPEN = _IOW(229, 1, struct fuse_backing_map)
_BACKING_CLOSE = 0x4004E502  # FUSE_DEV_IOC_BACKING_CLOSE = _IOW(229, 2, u32)
_BACKING_MAP = struct.Struct("<iIQ")  # fd, flags, padding

_MS_RDONLY, _MS_NOSUID, _MS_NODEV = 1, 2, 4
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8
_INIT_TIMEOUT_MS = 10_000
_INIT_BUFFER = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Mounted:
    """A fresh mount whose INIT is answered: `fd` is the connection, `passthrough` whether both sides speak it."""

    fd: int
    passthrough: bool


def open_device() -> int:
    """Open /dev/fuse. Raises StokerError(FuseUnavailable) with what to do about it."""
    try:
        return os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError as error:
        step = "load the kernel module (modprobe fuse), or give the container /dev/fuse (--device /dev/fuse)."
        raise StokerError(Reason.FuseUnavailable, "there is no /dev/fuse", place="/dev/fuse", next_step=step) from error
    except OSError as error:
        step = "run as root, or let this user read and write /dev/fuse (chmod 0666 /dev/fuse)."
        text = f"/dev/fuse cannot be opened ({os.strerror(error.errno or 0)})"
        raise StokerError(Reason.FuseUnavailable, text, place="/dev/fuse", next_step=step) from error


def mount(mountpoint: str, name: str, *, want_passthrough: bool) -> Mounted:
    """Mount a new connection at `mountpoint`, shown as `name` in /proc/self/mountinfo, and answer its INIT.

    Raises StokerError: FuseUnavailable, PermissionDenied, MountpointMissing.
    """
    fd = _mount_as_root(mountpoint, name) if os.geteuid() == 0 else _mount_as_user(mountpoint, name)
    try:
        os.set_blocking(fd, False)
        return Mounted(fd, _answer_init(fd, want_passthrough=want_passthrough and os.geteuid() == 0))
    except BaseException:
        with contextlib.suppress(OSError, StokerError):
            unmount(mountpoint, lazy=True)
        os.close(fd)
        raise


def _mount_as_root(mountpoint: str, name: str) -> int:
    fd = open_device()
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions,max_read={MAX_READ}"
    flags = _MS_RDONLY | _MS_NOSUID | _MS_NODEV
    done = _libc.mount(name.encode(), os.fsencode(mountpoint), FSTYPE.encode(), flags, options.encode())
    if done == 0:
        return fd
    code = ctypes.get_errno()
    os.close(fd)
    raise _mount_error(mountpoint, code)


def _mount_error(mountpoint: str, code: int) -> StokerError:
    text = f"the kernel refused the mount ({os.strerror(code)})"
    if code in (errno.ENOENT, errno.ENOTDIR):
        step = f"mkdir -p {mountpoint}"
        return StokerError(Reason.MountpointMissing, text, place=mountpoint, next_step=step)
    if code in (errno.EPERM, errno.EACCES):
        step = "run as root with CAP_SYS_ADMIN, or as an ordinary user with fusermount3 installed."
        return StokerError(Reason.PermissionDenied, text, place=mountpoint, next_step=step)
    return StokerError(Reason.FuseUnavailable, text, place=mountpoint, next_step="run `stoker doctor`.")


def _mount_as_user(mountpoint: str, name: str) -> int:
    """Let the set-uid fusermount3 mount; it sends the descriptor over a socket (libfuse's mount protocol)."""
    program = shutil.which("fusermount3")
    if program is None:
        step = "install it (apt-get install fuse3), or run as root."
        raise StokerError(Reason.FuseUnavailable, "fusermount3 is not installed", next_step=step)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    escaped = name.replace("\\", "\\\\").replace(",", "\\,")
    options = f"ro,nosuid,nodev,fsname={escaped},subtype=stoker,default_permissions,max_read={MAX_READ}"
    with ours, theirs:
        done = subprocess.run(
            [program, "-o", options, "--", mountpoint],
            env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
            pass_fds=[theirs.fileno()],
            capture_output=True,
            timeout=30,
            check=False,
        )
        if done.returncode != 0:
            text = f"fusermount3 refused: {done.stderr.decode(errors='replace').strip()}"
            step = "run `stoker doctor`; in a container /dev/fuse and CAP_SYS_ADMIN are needed."
            raise StokerError(Reason.PermissionDenied, text, place=mountpoint, next_step=step)
        _data, fds, _flags, _address = socket.recv_fds(ours, 16, 1)
    os.set_inheritable(fds[0], False)
    return fds[0]


def _answer_init(fd: int, *, want_passthrough: bool) -> bool:
    """Wait for the kernel's INIT, answer it, and say whether passthrough was agreed."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if not poll.poll(_INIT_TIMEOUT_MS):
        raise StokerError(Reason.FuseUnavailable, "the kernel sent no INIT", next_step="run `stoker doctor`.")
    request: InitRequest = decode_init(os.read(fd, _INIT_BUFFER))
    passthrough = want_passthrough and request.passthrough
    os.write(fd, encode_init(request, passthrough=passthrough))
    return passthrough


def clone(fd: int) -> int:
    """Another descriptor of the same connection, with a queue of its own: an answer must go to the clone that asked."""
    copy = open_device()
    try:
        fcntl.ioctl(copy, _CLONE, struct.pack("<I", fd))
    except OSError as error:
        os.close(copy)
        text = f"the kernel cannot clone a FUSE connection ({os.strerror(error.errno or 0)})"
        raise StokerError(Reason.FuseUnavailable, text, next_step="run `stoker doctor`.") from error
    return copy


def open_backing(fd: int, file: int) -> int:
    """Register `file` as a backing file of the connection: its id. Needs CAP_SYS_ADMIN. Raises OSError."""
    # Into a mutable buffer: only then ioctl() gives the call's own value, which is the id, and not the buffer.
    backing: int = fcntl.ioctl(fd, _BACKING_OPEN, bytearray(_BACKING_MAP.pack(file, 0, 0)))
    return backing


def close_backing(fd: int, backing: int) -> None:
    """Forget a backing id; one that is gone already is fine (a replayed RELEASE)."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(fd, _BACKING_CLOSE, struct.pack("<I", backing))


def unmount(mountpoint: str, *, lazy: bool = False) -> None:
    """Take the mount away. Raises StokerError: MountBusy (unless lazy), NotMounted, PermissionDenied."""
    if os.geteuid() == 0:
        flags = _UMOUNT_NOFOLLOW | (_MNT_DETACH if lazy else 0)
        if _libc.umount2(os.fsencode(mountpoint), flags) != 0:
            raise _unmount_error(mountpoint, ctypes.get_errno())
        return
    program = shutil.which("fusermount3") or "fusermount3"
    arguments = [program, "-u", *(["-z"] if lazy else []), "--", mountpoint]
    done = subprocess.run(arguments, capture_output=True, timeout=30, check=False)
    if done.returncode != 0:
        text = done.stderr.decode(errors="replace")
        code = errno.EBUSY if "busy" in text else errno.EINVAL if "not found" in text else errno.EPERM
        raise _unmount_error(mountpoint, code)


def _unmount_error(mountpoint: str, code: int) -> StokerError:
    if code == errno.EBUSY:
        step = f"end what uses it (fuser -vm {mountpoint}), or: stoker unmount --force {mountpoint}"
        return StokerError(Reason.MountBusy, "a process still uses the mount", place=mountpoint, next_step=step)
    if code in (errno.EINVAL, errno.ENOENT):
        step = "see what is mounted: stoker status"
        return StokerError(Reason.NotMounted, "nothing is mounted there", place=mountpoint, next_step=step)
    text = f"the kernel refused to unmount ({os.strerror(code)})"
    return StokerError(Reason.PermissionDenied, text, place=mountpoint, next_step="run as the user who mounted it.")
