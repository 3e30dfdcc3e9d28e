"""Walking a manifest depth first, in the order of paths component by component. Memory: one listing batch per depth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from stoker.manifest.format import ROOT

Step = tuple[int, bytes, bool, int, int]
"""inode, path in the mount, is a directory, size, mtime_ns"""


class Listing(Protocol):
    """What of a manifest is needed."""

    def children(self, inode: int, offset: int = 0) -> Iterator[Step]: ...


def walk(manifest: Listing) -> Iterator[Step]:
    """All but the root, each directory before what is in it."""
    open_folders = [(b"", manifest.children(ROOT))]
    while open_folders:
        prefix, children = open_folders[-1]
        for inode, name, is_dir, size, mtime_ns in children:
            yield inode, prefix + name, is_dir, size, mtime_ns
            if is_dir:
                open_folders.append((prefix + name + b"/", manifest.children(inode)))
                break
        else:
            open_folders.pop()
