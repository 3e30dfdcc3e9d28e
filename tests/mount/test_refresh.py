"""A refresh on real mounts: what it finds, who sees it, what a failure leaves; objects that change under a mount."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path

import pytest

from servers.generations import (
    NONE,
    answers,
    change,
    condition,
    everything,
    evicted,
    known,
    manifests,
    refresh,
    written,
)
from servers.mounts import error_number, mount
from servers.node import Node, data_set, wait_for
from servers.scenarios import refuses
from servers.scripted_store import Request, Response, ScriptedStore, running_store
from servers.stores import BucketStore

pytestmark = pytest.mark.fuse

MIB = 1 << 20
PAGE = 16 << 10


class TestWhatIsShown:
    def test_new_mounts_show_the_new_generation_and_old_ones_keep_theirs(
        self, node: Node, filled: ScriptedStore
    ) -> None:
        old = mount(node, filled)
        before = everything(old)
        inodes = {name: (old / name).stat().st_ino for name in before}
        after = change(filled)
        asked = len(filled.requests)
        found = refresh(node)
        assert found["changed"] == {"added": 1, "removed": 1, "modified": 1}
        assert found["new"]
        assert found["keptBy"] == [str(old)]
        assert {"files": 3, "bytes": 220_000}.items() <= found["generation"].items()
        assert all(request.is_list for request in filled.requests[asked:]), "a refresh lists and reads nothing"
        new = node.mount(data_set("data", filled.source()), "new")
        assert everything(new) == after
        assert filled.count("stays", "GET") == 1, "what did not change is not read again"
        for name, data in before.items():
            with open(old / name, "rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                assert file.read(1 << 20) == data
        assert {name: (old / name).stat().st_ino for name in before} == inodes
        assert evicted(node) == 0, "the old mount needs them"

    def test_nothing_changed_is_no_new_generation_and_nothing_is_written(
        self, node: Node, filled: ScriptedStore
    ) -> None:
        everything(mount(node, filled))
        wait_for(lambda: known(node)["heldFiles"] == 3)
        first, before = refresh(node), written(node)
        for _ in range(3):
            assert refresh(node) == {**first, "new": False, "changed": NONE}
        assert written(node) == before
        assert len(manifests(node)) == 1

    @pytest.mark.slow
    def test_changed_back_is_the_newest_generation_again(self, node: Node, filled: ScriptedStore) -> None:
        mount(node, filled)
        removed = filled.objects[b"removed"]
        first = known(node)["generation"]["digest"]
        del filled.objects[b"removed"]
        assert refresh(node)["changed"] == {**NONE, "removed": 1}
        filled.objects[b"removed"] = removed
        found = refresh(node)
        assert (found["changed"], found["generation"]["digest"]) == ({**NONE, "added": 1}, first)
        shown = json.loads(node.ok("manifest", "show", "data", "--json").splitlines()[0])
        assert shown["generation"] == first
        assert "1 added" in node.ok("manifest", "diff", "data")

    @pytest.mark.slow
    def test_of_one_that_is_mounted_several_times(self, node: Node, filled: ScriptedStore) -> None:
        roots = [node.mount(data_set("data", filled.source()), name) for name in ("a", "b")]
        everything(roots[0])
        after = change(filled)
        assert refresh(node)["keptBy"] == [str(root) for root in reversed(roots)]
        node.ok("unmount", str(roots[0]))
        node.mount(data_set("data", filled.source()), "a")
        assert everything(roots[0]) == after
        assert sorted(os.listdir(roots[1])) == ["modified", "removed", "stays"]
        assert refresh(node)["keptBy"] == [str(roots[1])]

    def test_of_one_that_is_only_known(self, node: Node, filled: ScriptedStore) -> None:
        node.ok("apply", "-f", "-", stdin=json.dumps(data_set("data", filled.source())))
        assert known(node)["generation"] is None
        assert refresh(node)["generation"]["files"] == 3
        change(filled)
        said = node.ok("refresh", "data")
        assert re.match(r"refreshed default/data: 1 added, 1 removed, 1 modified; 3 files, ", said)
        assert known(node)["generation"]["changed"] == {"added": 1, "removed": 1, "modified": 1}

    @pytest.mark.slow
    def test_after_a_restart_of_the_node_the_command_hands_over_credentials(
        self, node: Node, filled: ScriptedStore
    ) -> None:
        mount(node, filled)
        node.ok("node", "--stop")
        change(filled)
        filled.requests.clear()
        assert refresh(node)["changed"] == {"added": 1, "removed": 1, "modified": 1}
        assert all("authorization" in request.headers for request in filled.requests)

    def test_of_one_that_is_not_known(self, node: Node) -> None:
        done = node.run("refresh", "nothing")
        assert done.returncode == 1
        assert done.stderr.startswith("DataSetNotFound: default/nothing: "), done.stderr

    def test_a_preload_loads_the_new_generation(self, node: Node, filled: ScriptedStore) -> None:
        document = json.dumps(data_set("data", filled.source()))
        everything(mount(node, filled))
        change(filled)
        refresh(node)
        assert "preloaded data: 3 files of 3" in node.ok("preload", "-f", "-", stdin=document)
        assert filled.count("new", "GET") == 1
        assert filled.count("stays", "GET") == 1

    @pytest.mark.slow
    def test_on_a_real_store(self, node: Node, bucket: BucketStore) -> None:
        for number in range(30):
            bucket.put(f"d{number % 3}/{number}", os.urandom(30_000))
        old = node.mount(data_set("data", bucket.source()))
        before = {str(p.relative_to(old)): p.read_bytes() for p in old.rglob("*") if p.is_file()}
        for number in range(5):
            bucket.put(f"d0/{3 * number}", b"other")
        bucket.delete("d1/1")
        bucket.put("d4/new", b"new")
        assert refresh(node)["changed"] == {"added": 1, "removed": 1, "modified": 5}
        new = node.mount(data_set("data", bucket.source()), "new")
        assert (new / "d4" / "new").read_bytes() == b"new"
        assert all((new / "d0" / str(3 * number)).read_bytes() == b"other" for number in range(5))
        assert {str(p.relative_to(old)): p.read_bytes() for p in old.rglob("*") if p.is_file()} == before
        node.ok("unmount", str(old))
        wait_for(lambda: evicted(node) == 6, what="the old versions are freed")


class TestFailures:
    @pytest.mark.parametrize("why", ["forbidden", "down"])
    def test_a_refresh_that_fails_keeps_everything_and_says_why(self, node: Node, why: str) -> None:
        with running_store() as store:
            store.put("a", os.urandom(100_000))
            root = mount(node, store)
            before = everything(root), manifests(node), known(node)["generation"]
            if why == "forbidden":
                store.on_list(refuses(403, "AccessDenied"), times=1)
                check_failed(node, "AccessDenied")
        if why == "down":
            check_failed(node, "SourceUnavailable")
        assert (everything(root), manifests(node), known(node)["generation"]) == before
        assert evicted(node) == 0
        with running_store(store):
            store.put("b", b"1")
            assert refresh(node)["changed"] == {**NONE, "added": 1}
            assert condition(node, "Indexed")[:2] == ("True", "Listed")

    @pytest.mark.slow
    def test_an_empty_source_is_refused_as_by_a_mount(self, node: Node, filled: ScriptedStore) -> None:
        root = mount(node, filled)
        before = everything(root)
        objects = dict(filled.objects)
        filled.objects.clear()
        assert node.run("refresh", "data").stderr.startswith("SourceEmpty: ")
        assert everything(root) == before
        filled.objects.update(objects)
        assert not refresh(node)["new"]

    @pytest.mark.slow
    def test_other_credentials_are_tried_when_those_of_the_mount_are_refused(
        self, node: Node, filled: ScriptedStore
    ) -> None:
        node.settings["AWS_ACCESS_KEY_ID"] = "OLDKEY"
        mount(node, filled)
        change(filled)

        def only_new_keys(request: Request, right: Response) -> Response:
            return (
                refuses(403, "AccessDenied")(request, right) if "OLDKEY" in request.headers["authorization"] else right
            )

        filled.on_list(only_new_keys)
        assert node.run("refresh", "data").stderr.startswith("AccessDenied: ")
        node.settings["AWS_ACCESS_KEY_ID"] = "NEWKEY"
        assert refresh(node)["changed"] == {"added": 1, "removed": 1, "modified": 1}
        assert not refresh(node)["new"]


def check_failed(node: Node, reason: str) -> None:
    done = node.run("refresh", "data")
    assert done.returncode == 1
    assert done.stderr.startswith(f"{reason}: "), done.stderr
    status, why, message = condition(node, "Indexed")
    assert (status, why) == ("False", reason)
    assert f"generation {known(node)['generation']['digest'][:12]} stays" in message
    assert f"default/data: {reason}: the sources cannot be listed" in node.ok("status")
    assert f'"{reason}"' in node.log()


class TestChangedUnderAMount:
    def test_missing_pages_are_stale_present_ones_are_served_and_a_refresh_heals(
        self, node: Node, scripted_store: ScriptedStore
    ) -> None:
        old, new = os.urandom(4 * MIB), os.urandom(4 * MIB)
        scripted_store.put("dir/f", old)
        root = mount(node, scripted_store)
        path = root / "dir" / "f"
        with open(path, "rb", buffering=0) as file:
            assert os.pread(file.fileno(), PAGE, 2 * MIB) == old[2 * MIB : 2 * MIB + PAGE]
        scripted_store.put("dir/f", new)
        assert error_number(path) == errno.ESTALE
        with open(path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            assert os.pread(file.fileno(), PAGE, 2 * MIB) == old[2 * MIB : 2 * MIB + PAGE]
        status, reason, message = wait_for(lambda: (c := condition(node, "SourceChanged"))[0] and c)
        assert (status, reason) == ("True", "SourceChanged")
        assert message.startswith("dir/f: ")
        assert message.endswith("stoker refresh default/data")
        assert node.status()["sourceChanged"] == {"files": 1, "lastPath": "dir/f"}
        assert "SourceChanged: dir/f: " in node.ok("status")
        assert re.search(r'"reason": "SourceChanged".*"path": "dir/f"', node.log())
        assert refresh(node)["changed"] == {**NONE, "modified": 1}
        assert condition(node, "SourceChanged")[:2] == ("False", "Listed")
        fresh = node.mount(data_set("data", scripted_store.source()), "fresh")
        assert (fresh / "dir" / "f").read_bytes() == new
        assert error_number(path) == errno.ESTALE
        assert condition(node, "SourceChanged")[0] == "False", "new mounts are right"
        assert node.status("data")["sourceChanged"]["files"] == 1
        assert node.status("fresh")["sourceChanged"]["files"] == 0

    @pytest.mark.slow
    def test_the_condition_outlives_the_daemon(self, node: Node, scripted_store: ScriptedStore) -> None:
        scripted_store.put("f", os.urandom(MIB))
        root = mount(node, scripted_store)
        del scripted_store.objects[b"f"]
        scripted_store.put("g", b"1")
        assert error_number(root / "f") == errno.ESTALE
        wait_for(lambda: condition(node, "SourceChanged")[0] == "True")
        node.kill(node.pids("daemon")[0])
        wait_for(lambda: answers(node), what="the next daemon")
        assert condition(node, "SourceChanged")[0] == "True"


def test_the_commands_of_the_page_do_what_it_says(node: Node, filled: ScriptedStore) -> None:
    page = (Path(__file__).parents[2] / "docs" / "REFRESH.md").read_text()
    commands = re.findall(r"^    stoker (.*)$", page, re.MULTILINE)
    assert commands == ["refresh imagenet", "manifest diff imagenet", "refresh imagenet --watch", "status"]
    node.ok("apply", "-f", "-", stdin=json.dumps(data_set("imagenet", filled.source())))
    refresh(node, "imagenet")
    change(filled)
    said = [node.ok(*command.split()) for command in commands if "--watch" not in command]
    assert said[0].startswith("refreshed default/imagenet: 1 added, 1 removed, 1 modified; 3 files, ")
    assert said[1].endswith("1 added, 1 removed, 1 changed\n")
    assert "default/imagenet" in said[2]
