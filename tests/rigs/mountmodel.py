"""What a mount must show, by the rules of docs/SEMANTICS.md: a reference that shares no code with the product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

NAME_MAX = 255


@dataclass(frozen=True)
class Version:
    """One version of an object, as the store lists it."""

    data: bytes
    etag: str
    archived: bool = False


@dataclass
class Tree:
    """One generation: paths without slashes at their ends; the root is the empty path."""

    files: dict[bytes, Version] = field(default_factory=dict)
    folders: set[bytes] = field(default_factory=lambda: {b""})
    hidden: Counter[str] = field(default_factory=Counter)

    def entries(self, folder: bytes) -> dict[bytes, bool]:
        """What a listing of a folder shows: name -> is it a folder."""
        below = folder + b"/" if folder else b""
        found = {path: True for path in self.folders if path} | dict.fromkeys(self.files, False)
        return {
            path[len(below) :]: is_folder
            for path, is_folder in found.items()
            if path.startswith(below) and b"/" not in path[len(below) :]
        }


def tree_of(objects: Mapping[bytes, Version]) -> Tree:
    """The tree of these objects, by keys relative to their source."""
    tree = Tree()
    shown: dict[bytes, Version] = {}
    for key, version in objects.items():
        if not key:
            continue  # the marker of the source's own folder
        if (reason := hidden_reason(key)) is not None:
            tree.hidden[reason] += 1
            continue
        parents = key.split(b"/")[:-1]
        tree.folders |= {b"/".join(parents[: depth + 1]) for depth in range(len(parents))}
        if not key.endswith(b"/"):
            shown[key] = version
    for key, version in shown.items():
        if key in tree.folders:
            tree.hidden["ShadowedByDirectory"] += 1
        else:
            tree.files[key] = version
    return tree


def hidden_reason(key: bytes) -> str | None:
    """Why a key cannot be shown."""
    parts = key.split(b"/")
    if parts[-1] == b"" and len(parts) > 1:
        parts.pop()
    if b"\0" in key:
        return "NulByte"
    if b"" in parts:
        return "EmptyComponent"
    if b"." in parts or b".." in parts:
        return "DotComponent"
    return "NameTooLong" if any(len(part) > NAME_MAX for part in parts) else None
