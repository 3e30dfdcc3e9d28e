"""DataSets that the node knows, and their generations."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from stoker.api.base import Many, Model
from stoker.api.reasons import Reason
from stoker.node.admin.orders import DataSetOrder, FullName, KnownDataSet
from stoker.node.admin.route import Asked, Nothing, Query, Route

if TYPE_CHECKING:
    from stoker.node.daemon import Daemon


class DataSets(Model):
    """Those that this node knows."""

    data_sets: Many[KnownDataSet]


class Applied(Model):
    """As it is known now."""

    data_set: KnownDataSet


class Named(Query):
    """Which DataSet."""

    name: FullName
    """`namespace/name`."""


class Forgotten(Model):
    """It is not served any more."""

    forgotten: bool


class OfDataSet(Query):
    """Which DataSet."""

    data_set: FullName
    """`namespace/name`."""


class KnownGeneration(Model):
    """One listing of a DataSet."""

    digest: str
    path: str
    """Of its manifest, on the node."""
    time: float
    """Seconds since 1970."""
    files: int
    directories: int
    bytes: int


class Generations(Model):
    """On disk, newest first."""

    generations: Many[KnownGeneration]


async def data_sets(daemon: Daemon, _asked: Asked[Nothing, Nothing]) -> dict[str, Any]:
    return {"dataSets": daemon.data_sets()}


async def apply(daemon: Daemon, asked: Asked[Nothing, DataSetOrder]) -> dict[str, Any]:
    resolved = asked.body.resolved()
    applied = await daemon.apply(resolved.data_set)
    daemon.refreshes.applied(resolved)
    return {"dataSet": applied}


async def forget(daemon: Daemon, asked: Asked[Named, Nothing]) -> dict[str, Any]:
    await daemon.forget(asked.query.name)
    return {"forgotten": True}


async def generations(daemon: Daemon, asked: Asked[OfDataSet, Nothing]) -> dict[str, Any]:
    known = await asyncio.to_thread(daemon.generations.known, asked.query.data_set)
    return {"generations": known}


ROUTES: tuple[Route[Any, Any], ...] = (
    Route("GET", "/v1/datasets", data_sets, "The DataSets that this node knows.", DataSets),
    Route(
        *("PUT", "/v1/datasets", apply, "What a DataSet may hold, from now on and after a restart.", Applied),
        body=DataSetOrder,
        errors=(Reason.UnsupportedCombination, Reason.UnknownScheme, Reason.PinsDoNotFit),
    ),
    Route(
        *("DELETE", "/v1/datasets", forget, "Serve a DataSet no more; what it holds goes first.", Forgotten),
        query=Named,
        errors=(Reason.DataSetNotFound, Reason.MountBusy),
    ),
    Route("GET", "/v1/generations", generations, "The generations of a DataSet.", Generations, query=OfDataSet),
)
