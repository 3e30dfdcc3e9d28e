"""Generations at run time on real mounts: what is freed, what S3 shows, listings by themselves, kills in the middle."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from typing import Any

import pytest

from servers.generations import (
    NONE,
    answers,
    change,
    condition,
    everything,
    evicted,
    index_jobs,
    known,
    manifests,
    refresh,
    written,
)
from servers.mounts import IMPATIENT, cached_percent, mount
from servers.node import STOKER, Node, alive, data_set, wait_for
from servers.s3 import Keys, read
from servers.s3 import keys as s3_keys
from servers.scenarios import refuses, thinks
from servers.scripted_store import Request, Response, ScriptedStore

pytestmark = pytest.mark.fuse

MIB = 1 << 20


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


def check_bucket(keys: Keys, after: dict[str, bytes]) -> None:
    client = keys.client(attempts=5)

    def listed() -> bool:
        found = client.list_objects_v2(Bucket=keys.bucket)
        return [each["Key"] for each in found["Contents"]] == sorted(after)

    wait_for(listed, what="the newest generation is listed")
    for key, data in after.items():
        assert client.get_object(Bucket=keys.bucket, Key=key)["Body"].read() == data


def no_bucket(keys: Keys) -> bool:
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
        mount(node, filled, refresh={"interval": "1s"})
        command = [*STOKER, "refresh", "data", "--watch", "--json"]
        with subprocess.Popen(command, env=node.env, stdout=subprocess.PIPE, text=True) as watching:
            assert watching.stdout is not None
            assert not json.loads(watching.stdout.readline())["new"]
            change(filled)
            assert json.loads(watching.stdout.readline())["changed"]["removed"] == 1
            watching.send_signal(signal.SIGINT)
            assert watching.wait(10) == 0


class TestKills:
    def test_of_the_daemon_in_the_middle_of_a_refresh(self, node: Node, filled: ScriptedStore) -> None:
        root = mount(node, filled)
        before = everything(root)
        generation, on_disk = known(node)["generation"], manifests(node)
        change(filled)
        asked = threading.Event()
        filled.on_list(thinks(3.0, asked), times=1)
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
    root = mount(node, filled, mount=impatient)
    change(filled)
    asked = threading.Event()
    filled.on_list(thinks(5.0, asked), times=1)
    with subprocess.Popen([*STOKER, "refresh", "data"], env=node.env, stderr=subprocess.DEVNULL) as command:
        assert asked.wait(20)
        command.send_signal(signal.SIGINT)
        assert command.wait(10) == 130
    wait_for(lambda: not index_jobs(node), what="the listing ends with the command")
    assert sorted(os.listdir(root)) == ["modified", "removed", "stays"]
    assert known(node)["generation"]["changed"] == NONE
