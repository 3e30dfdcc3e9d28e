"""A ranged GET over HTTP whose answer is believed only after it is checked: status, range, total, validator, length."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import aiohttp

from stoker.api.reasons import Reason
from stoker.sources.base import ObjectVersion, SourceError
from stoker.sources.text import etag_of, http_date, is_weak, ns_of_http_date, same_time

_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+)")
_PIECE = 256 << 10


@dataclass(frozen=True, slots=True)
class Wanted:
    """The bytes [start, stop) of one version."""

    version: ObjectVersion
    start: int
    stop: int
    place: str

    @property
    def whole(self) -> bool:
        return self.start == 0 and self.stop == self.version.size

    def headers(self) -> dict[str, str]:
        """Range, and the condition that only this version meets."""
        headers = {"Range": f"bytes={self.start}-{self.stop - 1}"}
        etag, mtime_ns = self.version.etag, self.version.mtime_ns
        if etag and not is_weak(etag):
            headers["If-Match"] = f'"{etag}"'
        elif mtime_ns:
            headers["If-Unmodified-Since"] = http_date(mtime_ns)
        return headers

    def check(self, start: int, stop: int, total: int, etag: str, mtime_ns: int) -> None:
        """Raises SourceError unless this is what the store says it sends."""
        version = self.version
        if total != version.size:
            raise self.changed(f"it has {total} bytes now, not {version.size}")
        if version.etag and etag != version.etag:
            raise self.changed(f"its etag is {etag or 'missing'} now, not {version.etag}")
        if not version.etag and version.mtime_ns and mtime_ns and not same_time(mtime_ns, version.mtime_ns):
            raise self.changed("it was modified")
        if (start, stop) != (self.start, self.stop):
            raise self.corrupt(f"asked for bytes {self.start}-{self.stop}, got {start}-{stop}")

    def changed(self, what: str) -> SourceError:
        return SourceError(
            Reason.SourceChanged,
            f"the object changed since it was listed: {what}",
            place=self.place,
            next_step="mount again to see the new version.",
        )

    def gone(self, error: SourceError) -> SourceError:
        """The same for a read: what was listed and is not found any more has changed."""
        if error.reason in (Reason.SourceNotFound, Reason.SourceChanged):
            return self.changed(
                "it is gone" if error.reason == Reason.SourceNotFound else "the store has another version"
            )
        return error

    def ended(self, left: int) -> None:
        """The body is over, and `left` bytes of it had not come; fewer than none when more came. Raises SourceError."""
        if left:
            raise self.corrupt(f"{abs(left)} bytes {'too few' if left > 0 else 'too many'}")

    def corrupt(self, what: str) -> SourceError:
        return SourceError(
            Reason.CorruptResponse, f"the store sent something else: {what}", place=self.place, retryable=True
        )


def content_range(header: str | None) -> tuple[int, int, int] | None:
    """(start, stop, total) of a Content-Range header; (0, 0, total) for `bytes */total`; None when it is not one."""
    match = _CONTENT_RANGE.fullmatch((header or "").strip())
    if match is None:
        return None
    if match[1] is None:
        return 0, 0, int(match[3])
    return int(match[1]), int(match[2]) + 1, int(match[3])


def is_encoded(content_encoding: str | None) -> bool:
    """Whether a body is marked as encoded: the object was stored so, or somebody on the way did it unasked."""
    return (content_encoding or "identity").lower() != "identity"


def check_headers(response: aiohttp.ClientResponse, wanted: Wanted) -> None:
    """Status 206 with the right Content-Range, or 200 where the whole object was asked for."""
    headers = response.headers
    etag, mtime_ns = etag_of(headers.get("ETag")), ns_of_http_date(headers.get("Last-Modified"))
    if response.status == 200:
        length = response.content_length
        if length is None or not wanted.whole:
            raise wanted.corrupt("status 200 for a range")
        return wanted.check(0, length, length, etag, mtime_ns)
    found = content_range(headers.get("Content-Range"))
    if response.status != 206 or found is None:
        raise wanted.corrupt(f"status {response.status}, Content-Range {headers.get('Content-Range', 'missing')}")
    start, stop, total = found
    if response.content_length not in (None, stop - start):
        raise wanted.corrupt(f"a body of {response.content_length} bytes for bytes {start}-{stop}")
    return wanted.check(start, stop, total, etag, mtime_ns)


async def checked_body(response: aiohttp.ClientResponse, wanted: Wanted) -> AsyncGenerator[memoryview, None]:
    """The body, exactly stop - start bytes of it. The last piece is held back until the end of the body is seen; all of
    them where the body may have been compressed on its way and only its end would tell."""
    check_headers(response, wanted)
    left = wanted.stop - wanted.start
    hold = response.content_length is None and is_encoded(response.headers.get("Content-Encoding"))
    held: list[bytes] = []
    async for piece in response.content.iter_chunked(_PIECE):
        left -= len(piece)
        if left < 0:
            break
        if held and not hold:
            yield memoryview(held.pop())
        held.append(piece)
    wanted.ended(left)
    for piece in held:
        yield memoryview(piece)
