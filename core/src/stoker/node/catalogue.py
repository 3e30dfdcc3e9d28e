"""What a node keeps of the generations of one data set, beside their manifests: which is current, and what the older
ones are still kept for. A small file of JSON, written when a generation comes or goes, never else.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

from stoker.api.errors import StokerError
from stoker.manifest.manifest import Manifest
from stoker.node.statefolder import write_json

FILE = "generations.json"
SUFFIX = ".manifest"
NO_CHANGES = {"added": 0, "removed": 0, "modified": 0}


@dataclass(frozen=True, slots=True)
class Generation:
    """One listing of a data set. `contacted` has, per source, the uri that was really listed (a replica perhaps);
    `changed` counts what is different from the generation before: `added`, `removed`, `modified`."""

    digest: str
    path: str
    contacted: tuple[str, ...] = ()
    observed: str = ""
    files: int = 0
    directories: int = 0
    bytes: int = 0
    hidden: dict[str, int] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Generation:
        known = {name: data[name] for name in (each.name for each in fields(cls)) if name in data}
        return cls(**{**known, "contacted": tuple(data.get("contacted", ()))})


@dataclass(slots=True)
class Catalogue:
    """`sources` is a digest of what the document said of its sources when the current generation was listed. `older`:
    per digest the same, until what the cache holds for that generation alone was let go; then it is empty."""

    folder: str
    current: Generation | None = None
    sources: str = ""
    older: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: str) -> Catalogue:
        """From disk. What an older release left has no file: its newest manifest is the current generation."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            with open(os.path.join(folder, FILE), encoding="utf-8") as file:
                data = json.load(file)
            path = os.path.join(folder, data["current"]["digest"] + SUFFIX)
            if os.path.exists(path):
                current = replace(Generation.from_json(data["current"]), path=path)
                return cls(folder, current, data["sources"], dict(data["older"]))
        found = [path for path, _mtime in manifests(folder)]
        return cls(folder, described(found[0]) if found else None, "", {digest_of(path): "" for path in found[1:]})

    def becomes_current(self, generation: Generation, sources: str) -> None:
        """A listing gave another generation, or the same with other words."""
        before = self.current
        if before is not None and before.digest != generation.digest:
            self.older[before.digest] = self.sources
        self.older.pop(generation.digest, None)
        if before is None or before.digest != generation.digest:
            os.utime(generation.path)  # the newest one by its time, also when it had been listed long ago
        self.current, self.sources = generation, sources
        self.save()

    def let_go(self, digest: str) -> None:
        """Nothing is in the cache any more for the sake of this generation."""
        if self.current is None or self.current.digest != digest:
            self.older[digest] = ""
            self.save()

    def used_again(self, digest: str) -> None:
        """A mount shows it, whatever was let go."""
        if self.older.get(digest) == "":
            self.older[digest] = self.sources
            self.save()

    def holding(self) -> list[str]:
        """Manifests of older generations for which something may be in the cache."""
        return [self.path_of(digest) for digest, sources in self.older.items() if sources]

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        if self.older.pop(digest_of(path), None) is not None:
            self.save()

    def path_of(self, digest: str) -> str:
        return os.path.join(self.folder, digest + SUFFIX)

    def save(self) -> None:
        if self.current is None:
            return
        data = {"current": self.current.to_json(), "sources": self.sources, "older": self.older}
        write_json(os.path.join(self.folder, FILE), data)


def manifests(folder: str) -> list[tuple[str, float]]:
    """Path and time of each manifest in a folder, newest first."""
    try:
        entries = [entry for entry in os.scandir(folder) if entry.name.endswith(SUFFIX)]
    except FileNotFoundError:
        return []
    return sorted(((entry.path, entry.stat().st_mtime) for entry in entries), key=lambda f: f[1], reverse=True)


def described(path: str) -> Generation | None:
    """A generation of which only the manifest is known; None when that cannot be read."""
    with contextlib.suppress(StokerError, OSError), contextlib.closing(Manifest.open(path)) as manifest:
        counts = manifest.files, manifest.directories, manifest.bytes, manifest.hidden
        return Generation(manifest.digest, path, (), time_of(os.stat(path).st_mtime), *counts)
    return None


def time_of(seconds: float) -> str:
    """As Kubernetes writes times."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def digest_of(path: str) -> str:
    """A manifest's file is named so."""
    return os.path.basename(path).removesuffix(SUFFIX)
