"""The doctor's checks of the cache's disk. They make nothing: a folder that is not there is judged by its parent."""

from __future__ import annotations

import os
from collections.abc import Iterator

from stoker.api.human import size
from stoker.api.quantity import Quantity
from stoker.cli.checks import Check, State
from stoker.node.mountinfo import MountEntry, mounts
from stoker.node.settings import Settings

_SLOW = ("nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "overlay", "tmpfs", "ramfs")
_INODES_WANTED = 100_000
_ROOM_WANTED = 1 << 30  # bytes


def disk_checks(settings: Settings) -> Iterator[Check]:
    """File system, room and rights of the cache folder."""
    folder = _nearest(settings.cache_dir)
    yield rights(settings.cache_dir, folder)
    yield file_system(_file_system(folder))
    facts = os.statvfs(folder)
    yield _room(settings, facts)
    yield inodes(facts.f_favail, facts.f_files)


def rights(cache_dir: str, folder: str) -> Check:
    """Whether the cache folder may be made or used."""
    if os.access(folder, os.W_OK | os.X_OK) and os.path.isdir(folder):
        return Check("cache folder", State.OK, cache_dir)
    step = "set STOKER_CACHE_DIR to a folder that you may write."
    return Check("cache folder", State.FAIL, f"{cache_dir} may not be written", "the node cannot start", step)


def file_system(entry: MountEntry | None) -> Check:
    """Kinds of file system that are no local disk."""
    name = entry.fstype if entry else "unknown"
    if name not in _SLOW and not name.startswith("fuse"):
        return Check("cache disk", State.OK, name)
    cost = {
        "tmpfs": "the cache is kept in memory and lost at a reboot",
        "ramfs": "the cache is kept in memory and lost at a reboot",
        "overlay": "each page passes one more layer, and the cache is lost with the container",
    }.get(name, "the cache is behind a network, so a cached read is not faster than the store")
    return Check("cache disk", State.WARN, name, cost, "put STOKER_CACHE_DIR on a local disk (ext4 or xfs).")


def _room(settings: Settings, facts: os.statvfs_result) -> Check:
    free = facts.f_bavail * facts.f_frsize
    return room(free, int(Quantity.parse(settings.cache_quota)), int(Quantity.parse(settings.reserve_free)))


def room(free: int, quota: int, reserve: int) -> Check:
    """Bytes that the cache may still take: a negative quota leaves that much of the disk free."""
    left = max(0, min(free - max(-quota, reserve), quota if quota > 0 else free))
    kept = "" if quota > 0 else f" (STOKER_CACHE_QUOTA={size(quota)} leaves {size(-quota)} free)"
    found = f"{size(left)} of {size(free)} free{kept}"
    if left >= _ROOM_WANTED:
        return Check("cache room", State.OK, found)
    cost = "little or nothing is kept: reads go to the store again and again"
    return Check("cache room", State.WARN, found, cost, "free some, or lower what STOKER_CACHE_QUOTA leaves free.")


def inodes(free: int, total: int) -> Check:
    """One file of the cache for each object; file systems without a fixed number say 0 in total."""
    if total == 0:
        return Check("cache files", State.OK, "no fixed number")
    if free >= _INODES_WANTED:
        return Check("cache files", State.OK, f"{free:,} free")
    cost = "objects beyond that are not kept"
    return Check("cache files", State.WARN, f"{free:,} free", cost, "use a file system with more inodes (mkfs -N).")


def _nearest(path: str) -> str:
    """The folder itself, or the closest one above it that exists."""
    path = os.path.realpath(path)
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def _file_system(folder: str) -> MountEntry | None:
    """The mount that a folder lies in; of several at one place the last one is on top."""
    inside = [entry for entry in mounts() if os.path.commonpath([entry.mountpoint, folder]) == entry.mountpoint]
    return max(reversed(inside), key=lambda entry: len(entry.mountpoint), default=None)
