"""`https://host/path/file`: one file by its url. Any web server will do that answers ranges.

`endpoint` names a mirror: another host that has the same paths. The query of a url (often a signature) is sent and
never shown. Without an etag the time of modification stands for the version; without both the file cannot be cached.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from urllib.parse import unquote_to_bytes, urljoin, urlsplit

import aiohttp

from stoker.api.globs import Selection
from stoker.api.reasons import Reason
from stoker.api.uri import Uri
from stoker.sources.base import PIECE, ObjectEntry, ObjectVersion, SourceError, SourceSpec
from stoker.sources.checked import Wanted, checked_body, content_range
from stoker.sources.http_client import HttpClient
from stoker.sources.retry import persistently
from stoker.sources.s3_errors import retry_after
from stoker.sources.selection import chosen
from stoker.sources.text import etag_of, ns_of_http_date

_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 5
_HEAD_REFUSED = (400, 401, 403, 405, 501)
_SMALL = 8 << 20  # a file that a server sends only whole may have so many bytes


class HttpsSource:
    """One file."""

    @classmethod
    def open(cls, spec: SourceSpec, uri: Uri) -> HttpsSource:
        """Contacts nothing. Raises SourceError(InvalidValue): there are no options."""
        for name, _ in spec.options:
            text = f"unknown option {name!r}"
            raise SourceError(Reason.InvalidValue, text, place=uri.text, next_step="https:// takes no options.")
        host = spec.endpoint.rstrip("/") or f"https://{uri.store}"
        return cls(host, uri, Selection.compile(spec.include, spec.exclude))

    def __init__(self, host: str, uri: Uri, selection: Selection) -> None:
        path, question, query = uri.prefix.partition(b"?")
        self._url = f"{host}/{uri.prefix.decode('utf-8', 'surrogateescape')}"
        self._key = unquote_to_bytes(path)
        self._selection = selection
        self._client = HttpClient()
        self._no_ranges = False
        self.place = f"https://{uri.store}/{path.decode('utf-8', 'replace')}"
        # Another query may be another file; its words stay out of the origin, which is shown.
        variant = f"?{hashlib.sha256(query).hexdigest()[:16]}" if question else ""
        self.origin = f"https://{urlsplit(host).netloc}{variant}"
        self.prefix = self._key + b"/"

    async def list(self) -> AsyncGenerator[list[ObjectEntry], None]:
        entry = await persistently(lambda: self.head(self._key), lambda: self._client.answered, self.place)
        if kept := chosen([entry], self.prefix, self._selection):
            yield kept

    async def head(self, key: bytes) -> ObjectEntry:
        self._only(key)
        async with self._follow("HEAD", {}) as response:
            if response.status == 200 and response.content_length is not None:
                return self._entry(response.headers, response.content_length)
            if response.status not in (200, *_HEAD_REFUSED):
                raise self._refused(response)
        async with self._follow("GET", {"Range": "bytes=0-0"}) as response:
            found = content_range(response.headers.get("Content-Range"))
            if response.status in (206, 416) and found is not None:
                return self._entry(response.headers, found[2])
            if response.status == 200 and response.content_length is not None:
                return self._entry(response.headers, response.content_length)
            raise self._refused(response)

    def _entry(self, headers: Mapping[str, str], size: int) -> ObjectEntry:
        return ObjectEntry(self._key, size, etag_of(headers.get("ETag")), ns_of_http_date(headers.get("Last-Modified")))

    async def read(
        self,
        version: ObjectVersion,
        start: int,
        stop: int,
        piece: int = PIECE,  # noqa: ARG002 - the name is the protocol's
    ) -> AsyncGenerator[memoryview, None]:
        self._only(version.key)
        if start >= stop:
            return
        wanted = Wanted(version, start, stop, self.place)
        if self._no_ranges and version.size > _SMALL:
            raise self._no_range()
        async with self._follow("GET", wanted.headers()) as response:
            if response.status not in (200, 206):
                raise wanted.gone(self._refused(response))
            if response.status == 200 and not wanted.whole:
                pieces = self._cut_out(response, wanted)
            else:
                pieces = checked_body(response, wanted)
            async with contextlib.aclosing(pieces):
                async for part in pieces:
                    yield part

    async def _cut_out(self, response: aiohttp.ClientResponse, wanted: Wanted) -> AsyncGenerator[memoryview, None]:
        """The server ignored the range: the asked part of the whole, where that is small."""
        self._no_ranges = True
        version = wanted.version
        if version.size > _SMALL:
            raise self._no_range()
        whole = Wanted(version, 0, version.size, wanted.place)
        async with contextlib.aclosing(checked_body(response, whole)) as pieces:
            body = b"".join([bytes(piece) async for piece in pieces])
        yield memoryview(body)[wanted.start : wanted.stop]

    def _no_range(self) -> SourceError:
        return SourceError(
            Reason.RangeNotSupported,
            f"the server sends only whole files, and this one is larger than {_SMALL >> 20} MiB",
            place=self.place,
            next_step="serve the file from a server or store that answers range requests.",
        )

    @contextlib.asynccontextmanager
    async def _follow(self, method: str, headers: Mapping[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """The response after redirects. Each hop is a request of its own, which carries nothing of the one before."""
        url = self._url
        for _ in range(_MOST_REDIRECTS + 1):
            async with self._client.request(method, url, headers, self.place) as response:
                location = response.headers.get("Location")
                if response.status not in _REDIRECTS or not location:
                    yield response
                    return
            following = urljoin(url, location)
            if urlsplit(url).scheme == "https" and urlsplit(following).scheme != "https":
                raise SourceError(
                    Reason.SourceUnavailable, "the server redirects to a url without encryption", place=self.place
                )
            url = following
        raise SourceError(Reason.SourceUnavailable, "the server redirects again and again", place=self.place)

    def _only(self, key: bytes) -> None:
        if key != self._key:
            raise SourceError(Reason.SourceNotFound, "this source is one other file", place=self.place)

    def _refused(self, response: aiohttp.ClientResponse) -> SourceError:
        status = response.status
        reason, step = _REFUSALS.get(
            status, (Reason.SourceUnavailable, "try again; if it stays, ask whoever serves it.")
        )
        return SourceError(
            reason,
            f"the server answered {status} {response.reason or ''}".strip(),
            place=self.place,
            next_step=step,
            retryable=reason in (Reason.Throttled, Reason.SourceUnavailable),
            retry_after_s=retry_after(response.headers.get("Retry-After")),
        )

    async def close(self) -> None:
        await self._client.close()


_GONE = (Reason.SourceNotFound, "check the url.")
_DENIED = (
    Reason.AccessDenied,
    "check that the url may be read without a password, and that its signature still holds.",
)
_CHANGED = (Reason.SourceChanged, "mount again to see the new version.")
_THROTTLED = (Reason.Throttled, "")
_REFUSALS = {
    401: _DENIED,
    403: _DENIED,
    404: _GONE,
    410: _GONE,
    412: _CHANGED,
    416: _CHANGED,
    429: _THROTTLED,
    503: _THROTTLED,
}
