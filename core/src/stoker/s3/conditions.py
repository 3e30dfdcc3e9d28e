"""Ranges and conditions of a GET or HEAD, as RFC 9110 and S3 have them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from stoker.s3.errors import NotModified, S3Error

_RANGE = re.compile(r"bytes\s*=\s*(\d*)\s*-\s*(\d*)\s*", re.IGNORECASE | re.ASCII)
_SECOND_NS = 1_000_000_000


def check_conditions(headers: Mapping[str, str], etag: str, mtime_ns: int) -> None:
    """Raises S3Error PreconditionFailed, NotModified. An etag's condition decides alone; the date beside it is not
    looked at. `etag`: as the manifest holds it."""
    modified = -(-mtime_ns // _SECOND_NS)  # headers know whole seconds; this is what Last-Modified says
    wanted, unwanted = headers.get("if-match"), headers.get("if-none-match")
    before, since = _time(headers.get("if-unmodified-since")), _time(headers.get("if-modified-since"))
    if wanted is not None:
        if not _names(wanted, etag, weak=False):
            raise _failed("If-Match")
    elif before is not None and modified > before:
        raise _failed("If-Unmodified-Since")
    if unwanted is not None:
        if _names(unwanted, etag, weak=True):
            raise NotModified
    elif since is not None and modified <= since:
        raise NotModified


def range_of(headers: Mapping[str, str], size: int, etag: str, mtime_ns: int) -> tuple[int, int] | None:
    """The bytes [start, stop) that are asked for; None for all. Raises S3Error InvalidRange.

    What is not one range is not looked at, as with S3: the answer is the whole object.
    """
    text = headers.get("range", "")
    found = _RANGE.fullmatch(text)
    if found is None or not _if_range(headers.get("if-range"), etag, mtime_ns):
        return None
    first, last = found.groups()
    if not first and not last:
        return None
    if not first:
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= size:
        fields: dict[str, str | int] = {"RangeRequested": text, "ActualObjectSize": size}
        refused = {"Content-Range": f"bytes */{size}"}
        raise S3Error("InvalidRange", "The requested range is not satisfiable", fields, refused)
    return start, stop


def quoted(etag: str) -> str:
    """An etag as a header has it."""
    return etag if etag.startswith(("W/", "w/")) else f'"{etag}"'


def _if_range(condition: str | None, etag: str, mtime_ns: int) -> bool:
    if condition is None:
        return True
    moment = _time(condition)
    if moment is not None:
        return moment == -(-mtime_ns // _SECOND_NS)
    return _names(condition, etag, weak=False)


def _names(condition: str, etag: str, *, weak: bool) -> bool:
    """Whether a list of etags names this one. S3 takes them without quotes, too."""
    for part in condition.split(","):
        name = part.strip()
        if name == "*":
            return True
        if weak:
            name, etag = name.removeprefix("W/"), etag.removeprefix("W/").strip('"')
        if etag and name.strip('"') == etag and (weak or not name.startswith("W/")):
            return True
    return False


def _time(value: str | None) -> int | None:
    """Seconds since 1970; None when there is no date, or none that anybody can read."""
    try:
        return int(parsedate_to_datetime(value or "").timestamp())
    except (ValueError, TypeError, OverflowError):
        return None


def _failed(condition: str) -> S3Error:
    text = "At least one of the pre-conditions you specified did not hold"
    return S3Error("PreconditionFailed", text, {"Condition": condition})
