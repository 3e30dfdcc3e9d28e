"""Several mounts of one node at the same time."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

from servers.node import Node, data_set, wait_for
from servers.scenarios import never_answers
from servers.scripted_store import ScriptedStore

pytestmark = pytest.mark.fuse

# Neither Python's own read nor that of `cat`: both hide that a call was interrupted.
READ_ONCE = """
import ctypes, os, sys
libc, buffer = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(100)
count = libc.read(os.open(sys.argv[1], os.O_RDONLY), buffer, 100)
sys.stdout.write(buffer.raw[:count].decode() if count >= 0 else os.strerror(ctypes.get_errno()))
"""


def test_sessions_do_not_answer_for_each_other(node: Node, scripted_store: ScriptedStore) -> None:
    """The kernel numbers the requests of each connection on its own, so two mounts have requests of the same number."""
    names = [f"f{number}" for number in range(16)]
    for name, folder in itertools.product(names, ("one", "two")):
        scripted_store.put(f"{folder}/{name}", f"{folder} {name}".encode())
        scripted_store.on(f"{folder}/{name}", never_answers(), times=1)
    one, two = (
        node.mount(data_set(name, scripted_store.source(name), mount={"requestTimeout": "4s"}), name)
        for name in ("one", "two")
    )
    killed = [subprocess.Popen(["cat", one / name]) for name in names]
    others = [subprocess.Popen([sys.executable, "-c", READ_ONCE, two / name], stdout=subprocess.PIPE) for name in names]
    wait_for(lambda: all(scripted_store.count(f"{f}/{n}", "GET") for n in names for f in ("one", "two")))
    for process in killed:
        process.kill()
    assert all(process.wait(3) for process in killed), "killed at once, not when the store answers"
    assert [process.communicate(timeout=30)[0] for process in others] == [f"two {name}".encode() for name in names]
