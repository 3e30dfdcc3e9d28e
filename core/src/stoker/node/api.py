"""The admin API: HTTP over a unix socket that only this user can open. docs/design/admin-api.md lists every route."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web

from stoker import __version__
from stoker.api.dataset import DataSet
from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.node.refreshroutes import refresh_routes
from stoker.node.resolve import Resolved, resolve

if TYPE_CHECKING:
    from stoker.node.daemon import Daemon

log = structlog.get_logger("stoker.api")

_MAX_POLL_S = 60.0
_PROGRESS_S = 0.2

_STATUS = {
    Reason.NotMounted: 404,
    Reason.SourceNotFound: 404,
    Reason.DataSetNotFound: 404,
    Reason.S3Disabled: 404,
    Reason.MountBusy: 409,
    Reason.AlreadyMounted: 409,
    Reason.PermissionDenied: 403,
    Reason.Internal: 500,
}


def application(daemon: Daemon) -> web.Application:
    """All routes, over one daemon."""
    routes = Routes(daemon)
    app = web.Application(middlewares=[_problems], client_max_size=16 << 20)
    app.add_routes(
        [
            web.get("/v1/version", routes.version),
            web.get("/v1/status", routes.status),
            web.post("/v1/mounts", routes.mount),
            web.delete("/v1/mounts", routes.unmount),
            web.post("/v1/jobs", routes.start_job),
            web.get("/v1/jobs/{id}", routes.job),
            web.delete("/v1/jobs/{id}", routes.cancel_job),
            web.get("/v1/datasets", routes.data_sets),
            web.put("/v1/datasets", routes.apply),
            web.delete("/v1/datasets", routes.forget),
            web.get("/v1/generations", routes.generations),
            web.post("/v1/s3/credentials", routes.grant_key),
            web.delete("/v1/s3/credentials/{id}", routes.revoke_key),
            web.get("/v1/why-slow", routes.why_slow),
            web.post("/v1/shutdown", routes.shutdown),
        ]
    )
    app.add_routes(refresh_routes(daemon, _stream))
    app.add_routes(daemon.watching.routes())
    return app


def problem(error: StokerError) -> dict[str, Any]:
    """An error as RFC 9457 has it, with our reason, place and next step."""
    status = _STATUS.get(error.reason, 422)
    return {
        "type": "about:blank",
        "title": str(error.reason),
        "status": status,
        "detail": error.message,
        **error.to_json(),
    }


@web.middleware
async def _problems(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except StokerError as error:
        return _problem_response(error)
    except (KeyError, ValueError, TypeError) as error:
        step = "see docs/design/admin-api.md"
        return _problem_response(StokerError(Reason.InvalidValue, f"the request is not valid: {error}", next_step=step))
    except web.HTTPException:
        raise
    except Exception as error:
        log.exception("request failed", path=request.path)
        step = "see the node's log."
        return _problem_response(StokerError(Reason.Internal, f"{type(error).__name__}: {error}", next_step=step))


def _problem_response(error: StokerError) -> web.Response:
    body = problem(error)
    return web.json_response(body, status=body["status"], content_type="application/problem+json")


class Routes:
    """The handlers."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    async def version(self, _request: web.Request) -> web.Response:
        started = self._daemon.started
        return web.json_response({"version": __version__, "pid": os.getpid(), "startTime": started})

    async def status(self, _request: web.Request) -> web.Response:
        return web.json_response(await self._daemon.status())

    async def mount(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        resolved = _resolved(body)

        async def work(progress: Callable[[int], None]) -> dict[str, Any]:
            session = await self._daemon.sessions.mount(resolved, body["mountpoint"], progress)
            await self._daemon.pin_as_written(session, resolved.data_set)
            return {"state": "ready", "mount": await self._daemon.describe(session)}

        return await _stream(request, work)

    async def unmount(self, request: web.Request) -> web.Response:
        force = request.query.get("force", "0") in ("1", "true")
        await self._daemon.sessions.unmount(request.query["mountpoint"], force=force)
        return web.json_response({"unmounted": True, "remaining": self._daemon.sessions.mounted()})

    async def start_job(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body.get("operation", "Preload") != "Preload":
            step = "Preload is the operation that this release serves."
            raise StokerError(Reason.InvalidValue, f"{body['operation']!r} is not served", next_step=step)
        resolved = _resolved(body)

        async def work(progress: Callable[[int], None]) -> dict[str, Any]:
            session = await self._daemon.sessions.view(resolved, progress)
            paths = body.get("paths") or list(resolved.data_set.spec.preload.paths)
            job = self._daemon.jobs.start(resolved.name, session.spec.slot, session.manifest, paths)
            return {"state": "started", "job": job.to_json()}

        return await _stream(request, work)

    async def job(self, request: web.Request) -> web.Response:
        job = self._daemon.jobs.get(request.match_info["id"])
        timeout = min(float(request.query.get("timeout", "0")), _MAX_POLL_S)
        await job.wait(int(request.query.get("version", "-1")), timeout)
        return web.json_response(job.to_json())

    async def cancel_job(self, request: web.Request) -> web.Response:
        job = self._daemon.jobs.get(request.match_info["id"])
        await self._daemon.jobs.cancel(job)
        return web.json_response(job.to_json())

    async def data_sets(self, _request: web.Request) -> web.Response:
        return web.json_response({"dataSets": self._daemon.data_sets()})

    async def apply(self, request: web.Request) -> web.Response:
        resolved = _resolved(await request.json())
        applied = await self._daemon.apply(resolved.data_set)
        self._daemon.refreshes.applied(resolved)
        return web.json_response({"dataSet": applied})

    async def forget(self, request: web.Request) -> web.Response:
        await self._daemon.forget(request.query["name"])
        return web.json_response({"forgotten": True})

    async def generations(self, request: web.Request) -> web.Response:
        known = await asyncio.to_thread(self._daemon.generations.known, request.query["dataSet"])
        return web.json_response({"generations": known})

    async def grant_key(self, request: web.Request) -> web.Response:
        return web.json_response(self._daemon.endpoint.grant(self._daemon.sessions, await request.json()))

    async def revoke_key(self, request: web.Request) -> web.Response:
        return web.json_response(self._daemon.endpoint.revoke(request.match_info["id"]))

    async def why_slow(self, request: web.Request) -> web.Response:
        since_s = float(request.query.get("since", "300"))
        name, path = request.query["name"], request.query.get("mountpoint", "")
        return web.json_response(await self._daemon.watching.why_slow(name, path, since_s))

    async def shutdown(self, _request: web.Request) -> web.Response:
        self._daemon.stop()
        return web.json_response({"stopping": True})


def _resolved(body: dict[str, Any]) -> Resolved:
    place = str(body.get("place", ""))
    return resolve(DataSet.from_body(body["document"]), body.get("credentials", {}), place)


async def _stream(
    request: web.Request, work: Callable[[Callable[[int], None]], Awaitable[dict[str, Any]]]
) -> web.StreamResponse:
    """Run `work` and answer as lines of JSON: progress now and then, the result or the error as the last line."""
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)
    listed = [0]
    task = asyncio.ensure_future(work(lambda count: listed.__setitem__(0, count)))
    try:
        said, last = -1, time.monotonic()
        while not task.done():
            await asyncio.wait([task], timeout=_PROGRESS_S)
            if listed[0] != said or time.monotonic() - last > 1.0:
                said, last = listed[0], time.monotonic()
                await _line(response, {"state": "listing", "objects": said})
        await _line(response, await task)
    except StokerError as error:
        await _line(response, {"state": "failed", "error": problem(error)})
    except ConnectionError:
        log.info("the command was interrupted", path=request.path)  # what it began is undone by the task itself
    except Exception as error:
        log.exception("request failed", path=request.path)
        text = f"{type(error).__name__}: {error}"
        internal = StokerError(Reason.Internal, text, next_step="see the node's log.")
        await _line(response, {"state": "failed", "error": problem(internal)})
    finally:
        if not task.done():
            task.cancel()
    await response.write_eof()
    return response


async def _line(response: web.StreamResponse, data: dict[str, Any]) -> None:
    await response.write(json.dumps(data).encode() + b"\n")
