"""From an HTTP request to the checked parts that a handler takes. Every refusal is a StokerError."""

from __future__ import annotations

import asyncio
import json
from typing import Any, TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from stoker.api.errors import StokerError
from stoker.api.problems import first_error
from stoker.api.reasons import Reason
from stoker.node.admin.route import Asked, Nothing, Route

MAX_BODY = 4 << 20
"""Bytes; a document has 1 MiB at most."""

_BODY_S = 30.0
_M = TypeVar("_M", bound=BaseModel)


async def asked(route: Route[Any, Any], request: web.Request) -> Asked[Any, Any]:
    """Raises StokerError."""
    query = _query(route.query or Nothing, request)
    if route.body is None:
        return Asked(dict(request.match_info), query, Nothing())
    return Asked(dict(request.match_info), query, _valid(route.body, _parsed(await _read(request))))


def _query(model: type[_M], request: web.Request) -> _M:
    values: dict[str, str] = {}
    for name, value in request.query.items():
        if name in values:
            step = "give it once."
            raise StokerError(Reason.InvalidValue, "it is there more than once", place=name, next_step=step)
        values[name] = value
    return _valid(model, values)


async def _read(request: web.Request) -> bytes:
    if request.content_type != "application/json":
        step = "send a body with Content-Type: application/json"
        text = f"{request.content_type} is not taken here"
        raise StokerError(Reason.ContentTypeNotSupported, text, place="Content-Type", next_step=step)
    try:
        async with asyncio.timeout(_BODY_S):
            return await request.read()
    except web.HTTPRequestEntityTooLarge:
        step = f"send {MAX_BODY >> 20} MiB at most."
        raise StokerError(Reason.BodyTooLarge, "the body is too large", place="body", next_step=step) from None
    except TimeoutError:
        text = f"the body was not there within {_BODY_S:.0f} s"
        raise StokerError(Reason.Timeout, text, place="body", next_step="send it at once.") from None


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        text = f"the body is not JSON ({error or type(error).__name__})"
        raise StokerError(Reason.NotJson, text, place="body", next_step="send a JSON object.") from None


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _valid(model: type[_M], data: Any) -> _M:
    if not isinstance(data, dict):
        raise StokerError(Reason.InvalidValue, "it is not an object", place="body", next_step="send a JSON object.")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise first_error(model, error) from None
