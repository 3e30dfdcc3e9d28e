"""Manifests of a few keys, built the way the index job does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.manifest.build import ManifestBuilder, ManifestSummary
from stoker.manifest.format import ManifestSource
from stoker.manifest.manifest import Manifest
from stoker.sources.base import ObjectEntry

PREFIX = b"data/"
Listing = tuple[ManifestSource, list[ObjectEntry]]


class Maker:
    """Builds manifests in one folder and closes them at the end of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._opened: list[Manifest] = []

    def source(self, name: str = "data", path: str = "/", prefix: bytes = PREFIX) -> ManifestSource:
        uri = f"s3://bucket/{prefix.decode()}"
        return ManifestSource(name, uri, path, "s3://store/bucket", prefix, uri)

    def entry(
        self, key: bytes, size: int = 7, etag: str = "e", mtime_ns: int = 5, archived: bool = False
    ) -> ObjectEntry:
        return ObjectEntry(key, size, etag, mtime_ns, archived)

    def summary(self, *listings: Listing, page: int = 1000, run_bytes: int = 1 << 20) -> ManifestSummary:
        """Each source with its entries, which are added in pages of `page`."""
        sources = [listed for listed, _ in listings]
        with ManifestBuilder(sources, str(self.folder), run_bytes=run_bytes) as builder:
            for number, (_, entries) in enumerate(listings):
                for at in range(0, len(entries), page):
                    builder.add(number, entries[at : at + page])
            return builder.finish()

    def of(self, *listings: Listing, page: int = 1000, run_bytes: int = 1 << 20) -> Manifest:
        return self.open(self.summary(*listings, page=page, run_bytes=run_bytes).path)

    def keys(self, *relative: bytes, page: int = 1000, run_bytes: int = 1 << 20) -> Manifest:
        """A manifest of one source with these keys below its prefix, mounted at the root."""
        entries = [self.entry(PREFIX + key) for key in relative]
        return self.of((self.source(), entries), page=page, run_bytes=run_bytes)

    def open(self, path: str) -> Manifest:
        manifest = Manifest.open(path)
        self._opened.append(manifest)
        return manifest

    def close(self) -> None:
        for manifest in self._opened:
            manifest.close()

    def listing(self, manifest: Manifest, path: bytes = b"") -> list[bytes]:
        """The names in a directory, each with a slash behind it when it is one."""
        inode = self.inode(manifest, path)
        return [name + b"/" * is_dir for _, name, is_dir, _, _ in manifest.children(inode)]

    def inode(self, manifest: Manifest, path: bytes) -> int:
        inode: int | None = 1
        for name in path.split(b"/") if path else []:
            assert inode is not None
            inode = manifest.lookup(inode, name)
        assert inode is not None, path
        return inode

    def key(self, manifest: Manifest, path: bytes) -> bytes:
        return manifest.object(self.inode(manifest, path)).version.key


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Maker]:
    maker = Maker(tmp_path)
    yield maker
    maker.close()
