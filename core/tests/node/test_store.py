"""What the supervisor keeps reaches the processes it is for, and only them."""

from __future__ import annotations

import os

from stoker.ipc.channel import Channel
from stoker.node.store import Entry, Share


def test_each_process_gets_the_descriptors_of_its_shares() -> None:
    fds = {name: os.memfd_create(name) for name in ("main", "opens", "clone.0", "clone.1")}
    entry = Entry("session.a", fds, {"slot": 3}, (Share("fetcher", ("opens", "clone.%d")),))
    assert entry.names_for("fetcher", 1) == ["opens", "clone.1"]
    assert entry.names_for("worker", 0) == list(fds), "the third holder of everything"
    assert entry.names_for("daemon", 0) == list(fds)
    entry.close()


def test_a_share_of_one_index_is_for_that_process_only() -> None:
    entry = Entry("pool.1", {"pool": os.memfd_create("pool")}, {}, (Share("fetcher", ("pool",), 1),))
    assert entry.names_for("fetcher", 1) == ["pool"]
    assert entry.names_for("fetcher", 0) is None
    entry.close()


def test_an_entry_survives_the_way_to_another_process_and_back() -> None:
    left, right = Channel.pair()
    entry = Entry("k", {"a": os.memfd_create("a")}, {"secret": "s"}, (Share("worker", ("a",)),))
    entry.send_all(left)
    message, fds = right.recv() or ({}, [])
    received = Entry.received(message, fds)
    assert (received.key, received.data, received.shares) == (entry.key, entry.data, entry.shares)
    assert os.fstat(received.fds["a"]).st_ino == os.fstat(entry.fds["a"]).st_ino
    assert "secret" not in repr(entry)
    for kept in (entry, received):
        kept.close()
    left.close()
    right.close()
