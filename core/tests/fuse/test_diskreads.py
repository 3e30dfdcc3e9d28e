"""What a worker asks a cache disk for before anybody reads it."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from pathlib import Path

import pytest

from rigs.cache import CacheRig, Thing
from stoker.cache.layout import PAGE
from stoker.cache.ledger import Limits
from stoker.fetch.files import File
from stoker.fuse.diskreads import DiskReads
from stoker.sources.base import ObjectVersion

_MOST = 256


def file_of(thing: Thing) -> File:
    version = ObjectVersion(thing.name.encode(), thing.size, f"etag-{thing.name}", 0)
    return File(thing.oid, thing.size, version, 0, archived=False, cacheable=True)


def in_memory(path: str) -> bool:
    """Whether the kernel holds all pages of a file. A read that must not wait would make it fetch them."""
    pages = ctypes.create_string_buffer(-(-os.stat(path).st_size // mmap.PAGESIZE))
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        failed = ctypes.CDLL(None).mincore(ctypes.byref(first), ctypes.c_size_t(len(mapped)), pages)
        del first
    assert not failed
    return all(page & 1 for page in pages.raw)


def let_memory_go(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


async def test_small_files_that_are_looked_up_come_to_memory_until_it_is_seen_that_nobody_reads(tmp_path: Path) -> None:
    rig = CacheRig([str(tmp_path / "cache")], Limits(256 << 20, reserve_free=0), slots=1024)
    things = [Thing(f"image-{number}", 2 * PAGE) for number in range(_MOST + 40)]
    for thing in things:
        await rig.load(thing)
    rig.commit()
    paths = [str(rig.path(thing)) for thing in things]
    for path in paths:
        let_memory_go(path)
    if any(map(in_memory, paths)):
        pytest.skip("this file system keeps everything in memory")

    disk = DiskReads(rig.new_reader(), lambda: None)
    for thing in things:
        disk.expect(file_of(thing))
    deadline = time.monotonic() + 10
    while not all(map(in_memory, paths[:_MOST])):
        assert time.monotonic() < deadline, "what was looked up was not asked from the disk"
    assert not any(map(in_memory, paths[_MOST:])), "a scan that only looks reads the whole disk"

    disk.found(file_of(things[0]), things[0].size)  # one of them is read: the rest is expected to be
    disk.expect(file_of(things[-1]))
    while not in_memory(paths[-1]):
        assert time.monotonic() < deadline, "after a read nothing is expected any more"
    rig.close()
