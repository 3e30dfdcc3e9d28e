"""The FUSE kernel protocol as far as a read-only file system needs it: numbers, layouts, encoders. No I/O.

Source of every layout and number: include/uapi/linux/fuse.h (protocol 7.41). All fields are little endian on the
machines that Stoker runs on (x86-64, arm64).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

RequestKey = tuple[int, int]
"""Session and unique id of a request: the kernel numbers those of each connection on its own."""


class Op(IntEnum):
    """Request codes."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    SETXATTR = 21
    GETXATTR = 22
    LISTXATTR = 23
    REMOVEXATTR = 24
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    FALLOCATE = 43
    READDIRPLUS = 44
    RENAME2 = 45
    TMPFILE = 51


# Requests that would change something: answered EROFS (the mount is read-only as well, so they hardly ever arrive).
CHANGING = frozenset(
    (
        *(Op.SETATTR, Op.SYMLINK, Op.MKNOD, Op.MKDIR, Op.UNLINK, Op.RMDIR, Op.RENAME, Op.LINK, Op.WRITE),
        *(Op.SETXATTR, Op.REMOVEXATTR, Op.CREATE, Op.FALLOCATE, Op.RENAME2, Op.TMPFILE),
    )
)
NO_REPLY = frozenset((Op.FORGET, Op.BATCH_FORGET))

# struct fuse_in_header: len, opcode, unique, nodeid, uid, gid, pid, total_extlen, padding
IN_HEADER = struct.Struct("<IIQQIIIHH")
# struct fuse_out_header: len, error, unique
OUT_HEADER = struct.Struct("<IiQ")
# struct fuse_read_in: fh, offset, size, read_flags, lock_owner, flags, padding
READ_IN = struct.Struct("<QQIIQII")
# struct fuse_open_out: fh, open_flags, backing_id
OPEN_OUT = struct.Struct("<QIi")
# struct fuse_release_in: fh, flags, release_flags, lock_owner
RELEASE_IN = struct.Struct("<QIIQ")
# struct fuse_interrupt_in: unique
INTERRUPT_IN = struct.Struct("<Q")
# struct fuse_getxattr_in / _out: size, padding
GETXATTR = struct.Struct("<II")
# struct fuse_attr: ino size blocks atime mtime ctime, then nsec of each, mode nlink uid gid rdev blksize flags
_ATTR = "QQQQQQIIIIIIIIII"
# struct fuse_attr_out: attr_valid, attr_valid_nsec, dummy, then the attributes
ATTR_OUT = struct.Struct("<QII" + _ATTR)
# struct fuse_entry_out: nodeid, generation, entry_valid, attr_valid, entry_valid_nsec, attr_valid_nsec, then attributes
ENTRY_OUT = struct.Struct("<QQQQII" + _ATTR)
# struct fuse_dirent: ino, off, namelen, type (then the name, padded to 8 bytes)
DIRENT = struct.Struct("<QQII")
# struct fuse_direntplus: an entry, then a dirent
DIRENTPLUS = struct.Struct("<QQQQII" + _ATTR + "QQII")
# struct fuse_kstatfs: blocks bfree bavail files ffree, bsize namelen frsize padding spare[6]
STATFS_OUT = struct.Struct("<QQQQQIIII24x")
# struct fuse_init_in: major minor max_readahead flags flags2
INIT_IN = struct.Struct("<IIIII")
# struct fuse_init_out: major minor max_readahead flags, max_background congestion_threshold, max_write time_gran,
# max_pages map_alignment, flags2 max_stack_depth request_timeout unused[11]
INIT_OUT = struct.Struct("<IIIIHHIIHHIIH22x")

HEADER_SIZE = IN_HEADER.size  # 40 bytes
INTERRUPT_UNIQUE = 1  # bit of an INTERRUPT's own unique id; the rest is that of the request (FUSE_INT_REQ_BIT)
DT_DIR, DT_REG = 4, 8
NAME_MAX = 255
BLOCK = 4096

# A generation never changes, so what the kernel has learnt stays true for the life of the mount; an hour only bounds
# how long an idle kernel keeps it.
TTL_S = 3600

MINOR = 41
MAX_WRITE = 4096  # the smallest the kernel takes; keeps a request below 8 KiB, the size of a landing slot
MAX_READ = 1 << 20
MAX_BACKGROUND = 1024  # below it, concurrent kernel read-ahead of many readers would queue behind a few cold ones

# The kernel's own read-ahead stays at its default: raising it makes a random mmap fault fetch up to 2,465 times what it
# touches (safetensors, Arrow and memmap read so). Depth comes from the prefetcher (docs/design/fetch.md).
MAX_READAHEAD = 128 << 10

ASYNC_READ = 1 << 0
DO_READDIRPLUS = 1 << 13
READDIRPLUS_AUTO = 1 << 14
ASYNC_DIO = 1 << 15
NO_OPEN_SUPPORT = 1 << 17
PARALLEL_DIROPS = 1 << 18
MAX_PAGES = 1 << 22
CACHE_SYMLINKS = 1 << 23
NO_OPENDIR_SUPPORT = 1 << 24
INIT_EXT = 1 << 30
PASSTHROUGH = 1 << 37

_WANTED = (
    ASYNC_READ
    | DO_READDIRPLUS
    | READDIRPLUS_AUTO
    | ASYNC_DIO
    | NO_OPEN_SUPPORT
    | PARALLEL_DIROPS
    | MAX_PAGES
    | CACHE_SYMLINKS
    | NO_OPENDIR_SUPPORT
)

FOPEN_KEEP_CACHE = 1 << 1
FOPEN_PASSTHROUGH = 1 << 7


@dataclass(frozen=True, slots=True)
class Attributes:
    """What every inode of one mount shares: owner and modes."""

    uid: int
    gid: int
    file_mode: int  # with S_IFREG
    dir_mode: int  # with S_IFDIR


@dataclass(frozen=True, slots=True)
class InitRequest:
    """What the kernel offers at the start of a connection."""

    unique: int
    minor: int
    flags: int

    @property
    def passthrough(self) -> bool:
        """Whether this kernel can hand reads of an open file to a backing file (Linux >= 6.9)."""
        return bool(self.flags & PASSTHROUGH)


def decode_init(request: bytes) -> InitRequest:
    """Read an INIT request; fields that an older kernel does not send count as zero."""
    unique = IN_HEADER.unpack_from(request)[2]
    body = request[HEADER_SIZE:].ljust(INIT_IN.size, b"\0")
    _major, minor, _readahead, flags, flags2 = INIT_IN.unpack_from(body)
    if not flags & INIT_EXT:
        flags2 = 0
    return InitRequest(unique, minor, flags | flags2 << 32)


def encode_init(request: InitRequest, *, passthrough: bool) -> bytes:
    """The answer to INIT: what this server uses of what the kernel offered."""
    wanted = _WANTED | INIT_EXT | (PASSTHROUGH if passthrough else 0)
    flags = request.flags & wanted
    low, high = flags & 0xFFFFFFFF, flags >> 32
    body = INIT_OUT.pack(
        *(7, min(request.minor, MINOR), MAX_READAHEAD, low),
        *(MAX_BACKGROUND, MAX_BACKGROUND * 3 // 4, MAX_WRITE, 1),
        *(MAX_READ // BLOCK, 0, high, 1 if passthrough else 0, 0),
    )
    return OUT_HEADER.pack(OUT_HEADER.size + len(body), 0, request.unique) + body


def encode_error(unique: int, error: int) -> bytes:
    """An answer that is only an errno (positive number)."""
    return OUT_HEADER.pack(OUT_HEADER.size, -error, unique)
