"""Mounts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from stoker.api.base import Model
from stoker.api.reasons import Reason
from stoker.node.admin.orders import DataSetOrder, MountStatus
from stoker.node.admin.route import Asked, Flag, Lines, Nothing, Progress, Query, Route

if TYPE_CHECKING:
    from stoker.node.daemon import Daemon

Mountpoint = Annotated[str, Field(min_length=1, max_length=4096, pattern="^/")]
"""An absolute path."""


class MountOrder(DataSetOrder):
    """What to mount, and where."""

    mountpoint: Mountpoint
    """An empty folder."""


class Mounted(Model):
    """The mount answers."""

    state: Literal["ready"]
    mount: MountStatus


class Unmount(Query):
    """Which mount."""

    mountpoint: Mountpoint
    """Where it is."""
    force: Flag = "0"
    """Detach a mount that is in use."""


class Unmounted(Model):
    """It is gone."""

    unmounted: bool
    remaining: int
    """Mounts that are left."""


async def mount(daemon: Daemon, asked: Asked[Nothing, MountOrder]) -> Lines:
    resolved = asked.body.resolved()

    async def work(progress: Progress) -> dict[str, Any]:
        session = await daemon.sessions.mount(resolved, asked.body.mountpoint, progress)
        await daemon.pin_as_written(session, resolved.data_set)
        return {"state": "ready", "mount": await daemon.describe(session)}

    return Lines(work)


async def unmount(daemon: Daemon, asked: Asked[Unmount, Nothing]) -> dict[str, Any]:
    force = asked.query.force in ("1", "true")
    await daemon.sessions.unmount(asked.query.mountpoint, force=force)
    return {"unmounted": True, "remaining": daemon.sessions.mounted()}


ROUTES: tuple[Route[Any, Any], ...] = (
    Route(
        *("POST", "/v1/mounts", mount, "List the sources of a DataSet and mount them.", Mounted),
        body=MountOrder,
        lines=True,
        errors=(Reason.UnsupportedCombination, Reason.UnknownScheme),
    ),
    Route(
        *("DELETE", "/v1/mounts", unmount, "Take a mount away.", Unmounted),
        query=Unmount,
        errors=(Reason.NotMounted, Reason.MountBusy),
    ),
)
