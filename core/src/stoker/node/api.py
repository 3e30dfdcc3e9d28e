"""The admin API: all its routes. What each takes and answers is in `stoker.node.admin`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stoker.node.admin import datasetroutes, jobroutes, mountroutes, noderoutes, refreshroutes, s3routes, watchroutes
from stoker.node.admin.openapi import document
from stoker.node.admin.route import Asked, Nothing, Route

if TYPE_CHECKING:
    from stoker.node.daemon import Daemon


async def _openapi(_daemon: Daemon, _asked: Asked[Nothing, Nothing]) -> dict[str, Any]:
    return document(ROUTES)


ROUTES: tuple[Route[Any, Any], ...] = (
    *noderoutes.ROUTES,
    *mountroutes.ROUTES,
    *jobroutes.ROUTES,
    *datasetroutes.ROUTES,
    *refreshroutes.ROUTES,
    *s3routes.ROUTES,
    *watchroutes.ROUTES,
    Route("GET", "/v1/openapi.json", _openapi, "This document.", None),
)
