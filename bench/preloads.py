"""Preload rows: a Stoker job against an obstore loop that writes the same objects as files."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path
from typing import Any

import obstore

from bench.measure import Pair, Row
from bench.setup import Setup
from servers.node import Node
from stoker.cli.client import AdminClient


def preload_large(setup: Setup) -> Row:
    """Two objects, both at once for obstore."""
    pairs = _rates(setup, "pair", 2, setup.large_size, parallel=2)
    return Row("preload_large", "obstore to files", "MB/s", 0.9, pairs)


def preload_small(setup: Setup) -> Row:
    """Objects of 64 KiB, 64 at a time for obstore."""
    pairs = _rates(setup, "small", setup.count(20_000), 64 << 10, parallel=64)
    return Row("preload_small", "obstore to files", "MB/s", 0.8, pairs)


def _rates(setup: Setup, prefix: str, count: int, size: int, *, parallel: int) -> list[Pair]:
    setup.fill(prefix, count, size)
    return setup.paired(
        lambda: _with_stoker(setup, prefix, count * size),
        lambda: _with_obstore(setup, prefix, count * size, parallel),
    )


def _with_stoker(setup: Setup, prefix: str, total: int) -> float:
    """From "started" to the end of the job, on a node with an empty cache: both sides know the keys by then."""
    node = setup.new_node()
    document = setup.s3(prefix, prefix)
    node.mount(document)
    seconds = run_preload(node, document, setup.store.credentials)
    setup.drop_node(node)
    return total / seconds / 1e6


def run_preload(node: Node, document: dict[str, Any], credentials: dict[str, str]) -> float:
    """Preload everything: seconds. Raises RuntimeError when a file failed."""
    client = AdminClient(str(node.root / "run" / "admin.sock"))
    names = [source["name"] for source in document["spec"]["sources"]]
    order = {
        "operation": "Preload",
        "document": document,
        "place": "bench",
        "credentials": dict.fromkeys(names, credentials),
        "paths": ["**"],
    }
    job = client.start_job(order, lambda _count: None)
    begun = time.perf_counter()
    while job["phase"] in ("Pending", "Running"):
        job = client.job(job["id"], job["version"])
    if job["phase"] != "Succeeded":
        raise RuntimeError(f"the preload ended as {job['phase']}: {job['failures'][:3]}")
    return time.perf_counter() - begun


def _with_obstore(setup: Setup, prefix: str, total: int, parallel: int) -> float:
    target = setup.root / "copy"
    seconds = asyncio.run(_copy(setup, prefix, target, parallel))
    shutil.rmtree(target)
    return total / seconds / 1e6


async def _copy(setup: Setup, prefix: str, target: Path, parallel: int) -> float:
    store = setup.store.open()
    keys = [entry["path"] for chunk in obstore.list(store, prefix) for entry in chunk]
    for folder in {(target / key).parent for key in keys}:
        folder.mkdir(parents=True)
    pending = iter(keys)

    async def work() -> None:
        for key in pending:
            response = await obstore.get_async(store, key)
            with open(target / key, "wb") as file:  # noqa: ASYNC230 - the loop that a user would write
                async for piece in response.stream():
                    file.write(piece)

    begun = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(parallel)))
    return time.perf_counter() - begun
