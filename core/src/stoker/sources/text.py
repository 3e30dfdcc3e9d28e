"""How keys, etags and times of stores are written: for people, in headers, and back. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime

_SECOND_NS = 1_000_000_000


def printable(raw: bytes) -> str:
    """`raw` for a message: one line, whatever bytes it holds."""
    text = raw.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def etag_of(header: str | None) -> str:
    """The etag without its quotes; a weak one stays whole (`W/"..."`), so that nobody takes it for a strong one."""
    value = (header or "").strip()
    return value if is_weak(value) else value.strip('"')


def is_weak(etag: str) -> bool:
    """A weak etag names a meaning, not bytes: it is compared, and never sent in If-Match (RFC 9110, 8.8.1)."""
    return etag.startswith(("W/", "w/"))


def ns_of_http_date(value: str | None) -> int:
    """Nanoseconds since 1970 of a Last-Modified header; 0 when there is none or nobody can read it."""
    try:
        return int(parsedate_to_datetime(value or "").timestamp()) * _SECOND_NS
    except (ValueError, TypeError):
        return 0


def ns_of_iso_date(value: str) -> int:
    """Nanoseconds since 1970 of `2026-01-31T23:59:59.123Z`; 0 when there is none."""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return 0
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * _SECOND_NS + moment.microsecond * 1000


def http_date(mtime_ns: int) -> str:
    """The header value of a time, rounded up: a listing tells milliseconds that a header cannot."""
    return format_datetime(datetime.fromtimestamp(-(-mtime_ns // _SECOND_NS), UTC), usegmt=True)


def same_time(one_ns: int, other_ns: int) -> bool:
    """Whether two times of one object agree as far as headers can tell, which is to the second."""
    return abs(one_ns - other_ns) < _SECOND_NS
