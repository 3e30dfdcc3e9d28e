"""Plain obstore that reads one object into memory, in a process of its own: its time and CPU are nobody else's."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

import obstore
from obstore.store import S3Store

from bench.measure import MIB
from bench.store import Store


@dataclass(frozen=True, slots=True)
class Read:
    """What one read took."""

    bytes: int
    seconds: float
    cpu_s: float

    @property
    def mb_per_s(self) -> float:
        return self.bytes / self.seconds / 1e6


def obstore_read(store: Store, key: str, *, size: int = 0, parallel: int = 0, part: int = 4 * MIB) -> Read:
    """One streamed GET, or with `parallel` so many range GETs of `part` bytes at once. The start is not timed."""
    order: dict[str, str | int] = {"endpoint": store.endpoint, "bucket": store.bucket, "key": key}
    order |= {"size": size, "parallel": parallel, "part": part}
    done = subprocess.run(
        [sys.executable, "-m", "bench.reference"],
        input=json.dumps(order),
        env={**os.environ, **store.environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Read(**json.loads(done.stdout))


def _stream(store: S3Store, key: str) -> int:
    return sum(len(piece) for piece in obstore.get(store, key).stream())


async def _ranges(store: S3Store, key: str, size: int, parallel: int, part: int) -> int:
    starts = iter(range(0, size, part))

    async def work() -> int:
        got = 0
        for start in starts:
            got += len(await obstore.get_range_async(store, key, start=start, end=min(start + part, size)))
        return got

    return sum(await asyncio.gather(*(work() for _ in range(parallel))))


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    order = json.load(sys.stdin)
    store = S3Store(
        order["bucket"],
        endpoint=order["endpoint"],
        region="us-east-1",
        client_options={"allow_http": True, "timeout": "300s"},
    )
    key, parallel = order["key"], order["parallel"]
    cpu, begun = _cpu_s(), time.perf_counter()
    if parallel:  # noqa: SIM108 - one line would be too long
        got = asyncio.run(_ranges(store, key, order["size"], parallel, order["part"]))
    else:
        got = _stream(store, key)
    print(json.dumps(asdict(Read(got, time.perf_counter() - begun, _cpu_s() - cpu))), flush=True)
    os._exit(0)  # obstore's threads abort when the interpreter ends under them


if __name__ == "__main__":
    main()
