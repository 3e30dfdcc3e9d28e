"""Jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from stoker.api.base import Glob, Many, Model
from stoker.api.reasons import Reason
from stoker.node.admin.orders import DataSetOrder, JobStatus
from stoker.node.admin.route import Asked, Lines, Nothing, Poll, Progress, Route

if TYPE_CHECKING:
    from stoker.node.daemon import Daemon


class JobOrder(DataSetOrder):
    """What to load."""

    operation: Literal["Preload"] = "Preload"
    paths: Annotated[Many[Glob], Field(max_length=256)] = ()
    """Globs on paths in the mount; without them those of the document's `spec.preload`."""
    only_missing: Literal[True] = True
    """What is in cache already is not loaded again."""


class Started(Model):
    """The job runs."""

    state: Literal["started"]
    job: JobStatus


async def start(daemon: Daemon, asked: Asked[Nothing, JobOrder]) -> Lines:
    resolved = asked.body.resolved()

    async def work(progress: Progress) -> dict[str, Any]:
        session = await daemon.sessions.view(resolved, progress)
        paths = asked.body.paths or resolved.data_set.spec.preload.paths
        job = daemon.jobs.start(resolved.name, session.spec.slot, session.manifest, paths)
        return {"state": "started", "job": job.to_json()}

    return Lines(work)


async def job(daemon: Daemon, asked: Asked[Poll, Nothing]) -> dict[str, Any]:
    found = daemon.jobs.get(asked.path["id"])
    await found.wait(asked.query.version, asked.query.seconds)
    return found.to_json()


async def cancel(daemon: Daemon, asked: Asked[Nothing, Nothing]) -> dict[str, Any]:
    found = daemon.jobs.get(asked.path["id"])
    await daemon.jobs.cancel(found)
    return found.to_json()


ROUTES: tuple[Route[Any, Any], ...] = (
    Route(
        *("POST", "/v1/jobs", start, "Load the files of a DataSet into the cache.", Started),
        body=JobOrder,
        lines=True,
        errors=(Reason.UnsupportedCombination, Reason.UnknownScheme),
    ),
    Route(
        *("GET", "/v1/jobs/{id}", job, "The job, as soon as it is newer than a version.", JobStatus),
        query=Poll,
        errors=(Reason.SourceNotFound,),
    ),
    Route(
        *("DELETE", "/v1/jobs/{id}", cancel, "End the job; what it loaded stays.", JobStatus),
        errors=(Reason.SourceNotFound,),
    ),
)
