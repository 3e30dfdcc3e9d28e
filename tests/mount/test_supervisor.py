"""A supervisor that dies with news it did not pass on: its successor makes all others agree."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from servers.kills import supervisor_of, whole
from servers.node import Node, data_set, wait_for
from servers.stores import FolderStore

pytestmark = pytest.mark.fuse


def test_a_mount_is_served_although_workers_did_not_hear_of_the_end_of_the_one_before(
    node: Node, scratch: Path
) -> None:
    """The new session has the number of the old one, which the workers still hold."""
    store = FolderStore(scratch / "origin")
    store.put("f", b"x" * 1000)
    old = node.mount(data_set("old", store.source()), "old")
    supervisor = supervisor_of(node)[0]
    os.kill(supervisor, signal.SIGSTOP)
    node.api("DELETE", f"/v1/mounts?mountpoint={old}")
    node.kill(supervisor)
    wait_for(lambda: whole(node), what="the node is whole again")
    root = node.mount(data_set("new", store.source()), "new")
    assert (root / "f").read_bytes() == b"x" * 1000
