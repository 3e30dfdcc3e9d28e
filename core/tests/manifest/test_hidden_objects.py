"""The table of objects that the tree does not show: complete, in order, and safe whatever the file holds."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stoker.api.errors import StokerError
from stoker.manifest.build import ManifestBuilder
from stoker.manifest.format import HEADER_BYTES, HIDDEN, HIDDEN_BYTES, Header
from stoker.manifest.manifest import Manifest
from stoker.manifest.verify import verify
from stoker.sources.base import SourceSpec

KEYS = (b"a", b"a/b", b"x//y", b"../up", b"dir/", b"nul\0\0x", b"nul\0", b"n" * 300)
HIDDEN_KEYS = (b"../up", b"a", b"dir/", b"n" * 300, b"nul\0", b"nul\0\0x", b"x//y")


def rows(manifest: Manifest) -> list[bytes]:
    return [row.key for row in manifest.hidden_objects.since(b"")]


def test_it_has_hidden_keys_and_markers_in_order(make: Any) -> None:
    manifest = make.keys(*KEYS)
    assert rows(manifest) == list(HIDDEN_KEYS)
    for number, key in enumerate(HIDDEN_KEYS):
        assert manifest.hidden_objects.find(key) == number
        version = manifest.object(manifest.hidden_inode(number)).version
        assert (version.key, version.size, version.etag, version.mtime_ns) == (b"data/" + key, 7, "e", 5)
    assert manifest.hidden_objects.find(b"a/b") is None, "the tree shows it"


def test_many_of_them_are_sorted_outside_memory(make: Any) -> None:
    keys = [b"d//%06d" % number for number in range(20_000)]
    manifest = make.keys(*reversed(keys), run_bytes=1 << 16)
    assert rows(manifest) == keys
    assert manifest.hidden == {"EmptyComponent": 20_000}


def test_a_listing_that_was_begun_anew_leaves_nothing(make: Any, tmp_path: Path) -> None:
    source = make.source()
    with ManifestBuilder([source], str(tmp_path)) as builder:
        builder.add(0, [make.entry(b"data/old//"), make.entry(b"data/olddir/")])
        builder.restart(0, source)
        builder.add(0, [make.entry(b"data/new//")])
        path = builder.finish().path
    assert rows(make.open(path)) == [b"new//"]


def test_an_archived_one_is_known_as_such(make: Any) -> None:
    entries = [make.entry(b"data/x//", archived=True), make.entry(b"data/d/", archived=True), make.entry(b"data/y//")]
    manifest = make.of((make.source(), entries))
    assert [manifest.archived(manifest.hidden_inode(number)) for number in range(3)] == [True, True, False]


def test_no_directory_leads_to_one(make: Any) -> None:
    manifest = make.keys(*KEYS)
    with pytest.raises(StokerError, match="ManifestCorrupt"):
        manifest.node(manifest.hidden_inode(0))
    with pytest.raises(StokerError, match="ManifestCorrupt"):
        manifest.object(manifest.hidden_inode(len(HIDDEN_KEYS)))


SPEC = SourceSpec("data", "s3://bucket/data/", endpoint="http://store")


def test_a_good_table_passes(make: Any) -> None:
    verify(make.summary((make.source(), [make.entry(b"data/" + key) for key in KEYS])).path, [SPEC])


def changed(good: Path, field: int, value: int, row: int = 1) -> Path:
    """Another manifest whose header is right about a table that is wrong."""
    data = bytearray(good.read_bytes())
    header = Header.unpack(bytes(data[:HEADER_BYTES]), "")
    at = header.hidden_at + row * HIDDEN_BYTES
    fields = list(HIDDEN.unpack_from(data, at))
    fields[field] = value
    HIDDEN.pack_into(data, at, *fields)
    values = {name: getattr(header, name) for name in Header.__slots__}
    right = Header(**{**values, "digest": hashlib.sha256(data[HEADER_BYTES:]).digest()})
    path = good.with_name("changed.manifest")
    path.write_bytes(right.pack() + data[HEADER_BYTES:])
    return path


WRONG = [(2, 0), (2, 1 << 63), (3, 0), (3, 0xFFFF), (4, 0xFFFF), (5, 9), (6, 1), (6, 0x80), (6, 4), (7, 1)]


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_wrong_fields_are_refused_and_never_read_out_of_bounds(make: Any, field: int, value: int) -> None:
    path = changed(Path(make.summary((make.source(), [make.entry(b"data/" + key) for key in KEYS])).path), field, value)
    with pytest.raises(StokerError, match="ManifestCorrupt"):
        verify(str(path), [SPEC])
    manifest = make.open(str(path))
    for number in range(len(HIDDEN_KEYS)):
        with contextlib.suppress(StokerError):
            manifest.object(manifest.hidden_inode(number))


def test_one_outside_of_what_its_source_includes_is_refused(make: Any) -> None:
    """What a hostile manifest could make a node read with the owner's rights."""
    path = make.summary((make.source(), [make.entry(b"data/x//secret"), make.entry(b"data/a.tar")])).path
    verify(path, [SPEC])
    with pytest.raises(StokerError, match=r"ManifestOutsideSource.*secret"):
        verify(path, [replace(SPEC, include=("*.tar",))])
