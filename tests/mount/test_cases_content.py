"""CASES of area fuse on real mounts: content of one version, on a store that misbehaves. The same ids in core/tests
hold the parts to it; here the reader of a mount is asked.
"""

from __future__ import annotations

import errno
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from servers.mounts import IMPATIENT, error_number, mount, read_by_many, while_down
from servers.node import Node, data_set, wait_for
from servers.scenarios import (
    ignores_range,
    long_body,
    never_answers,
    refuses,
    replaced_before,
    shifted,
    short_body,
    slow_down,
    stalls,
    truncated,
    with_headers,
)
from servers.scripted_store import BUCKET, Response, Scenario, ScriptedStore

pytestmark = pytest.mark.fuse

DEADLINE_S = 25.0


def read_error(path: Path, offset: int = 0) -> OSError:
    """The error of a read; it must come within the deadline."""
    begun = time.monotonic()
    with open(path, "rb", buffering=0) as file, pytest.raises(OSError) as caught:  # noqa: PT011
        os.pread(file.fileno(), 4096, offset)
    assert time.monotonic() - begun < DEADLINE_S
    return caught.value


class TestFU09:
    """gcsfuse#671: objects with Content-Encoding gzip. What is stored is what is read."""

    def test_fu_09_stored_bytes_are_served_as_stored(self, node: Node, scripted_store: ScriptedStore) -> None:
        stored = b"\x1f\x8b\x08\x00" + os.urandom(440)
        scripted_store.put("f", stored, headers={"Content-Encoding": "gzip"})
        root = mount(node, scripted_store)
        assert (root / "f").stat().st_size == 444
        with open(root / "f", "rb", buffering=0) as file:
            assert os.pread(file.fileno(), 444, 100) == stored[100:]
        assert (root / "f").read_bytes() == stored
        assert (mount(node, scripted_store, "again") / "f").read_bytes() == stored, "from the cache too"

    def test_fu_09_a_store_that_decompresses_is_refused(self, node: Node, scripted_store: ScriptedStore) -> None:
        scripted_store.put("f", b"\x1f\x8b\x08\x00" + os.urandom(440))
        plain = b"p" * (1 << 20)
        scripted_store.on("f", lambda _, right: Response(200, {"ETag": right.headers["ETag"]}, plain))
        root = mount(node, scripted_store, mount=IMPATIENT)
        assert read_error(root / "f").errno == errno.EIO
        assert os.getxattr(root / "f", "user.stoker.cached") == b"0"


def test_fu_10_ends_of_files_are_exact_and_empty_ones_ask_nothing(node: Node, scripted_store: ScriptedStore) -> None:
    page, chunk = 16 << 10, 4 << 20
    contents = {f"s{size}": os.urandom(size) for size in (0, 1, page - 1, page, page + 1, chunk - 1, chunk, chunk + 1)}
    for key, data in contents.items():
        scripted_store.put(key, data)
    document = data_set("data", scripted_store.source())
    root = node.mount(document)
    for key, data in contents.items():
        with open(root / key, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            assert size == len(data)
            past = [os.pread(file.fileno(), 100, offset) for offset in (size, size + 1, size + page, size + (1 << 40))]
            assert past == [b""] * 4
            assert os.pread(file.fileno(), 100, max(0, size - 8)) == data[-8:], "as a reader of a footer does"
            assert file.read() == data
    assert node.ok("preload", "-f", "-", stdin=json.dumps(document)).startswith("preloaded data: 8 files of 8")
    assert scripted_store.count("s0") == 0


class TestFU11:
    """mountpoint-s3#785: an object is rewritten while a mount shows the old version."""

    @pytest.mark.parametrize("after", ["stat", "read"])
    @pytest.mark.parametrize("change", ["longer", "same size", "deleted"])
    def test_fu_11_never_mixed_and_a_new_mount_heals(
        self, node: Node, scripted_store: ScriptedStore, change: str, after: str
    ) -> None:
        size = 8 << 20
        old, new = os.urandom(size), os.urandom(size + (change == "longer") * 90)
        scripted_store.put("f", old)
        scripted_store.put("other", b"1")
        root = mount(node, scripted_store)
        with open(root / "f", "rb", buffering=0) as file:
            assert os.stat(root / "f").st_size == size
            if after == "read":
                assert os.pread(file.fileno(), 1 << 20, 0) == old[: 1 << 20]
            if change == "deleted":
                del scripted_store.objects[b"f"]
            else:
                scripted_store.put("f", new)
            assert old_or_stale(file.fileno(), old) == (after == "stat"), "what was read is kept, the rest is gone"
            assert os.fstat(file.fileno()).st_size == size, "the size is that of the version shown"
        fresh = mount(node, scripted_store, "fresh")
        if change == "deleted":
            assert os.listdir(fresh) == ["other"]
        else:
            assert (fresh / "f").read_bytes() == new

    def test_fu_11_a_store_that_ignores_if_match(self, node: Node, scripted_store: ScriptedStore) -> None:
        old, new = os.urandom(3 << 20), os.urandom(3 << 20)
        scripted_store.put("f", old)
        root = mount(node, scripted_store, mount=IMPATIENT)
        scripted_store.on("f", replaced_before(scripted_store, new))
        assert read_error(root / "f").errno == errno.ESTALE
        assert (mount(node, scripted_store, "fresh") / "f").read_bytes() == new


def old_or_stale(fd: int, old: bytes) -> bool:
    """Reads everything: each read gives old bytes, as many as there are, or ESTALE. Whether the first was stale."""
    stale = []
    offset = 0
    while offset < len(old):
        try:
            got = os.pread(fd, 256 << 10, offset)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            stale.append(offset)
            offset += 256 << 10
        else:
            assert got, "an end where there is none"
            assert got == old[offset : offset + len(got)], offset
            offset += len(got)
    assert stale, "the version is gone: something must be missing"
    return stale[0] == 0


BIG = 9 << 20


def wrong_bodies(store: ScriptedStore, after: int) -> dict[str, Scenario]:
    """`after`: where a body breaks off. From some pages on that is progress, and the rest is asked for."""
    return {
        "fin": truncated(after),
        "rst": truncated(after, reset=True),
        "nothing": truncated(0),
        "short": short_body(),
        "long": long_body(),
        "200 for a range": ignores_range(store),
        "range beside": shifted(16),
        "no content-range": with_headers(content_range=None),
        "stall": stalls(after),
        "silence": never_answers(),
        "500": refuses(500, "InternalError"),
        "503": slow_down(),
    }


class TestFU18:
    """requests#2275 and arrow-rs#4841: a body that is not what was asked for. Each fault on a file of its own."""

    def put(self, store: ScriptedStore, faults: list[str]) -> dict[str, bytes]:
        contents = {fault: os.urandom((5 << 20) + 17) for fault in faults}
        for key, data in contents.items():
            store.put(key, data)
        return contents

    def test_fu_18_one_bad_answer_is_mended_and_not_seen(self, node: Node, scripted_store: ScriptedStore) -> None:
        faults = wrong_bodies(scripted_store, 1_000_000)
        contents = self.put(scripted_store, list(faults))
        for key, fault in faults.items():
            scripted_store.on(key, fault, times=1)
        root = mount(node, scripted_store, mount={"retries": 5, "requestTimeout": "2s"})
        assert read_by_many(root, contents) == contents
        assert all(scripted_store.count(key) > 1 for key in faults)
        again = mount(node, scripted_store, "again")
        assert read_by_many(again, contents) == contents, "nothing wrong was stored"

    def test_fu_18_bad_answers_for_ever_are_eio_and_nothing_of_them_is_kept(
        self, node: Node, scripted_store: ScriptedStore
    ) -> None:
        faults = wrong_bodies(scripted_store, 1000)
        del faults["503"]  # it slows down all that is asked: FU-22
        contents = self.put(scripted_store, list(faults))
        down = [True]
        for key, fault in faults.items():
            scripted_store.on(key, while_down(down, fault))
        root = mount(node, scripted_store, mount=IMPATIENT)
        with ThreadPoolExecutor(4) as pool:
            errors = pool.map(lambda key: read_error(root / key, (5 << 20) - 4096).errno, faults)
            assert dict(zip(faults, errors, strict=True)) == dict.fromkeys(faults, errno.EIO)
        down.clear()
        wait_for(lambda: not any(error_number(root / key) for key in faults), what="the same mount heals")
        assert read_by_many(root, contents) == contents

    def test_fu_18_the_short_end_of_a_file(self, node: Node, scripted_store: ScriptedStore) -> None:
        data = os.urandom((4 << 20) + 10)
        scripted_store.put("f", data)
        scripted_store.on("f", short_body(), times=2)
        root = mount(node, scripted_store, mount={"retries": 5})
        with open(root / "f", "rb", buffering=0) as file:
            assert os.pread(file.fileno(), 100, 4 << 20) == data[4 << 20 :]
        assert (root / "f").read_bytes() == data


class TestFU20:
    """arrow-rs#4841: a web server without ranges, by an https source (behind a mirror without TLS)."""

    def web(self, store: ScriptedStore, key: str) -> dict[str, Any]:
        return {"uri": f"https://files.example/{BUCKET}/{key}", "endpoint": store.endpoint}

    @pytest.mark.parametrize("status", [403, 405, 501])
    def test_fu_20_head_is_not_allowed(self, node: Node, scripted_store: ScriptedStore, status: int) -> None:
        data = os.urandom(5 << 20)
        scripted_store.put("f.bin", data)
        scripted_store.on("f.bin", lambda request, right: Response(status) if request.method == "HEAD" else right)
        root = node.mount(data_set("ds", self.web(scripted_store, "f.bin")))
        assert (root / "f.bin").read_bytes() == data

    def test_fu_20_a_small_file_is_cut_out_of_the_whole(self, node: Node, scripted_store: ScriptedStore) -> None:
        data = os.urandom(3 << 20)
        scripted_store.put("f.bin", data)
        scripted_store.on("f.bin", ignores_range(scripted_store))
        root = node.mount(data_set("ds", self.web(scripted_store, "f.bin"), mount=IMPATIENT))
        with open(root / "f.bin", "rb", buffering=0) as file:
            assert os.pread(file.fileno(), 5000, 1_234_567) == data[1_234_567:1_239_567]
        assert (root / "f.bin").read_bytes() == data

    def test_fu_20_a_large_file_is_refused_once_and_for_all(self, node: Node, scripted_store: ScriptedStore) -> None:
        scripted_store.put("f.bin", os.urandom(BIG))
        scripted_store.on("f.bin", ignores_range(scripted_store))
        root = node.mount(data_set("ds", self.web(scripted_store, "f.bin"), mount=IMPATIENT))
        assert read_error(root / "f.bin", 5 << 20).errno == errno.EIO
        asked = scripted_store.count("f.bin", "GET")
        assert read_error(root / "f.bin", 7 << 20).errno == errno.EIO
        assert scripted_store.count("f.bin", "GET") == asked <= 3

    def test_fu_20_a_wrong_part_is_never_taken(self, node: Node, scripted_store: ScriptedStore) -> None:
        scripted_store.put("f.bin", os.urandom(BIG))
        scripted_store.on("f.bin", lambda request, right: shifted(16)(request, right) if right.status == 206 else right)
        root = node.mount(data_set("ds", self.web(scripted_store, "f.bin"), mount=IMPATIENT))
        assert read_error(root / "f.bin", 5 << 20).errno == errno.EIO


@pytest.mark.parametrize("etag", ['"d41d8cd98f00b204e9800998ecf8427e"', '"9b2cf535f27731c9-24"', 'W/"weak"', ""])
def test_fu_21_an_etag_is_a_version_and_no_checksum(node: Node, scripted_store: ScriptedStore, etag: str) -> None:
    data = os.urandom(1 << 20)
    scripted_store.put("f", data, etag=etag)
    document = data_set("data", scripted_store.source())
    root = node.mount(document)
    assert (root / "f").read_bytes() == data
    strong = etag.startswith('"')
    assert {request.headers.get("if-match") for request in scripted_store.of("f")} == {etag if strong else None}
    cached = os.getxattr(root / "f", "user.stoker.cached")
    assert cached == (b"0" if not etag else b"100"), "without an etag nothing says which version a stored page is of"


class TestFU22:
    """goofys#619: throttling is waited out; denial is not."""

    def test_fu_22_throttling_is_not_an_error(self, node: Node, scripted_store: ScriptedStore) -> None:
        contents = {f"f{number:02}": os.urandom(50_000) for number in range(40)}
        for number, (key, data) in enumerate(contents.items()):
            scripted_store.put(key, data)
            if number % 3 == 0:
                scripted_store.on(key, slow_down("1" if number == 0 else None), times=2)
            if number % 10 == 1:
                scripted_store.on(key, refuses(500, "InternalError"), times=2)
        root = mount(node, scripted_store)
        assert read_by_many(root, contents) == contents

    def test_fu_22_throttling_for_ever_ends_with_eio(self, node: Node, scripted_store: ScriptedStore) -> None:
        scripted_store.put("f", b"x" * 1000)
        down = [True]
        scripted_store.on("f", while_down(down, slow_down()))
        root = mount(node, scripted_store, mount=IMPATIENT)
        assert read_error(root / "f").errno == errno.EIO
        down.clear()
        wait_for(lambda: error_number(root / "f") is None, what="an error is remembered for seconds only")
        assert (root / "f").read_bytes() == b"x" * 1000

    def test_fu_22_denial_is_said_at_once(self, node: Node, scripted_store: ScriptedStore) -> None:
        scripted_store.put("f", b"x" * 1000)
        scripted_store.on("f", refuses(403, "AccessDenied"))
        root = mount(node, scripted_store)
        begun = time.monotonic()
        assert read_error(root / "f").errno == errno.EACCES
        assert time.monotonic() - begun < 5
        assert scripted_store.count("f") <= 2
