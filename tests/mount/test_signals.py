"""A reader whose process gets a signal while it waits for the store. One that it handles (a timer, a profiler, the end
of a child) does not end its read; an open that waits for its whole file says EINTR, and the next one finds the file.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from servers.mounts import mount
from servers.node import Node, wait_for
from servers.scenarios import never_answers
from servers.scripted_store import ScriptedStore

pytestmark = pytest.mark.fuse

SIZE = 300_001
SETTINGS = {"requestTimeout": "1s"}

# System calls by ctypes: Python's own go on after EINTR and would hide it.
READER = """
import ctypes, mmap, os, signal, sys
path, way, restart = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
signals = []
signal.signal(signal.SIGALRM, lambda *_: signals.append(1))
signal.siginterrupt(signal.SIGALRM, restart != "restarts")
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
fd = libc.open(os.fsencode(path), os.O_RDONLY)
if fd < 0:
    sys.exit(f"open: {ctypes.get_errno()} {len(signals)}")
if way == "mmap":
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped:
        mapped.madvise(mmap.MADV_RANDOM)
        data = mapped[:100]
else:
    buffer = ctypes.create_string_buffer(100)
    count = libc.pread(fd, buffer, 100, 0)
    if count < 0:
        sys.exit(f"read: {ctypes.get_errno()} {len(signals)}")
    data = buffer.raw[:count]
print(data.hex(), len(signals))
"""


def reader(path: Path, way: str, restart: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-S", "-c", READER, str(path), way, restart]
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)


def test_a_read_goes_on(node: Node, scripted_store: ScriptedStore) -> None:
    """Each on a file of its own; the store is silent at first, so that every one of them is interrupted."""
    asked = {f"{way}-{restart}": (way, restart) for way in ("pread", "mmap") for restart in ("restarts", "not")}
    contents = {key: os.urandom(SIZE) for key in asked}
    for key, data in contents.items():
        scripted_store.put(key, data)
        scripted_store.on(key, never_answers(), times=1)
    root = mount(node, scripted_store, mount=SETTINGS)
    readers = {key: reader(root / key, *how) for key, how in asked.items()}
    said = {key: process.communicate(timeout=60) for key, process in readers.items()}
    for key, (out, err) in said.items():
        assert not err, (key, err)
        data, signals = out.split()
        assert bytes.fromhex(data) == contents[key][:100], key
        assert int(signals) > 0, f"{key}: it was never interrupted"
    assert all(scripted_store.count(key, "GET") <= 4 for key in asked), "an interrupted read asks nothing twice"
    node.ok("unmount", str(root))


def test_an_open_that_waits_for_its_file_is_told(node: Node, scripted_store: ScriptedStore) -> None:
    data = os.urandom(SIZE)
    scripted_store.put("f", data)
    scripted_store.on("f", never_answers(), times=1)
    root = mount(node, scripted_store, mount=SETTINGS, cache={"policy": "WholeFile"})
    first = reader(root / "f", "pread", "not")
    out, err = first.communicate(timeout=60)
    assert err.startswith(f"open: {errno.EINTR} "), (out, err)
    assert (root / "f").read_bytes() == data, "the load went on meanwhile"
    assert scripted_store.count("f", "GET") <= 4
    node.ok("unmount", str(root))


@pytest.mark.parametrize("policy", ["Cache", "WholeFile"])
def test_ctrl_c_ends_a_reader_at_once(node: Node, scripted_store: ScriptedStore, policy: str) -> None:
    scripted_store.put("f", os.urandom(SIZE))
    scripted_store.on("f", never_answers())
    root = mount(node, scripted_store, cache={"policy": policy})
    process = subprocess.Popen(["cat", root / "f"], stdout=subprocess.DEVNULL)
    wait_for(lambda: scripted_store.count("f", "GET"))
    process.send_signal(signal.SIGINT)
    assert process.wait(5) == -signal.SIGINT
    node.ok("unmount", str(root))  # without --force: nobody is thought to read it still
