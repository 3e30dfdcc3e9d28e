"""Passthrough over kills and reboots: no backing id is left behind, and what is verified again is passed through."""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import struct
import threading
import time
from pathlib import Path

import pytest

from servers.kills import whole
from servers.node import Node, data_set, running_node, wait_for
from servers.stores import FolderStore
from stoker.fuse.opens import OpenTable

pytestmark = [
    pytest.mark.fuse,
    pytest.mark.skipif(os.geteuid() != 0, reason="passthrough needs root"),
]

FILES = 6
PASSTHROUGH = {"mount": {"passthrough": "Always"}}
_BACKING_CLOSE = 0x4004E502
_PIDFD_GETFD = 438


def descriptor_of(node: Node, name: str) -> int:
    """A duplicate of one that the supervisor holds."""
    pid = node.pids("supervisor")[0]
    number = next(int(link.name) for link in Path(f"/proc/{pid}/fd").iterdir() if name in os.readlink(link))
    pidfd = os.pidfd_open(pid)
    fd = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, pidfd, number, 0)
    os.close(pidfd)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    return int(fd)


def left_behind(connection: int, highest: int) -> list[int]:
    """The backing ids that the kernel still has; it closes them."""
    found = []
    for backing in range(1, highest + 1):
        try:
            fcntl.ioctl(connection, _BACKING_CLOSE, struct.pack("<I", backing))
        except OSError:
            continue
        found.append(backing)
    return found


def fill(store: FolderStore) -> dict[str, bytes]:
    contents = {f"f{number}": os.urandom(200_000 + number) for number in range(FILES)}
    for name, data in contents.items():
        store.put(name, data)
    return contents


def open_for_ever(
    root: Path, contents: dict[str, bytes], stop: threading.Event, wrong: list[str], opens: list[int]
) -> None:
    """Open, read a little, close."""
    chance = random.Random()
    while not stop.is_set() and not wrong:
        name, at = f"f{chance.randrange(FILES)}", chance.randrange(190_000)
        try:
            with open(root / name, "rb", buffering=0) as file:
                if os.pread(file.fileno(), 100, at) != contents[name][at : at + 100]:
                    wrong.append(f"wrong bytes in {name} at {at}")
        except OSError as error:
            wrong.append(f"{name}: {error}")
        opens.append(1)


def test_opens_under_kills_leave_no_backing_id(node: Node, scratch: Path) -> None:
    store = FolderStore(scratch / "origin")
    contents = fill(store)
    root = node.mount(data_set("ds", store.source(), **PASSTHROUGH))
    for name, data in contents.items():
        assert (root / name).read_bytes() == data
    stop, wrong, opens = threading.Event(), list[str](), list[int]()
    threads = [threading.Thread(target=open_for_ever, args=(root, contents, stop, wrong, opens)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(25):  # often in mid-replay: no request may be blamed for that
        victim = random.choice(wait_for(lambda: node.pids("worker")))
        time.sleep(random.uniform(0.0, 0.1))  # at no fixed time after its birth
        node.kill(victim)
    stop.set()
    for thread in threads:
        thread.join(60)
    assert not wrong
    wait_for(lambda: whole(node))
    table = OpenTable(descriptor_of(node, "stoker-opens"))
    wait_for(lambda: not table.passthrough_inodes(), what="the last opens are released")
    connection = descriptor_of(node, "/dev/fuse")
    with open(root / "f0", "rb") as file:  # one that is open has an id: the count below can fail
        assert file.read() == contents["f0"]
        wait_for(lambda: len(table.passthrough_inodes()) == 1, what="a complete file is passed through")
        assert len(left_behind(connection, 2 * len(opens) + 1000)) == 1
    os.close(connection)
    table.close()


def test_after_a_reboot_files_are_passed_through_when_they_are_verified(scratch: Path) -> None:
    store = FolderStore(scratch / "origin")
    contents = fill(store)
    document = data_set("ds", store.source(), **PASSTHROUGH)
    with running_node(scratch, STOKER_BOOT_ID="before") as node:
        root = node.mount(document)
        for name, data in contents.items():
            assert (root / name).read_bytes() == data
        node.ok("node", "--stop")
    with running_node(scratch, STOKER_BOOT_ID="after") as node:
        root = node.mount(document)

        def passed_through() -> bool:
            before = node.status()["bytesFromCache"]
            for name, data in contents.items():
                with open(root / name, "rb") as file:
                    assert file.read() == data
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return bool(node.status()["bytesFromCache"] == before)

        wait_for(passed_through, what="reads reach no process of ours")
        assert node.status()["bytesFromSource"] == 0
