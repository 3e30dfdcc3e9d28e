"""Pins on a real node: kept whatever is read, refused with the numbers, seen wherever cached bytes are."""

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

ONE = SIZE  # of disk: an object of four pages needs no block for its extents
SMALL = {"STOKER_CACHE_QUOTA": "16Mi", "STOKER_RESERVE_FREE": "1Mi"}


def filled(scratch: Path, name: str, files: int) -> FolderStore:
    store = FolderStore(scratch / name)
    for number in range(files):
        store.put(f"{'even' if number % 2 == 0 else 'odd'}/f{number:03}", os.urandom(SIZE))
    return store


def pinned(node: Node, name: str) -> tuple[int, int, int]:
    found = row(node, name)
    return found["pinnedFiles"], found["pinnedBytes"], found["pinnedCachedBytes"]


def with_pins(document: dict[str, Any], *globs: str, **cache: Any) -> dict[str, Any]:
    return {**document, "spec": {**document["spec"], "pin": list(globs), "cache": cache}}


def apply(node: Node, document: dict[str, Any]) -> str:
    return node.ok("apply", "-f", "-", stdin=json.dumps(document))


def test_what_is_pinned_stays_whatever_else_is_read_and_restarted(scratch: Path) -> None:
    kept = with_pins(data_set("kept", filled(scratch, "store-1", 80).source()), "even/**", priority=0)
    other = data_set("other", filled(scratch, "store-2", 400).source(), cache={"priority": 1000})
    with running_node(scratch, **SMALL) as node:
        root = node.mount(kept, "kept")
        assert pinned(node, "kept")[:2] == (40, 40 * ONE)
        read_all(root)
        wait_for(lambda: pinned(node, "kept")[2] == 40 * ONE, what="what is pinned is cached")
        more = node.mount(other, "other")
        read_all(more)
        (daemon,) = node.pids("daemon")
        node.kill(daemon)
        wait_for(lambda: whole(node), what="another daemon")
        read_all(more)
        assert pinned(node, "kept") == (40, 40 * ONE, 40 * ONE)
        assert row(node, "kept")["heldFiles"] >= 40
        assert "2.5 MiB" in node.ok("status")
        node.ok("node", "--stop")
    with running_node(scratch, **SMALL) as node:
        more = node.mount(other, "other")
        read_all(more)
        assert pinned(node, "kept") == (40, 40 * ONE, 40 * ONE)


def test_pins_that_cannot_fit_are_refused_with_the_numbers_and_change_nothing(scratch: Path) -> None:
    one = data_set("one", filled(scratch, "store-1", 160).source())
    two = data_set("two", filled(scratch, "store-2", 300).source())
    with running_node(scratch, **SMALL) as node:
        node.mount(with_pins(one, "even/**"), "one")
        node.mount(two, "two")
        refused = node.run("apply", "-f", "-", stdin=json.dumps(with_pins(two, "**")))
        assert refused.returncode == 1
        assert "PinsDoNotFit: default/two: 18.8 MiB in 300 files are to be pinned; " in refused.stderr
        assert "are free for pins on" in refused.stderr
        assert "(pinned by others: default/one 5.0 MiB in 80 files)" in refused.stderr
        assert "stoker unpin" in refused.stderr
        assert pinned(node, "two") == (0, 0, 0)
        assert "applied default/two" in apply(node, with_pins(two, "odd/*[13]"))
        assert pinned(node, "two")[0] == 60
        quota = node.run("apply", "-f", "-", stdin=json.dumps(with_pins(one, "even/**", quota="1Mi")))
        assert "PinsDoNotFit: default/one: 5.0 MiB in 80 files are pinned" in quota.stderr
        assert row(node, "one")["quotaBytes"] == 0


def test_a_mount_whose_pins_do_not_fit_is_made_and_says_so(scratch: Path) -> None:
    document = with_pins(data_set("much", filled(scratch, "store-1", 300).source()), "**")
    with running_node(scratch, **SMALL) as node:
        (scratch / "mounted").mkdir()
        made = node.run("mount", "-f", "-", str(scratch / "mounted"), stdin=json.dumps(document))
        assert made.returncode == 0
        assert "PinsDoNotFit: default/much: 18.8 MiB in 300 files are to be pinned" in made.stderr
        assert "PinsDoNotFit" in node.ok("status")
        read_all(scratch / "mounted")
        apply(node, with_pins(document, "even/f00*"))
        assert "PinsDoNotFit" not in node.ok("status")
        assert pinned(node, "much")[0] == 5


def test_what_is_not_pinned_any_more_is_evicted_as_all_others(scratch: Path) -> None:
    document = data_set("a", filled(scratch, "store-1", 40).source())
    with running_node(scratch, **SMALL) as node:
        root = node.mount(with_pins(document, "**", ttl="1s"), "a")
        read_all(root)
        wait_for(lambda: pinned(node, "a")[2] == 40 * ONE, what="all is cached")
        apply(node, with_pins(document, "even/**", ttl="1s"))
        wait_for(lambda: row(node, "a")["heldFiles"] == 20, what="the others went by their ttl")
        node.ok("unmount", str(root))
        assert pinned(node, "a") == (20, 20 * ONE, 20 * ONE)
        node.ok("forget", "a")
        other = node.mount(data_set("b", filled(scratch, "store-2", 300).source()), "b")
        read_all(other)

        def evicted() -> int:
            return int(json.loads(node.ok("status", "--json"))["node"]["cache"]["evicted"].get("Unreferenced", 0))

        wait_for(lambda: evicted() == 20, what="what was pinned goes first")
        assert json.loads(node.ok("status", "--json"))["node"]["cache"]["tiers"][0]["pinnedBytes"] == 0
