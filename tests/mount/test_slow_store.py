"""A store that is slow and alive: nobody gives up on it, and nothing is asked twice."""

from __future__ import annotations

import json
import os

import pytest

from servers.node import Node, data_set
from servers.scenarios import drips
from servers.scripted_store import ScriptedStore

pytestmark = pytest.mark.fuse

MIB = 1 << 20


def test_a_load_that_takes_longer_than_the_timeout_of_a_request_is_not_broken_off(
    node: Node, scripted_store: ScriptedStore
) -> None:
    scripted_store.put("f", os.urandom(4 * MIB))
    scripted_store.on("f", drips(2 * MIB))
    document = data_set("ds", scripted_store.source(), mount={"requestTimeout": "1s", "retries": 0})
    node.ok("preload", "-f", "-", stdin=json.dumps(document))
    assert scripted_store.count("f", "GET") == 1


@pytest.mark.slow
def test_an_open_waits_for_its_whole_file_as_long_as_bytes_come(node: Node, scripted_store: ScriptedStore) -> None:
    """45 s, where a read has 20 s and 15 s of grace."""
    data = os.urandom(9 * MIB)
    scripted_store.put("f", data)
    scripted_store.on("f", drips(len(data) // 45))
    document = data_set("ds", scripted_store.source(), mount={"requestTimeout": "3s"}, cache={"policy": "WholeFile"})
    assert (node.mount(document) / "f").read_bytes() == data
