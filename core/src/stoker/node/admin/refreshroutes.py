"""Refreshes: the sources of a DataSet are listed again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from stoker.api.base import Many, Model
from stoker.api.reasons import Reason
from stoker.node.admin.datasetroutes import Named
from stoker.node.admin.orders import Credentials, FullName, GenerationStatus, ObjectChanges, plain
from stoker.node.admin.route import Asked, Lines, Nothing, Progress, Route

if TYPE_CHECKING:
    from stoker.node.daemon import Daemon


class RefreshOrder(Model):
    """Which DataSet to list again."""

    data_set: FullName
    """`namespace/name`."""
    credentials: Credentials = Field(default_factory=dict)
    """Of who asks, by the name of the source, for where those that were handed over before do not reach."""


class RefreshResult(Model):
    """What was found."""

    data_set: str
    new: bool
    """It is another generation than before."""
    generation: GenerationStatus
    changed: ObjectChanges
    kept_by: Many[str]
    """Mountpoints that show an older generation."""


class Refreshed(Model):
    """The sources were listed."""

    state: Literal["refreshed"]
    refresh: RefreshResult


class Document(Model):
    """As the node was told of it."""

    document: dict[str, Any]
    """Of the kind DataSet."""


async def refresh(daemon: Daemon, asked: Asked[Nothing, RefreshOrder]) -> Lines:
    async def work(progress: Progress) -> dict[str, Any]:
        found = await daemon.refreshes.refresh(asked.body.data_set, plain(asked.body.credentials), progress)
        return {"state": "refreshed", "refresh": found}

    return Lines(work)


async def document(daemon: Daemon, asked: Asked[Named, Nothing]) -> dict[str, Any]:
    return {"document": daemon.cache.data_sets.need(asked.query.name).to_document()}


ROUTES: tuple[Route[Any, Any], ...] = (
    Route(
        *("POST", "/v1/refreshes", refresh, "List the sources of a DataSet again.", Refreshed),
        body=RefreshOrder,
        lines=True,
    ),
    Route(
        *("GET", "/v1/datasets/document", document, "A DataSet as the node was told of it.", Document),
        query=Named,
        errors=(Reason.DataSetNotFound,),
    ),
)
