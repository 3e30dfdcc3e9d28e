"""One reader, one large object that was never read: over the loopback, a limited link, and a way with latency."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from bench.cpu import cpu_seconds
from bench.measure import Pair, Row, read_whole
from bench.network import SERVER, limited_link
from bench.reference import Read, obstore_read
from bench.relay import running_relay
from bench.setup import Setup
from bench.store import Store
from servers.node import data_set, processes_of
from stoker.api.mount import Mount
from stoker.api.resolve import resolve_tuning
from stoker.cache.layout import PAGE
from stoker.fetch.plan import RANGE_PAGES

LATENCY_S = 0.02
_GIB = 1 << 30
_SETTLE_S = 1.0  # what a read leaves to be done is counted with it
_RANGE = RANGE_PAGES * PAGE
_THREADS_PER_CORE = 4  # of `readAhead.threads` 0


def loopback(setup: Setup, names: set[str]) -> Iterator[Row]:
    """Against one streamed GET into memory, server and reader on the same cores; CPU time from the same runs."""
    large, node = setup.large(), setup.new_node()
    data = node.mount(setup.s3("cold", large.prefix))
    numbers = itertools.count(), itertools.count()
    ours: list[float] = []
    theirs: list[float] = []

    def subject() -> float:
        before = cpu_seconds(processes_of(node.root))
        rate = read_whole(data / large.name(next(numbers[0])))
        time.sleep(_SETTLE_S)
        ours.append(cpu_seconds(processes_of(node.root)) - before)
        return rate

    def reference() -> float:
        read = obstore_read(setup.store, large.key(next(numbers[1])))
        theirs.append(read.cpu_s)
        return read.mb_per_s

    pairs = setup.paired(subject, reference)
    setup.drop_node(node)
    if "seq_cold_loopback" in names:
        yield Row("seq_cold_loopback", "obstore to memory", "MB/s", 0.6, pairs)
    if "cpu_per_gib" in names:
        gib = large.size / _GIB
        used = [_per_gib(*each, gib) for each in zip(ours, theirs, pairs, strict=True)]
        yield Row("cpu_per_gib", "obstore to memory", "CPU s/GiB", 1.5, used, less_is_better=True)


def _per_gib(ours_s: float, theirs_s: float, pair: Pair, gib: float) -> Pair:
    server = pair.server_cpu_s and (pair.server_cpu_s[0] / gib, pair.server_cpu_s[1] / gib)
    return Pair(ours_s / gib, theirs_s / gib, server)


def seq_cold_link(setup: Setup) -> Row:
    """Over 2 Gbit/s, against one streamed GET into memory over the same link."""
    large = setup.large()
    with limited_link() as link, running_relay(setup.root, setup.store.port, at=link.listener()) as relay:
        store = setup.store.by(SERVER, relay.port)

        def reference(number: int) -> Read:
            with link.at_client():
                return obstore_read(store, large.key(number))

        with link.at_client():  # the node's processes are born here
            return _cold(setup, store, "seq_cold_link", 0.97, reference, "obstore to memory")


def seq_cold_latency(setup: Setup) -> Row:
    """Each request takes 20 ms longer; against as many ranges of the same size at once as ours asks by its defaults."""
    with running_relay(setup.root, setup.store.port, delay_s=LATENCY_S) as relay:
        store = setup.store.by("127.0.0.1", relay.port)
        return _cold_by_ranges(setup, store, "seq_cold_latency", contextlib.nullcontext)


def seq_cold_far(setup: Setup) -> Row:
    """Over 2 Gbit/s with those 20 ms, as a store in another town: the link is what limits, not the cores."""
    with (
        limited_link() as link,
        running_relay(setup.root, setup.store.port, delay_s=LATENCY_S, at=link.listener()) as relay,
        link.at_client(),
    ):
        return _cold_by_ranges(setup, setup.store.by(SERVER, relay.port), "seq_cold_far", link.at_client)


def _cold_by_ranges(setup: Setup, store: Store, row: str, at: Callable[[], AbstractContextManager[None]]) -> Row:
    """Against obstore that asks as many ranges at once as ours does by its defaults. `at`: where obstore is started."""
    large, parallel = setup.large(), parallel_ranges()

    def reference(number: int) -> Read:
        with at():
            return obstore_read(store, large.key(number), size=large.size, parallel=parallel, part=_RANGE)

    return _cold(setup, store, row, 0.9, reference, f"obstore, {parallel} ranges at once")


def parallel_ranges() -> int:
    """Ranges on their way for one stream by default: the window (64 MiB) in ranges of 8 MiB, at most four for each
    core."""
    cores = len(os.sched_getaffinity(0))
    return min(resolve_tuning(Mount()).read_ahead_max // _RANGE, _THREADS_PER_CORE * cores)


def _cold(
    setup: Setup, store: Store, row: str, bar: float, reference: Callable[[int], Read], reference_name: str
) -> Row:
    large, node = setup.large(), setup.new_node()
    data = node.mount(data_set(row.replace("_", "-"), store.source(large.prefix)))
    numbers = itertools.count(), itertools.count()
    pairs = setup.paired(
        lambda: read_whole(data / large.name(next(numbers[0]))),
        lambda: reference(next(numbers[1])).mb_per_s,
    )
    setup.drop_node(node)
    return Row(row, reference_name, "MB/s", bar, pairs)
