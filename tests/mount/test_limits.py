"""What DataSets may hold, on a real node: changed while they are read, kept over restarts, told with its reasons."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from servers.held import SIZE, read_all, row
from servers.kills import whole
from servers.node import Node, data_set, running_node, wait_for
from servers.stores import FolderStore

pytestmark = pytest.mark.fuse

KIB = 1 << 10
FILES = 40


def filled(scratch: Path, name: str, files: int = FILES) -> FolderStore:
    store = FolderStore(scratch / name)
    for number in range(files):
        store.put(f"f{number:02}", os.urandom(SIZE))
    return store


def evicted(node: Node) -> dict[str, int]:
    counts: dict[str, int] = json.loads(node.ok("status", "--json"))["node"]["cache"]["evicted"]
    return {why: count for why, count in counts.items() if count}


def apply(node: Node, document: dict[str, Any], **cache: Any) -> str:
    changed = {**document, "spec": {**document["spec"], "cache": cache}}
    return node.ok("apply", "-f", "-", stdin=json.dumps(changed))


def test_a_quota_is_kept_while_files_are_read_and_changed_at_run_time(node: Node, scratch: Path) -> None:
    document = data_set("a", filled(scratch, "one").source(), cache={"quota": "1Mi"})
    root = node.mount(document)
    read_all(root)
    assert 0 < row(node, "a")["heldBytes"] <= 1 << 20
    assert set(evicted(node)) <= {"Quota"}
    assert apply(node, document, quota="512Ki") == ("applied default/a: at most 512.0 KiB, priority 100\n")
    wait_for(lambda: row(node, "a")["heldBytes"] <= 512 * KIB, timeout_s=5, what="the lower quota counts")
    assert evicted(node)["Quota"] > 0
    apply(node, document)

    def all_is_kept() -> bool:
        read_all(root)  # again and again: the kernel does not always forget a file when it is told to
        return bool(row(node, "a")["heldBytes"] >= FILES * SIZE)

    wait_for(all_is_kept, what="all of it is kept")


def test_limits_of_what_is_not_mounted_hold_after_a_restart(scratch: Path) -> None:
    document = data_set("a", filled(scratch, "one").source(), cache={"ttl": "1h", "priority": 7, "inodes": 10})
    with running_node(scratch) as node:
        read_all(node.mount(document))
        node.ok("node", "--stop")
    with running_node(scratch) as node:
        apply(node, data_set("b", filled(scratch, "two").source()))
        known = row(node, "a")
        assert (known["ttlSeconds"], known["priority"], known["quotaInodes"]) == (3600, 7, 10)
        assert 0 < known["heldFiles"] <= 10


def test_a_data_set_of_low_priority_makes_room_for_one_of_high(scratch: Path) -> None:
    files = 150
    with running_node(scratch, STOKER_CACHE_QUOTA="16Mi", STOKER_RESERVE_FREE="1Mi") as node:
        low = node.mount(data_set("low", filled(scratch, "one", files).source(), cache={"priority": 10}), "low")
        high = node.mount(data_set("high", filled(scratch, "two", files).source(), cache={"priority": 500}), "high")
        read_all(low)

        def high_is_kept() -> bool:
            read_all(high)
            return bool(row(node, "high")["heldBytes"] >= files * SIZE)

        wait_for(high_is_kept, what="all of the high one is kept")
        assert evicted(node)["Priority"] > 0
        read_all(low)
        assert row(node, "high")["heldBytes"] >= files * SIZE


def test_what_was_not_used_for_its_ttl_is_gone_by_itself(node: Node, scratch: Path) -> None:
    read_all(node.mount(data_set("a", filled(scratch, "one").source(), cache={"ttl": "2s"})))
    wait_for(lambda: row(node, "a")["heldFiles"] == 0, what="nothing is left")
    assert evicted(node) == {"Ttl": FILES}


def test_a_forgotten_data_set_goes_first_and_a_mounted_one_is_not_forgotten(scratch: Path) -> None:
    files = 150
    with running_node(scratch, STOKER_CACHE_QUOTA="16Mi", STOKER_RESERVE_FREE="1Mi") as node:
        first = data_set("first", filled(scratch, "one", files).source(), cache={"priority": 1000})
        read_all(node.mount(first, "first"))
        refused = node.run("forget", "first")
        assert (refused.returncode, "MountBusy" in refused.stderr) == (1, True)
        node.ok("unmount", str(scratch / "first"))
        assert node.ok("forget", "first") == "forgot default/first\n"
        assert "DataSetNotFound" in node.run("forget", "first").stderr
        second = node.mount(data_set("second", filled(scratch, "two", files).source()), "second")

        def second_is_kept() -> bool:
            read_all(second)
            return bool(row(node, "second")["heldBytes"] >= files * SIZE)

        wait_for(second_is_kept, what="the second one has its room")
        assert evicted(node)["Unreferenced"] > 0


def test_status_shows_what_each_holds_and_may_hold(node: Node, scratch: Path) -> None:
    store = filled(scratch, "one")
    read_all(node.mount(data_set("a", store.source(), cache={"quota": "-1Gi", "inodes": 500}), "a"))
    read_all(node.mount(data_set("b", store.source()), "b"))
    wait_for(lambda: row(node, "b")["heldFiles"] == FILES, what="what both use counts for both")
    assert row(node, "a")["heldBytes"] == row(node, "b")["heldBytes"]
    text = node.ok("status")
    assert "leaves 1.0 GiB to others, at most 500 files" in text
    assert "no limit of its own" in text


def test_a_new_daemon_hears_who_reads_what(node: Node, scratch: Path) -> None:
    store = filled(scratch, "one")
    read_all(node.mount(data_set("a", store.source()), "a"))
    root = node.mount(data_set("b", store.source()), "b")
    (daemon,) = node.pids("daemon")
    node.kill(daemon)
    wait_for(lambda: whole(node), what="another daemon")
    read_all(root)
    wait_for(lambda: row(node, "b")["heldFiles"] == FILES, what="what is read by another counts for it, too")
