"""docs/SEMANTICS.md on real mounts: each example and each row of its tables, for an S3 server and for local files."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import socket
import subprocess
from pathlib import Path

import pytest

from servers.node import Node, data_set
from servers.stores import Store

pytestmark = pytest.mark.fuse


def mount(node: Node, store: Store, name: str = "data", **spec: object) -> Path:
    return node.mount(data_set("ds", store.source(), **spec), name)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(folder))


# --- Content


def test_a_mount_shows_one_generation_and_a_new_mount_the_next(node: Node, store: Store) -> None:
    store.put("a", b"one")
    old = mount(node, store, "old")
    store.put("b", b"new")
    store.delete("a")
    new = node.mount(data_set("ds2", store.source()), "new")
    assert names(old) == ["a"]
    assert names(new) == ["b"]


def test_every_byte_is_the_origin_s_whatever_the_size_and_the_offset(node: Node, store: Store) -> None:
    page = 16 << 10
    sizes = (1, page - 1, page, page + 1, 4 * page, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 9_000_001)
    contents = {f"size-{size}": os.urandom(size) for size in sizes}
    for key, data in contents.items():
        store.put(key, data)
    root = mount(node, store)
    for key, data in contents.items():
        with open(root / key, "rb") as file:
            for offset in {0, 1, len(data) // 2, max(0, len(data) - 5)}:
                file.seek(offset)
                assert file.read(1000) == data[offset : offset + 1000], (key, offset)
            file.seek(len(data))
            assert file.read(10) == b""
        assert (root / key).read_bytes() == data
        assert (root / key).stat().st_size == len(data)


def test_empty_objects_are_empty_files_and_cause_no_request(node: Node, store: Store) -> None:
    store.put("empty", b"")
    root = mount(node, store)
    assert (root / "empty").read_bytes() == b""
    assert (root / "empty").stat().st_size == 0
    assert node.status()["bytesFromSource"] == 0


def test_a_changed_object_is_estale_and_never_mixed(node: Node, store: Store) -> None:
    old, new = os.urandom(6 << 20), os.urandom(6 << 20)
    store.put("f", old)
    root = mount(node, store)
    with open(root / "f", "rb", buffering=0) as file:
        first = file.read(4096)
        store.put("f", new)
        file.seek(5 << 20)
        with pytest.raises(OSError, match="Stale") as caught:
            file.read(4096)
    assert caught.value.errno == errno.ESTALE
    assert first == old[:4096]
    with open(root / "f", "rb", buffering=0) as file:
        assert file.read(4096) == old[:4096], "cached pages of the old version stay readable"


def test_a_deleted_object_is_estale(node: Node, store: Store) -> None:
    store.put("f", os.urandom(100_000))
    root = mount(node, store)
    store.delete("f")
    with pytest.raises(OSError, match="Stale") as caught:
        (root / "f").read_bytes()
    assert caught.value.errno == errno.ESTALE


def test_a_second_read_comes_from_cache(node: Node, store: Store) -> None:
    data = os.urandom(3_000_000)
    store.put("f", data)
    root = mount(node, store)
    assert (root / "f").read_bytes() == data
    fetched = node.status()["bytesFromSource"]
    again = node.mount(data_set("other", store.source()), "again")
    assert (again / "f").read_bytes() == data
    assert fetched == len(data)
    assert node.status("again")["bytesFromSource"] == 0


# --- Names


def test_an_object_and_a_folder_of_one_name_the_folder_wins(node: Node, bucket: Store) -> None:
    store = bucket  # a file system cannot hold both
    for key in ("b", "b/c", "d/"):
        store.put(key, b"x" if not key.endswith("/") else b"")
    store.put("a/b", b"nested")
    store.put("a", b"hidden")
    root = mount(node, store)
    assert names(root) == ["a", "b", "d"]
    assert (root / "a").is_dir()
    assert (root / "a" / "b").read_bytes() == b"nested"
    assert (root / "d").is_dir()
    assert node.status()["hidden"] == {"ShadowedByDirectory": 2}


@pytest.mark.parametrize(
    "name",
    [
        "a#b",
        "a?b",
        "100%",
        "%2F",
        "a b",
        "a+b",
        "Case",
        "case",
        "\u00fc",
        "u\u0308",
        "new\nline",
        "tab\there",
        "\x01ctl",
        "~",
    ],
)
def test_names_are_shown_byte_for_byte(node: Node, store: Store, name: str) -> None:
    content = os.urandom(100)
    store.put(name, content)
    store.put(f"dir-{name}/inside", content)
    root = mount(node, store)
    assert names(root) == sorted([name, f"dir-{name}"])
    assert (root / name).read_bytes() == content
    assert (root / f"dir-{name}" / "inside").read_bytes() == content


def test_twins_stay_two_files(node: Node, store: Store) -> None:
    twins = ["Case", "case", "\u00fc", "u\u0308"]
    for twin in twins:
        store.put(twin, twin.encode())
    root = mount(node, store)
    assert names(root) == sorted(twins)
    assert [(root / twin).read_bytes() for twin in twins] == [twin.encode() for twin in twins]


def test_names_of_255_bytes_work_and_looking_up_longer_ones_says_so(node: Node, store: Store) -> None:
    fits, wide = "x" * 255, "\u20ac" * 85
    store.put(fits, b"1")
    store.put(wide, b"2")
    root = mount(node, store)
    assert names(root) == sorted([fits, wide])
    assert (root / fits).read_bytes() == b"1"
    with pytest.raises(OSError, match="too long") as caught:
        os.stat(root / ("y" * 256))
    assert caught.value.errno == errno.ENAMETOOLONG


def test_deep_folders(node: Node, store: Store) -> None:
    key = "/".join(f"d{level}" for level in range(60)) + "/leaf"
    store.put(key, b"deep")
    root = mount(node, store)
    assert (root / key).read_bytes() == b"deep"


def test_an_empty_source_is_an_error_unless_it_may_be_missing(node: Node, store: Store) -> None:
    import json

    (node.root / "data").mkdir()
    document = json.dumps(data_set("ds", store.source()))
    done = node.run("mount", "-f", "-", "data", stdin=document)
    assert done.returncode == 1
    assert done.stderr.startswith("SourceEmpty: ")
    assert done.stderr.count("\n") == 1
    root = node.mount(data_set("ds", {**store.source(), "ignoreMissing": True}))
    assert names(root) == []


# --- Errors


def test_writing_is_erofs(node: Node, store: Store) -> None:
    store.put("f", b"1")
    root = mount(node, store)
    for attempt in (
        lambda: os.open(root / "f", os.O_WRONLY),
        lambda: os.open(root / "new", os.O_WRONLY | os.O_CREAT),
        lambda: os.mkdir(root / "d"),
        lambda: os.unlink(root / "f"),
        lambda: os.rename(root / "f", root / "g"),
        lambda: os.truncate(root / "f", 0),
        lambda: os.chmod(root / "f", 0o777),
    ):
        with pytest.raises(OSError, match="Read-only") as caught:
            attempt()
        assert caught.value.errno == errno.EROFS


def test_a_folder_lists_itself_and_its_parent(node: Node, store: Store) -> None:
    store.put("d/f", b"1")
    root = mount(node, store)
    done = subprocess.run(["ls", "-a", str(root / "d")], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.split() == [".", "..", "f"]


def test_a_missing_name_is_enoent(node: Node, store: Store) -> None:
    store.put("f", b"1")
    root = mount(node, store)
    with pytest.raises(FileNotFoundError):
        os.stat(root / "missing")
    with pytest.raises(NotADirectoryError):
        os.stat(root / "f" / "below")


# --- Time, attributes, ways of reading


def test_attributes(node: Node, store: Store) -> None:
    store.put("dir/f", b"12345")
    root = mount(node, store, mount={"uid": 1234, "gid": 2345, "fileMode": "0440", "dirMode": "0550"})
    info = os.stat(root / "dir" / "f")
    assert (info.st_uid, info.st_gid, info.st_mode & 0o7777, info.st_size, info.st_nlink) == (1234, 2345, 0o440, 5, 1)
    assert info.st_mtime_ns == info.st_atime_ns == info.st_ctime_ns
    assert abs(info.st_mtime - store.mtime("dir/f")) < 1.5
    assert os.stat(root / "dir").st_mode & 0o7777 == 0o550
    assert os.stat(root / "dir" / "f").st_ino == info.st_ino


def test_statfs_is_the_generation(node: Node, store: Store) -> None:
    store.put("f", os.urandom(1 << 20))
    root = mount(node, store)
    info = os.statvfs(root)
    assert info.f_blocks * info.f_frsize == 1 << 20
    assert (info.f_bfree, info.f_namemax) == (0, 255)


def test_extended_attributes(node: Node, store: Store) -> None:
    store.put("f", os.urandom(100_000))
    root = mount(node, store)
    path = root / "f"
    assert set(os.listxattr(path)) == {"user.stoker.uri", "user.stoker.etag", "user.stoker.cached"}
    assert os.getxattr(path, "user.stoker.uri").decode().endswith("/f")
    assert os.getxattr(path, "user.stoker.etag")
    assert os.getxattr(path, "user.stoker.cached") == b"0"
    path.read_bytes()
    assert os.getxattr(path, "user.stoker.cached") == b"100"
    with pytest.raises(OSError, match="No data"):
        os.getxattr(path, "user.other")


def test_mmap_direct_sendfile_and_splice_give_the_same_bytes(node: Node, store: Store) -> None:
    data = os.urandom(2_000_003)
    store.put("f", data)
    root = mount(node, store)
    digest = hashlib.sha256(data).digest()
    with open(root / "f", "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert hashlib.sha256(mapped).digest() == digest
    assert hashlib.sha256(read_direct(root / "f")).digest() == digest
    assert hashlib.sha256(read_by_sendfile(root / "f", len(data))).digest() == digest
    assert hashlib.sha256(read_by_splice(root / "f", len(data))).digest() == digest


def read_direct(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        buffer = mmap.mmap(-1, 1 << 20)  # page aligned, as O_DIRECT wants it
        out = bytearray()
        while got := os.preadv(fd, [buffer], len(out)):
            out += buffer[:got]
        return bytes(out)
    finally:
        os.close(fd)


def read_by_sendfile(path: Path, size: int) -> bytes:
    left, right = socket.socketpair()
    out = bytearray()
    with open(path, "rb") as file, left, right:
        while len(out) < size:
            sent = os.sendfile(left.fileno(), file.fileno(), len(out), 1 << 16)
            while sent:
                part = right.recv(sent)
                out += part
                sent -= len(part)
    return bytes(out)


def read_by_splice(path: Path, size: int) -> bytes:
    reader, writer = os.pipe()
    out = bytearray()
    with open(path, "rb") as file:
        while len(out) < size:
            os.splice(file.fileno(), writer, 1 << 16, offset_src=len(out))
            out += os.read(reader, 1 << 16)
    os.close(reader)
    os.close(writer)
    return bytes(out)


# --- Shapes of sources


def test_one_object_is_a_folder_with_that_file(node: Node, store: Store) -> None:
    store.put("dir/model.bin", b"weights")
    store.put("dir/model.bin.bak", b"other")
    root = node.mount(data_set("ds", store.source("dir/model.bin"), type="uri_file"))
    assert names(root) == ["model.bin"]
    assert (root / "model.bin").read_bytes() == b"weights"


def test_several_sources_make_one_tree(node: Node, store: Store) -> None:
    store.put("train/x", b"1")
    store.put("val/y", b"2")
    sources = (
        {**store.source("train/"), "name": "train"},
        {**store.source("val/"), "name": "val", "path": "/deep/val"},
    )
    root = node.mount(data_set("ds", *sources))
    assert names(root) == ["deep", "train"]
    assert (root / "train" / "x").read_bytes() == b"1"
    assert (root / "deep" / "val" / "y").read_bytes() == b"2"


def test_include_and_exclude(node: Node, store: Store) -> None:
    for key in ("a.tar", "b.txt", "sub/c.tar", "sub/skip.tar"):
        store.put(key, b"x")
    root = node.mount(data_set("ds", {**store.source(), "include": ["**/*.tar"], "exclude": ["sub/skip*"]}))
    assert names(root) == ["a.tar", "sub"]
    assert names(root / "sub") == ["c.tar"]
