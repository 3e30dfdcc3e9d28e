"""The tree out of sorted lines: which of several objects has a path, where folders begin and end. One pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from stoker.api.reasons import Reason
from stoker.manifest.format import DIRECTORY, WHOLE_SOURCE, ManifestSource
from stoker.manifest.hidden import HiddenKeys
from stoker.manifest.hiddentable import hidden_line
from stoker.manifest.levels import Levels
from stoker.manifest.lines import NO_RANK, Line


class _Folder:
    """A folder that the walk is in."""

    __slots__ = ("first", "mtime_ns", "name", "place")

    def __init__(self, name: bytes, place: int, first: int) -> None:
        self.name, self.place, self.first = name, place, first
        self.mtime_ns = 0


class Tree:
    """Takes lines in order and appends records to `levels`. `sources` in the order of their number."""

    def __init__(
        self,
        levels: Levels,
        sources: Sequence[ManifestSource],
        ranks: Sequence[int],
        hide: Callable[[list[bytes]], None] = lambda _lines: None,
    ) -> None:
        """`hide` takes the lines of objects that get no place in the tree (`hiddentable.py`)."""
        self._take_hidden = hide
        self._levels, self._sources, self._ranks = levels, sources, ranks
        self.hidden = HiddenKeys()
        self._folders: list[_Folder] = [_Folder(b"", 0, 0)]
        self._path = b""
        self.files = 0
        self.directories = 1
        self.bytes = 0

    def grow(self, lines: Iterable[Line]) -> None:
        """All lines. A file waits for the next line, which shows whether something is below its path."""
        waiting: Line | None = None
        for line in lines:
            if waiting is not None:
                if self._is_folder(waiting.path, line):
                    self._hide(waiting, Reason.ShadowedByDirectory)
                    self._keep(waiting)
                elif waiting.path == line.path:
                    if waiting.rank != line.rank:  # it has the key of the one that is shown: S3 shows that one, too
                        self._hide(line, Reason.ShadowedBySource)
                    continue
                else:
                    self._file(waiting)
            waiting = None if line.marker else line
            if line.marker:
                if line.rank != NO_RANK:
                    self._keep(line, b"/")
                self._enter(line.path)
                self._touch(line.mtime_ns)
        if waiting is not None:
            self._file(waiting)
        self._leave(0)

    @staticmethod
    def _is_folder(path: bytes, line: Line) -> bool:
        """Whether `line`, the one behind `path`, makes a folder of it."""
        other = line.path
        return other.startswith(path) and (line.marker if len(other) == len(path) else other[len(path)] == 0)

    def _file(self, line: Line) -> None:
        parent, _, name = line.path.rpartition(b"\0")
        if parent != self._path:
            self._enter(parent)
        depth = len(self._folders)
        links = (self._folders[-1].place, 0, 0)
        source = self._ranks[line.rank]
        self._levels[depth].append(name, line.flags, line.size, line.mtime_ns, source, line.etag, links)
        self._touch(line.mtime_ns)
        self.files += 1
        self.bytes += line.size

    def _touch(self, mtime_ns: int) -> None:
        folder = self._folders[-1]
        if mtime_ns > folder.mtime_ns:
            folder.mtime_ns = mtime_ns

    def _enter(self, path: bytes) -> None:
        """Make `path` the folder that the walk is in."""
        wanted = path.split(b"\0") if path else []
        common = 0
        for folder, name in zip(self._folders[1:], wanted, strict=False):
            if folder.name != name:
                break
            common += 1
        self._leave(common + 1)
        for name in wanted[common:]:
            depth = len(self._folders)
            self._folders.append(_Folder(name, self._levels[depth].count, self._levels[depth + 1].count))
            self.directories += 1
        self._path = path

    def _leave(self, depth: int) -> None:
        """Finish folders until `depth` are open. Nothing was appended at their level since they were entered."""
        while len(self._folders) > depth:
            folder = self._folders.pop()
            at = len(self._folders)
            parent = self._folders[-1].place if self._folders else 0
            children = self._levels[at + 1].count - folder.first
            links = (parent, folder.first, children)
            self._levels[at].append(folder.name, DIRECTORY, 0, folder.mtime_ns, 0, b"", links)
            if self._folders:
                self._touch(folder.mtime_ns)

    def _keep(self, line: Line, end: bytes = b"") -> None:
        """An object that S3 shows and the tree does not."""
        key = line.path.replace(b"\0", b"/") + end
        rest = (line.rank, line.attempt, line.flags, line.size, line.mtime_ns, line.etag)
        self._take_hidden([hidden_line(key, *rest)])

    def _hide(self, line: Line, reason: Reason) -> None:
        number = self._ranks[line.rank]
        source = self._sources[number]
        if line.flags & WHOLE_SOURCE and source.single is not None:
            key = source.single
        else:
            path = line.path.replace(b"\0", b"/")
            key = source.prefix + (path[len(source.mount) + 1 :] if source.mount else path)
        self.hidden.add(reason, number, key)
