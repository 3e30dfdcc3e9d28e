"""Rows of a manifest as lines of text. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from stoker.api.human import files, size
from stoker.cli.render import hidden

if TYPE_CHECKING:
    from stoker.manifest.manifest import Manifest
    from stoker.manifest.show import ChangeRow, FileRow, HiddenRow

_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


def summary(manifest: Manifest, path: str) -> dict[str, Any]:
    """The generation as plain data."""
    return {
        "generation": manifest.digest,
        "file": path,
        "files": manifest.files,
        "directories": manifest.directories,
        "bytes": manifest.bytes,
        "hidden": dict(manifest.hidden),
        "sources": [
            {"name": source.name, "uri": source.uri, "path": source.path, "contacted": source.contacted or source.uri}
            for source in manifest.sources
        ],
    }


def headline(manifest: Manifest, path: str) -> list[str]:
    """The generation as the first lines of a page."""
    lines = [
        f"generation {manifest.digest}",
        f"file       {path}",
        f"holds      {files(manifest.files)}, {manifest.directories:,} directories, {size(manifest.bytes)}",
    ]
    for source in manifest.sources:
        listed = f" (listed: {source.contacted})" if source.contacted not in ("", source.uri) else ""
        lines.append(f"source     {source.name}: {source.uri} at {source.path}{listed}")
    if counts := hidden(manifest.hidden):
        lines.append(f"hidden     {counts}")
    return lines


def file_line(row: FileRow) -> str:
    """A file as `ls -l` would have it."""
    when = datetime.fromtimestamp(row.mtime_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    archived = "  (archived)" if row.archived else ""
    return f"{row.size:>14,}  {when}  {row.path}{archived}"


def hidden_line(row: HiddenRow) -> str:
    """A key that is not shown, and why."""
    return f"{row.reason:20} {row.source}: {row.key}"


def change_line(row: ChangeRow) -> str:
    """`~ train/a.bin  100 -> 120`, sizes in bytes."""
    sizes = " -> ".join(f"{value:,}" for value in (row.old, row.new) if value is not None)
    return f"{_SIGNS[row.kind]} {row.path}  {sizes}"
