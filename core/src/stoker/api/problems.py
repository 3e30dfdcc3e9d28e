"""From what pydantic found to one StokerError that says which field, what is wrong, and what is accepted."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from stoker.api.descriptions import field_descriptions
from stoker.api.errors import StokerError
from stoker.api.fielderror import FieldError, Location, field_path
from stoker.api.reasons import Reason

_TYPES = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_SHOWN = 60  # characters of a wrong value


class Origin(Protocol):
    """Where a document came from."""

    def place(self, location: Location) -> str:
        """The place of a field, as users read it."""
        ...

    def written(self, location: Location, /) -> str | None:
        """The text of a plain scalar as it was written, None when that is not known."""
        ...


class Body:
    """The origin of plain data: there are field paths, and no lines."""

    def place(self, location: Location) -> str:
        return field_path(location)

    def written(self, _location: Location) -> str | None:
        return None


@dataclass(frozen=True, slots=True)
class _Problem:
    reason: Reason
    location: Location
    message: str
    accepted: str = ""


def first_error(model: type[BaseModel], error: ValidationError, origin: Origin | None = None) -> StokerError:
    """The first problem as a StokerError, which says how many more there are. An unknown field comes first: it is often
    why another one is missing."""
    origin = origin or Body()
    problems = [_problem(model, details, origin) for details in _causes(error)]
    problems.sort(key=lambda problem: problem.reason is not Reason.UnknownField)
    first, more = problems[0], len(problems) - 1
    message = f"{first.message} (and {more} more)" if more else first.message
    return StokerError(first.reason, message, place=origin.place(first.location), next_step=first.accepted)


def _causes(error: ValidationError) -> list[ErrorDetails]:
    """Without the lists that are too short only because each item in them was refused."""
    found = error.errors(include_url=False)
    return [
        details
        for details in found
        if details["type"] != "too_short" or not any(_is_below(other["loc"], details["loc"]) for other in found)
    ]


def _is_below(inner: Location, outer: Location) -> bool:
    return len(inner) > len(outer) and inner[: len(outer)] == outer


def _problem(model: type[BaseModel], details: ErrorDetails, origin: Origin) -> _Problem:
    location, kind = details["loc"], details["type"]
    found = details.get("ctx", {}).get("error")
    if isinstance(found, FieldError):
        return _Problem(found.reason, location + found.at, found.message, found.accepted)
    if kind == "missing":
        return _Problem(
            Reason.MissingField, location, "it is required", _described(model, location) or f"Add {location[-1]}."
        )
    if kind == "extra_forbidden":
        return _unknown_field(model, location)
    value = _shown(details["input"])
    if kind == "literal_error":
        accepted = str(details.get("ctx", {}).get("expected", "")).replace("'", "")
        return _Problem(Reason.InvalidValue, location, f"{value} is not one of its values", f"Write {accepted}.")
    if kind in _TYPES:
        accepted = _quoted(origin.written(location), details["input"]) if kind == "string_type" else ""
        message = f"{value} is not {_TYPES[kind]}"
        return _Problem(Reason.InvalidValue, location, message, accepted or f"Write {_TYPES[kind]}.")
    return _Problem(Reason.InvalidValue, location, f"{value} is not accepted", f"{details['msg']}.")


def _quoted(written: str | None, value: object) -> str:
    """YAML reads `no` as false, 0444 as 292 and 1.10 as 1.1: quotes keep them as written."""
    if isinstance(value, dict | list):
        return ""
    return f'Write it in quotes: "{written}".' if written is not None else "Write a string."


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _unknown_field(model: type[BaseModel], location: Location) -> _Problem:
    name = str(location[-1])
    here = next(_models(model, location[:-1]), None)
    known = [field.alias or name for name, field in here.model_fields.items()] if here else []
    message = f"there is no field {_shown(name)} here"
    close = difflib.get_close_matches(name.lower(), [field.lower() for field in known], n=1)
    meant = [field for field in known if field.lower() in close]
    accepted = f"Did you mean {meant[0]}?" if meant else f"The fields here are {', '.join(known)}."
    return _Problem(Reason.UnknownField, location, message, accepted)


def _described(model: type[BaseModel], location: Location) -> str:
    for here in _models(model, location[:-1]):
        for name, field in here.model_fields.items():
            if (field.alias or name) == location[-1]:
                return field_descriptions(here).get(name, "")
    return ""


def _models(model: type[BaseModel], location: Sequence[str | int]) -> Iterator[type[BaseModel]]:
    """The model at `location`, if a model is there."""
    if not location:
        yield model
        return
    for name, field in model.model_fields.items():
        if (field.alias or name) == location[0]:
            rest = location[2:] if len(location) > 1 and isinstance(location[1], int) else location[1:]
            for inner in _model_classes(field.annotation):
                yield from _models(inner, rest)


def _model_classes(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models inside `X | None`, `tuple[X, ...]`, `Annotated[X, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _model_classes(argument)
