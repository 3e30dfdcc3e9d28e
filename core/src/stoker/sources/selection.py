"""Which entries of a listing a source keeps: its include and exclude globs on the key relative to the uri. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.api.globs import Selection
from stoker.sources.base import ObjectEntry


def chosen(entries: Sequence[ObjectEntry], prefix: bytes, selection: Selection) -> list[ObjectEntry]:
    """The entries that are kept."""
    if selection.include is None and selection.exclude is None:
        return list(entries)
    return [entry for entry in entries if selection.keeps(_relative(entry.key, prefix))]


def _relative(key: bytes, prefix: bytes) -> bytes:
    """The key below the uri; for the one object that the uri itself names, its last component."""
    if key.startswith(prefix):
        return key[len(prefix) :]
    return key.rpartition(b"/")[2]
