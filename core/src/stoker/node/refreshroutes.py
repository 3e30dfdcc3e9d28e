"""The admin API's routes of refreshes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason

if TYPE_CHECKING:
    from stoker.node.daemon import Daemon

Work = Callable[[Callable[[int], None]], Awaitable[dict[str, Any]]]
Stream = Callable[[web.Request, Work], Awaitable[web.StreamResponse]]


def refresh_routes(daemon: Daemon, stream: Stream) -> list[web.RouteDef]:
    """`stream` answers with lines of JSON while something is worked on."""

    async def refresh(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        name, credentials = str(body["dataSet"]), dict(body.get("credentials", {}))

        async def work(progress: Callable[[int], None]) -> dict[str, Any]:
            return {"state": "refreshed", "refresh": await daemon.refreshes.refresh(name, credentials, progress)}

        return await stream(request, work)

    async def document(request: web.Request) -> web.Response:
        name = request.query["name"]
        data_set = daemon.cache.data_sets.get(name)
        if data_set is None:
            step = "mount it, or tell the node of it: stoker apply -f dataset.yaml"
            raise StokerError(Reason.DataSetNotFound, "this node does not know it", place=name, next_step=step)
        return web.json_response({"document": data_set.to_document()})

    return [web.post("/v1/refreshes", refresh), web.get("/v1/datasets/document", document)]
