"""What a generation shows: names, directories, keys and versions, against a plain reference."""

from __future__ import annotations

import fcntl
import itertools
import os
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.api.errors import StokerError
from stoker.api.globs import Globs
from stoker.manifest.build import ManifestBuilder
from stoker.manifest.format import ManifestSource
from stoker.manifest.manifest import Manifest
from stoker.manifest.names import hidden_reason
from stoker.sources.base import ObjectEntry, ObjectVersion

ODD = [
    *(b"folder#1#/f", b"a b", b"a+b", b"100%", b"%2F", b"q?x=1", b"\xff\xfe", b"new\nline", b"Case", b"case"),
    *("\u00fc".encode(), "u\u0308".encode(), b"\x01", b"...", b"-", b"~", b"n" * 255),
]


def test_fu_01_directory_wins_whatever_the_order_of_creation(make: Any) -> None:
    keys = [b"a", b"a/", b"a/b", b"a/b/", b"a/b/c", b"foobar", b"foobar/foo"]
    digests = set()
    for order in (keys, keys[::-1], keys[3:] + keys[:3]):
        manifest = make.keys(*order)
        digests.add(manifest.digest)
        assert make.listing(manifest) == [b"a/", b"foobar/"]
        assert make.listing(manifest, b"a") == [b"b/"]
        assert make.listing(manifest, b"a/b") == [b"c"]
        assert make.key(manifest, b"a/b/c") == b"data/a/b/c"
        assert manifest.hidden == {"ShadowedByDirectory": 3}
        assert [sample.key for sample in manifest.hidden_samples["ShadowedByDirectory"]] == [
            *(b"data/a", b"data/a/b", b"data/foobar"),
        ]
    assert len(digests) == 1


def test_fu_01_a_marker_with_content_is_a_directory(make: Any) -> None:
    manifest = make.of((make.source(), [make.entry(b"data/a/", size=17)]))
    assert make.listing(manifest) == [b"a/"]
    assert make.listing(manifest, b"a") == []
    assert (manifest.files, manifest.directories, manifest.bytes) == (0, 2, 0)


def test_fu_02_keys_that_cannot_be_shown_do_not_break_their_siblings(make: Any) -> None:
    manifest = make.keys(b"a//b", b"a/c", b"/lead", b"x/./y", b"x/../z", b"t/ok", b"n\0ul")
    assert make.listing(manifest) == [b"a/", b"t/"]
    assert make.listing(manifest, b"a") == [b"c"]
    assert make.key(manifest, b"a/c") == b"data/a/c"
    assert manifest.hidden == {"DotComponent": 2, "EmptyComponent": 2, "NulByte": 1}


def test_fu_04_names_are_the_bytes_of_the_key(make: Any) -> None:
    manifest = make.keys(*ODD)
    assert make.listing(manifest) == sorted(b"folder#1#/" if key.startswith(b"folder") else key for key in ODD)
    for key in ODD:
        assert make.key(manifest, key) == b"data/" + key


def test_fu_05_long_names(make: Any) -> None:
    shown = [b"n" * 255, ("漢" * 85).encode(), b"d" * 255 + b"/" + b"f" * 255]
    manifest = make.keys(*shown, b"n" * 256, b"n" * 300, ("漢" * 100).encode(), b"ok/" + b"n" * 256)
    assert make.listing(manifest) == sorted([shown[0], shown[1], b"d" * 255 + b"/"])
    assert all(make.key(manifest, key) == b"data/" + key for key in shown)
    assert manifest.hidden == {"NameTooLong": 4}


@pytest.mark.parametrize("count", [999, 1000, 1001, 2000, 50_191])
def test_fu_06_every_page_of_a_large_directory(make: Any, count: int) -> None:
    names = [b"f%06d" % number for number in range(count - 1)]
    middle = names[999:1000] or names[-1:]
    folder = middle[0] + b"p"  # a folder whose marker comes pages after its files
    entries = [b"big/" + name for name in names] + [b"big/" + folder + b"/x", b"big/" + folder + b"/"]
    manifest = make.keys(*entries)
    expected = sorted([*names, folder])
    inode = make.inode(manifest, b"big")
    listed = list(manifest.children(inode))
    assert [name for _, name, *_ in listed] == expected
    assert [child for child, *_ in listed] == list(range(listed[0][0], listed[0][0] + count))
    for offset in (0, 1, 255, 256, 257, 998, count - 1, count, count + 5):
        assert [name for _, name, *_ in manifest.children(inode, offset)] == expected[offset:]


def test_100_000_files_in_one_folder_are_found_each(make: Any) -> None:
    manifest = make.keys(*(b"d/%x" % number for number in range(100_000)))
    folder = make.inode(manifest, b"d")
    listed = list(manifest.children(folder))
    assert len(listed) == 100_000
    assert all(manifest.lookup(folder, name) == inode for inode, name, *_ in listed[:: 1 << 6])
    assert manifest.lookup(folder, b"g") is None


@pytest.mark.parametrize("depth", [60, 500])
def test_deep_folders(make: Any, depth: int) -> None:
    key = b"d/" * depth + b"file"
    manifest = make.keys(key, b"d/" * (depth // 2) + b"half")
    assert make.key(manifest, key) == b"data/" + key
    assert manifest.path(make.inode(manifest, key)) == key
    assert (manifest.files, manifest.directories) == (2, depth + 1)


def test_a_slash_sorts_before_every_other_byte(make: Any) -> None:
    keys = [b"a-b", b"a/b", b"a.b", b"a/\x01", b"a\x01", b"a/b-c/d", b"a/b.c"]
    manifest = make.keys(*keys)
    assert make.listing(manifest) == [b"a/", b"a\x01", b"a-b", b"a.b"]
    assert make.listing(manifest, b"a") == [b"\x01", b"b", b"b-c/", b"b.c"]


def test_versions_attributes_and_times(make: Any) -> None:
    big = make.entry(b"data/d/big", size=1 << 50, etag='W/"é\udcff"', mtime_ns=3)
    cold = make.entry(b"data/d/e/cold", size=0, etag="", mtime_ns=-1, archived=True)
    manifest = make.of((make.source(), [big, cold, make.entry(b"data/d/", mtime_ns=2)]))
    version = manifest.object(make.inode(manifest, b"d/big")).version
    assert version == ObjectVersion(big.key, big.size, big.etag, big.mtime_ns)
    node = manifest.node(make.inode(manifest, b"d/e/cold"))
    assert (node.archived, node.is_dir, node.size, node.mtime_ns) == (True, False, 0, -1)
    folder = manifest.node(make.inode(manifest, b"d"))
    assert (folder.is_dir, folder.mtime_ns, folder.child_count) == (True, 3, 2)
    assert manifest.bytes == 1 << 50
    assert manifest.mean_size == 1 << 49


def test_an_empty_listing_is_an_empty_root(make: Any) -> None:
    manifest = make.of((make.source(), []))
    assert make.listing(manifest) == []
    assert (manifest.files, manifest.directories, manifest.mean_size) == (0, 1, 0)
    assert manifest.lookup(1, b"x") is None


def test_look_ups_in_a_file_find_nothing(make: Any) -> None:
    manifest = make.keys(b"f")
    assert manifest.lookup(2, b"f") is None
    assert list(manifest.children(2)) == []
    with pytest.raises(StokerError, match="directory"):
        manifest.object(1)


# --- Sources


def test_sources_make_one_tree_and_the_deepest_wins(make: Any) -> None:
    everything = make.source("all", "/", b"all/")
    train = make.source("train", "/train", b"t/")
    listings = [
        (everything, [make.entry(b"all/train/x"), make.entry(b"all/train/y"), make.entry(b"all/val/z")]),
        (train, [make.entry(b"t/x", size=9), make.entry(b"t/sub/w")]),
    ]
    manifest = make.of(*listings)
    assert make.listing(manifest) == [b"train/", b"val/"]
    assert make.listing(manifest, b"train") == [b"sub/", b"x", b"y"]
    assert make.key(manifest, b"train/x") == b"t/x"
    assert make.key(manifest, b"train/y") == b"all/train/y"
    assert make.key(manifest, b"train/sub/w") == b"t/sub/w"
    assert manifest.object(make.inode(manifest, b"train/x")).source == 1
    assert manifest.hidden == {"ShadowedBySource": 1}
    assert manifest.hidden_samples["ShadowedBySource"][0].key == b"all/train/x"


def test_of_sources_at_one_path_the_first_wins_and_a_directory_wins_of_files(make: Any) -> None:
    first, second = make.source("one", "/", b"1/"), make.source("two", "/", b"2/")
    manifest = make.of(
        (first, [make.entry(b"1/both"), make.entry(b"1/dir/a"), make.entry(b"1/mark/")]),
        (second, [make.entry(b"2/both"), make.entry(b"2/dir"), make.entry(b"2/mark"), make.entry(b"2/only")]),
    )
    assert make.listing(manifest) == [b"both", b"dir/", b"mark/", b"only"]
    assert make.key(manifest, b"both") == b"1/both"
    assert manifest.hidden == {"ShadowedByDirectory": 2, "ShadowedBySource": 1}


def test_the_folders_of_a_source_path_exist_even_when_it_is_empty(make: Any) -> None:
    manifest = make.of((make.source("a", "/x/y", b"p/"), []), (make.source("b", "/", b"q/"), [make.entry(b"q/x")]))
    assert make.listing(manifest) == [b"x/"]
    assert make.listing(manifest, b"x") == [b"y/"]
    assert make.listing(manifest, b"x/y") == []
    assert manifest.hidden == {"ShadowedByDirectory": 1}


@pytest.mark.parametrize("path", ["/", "/models"])
@pytest.mark.parametrize("prefix", [b"w/x/", b"w/x"])
def test_a_uri_that_is_one_object_is_shown_by_its_name(make: Any, path: str, prefix: bytes) -> None:
    manifest = make.of((make.source("m", path, prefix), [make.entry(b"w/x")]))
    assert make.key(manifest, path.encode().strip(b"/") + b"/x" if path != "/" else b"x") == b"w/x"
    assert manifest.files == 1


def test_a_uri_that_is_an_object_and_a_folder_is_a_folder(make: Any) -> None:
    for extra in (b"w/x/a", b"w/x/"):
        manifest = make.of((make.source("m", "/", b"w/x/"), [make.entry(b"w/x"), make.entry(extra)]))
        assert make.listing(manifest) == ([b"a"] if extra == b"w/x/a" else [])
        assert manifest.hidden == {"ShadowedByDirectory": 1}
        assert manifest.hidden_samples["ShadowedByDirectory"][0].key == b"w/x"


def test_the_key_that_equals_the_uri_of_a_folder_is_its_marker(make: Any) -> None:
    manifest = make.of((make.source(), [make.entry(b"data/"), make.entry(b"data/a")]))
    assert make.listing(manifest) == [b"a"]
    assert manifest.hidden == {}


def test_a_key_outside_of_the_prefix_is_refused(make: Any) -> None:
    with pytest.raises(StokerError, match="ManifestOutsideSource"):
        make.of((make.source(), [make.entry(b"other/a")]))
    assert os.listdir(make.folder) == []


@pytest.mark.parametrize("bad", [{"size": -1}, {"size": 1 << 64}, {"mtime_ns": 1 << 63}, {"etag": "e" * 65_536}])
def test_attributes_that_cannot_be_are_refused(make: Any, bad: dict[str, Any]) -> None:
    with pytest.raises(StokerError, match="CorruptResponse"):
        make.of((make.source(), [make.entry(b"data/a", **bad)]))


# --- Building


def test_the_order_of_the_listing_and_the_size_of_runs_do_not_show(make: Any) -> None:
    keys = [b"d%d/f%d" % (n % 7, n) for n in range(500)] + [b"a//%d" % n for n in range(150)] + ODD
    orders = ((keys, 1000, 1 << 20), (keys[::-1], 1, 1), (sorted(keys), 7, 4096), (keys[250:] + keys[:250], 50, 999))
    made = [make.keys(*order, page=page, run_bytes=run).digest for order, page, run in orders]
    assert len(set(made)) == 1
    assert os.listdir(make.folder) == [made[0] + ".manifest"]


def test_a_generation_that_is_there_already_stays_the_same_file(make: Any) -> None:
    first = make.summary((make.source(), [make.entry(b"data/a")]))
    before = os.stat(first.path)
    again = make.summary((make.source(), [make.entry(b"data/a")]))
    assert again == first
    assert os.stat(again.path).st_ino == before.st_ino


def test_a_damaged_file_of_the_same_generation_is_replaced(make: Any) -> None:
    path = make.summary((make.source(), [make.entry(b"data/a")])).path
    os.truncate(path, 5000)
    assert make.summary((make.source(), [make.entry(b"data/a")])).path == path
    assert make.listing(make.open(path)) == [b"a"]


def test_what_killed_builders_left_is_swept_and_what_others_build_is_not(make: Any) -> None:
    (make.folder / ".building-dead").write_bytes(b"x")
    with open(make.folder / ".building-live", "wb") as live:
        fcntl.flock(live.fileno(), fcntl.LOCK_EX)
        built = make.summary((make.source(), []))
        assert sorted(os.listdir(make.folder)) == [".building-live", os.path.basename(built.path)]


def test_an_abandoned_build_leaves_nothing(make: Any) -> None:
    with ManifestBuilder([make.source()], str(make.folder), run_bytes=1) as builder:
        builder.add(0, [make.entry(b"data/a")])
    assert os.listdir(make.folder) == []


def test_a_source_that_is_listed_anew_shows_nothing_of_the_first_try(make: Any) -> None:
    one, other = make.source("s", "/", b"p/"), make.source("s", "/", b"replica/")
    plain = make.source("t", "/t", b"t/")
    with ManifestBuilder([one, plain], str(make.folder), run_bytes=1) as builder:
        builder.add(0, [make.entry(b"p/old"), make.entry(b"p/a//b"), make.entry(b"p/both", size=1)])
        builder.add(1, [make.entry(b"t/x")])
        builder.restart(0, other)
        builder.add(0, [make.entry(b"replica/both", size=2)])
        built = builder.finish()
    manifest = make.open(built.path)
    assert make.listing(manifest) == [b"both", b"t/"]
    assert make.key(manifest, b"both") == b"replica/both"
    assert built.hidden == {}
    straight = make.summary((other, [make.entry(b"replica/both", size=2)]), (plain, [make.entry(b"t/x")]))
    assert straight.digest == built.digest


def test_preload_finds_files_by_their_path(make: Any) -> None:
    manifest = make.keys(b"train/a.tar", b"train/b.txt", b"val/c.tar", b"d.tar")
    found = manifest.files_matching(Globs.compile(["train/**", "*.tar"]))
    assert [manifest.path(inode) for inode in found] == [b"d.tar", b"train/a.tar", b"train/b.txt"]


# --- Against a reference

_NAMES = st.sampled_from([b"a", b"b", b"a-b", b"a\x01", b".", b"", b"\xff", b"B", b"n" * 256])
_KEYS = st.lists(
    st.tuples(st.lists(_NAMES, min_size=1, max_size=4), st.booleans()).map(lambda k: b"/".join(k[0]) + b"/" * k[1]),
    max_size=25,
    unique=True,
)


def reference(keys: Iterable[bytes]) -> tuple[dict[bytes, set[bytes]], set[bytes], Counter[str]]:
    """Directories with their children, files, and hidden keys by reason."""
    hidden: Counter[str] = Counter()
    folders: set[bytes] = {b""}
    files = set()
    for key in keys:
        if key and (reason := hidden_reason(key)):
            hidden[str(reason)] += 1
            continue
        parts = key.split(b"/")
        folders |= {b"/".join(parts[:depth]) for depth in range(1, len(parts))}
        if key and not key.endswith(b"/"):
            files.add(key)
    if shadowed := len(files & folders):
        hidden["ShadowedByDirectory"] = shadowed
    files -= folders
    children: dict[bytes, set[bytes]] = {folder: set() for folder in folders}
    for path in itertools.chain(files, folders - {b""}):
        parent, _, name = path.rpartition(b"/")
        children[parent].add(name)
    return children, files, hidden


@settings(max_examples=150, deadline=None)
@given(_KEYS, st.sampled_from([1, 300, 1 << 20]), st.sampled_from(["/", "/m", "/m/n"]))
def test_tree_equals_the_reference(keys: list[bytes], run_bytes: int, path: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        listed = ManifestSource("s", "s3://b/p/", path, "s3://h/b", b"p/", "s3://b/p/")
        entries = [ObjectEntry(b"p/" + key, size, f"e{size}", size) for size, key in enumerate(keys)]
        with ManifestBuilder([listed], folder, run_bytes=run_bytes) as builder:
            builder.add(0, entries)
            manifest = Manifest.open(builder.finish().path)
        try:
            check_against_reference(manifest, entries, listed.mount)
        finally:
            manifest.close()
        assert len(list(Path(folder).iterdir())) == 1


def check_against_reference(manifest: Manifest, entries: list[ObjectEntry], mount: bytes) -> None:
    children, files, hidden = reference(entry.key[2:] for entry in entries)
    assert manifest.hidden == dict(hidden)
    assert (manifest.files, manifest.directories) == (len(files), len(children) + len(mount.split(b"/")) * bool(mount))
    by_key = {entry.key: entry for entry in entries}
    inodes = {b"": 1}
    for name in mount.split(b"/") if mount else []:
        found = manifest.lookup(inodes[b""], name)
        assert found is not None
        inodes[b""] = found
    for folder in sorted(children, key=lambda name: name.count(b"/") + bool(name)):
        listed = list(manifest.children(inodes[folder]))
        assert [name for _, name, *_ in listed] == sorted(children[folder])
        for inode, name, is_dir, size, _ in listed:
            path = (folder + b"/" if folder else b"") + name
            inodes[path] = inode
            assert manifest.lookup(inodes[folder], name) == inode
            assert manifest.path(inode) == (mount + b"/" if mount else b"") + path
            assert is_dir == (path in children) == (path not in files)
            if not is_dir:
                version = manifest.object(inode).version
                assert (version.key, version.size) == (b"p/" + path, size)
                assert version.etag == by_key[version.key].etag
        for absent in {b"", b"a", b"zz", b"a-"} - children[folder]:
            assert manifest.lookup(inodes[folder], absent) is None
