"""What a process has answered from the cache, until it tells the daemon: the order of eviction is by last use."""

from __future__ import annotations

from collections.abc import Mapping


class Touched:
    """Object ids by DataSet: who reads an object shares it."""

    def __init__(self) -> None:
        self._oids: dict[str, set[bytes]] = {}

    def add(self, data_set: str, oid: bytes) -> None:
        oids = self._oids.get(data_set)
        if oids is None:
            oids = self._oids[data_set] = set()
        oids.add(oid)

    def take(self) -> Mapping[str, list[str]]:
        """All of it as it is sent; from now on there is nothing."""
        found, self._oids = self._oids, {}
        return {data_set: [oid.hex() for oid in oids] for data_set, oids in found.items()}
