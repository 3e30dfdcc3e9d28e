"""Routes to an aiohttp application: requests are checked before their handler, every error is a problem."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.node.admin.problems import internal, problem, problem_response
from stoker.node.admin.requests import MAX_BODY, asked
from stoker.node.admin.route import Lines, Route, Work

if TYPE_CHECKING:
    from stoker.node.daemon import Daemon

log = structlog.get_logger("stoker.api")

VERSION = "v1"
MAX_LINE = 64 << 10
"""Bytes of the request line: a path of 4,096 characters as a query has 12 for each. More gets 400 in plain text."""

_PROGRESS_S = 0.2
_SAY_S = 1.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Check = Callable[[web.Request], None]


def serve(daemon: Daemon, routes: Sequence[Route[Any, Any]], check: Check | None = None) -> web.Application:
    """All routes, over one daemon. `check` hears each request first, and raises StokerError."""
    app = web.Application(middlewares=[_problems(check)], client_max_size=MAX_BODY)
    for route in routes:
        app.router.add_route(route.method, route.path, _handler(daemon, route))
    return app


def _handler(daemon: Daemon, route: Route[Any, Any]) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        answer = await route.handler(daemon, await asked(route, request))
        if isinstance(answer, Lines):
            return await _stream(request, answer.work)
        return answer if isinstance(answer, web.StreamResponse) else web.json_response(answer)

    return handle


def _problems(check: Check | None) -> Any:
    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if check is not None:
                check(request)
            return await handler(request)
        except StokerError as error:
            return problem_response(error)
        except web.HTTPNotFound:
            return problem_response(_not_found(request.path))
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            text, step = f"{request.method} is not served there", f"what is served there: {allowed}."
            refusal = StokerError(Reason.MethodNotAllowed, text, place=request.path, next_step=step)
            response = problem_response(refusal)
            response.headers["Allow"] = allowed
            return response
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:
            log.exception("request failed", path=request.path)
            return problem_response(internal(error))

    return middleware


def _not_found(path: str) -> StokerError:
    first = path.split("/")[1]
    if first != VERSION and first[:1] == "v" and first[1:].isdecimal():
        text, step = f"version {first} of the API is not served", f"this node serves /{VERSION}."
    else:
        text, step = "there is nothing there", f"the routes are in /{VERSION}/openapi.json"
    return StokerError(Reason.RouteNotFound, text, place=path, next_step=step)


async def _stream(request: web.Request, work: Work) -> web.StreamResponse:
    """Run `work` and answer as lines of JSON."""
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)
    listed = [0]
    task = asyncio.ensure_future(work(lambda count: listed.__setitem__(0, count)))
    try:
        said, last = -1, time.monotonic()
        while not task.done():
            await asyncio.wait([task], timeout=_PROGRESS_S)
            if listed[0] != said or time.monotonic() - last > _SAY_S:
                said, last = listed[0], time.monotonic()
                await _line(response, {"state": "listing", "objects": said})
        await _line(response, await task)
    except StokerError as error:
        await _line(response, {"state": "failed", "error": problem(error)})
    except ConnectionError:
        log.info("the command was interrupted", path=request.path)  # what it began is undone by the task itself
    except Exception as error:
        log.exception("request failed", path=request.path)
        await _line(response, {"state": "failed", "error": problem(internal(error))})
    finally:
        if not task.done():
            task.cancel()
    await response.write_eof()
    return response


async def _line(response: web.StreamResponse, data: dict[str, Any]) -> None:
    await response.write(json.dumps(data).encode() + b"\n")
