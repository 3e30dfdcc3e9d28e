"""What all models of the API share: frozen, strict, no unknown field, camelCase in documents, text with bounds."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from stoker.api.fielderror import FieldError
from stoker.api.globs import check_glob
from stoker.api.schedule import check_cron, check_time_zone
from stoker.api.uri import MAX_LENGTH as MAX_URI
from stoker.api.uri import parse_uri

API_VERSION = "stoker.dev/v1alpha1"
_T = TypeVar("_T")


class Model(BaseModel):
    """Base of every part of a document. The docstring below a field is its description in the CRD and the schema."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        use_attribute_docstrings=True,
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


# A list in a document, a tuple here. Strictness is of the items: YAML and JSON have no tuples.
Many = Annotated[tuple[_T, ...], Field(strict=False)]

Text = Annotated[str, Field(max_length=1024)]
ShortText = Annotated[str, Field(max_length=253)]
Word = Annotated[str, Field(max_length=63)]
Message = Annotated[str, Field(max_length=32768)]
Time = Annotated[str, Field(max_length=64)]
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
SmallCount = Annotated[int, Field(ge=0, le=1_000_000)]
Share = Annotated[float, Field(ge=0, le=1)]
ShareOfHundred = Annotated[float, Field(ge=0, le=100)]
Priority = Annotated[int, Field(ge=0, le=1000)]
Cron = Annotated[str, Field(max_length=128), AfterValidator(check_cron)]
TimeZone = Annotated[str, Field(max_length=64), AfterValidator(check_time_zone)]
Glob = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(check_glob)]
NamespaceName = Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
ObjectName = Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]


def _is_uri(value: str) -> str:
    parse_uri(value)
    return value


SourceUri = Annotated[str, Field(max_length=MAX_URI), AfterValidator(_is_uri)]
