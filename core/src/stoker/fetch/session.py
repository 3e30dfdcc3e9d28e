"""What every process of a node must know of a session: its sources with credentials, and how it is mounted.

Plain data, sent between processes as JSON. Not for opening anything.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from stoker.sources.base import SourceSpec

Policy = Literal["Cache", "Bypass", "WholeFile"]

LEAST_DEADLINE_S = 20.0
"""Seven retries back off for 13 s at most: a shorter deadline would make `retries` a lie."""


@dataclass(frozen=True, slots=True)
class MountSpec:
    """How the files of a session look and how its reads behave. Sizes in bytes, modes without the file type."""

    uid: int = 0
    gid: int = 0
    file_mode: int = 0o444
    dir_mode: int = 0o555
    read_ahead_max: int = 64 << 20
    read_ahead_threads: int = 0
    block_size: int = 2 << 20
    retries: int = 7
    request_timeout_s: float = 30.0
    policy: Policy = "Cache"
    answered_open: bool = False
    passthrough: bool = False

    @property
    def deadline_s(self) -> float:
        """How long a read may take in all, with its retries: 120 s unless the document says otherwise."""
        return max(4 * self.request_timeout_s, LEAST_DEADLINE_S)


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """One session. `slot` is its number in requests and counters, `data_set` is `namespace/name`, `sources` stand in
    the order of the manifest's. Holds credentials: for sockets of this node only, never for a log."""

    id: str
    slot: int
    data_set: str
    manifest_path: str
    sources: tuple[SourceSpec, ...]
    mount: MountSpec

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "slot": self.slot,
            "data_set": self.data_set,
            "manifest_path": self.manifest_path,
            "sources": [source.to_json() for source in self.sources],
            "mount": asdict(self.mount),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SessionSpec:
        sources = tuple(SourceSpec.from_json(source) for source in data["sources"])
        return cls(**{**data, "sources": sources, "mount": MountSpec(**data["mount"])})
