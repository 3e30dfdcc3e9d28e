"""`make bench`: all rows, or those named, printed as a table and stored in bench/results/latest.json."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.amplification import amplification_4k, amplification_256k, amplification_mmap_4k
from bench.cold import loopback, seq_cold_far, seq_cold_latency, seq_cold_link
from bench.listing import FlatFolder, list_source
from bench.measure import Row, drop_caches, list_entries, list_names
from bench.network import NotMeasuredError
from bench.peer_mounts import PEERS, Peer
from bench.peers import compare, store_results
from bench.preloads import preload_large, preload_small
from bench.s3 import s3_gets
from bench.sequential import seq_warm
from bench.setup import Setup, bench_setup, work_folder
from bench.small import SmallFiles
from bench.store import running_store
from bench.table import results_table

RESULTS = Path("bench/results/latest.json")
_RUNS, _QUICK_RUNS = 5, 3

console = Console(highlight=False, width=None if sys.stdout.isatty() else 180)


def _small(setup: Setup, names: set[str]) -> Iterator[Row]:
    with contextlib.closing(SmallFiles(setup)) as files:
        if "hot_small" in names:
            yield files.hot()
        for row, threads in (("small_disk", 1), ("small_disk_16", 16)):
            if row in names:
                yield files.from_disk(row, threads)


def _flat(setup: Setup, names: set[str]) -> Iterator[Row]:
    with contextlib.closing(FlatFolder(setup)) as folder:
        for row, listing in (("list_100k", list_entries), ("list_100k_names", list_names)):
            if row in names:
                yield folder.all_entries(row, listing)
        if "first_entry" in names:
            yield folder.first_entry()


def _one(row: Callable[[Setup], Row]) -> Callable[[Setup, set[str]], Iterator[Row]]:
    def measure(setup: Setup, _names: set[str]) -> Iterator[Row]:
        yield row(setup)

    return measure


# Rows that work on the same data are measured by one function.
ROWS: dict[tuple[str, ...], Callable[[Setup, set[str]], Iterator[Row]]] = {
    ("hot_small", "small_disk", "small_disk_16"): _small,
    ("list_100k", "list_100k_names", "first_entry"): _flat,
    ("seq_warm",): _one(seq_warm),
    ("seq_cold_loopback", "cpu_per_gib"): loopback,
    ("seq_cold_link",): _one(seq_cold_link),
    ("seq_cold_latency",): _one(seq_cold_latency),
    ("seq_cold_far",): _one(seq_cold_far),
    ("amplification_256k",): _one(amplification_256k),
    ("amplification_4k",): _one(amplification_4k),
    ("amplification_mmap_4k",): _one(amplification_mmap_4k),
    ("preload_large",): _one(preload_large),
    ("preload_small",): _one(preload_small),
    ("list_source",): _one(list_source),
    ("s3_get_large", "s3_get_small"): s3_gets,
}
NAMES = [name for names in ROWS for name in names]


def measure(names: set[str], *, quick: bool) -> Iterator[Row]:
    """The rows of these names, one by one."""
    with (
        work_folder("bench") as root,
        running_store(root / "store") as store,
        bench_setup(store, root, quick=quick, runs=_QUICK_RUNS if quick else _RUNS) as setup,
    ):
        for group, rows in ROWS.items():
            if names & set(group):
                try:
                    yield from rows(setup, names)
                except NotMeasuredError as error:
                    print(f"{', '.join(group)}: not measured: {error}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the data and 3 runs; stores no results")
    parser.add_argument("rows", nargs="*", choices=[[], *NAMES], help="only these rows; stores no results")
    parser.add_argument("--peer", choices=sorted(PEERS), help="against this mount, installed if missing")
    chosen = parser.parse_args()
    if not drop_caches():
        print(
            "Only root may drop the kernel's caches: rows that read from disk are measured from memory.",
            file=sys.stderr,
        )
    console.print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if chosen.peer:
        return _against(PEERS[chosen.peer], quick=chosen.quick)
    results = _shown(measure(set(chosen.rows or NAMES), quick=chosen.quick))
    if not chosen.quick and len(results) == len(NAMES):
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        console.print(f"stored in {RESULTS}; python -m bench.readme writes them into README.md")
    return 0


def _against(peer: Peer, *, quick: bool) -> int:
    try:
        results = _shown(compare(peer, quick=quick))
    except NotMeasuredError as error:
        print(f"{peer.name}: not measured: {error}", file=sys.stderr)
        return 1
    if not quick:
        store_results(peer, results)
        console.print("stored in bench/results/peers.json")
    return 0


def _shown(rows: Iterator[Row]) -> list[dict[str, Any]]:
    """Each when it is there, and all as a table."""
    results = []
    for row in rows:
        console.print(f"{row.row}: {row.subject:,.1f} {row.unit}, {row.reference_name} {row.reference:,.1f}")
        results.append(row.to_json())
    console.print(results_table(results))
    return results


if __name__ == "__main__":
    sys.exit(main())
