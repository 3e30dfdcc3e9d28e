"""CASES of area cache on real mounts: one version, bounds, isolation, honesty of what is kept on disk. The same ids in
core/tests hold the parts to it; here whoever reads or preloads is asked.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from servers.mounts import IMPATIENT, cached_percent, error_number, mount
from servers.node import Node, data_set, running_node, wait_for
from servers.scenarios import never_answers, redirects, refuses, replaced_before, truncated
from servers.scripted_store import Request, Response, Scenario, ScriptedStore, listing, running_store

pytestmark = pytest.mark.fuse

MIB = 1 << 20


def cached_files(node: Node) -> list[Path]:
    return [path for path in (node.root / "cache" / "objects").rglob("*") if path.is_file()]


class TestCA01:
    """alluxio#16225: replaced by another of the same or a larger length."""

    @pytest.mark.parametrize("obeys", [True, False], ids=["if-match", "store ignores if-match"])
    @pytest.mark.parametrize("longer", [0, 5 * MIB])
    def test_ca_01_all_old_or_an_error_and_a_new_mount_all_new(
        self, node: Node, scripted_store: ScriptedStore, longer: int, obeys: bool
    ) -> None:
        old, new = os.urandom(20 * MIB), os.urandom(20 * MIB + longer)
        scripted_store.put("f", old)
        root = mount(node, scripted_store, mount={**IMPATIENT, "readAhead": {"max": 0}})
        with open(root / "f", "rb", buffering=0) as file:
            assert os.pread(file.fileno(), 8 * MIB, 0) == old[: 8 * MIB], "blocks 0 and 1"
        if obeys:
            scripted_store.put("f", new)  # the same second: its time does not tell
        else:
            scripted_store.on("f", replaced_before(scripted_store, new))
        with pytest.raises(OSError, match="Stale") as caught:
            (root / "f").read_bytes()
        assert caught.value.errno == errno.ESTALE
        with open(root / "f", "rb", buffering=0) as file:
            assert os.pread(file.fileno(), 4 * MIB, 0) == old[: 4 * MIB], "what was read stays the old version"
        assert (mount(node, scripted_store, "new") / "f").read_bytes() == new


@pytest.mark.parametrize("read_before", [True, False])
def test_ca_02_size_and_bytes_are_of_one_version(node: Node, scripted_store: ScriptedStore, read_before: bool) -> None:
    scripted_store.put("f", b"twelve bytes")
    root = mount(node, scripted_store)
    assert (root / "f").stat().st_size == 12
    if read_before:
        assert (root / "f").read_bytes() == b"twelve bytes"
    scripted_store.put("f", b"fourteen bytes")
    if read_before:
        assert (root / "f").read_bytes() == b"twelve bytes"
    else:
        with pytest.raises(OSError, match="Stale"):
            (root / "f").read_bytes()
    assert (root / "f").stat().st_size == 12
    fresh = mount(node, scripted_store, "fresh")
    assert (fresh / "f").read_bytes() == b"fourteen bytes"
    assert (fresh / "f").stat().st_size == 14


class TestCA05:
    """alluxio#18723: the index lists what is no longer there."""

    @pytest.mark.parametrize("size", [100_000, 9 * MIB])
    def test_ca_05_removed_files_are_fetched_again(self, node: Node, scripted_store: ScriptedStore, size: int) -> None:
        data = os.urandom(size)
        scripted_store.put("f", data)
        root = mount(node, scripted_store)
        assert (root / "f").read_bytes() == data
        wait_for(lambda: cached_files(node))
        for path in cached_files(node):
            path.unlink()
        for pid in [*node.pids("worker"), *node.pids("fetcher")]:
            node.kill(pid)  # who had the file open could still read it
        # Another mount: nothing of it is in the memory of the kernel.
        assert (mount(node, scripted_store, "again") / "f").read_bytes() == data
        wait_for(lambda: len(cached_files(node)) == 1, what="it is kept again")


OUTAGES: dict[str, Scenario] = {
    "500": refuses(500, "InternalError"),
    "name not found": redirects("http://gone.invalid/f"),
    "403": refuses(403, "AccessDenied"),
    "404 of a proxy": lambda _, __: Response(404, body=b"<html>not here</html>"),
    "redirect": redirects("http://127.0.0.1:9/elsewhere"),
    "reset": truncated(0, reset=True),
    "timeout": never_answers(),
}


class TestCA07:
    """alluxio#16236: a store that is down has no missing files."""

    def test_ca_07_a_read_fails_as_what_it_is_and_heals(self, node: Node, scripted_store: ScriptedStore) -> None:
        """Each outage on a file of its own."""
        down = [True]
        for key, outage in OUTAGES.items():
            scripted_store.put(key, key.encode())
            scripted_store.on(key, lambda request, right, fail=outage: fail(request, right) if down else right)
        root = mount(node, scripted_store, mount=IMPATIENT)
        expected = {key: errno.EACCES if key == "403" else errno.EIO for key in OUTAGES}
        assert {key: error_number(root / key) for key in OUTAGES} == expected
        assert sorted(os.listdir(root)) == sorted(OUTAGES)
        down.clear()
        wait_for(lambda: not any(error_number(root / key) for key in OUTAGES), what="the same mount heals")
        assert {key: (root / key).read_bytes() for key in OUTAGES} == {key: key.encode() for key in OUTAGES}

    @pytest.mark.parametrize("outage", [name for name in OUTAGES if name not in ("timeout", "name not found")])
    def test_ca_07_a_listing_is_never_shortened(self, node: Node, scripted_store: ScriptedStore, outage: str) -> None:
        """The second page fails. (One that is waited for is given a minute: that is tested with the sources.)"""
        for number in range(1500):
            scripted_store.put(f"f{number:04}", b"")

        def fails(request: Request, right: Response) -> Response:
            return OUTAGES[outage](request, right) if "continuation-token" in request.query else right

        scripted_store.on_list(fails)
        (node.root / "data").mkdir()
        document = data_set("data", {**scripted_store.source(), "ignoreMissing": True}, mount=IMPATIENT)
        done = node.run("mount", "-f", "-", "data", stdin=json.dumps(document), timeout=100)
        assert done.returncode == 1, done
        reason = done.stderr.splitlines()[-1].partition(":")[0]
        assert reason in ("SourceUnavailable", "AccessDenied", "CorruptResponse", "Throttled"), done.stderr
        assert not os.path.ismount(node.root / "data")

    def test_ca_07_a_name_that_nobody_knows(self, node: Node) -> None:
        """A fault of the name server is no empty bucket, even where one would be allowed."""
        (node.root / "data").mkdir()
        source = {"uri": "s3://bucket/", "endpoint": "http://store.invalid:9000", "ignoreMissing": True}
        document = data_set("data", source, mount=IMPATIENT)
        done = node.run("mount", "-f", "-", "data", stdin=json.dumps(document), timeout=100)
        assert done.returncode == 1, done
        assert done.stderr.splitlines()[-1].startswith("SourceUnavailable: "), done.stderr
        assert not os.path.ismount(node.root / "data")

    def test_ca_07_nobody_answers_at_the_address(self, node: Node) -> None:
        with running_store() as store:
            store.put("f", b"x" * 1000)
            root = mount(node, store, mount=IMPATIENT)
        with pytest.raises(OSError, match="Input/output") as caught:
            (root / "f").read_bytes()
        assert caught.value.errno == errno.EIO


class TestCA10:
    """azure-storage-fuse#1341: equal names in different places are different objects; etag and size are equal here."""

    ETAG = '"0123456789abcdef0123456789abcdef"'

    def test_ca_10_one_bucket_name_at_two_endpoints(self, node: Node) -> None:
        with running_store() as one, running_store() as two:
            one.put("index.html", b"of one", etag=self.ETAG)
            two.put("index.html", b"of two", etag=self.ETAG)
            roots = [mount(node, store, name) for store, name in ((one, "one"), (two, "two"))]
            assert [(root / "index.html").read_bytes() for root in roots] == [b"of one", b"of two"]

    def test_ca_10_two_buckets(self, node: Node, scripted_store: ScriptedStore) -> None:
        scripted_store.put("index.html", b"of one", etag=self.ETAG)
        # The store knows one bucket: another is a folder of it, and is listed by hand.
        scripted_store.put("other/index.html", b"of two", etag=self.ETAG)
        shown = listing([(b"index.html", scripted_store.objects[b"index.html"])])
        scripted_store.on_list(lambda _, __: shown)
        roots = [
            node.mount(data_set(name, {**scripted_store.source(), "uri": f"s3://{bucket}/"}), name)
            for name, bucket in (("one", "bucket"), ("two", "other"))
        ]
        assert [(root / "index.html").read_bytes() for root in roots] == [b"of one", b"of two"]

    def test_ca_10_two_prefixes_share_only_what_is_one_object(self, node: Node, scripted_store: ScriptedStore) -> None:
        for key in ("a/index.html", "b/index.html"):
            scripted_store.put(key, f"of {key[0]}".encode(), etag=self.ETAG)
        roots = {
            name: node.mount(data_set(name, scripted_store.source(below)), name)
            for name, below in (("a", "a/"), ("b", "b/"), ("all", ""))
        }
        assert [(roots[name] / "index.html").read_bytes() for name in ("a", "b")] == [b"of a", b"of b"]
        asked = len(scripted_store.requests)
        assert [(roots["all"] / name / "index.html").read_bytes() for name in ("a", "b")] == [b"of a", b"of b"]
        assert len(scripted_store.requests) == asked, "a larger source of the same bucket finds them in the cache"


def test_ca_11_nobody_else_may_look_into_the_folders_of_a_node(scratch: Path, scripted_store: ScriptedStore) -> None:
    scripted_store.put("f", os.urandom(5 * MIB))
    before = os.umask(0)
    try:
        with running_node(scratch, AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b") as node:
            root = mount(node, scripted_store, mount={"uid": 1000, "fileMode": "0777", "dirMode": "0777"})
            (root / "f").read_bytes()
            wait_for(lambda: cached_files(node))
            for folder in ("cache", "state", "run"):
                assert stat.S_IMODE((scratch / folder).stat().st_mode) == 0o700, folder
            for path in (scratch / "cache").rglob("*"):
                wanted = 0o700 if path.is_dir() else 0o600
                assert stat.S_IMODE(path.stat().st_mode) == wanted, path
    finally:
        os.umask(before)


class TestCA12:
    """rclone#9383: what a bulk copy leaves out is said."""

    @pytest.fixture
    def document(self, scripted_store: ScriptedStore) -> dict[str, Any]:
        for number in range(5):
            scripted_store.put(f"2026/1/f{number}", b"x" * 1000)
        return data_set("data", scripted_store.source("2026/1/"), mount=IMPATIENT)

    def test_ca_12_keys_that_a_folder_cannot_show(
        self, node: Node, scripted_store: ScriptedStore, document: dict[str, Any]
    ) -> None:
        scripted_store.put("2026/1//x", b"odd")
        root = node.mount(document)
        done = node.run("preload", "-f", "-", stdin=json.dumps(document))
        assert done.returncode == 3, done
        assert done.stdout.startswith("preloaded data: 5 files of 5")
        assert "EmptyComponent" in done.stderr
        (job,) = node.api("GET", "/v1/status")["jobs"]
        assert (job["phase"], job["skipped"]) == ("PartiallySucceeded", {"EmptyComponent": 1})
        assert all(cached_percent(root / f"f{number}") == 100 for number in range(5))

    def test_ca_12_an_object_that_fails_is_named_and_comes_with_the_next_run(
        self, node: Node, scripted_store: ScriptedStore, document: dict[str, Any]
    ) -> None:
        down = [True]
        scripted_store.on("2026/1/f3", lambda q, right: refuses(500, "InternalError")(q, right) if down else right)
        root = node.mount(document)
        done = node.run("preload", "-f", "-", stdin=json.dumps(document))
        assert done.returncode == 3, done
        assert "SourceUnavailable: f3: " in done.stderr
        assert done.stdout.startswith("preloaded data: 4 files of 5")
        down.clear()
        before = {number: scripted_store.count(f"2026/1/f{number}") for number in range(5)}
        assert node.ok("preload", "-f", "-", stdin=json.dumps(document)).startswith("preloaded data: 5 files of 5")
        assert cached_percent(root / "f3") == 100
        assert all(scripted_store.count(f"2026/1/f{number}") == before[number] for number in (0, 1, 2, 4))
