"""What a worker serves while supervisors come and go, and say again what there is."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.cache.ledger import Limits
from stoker.cache.owner import CacheOwner
from stoker.cache.presence import PresenceTable, create_table
from stoker.cache.tier import TierConfig
from stoker.fetch.counters import create_counters
from stoker.fetch.session import MountSpec, SessionSpec
from stoker.fuse.opens import create_table as create_opens
from stoker.fuse.parts import WorkerParts
from stoker.fuse.slots import create_pool
from stoker.fuse.worker import Worker
from stoker.ipc.channel import Channel
from stoker.manifest.build import ManifestBuilder
from stoker.manifest.format import ManifestSource
from stoker.node.successor import ThirdHolder


class Said:
    """A worker, and what a supervisor tells it. `kernel` stands for the other side of each session's clone."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self.kernel: dict[str, socket.socket] = {}
        self._data: dict[str, tuple[dict[str, Any], dict[str, int]]] = {}
        source = ManifestSource("s", "s3://b/", "/", "s3://h/b", b"", "s3://b/")
        with ManifestBuilder([source], self._folder) as builder:
            self._manifest = builder.finish().path
        presence = create_table()
        tiers, tables = [TierConfig(str(folder / "cache"), Limits(0))], [PresenceTable(presence)]
        owner = CacheOwner.open(tiers, tables, bytes(16))
        third = ThirdHolder({"run_dir": self._folder, "fetchers": 1, "fuse_workers": 1}, {})
        parts = WorkerParts(
            index=0,
            run_dir=self._folder,
            workers=1,
            tiers=owner.roots,
            seeds=owner.seeds,
            boot=bytes(16),
            pool=create_pool(),
            presence=[presence],
            counters=create_counters(),
            third=third,
        )
        owner.close()
        self.third = third
        self._channels = Channel.pair()
        self.worker = Worker(parts, self._channels[0])

    def close(self) -> None:
        """What warns when it is left open; a worker ends with its process."""
        for kernel in self.kernel.values():
            kernel.close()
        for channel in self._channels:
            channel.close()
        self.worker._interrupts._sock.close()

    def made(self, name: str, slot: int, made: int) -> None:
        """A session that somebody made."""
        kernel, clone = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        clone.setblocking(False)
        self.kernel[name] = kernel
        spec = SessionSpec(name, slot, f"ns/{name}", self._manifest, (), MountSpec())
        data = {"slot": slot, "made": made, "spec": spec.to_json(), "mountpoint": f"/mnt/{name}"}
        self._data[name] = data, {"opens": create_opens(), "clone.0": clone.detach()}

    def keep(self, name: str) -> None:
        data, fds = self._data[name]
        copies = [os.dup(fd) for fd in fds.values()]
        message = {"op": "keep", "key": f"session.{name}", "names": list(fds), "data": data, "shares": []}
        self.worker._on_keeper(message, copies)

    def everything(self, *names: str) -> None:
        """A new supervisor says what there is."""
        self.worker._on_keeper({"op": "everything"}, [])
        for name in names:
            self.keep(name)
        self.worker._on_keeper({"op": "ready"}, [])

    def served(self) -> set[str]:
        return {session.spec.id for session in self.worker._sessions.values()}


@pytest.fixture
def said(tmp_path: Path) -> Iterator[Said]:
    said = Said(tmp_path)
    said.made("old", slot=1, made=1)
    said.made("new", slot=1, made=2)
    said.made("other", slot=2, made=3)
    yield said
    said.close()


@pytest.mark.parametrize("order", [("old", "new", "other"), ("new", "other", "old"), ("other", "new", "old")])
def test_of_two_sessions_with_one_slot_the_newer_is_served(said: Said, order: tuple[str, ...]) -> None:
    """A supervisor may have been handed one that has ended: its requests must not end with that."""
    said.everything("new", "other")
    session = said.worker._sessions[1]
    said.everything(*order)
    assert said.served() == {"new", "other"}
    assert said.worker._sessions[1] is session


def test_what_is_not_said_again_has_ended(said: Said) -> None:
    """Its end was said to a supervisor that died: nobody may bring it back later."""
    said.everything("old", "other")
    said.everything("other")
    assert said.served() == {"other"}
    assert said.third.kept() == ["session.other"]
    said.keep("new")
    assert said.served() == {"new", "other"}
    said.everything("new", "other")
    assert said.served() == {"new", "other"}
