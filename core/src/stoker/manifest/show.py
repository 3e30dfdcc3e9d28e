"""A manifest as rows of plain text and numbers, for `stoker manifest show` and `diff`. Prints nothing itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from stoker.api.globs import Globs
from stoker.manifest.diff import Kind, diff
from stoker.manifest.manifest import Manifest


class FileRow(NamedTuple):
    path: str
    size: int
    mtime_ns: int
    etag: str
    archived: bool
    source: str


class HiddenRow(NamedTuple):
    reason: str
    source: str
    key: str


class ChangeRow(NamedTuple):
    """`old` and `new` are sizes; None where there is no such file."""

    kind: Kind
    path: str
    old: int | None
    new: int | None


def printable(raw: bytes) -> str:
    """`raw` on one line of a terminal: what is not UTF-8 or not printable, and the backslash, as an escape."""
    text = raw.decode("utf-8", "surrogateescape").replace("\\", "\\\\")
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def _escape(character: str) -> str:
    raw = character.encode("utf-8", "surrogateescape")
    return "".join(f"\\x{byte:02x}" for byte in raw)


def files(manifest: Manifest, globs: Globs | None = None) -> Iterator[FileRow]:
    """The files in the order of their paths; only those that match `globs` when there are some."""
    for inode in manifest.files_matching(globs or Globs.compile(["**"])):
        source, version = manifest.object(inode)
        path, name = printable(manifest.path(inode)), manifest.sources[source].name
        yield FileRow(path, version.size, version.mtime_ns, version.etag, manifest.node(inode).archived, name)


def hidden(manifest: Manifest) -> Iterator[HiddenRow]:
    """The first hidden keys of each reason; `manifest.hidden` has how many there are."""
    for reason, keys in manifest.hidden_samples.items():
        for sample in keys:
            known = sample.source < len(manifest.sources)
            yield HiddenRow(reason, manifest.sources[sample.source].name if known else "", printable(sample.key))


def changes(old: Manifest, new: Manifest) -> Iterator[ChangeRow]:
    """What differs between two generations, in the order of the paths."""
    for change in diff(old, new):
        was = None if change.old is None else change.old.size
        now = None if change.new is None else change.new.size
        yield ChangeRow(change.kind, printable(change.path), was, now)
