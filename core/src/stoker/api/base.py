"""What all models of the API share: frozen, strict, no unknown field, camelCase in documents, text with bounds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

from stoker.api.fielderror import FieldError
from stoker.api.globs import check_glob
from stoker.api.schedule import check_cron, check_time_zone
from stoker.api.uri import MAX_LENGTH as MAX_URI
from stoker.api.uri import URI_PATTERN, parse_uri

API_VERSION = "stoker.dev/v1alpha1"
_T = TypeVar("_T")


class Model(BaseModel):
    """Base of every part of a document. The docstring below a field is its description (see `descriptions`)."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        allow_inf_nan=False,
    )

    @model_validator(mode="before")
    @classmethod
    def _no_nulls(cls, data: Any) -> Any:
        """`key:` with nothing behind it is a slip of the pen, not a wish for the default."""
        if isinstance(data, dict):
            for name, value in data.items():
                if value is None:
                    raise FieldError("there is no value", accepted="Give one, or remove the line.", at=(name,))
        return data


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a string: a pattern, which schemas carry too, and the sentence that says it to people."""

    pattern: str
    accepted: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "pattern": self.pattern}

    def _check(self, value: str) -> str:
        # fullmatch, because `$` alone lets a newline through
        if not re.fullmatch(self.pattern, value):
            raise FieldError(f"{value!r} is not accepted", accepted=self.accepted)
        return value


# A list in a document, a tuple here. Strictness is of the items: YAML and JSON have no tuples.
Many = Annotated[tuple[_T, ...], Field(strict=False)]


def _check_int64(value: int) -> int:
    """What Kubernetes can hold; schemas say `integer` and mean this."""
    if value >= 2**63:
        raise FieldError(f"{value} is out of range", accepted="The largest number is 2^63 - 1.")
    return value


Text = Annotated[str, Field(max_length=1024)]
ShortText = Annotated[str, Field(max_length=253)]
Word = Annotated[str, Field(max_length=63)]
Message = Annotated[str, Field(max_length=32768)]
Time = Annotated[str, Field(max_length=64)]
Count = Annotated[int, Field(ge=0), AfterValidator(_check_int64)]
SmallCount = Annotated[int, Field(ge=0, le=1_000_000)]
Share = Annotated[float, Field(ge=0, le=1)]
ShareOfHundred = Annotated[float, Field(ge=0, le=100)]
Priority = Annotated[int, Field(ge=0, le=1000)]
Cron = Annotated[str, Field(max_length=128), AfterValidator(check_cron)]
TimeZone = Annotated[str, Field(max_length=64), AfterValidator(check_time_zone)]
Glob = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(check_glob)]
NamespaceName = Annotated[
    str,
    Field(max_length=63),
    Form(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "Use lower-case letters, digits and -, at most 63."),
]
ObjectName = Annotated[
    str,
    Field(max_length=253),
    Form(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "Use lower-case letters, digits, - and ., at most 253."),
]


def _check_uri(value: str) -> str:
    parse_uri(value)
    return value


SourceUri = Annotated[
    str, Field(max_length=MAX_URI, json_schema_extra={"pattern": URI_PATTERN}), AfterValidator(_check_uri)
]
