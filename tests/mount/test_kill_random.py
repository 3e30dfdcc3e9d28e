"""kill -9 of our processes in random order under readers of every kind: no error, no wrong byte, nobody hangs.

One test in two lengths. A failure says which reader failed, at which call and offset, after which kills, and the seed
that gives the same order again (`KILL_SEED`).
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from servers.kills import choose, holders, kill_at_once, sent, template_of, whole
from servers.node import Node, alive, data_set, running_node
from servers.readers import Expected, Readers, waiting_in_kernel
from servers.seaweedfs import ADMIN
from servers.stores import BucketStore

pytestmark = [pytest.mark.fuse, pytest.mark.store]

SMALL = 2000
MEDIUM_BYTES = 5_000_000  # more than a chunk
ROOT = os.geteuid() == 0

WHOLE_S = 60.0  # each process that is started anew takes a second of a free core

# Who is killed, together with whom, and how often in a hundred.
PLANS: dict[tuple[str, ...], int] = {
    ("worker",): 24,
    ("fetcher",): 18,
    ("daemon",): 12,
    ("supervisor",): 13,
    ("template",): 6,
    ("workers",): 6,
    ("worker", "fetcher"): 5,
    ("daemon", "fetcher"): 4,
    ("daemon", "worker"): 4,
    ("supervisor", "worker"): 2,
    ("supervisor", "daemon"): 3,
    ("supervisor", "daemon", "worker"): 2,
    ("supervisor", "workers"): 1,
}
READERS = [
    *(("no-open", way) for way in ("small", "small", "large", "list")),
    *(("passthrough", way) for way in ("herd", "herd", "complete", "large", "small")),
    *(("whole-file", way) for way in ("herd", "medium")),
]


@dataclass(frozen=True)
class Scale:
    """How much is read, how much of it fits into the cache, and how often something is killed."""

    kills: int
    small_bytes: int
    large_bytes: int
    quota: str


CI = Scale(kills=40, small_bytes=20_000, large_bytes=256 << 20, quota="310Mi")
LONG = Scale(kills=500, small_bytes=64 << 10, large_bytes=1 << 30, quota="1150Mi")


def fill(store: BucketStore, folder: Path, scale: Scale) -> Expected:
    """2,000 small objects, some of more than a chunk, a large one."""
    expected: Expected = {}

    def put(key: str, size: int) -> None:
        data = os.urandom(size)
        store.put(key, data)
        expected[key] = (size, hashlib.sha256(data).hexdigest())

    sizes = {f"small/{number:04d}": scale.small_bytes - number for number in range(SMALL)}
    sizes |= {f"medium/{number}": MEDIUM_BYTES + number for number in range(6)}
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, sizes.keys(), sizes.values()))
    digest = hashlib.sha256()
    with open(folder / "large", "w+b") as file:
        for _ in range(0, scale.large_bytes, 1 << 24):
            block = os.urandom(1 << 24)
            digest.update(block)
            file.write(block)
        file.seek(0)
        store.put("large", file)
    (folder / "large").unlink()
    expected["large"] = (scale.large_bytes, digest.hexdigest())
    return expected


def mount_each_kind(node: Node, store: BucketStore) -> dict[str, Path]:
    """The same bucket as each kind of session; all share the cache."""
    kinds: dict[str, dict[str, Any]] = {
        "no-open": {"mount": {"passthrough": "Never"}},
        "passthrough": {"mount": {"passthrough": "Always"}} if ROOT else {"cache": {"policy": "WholeFile"}},
        "whole-file": {"mount": {"passthrough": "Never"}, "cache": {"policy": "WholeFile"}},
    }
    return {kind: node.mount(data_set(kind, store.source(), **spec), kind) for kind, spec in kinds.items()}


@dataclass
class Killer:
    """Kills by chance, and remembers what it did for the text of a failure."""

    node: Node
    readers: Readers
    chance: random.Random
    kills: int = 0
    last: deque[str] = field(default_factory=lambda: deque(maxlen=12))
    began: float = field(default_factory=time.monotonic)
    _holders: set[int] = field(default_factory=set)

    def once(self) -> None:
        """Kill, and go on at once or when everything is there again."""
        plan = self.chance.choices(list(PLANS), list(PLANS.values()))[0]
        self._note(" + ".join(plan))
        self._kill(plan)
        if self.chance.random() < 0.1:
            self._kill_reader()
        if self.chance.random() < 0.35:
            time.sleep(self.chance.uniform(0.0, 0.1))
        else:
            self.wait_until_whole()

    def nobody_serves(self) -> None:
        """No worker is left and none can be started: a reader that is killed now is gone all the same."""
        self._note("template stopped, workers killed")
        templates = template_of(self.node)
        for pid in templates:
            sent(pid, signal.SIGSTOP)
        self._kill(["workers"])
        time.sleep(self.chance.uniform(0.0, 0.6))
        self._kill_reader()
        for pid in templates:
            sent(pid, signal.SIGCONT)

    def wait_until_whole(self) -> None:
        """A reader that fails meanwhile ends the wait."""
        end = time.monotonic() + WHOLE_S
        while not whole(self.node):
            self.check(self.readers.problems())
            if time.monotonic() > end:
                self.check([f"the node is not whole again after {WHOLE_S:.0f} s"])
            time.sleep(0.01)
        self._holders = holders(self.node)

    def history(self) -> str:
        return f"after {self.kills} kills, the last of them (at seconds): {', '.join(self.last)}"

    def check(self, problems: list[str]) -> None:
        assert not problems, "\n".join([*problems, self.history(), self.node.log()[-3000:]])

    def _kill(self, plan: Sequence[str]) -> None:
        """But never the last of those that hold everything."""
        pids = choose(self.node, plan, self.chance)
        if not {pid for pid in self._holders if alive(pid)} - set(pids):
            self.wait_until_whole()
            pids = choose(self.node, plan, self.chance)
        self.kills += kill_at_once(pids)

    def _kill_reader(self) -> None:
        self._note("a reader")
        if problem := self.readers.kill_one():
            self.check([problem])

    def _note(self, what: str) -> None:
        self.last.append(f"{what} at {time.monotonic() - self.began:.2f}")


@contextmanager
def reading(node: Node, store: BucketStore, scale: Scale, chance: random.Random) -> Iterator[Readers]:
    expected = fill(store, node.root, scale)
    roots = mount_each_kind(node, store)
    readers = Readers(node.root, expected, chance)
    try:
        for kind, way in READERS:
            readers.start(roots[kind], way)
        yield readers
    finally:
        readers.close()


LENGTHS = [
    pytest.param(CI, id="short"),
    pytest.param(LONG, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
]


@pytest.mark.parametrize("scale", LENGTHS)
def test_kills_in_random_order_fail_no_reader(scratch: Path, bucket: BucketStore, scale: Scale) -> None:
    seed = int(os.environ.get("KILL_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"KILL_SEED={seed}")  # pytest shows it with a failure
    chance = random.Random(seed)
    keys = {"AWS_ACCESS_KEY_ID": ADMIN[0], "AWS_SECRET_ACCESS_KEY": ADMIN[1]}
    settings = {"STOKER_FUSE_WORKERS": "2", "STOKER_FETCHERS": "1", "STOKER_CACHE_QUOTA": scale.quota, **keys}
    with running_node(scratch, **settings) as node, reading(node, bucket, scale, chance) as readers:
        killer = Killer(node, readers, chance)
        while killer.kills < scale.kills:
            killer.check(readers.problems())
            if chance.random() < 0.05:
                killer.nobody_serves()
            else:
                killer.once()
        killer.wait_until_whole()
        killer.check(readers.stop())
        killer.check(waiting_in_kernel([one.process.pid for one in readers.running]))
        figures = f"{killer.kills} kills in {time.monotonic() - killer.began:.0f} s, {readers.rounds} rounds of readers"
        print(figures)
