"""What differs between two generations, by path: one merging walk over both trees, in bounded memory.

An object has changed when its size or etag has, or its time where there is no etag. Which replica was listed does not
matter. Directories are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from stoker.manifest.manifest import Manifest
from stoker.manifest.walk import walk
from stoker.sources.base import ObjectVersion

Kind = Literal["added", "removed", "changed"]


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs. `old` is None for what was added, `new` for what was removed."""

    path: bytes
    old: ObjectVersion | None
    new: ObjectVersion | None

    @property
    def kind(self) -> Kind:
        if self.old is None:
            return "added"
        return "removed" if self.new is None else "changed"


def diff(old: Manifest, new: Manifest) -> Iterator[Change]:
    """All differences, in the order of their paths. Raises StokerError ManifestCorrupt."""
    if old.digest == new.digest:
        return
    before, after = _Files(old), _Files(new)
    while before.place is not None or after.place is not None:
        if after.place is None or (before.place is not None and before.place < after.place):
            yield Change(before.path, before.version(), None)
            before.step()
        elif before.place is None or after.place < before.place:
            yield Change(after.path, None, after.version())
            after.step()
        else:
            was, now = before.version(), after.version()
            if _identity(was) != _identity(now):
                yield Change(after.path, was, now)
            before.step()
            after.step()


def count(changes: Iterator[Change]) -> dict[Kind, int]:
    """How many changes there are of each kind."""
    counts: dict[Kind, int] = {"added": 0, "removed": 0, "changed": 0}
    for change in changes:
        counts[change.kind] += 1
    return counts


class _Files:
    """The files of one generation in order; `place` sorts as the walk does, None at the end."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._files = ((inode, path) for inode, path, is_dir, _, _ in walk(manifest) if not is_dir)
        self.place: bytes | None = None
        self.step()

    def step(self) -> None:
        self._inode, self.path = next(self._files, (0, b""))
        self.place = self.path.replace(b"/", b"\0") if self._inode else None

    def version(self) -> ObjectVersion:
        return self._manifest.object(self._inode, self.path).version


def _identity(version: ObjectVersion) -> tuple[int, str, int]:
    return version.size, version.etag, 0 if version.etag else version.mtime_ns
