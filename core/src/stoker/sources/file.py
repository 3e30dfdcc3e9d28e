"""`file:///folder/` and `file:///one/file`: local files as a store. A read fails when the file is not the one listed.

Keys are absolute paths. Symbolic links to files are followed while their target lies inside the root; links to folders,
links that leave the root, and what is no regular file (pipes, sockets, devices) are not listed.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import stat
from collections.abc import AsyncGenerator, Iterator

from stoker.api.globs import Selection
from stoker.api.reasons import Reason
from stoker.api.uri import Uri
from stoker.sources import answered
from stoker.sources.base import PIECE, ObjectEntry, ObjectVersion, SourceError, SourceSpec
from stoker.sources.checked import Wanted
from stoker.sources.selection import chosen
from stoker.sources.text import printable

_PAGE = 1000


class FileSource:
    """The files below one folder, or one file."""

    origin = "file://"

    @classmethod
    def open(cls, spec: SourceSpec, uri: Uri) -> FileSource:
        """Raises SourceError(InvalidValue): there are no options."""
        for name, _ in spec.options:
            text = f"unknown option {name!r}"
            raise SourceError(Reason.InvalidValue, text, place=spec.uri, next_step="file:// takes no options.")
        return cls(uri, Selection.compile(spec.include, spec.exclude), one_file=spec.one_file)

    def __init__(self, uri: Uri, selection: Selection, *, one_file: bool = False) -> None:
        self._uri = uri
        self._one_file = one_file
        self._selection = selection
        self.prefix = uri.prefix if uri.is_folder else uri.prefix + b"/"

    async def list(self) -> AsyncGenerator[list[ObjectEntry], None]:
        pages = _in_pages(self._walk())
        while (page := await asyncio.to_thread(next, pages, None)) is not None:
            if kept := chosen(page, self.prefix, self._selection):
                yield kept

    def _walk(self) -> Iterator[ObjectEntry]:
        if not self._uri.is_folder:
            with _reasons(self._uri.prefix):
                status = os.stat(self._uri.prefix)
            if stat.S_ISREG(status.st_mode):
                yield _entry(self._uri.prefix, status)
                return
        if self._one_file:
            step = "name a file, or remove `type: uri_file`."
            place = f"file://{printable(self._uri.prefix)}"
            raise SourceError(Reason.SourceNotFound, "it is a folder, not a file", place=place, next_step=step)
        with _reasons(self.prefix):
            root = os.path.realpath(self.prefix)
        folders = [self.prefix]
        while folders:
            folder = folders.pop()
            with _reasons(folder), os.scandir(folder) as found:
                names = list(found)
            for item in names:
                if item.is_dir(follow_symlinks=False):
                    folders.append(item.path + b"/")
                elif (entry := _file(item, root)) is not None:
                    yield entry

    async def head(self, key: bytes) -> ObjectEntry:
        def look() -> ObjectEntry:
            with _reasons(key):
                return _entry(key, os.stat(key))

        return await asyncio.to_thread(look)

    async def read(
        self, version: ObjectVersion, start: int, stop: int, piece: int = PIECE
    ) -> AsyncGenerator[memoryview, None]:
        if start >= stop:
            return
        wanted = Wanted(version, start, stop, f"file://{printable(version.key)}")
        descriptor = await asyncio.to_thread(_opened, wanted)
        answered.tell(200)
        try:
            for offset in range(start, stop, piece):
                yield await asyncio.to_thread(_piece, descriptor, wanted, offset, min(piece, stop - offset))
        finally:
            os.close(descriptor)

    async def close(self) -> None:
        """Nothing is kept open."""


def _in_pages(entries: Iterator[ObjectEntry]) -> Iterator[list[ObjectEntry]]:
    while page := list(itertools.islice(entries, _PAGE)):
        yield page


class _reasons:  # noqa: N801 - reads as a word where it is used
    """Errors of the operating system with the reason words of a source."""

    def __init__(self, path: bytes) -> None:
        self._place = f"file://{printable(path)}"

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, OSError):
            return
        text = error.strerror or type(error).__name__
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            step = "check the path; it is one of this machine, and is never created."
            raise SourceError(Reason.SourceNotFound, text, place=self._place, next_step=step) from None
        if isinstance(error, PermissionError):
            step = "give the user that runs the node the right to read it."
            raise SourceError(Reason.AccessDenied, text, place=self._place, next_step=step) from None
        raise SourceError(Reason.SourceUnavailable, text, place=self._place, retryable=True) from None


def _file(item: os.DirEntry[bytes], root: bytes) -> ObjectEntry | None:
    """A regular file, or a link to one inside `root`; None for all else, and for what vanished meanwhile."""
    try:
        if item.is_symlink() and not os.path.realpath(item.path).startswith(root.rstrip(b"/") + b"/"):
            return None
        status = os.stat(item.path)
    except FileNotFoundError:
        return None
    except OSError as error:
        # A file that cannot be looked at must not be missing without a word.
        with _reasons(item.path):
            raise error
    return _entry(item.path, status) if stat.S_ISREG(status.st_mode) else None


def _entry(path: bytes, status: os.stat_result) -> ObjectEntry:
    etag = f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"
    return ObjectEntry(path, status.st_size, etag, status.st_mtime_ns)


def _opened(wanted: Wanted) -> int:
    key = wanted.version.key
    try:
        with _reasons(key):
            descriptor = os.open(key, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except SourceError as error:
        raise wanted.gone(error) from None
    try:
        _check(descriptor, wanted)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _piece(descriptor: int, wanted: Wanted, offset: int, length: int) -> memoryview:
    """Some bytes, and a look afterwards: a file written to meanwhile would mix two versions."""
    with _reasons(wanted.version.key):
        data = os.pread(descriptor, length, offset)
    _check(descriptor, wanted)
    if len(data) != length:
        raise wanted.corrupt(f"{length - len(data)} bytes too few")
    return memoryview(data)


def _check(descriptor: int, wanted: Wanted) -> None:
    status = os.fstat(descriptor)
    now = _entry(wanted.version.key, status)
    wanted.check(wanted.start, wanted.stop, now.size, now.etag, now.mtime_ns)
