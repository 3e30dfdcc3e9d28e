"""One reader, one large file from the cache's disk."""

from __future__ import annotations

from pathlib import Path

from bench.measure import Row, drop_caches, paired, read_whole
from bench.preloads import run_preload
from bench.setup import Setup


def seq_warm(setup: Setup) -> Row:
    """A cached file with kernel caches dropped, against the same file on the same disk."""
    origin = setup.local_files("seq", 1, setup.large_size)
    node = setup.new_node()
    document = setup.file("seq", origin)
    data = node.mount(document)
    run_preload(node, document, {})
    name = "000/000000.bin"

    def read(folder: Path) -> float:
        drop_caches()
        return read_whole(folder / name)

    pairs = paired(setup.runs, lambda: read(data), lambda: read(origin))
    setup.drop_node(node)
    return Row("seq_warm", "native disk", "MB/s", 0.9, pairs)
