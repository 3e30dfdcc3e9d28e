"""Building a manifest from listing pages: streamed, sorted outside memory, visible only when complete.

Memory is bounded by `run_bytes` and the depth of the keys, never by their number. The order of the pages and of the
entries in them does not show in the file: equal listings give equal digests.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO

from stoker.api.errors import StokerError
from stoker.manifest.format import HEADER_BYTES, Catalogue, Header, ManifestSource
from stoker.manifest.grow import Tree
from stoker.manifest.hiddentable import write_hidden
from stoker.manifest.levels import Levels, Stream
from stoker.manifest.lines import Line, SourceLines, folder_line, parse, ranks
from stoker.manifest.sort import ExternalSort
from stoker.sources.base import ObjectEntry

SUFFIX = ".manifest"
_BUILDING = ".building-"
_RUN_BYTES = 96 << 20  # lines in memory at once: about 700,000 short keys
_HIDDEN_SHARE = 8  # most data sets have few hidden keys; more of them are sorted on disk
_WRITE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ManifestSummary:
    """What was built. `hidden` counts by reason."""

    path: str
    digest: str
    files: int
    directories: int
    bytes: int
    hidden: dict[str, int]


class ManifestBuilder:
    """One generation in the making; use it as a context, which removes what an unfinished one has written."""

    def __init__(self, sources: Sequence[ManifestSource], directory: str, *, run_bytes: int = _RUN_BYTES) -> None:
        self._directory = directory
        self._ranks = ranks(sources)
        self._lines = [SourceLines(number, source, self._ranks.index(number)) for number, source in enumerate(sources)]
        self._stale: set[tuple[int, int]] = set()
        self._sort = ExternalSort(directory, run_bytes)
        self._hidden = ExternalSort(directory, run_bytes // _HIDDEN_SHARE)
        self._sort.extend([folder_line(source.mount) for source in sources if source.mount])

    def __enter__(self) -> ManifestBuilder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sort.close()
        self._hidden.close()

    def add(self, source: int, entries: list[ObjectEntry]) -> None:
        """A page of the listing of one source. Raises StokerError for what no store should list."""
        self._sort.extend(self._lines[source].take(entries))
        self._hidden.extend(self._lines[source].take_hidden())

    def restart(self, number: int, source: ManifestSource) -> None:
        """Forget what was added of one source: it is listed anew, perhaps from a replica."""
        before = self._lines[number]
        if before.objects:
            self._stale.add((before.rank, before.attempt))
        self._lines[number] = SourceLines(number, source, before.rank, before.attempt + 1)

    def objects(self, source: int) -> int:
        """How many objects of a source were added, hidden ones too."""
        return self._lines[source].objects

    def finish(self) -> ManifestSummary:
        """Write the file `<digest>.manifest`; a good one that is there already stays. Raises OSError."""
        sources = self._finish_sources()
        with contextlib.closing(Levels(self._directory)) as levels:
            tree = Tree(levels, sources, self._ranks, self._hidden.extend)
            tree.grow(self._current_lines())
            hidden = tree.hidden
            for lines in self._lines:
                hidden.merge(lines.hidden)
            with _building(self._directory) as file:
                header = self._write(file, tree, levels, Catalogue(sources, hidden.counts(), hidden.samples()))
                path = os.path.join(self._directory, header.digest.hex() + SUFFIX)
                _publish(file, path, header)
        return ManifestSummary(path, header.digest.hex(), tree.files, tree.directories, tree.bytes, hidden.counts())

    def _write(self, file: IO[bytes], tree: Tree, levels: Levels, catalogue: Catalogue) -> Header:
        digest = hashlib.sha256()

        def write(data: bytes) -> None:
            digest.update(data)
            file.write(data)

        file.seek(HEADER_BYTES)
        names, etags = levels.write(write)
        hidden, heap = self._write_hidden(write)
        described = catalogue.pack()
        write(described)
        counts = (levels.count, tree.files, tree.directories, tree.bytes)
        header = Header(*counts, names, etags, len(described), hidden, heap, digest.digest())
        file.seek(0)
        file.write(header.pack())
        return header

    def _write_hidden(self, write: Callable[[bytes], None]) -> tuple[int, int]:
        """The table of hidden objects: how many there are, and the length of their keys and etags."""
        count = 0
        with tempfile.TemporaryFile(dir=self._directory, buffering=_WRITE_BYTES) as spool:
            heap = Stream(spool)
            for record in write_hidden(self._hidden.sorted(), self._ranks, self._stale, heap.append):
                write(record)
                count += 1
            for block in heap.blocks():
                write(block)
            return count, heap.length

    def _current_lines(self) -> Iterator[Line]:
        lines = map(parse, self._sort.sorted())
        if not self._stale:
            return lines
        return (line for line in lines if (line.rank, line.attempt) not in self._stale)

    def _finish_sources(self) -> tuple[ManifestSource, ...]:
        sources = []
        for lines in self._lines:
            source, last = lines.last()
            sources.append(source)
            self._sort.extend(last)
        return tuple(sources)


def _publish(file: IO[bytes], path: str, header: Header) -> None:
    """Give the file its name once all of it is on disk."""
    with contextlib.suppress(OSError, StokerError), open(path, "rb") as existing:
        same = Header.unpack(existing.read(HEADER_BYTES), path) == header
        if same and os.fstat(existing.fileno()).st_size == header.file_length:
            return
    file.flush()
    os.fsync(file.fileno())
    os.rename(file.name, path)
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _building(directory: str) -> Iterator[IO[bytes]]:
    """A locked file under a temporary name; what is still there of it at the end is removed."""
    sweep(directory)
    with tempfile.NamedTemporaryFile(dir=directory, prefix=_BUILDING, delete=False, buffering=_WRITE_BYTES) as file:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
            yield file
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file.name)


def sweep(directory: str) -> None:
    """Remove what killed builders left: files whose lock nobody holds."""
    for name in os.listdir(directory):
        if not name.startswith(_BUILDING):
            continue
        path = os.path.join(directory, name)
        with contextlib.suppress(OSError), open(path, "rb") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
