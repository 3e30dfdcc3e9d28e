"""How many nodes hold a copy: a number, or `All`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from stoker.api.fielderror import FieldError

_LARGEST = 10_000


def _parse(value: object) -> int | Literal["All"]:
    if value == "All":
        return "All"
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _LARGEST:
        return value
    raise FieldError(f"{value!r} is not a number of copies", accepted=f"Write 1 to {_LARGEST}, or All.")


def _to_document(value: int | str) -> int | str:
    return value


Replicas = Annotated[
    int | Literal["All"],
    PlainValidator(_parse),
    PlainSerializer(_to_document),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "minimum": 1,
            "maximum": _LARGEST,
            "pattern": "^All$",
            "maxLength": 3,
        }
    ),
]
