"""How long a manifest takes to build, open, list and search, and how much memory: `python bench/manifest.py [KEYS]`.

Prints one line of JSON, the figures of docs/design/manifest.md. The peak memory is that of building.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator

from stoker.manifest.build import ManifestBuilder
from stoker.manifest.format import ManifestSource
from stoker.manifest.manifest import Manifest
from stoker.manifest.verify import verify
from stoker.sources.base import ObjectEntry, SourceSpec

_URI = "s3://bucket/data/"
_PAGE = 1000
_SAMPLES = 20_000


def pages(keys: int) -> Iterator[list[ObjectEntry]]:
    """`keys` objects in 1000 folders, pages in an order that no sorting profits from."""
    starts = list(range(0, keys, _PAGE))
    random.Random(1).shuffle(starts)
    for start in starts:
        yield [
            ObjectEntry(b"data/train/%04d/img-%08d.jpg" % (n % 1000, n), 65_536, f"{n:032x}", 1_700_000_000_000_000_000)
            for n in range(start, min(start + _PAGE, keys))
        ]


def build(keys: int, folder: str) -> dict[str, float | str]:
    source = ManifestSource("s", _URI, "/", "s3://host/bucket", b"data/", _URI)
    begun = time.perf_counter()
    with ManifestBuilder([source], folder) as builder:
        for page in pages(keys):
            builder.add(0, page)
        summary = builder.finish()
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = os.path.getsize(summary.path)
    return {"path": summary.path, "build_s": round(seconds, 1), "peak_mib": peak >> 10, "file_mib": size >> 20}


def use(path: str) -> dict[str, float]:
    begun = time.perf_counter()
    manifest = Manifest.open(path)
    opened = time.perf_counter() - begun
    with contextlib.closing(manifest):
        folders = [inode for inode, _, is_dir, _, _ in manifest.children(manifest.lookup(1, b"train") or 0) if is_dir]
        begun = time.perf_counter()
        listed = sum(1 for folder in folders for _ in manifest.children(folder))
        listing = time.perf_counter() - begun
        files = random.Random(2).choices(range(folders[-1] + 1, folders[-1] + listed), k=_SAMPLES)
        names = [(manifest.record(inode).parent, manifest.name(inode)) for inode in files]
        begun = time.perf_counter()
        for parent, name in names:
            manifest.lookup(parent, name)
        lookups = time.perf_counter() - begun
        begun = time.perf_counter()
        for inode in files:
            manifest.object(inode)
        objects = time.perf_counter() - begun
    return {
        "open_ms": round(opened * 1e3, 2),
        "listed_per_s": round(listed / listing),
        "lookup_us": round(lookups / _SAMPLES * 1e6, 1),
        "object_us": round(objects / _SAMPLES * 1e6, 1),
    }


def main() -> None:
    keys = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        built = build(keys, folder)
        path = str(built.pop("path"))
        begun = time.perf_counter()
        verify(path, [SourceSpec("s", _URI, endpoint="http://host")])
        checked = round(time.perf_counter() - begun, 1)
        print(json.dumps({"keys": keys, **built, **use(path), "verify_s": checked}))


if __name__ == "__main__":
    main()
