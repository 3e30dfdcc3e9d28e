"""What two generations differ in, against plain sets; and the rows that the command line prints."""

from __future__ import annotations

import tempfile
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.api.globs import Globs
from stoker.manifest import show
from stoker.manifest.build import ManifestBuilder
from stoker.manifest.diff import count, diff
from stoker.manifest.format import ManifestSource
from stoker.manifest.manifest import Manifest
from stoker.sources.base import ObjectEntry

_PATHS = st.sampled_from([b"a", b"a/b", b"a/b/c", b"a-b", b"a-b/c", b"d/e", b"d", b"z", b"d/a\x01"])
_VERSIONS = st.tuples(st.integers(0, 2), st.sampled_from(["", "x", "y"]), st.integers(0, 2))
_GENERATION = st.dictionaries(_PATHS, _VERSIONS)
Versions = dict[bytes, tuple[int, str, int]]


def shown(keys: Versions) -> Versions:
    return {key: keys[key] for key in keys if not any(other.startswith(key + b"/") for other in keys)}


def build(folder: str, keys: Versions) -> Manifest:
    with ManifestBuilder([ManifestSource("s", "s3://b/", "/", "s3://h/b", b"", "s3://b/")], folder) as builder:
        builder.add(0, [ObjectEntry(key, *version) for key, version in keys.items()])
        return Manifest.open(builder.finish().path)


@settings(max_examples=150, deadline=None)
@given(_GENERATION, _GENERATION)
def test_diff_equals_the_difference_of_the_sets(old: Versions, new: Versions) -> None:
    def identity(version: tuple[int, str, int]) -> tuple[int, str, int]:
        return version if not version[1] else (version[0], version[1], 0)

    with tempfile.TemporaryDirectory() as folder:
        before, after = build(folder, old), build(folder, new)
        changes = list(diff(before, after))
        before.close()
        after.close()
    was, now = shown(old), shown(new)
    expected = dict.fromkeys(was.keys() - now.keys(), "removed")
    expected |= dict.fromkeys(now.keys() - was.keys(), "added")
    for path in was.keys() & now.keys():
        size, etag, mtime = was[path]
        if (size, etag, 0 if etag else mtime) != (now[path][0], now[path][1], 0 if now[path][1] else now[path][2]):
            expected[path] = "changed"
    assert {change.path: change.kind for change in changes} == expected
    places = [change.path.split(b"/") for change in changes]
    assert places == sorted(places)
    counts = count(iter(changes))
    assert sum(counts.values()) == len(expected)


def test_a_file_that_became_a_folder_is_removed_and_its_content_added(make: Any) -> None:
    old, new = make.keys(b"a", b"b"), make.keys(b"a/x", b"b")
    assert list(show.changes(old, new)) == [("removed", "a", 7, None), ("added", "a/x", None, 7)]


def test_rows_of_files_and_hidden_keys(make: Any) -> None:
    manifest = make.of(
        (
            make.source(),
            [
                make.entry(b"data/d/new\nline\xff\\", archived=True),
                make.entry(b"data/x"),
                make.entry(b"data/a//\x1b[2J"),
            ],
        )
    )
    assert list(show.files(manifest)) == [
        ("d/new\\x0aline\\xff\\\\", 7, 5, "e", True, "data"),
        ("x", 7, 5, "e", False, "data"),
    ]
    assert [row.path for row in show.files(manifest, Globs.compile(["x"]))] == ["x"]
    assert list(show.hidden(manifest)) == [("EmptyComponent", "data", "data/a//\\x1b[2J")]


def test_of_many_hidden_keys_the_smallest_are_kept_as_samples(make: Any) -> None:
    keys = [b"a//%06d" % number for number in range(5000)]
    manifest = make.keys(*reversed(keys))
    assert manifest.hidden == {"EmptyComponent": 5000}
    assert [row.key for row in show.hidden(manifest)] == [f"data/{key.decode()}" for key in keys[:100]]
