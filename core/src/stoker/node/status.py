"""How a mount is described to people and programs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stoker.api.dataset import DataSet
from stoker.cache.amount import Amount
from stoker.node.datasets import policy_of
from stoker.node.sessions import Session


@dataclass(frozen=True, slots=True)
class Reads:
    """What was read through a session. Reads that the kernel answers from its page cache are not seen here."""

    read: int = 0
    hit: int = 0
    from_source: int = 0
    errors: int = 0

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> Reads:
        """Of the counts of a session, over all workers and fetchers."""
        hit = counts["hit_bytes"]
        return cls(hit + counts["miss_bytes"], hit, counts["source_bytes"], counts["errors"])

    @property
    def hit_ratio(self) -> float | None:
        """Bytes answered from cache of all bytes asked; None before the first read."""
        return self.hit / self.read if self.read else None


@dataclass(frozen=True, slots=True)
class Cached:
    """How much of a generation is in cache."""

    files: int
    bytes: int


def mount_status(session: Session, reads: Reads, cached: Cached) -> dict[str, Any]:
    """One element of `mounts` in `GET /v1/status`."""
    manifest, spec = session.manifest, session.spec
    ratio = reads.hit_ratio
    return {
        "id": spec.id,
        "dataSet": spec.data_set,
        "mountpoint": session.mountpoint,
        "state": "ready",
        "generation": manifest.digest,
        "files": manifest.files,
        "directories": manifest.directories,
        "bytes": manifest.bytes,
        "cachedBytes": cached.bytes,
        "cachedFiles": cached.files,
        "cachedPercent": round(cached.bytes * 100 / manifest.bytes, 1) if manifest.bytes else 100.0,
        "hitRatio": None if ratio is None else round(ratio, 4),
        "bytesFromCache": reads.hit,
        "bytesFromSource": reads.from_source,
        "readErrors": reads.errors,
        "hidden": dict(manifest.hidden),
        "mode": "answered-open" if spec.mount.answered_open else "no-open",
        "passthrough": spec.mount.passthrough,
    }


def data_set_status(data_set: DataSet, held: Amount, mounts: int) -> dict[str, Any]:
    """One element of `dataSets` in `GET /v1/status`. `held`: on disk, an object of several counts for each of them."""
    policy = policy_of(data_set)
    return {
        "name": data_set.full_name,
        "heldBytes": held.bytes,
        "heldFiles": held.inodes,
        "quotaBytes": policy.bytes,
        "quotaInodes": policy.inodes,
        "priority": policy.priority,
        "ttlSeconds": policy.ttl_s,
        "mounts": mounts,
    }
