"""Durations as Go and Kubernetes write them (`30s`, `1h30m`, `0s`), parsed once into nanoseconds."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from stoker.api.fielderror import FieldError

_UNITS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_TERM = r"[0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h)"
_PATTERN = rf"^(0|({_TERM})+)$"
_TERMS = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|ms|s|m|h)")
_LARGEST_NS = 2**63 - 1  # what Go can hold: 292 years
_MAX_LENGTH = 32
_ACCEPTED = "Write a duration such as 30s, 10m, 1h30m or 0s."


@dataclass(frozen=True, slots=True)
class Duration:
    """A length of time, zero or more, which remembers how it was written."""

    nanoseconds: int
    text: str = field(default="", compare=False)

    @classmethod
    def parse(cls, value: object) -> Duration:
        if isinstance(value, Duration):
            return value
        if not isinstance(value, str) or len(value) > _MAX_LENGTH or not re.fullmatch(_PATTERN, value):
            raise FieldError(f"{value!r} is not a duration", accepted=_ACCEPTED)
        total = int(sum(Fraction(number) * _UNITS_NS[unit] for number, unit in _TERMS.findall(value)))
        if total > _LARGEST_NS:
            raise FieldError(f"{value!r} is longer than 292 years", accepted=_ACCEPTED)
        return cls(total, value)

    @property
    def seconds(self) -> float:
        return self.nanoseconds / 10**9

    def __str__(self) -> str:
        """As it was written, else the shortest exact form: `1h30m`, `250ms`, `0s`."""
        if self.text:
            return self.text
        left, text = self.nanoseconds, ""
        for unit in ("h", "m", "s", "ms", "us", "ns"):
            count, left = divmod(left, _UNITS_NS[unit])
            text += f"{count}{unit}" if count else ""
        return text or "0s"


def _to_document(value: Duration) -> str:
    return str(value)


DurationField = Annotated[
    Duration,
    PlainValidator(Duration.parse),
    PlainSerializer(_to_document),
    WithJsonSchema({"type": "string", "pattern": _PATTERN, "maxLength": _MAX_LENGTH}),
]
