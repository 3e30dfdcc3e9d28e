"""One source of a session as a fetcher sees it: opened at the first read, with its replicas, its lane and its rate."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from stoker.fetch.lanes import Lane
from stoker.sources import open_source
from stoker.sources.base import ObjectVersion, Source, SourceSpec

REPLICA_S = 30.0
"""After the source itself failed a read for good, its replicas are asked first for this long."""

OpenSource = Callable[[SourceSpec], Source]


@dataclass(slots=True)
class Store:
    """`lane` is this session's queue for it."""

    spec: SourceSpec
    lane: Lane
    opener: OpenSource = open_source
    clock: Callable[[], float] = time.monotonic
    _primary: Source | None = None
    _replicas: dict[str, Source] | None = None
    _down_until: float = 0.0

    @property
    def primary(self) -> Source:
        """Raises SourceError."""
        if self._primary is None:
            self._primary = self.opener(self.spec)
        return self._primary

    @property
    def has_replicas(self) -> bool:
        return bool(self.spec.replicas)

    @property
    def down(self) -> bool:
        """Whether a replica should be asked without asking the source itself first."""
        return self.has_replicas and self.clock() < self._down_until

    def failed(self) -> None:
        """The source itself did not answer, with all retries."""
        self._down_until = self.clock() + REPLICA_S

    def copies(self, version: ObjectVersion) -> list[tuple[Source, ObjectVersion]]:
        """The same version at the replicas, in their order. Raises SourceError."""
        if self._replicas is None:
            self._replicas = {uri: self.opener(replace(self.spec, uri=uri, replicas=())) for uri in self.spec.replicas}
        return [(copy, replace(version, key=self._key_at(copy, version.key))) for copy in self._replicas.values()]

    async def close(self) -> None:
        for source in (self._primary, *(self._replicas or {}).values()):
            if source is not None:
                await source.close()
        self._primary = self._replicas = None

    def _key_at(self, copy: Source, key: bytes) -> bytes:
        """Keys differ by the prefix of their uri; a uri that is one object has its key without the slash."""
        prefix = self.primary.prefix
        if key.startswith(prefix):
            return copy.prefix + key[len(prefix) :]
        return copy.prefix.removesuffix(b"/")
