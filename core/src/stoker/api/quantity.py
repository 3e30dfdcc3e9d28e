"""Kubernetes quantities (`500Gi`, `1.5Ti`, `-50Gi`, `50%`), parsed once into whole numbers of bytes.

Not for CPU: a quantity here is always a whole number, so the suffixes below one (`m`, `u`, `n`) are refused.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from stoker.api.fielderror import FieldError

_NUMBER = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[kMGTPE]|[eE][+-]?[0-9]{1,2})?"
_PARTS = re.compile(rf"([+-]?){_NUMBER}")
_LARGEST = 2**63 - 1
_MAX_LENGTH = 32
_MULTIPLES: dict[str, int] = {
    **{unit: 1000**power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": 1024**power for power, unit in enumerate("KMGTPE", start=1)},
}
_FORM = "a number of bytes or a Kubernetes quantity such as 500Gi, 1.5Ti or 200M"


class Quantity(int):
    """A whole number of bytes (or files) which remembers how it was written; negative means "leave this much free"."""

    text: str

    @classmethod
    def parse(cls, value: object) -> Quantity:
        """Read an integer or a quantity. A fraction of a byte is rounded away from zero, as Kubernetes does."""
        if isinstance(value, Quantity):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return cls._checked(value, str(value))
        match = _PARTS.fullmatch(value) if isinstance(value, str) and len(value) <= _MAX_LENGTH else None
        if match is None:
            raise FieldError(f"{value!r} is not a quantity", accepted=f"Write {_FORM}.")
        amount = Fraction(match[2]) * _multiple(match[4] or "")
        whole = math.ceil(amount)
        return cls._checked(-whole if match[1] == "-" else whole, match.string)

    @classmethod
    def _checked(cls, value: int, text: str) -> Quantity:
        if abs(value) > _LARGEST:
            raise FieldError(f"{text} is out of range", accepted="The largest quantity is 2^63 - 1, just under 8Ei.")
        quantity = cls(value)
        quantity.text = text
        return quantity

    def to_document(self) -> int | str:
        """As it stands in a document: a plain number stays a number."""
        return int(self) if self.text == str(int(self)) and self >= 0 else self.text


@dataclass(frozen=True, slots=True)
class Percent:
    """A share of something else, 0 to 100."""

    value: int

    def to_document(self) -> str:
        return f"{self.value}%"


def _multiple(suffix: str) -> Fraction:
    if suffix in _MULTIPLES:
        return Fraction(_MULTIPLES[suffix])
    return Fraction(10) ** int(suffix[1:] or 0)


def _size(value: object) -> Quantity:
    quantity = Quantity.parse(value)
    if quantity.text.startswith("-"):
        raise FieldError(f"{quantity.text} is negative", accepted=f"Write {_FORM}.")
    return quantity


def _signed(value: object) -> Quantity:
    if isinstance(value, int) and not isinstance(value, Quantity) and value < 0:
        raise FieldError(
            f"{value} is a negative number", accepted=f'Write it as a string, "{value}", to leave that many bytes free.'
        )
    try:
        return Quantity.parse(value)
    except FieldError as error:
        error.accepted = f'Write {_FORM}, or a negative one such as "-50Gi" to leave that much free.'
        raise


def _percent(value: object) -> Percent | None:
    """`value` as a percentage, None when it is not written as one."""
    match = re.fullmatch(r"([0-9]{1,2}|[1-9][0-9]{2})%", value) if isinstance(value, str) else None
    if match is None:
        return None
    if int(match[1]) > 100:
        raise FieldError(f"{value} is more than all", accepted='Write at most "100%".')
    return Percent(int(match[1]))


def _size_or_percent(value: object) -> Quantity | Percent:
    if isinstance(value, Percent):
        return value
    try:
        return _percent(value) or _size(value)
    except FieldError as error:
        error.accepted = f'Write {_FORM}, or a percentage such as "50%".'
        raise


def _count_or_percent(value: object) -> int | Percent:
    if isinstance(value, Percent):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31:
        return value
    if percent := _percent(value):
        return percent
    raise FieldError(f"{value!r} is not a count", accepted='Write a whole number such as 1, or a percentage: "10%".')


def _to_document(value: int | Quantity | Percent) -> int | str:
    return value if type(value) is int else value.to_document()  # type: ignore[union-attr]


def _int_or_string(pattern: str) -> WithJsonSchema:
    """The JSON schema of a number or string, the same in the CRDs: `pattern` and `maxLength` bind the string only."""
    schema: dict[str, Any] = {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        "minimum": 0,
        "pattern": pattern,
        "maxLength": _MAX_LENGTH,
    }
    return WithJsonSchema(schema)


_AS_WRITTEN = PlainSerializer(_to_document)
_PERCENT = "(100|[0-9]{1,2})%"

Size = Annotated[Quantity, PlainValidator(_size), _AS_WRITTEN, _int_or_string(rf"^\+?{_NUMBER}$")]
"""Zero or more."""
SignedSize = Annotated[Quantity, PlainValidator(_signed), _AS_WRITTEN, _int_or_string(rf"^[+-]?{_NUMBER}$")]
"""Zero or more, or negative, as a string: all but that much."""
SizeOrPercent = Annotated[
    Quantity | Percent, PlainValidator(_size_or_percent), _AS_WRITTEN, _int_or_string(rf"^(\+?{_NUMBER}|{_PERCENT})$")
]
CountOrPercent = Annotated[
    int | Percent, PlainValidator(_count_or_percent), _AS_WRITTEN, _int_or_string(rf"^{_PERCENT}$")
]
