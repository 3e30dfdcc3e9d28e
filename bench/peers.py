"""The work of the bench by Stoker and by one of the mounts that users have today: same store, same run."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.amplification import by_pread, random_offsets, settled
from bench.measure import Pair, Row, drop_caches, paired, read_each, read_each_by, read_whole, stat_each
from bench.peer_mounts import Peer, be_installed, mounted
from bench.relay import running_relay
from bench.setup import Large, Setup, bench_setup, object_name, work_folder
from bench.store import Store, running_store
from servers.node import data_set

RESULTS = Path("bench/results/peers.json")
_RUNS = 3
_SMALL_SIZE = 64 << 10
Work = Callable[[Path, int], float]


@dataclass(frozen=True)
class Data:
    """What is in the bucket: large objects, small ones in folders of a thousand, and a flat folder."""

    large: Large
    small: int
    flat: int
    random: int

    @classmethod
    def of(cls, setup: Setup) -> Data:
        return cls(Large("large", setup.large_size), setup.count(4000), setup.count(100_000), setup.count(2000))

    def fill(self, setup: Setup) -> None:
        setup.fill("large", setup.runs + 1, self.large.size)
        setup.fill("small", self.small, _SMALL_SIZE)
        setup.fill_flat("flat", self.flat)

    def small_paths(self, first: float, last: float) -> list[str]:
        """A part of the small ones, by its borders from 0 to 1."""
        whole = range(int(first * self.small), int(last * self.small))
        return [f"small/{object_name(index)}" for index in whole]


def compare(peer: Peer, *, quick: bool) -> Iterator[Row]:
    """Row by row. Raises NotMeasuredError when the peer cannot be had."""
    be_installed(peer)
    with (
        work_folder("peer") as root,
        running_store(root / "store") as store,
        bench_setup(store, root, quick=quick, runs=1 if quick else _RUNS) as setup,
    ):
        data = Data.of(setup)
        data.fill(setup)
        store.warm()
        yield from _reads(setup, data, peer)
        store.warm()
        yield from _random(setup, data, peer)
        yield from _listing(setup, data, peer)


@contextlib.contextmanager
def _both(setup: Setup, peer: Peer, store: Store) -> Iterator[tuple[Path, Path]]:
    """The whole bucket by Stoker and by the peer, both with an empty cache."""
    node = setup.new_node()
    with mounted(peer, store, setup.root / f"{peer.name}-{node.root.name}") as theirs:
        yield node.mount(data_set("all", {**store.source(""), "path": "/"})), theirs
    setup.drop_node(node)


def _reads(setup: Setup, data: Data, peer: Peer) -> Iterator[Row]:
    with _both(setup, peer, setup.store) as sides:
        for row, (unit, work) in _work(setup, data).items():
            yield _row(row, peer, unit, _pairs(setup, sides, work))


def _work(setup: Setup, data: Data) -> dict[str, tuple[str, Work]]:
    """In this order: what is cold is read cold first, and is on both sides' disks afterwards."""
    all_small, part = data.small_paths(0, 1), 1 / (4 * setup.runs)

    def large(folder: Path, run: int) -> float:
        return read_whole(folder / data.large.key(run))

    def hot_large(folder: Path, run: int) -> float:
        large(folder, run)  # the other side may have dropped the kernel's caches
        return large(folder, run)

    def small(folder: Path, paths: list[str], threads: int) -> float:
        return read_each_by(threads, [f"{folder}/{path}" for path in paths])

    def dropped(work: Work) -> Work:
        def after(folder: Path, run: int) -> float:
            drop_caches()
            return work(folder, run)

        return after

    def cold(threads: int, first: float) -> Work:
        return lambda folder, run: small(
            folder, data.small_paths(first + run * part, first + (run + 1) * part), threads
        )

    def hot(folder: Path, _run: int) -> float:
        paths = [f"{folder}/{path}" for path in all_small]
        read_each(paths)
        return read_each(paths)

    return {
        "seq_cold_loopback": ("MB/s", large),
        "seq_warm": ("MB/s", dropped(large)),
        "seq_hot": ("MB/s", hot_large),
        "small_cold": ("files/s", cold(1, 0)),
        "small_cold_16": ("files/s", cold(16, 0.25)),
        "hot_small": ("files/s", hot),
        "small_disk": ("files/s", dropped(lambda folder, _run: small(folder, all_small, 1))),
        "small_disk_16": ("files/s", dropped(lambda folder, _run: small(folder, all_small, 16))),
    }


def _pairs(setup: Setup, sides: tuple[Path, Path], work: Work) -> list[Pair]:
    ours, theirs = itertools.count(), itertools.count()
    return paired(setup.runs, lambda: work(sides[0], next(ours)), lambda: work(sides[1], next(theirs)))


def _random(setup: Setup, data: Data, peer: Peer) -> Iterator[Row]:
    """Random reads of 4 KiB, cold; what is fetched is counted on the way to the store, headers included."""
    fetched: dict[Path, list[float]] = {}
    with (
        running_relay(setup.root, setup.store.port) as relay,
        _both(setup, peer, setup.store.by("127.0.0.1", relay.port)) as sides,
    ):

        def work(folder: Path, run: int) -> float:
            offsets = random_offsets(data.random, 4096, data.large.size, seed=run)
            before, begun = settled(relay.bytes_received), time.perf_counter()
            by_pread(folder / data.large.key(run), offsets, 4096)
            rate = len(offsets) / (time.perf_counter() - begun)
            fetched.setdefault(folder, []).append((settled(relay.bytes_received) - before) / (len(offsets) * 4096))
            return rate

        yield _row("random_4k", peer, "reads/s", _pairs(setup, sides, work))
        bytes_each = [Pair(*each) for each in zip(fetched[sides[0]], fetched[sides[1]], strict=True)]
        yield _row("amplification_4k", peer, "x", bytes_each, less=True)


def _listing(setup: Setup, data: Data, peer: Peer) -> Iterator[Row]:
    """A flat folder with the attributes of each entry, once: from the mount command to the last entry, and again."""
    node = setup.new_node()
    begun = time.perf_counter()
    ours = node.mount(data_set("flat", setup.store.source("flat")))
    ours_first, ours_again = _listed(ours, data.flat, begun), _listed(ours, data.flat)
    setup.drop_node(node)
    begun = time.perf_counter()
    with mounted(peer, setup.store, setup.root / f"{peer.name}-flat", "flat") as theirs:
        pairs = Pair(ours_first, _listed(theirs, data.flat, begun)), Pair(ours_again, _listed(theirs, data.flat))
    for row, pair in zip(("list_mount", "list_100k"), pairs, strict=True):
        yield _row(row, peer, "entries/s", [pair])


def _listed(folder: Path, count: int, since: float | None = None) -> float:
    begun = time.perf_counter() if since is None else since
    found = stat_each(folder)
    if found != count:
        raise RuntimeError(f"{folder}: {found} entries of {count} were listed")
    return count / (time.perf_counter() - begun)


def _row(row: str, peer: Peer, unit: str, pairs: list[Pair], *, less: bool = False) -> Row:
    # Ahead of the peer is the bar, whichever way better is.
    bar = Row(row, "", "", 0, pairs).reference if less else 1.0
    return Row(row, peer.title, unit, bar, pairs, less_is_better=less, peer=peer.name)


def store_results(peer: Peer, results: list[dict[str, Any]]) -> None:
    """In place of what was stored for this peer."""
    others = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    kept = [result for result in others if result["peer"] != peer.name]
    RESULTS.write_text(json.dumps(kept + results, indent=1) + "\n")
