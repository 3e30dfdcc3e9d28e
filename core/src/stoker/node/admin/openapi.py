"""The OpenAPI 3.1 document of routes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from pydantic_core.core_schema import NullableSchema

from stoker.api.base import Model
from stoker.api.reasons import Reason
from stoker.api.schema import DocumentSchema
from stoker.node.admin.problems import ALWAYS, CONTENT_TYPE, WITH_BODY, Problem, status_of
from stoker.node.admin.requests import MAX_BODY
from stoker.node.admin.route import Nothing, Route

_REF = "#/components/schemas/{model}"
_VERSION = "1"
_DESCRIPTION = f"""\
HTTP over the node's unix socket, and over TCP with a client certificate. A field that is not here is refused in a
request; in answers fields may be added within version {_VERSION}. Errors are RFC 9457 problems with one stable word as
their reason."""


class Listing(Model):
    """Progress of an answer in lines."""

    state: str
    """`listing`."""
    objects: int
    """Listed so far."""


class Failed(Model):
    """The last line of an answer in lines whose work failed."""

    state: str
    """`failed`."""
    error: Problem


class _Schema(DocumentSchema):
    """Answers say null where they mean it."""

    def nullable_schema(self, schema: NullableSchema) -> dict[str, Any]:
        inner = super().nullable_schema(schema)
        return {"anyOf": [inner, {"type": "null"}]} if self.mode == "serialization" else inner


def document(routes: Sequence[Route[Any, Any]]) -> dict[str, Any]:
    """The whole document."""
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Stoker node", "version": _VERSION, "description": _DESCRIPTION},
        "paths": paths,
        "components": {"schemas": _schemas(routes)},
    }


def _schemas(routes: Sequence[Route[Any, Any]]) -> dict[str, Any]:
    wanted: dict[type[BaseModel], JsonSchemaMode] = {}
    for route in routes:
        if route.body is not None:
            wanted[route.body] = "validation"
        for answer in _answers(route):
            wanted[answer] = "serialization"
    wanted[Problem] = "serialization"
    _map, found = models_json_schema(list(wanted.items()), by_alias=True, schema_generator=_Schema, ref_template=_REF)
    schemas: dict[str, Any] = found["$defs"]
    for schema in _below(routes, schemas):
        schema.pop("additionalProperties", None)
    return schemas


def _below(routes: Sequence[Route[Any, Any]], schemas: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schemas of answers alone: clients of a later version must not mind what is new there."""
    asked = set(_reached((r.body.__name__ for r in routes if r.body is not None), schemas))
    return (schema for name, schema in schemas.items() if name not in asked and "properties" in schema)


def _reached(names: Iterable[str], schemas: dict[str, Any]) -> set[str]:
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += re.findall(r"'\$ref': '#/components/schemas/([^']+)'", repr(schemas[name]))
    return found


def _answers(route: Route[Any, Any]) -> list[type[BaseModel]]:
    own = [route.answer] if route.answer is not None else []
    return [*own, Listing, Failed] if route.lines else own


def _operation(route: Route[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "description": f"{MAX_BODY >> 20} MiB at most.",
            "content": {"application/json": {"schema": _ref(route.body)}},
        }
    operation["responses"] = {"200": _success(route)}
    for status in route.statuses:
        operation["responses"][str(status)] = {"description": "The same, not well.", **_content(route)}
    operation["responses"] |= _problems(route)
    return operation


def _operation_id(route: Route[Any, Any]) -> str:
    words = [word for word in re.split(r"\W+", route.path.removeprefix("/v1")) if word]
    return "_".join([route.method.lower(), *words])


def _path_parameters(route: Route[Any, Any]) -> list[dict[str, Any]]:
    schema = {"type": "string", "minLength": 1}
    return [
        {"name": name, "in": "path", "required": True, "schema": schema}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]


def _query_parameters(route: Route[Any, Any]) -> list[dict[str, Any]]:
    schema = (route.query or Nothing).model_json_schema(by_alias=True, schema_generator=_Schema)
    required = schema.get("required", [])
    found = []
    for name, field in schema.get("properties", {}).items():
        described = {"description": text} if (text := field.pop("description", "")) else {}
        found.append({"name": name, "in": "query", "required": name in required, **described, "schema": field})
    return found


def _success(route: Route[Any, Any]) -> dict[str, Any]:
    if not route.lines:
        return {"description": "Done.", **_content(route)}
    text = "Lines of JSON: progress now and then, the result or the failure as the last one."
    schema = {"oneOf": [_ref(model) for model in _answers(route)]}
    return {"description": text, "content": {"application/x-ndjson": {"schema": {"type": "string"}, "x-line": schema}}}


def _content(route: Route[Any, Any]) -> dict[str, Any]:
    schema = _ref(route.answer) if route.answer is not None else {}
    return {"content": {route.content_type: {"schema": schema}}}


def _problems(route: Route[Any, Any]) -> dict[str, Any]:
    reasons: set[Reason] = {*ALWAYS, *route.errors, *(WITH_BODY if route.body is not None else ())}
    by_status: dict[int, list[str]] = {}
    for reason in sorted(reasons):
        by_status.setdefault(status_of(reason), []).append(str(reason))
    return {
        str(status): {
            "description": ", ".join(f"`{word}`" for word in words),
            "content": {CONTENT_TYPE: {"schema": _ref(Problem)}},
        }
        for status, words in sorted(by_status.items())
    }


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}
