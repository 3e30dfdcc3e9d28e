"""S3 rows: boto3 reads cached objects from the node's S3 endpoint, and the same objects from the store itself."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from boto3.s3.transfer import TransferConfig

from bench.measure import Row
from bench.preloads import run_preload
from bench.setup import Setup, object_name
from servers.s3 import free_port, keys

_THREADS = 8
_PART = 8 << 20
_SMALL = 64 << 10


@dataclass(frozen=True)
class _Side:
    """One of the two endpoints. `prefix` is what stands before the name of an object there."""

    client: Any
    bucket: str
    prefix: str

    def get_large(self, name: str, size: int) -> float:
        """One object in parts of 8 MiB by 8 threads, to nowhere: MB/s."""
        config = TransferConfig(
            multipart_threshold=_PART, multipart_chunksize=_PART, max_concurrency=_THREADS, use_threads=True
        )
        begun, sink = time.perf_counter(), _Nowhere()
        self.client.download_fileobj(self.bucket, self.prefix + name, sink, Config=config)
        if sink.taken != size:
            raise RuntimeError(f"{sink.taken} of {size} bytes came")
        return size / (time.perf_counter() - begun) / 1e6

    def get_each(self, names: list[str]) -> float:
        """Small objects by 8 threads: GETs/s."""

        def get(share: list[str]) -> None:
            for name in share:
                body = self.client.get_object(Bucket=self.bucket, Key=self.prefix + name)["Body"].read()
                if len(body) != _SMALL:
                    raise RuntimeError(f"{name}: {len(body)} bytes came")

        begun = time.perf_counter()
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(get, [names[start::_THREADS] for start in range(_THREADS)]))
        return len(names) / (time.perf_counter() - begun)


class _Nowhere(io.RawIOBase):
    """Takes bytes at any place and counts them."""

    taken = 0

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, _whence: int = 0) -> int:
        return offset

    def write(self, data: Any) -> int:
        self.taken += len(data)
        return len(data)


def s3_gets(setup: Setup, names: set[str]) -> Iterator[Row]:
    """Both rows, on one node that has everything in its cache; both sides have it in memory, too."""
    small = setup.count(4000)
    setup.fill("s3/large", 1, setup.large_size)
    setup.fill("s3/small", small, _SMALL)
    node = setup.new_node(STOKER_S3_PORT=str(free_port()))
    document = setup.s3("s3", "s3")
    node.mount(document)
    run_preload(node, document, setup.store.credentials)
    setup.store.warm()
    ours, theirs = (
        _Side(keys(node, "s3").client(), "s3", ""),
        _Side(setup.store.server.client(), setup.store.bucket, "s3/"),
    )
    before = node.status()["bytesFromSource"]
    if "s3_get_large" in names:
        name, size = f"large/{object_name(0)}", setup.large_size
        pairs = setup.paired(lambda: ours.get_large(name, size), lambda: theirs.get_large(name, size))
        yield Row("s3_get_large", "boto3 from the store", "MB/s", 0.9, pairs)
    if "s3_get_small" in names:
        paths = [f"small/{object_name(index)}" for index in range(small)]
        pairs = setup.paired(lambda: ours.get_each(paths), lambda: theirs.get_each(paths))
        yield Row("s3_get_small", "boto3 from the store", "GETs/s", 0.9, pairs)
    if node.status()["bytesFromSource"] != before:
        raise RuntimeError("s3: cached objects were read from the source")
    setup.drop_node(node)
