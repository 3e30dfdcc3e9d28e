"""The keys of a generation in the order of S3: plain byte order, whatever is a folder. Reads the manifest as it goes.

A folder of the manifest is sorted by the names in it, and a key of a folder `a` is `a/...`: it comes behind `a-b` and
`a.b`, which the manifest has behind `a`. So a folder waits until its siblings have passed `a/`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

from stoker.manifest.format import ROOT
from stoker.manifest.manifest import Manifest

_SLASH = b"/"
_PASSED = 64  # keys of one common prefix that are passed one by one


class Item(NamedTuple):
    """A key, or with inode 0 a common prefix."""

    key: bytes
    inode: int
    size: int = 0
    mtime_ns: int = 0


class _Folder(NamedTuple):
    """A folder that comes next. `key` ends with a slash."""

    key: bytes
    inode: int


def entries(manifest: Manifest, prefix: bytes, delimiter: bytes, lower: bytes) -> Iterator[Item]:
    """Keys from `lower` on that begin with `prefix`; those with `delimiter` behind it as one common prefix each."""
    fold = len(prefix) if delimiter == _SLASH else None
    at: bytes | None = max(lower, prefix)
    told = b""
    while at is not None:
        passed, following = 0, None
        for item in all_keys(manifest, at, fold):
            if not item.key.startswith(prefix):
                return
            cut = item.key.find(delimiter, len(prefix)) if delimiter else -1
            if cut < 0:
                yield item
                continue
            common = item.key[: cut + len(delimiter)]
            if common != told:
                told = common
                yield Item(common, 0)
            passed += item.inode != 0
            if passed > _PASSED:  # a look-up is cheaper than to go on through all that one prefix stands for
                following = successor(common)
                break
        at = following


def all_keys(manifest: Manifest, lower: bytes, fold: int | None = None) -> Iterator[Item]:
    """Those of files and of hidden objects, from `lower` on. `fold`: see `keys`."""
    table = manifest.hidden_objects
    if not table.count:
        return keys(manifest, lower, fold)
    hidden = (Item(row.key, manifest.hidden_inode(row.number), row.size, row.mtime_ns) for row in table.since(lower))
    return heapq.merge(keys(manifest, lower, fold), hidden)


def keys(manifest: Manifest, lower: bytes, fold: int | None = None) -> Iterator[Item]:
    """Those of files, from `lower` on. A folder whose key is longer than `fold` is one item, with inode 0."""
    return _below(manifest, _Folder(b"", ROOT), lower, fold)


def _below(manifest: Manifest, folder: _Folder, lower: bytes, fold: int | None = None) -> Iterator[Item]:
    open_folders = [_folder(manifest, folder, lower)]
    while open_folders:
        step = next(open_folders[-1], None)
        if step is None:
            open_folders.pop()
        elif not isinstance(step, _Folder):
            yield step
        elif fold is None or len(step.key) <= fold:
            open_folders.append(_folder(manifest, step, lower))
        elif _has_keys(manifest, step, lower):
            yield Item(step.key, 0)


def _has_keys(manifest: Manifest, folder: _Folder, lower: bytes) -> bool:
    """Whether some file lies below a folder, from `lower` on."""
    inode = folder.inode
    while not lower.startswith(folder.key):
        node = manifest.node(inode)
        if not node.is_dir:
            return True
        if not node.child_count:
            break
        inode = node.child_first
    return next(_below(manifest, folder, lower), None) is not None


def successor(prefix: bytes) -> bytes | None:
    """The least key behind all keys that begin with `prefix`; None when there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def find(manifest: Manifest, key: bytes) -> int | None:
    """The inode of the object of a key, or the number that stands for a hidden object's."""
    inode = _file(manifest, key)
    if inode is not None:
        return inode
    hidden = manifest.hidden_objects.find(key)
    return None if hidden is None else manifest.hidden_inode(hidden)


def _file(manifest: Manifest, key: bytes) -> int | None:
    inode = ROOT
    for name in key.split(_SLASH):
        found = manifest.lookup(inode, name) if name else None
        if found is None:
            return None
        inode = found
    return None if manifest.node(inode).is_dir else inode


def _folder(manifest: Manifest, folder: _Folder, lower: bytes) -> Iterator[Item | _Folder]:
    """What is in a folder, in the order of keys, from `lower` on. A subfolder may hold keys before `lower`."""
    prefix, inode = folder
    rest = lower[len(prefix) :] if lower.startswith(prefix) else b""
    component, slash, _ = rest.partition(_SLASH)
    waiting: list[_Folder] = []
    for name in (*_before_a_slash(component), *([component] if slash else [])):
        found = manifest.lookup(inode, name) if name else None
        if found is not None and manifest.node(found).is_dir:
            heapq.heappush(waiting, _Folder(prefix + name + _SLASH, found))
    begin = manifest.seek(inode, component + slash) if rest else 0
    for child, name, is_dir, size, mtime_ns in manifest.children(inode, begin):
        key = prefix + name + _SLASH if is_dir else prefix + name
        while waiting and waiting[0].key < key:
            yield heapq.heappop(waiting)
        if is_dir:
            heapq.heappush(waiting, _Folder(key, child))
        else:
            yield Item(key, child, size, mtime_ns)
    while waiting:
        yield heapq.heappop(waiting)


def _before_a_slash(component: bytes) -> Iterator[bytes]:
    """Names before `component` whose folder's keys come behind it: `a` of `a-b`, because of `a/`."""
    return (component[:end] for end in range(1, len(component)) if component[end : end + 1] < _SLASH)
