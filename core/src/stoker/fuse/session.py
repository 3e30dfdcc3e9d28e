"""One FUSE connection as a worker sees it: its clone, its tree, its objects, its open files."""

from __future__ import annotations

import os
import stat
from functools import partial
from typing import Any

from stoker.fetch.files import File, file_of
from stoker.fetch.session import SessionSpec
from stoker.fuse import kernel
from stoker.fuse.opens import OpenTable
from stoker.fuse.pace import Pace
from stoker.fuse.protocol import Attributes
from stoker.fuse.tree import Tree
from stoker.manifest.manifest import Manifest

_GRACE_S = 15.0  # a fetcher ends every request by its own deadline; this is for one that does not
_REMEMBERED_OBJECTS = 1 << 16


class Session:
    """One session in one worker. `slot` is its small number in requests and counters, `fd` this worker's clone.

    It duplicates what it needs of the descriptors.
    """

    def __init__(self, spec: SessionSpec, fds: dict[str, int], index: int, made: int = 0) -> None:
        self.spec = spec
        self.made = made
        self.slot = spec.slot
        self.fd = os.dup(fds[f"clone.{index}"])
        self.opens = OpenTable(os.dup(fds["opens"]), partial(kernel.close_backing, self.fd))
        self.manifest = Manifest.open(spec.manifest_path)
        self.pace = Pace()
        mount = spec.mount
        self.deadline_s = mount.deadline_s + _GRACE_S
        attributes = Attributes(mount.uid, mount.gid, stat.S_IFREG | mount.file_mode, stat.S_IFDIR | mount.dir_mode)
        self.tree = Tree(self.manifest, attributes)
        self._objects: dict[int, File] = {}

    @classmethod
    def from_entry(cls, data: dict[str, Any], fds: dict[str, int], index: int) -> Session:
        """From what the keeper sends: the session's spec and this worker's descriptors."""
        return cls(SessionSpec.from_json(data["spec"]), fds, index, data["made"])

    def object(self, inode: int) -> File:
        """The object behind a file, remembered."""
        found = self._objects.get(inode)
        if found is None:
            if len(self._objects) >= _REMEMBERED_OBJECTS:
                self._objects.clear()
            found = self._objects[inode] = file_of(self.manifest, inode, self.spec.mount.policy)
        return found

    def uri(self, inode: int) -> str:
        """The origin's address of a file, as `user.stoker.uri` shows it."""
        ref = self.manifest.object(inode)
        source = self.manifest.sources[ref.source]
        return f"{source.origin}/{ref.version.key.decode(errors='surrogateescape')}"

    def close(self) -> None:
        self.opens.close()
        self.manifest.close()
        os.close(self.fd)
