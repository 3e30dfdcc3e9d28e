"""Shapes of sources on real mounts: very many keys, odd uris, one object, web files, copies that stand in."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from servers.mounts import IMPATIENT
from servers.node import Node, data_set
from servers.scenarios import never_answers, refuses
from servers.scripted_store import BUCKET, Response, ScriptedStore, running_store
from servers.stores import Store

pytestmark = pytest.mark.fuse

MANY = 100_000


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.mark.timeout(300)
def test_100_000_files_in_one_folder(node: Node, scratch: Path) -> None:
    origin = scratch / "origin" / "big"
    origin.mkdir(parents=True)
    first = origin / "f000000"
    first.write_bytes(b"x")
    # Links are made faster than files, and a source shows each as a file. A file system allows 65,000 of one.
    for number in range(1, MANY):
        if number == MANY // 2:
            first = origin / f"f{number:06}"
            first.write_bytes(b"x")
        else:
            os.link(first, origin / f"f{number:06}")
    root = node.mount(data_set("ds", {"uri": f"file://{scratch}/origin/"}))
    assert node.status()["files"] == MANY
    assert names(root / "big") == [f"f{number:06}" for number in range(MANY)]
    with os.scandir(root / "big") as entries:
        inodes = {entry.inode() for entry in entries}
    assert len(inodes) == MANY
    assert (root / "big" / f"f{MANY - 1:06}").read_bytes() == b"x"
    with pytest.raises(FileNotFoundError):
        os.stat(root / "big" / f"f{MANY:06}")


def test_unicode_in_uri_folders_and_files(node: Node, store: Store) -> None:
    keys = ["daten/\u4e2d\u6587/\U0001f600.txt", "daten/gr\u00fc\u00df e/\u0639\u0631\u0628\u064a", "daten/e\u0301"]
    for key in keys:
        store.put(f"\u00fcber/{key}", key.encode())
    store.put("uber/other", b"no")
    root = node.mount(data_set("ds", store.source("\u00fcber/")))
    assert names(root / "daten") == sorted(["\u4e2d\u6587", "gr\u00fc\u00df e", "e\u0301"])
    assert [(root / key).read_bytes().decode() for key in keys] == keys
    assert os.getxattr(root / keys[0], "user.stoker.uri").decode().endswith(keys[0])


class TestOneObject:
    def test_uri_file_by_type_and_by_itself(self, node: Node, store: Store) -> None:
        data = os.urandom(6_000_000)
        store.put("models/llm.safetensors", data)
        store.put("models/llm.safetensors.index.json", b"{}")
        for name, spec in (("typed", {"type": "uri_file"}), ("untyped", {})):
            root = node.mount(data_set(name, store.source("models/llm.safetensors"), **spec), name)
            assert names(root) == ["llm.safetensors"]
            assert (root / "llm.safetensors").read_bytes() == data

    def test_a_key_that_equals_the_uri(self, node: Node, scripted_store: ScriptedStore) -> None:
        """A prefix that is also a key: the folder, without a nameless file in it."""
        scripted_store.put("set/", b"marker with content")
        scripted_store.put("set/a", b"1")
        scripted_store.put("setb", b"2")
        root = node.mount(data_set("ds", scripted_store.source("set/")))
        assert names(root) == ["a"]
        assert (root / "a").read_bytes() == b"1"

    def test_an_object_and_a_folder_of_the_uri_s_name(self, node: Node, scripted_store: ScriptedStore) -> None:
        scripted_store.put("set", b"one object")
        scripted_store.put("set/a", b"1")
        folder = node.mount(data_set("folder", scripted_store.source("set/")), "folder")
        assert names(folder) == ["a"]
        either = node.mount(data_set("either", scripted_store.source("set")), "either")
        assert names(either) == ["a"], "the folder wins, as everywhere"
        assert node.status("either")["hidden"] == {"ShadowedByDirectory": 1}
        file = node.mount(data_set("file", scripted_store.source("set"), type="uri_file"), "file")
        assert names(file) == ["set"], "the document says which of the two"
        assert (file / "set").read_bytes() == b"one object"

    def test_a_folder_is_no_uri_file(self, node: Node, store: Store) -> None:
        store.put("set/a", b"1")
        (node.root / "data").mkdir()
        document = data_set("data", store.source("set"), type="uri_file")
        done = node.run("mount", "-f", "-", "data", stdin=json.dumps(document))
        assert (done.returncode, done.stderr.partition(":")[0]) == (1, "SourceNotFound")

    def test_a_prefix_is_a_folder_and_no_beginning_of_a_name(self, node: Node, store: Store) -> None:
        store.put("train/a", b"1")
        store.put("training/b", b"2")
        root = node.mount(data_set("ds", store.source("train")))
        assert names(root) == ["a"]


class TestSeveralSources:
    def test_prefixes_share_a_path_and_the_first_wins(self, node: Node, store: Store) -> None:
        for key in ("one/a", "one/both", "two/both", "two/sub/b"):
            store.put(key, key.encode())
        sources = [{**store.source(f"{name}/"), "name": name, "path": "/"} for name in ("one", "two")]
        root = node.mount(data_set("ds", *sources))
        assert names(root) == ["a", "both", "sub"]
        assert (root / "both").read_bytes() == b"one/both"
        assert (root / "sub/b").read_bytes() == b"two/sub/b"
        assert node.status()["hidden"] == {"ShadowedBySource": 1}

    def test_a_store_and_a_web_file_and_a_folder(
        self, node: Node, scratch: Path, scripted_store: ScriptedStore
    ) -> None:
        (scratch / "local").mkdir()
        (scratch / "local" / "f").write_bytes(b"local")
        scripted_store.put("deep/f", b"bucket")
        scripted_store.put("web/f", b"web")
        root = node.mount(
            data_set(
                "ds",
                {**scripted_store.source("deep/"), "name": "bucket"},
                {"name": "local", "uri": f"file://{scratch}/local/"},
                {**web(scripted_store, "web/f"), "name": "web"},
            )
        )
        assert names(root) == ["bucket", "local", "web"]
        assert [(root / name / "f").read_bytes() for name in names(root)] == [b"bucket", b"local", b"web"]

    def test_one_source_that_fails_fails_the_mount_by_name(self, node: Node, scripted_store: ScriptedStore) -> None:
        scripted_store.put("a/f", b"1")
        (node.root / "data").mkdir()
        sources = [
            {**scripted_store.source("a/"), "name": "good"},
            {**scripted_store.source("nothing/"), "name": "bad"},
        ]
        with pytest.raises(AssertionError, match=r"SourceEmpty: .*nothing"):
            node.mount(data_set("ds", *sources))
        assert not os.path.ismount(node.root / "data")


def web(store: ScriptedStore, key: str) -> dict[str, Any]:
    """A web file, by a mirror: the store has no TLS."""
    return {"uri": f"https://files.example/{BUCKET}/{key}", "endpoint": store.endpoint}


class TestWebFiles:
    def test_one_file_by_its_url(self, node: Node, scripted_store: ScriptedStore) -> None:
        data = os.urandom(9_000_001)
        scripted_store.put("dir/a file.bin", data)
        root = node.mount(data_set("ds", web(scripted_store, "dir/a%20file.bin")))
        assert names(root) == ["a file.bin"]
        assert (root / "a file.bin").read_bytes() == data
        with open(root / "a file.bin", "rb", buffering=0) as file:
            assert os.pread(file.fileno(), 10, 8_500_000) == data[8_500_000:8_500_010]

    def test_uri_file(self, node: Node, scripted_store: ScriptedStore) -> None:
        scripted_store.put("dir/f", b"1")
        root = node.mount(data_set("ds", web(scripted_store, "dir/f"), type="uri_file"))
        assert names(root) == ["f"]
        assert (root / "f").read_bytes() == b"1"

    def test_a_list_of_urls(self, node: Node, scripted_store: ScriptedStore) -> None:
        for key in ("x.bin", "y.bin"):
            scripted_store.put(key, key.encode())
        sources = [{**web(scripted_store, key), "path": "/", "name": key} for key in ("x.bin", "y.bin")]
        root = node.mount(data_set("ds", *sources))
        assert names(root) == ["x.bin", "y.bin"]
        assert [(root / key).read_bytes() for key in names(root)] == [b"x.bin", b"y.bin"]

    def test_a_signature_in_the_url_is_sent_and_never_shown(self, node: Node, scripted_store: ScriptedStore) -> None:
        scripted_store.put("f", b"signed")
        scripted_store.on("f", lambda request, right: right if "sig" in request.query else Response(403))
        root = node.mount(data_set("ds", web(scripted_store, "f?sig=SECRETWORD")))
        assert names(root) == ["f"]
        assert (root / "f").read_bytes() == b"signed"
        shown = [os.getxattr(root / "f", "user.stoker.uri").decode(), node.log(), node.ok("status", "--json")]
        assert not [text for text in shown if "SECRETWORD" in text]

    def test_a_file_that_is_not_there(self, node: Node, scripted_store: ScriptedStore) -> None:
        with pytest.raises(AssertionError, match="SourceNotFound: "):
            node.mount(data_set("ds", web(scripted_store, "missing"), mount=IMPATIENT))

    @pytest.mark.parametrize("change", ["replaced", "deleted"])
    def test_a_changed_file_is_estale(self, node: Node, scripted_store: ScriptedStore, change: str) -> None:
        scripted_store.put("f", b"a" * 1000)
        root = node.mount(data_set("ds", web(scripted_store, "f"), mount=IMPATIENT))
        if change == "deleted":
            del scripted_store.objects[b"f"]
        else:
            scripted_store.put("f", b"b" * 1000)
        with pytest.raises(OSError, match="Stale") as caught:
            (root / "f").read_bytes()
        assert caught.value.errno == errno.ESTALE


@pytest.mark.parametrize("change", ["changed", "deleted"])
def test_others_stay_readable_beside_an_object_that_is_gone(node: Node, store: Store, change: str) -> None:
    for key in ("a", "b", "c"):
        store.put(key, key.encode() * 1000)
    root = node.mount(data_set("ds", store.source()))
    if change == "changed":
        store.put("b", b"other size")
    else:
        store.delete("b")
    with pytest.raises(OSError, match="Stale"):
        (root / "b").read_bytes()
    assert [(root / key).read_bytes() for key in "ac"] == [b"a" * 1000, b"c" * 1000]
    assert names(root) == ["a", "b", "c"], "the generation stays as it was listed"
    fresh = node.mount(data_set("fresh", store.source()), "fresh")
    assert names(fresh) == (["a", "b", "c"] if change == "changed" else ["a", "c"])
    if change == "changed":
        assert (fresh / "b").read_bytes() == b"other size"


class TestReplicas:
    """Copies at other uris, of the same etags."""

    def source(self, store: ScriptedStore) -> dict[str, Any]:
        return {**store.source("one/"), "replicas": [f"s3://{BUCKET}/two/"]}

    @pytest.fixture
    def data(self, scripted_store: ScriptedStore) -> bytes:
        data = os.urandom(5_000_000)
        for folder in ("one", "two"):
            scripted_store.put(f"{folder}/f", data)
        return data

    def test_a_replica_is_read_when_the_source_fails(
        self, node: Node, scripted_store: ScriptedStore, data: bytes
    ) -> None:
        root = node.mount(data_set("ds", self.source(scripted_store), mount=IMPATIENT))
        scripted_store.on("one/f", refuses(500, "InternalError"))
        assert (root / "f").read_bytes() == data
        assert scripted_store.count("two/f") > 0

    def test_a_replica_is_listed_when_the_source_fails(
        self, node: Node, scripted_store: ScriptedStore, data: bytes
    ) -> None:
        scripted_store.on_list(
            lambda request, right: (
                refuses(500, "InternalError")(request, right) if request.query["prefix"].startswith(b"one") else right
            )
        )
        scripted_store.on("one/f", never_answers())
        root = node.mount(data_set("ds", self.source(scripted_store), mount=IMPATIENT))
        assert (root / "f").read_bytes() == data

    def test_another_version_at_the_replica_is_never_taken(
        self, node: Node, scripted_store: ScriptedStore, data: bytes
    ) -> None:
        root = node.mount(data_set("ds", self.source(scripted_store), mount=IMPATIENT))
        scripted_store.put("two/f", data[::-1])
        scripted_store.on("one/f", refuses(500, "InternalError"))
        with pytest.raises(OSError) as caught:  # noqa: PT011
            (root / "f").read_bytes()
        assert caught.value.errno in (errno.EIO, errno.ESTALE)


def test_a_mount_outlives_its_store_for_what_is_cached(node: Node) -> None:
    data = os.urandom(3_000_000)
    with running_store() as store:
        store.put("f", data)
        store.put("g", data[:1000])
        root = node.mount(data_set("ds", store.source(), mount=IMPATIENT))
        assert (root / "f").read_bytes() == data
    with open(root / "f", "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert file.read() == data
    with pytest.raises(OSError, match="Input/output"):
        (root / "g").read_bytes()
