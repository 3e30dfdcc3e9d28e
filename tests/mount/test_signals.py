"""A reader whose process gets a signal while it waits for the store: one that it handles (a timer, a profiler, the end
of a child) is not seen by its calls, as with files of a disk; one that kills it ends it at once.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from servers.kills import template_of
from servers.mounts import mount
from servers.node import Node, wait_for
from servers.scenarios import never_answers
from servers.scripted_store import ScriptedStore

pytestmark = pytest.mark.fuse

SIZE = 300_001

# System calls by ctypes: Python's own go on after EINTR and would hide it.
READER = """
import ctypes, mmap, os, signal, sys
path, way, restart = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
signals = []
signal.signal(signal.SIGALRM, lambda *_: signals.append(1))
signal.siginterrupt(signal.SIGALRM, restart != "restarts")
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
def call(function, *arguments):
    result = function(*arguments)
    if result < 0:
        sys.exit(f"{function.__name__}: {os.strerror(ctypes.get_errno())} after {len(signals)} signals")
    return result
fd = call(libc.open, os.fsencode(path), os.O_RDONLY)
if way == "pread":
    buffer = ctypes.create_string_buffer(100)
    count = call(libc.pread, fd, buffer, 100, 0)
    data = buffer.raw[:count]
else:
    mapped = mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE)
    mapped.madvise(mmap.MADV_RANDOM)
    if way == "mmap":
        data = mapped[:100]
    else:
        out, into = os.pipe()
        data = os.read(out, call(libc.write, into, ctypes.byref(ctypes.c_char.from_buffer(mapped)), 100))
signal.setitimer(signal.ITIMER_REAL, 0)
print(data.hex(), len(signals))
"""
WAYS = [f"{way}-{restart}" for way in ("pread", "mmap", "write") for restart in ("restarts", "not")]


def reader(path: Path, way: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-S", "-c", READER, str(path), *way.split("-")]
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize("policy", ["Cache", "WholeFile"])
def test_a_signal_that_a_reader_handles_ends_nothing(node: Node, scripted_store: ScriptedStore, policy: str) -> None:
    """Each on a file of its own, silent at first: read, a fault of a mapping, write(2) out of a mapping, open."""
    contents = {way: os.urandom(SIZE) for way in WAYS}
    for way, data in contents.items():
        scripted_store.put(way, data)
        scripted_store.on(way, never_answers(), times=1)
    root = mount(node, scripted_store, mount={"requestTimeout": "1s"}, cache={"policy": policy})
    readers = {way: reader(root / way, way) for way in WAYS}
    said = {way: process.communicate(timeout=60) for way, process in readers.items()}
    assert {way: err for way, (_, err) in said.items() if err} == {}
    for way, (out, _) in said.items():
        data, signals = out.split()
        assert bytes.fromhex(data) == contents[way][:100], way
        assert int(signals) > 0, f"{way}: it never got one"
    assert all(scripted_store.count(way, "GET") <= 4 for way in WAYS), "nothing is asked again for a signal"
    node.ok("unmount", str(root))  # without --force: nobody is thought to read it still


def test_one_that_got_a_signal_before_is_killed_all_the_same(node: Node, scripted_store: ScriptedStore) -> None:
    """The kernel tells only once that there was a signal."""
    for way in WAYS:
        scripted_store.put(way, os.urandom(SIZE))
        scripted_store.on(way, never_answers())
    root = mount(node, scripted_store, cache={"policy": "WholeFile"})
    readers = [reader(root / way, way) for way in WAYS]
    wait_for(lambda: all(scripted_store.count(way, "GET") for way in WAYS), what="all wait")
    wait_for(lambda: all(handled_one(process.pid) for process in readers), what="all got a signal")
    for process in readers:
        process.kill()
    assert [process.wait(5) for process in readers] == [-signal.SIGKILL] * len(readers)
    for process in readers:
        process.communicate()
    node.ok("unmount", str(root))


def test_a_signal_while_nothing_serves(node: Node, scripted_store: ScriptedStore) -> None:
    """The keeper holds the requests then; looking up a name is one of them."""
    for way in WAYS:
        scripted_store.put(way, way.encode() * 100)
    root = mount(node, scripted_store)
    templates = template_of(node)
    for pid in templates:
        os.kill(pid, signal.SIGSTOP)  # no worker can be started again
    for pid in node.pids("worker"):
        node.kill(pid)
    readers = {way: reader(root / way, way) for way in WAYS}
    wait_for(lambda: all(handled_one(process.pid) for process in readers.values()), what="all got a signal")
    time.sleep(1.0)  # the keeper looks fifty times a second
    for pid in templates:
        os.kill(pid, signal.SIGCONT)
    said = {way: process.communicate(timeout=60) for way, process in readers.items()}
    assert {way: err for way, (_, err) in said.items() if err} == {}
    assert {way: bytes.fromhex(out.split()[0]) for way, (out, _) in said.items()} == {
        way: (way.encode() * 100)[:100] for way in WAYS
    }


def handled_one(pid: int) -> bool:
    """Whether a timer's signal waits for the end of its call."""
    status = Path(f"/proc/{pid}/status").read_text()
    masks = re.findall(r"^(?:SigPnd|ShdPnd):\s+([0-9a-f]+)", status, re.MULTILINE)
    return any(int(mask, 16) >> (signal.SIGALRM - 1) & 1 for mask in masks)


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
