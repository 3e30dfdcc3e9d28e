"""CASES of area fuse on real mounts: names, listings and attributes of one version, on a store that holds and says what
a real one would not. The same ids in core/tests hold the parts to it; here the reader of a mount is asked.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.mounts import IMPATIENT, mount
from servers.node import Node, data_set
from servers.scenarios import (
    in_pages,
)
from servers.scripted_store import ScriptedStore, listing

pytestmark = pytest.mark.fuse


def names(folder: Path) -> list[bytes]:
    """As readdir gives them: what comes twice is there twice."""
    return sorted(os.listdir(os.fsencode(folder)))


class TestFU01:
    """goofys#598: an object and a folder of one name. The folder wins, everywhere; the object is counted."""

    @pytest.mark.parametrize("reverse", [True, False])
    def test_fu_01_the_folder_wins(self, node: Node, scripted_store: ScriptedStore, reverse: bool) -> None:
        keys = ["a", "a/", "a/b", "a/b/", "a/b/c", "foobar", "foobar/foo"]
        for key in sorted(keys, reverse=reverse):
            scripted_store.put(key, b"" if key.endswith("/") else key.encode())
        root = mount(node, scripted_store)
        assert (root / "a/b").is_dir(), "also looked up before anything was listed"
        assert [names(root), names(root / "a"), names(root / "a/b")] == [[b"a", b"foobar"], [b"b"], [b"c"]]
        assert (root / "a/b").is_dir()
        with pytest.raises(IsADirectoryError):
            (root / "foobar").read_bytes()
        assert (root / "a/b/c").read_bytes() == b"a/b/c"
        assert (root / "foobar/foo").read_bytes() == b"foobar/foo"
        assert node.status()["hidden"] == {"ShadowedByDirectory": 3}

    def test_fu_01_a_marker_with_content_is_an_empty_folder(self, node: Node, scripted_store: ScriptedStore) -> None:
        scripted_store.put("a/", b"17 bytes of text.")
        root = mount(node, scripted_store)
        assert names(root) == [b"a"]
        assert names(root / "a") == []


def test_fu_02_keys_that_no_path_can_name_do_not_break_their_siblings(
    node: Node, scripted_store: ScriptedStore
) -> None:
    for key in ("a//b", "a/c", "/lead", "x/./y", "x/../z", "x/ok", "t/ok", "n\0ul"):
        scripted_store.put(key, key.encode())
    root = mount(node, scripted_store)
    assert names(root) == [b"a", b"t", b"x"]
    assert [names(root / folder) for folder in "axt"] == [[b"c"], [b"ok"], [b"ok"]]
    assert (root / "a/c").read_bytes() == b"a/c"
    assert (root / "x/ok").read_bytes() == b"x/ok"
    assert node.status()["hidden"] == {"DotComponent": 2, "EmptyComponent": 2, "NulByte": 1}


def test_fu_04_a_name_is_the_key_and_opens_exactly_that_key(node: Node, scripted_store: ScriptedStore) -> None:
    keys = [
        b"folder#1#/f",
        b"a b",
        b"a+b",
        b"100%",
        b"%2F",
        b"q?x=1",
        b"\xff\xfe",
        b"new\nline",
        b"\x01",
        b"&lt;",
        b"~",
    ]
    keys += ["\u00fc".encode(), "u\u0308".encode(), b"Case", b"case", b"...", b"-"]
    for key in keys:
        scripted_store.put(key, b"content of " + key)
    root = mount(node, scripted_store)
    assert names(root) == sorted(key.partition(b"/")[0] for key in keys)
    for key in keys:
        path = os.path.join(os.fsencode(root), key)
        with open(path, "rb") as file:
            assert file.read() == b"content of " + key
        assert os.stat(path).st_size == len(b"content of " + key)


def test_fu_05_long_names_and_long_keys(node: Node, scripted_store: ScriptedStore) -> None:
    fits = ["n" * 255, "\u6f22" * 85, "/".join(["d" * 255] * 3 + ["f" * 255])]
    for key in (*fits, "n" * 256, "n" * 300, "\u6f22" * 100, "ok/" + "m" * 256, "ok/sibling"):
        scripted_store.put(key, key.encode()[:20])
    root = mount(node, scripted_store)
    assert names(root) == sorted([fits[0].encode(), fits[1].encode(), b"d" * 255, b"ok"])
    assert all((root / key).read_bytes() == key.encode()[:20] for key in fits), "read and cached, key of 1023 bytes"
    assert names(root / "ok") == [b"sibling"]
    with pytest.raises(OSError, match="too long") as caught:
        os.stat(root / ("n" * 256))
    assert caught.value.errno == errno.ENAMETOOLONG
    assert node.status()["hidden"] == {"NameTooLong": 4}


class TestFU06:
    """goofys#431: more than one page of a listing."""

    @pytest.mark.parametrize("count", [999, 1000, 1001, 2000, 50_191])
    def test_fu_06_each_name_once(self, node: Node, scripted_store: ScriptedStore, count: int) -> None:
        expected = [b"f%06d" % number for number in range(count - 1)]
        folder = b"f000998p"  # the 1000th entry is a folder, and its marker comes with a later page
        for name in expected:
            scripted_store.put(b"big/" + name, name)
        for key in (b"big/" + folder + b"/" + b"x" * 9, b"big/" + folder + b"/"):
            scripted_store.put(key, b"")
        root = mount(node, scripted_store) / "big"
        assert names(root) == sorted([*expected, folder])
        with os.scandir(root) as half:
            assert next(half).name == "f000000"
        assert names(root) == sorted([*expected, folder]), "also after a reader that closed half way"
        assert (root / os.fsdecode(expected[-1])).read_bytes() == expected[-1]

    def test_fu_06_a_reader_that_seeks_goes_on_where_it_was(self, node: Node, scripted_store: ScriptedStore) -> None:
        for number in range(1500):
            scripted_store.put(f"f{number:04}", b"")
        root = mount(node, scripted_store)
        with Folder(root) as folder:
            every = [*folder.rest()]  # with or without `.` and `..`, as POSIX leaves it
            folder.rewind()
            first = [folder.next() for _ in range(700)]
            place = folder.tell()
            tail = [*folder.rest()]
            folder.seek(place)
            assert [*folder.rest()] == tail
        assert first + tail == every
        assert sorted({*every} - {b".", b".."}) == [b"f%04d" % number for number in range(1500)]
        assert len(every) == len({*every})

    def test_fu_06_folders_and_objects_on_pages_of_their_own_in_no_order(
        self, node: Node, scripted_store: ScriptedStore
    ) -> None:
        for key in ("z", "a", "m/1", "b/2"):
            scripted_store.put(key, key.encode())
        stored = [(key, scripted_store.objects[key]) for key in (b"z", b"b/2", b"a", b"m/1")]
        scripted_store.on_list(in_pages(listing(stored[:2], token="1"), listing(stored[1:], token="")))
        root = mount(node, scripted_store)
        assert names(root) == [b"a", b"b", b"m", b"z"]
        assert (root / "b/2").read_bytes() == b"b/2"


class TestFU08:
    """azure-storage-fuse#49: an empty page is not the end."""

    def test_fu_08_empty_pages_are_followed(self, node: Node, scripted_store: ScriptedStore) -> None:
        for key in ("d/1", "d/2", "e"):
            scripted_store.put(key, key.encode())
        last = listing([(key, stored) for key, stored in scripted_store.objects.items()])
        scripted_store.on_list(in_pages(listing([], token="1"), listing([], token="2"), last))
        root = mount(node, scripted_store)
        assert names(root) == [b"d", b"e"]
        assert names(root / "d") == [b"1", b"2"]

    def test_fu_08_a_token_that_comes_again_is_an_error(self, node: Node, scripted_store: ScriptedStore) -> None:
        scripted_store.put("a", b"1")
        scripted_store.on_list(lambda _, __: listing([*scripted_store.objects.items()], token="same"))
        line = refused_mount(node, scripted_store)
        assert line.startswith("CorruptResponse: ")
        assert scripted_store.count(None) < 10


class TestFU12:
    """mountpoint-s3#831: `not there` is remembered for ever. Here it is true of one generation, and of nothing else."""

    def test_fu_12_what_was_not_there_is_there_in_the_next_mount(
        self, node: Node, scripted_store: ScriptedStore
    ) -> None:
        scripted_store.put("other", b"1")
        root = mount(node, scripted_store)
        listed = scripted_store.count(None)
        for path in ("ckpt/done", "ckpt", "done"):
            assert not (root / path).exists()
        for key in ("ckpt/done", "done"):
            scripted_store.put(key, b"ok")
        assert not any((root / path).exists() for path in ("ckpt/done", "done")), "a mount shows one generation"
        assert scripted_store.count(None) == listed, "and asks nobody meanwhile"
        beside = mount(node, scripted_store, "beside")
        assert (beside / "ckpt/done").read_bytes() == b"ok"
        node.ok("unmount", str(root))
        again = mount(node, scripted_store)
        assert again == root, "the same place, where the kernel was told that it is not there"
        assert [(again / path).read_bytes() for path in ("ckpt/done", "done")] == [b"ok", b"ok"]
        assert names(again) == [b"ckpt", b"done", b"other"]


def test_ch_06_indexers_can_leave_mounts_out_and_walking_costs_the_store_nothing(
    node: Node, scripted_store: ScriptedStore
) -> None:
    for number in range(300):
        scripted_store.put(f"d{number % 7}/f{number}", b"12345")
    root = mount(node, scripted_store)
    before = len(scripted_store.requests)
    found = [path for path in root.rglob("*") if path.stat().st_size and path.is_file()]
    assert len(found) == 300
    assert len(scripted_store.requests) == before
    (line,) = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {root} " in line]
    assert line.partition(" - ")[2].split()[0] == "fuse.stoker", "the name for PRUNEFS of updatedb"


def refused_mount(node: Node, store: ScriptedStore) -> str:
    """The one line of a mount that must fail."""
    (node.root / "data").mkdir(exist_ok=True)
    document = data_set("data", store.source(), mount=IMPATIENT)
    done = node.run("mount", "-f", "-", "data", stdin=json.dumps(document))
    assert done.returncode == 1, done
    assert done.stderr.count("\n") == 1
    return done.stderr


class Folder:
    """opendir(3) and its seeking, which Python has not."""

    class _Entry(ctypes.Structure):
        _fields_ = (
            ("ino", ctypes.c_uint64),
            ("offset", ctypes.c_int64),
            ("length", ctypes.c_ushort),
            ("kind", ctypes.c_ubyte),
            ("name", ctypes.c_char * 256),
        )

    def __init__(self, path: Path) -> None:
        self._libc = ctypes.CDLL(None)
        self._libc.opendir.restype = ctypes.c_void_p
        self._libc.readdir.restype = ctypes.POINTER(self._Entry)
        self._libc.telldir.restype = ctypes.c_long
        self._folder = ctypes.c_void_p(self._libc.opendir(os.fsencode(path)))

    def next(self) -> bytes | None:
        entry = self._libc.readdir(self._folder)
        return bytes(entry.contents.name) if entry else None

    def rest(self) -> Iterator[bytes]:
        while (name := self.next()) is not None:
            yield name

    def tell(self) -> int:
        return int(self._libc.telldir(self._folder))

    def seek(self, place: int) -> None:
        self._libc.seekdir(self._folder, ctypes.c_long(place))

    def rewind(self) -> None:
        self._libc.rewinddir(self._folder)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self._libc.closedir(self._folder)
