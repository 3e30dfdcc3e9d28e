"""What metadata requests are answered, straight from the manifest: look-ups, attributes, listings, statfs.

Pure: a manifest and mount options in, bytes of the FUSE protocol out. Inode numbers are manifest record numbers + 1, so
there is no state to keep and nothing to forget.
"""

from __future__ import annotations

import errno

from stoker.fuse.protocol import (
    ATTR_OUT,
    BLOCK,
    DIRENT,
    DIRENTPLUS,
    DT_DIR,
    DT_REG,
    ENTRY_OUT,
    NAME_MAX,
    STATFS_OUT,
    TTL_S,
    Attributes,
)
from stoker.manifest.format import ROOT
from stoker.manifest.manifest import Manifest

_NS = 1_000_000_000
_PAD = [b"\0" * (-length % 8) for length in range(NAME_MAX + 1)]
_NEGATIVE = ENTRY_OUT.pack(0, 0, TTL_S, 0, 0, 0, *[0] * 16)
_NO_ENTRY = ENTRY_OUT.pack(0, 0, 0, 0, 0, 0, *[0] * 16)  # `.` and `..` are not to be looked up
_DOTS = 2
_TYPE_BITS = 12  # st_mode >> 12 is the d_type


class Tree:
    """The metadata of one generation as one mount shows it."""

    def __init__(self, manifest: Manifest, attributes: Attributes) -> None:
        self._manifest = manifest
        self._attributes = attributes

    def lookup(self, parent: int, name: bytes) -> bytes | int:
        """The entry of `name`, a negative entry (a generation never changes, so it may be cached), or an errno."""
        if len(name) > NAME_MAX:
            return errno.ENAMETOOLONG
        inode = self._manifest.lookup(parent, name)
        if inode is None:
            return _NEGATIVE
        return ENTRY_OUT.pack(inode, 0, TTL_S, TTL_S, 0, 0, *self._stat(inode))

    def getattr(self, inode: int) -> bytes:
        return ATTR_OUT.pack(TTL_S, 0, 0, *self._stat(inode))

    def readdir(self, inode: int, offset: int, size: int) -> bytes:
        """Entries that fit into `size` bytes, from position `offset` on; `.` and `..` come before the children."""
        parts: list[bytes] = []
        room, position = size, offset
        for dot in self._dots(inode)[offset:]:
            parts.append(dot)
            room -= len(dot)
            position += 1
        for child, name, is_dir, _size, _mtime in self._manifest.children(inode, position - _DOTS):
            length = len(name)
            pad = _PAD[length]
            room -= DIRENT.size + length + len(pad)
            if room < 0:
                break
            position += 1
            parts += (DIRENT.pack(child, position, length, DT_DIR if is_dir else DT_REG), name, pad)
        return b"".join(parts)

    def readdirplus(self, inode: int, offset: int, size: int) -> bytes:
        """The same with attributes, which saves one LOOKUP for each entry that is used next."""
        shared = self._attributes
        uid, gid, file_mode, dir_mode = shared.uid, shared.gid, shared.file_mode, shared.dir_mode
        pack, fixed = DIRENTPLUS.pack, DIRENTPLUS.size
        parts: list[bytes] = []
        room, position = size, offset
        for dot in self._dots(inode)[offset:]:
            parts += (_NO_ENTRY, dot)
            room -= len(_NO_ENTRY) + len(dot)
            position += 1
        for child, name, is_dir, length, mtime_ns in self._manifest.children(inode, position - _DOTS):
            pad = _PAD[len(name)]
            room -= fixed + len(name) + len(pad)
            if room < 0:
                break
            position += 1
            seconds, nanoseconds = divmod(mtime_ns, _NS)
            mode = dir_mode if is_dir else file_mode
            parts += (
                pack(
                    *(child, 0, TTL_S, TTL_S, 0, 0),
                    *(child, length, (length + 511) >> 9, seconds, seconds, seconds),
                    *(nanoseconds, nanoseconds, nanoseconds, mode, 1, uid, gid, 0, BLOCK, 0),
                    *(child, position, len(name), mode >> _TYPE_BITS),
                ),
                name,
                pad,
            )
        return b"".join(parts)

    def _dots(self, inode: int) -> tuple[bytes, bytes]:
        parent = self._manifest.record(inode).parent or ROOT
        return (
            DIRENT.pack(inode, 1, 1, DT_DIR) + b"." + _PAD[1],
            DIRENT.pack(parent, 2, 2, DT_DIR) + b".." + _PAD[2],
        )

    def statfs(self) -> bytes:
        """The generation's size; nothing is free on a read-only mount."""
        blocks = (self._manifest.bytes + BLOCK - 1) // BLOCK
        files = self._manifest.files + self._manifest.directories
        return STATFS_OUT.pack(blocks, 0, 0, files, 0, BLOCK, NAME_MAX, BLOCK, 0)

    def _stat(self, inode: int) -> tuple[int, ...]:
        node = self._manifest.node(inode)
        shared = self._attributes
        seconds, nanoseconds = divmod(node.mtime_ns, _NS)
        size = 0 if node.is_dir else node.size
        mode = shared.dir_mode if node.is_dir else shared.file_mode
        return (
            *(inode, size, (size + 511) >> 9, seconds, seconds, seconds, nanoseconds, nanoseconds, nanoseconds),
            *(mode, 1, shared.uid, shared.gid, 0, BLOCK, 0),
        )
