"""A manifest is untrusted: whatever its bytes, reading it gives answers or ManifestCorrupt, never anything else."""

from __future__ import annotations

import contextlib
import itertools
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.api.errors import StokerError
from stoker.api.globs import Globs
from stoker.api.reasons import Reason
from stoker.manifest.build import ManifestBuilder
from stoker.manifest.format import HEADER_BYTES, RECORD, RECORD_BYTES, Header, ManifestSource
from stoker.manifest.manifest import Manifest
from stoker.manifest.verify import verify
from stoker.sources.base import ObjectEntry, SourceSpec

SPEC = SourceSpec("data", "s3://bucket/data/", endpoint="http://h")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("good")
    listed = ManifestSource("data", SPEC.uri, "/", "s3://h/bucket", b"data/", SPEC.uri)
    keys = [b"a", b"b/c", b"b/d/e", b"b/d/f", b"g//h", b"i/"]
    with ManifestBuilder([listed], str(folder)) as builder:
        builder.add(0, [ObjectEntry(b"data/" + key, 9, "etag", 1) for key in keys])
        return Path(builder.finish().path).read_bytes()


def only_corrupt(action: Callable[[], object]) -> None:
    """`action` gives an answer or raises ManifestCorrupt."""
    try:
        action()
    except StokerError as error:
        if error.reason is not Reason.ManifestCorrupt:
            raise


def read_everything(path: Path) -> None:
    """All that fuse, fetch and the command line do."""
    try:
        manifest = Manifest.open(str(path))
    except StokerError as error:
        if error.reason is not Reason.ManifestCorrupt:
            raise
        return
    with contextlib.closing(manifest):
        for inode in range(manifest.header.records + 3):
            only_corrupt(lambda inode=inode: list(manifest.children(inode)))
            only_corrupt(lambda inode=inode: manifest.lookup(inode, b"d"))
            for action in (manifest.node, manifest.path, manifest.object, manifest.name):
                only_corrupt(lambda action=action, inode=inode: action(inode))
        # Overlapping directories can make a walk long, so it is cut.
        only_corrupt(lambda: list(itertools.islice(manifest.files_matching(Globs.compile(["**"])), 100)))


def test_the_good_one_passes(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(good)
    verify(str(path), [SPEC])


def test_every_truncation_is_refused_at_open(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m"
    for length in [0, 1, 100, *range(HEADER_BYTES - 2, len(good))]:
        path.write_bytes(good[:length])
        with pytest.raises(StokerError, match="ManifestCorrupt"):
            Manifest.open(str(path))
    path.write_bytes(good + b"x")
    with pytest.raises(StokerError, match="ManifestCorrupt"):
        Manifest.open(str(path))


def test_every_changed_byte_is_found_by_the_full_check(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m"
    for at in [*range(120), *range(HEADER_BYTES, len(good))]:
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x41]) + good[at + 1 :])
        with pytest.raises(StokerError, match="ManifestCorrupt"):
            verify(str(path), [SPEC])


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 8))
def test_flipped_bytes_never_read_out_of_bounds(good: bytes, rng: random.Random, flips: int) -> None:
    data = bytearray(good)
    for _ in range(flips):
        data[rng.randrange(HEADER_BYTES, len(data))] = rng.choice([0, 1, 2, 0x2F, 0x7F, 0xFF, rng.randrange(256)])
    check_bytes(bytes(data))


_FIELD = st.sampled_from(range(12))
_VALUE = st.sampled_from([0, 1, 2, 3, 5, 7, 255, 0xFFFF, 1 << 32, (1 << 64) - 1])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), _FIELD, _VALUE), min_size=1, max_size=4))
def test_wrong_fields_of_records_never_read_out_of_bounds(good: bytes, edits: list[tuple[int, int, int]]) -> None:
    data = bytearray(good)
    records = Header.unpack(bytes(data[:HEADER_BYTES]), "").records
    widths = [64, 63, 64, 8, 8, 16, 16, 16, 64, 64, 64, 64]
    for record, field, value in edits:
        at = HEADER_BYTES + record % records * RECORD_BYTES
        fields = list(RECORD.unpack_from(data, at))
        fields[field] = value & ((1 << widths[field]) - 1)
        RECORD.pack_into(data, at, *fields)
    check_bytes(bytes(data))


@pytest.mark.parametrize(
    "catalogue", [b"[]", b"{", b"\xff", b'{"sources":1,"hidden":{},"samples":{}}', b"[" * 100_000, b'{"sources":[]}']
)
def test_a_list_of_sources_that_is_none_is_refused(good: bytes, tmp_path: Path, catalogue: bytes) -> None:
    header = Header.unpack(good[:HEADER_BYTES], "")
    path = tmp_path / "m"
    fields = {name: getattr(header, name) for name in Header.__slots__}
    changed = Header(**{**fields, "catalogue_length": len(catalogue)})
    path.write_bytes(changed.pack() + good[HEADER_BYTES : header.catalogue_at] + catalogue)
    with pytest.raises(StokerError, match="ManifestCorrupt"):
        Manifest.open(str(path))


@pytest.mark.parametrize(
    "counts", [{"records": 0}, {"files": 0}, {"records": 1 << 63}, {"names_length": (1 << 64) - 1}]
)
def test_counts_that_do_not_add_up_are_refused(good: bytes, tmp_path: Path, counts: dict[str, int]) -> None:
    header = Header.unpack(good[:HEADER_BYTES], "")
    fields = {name: getattr(header, name) for name in Header.__slots__}
    path = tmp_path / "m"
    path.write_bytes(Header(**{**fields, **counts}).pack() + good[HEADER_BYTES:])
    with pytest.raises(StokerError, match="ManifestCorrupt"):
        Manifest.open(str(path))


def check_bytes(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m"
        path.write_bytes(data)
        read_everything(path)


def test_another_version_is_refused_with_its_number(good: bytes, tmp_path: Path, make: Any) -> None:
    path = tmp_path / "m"
    path.write_bytes(good[:8] + b"\x03" + good[9:])
    with pytest.raises(StokerError, match="version 3"):
        make.open(str(path))
