"""The node itself: its version, what it holds, its end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from stoker import __version__
from stoker.api.base import Many, Model
from stoker.node.admin.orders import JobStatus, KnownDataSet, MountStatus, Tier
from stoker.node.admin.route import Asked, Nothing, Route

if TYPE_CHECKING:
    from stoker.node.daemon import Daemon


class Version(Model):
    """Which node this is."""

    version: str
    pid: int
    start_time: str


class CacheStatus(Model):
    """The cache of the node."""

    tiers: Many[Tier]
    evicted: dict[str, int]
    """Objects by reason since the node started."""
    checked: bool
    """What earlier boots wrote has been compared."""
    bad_pages: int
    """Dropped because of their checksum."""
    lost_bytes: int
    """These, and files that were not there."""


class S3Status(Model):
    """The S3 endpoint."""

    endpoint: str
    """Empty when it is off."""


class NodeStatus(Model):
    """The node."""

    pid: int
    version: str
    uptime_seconds: int
    s3: S3Status
    cache: CacheStatus


class Status(Model):
    """What the node has."""

    node: NodeStatus
    data_sets: Many[KnownDataSet]
    mounts: Many[MountStatus]
    jobs: Many[JobStatus]


class Stopping(Model):
    """The node ends."""

    stopping: bool


async def version(daemon: Daemon, _asked: Asked[Nothing, Nothing]) -> dict[str, Any]:
    return {"version": __version__, "pid": os.getpid(), "startTime": daemon.started}


async def status(daemon: Daemon, _asked: Asked[Nothing, Nothing]) -> dict[str, Any]:
    return await daemon.status()


async def shutdown(daemon: Daemon, _asked: Asked[Nothing, Nothing]) -> dict[str, Any]:
    daemon.stop()
    return {"stopping": True}


ROUTES: tuple[Route[Any, Any], ...] = (
    Route("GET", "/v1/version", version, "Which node this is.", Version),
    Route("GET", "/v1/status", status, "What is mounted, and how much of it is cached.", Status),
    Route("POST", "/v1/shutdown", shutdown, "Unmount everything and end the node.", Stopping),
)
