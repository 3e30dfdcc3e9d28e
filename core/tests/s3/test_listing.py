"""The keys of a bucket are those of its sources, in the order of S3, whatever a folder can show of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from unittest import mock
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from stoker.manifest.build import ManifestBuilder
from stoker.manifest.format import ManifestSource
from stoker.manifest.manifest import Manifest
from stoker.s3 import listing
from stoker.s3.errors import S3Error
from stoker.s3.listing import entries, find, successor
from stoker.s3.lists import Listing, list_objects
from stoker.s3.request import S3Request
from stoker.sources.base import ObjectEntry

KEYS = st.lists(st.text("ab-./\0", min_size=1, max_size=7).map(str.encode), max_size=40, unique=True)
PARTS = st.text("ab-./", max_size=4).map(str.encode)
S3 = "{http://s3.amazonaws.com/doc/2006-03-01/}"


@contextmanager
def manifest_of(*sources: tuple[str, list[bytes]]) -> Iterator[Manifest]:
    """One source for each path, with keys below a prefix of its own. The size of an object is its place in the list."""
    listed = [
        ManifestSource(f"s{n}", f"s3://bucket/p{n}/", path, f"s3://store/b{n}", b"p%d/" % n, f"s3://bucket/p{n}/")
        for n, (path, _) in enumerate(sources)
    ]
    with tempfile.TemporaryDirectory() as folder:
        with ManifestBuilder(listed, folder, run_bytes=4096) as builder:
            for number, (_, keys) in enumerate(sources):
                found = [ObjectEntry(b"p%d/" % number + key, n, f"e{n}", n) for n, key in enumerate(keys)]
                builder.add(number, found)
            path = builder.finish().path
        with closing(Manifest.open(path)) as manifest:
            yield manifest


def expected(keys: list[bytes], prefix: bytes, delimiter: bytes, lower: bytes) -> list[bytes]:
    """What S3 lists."""
    found = []
    for key in sorted(keys):
        if key.startswith(prefix) and key >= lower:
            cut = key.find(delimiter, len(prefix)) if delimiter else -1
            found.append(key if cut < 0 else key[: cut + len(delimiter)])
    return list(dict.fromkeys(found))


@settings(max_examples=300, deadline=None)
@given(KEYS, PARTS, st.sampled_from([b"", b"/", b"-", b"a/"]), PARTS, st.sampled_from([0, 1, 64]))
def test_a_listing_is_that_of_the_source(
    keys: list[bytes], prefix: bytes, delimiter: bytes, lower: bytes, passed: int
) -> None:
    with manifest_of(("/", keys)) as manifest, mock.patch.object(listing, "_PASSED", passed):
        found = list(entries(manifest, prefix, delimiter, lower))
        assert [item.key for item in found] == expected(keys, prefix, delimiter, lower)
        for item in found:
            if item.inode:
                assert (item.size, manifest.etag(item.inode)) == (keys.index(item.key), f"e{keys.index(item.key)}")


@settings(max_examples=200, deadline=None)
@given(KEYS, PARTS)
def test_every_key_is_found_and_no_other(keys: list[bytes], other: bytes) -> None:
    with manifest_of(("/", keys)) as manifest:
        for key in keys:
            inode = find(manifest, key)
            assert inode is not None
            assert manifest.object(inode).version.key == b"p0/" + key
            assert manifest.object(inode).version.size == keys.index(key)
        assert (find(manifest, other) is not None) == (other in keys)


@settings(max_examples=100, deadline=None)
@given(KEYS, KEYS)
def test_several_sources_are_below_their_paths(one: list[bytes], two: list[bytes]) -> None:
    with manifest_of(("/left", one), ("/right/deep", two)) as manifest:
        below = [b"left/" + key for key in one] + [b"right/deep/" + key for key in two]
        assert [item.key for item in entries(manifest, b"", b"", b"")] == sorted(below)
        for number, (mount, keys) in enumerate(((b"left/", one), (b"right/deep/", two))):
            for key in keys:
                inode = find(manifest, mount + key)
                assert inode is not None
                assert manifest.object(inode).version.key == b"p%d/" % number + key


def test_a_key_that_two_sources_have_is_there_once() -> None:
    with manifest_of(("/", [b"a", b"x//y", b"d/"]), ("/", [b"a", b"x//y", b"d/"])) as manifest:
        found = list(entries(manifest, b"", b"", b""))
        assert [item.key for item in found] == [b"a", b"d/", b"x//y"]
        assert all(manifest.object(item.inode).source == 0 for item in found), "the first one, as in the tree"


@pytest.mark.parametrize(
    ("prefix", "following"), [(b"a/", b"a0"), (b"a\xff", b"b"), (b"\xff\xff", None), (b"", None), (b"\0", b"\x01")]
)
def test_what_comes_behind_a_prefix(prefix: bytes, following: bytes | None) -> None:
    assert successor(prefix) == following


def page(manifest: Manifest, query: str) -> etree._Element:
    return etree.fromstring(list_objects("b", manifest, Listing.of(S3Request.parse("GET", f"/b?{query}", []))))


def texts(root: etree._Element, path: str) -> list[str]:
    return [found.text or "" for found in root.findall("/".join(S3 + part for part in path.split("/")))]


@settings(max_examples=60, deadline=None)
@given(KEYS, st.integers(1, 5), st.sampled_from(["", "%2F"]), st.sampled_from([1, 2]))
def test_pages_make_up_the_whole_listing(keys: list[bytes], most: int, delimiter: str, version: int) -> None:
    keys = [key for key in keys if b"\0" not in key]
    with manifest_of(("/", keys)) as manifest:
        found: list[bytes] = []
        query = f"encoding-type=url&max-keys={most}&delimiter={delimiter}" + ("&list-type=2" if version == 2 else "")
        following = ""
        for _ in range(len(keys) + 1):
            root = page(manifest, query + following)
            names = texts(root, "Contents/Key") + texts(root, "CommonPrefixes/Prefix")
            assert len(names) <= most
            found += sorted(map(unquote_to_bytes, names))
            if texts(root, "IsTruncated") == ["false"]:
                break
            next_ = texts(root, "NextContinuationToken" if version == 2 else "NextMarker")[0]
            following = f"&continuation-token={next_}" if version == 2 else f"&marker={next_}"
        assert found == expected(keys, b"", b"/" if delimiter else b"", b"")


def test_fields_of_a_page() -> None:
    with manifest_of(("/", [b"a b", b"d/x", b"d/y", b"z"])) as manifest:
        root = page(manifest, "list-type=2&delimiter=%2F&start-after=a&max-keys=2")
        assert texts(root, "Name") == ["b"]
        assert texts(root, "KeyCount") == ["2"]
        assert texts(root, "StartAfter") == ["a"]
        assert texts(root, "Contents/Key") == ["a b"]
        assert texts(root, "Contents/ETag") == ['"e0"']
        assert texts(root, "Contents/LastModified") == ["1970-01-01T00:00:00.000Z"]
        assert texts(root, "CommonPrefixes/Prefix") == ["d/"]
        assert texts(root, "IsTruncated") == ["true"]
        assert texts(page(manifest, "list-type=2&max-keys=0"), "IsTruncated") == ["false"]
        assert texts(page(manifest, "list-type=2&max-keys=5000"), "MaxKeys") == ["1000"]


def test_keys_that_xml_cannot_hold() -> None:
    names = [b"\x01", b"a&<b>\"'", b"\xff", "\u00fc \U0001f600".encode(), b"100%+"]
    with manifest_of(("/", names)) as manifest:
        encoded = texts(page(manifest, "list-type=2&encoding-type=url"), "Contents/Key")
        assert [unquote_to_bytes(name) for name in encoded] == sorted(names)
        assert "+" not in "".join(encoded), "some clients take it for a space"
        whole = list_objects("b", manifest, Listing.of(S3Request.parse("GET", "/b", [])))
        assert b"a&amp;&lt;b&gt;" in whole
        assert "\ufffd" in whole.decode()


@pytest.mark.parametrize(
    "query", ["max-keys=x", "max-keys=-1", "encoding-type=base64", "list-type=2&continuation-token=%21", "max-keys=1e3"]
)
def test_parameters_that_are_wrong_are_refused(query: str) -> None:
    with pytest.raises(S3Error) as refused:
        Listing.of(S3Request.parse("GET", f"/b?{query}", []))
    assert refused.value.code == "InvalidArgument"
