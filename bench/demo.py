"""`make demo`: the main job on real input, from an object store to files, with every byte compared to the origin."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import obstore
from rich import box
from rich.console import Console
from rich.table import Table

from bench.measure import MIB, drop_caches, list_names, read_each, read_whole, shuffled
from bench.setup import put_random, work_folder
from bench.store import Store, running_store
from servers.node import STOKER, Node, data_set, processes_of, running_node

_SMALL, _SMALL_SIZE = 4000, 64 << 10
_LARGE, _LARGE_SIZE = 3, 256 * MIB
_COLD_SMALL = 400  # read before the preload: enough for a figure
_FOLDER = "small/000"  # holds a thousand files

console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)


class DemoError(Exception):
    """Something did not come out as it must."""


@dataclass
class Times:
    """One column of the table at the end."""

    name: str
    large: float = 0
    small: float = 0
    listing: float = 0
    disk: bool = field(default=True, kw_only=True)


def main() -> int:
    begun = time.monotonic()
    try:
        with work_folder("demo") as root:
            console.print("[bold]1. An S3 server[/] (SeaweedFS, on this machine)")
            with running_store(root / "store") as store, running_node(root / "n", **store.environment) as node:
                columns = _with_log(node, lambda: _demo(node, store, root))
            _check_clean(root, node)
    except (DemoError, subprocess.SubprocessError, OSError) as error:
        console.print(f"[bold red]demo failed:[/] {error}")
        return 1
    _print(columns)
    console.print(
        f"Every byte was the origin's. Everything is taken away again. {time.monotonic() - begun:.0f} s in all."
    )
    return 0


def _with_log(node: Node, work: Callable[[], list[Times]]) -> list[Times]:
    try:
        return work()
    except (DemoError, OSError) as error:
        raise DemoError(f"{error}\nthe node's log ends with:\n{node.log()[-2000:]}") from error


def _demo(node: Node, store: Store, root: Path) -> list[Times]:
    import asyncio

    keys = {f"small/{index // 1000:03d}/{index:06d}.bin": _SMALL_SIZE for index in range(_SMALL)}
    keys |= {f"large/{index}.bin": _LARGE_SIZE for index in range(_LARGE)}
    console.print(f"   filling it: {_SMALL:,} objects of 64 KiB, {_LARGE} of 256 MiB, random bytes")
    asyncio.run(put_random(store.open(), keys))
    digests = _origin(store, root / "native", keys)
    data = _mount(node, store)
    cold = _cold(data)
    _stoker(node, "preload", "-f", "dataset.yaml")
    _stoker(node, "status")
    _compare(data, digests)
    columns = [cold, _warm("warm", data), _warm("native", root / "native")]
    _stoker(node, "unmount", "data")
    _stoker(node, "node", "--stop")
    return columns


def _origin(store: Store, native: Path, keys: dict[str, int]) -> dict[str, str]:
    """Digest and native copy of each object, as the store itself gives it."""
    digests = {}
    opened = store.open()
    for key in keys:
        path = native / key
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with open(path, "wb") as file:
            for piece in obstore.get(opened, key).stream():
                digest.update(piece)
                file.write(piece)
        digests[key] = digest.hexdigest()
    return digests


def _mount(node: Node, store: Store) -> Path:
    document = data_set("demo", {**store.source(""), "path": "/"})
    (node.root / "data").mkdir(parents=True)
    (node.root / "dataset.yaml").write_text(json.dumps(document, indent=2) + "\n")
    console.print("[bold]2. The main job[/]")
    _stoker(node, "mount", "-f", "dataset.yaml", "data")
    return node.root / "data"


def _stoker(node: Node, *arguments: str) -> None:
    """The real command, as a user sees it."""
    console.print(f"[cyan]$ stoker {' '.join(arguments)}[/]")
    done = subprocess.run([*STOKER, *arguments], env=node.env, cwd=node.root, check=False, timeout=300)
    if done.returncode != 0:
        raise DemoError(f"stoker {arguments[0]} ended with exit code {done.returncode}")


def _cold(data: Path) -> Times:
    """Straight from the store, nothing cached."""
    console.print("   reading one large file and some small ones before anything is cached")
    times = Times("cold (from the store)")
    times.listing = list_names(data / _FOLDER)
    times.large = read_whole(data / "large" / "0.bin")
    times.small = read_each(f"{data}/small/{path}" for path in shuffled(data / "small")[:_COLD_SMALL])
    return times


def _warm(name: str, folder: Path) -> Times:
    """From the disk: the kernel's caches are dropped before each part, where that is allowed."""
    paths = [f"{folder}/small/{path}" for path in shuffled(folder / "small")]
    times = Times(name, disk=drop_caches())
    times.listing = list_names(folder / _FOLDER)
    drop_caches()
    times.large = read_whole(folder / "large" / "0.bin")
    times.small = read_each(paths)
    return times


def _compare(data: Path, digests: dict[str, str]) -> None:
    """Every file of the mount against the origin: the same names, the same bytes."""
    console.print(f"   hashing all {len(digests):,} files of the mount against the origin")
    found = dict(_hashes(data))
    if found.keys() != digests.keys():
        raise DemoError(f"the mount shows other names: {sorted(found.keys() ^ digests.keys())[:3]}")
    wrong = [key for key, digest in digests.items() if found[key] != digest]
    if wrong:
        raise DemoError(f"{len(wrong)} files differ from the origin: {wrong[:3]}")


def _hashes(folder: Path) -> Iterator[tuple[str, str]]:
    for root, _folders, names in os.walk(folder):
        for name in names:
            with open(os.path.join(root, name), "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            yield os.path.relpath(file.name, folder), digest


def _check_clean(root: Path, node: Node) -> None:
    if str(root) in Path("/proc/self/mountinfo").read_text():
        raise DemoError(f"something is still mounted below {root}")
    if left := processes_of(node.root):
        raise DemoError(f"processes are left: {left}")


def _print(columns: list[Times]) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("")
    for column in columns:
        table.add_column(column.name if column.disk else f"{column.name} (memory)", justify="right")
    table.add_row("one file of 256 MiB, MB/s", *(f"{column.large:,.0f}" for column in columns))
    table.add_row("files of 64 KiB, one after the other, files/s", *(f"{column.small:,.0f}" for column in columns))
    table.add_row("list 1,000 names, names/s", *(f"{column.listing:,.0f}" for column in columns))
    console.print(table)
    if all(column.disk for column in columns):
        console.print(
            "warm: from the cache's disk, kernel caches dropped; native: the same files on the same disk, so too."
        )
    else:
        console.print("Only root may drop the kernel's caches: warm and native were read from memory.")


if __name__ == "__main__":
    sys.exit(main())
