"""Stores that send a reader elsewhere, vanish, or lose an object while it is read: on real mounts, with what the store
was really asked, and what stays in the cache.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from servers.mounts import IMPATIENT, cached_percent, error_number, mount, while_down
from servers.node import Node, data_set, wait_for
from servers.scenarios import redirects, replaced_before, truncated
from servers.scripted_store import BUCKET, Request, Response, Scenario, ScriptedStore, running_store
from servers.stores import BucketStore

pytestmark = pytest.mark.fuse

MIB = 1 << 20
DEADLINE_S = 30.0
TOKEN = "the-session-token"


class TestRedirects:
    """A load balancer or a bucket of another place answers `go there`."""

    @pytest.mark.parametrize("token", ["", TOKEN], ids=["keys", "token"])
    def test_to_the_same_host(self, node: Node, scripted_store: ScriptedStore, token: str) -> None:
        node.settings["AWS_SESSION_TOKEN"] = token
        data = os.urandom(3 * MIB + 1)
        scripted_store.put("f", data)
        root = mount(node, scripted_store)
        scripted_store.put("moved", data)
        scripted_store.on("f", redirects(f"/{BUCKET}/moved", 307))
        assert (root / "f").read_bytes() == data
        assert cached_percent(root / "f") == 100
        assert scripted_store.count("moved", "GET") == scripted_store.count("f", "GET")

    def test_to_another_host(self, node: Node, scripted_store: ScriptedStore, elsewhere: ScriptedStore) -> None:
        data = os.urandom(3 * MIB + 1)
        for store in (scripted_store, elsewhere):
            store.put("f", data)
        scripted_store.on("f", redirects(elsewhere.url("f"), 307))
        root = mount(node, scripted_store)
        assert (root / "f").read_bytes() == data
        assert elsewhere.count("f", "GET") > 0
        assert not any({"authorization", "cookie"} & request.headers.keys() for request in elsewhere.requests)

    def test_with_a_session_token_no_other_host_is_asked(
        self, node: Node, scripted_store: ScriptedStore, elsewhere: ScriptedStore
    ) -> None:
        node.settings["AWS_SESSION_TOKEN"] = TOKEN
        data = os.urandom(3 * MIB + 1)
        for store in (scripted_store, elsewhere):
            store.put("f", data)
        down = [True]
        scripted_store.on("f", while_down(down, redirects(elsewhere.url("f"), 307)))
        root = mount(node, scripted_store, mount=IMPATIENT)
        assert error_number(root / "f") == errno.EIO
        assert elsewhere.requests == []
        assert cached_percent(root / "f") == 0
        assert {request.headers["x-amz-security-token"] for request in scripted_store.of("f", "GET")} == {TOKEN}
        assert '"SourceUnavailable"' in node.log()
        assert "redirects to another host" in node.log()
        assert TOKEN not in node.log()
        down.clear()
        wait_for(lambda: error_number(root / "f") is None, what="the same mount heals")
        assert (root / "f").read_bytes() == data

    def test_to_another_version(self, node: Node, scripted_store: ScriptedStore, elsewhere: ScriptedStore) -> None:
        scripted_store.put("f", os.urandom(MIB))
        elsewhere.put("f", os.urandom(MIB))
        scripted_store.on("f", redirects(elsewhere.url("f"), 307))
        root = mount(node, scripted_store, mount=IMPATIENT)
        assert error_number(root / "f") == errno.ESTALE
        assert cached_percent(root / "f") == 0


def test_a_store_that_is_down_is_eio_in_time_and_heals_when_it_is_back(node: Node) -> None:
    """Nobody listens at its port: each connection is refused."""
    contents = {"read before": os.urandom(2 * MIB), "not yet": os.urandom(2 * MIB)}
    with running_store() as store:
        for key, data in contents.items():
            store.put(key, data)
        root = mount(node, store, mount=IMPATIENT)
        assert (root / "read before").read_bytes() == contents["read before"]
    began = time.monotonic()
    assert error_number(root / "not yet") == errno.EIO
    assert time.monotonic() - began < DEADLINE_S
    assert cached_percent(root / "not yet") == 0
    assert (root / "read before").read_bytes() == contents["read before"]
    assert '"SourceUnavailable"' in node.log()
    with running_store(store):
        wait_for(lambda: error_number(root / "not yet") is None, what="the same mount heals")
        assert {key: (root / key).read_bytes() for key in contents} == contents


class TestInMidRead:
    """The answer breaks off, and the rest is asked for when the object is another one, or gone."""

    KEPT = 2 * MIB

    @pytest.mark.parametrize("change", ["replaced", "replaced, if-match ignored", "longer", "deleted"])
    def test_between_two_answers_for_one_range(self, node: Node, scripted_store: ScriptedStore, change: str) -> None:
        old, new = os.urandom(8 * MIB), os.urandom(8 * MIB + (change == "longer"))
        scripted_store.put("f", old)
        root = mount(node, scripted_store)
        scripted_store.on("f", cut_and(scripted_store, self.KEPT, change, new), times=1)
        if change == "replaced, if-match ignored":
            scripted_store.on("f", replaced_before(scripted_store, new))
        parts = read_on(root / "f", len(old))
        assert any(part is None for part in parts.values()), "what had not come is gone"
        assert all(part in (None, old[at : at + len(part or b"")]) for at, part in parts.items())
        check_kept(node, scripted_store, old)
        if change == "deleted":
            scripted_store.put("other", b"1")
            assert os.listdir(mount(node, scripted_store, "new")) == ["other"]
        else:
            assert (mount(node, scripted_store, "new") / "f").read_bytes() == new

    @pytest.mark.parametrize("change", ["replaced", "deleted"])
    def test_on_a_real_store_under_many_readers(self, node: Node, bucket: BucketStore, change: str) -> None:
        old, new = os.urandom(48 * MIB), os.urandom(48 * MIB)
        bucket.put("f", old)
        bucket.put("other", b"1")
        root = node.mount(data_set("data", bucket.source()))
        begun = threading.Barrier(5)
        with ThreadPoolExecutor(4) as pool:
            readers = [pool.submit(read_on, root / "f", len(old), start * MIB, begun) for start in (0, 7, 20, 33)]
            begun.wait(DEADLINE_S)
            if change == "replaced":
                bucket.put("f", new)
            else:
                bucket.delete("f")
            found = [reader.result(60) for reader in readers]
        assert all(part in (None, old[at : at + len(part or b"")]) for parts in found for at, part in parts.items())
        fresh = node.mount(data_set("data", bucket.source()), "fresh")
        if change == "replaced":
            assert (fresh / "f").read_bytes() == new
        else:
            assert os.listdir(fresh) == ["other"]


def cut_and(store: ScriptedStore, after: int, change: str, new: bytes) -> Scenario:
    """Some bytes of the old object, and then there is no such object any more."""

    def cut(request: Request, right: Response) -> Response:
        if change == "deleted":
            del store.objects[request.key]
        elif change != "replaced, if-match ignored":
            store.put(request.key, new)
        return truncated(after)(request, right)

    return cut


def read_on(path: Path, size: int, start: int = 0, begun: threading.Barrier | None = None) -> dict[int, bytes | None]:
    """Steps of a stream from `start` on: the bytes, or None for ESTALE. `begun` is told after the first."""
    parts: dict[int, bytes | None] = {}
    with open(path, "rb", buffering=0) as file:
        for offset in range(start, size, 128 << 10):
            try:
                parts[offset] = os.pread(file.fileno(), min(128 << 10, size - offset), offset)
                assert parts[offset], "an end where there is none"
            except OSError as error:
                if error.errno != errno.ESTALE:
                    raise
                parts[offset] = None
            if begun is not None and offset == start:
                begun.wait(DEADLINE_S)
    return parts


def check_kept(node: Node, store: ScriptedStore, old: bytes) -> None:
    """Another handle, with nothing in the kernel's memory: old bytes or ESTALE, as before."""
    path = node.root / "data" / "f"
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    parts = read_on(path, len(old))
    assert all(part in (None, old[at : at + len(part or b"")]) for at, part in parts.items())
    assert cached_percent(path) < 100
