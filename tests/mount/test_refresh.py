"""Generations at run time, on real mounts: what a refresh finds, who sees it, what is freed, and what a failure or a
kill in the middle leaves.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from servers.mounts import IMPATIENT, cached_percent, error_number, mount
from servers.node import Node, alive, data_set, wait_for
from servers.s3 import keys as s3_keys
from servers.s3 import read
from servers.scenarios import refuses
from servers.scripted_store import Request, Response, ScriptedStore, running_store
from servers.stores import BucketStore

pytestmark = pytest.mark.fuse

MIB = 1 << 20
PAGE = 16 << 10
NONE = {"added": 0, "removed": 0, "modified": 0}


def refresh(node: Node, name: str = "data") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(node.ok("refresh", name, "--json"))
    return found


def known(node: Node, name: str = "data") -> dict[str, Any]:
    """A DataSet in status."""
    found = node.api("GET", "/v1/datasets")["dataSets"]
    return next(each for each in found if each["name"] == f"default/{name}")


def condition(node: Node, kind: str, name: str = "data") -> tuple[str, str, str]:
    """Status, reason and message."""
    for each in known(node, name)["conditions"]:
        if each["type"] == kind:
            return each["status"], each["reason"], each["message"]
    return "", "", ""


def evicted(node: Node) -> int:
    """Objects that went because no generation needs them."""
    return int(node.api("GET", "/v1/status")["node"]["cache"]["evicted"]["Generation"])


def manifests(node: Node, name: str = "data") -> set[str]:
    """Digests of the generations on disk."""
    folder = node.root / "state" / "manifests" / f"default.{name}"
    return {path.name.partition(".")[0] for path in folder.glob("*.manifest")}


def everything(root: Path) -> dict[str, bytes]:
    return {entry.name: (root / entry.name).read_bytes() for entry in sorted(os.scandir(root), key=lambda e: e.name)}


def written(node: Node) -> dict[str, float]:
    """When each file of the node's state was written; its log tells of each command."""
    found = (path for path in (node.root / "state").rglob("*") if path.is_file() and path.name != "node.log")
    return {str(path): path.stat().st_mtime_ns for path in found}


def change(store: ScriptedStore) -> dict[str, bytes]:
    """One object is added, one is removed, one is modified, one stays; what there is now."""
    stays = store.objects[b"stays"].data
    store.put("modified", os.urandom(70_000))
    del store.objects[b"removed"]
    store.put("new", os.urandom(50_000))
    return {"modified": store.objects[b"modified"].data, "new": store.objects[b"new"].data, "stays": stays}


@pytest.fixture
def filled(scripted_store: ScriptedStore) -> ScriptedStore:
    for key in ("modified", "removed", "stays"):
        scripted_store.put(key, os.urandom(100_000))
    return scripted_store


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


@pytest.mark.slow
class TestWhatIsFreed:
    def test_when_the_last_mount_of_a_generation_ends(self, node: Node, filled: ScriptedStore) -> None:
        roots = [node.mount(data_set("data", filled.source()), name) for name in ("a", "b")]
        everything(roots[0])
        wait_for(lambda: known(node)["heldFiles"] == 3)
        change(filled)
        refresh(node)
        node.ok("unmount", str(roots[0]))
        assert len(everything(roots[1])) == 3, "all of it from the cache"
        assert evicted(node) == 0
        node.ok("unmount", str(roots[1]))
        wait_for(lambda: evicted(node) == 2, what="both old versions are freed")
        assert known(node)["heldFiles"] == 1
        assert '"reason": "Generation"' in node.log()

    def test_at_once_when_nothing_shows_it(self, node: Node, filled: ScriptedStore) -> None:
        document = json.dumps(data_set("data", filled.source()))
        node.ok("preload", "-f", "-", stdin=document)
        wait_for(lambda: known(node)["heldFiles"] == 3)
        change(filled)
        refresh(node)
        wait_for(lambda: evicted(node) == 2)
        assert known(node)["heldFiles"] == 1

    def test_not_what_another_data_set_uses(self, node: Node, filled: ScriptedStore) -> None:
        first, other = mount(node, filled), mount(node, filled, "other")
        before = everything(first)
        everything(other)
        wait_for(lambda: known(node, "other")["heldFiles"] == 3, what="both hold them")
        change(filled)
        refresh(node)
        node.ok("unmount", str(first))
        wait_for(lambda: known(node)["heldFiles"] == 1, what="the one lets go of two")
        assert known(node, "other")["heldFiles"] == 3
        assert evicted(node) == 0
        asked = len(filled.requests)
        with open(other / "removed", "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            assert file.read(1 << 20) == before["removed"]
        assert len(filled.requests) == asked

    def test_not_what_a_changed_document_does_not_name_any_more(self, node: Node, filled: ScriptedStore) -> None:
        root = mount(node, filled)
        everything(root)
        node.ok("unmount", str(root))
        node.mount(data_set("data", {**filled.source(), "include": ["stays"]}))
        node.ok("unmount", str(root))
        mount(node, filled)
        everything(root)
        assert filled.count("removed", "GET") == 1
        assert evicted(node) == 0

    def test_not_an_object_that_became_hidden(self, node: Node, filled: ScriptedStore) -> None:
        root = mount(node, filled)
        everything(root)
        wait_for(lambda: known(node)["heldFiles"] == 3)
        filled.put("removed/below", b"1")
        del filled.objects[b"modified"]
        refresh(node)
        node.ok("unmount", str(root))
        wait_for(lambda: evicted(node) == 1)
        assert known(node)["heldFiles"] == 2, "the S3 endpoint shows it still"

    def test_the_manifests_of_old_generations_all_but_a_few(self, node: Node, scripted_store: ScriptedStore) -> None:
        scripted_store.put("0", b"0")
        root = mount(node, scripted_store)
        first = known(node)["generation"]["digest"]
        for number in range(1, 9):
            scripted_store.put(str(number), b"1")
            refresh(node)
        wait_for(lambda: len(manifests(node)) == 6, what="five, and that of the mount")
        assert first in manifests(node)
        node.ok("unmount", str(root))
        wait_for(lambda: first not in manifests(node), what="it is removed with the mount")
        assert len(manifests(node)) == 5
        assert re.search(r"1 added, 0 removed, 0 changed", node.ok("manifest", "diff", "data"))
        node.ok("forget", "data")
        assert not (node.root / "state" / "manifests" / "default.data").exists()

    def test_after_a_restart_of_the_node(self, node: Node, filled: ScriptedStore) -> None:
        """The node ends with its mounts; the next one frees what they kept."""
        everything(mount(node, filled))
        wait_for(lambda: known(node)["heldFiles"] == 3)
        change(filled)
        refresh(node)
        node.ok("node", "--stop")
        node.ok("apply", "-f", "-", stdin=json.dumps(data_set("data", filled.source())))
        wait_for(lambda: evicted(node) == 2)
        assert known(node)["heldFiles"] == 1


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


def answers(node: Node) -> bool:
    try:
        return bool(node.api("GET", "/v1/version"))
    except OSError:
        return False


@pytest.mark.slow
class TestS3:
    def test_buckets_show_the_newest_generation(self, s3_own: Node, filled: ScriptedStore) -> None:
        root = mount(s3_own, filled)
        keys = s3_keys(s3_own, "data")
        assert read(keys, "removed")
        after = change(filled)
        refresh(s3_own)
        check_bucket(keys, after)
        s3_own.kill(s3_own.pids("s3")[0])
        check_bucket(keys, after)
        s3_own.kill(s3_own.pids("daemon")[0])
        wait_for(lambda: answers(s3_own), what="the next daemon")
        check_bucket(keys, after)
        other = s3_own.mount(data_set("data", filled.source()), "other")
        s3_own.ok("unmount", str(other))
        check_bucket(keys, after)
        assert sorted(os.listdir(root)) == ["modified", "removed", "stays"]
        s3_own.ok("unmount", str(root))
        wait_for(lambda: no_bucket(keys), what="the bucket goes with the last mount")

    def test_a_running_get_ends_on_its_own_generation(self, s3_own: Node, scripted_store: ScriptedStore) -> None:
        data = os.urandom(40 * MIB)
        scripted_store.put("big", data)
        root = mount(s3_own, scripted_store)
        keys = s3_keys(s3_own, "data")
        scripted_store.put("first", b"1")
        refresh(s3_own)
        body = keys.client().get_object(Bucket=keys.bucket, Key="big")["Body"]
        begun = body.read(MIB)
        for number in range(3):
            scripted_store.put(f"more-{number}", b"1")
            refresh(s3_own)
        rest = body.read()
        assert begun + rest == data
        assert read(keys, "more-2") == b"1"
        s3_own.ok("unmount", str(root))


def check_bucket(keys: Any, after: dict[str, bytes]) -> None:
    client = keys.client(attempts=5)

    def listed() -> bool:
        found = client.list_objects_v2(Bucket=keys.bucket)
        return [each["Key"] for each in found["Contents"]] == sorted(after)

    wait_for(listed, what="the newest generation is listed")
    for key, data in after.items():
        assert client.get_object(Bucket=keys.bucket, Key=key)["Body"].read() == data


def no_bucket(keys: Any) -> bool:
    client = keys.client()
    try:
        client.list_objects_v2(Bucket=keys.bucket)
    except client.exceptions.NoSuchBucket:
        return True
    return False


@pytest.mark.slow
class TestByItself:
    def test_every_interval_while_something_fails_in_between(self, node: Node, filled: ScriptedStore) -> None:
        root = mount(node, filled, refresh={"interval": "1s"})
        everything(root)
        wait_for(lambda: known(node)["heldFiles"] == 3)
        change(filled)
        wait_for(lambda: known(node)["generation"]["changed"]["added"] == 1, what="it is found without a command")
        before, lists = written(node), filled.count(None)
        wait_for(lambda: filled.count(None) >= lists + 3, what="it goes on")
        assert written(node) == before, "nothing changed, nothing is written"
        filled.on_list(refuses(403, "AccessDenied"), times=2)
        wait_for(lambda: condition(node, "Indexed")[:2] == ("False", "AccessDenied"))
        filled.put("later", b"1")
        wait_for(lambda: known(node)["generation"]["files"] == 4, what="it goes on after a failure")
        assert condition(node, "Indexed")[0] == "True"
        assert sorted(os.listdir(root)) == ["modified", "removed", "stays"]
        node.kill(node.pids("daemon")[0])
        filled.put("last", b"1")
        wait_for(lambda: answers(node) and known(node)["generation"]["files"] == 5, what="the next daemon goes on")

    def test_one_at_a_time_and_few_beside_each_other(self, node: Node, scripted_store: ScriptedStore) -> None:
        scripted_store.put("f", b"1")
        names = [f"data{number}" for number in range(4)]
        for name in names:
            document = data_set(name, scripted_store.source(), refresh={"interval": "1s"})
            node.ok("apply", "-f", "-", stdin=json.dumps(document))
        slow, most, running = threading.Event(), [0], [0]

        def count(_request: Request, right: Response) -> Response:
            running[0] = len(index_jobs(node))
            most[0] = max(most[0], running[0])
            slow.set()
            return Response(right.status, right.headers, right.body, delay=0.5)

        scripted_store.on_list(count)
        wait_for(lambda: all(known(node, name)["generation"] for name in names), what="all are listed")
        assert slow.is_set()
        assert most[0] <= 2

    def test_watch_tells_each_new_generation(self, node: Node, filled: ScriptedStore) -> None:
        import subprocess

        from servers.node import STOKER

        mount(node, filled, refresh={"interval": "1s"})
        command = [*STOKER, "refresh", "data", "--watch", "--json"]
        with subprocess.Popen(command, env=node.env, stdout=subprocess.PIPE, text=True) as watching:
            assert watching.stdout is not None
            assert not json.loads(watching.stdout.readline())["new"]
            change(filled)
            assert json.loads(watching.stdout.readline())["changed"]["removed"] == 1
            watching.send_signal(signal.SIGINT)
            assert watching.wait(10) == 0


def index_jobs(node: Node) -> list[int]:
    """Living index jobs of this node."""
    needle = f"STOKER_STATE_DIR={node.root / 'state'}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if b"stoker.jobs.index" in (entry / "cmdline").read_bytes() and needle in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


class TestKills:
    def test_of_the_daemon_in_the_middle_of_a_refresh(self, node: Node, filled: ScriptedStore) -> None:
        root = mount(node, filled)
        before = everything(root)
        generation, on_disk = known(node)["generation"], manifests(node)
        change(filled)
        asked = threading.Event()

        def slow(_request: Request, right: Response) -> Response:
            asked.set()
            return Response(right.status, right.headers, right.body, delay=3.0)

        filled.on_list(slow, times=1)
        failed: list[Any] = []
        command = threading.Thread(target=lambda: failed.append(node.run("refresh", "data")))
        command.start()
        assert asked.wait(20)
        jobs = index_jobs(node)
        assert jobs
        node.kill(node.pids("daemon")[0])
        command.join(60)
        assert failed[0].returncode == 1
        assert failed[0].stderr.startswith("NodeNotRunning: ")
        wait_for(lambda: answers(node), what="the next daemon")
        wait_for(lambda: not any(alive(pid) for pid in jobs), what="the listing ends with the daemon")
        assert everything(root) == before
        assert known(node)["generation"] == generation
        folder = node.root / "state" / "manifests" / "default.data"
        assert manifests(node) == on_disk
        assert sorted(os.listdir(folder)) == sorted([*(f"{d}.manifest" for d in on_disk), "generations.json"])
        assert refresh(node)["changed"] == {"added": 1, "removed": 1, "modified": 1}

    @pytest.mark.slow
    def test_a_manifest_that_nobody_took_is_removed(self, node: Node, filled: ScriptedStore) -> None:
        """The daemon died after the listing was written, and before it heard of it."""
        root = mount(node, filled)
        folder = node.root / "state" / "manifests" / "default.data"
        (folder / ("0" * 64 + ".manifest")).write_bytes(next(folder.glob("*.manifest")).read_bytes())
        node.kill(node.pids("daemon")[0])
        wait_for(lambda: len(manifests(node)) == 1, what="it is removed")
        assert len(everything(root)) == 3

    @pytest.mark.slow
    def test_old_generations_are_freed_by_the_next_daemon(self, node: Node, filled: ScriptedStore) -> None:
        root = mount(node, filled)
        everything(root)
        wait_for(lambda: known(node)["heldFiles"] == 3)
        change(filled)
        refresh(node)
        node.kill(node.pids("daemon")[0])
        wait_for(lambda: answers(node), what="the next daemon")
        assert cached_percent(root / "removed") == 100
        node.ok("unmount", str(root))
        wait_for(lambda: known(node)["heldFiles"] == 1, what="the old versions are freed")


@pytest.mark.parametrize("impatient", [IMPATIENT])
def test_a_refresh_that_is_interrupted_changes_nothing(
    node: Node, filled: ScriptedStore, impatient: dict[str, Any]
) -> None:
    import subprocess

    from servers.node import STOKER

    root = mount(node, filled, mount=impatient)
    change(filled)
    asked = threading.Event()

    def slow(_request: Request, right: Response) -> Response:
        asked.set()
        return Response(right.status, right.headers, right.body, delay=5.0)

    filled.on_list(slow, times=1)
    with subprocess.Popen([*STOKER, "refresh", "data"], env=node.env, stderr=subprocess.DEVNULL) as command:
        assert asked.wait(20)
        command.send_signal(signal.SIGINT)
        assert command.wait(10) == 130
    wait_for(lambda: not index_jobs(node), what="the listing ends with the command")
    assert sorted(os.listdir(root)) == ["modified", "removed", "stays"]
    assert known(node)["generation"]["changed"] == NONE


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
