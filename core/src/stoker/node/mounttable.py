"""The mounts this node made, on disk, so that a start after a crash finds those that are dead and takes them away."""

from __future__ import annotations

import contextlib
import json
import os

import structlog

from stoker.api.errors import StokerError
from stoker.fuse import kernel
from stoker.node.mountinfo import mounts
from stoker.node.statefolder import write_json

log = structlog.get_logger("stoker.node")


class MountTable:
    """A JSON file: mountpoint -> data set."""

    def __init__(self, state_dir: str) -> None:
        self._path = os.path.join(state_dir, "mounts.json")
        self._mounts = self._load()

    def add(self, mountpoint: str, data_set: str) -> None:
        self._mounts[mountpoint] = data_set
        self._save()

    def remove(self, mountpoint: str) -> None:
        if self._mounts.pop(mountpoint, None) is not None:
            self._save()

    def clean_up(self) -> None:
        """At a cold start, when no process of an earlier node lives: its mounts are dead, take them away."""
        dead = [mount.mountpoint for mount in mounts() if mount.fstype == kernel.FSTYPE]
        for mountpoint in list(self._mounts):
            if mountpoint in dead:
                with contextlib.suppress(StokerError):
                    kernel.unmount(mountpoint, lazy=True)
                log.warning("removed a dead mount", mountpoint=mountpoint, data_set=self._mounts[mountpoint])
            self.remove(mountpoint)

    def _load(self) -> dict[str, str]:
        try:
            with open(self._path, encoding="utf-8") as file:
                return dict(json.load(file))
        except (FileNotFoundError, ValueError):
            return {}

    def _save(self) -> None:
        write_json(self._path, self._mounts)
