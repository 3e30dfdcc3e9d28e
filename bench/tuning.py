"""`python -m bench.tuning`: what each read setting of a mount does, measured, for docs/TUNING.md.

Stored in bench/results/tuning.json and written between the marks of the document. `--write` only writes what is stored,
`--check` says whether the document shows it, `--quick` prints figures of little data and keeps none.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from bench.amplification import by_pread, random_offsets, settled_bytes
from bench.cold import LATENCY_S
from bench.marks import keep
from bench.measure import MIB, drop_caches
from bench.relay import running_relay
from bench.setup import Large, Setup, bench_setup, work_folder
from bench.store import Store, running_store
from servers.node import Node, data_set
from stoker.api.mount import Mount, Profile
from stoker.api.resolve import resolve_tuning

DOCUMENT, RESULTS = Path("docs/TUNING.md"), Path("bench/results/tuning.json")
_RUNS = 3
_READ_S = 2.0  # a slow setting is not read to the end
_RANDOM = 500

# What stands in the document, and what it means for `spec`.
AHEAD: dict[str, dict[str, Any]] = {
    "defaults": {},
    "readAhead.max: 0": {"mount": {"readAhead": {"max": "0"}}},
    "readAhead.max: 4Mi": {"mount": {"readAhead": {"max": "4Mi"}}},
    "readAhead.max: 16Mi": {"mount": {"readAhead": {"max": "16Mi"}}},
    "readAhead.max: 256Mi": {"mount": {"readAhead": {"max": "256Mi"}}},
    "readAhead.threads: 1": {"mount": {"readAhead": {"threads": 1}}},
    "readAhead.threads: 4": {"mount": {"readAhead": {"threads": 4}}},
    "readAhead.threads: 16": {"mount": {"readAhead": {"threads": 16}}},
    "blockSize: 256Ki": {"mount": {"blockSize": "256Ki"}},
    "blockSize: 8Mi": {"mount": {"blockSize": "8Mi"}},
    "profile: sequential-once": {"mount": {"profile": "sequential-once"}},
    "profile: random": {"mount": {"profile": "random"}},
}
AGAIN: dict[str, dict[str, Any]] = {
    "defaults": {},
    "passthrough: Never": {"mount": {"passthrough": "Never"}},
    "cache.policy: WholeFile": {"cache": {"policy": "WholeFile"}},
    "cache.policy: Bypass": {"cache": {"policy": "Bypass"}},
}


def measure(*, quick: bool) -> dict[str, Any]:
    """All settings, one after the other on nodes with empty caches."""
    with (
        work_folder("tuning") as root,
        running_store(root / "store") as store,
        bench_setup(store, root, quick=quick, runs=1 if quick else _RUNS) as setup,
        running_relay(root, store.port, delay_s=LATENCY_S) as relay,
    ):
        large = Large("tuning", (64 if quick else 256) * MIB)
        setup.fill(large.prefix, setup.runs + 1, large.size)
        store.warm()
        slow = store.by("127.0.0.1", relay.port)
        ahead = {name: _ahead(setup, large, slow, spec) for name, spec in AHEAD.items()}
        again = {name: _again(setup, large, spec) for name, spec in AGAIN.items()}
    load = f"{os.getloadavg()[0]:.1f}"
    return {"cores": os.cpu_count(), "load": load, "size_mib": large.size // MIB, "ahead": ahead, "again": again}


def _ahead(setup: Setup, large: Large, slow: Store, spec: dict[str, Any]) -> dict[str, Any]:
    node = setup.new_node()
    near = _mount(node, "near", setup.store, large, spec)
    far = _mount(node, "far", slow, large, spec)
    result: dict[str, Any] = {
        "loopback": [_read_for(near / large.name(run)) for run in range(setup.runs)],
        "latency": [_read_for(far / large.name(run)) for run in range(setup.runs)],
        "fetched": _fetched(node, near / large.name(setup.runs), large.size),
    }
    setup.drop_node(node)
    print({"spec": spec, **result}, flush=True)
    return result


def _again(setup: Setup, large: Large, spec: dict[str, Any]) -> dict[str, Any]:
    """First reads, and the same again with kernel caches dropped."""
    node = setup.new_node()
    data = _mount(node, "near", setup.store, large, spec)
    paths = [data / large.name(run) for run in range(setup.runs)]
    result: dict[str, Any] = {"first": [_read_for(path, 60) for path in paths], "again": []}
    for path in paths:
        time.sleep(1)  # a complete file is seen as such by then
        drop_caches()
        setup.store.warm()
        result["again"].append(_read_for(path, 60))
    setup.drop_node(node)
    print({"spec": spec, **result}, flush=True)
    return result


def _mount(node: Node, name: str, store: Store, large: Large, spec: dict[str, Any]) -> Path:
    return node.mount(data_set(name, store.source(large.prefix), **spec), name)


def _read_for(path: Path, seconds: float = _READ_S) -> float:
    """One reader from the start, for so long at most: MB/s."""
    total, begun = 0, time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while (passed := time.perf_counter() - begun) < seconds and (piece := file.read(MIB)):
            total += len(piece)
    return round(total / passed / 1e6, 1)


def _fetched(node: Node, path: Path, size: int) -> float:
    """Bytes fetched for each byte of random reads of 4 KiB."""
    before = int(node.status("near")["bytesFromSource"])
    by_pread(path, random_offsets(_RANDOM, 4096, size, seed=1), 4096)
    return round((settled_bytes(node, "near") - before) / (_RANDOM * 4096), 2)


def tables(results: Mapping[str, Any]) -> dict[str, str]:
    """What stands between the marks."""
    ahead = [
        "| setting | cold, loopback | cold, 20 ms | fetched for a byte of random 4 KiB |",
        "|---|---|---|---|",
        *(
            f"| `{name}` | {_spread(row['loopback'])} | {_spread(row['latency'])} | {row['fetched']:.1f} |"
            for name, row in results["ahead"].items()
        ),
    ]
    again = [
        "| setting | first read, loopback | again, kernel caches dropped |",
        "|---|---|---|",
        *(
            f"| `{name}` | {_spread(row['first'])} | {_spread(row['again'])} |"
            for name, row in results["again"].items()
        ),
    ]
    noise = (
        f"\nMB/s of one reader, median (least-most) of {len(results['ahead']['defaults']['loopback'])} files of "
        f"{results['size_mib']} MiB. {results['cores']} cores carry the store, Stoker and the reader; the load was "
        f"{results['load']} at the end.\n"
    )
    return {"profiles": _profiles(), "ahead": "\n".join(ahead) + "\n" + noise, "again": "\n".join(again) + "\n"}


def _profiles() -> str:
    lines = ["| profile | readAhead.max | readAhead.threads | blockSize |", "|---|---|---|---|"]
    for profile in get_args(Profile):
        tuning = resolve_tuning(Mount(profile=profile))
        name, threads = f"`{profile}`" if profile else "none", tuning.read_ahead_threads or "4 for each core"
        lines.append(f"| {name} | {_size(tuning.read_ahead_max)} | {threads} | {_size(tuning.block_size)} |")
    return "\n".join(lines) + "\n"


def _size(count: int) -> str:
    return f"{count // MIB}Mi" if count % MIB == 0 and count else f"{count >> 10}Ki" if count else "0"


def _spread(rates: list[float]) -> str:
    return f"{statistics.median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tuning", description=__doc__)
    for option in ("--quick", "--write", "--check"):
        parser.add_argument(option, action="store_true")
    chosen = parser.parse_args()
    if not chosen.write and not chosen.check:
        results = measure(quick=chosen.quick)
        if chosen.quick:
            print("\n".join(tables(results).values()))
            return 0
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    stored = tables(json.loads(RESULTS.read_text()))
    return keep(DOCUMENT, stored, RESULTS, check=chosen.check, command="python -m bench.tuning --write")


if __name__ == "__main__":
    sys.exit(main())
