"""Checks of cron schedules and time zones: whether they mean something, not when they are due."""

from __future__ import annotations

import re
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from stoker.api.fielderror import FieldError

_MACROS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _DAYS),
)
_ITEM = re.compile(r"(\*|[a-z0-9]+(?:-[a-z0-9]+)?)(?:/([0-9]+))?")
_ACCEPTED = 'Write five fields, minute hour day month weekday: "30 2 * * *" is 02:30 each day; or @daily, @hourly.'


def check_cron(value: str) -> str:
    """`value` itself, "" too. Raises FieldError."""
    if not value or value in _MACROS:
        return value
    parts = value.lower().split()
    if len(parts) != len(_FIELDS):
        raise FieldError(f"{value!r} has {len(parts)} fields, not five", accepted=_ACCEPTED)
    for part, (name, low, high, words) in zip(parts, _FIELDS, strict=True):
        if not all(_fits(item, low, high, words) for item in part.split(",")):
            raise FieldError(f"{part!r} is not a {name}", accepted=_ACCEPTED)
    return value


def check_time_zone(value: str) -> str:
    """`value` itself. Raises FieldError."""
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise FieldError(
            f"{value!r} is not a time zone", accepted="Write an IANA name such as Etc/UTC or Europe/Berlin."
        ) from None
    return value


def _fits(item: str, low: int, high: int, words: tuple[str, ...]) -> bool:
    match = _ITEM.fullmatch(item)
    if match is None or (match[2] is not None and not 0 < int(match[2]) <= high):
        return False
    if match[1] == "*":
        return True
    numbers = [_number(text, low, words) for text in match[1].split("-")]
    return all(low <= number <= high for number in numbers) and numbers == sorted(numbers)


def _number(text: str, low: int, words: tuple[str, ...]) -> int:
    """A number or a word of the field; -1 is in no field's range."""
    if text in words:
        return words.index(text) + low
    return int(text) if text.isdecimal() else -1
