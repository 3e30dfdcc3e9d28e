"""CASES of area fuse on real mounts: very many readers, and readers that the kernel shows as one."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import pytest

from servers.mounts import mount
from servers.node import Node, running_node
from servers.pattern import Pattern
from servers.scripted_store import ScriptedStore
from servers.watched import Watched, memory_of

pytestmark = pytest.mark.fuse

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class TestFU15:
    """mountpoint-s3#1326: hundreds of open handles, and buffers for each."""

    FILES, HANDLES = 50, 500
    MOST_MEMORY = 512 * MIB

    @pytest.fixture
    def node(self, scratch: Path) -> Iterator[Node]:
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        with running_node(scratch, STOKER_CACHE_QUOTA="256Mi", **keys) as node:
            yield node

    @pytest.fixture
    def contents(self, scripted_store: ScriptedStore) -> dict[str, Pattern]:
        found = {f"shard-{number:02}": Pattern(10 * GIB, number) for number in range(self.FILES)}
        for key, data in found.items():
            scripted_store.put(key, data, etag=f'"{key}"')
        return found

    def test_fu_15_random_reads_and_streams_of_500_handles_are_bounded(
        self, node: Node, scripted_store: ScriptedStore, contents: dict[str, Pattern]
    ) -> None:
        root = mount(node, scripted_store)
        chance = random.Random(15)
        with ExitStack() as stack, ThreadPoolExecutor(64) as pool, Watched(lambda: memory_of(node), 0.1) as watched:
            keys = [f"shard-{number % self.FILES:02}" for number in range(self.HANDLES)]
            files = [stack.enter_context(open(root / key, "rb", buffering=0)) for key in keys]
            pages = [(at % self.HANDLES, chance.randrange(10 * GIB // 4096) * 4096) for at in range(4000)]
            assert all(pool.map(lambda read: same(files[read[0]], contents[keys[read[0]]], read[1], 4096), pages))
            fetched = node.status()["bytesFromSource"]
            assert fetched <= 4.5 * 4096 * len(pages)
            # Streams of a second mebibyte each: every one has earned read-ahead.
            begins = {at: chance.randrange(9 * GIB // MIB) * MIB for at in range(100)}
            steps = [(at, begin + step) for step in range(0, MIB, 128 * KIB) for at, begin in begins.items()]
            assert all(pool.map(lambda r: same(files[r[0]], contents[keys[r[0]]], r[1], 128 * KIB), steps))
        assert len(watched.seen) > 5
        assert 32 * MIB < max(watched.seen) < self.MOST_MEMORY, "of all processes; read-ahead alone could be 6 GiB"


def same(file: BinaryIO, data: Pattern, offset: int, length: int) -> bool:
    return os.pread(file.fileno(), length, offset) == data[offset : offset + length]


WINDOW = 256 * KIB
FORKED = """
import hashlib, mmap, os, sys
fd, size, window = os.open(sys.argv[1], os.O_RDONLY), int(sys.argv[2]), int(sys.argv[3])
def child(number):
    digest = hashlib.sha256()
    with mmap.mmap(fd, size, prot=mmap.PROT_READ) as mapped:
        for at in range(number * window, size, 4 * window):
            digest.update(mapped[at:at + window])
    os.write(1, f"{number} {digest.hexdigest()}\\n".encode())
    os._exit(0)
for number in range(4):
    if not os.fork():
        child(number)
for _ in range(4):
    assert os.wait()[1] == 0
"""


def test_fu_16_forked_processes_that_map_one_descriptor_fetch_each_byte_once(
    node: Node, scripted_store: ScriptedStore
) -> None:
    """diffusers#10280: interleaved windows of one inherited descriptor look random, and are four streams."""
    data = os.urandom(64 * MIB + 12_345)
    scripted_store.put("model.safetensors", data)
    root = mount(node, scripted_store)
    command = [sys.executable, "-S", "-c", FORKED, str(root / "model.safetensors"), str(len(data)), str(WINDOW)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    expected = {number: hashlib.sha256() for number in range(4)}
    for at in range(0, len(data), WINDOW):
        expected[at // WINDOW % 4].update(data[at : at + WINDOW])
    found = dict(line.split() for line in done.stdout.splitlines())
    assert found == {str(number): digest.hexdigest() for number, digest in expected.items()}
    assert node.status()["bytesFromSource"] == len(data)
    assert scripted_store.count("model.safetensors", "GET") <= len(data) // MIB, "recognised as streams"
