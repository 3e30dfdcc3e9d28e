"""Why reads are slow, metrics and health."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from aiohttp import web
from pydantic import Field

from stoker.api.base import Many, Model
from stoker.api.reasons import Reason
from stoker.node.admin.orders import FullName
from stoker.node.admin.route import Asked, Nothing, Query, Route
from stoker.node.whyslow import Figures

if TYPE_CHECKING:
    from stoker.node.daemon import Daemon


class WhySlow(Query):
    """Whose reads, and how far back."""

    name: FullName
    """Of a DataSet: `name` or `namespace/name`."""
    mountpoint: Annotated[str, Field(max_length=4096)] = ""
    """What is mounted there, when no DataSet has the name."""
    since: float = 300
    """Seconds."""


class Part(Model):
    """One part of the readers' time."""

    percent: float
    seconds: float


class Verdict(Model):
    """The largest part, and the one thing to change."""

    limit: str
    change: str
    text: str


class Slowness(Model):
    """What the readers waited for (docs/WATCHING.md)."""

    data_set: str
    window_seconds: float
    parts: dict[str, Part]
    figures: Figures
    verdict: Verdict


class Health(Model):
    """Whether every process does its work."""

    healthy: bool
    problems: Many[str]


async def why_slow(daemon: Daemon, asked: Asked[WhySlow, Nothing]) -> dict[str, Any]:
    query = asked.query
    return await daemon.watching.why_slow(query.name, query.mountpoint, query.since)


async def metrics(daemon: Daemon, _asked: Asked[Nothing, Nothing]) -> web.Response:
    return await daemon.watching.metrics()


async def health(daemon: Daemon, _asked: Asked[Nothing, Nothing]) -> web.Response:
    return await daemon.watching.health()


ROUTES: tuple[Route[Any, Any], ...] = (
    Route(
        *("GET", "/v1/why-slow", why_slow, "What the readers of a DataSet waited for.", Slowness),
        query=WhySlow,
        errors=(Reason.NotMounted,),
    ),
    Route("GET", "/metrics", metrics, "Metrics, as Prometheus reads them.", None, content_type="text/plain"),
    Route("GET", "/healthz", health, "Whether every process does its work.", Health, statuses=(503,)),
)
