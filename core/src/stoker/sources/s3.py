"""`s3://bucket/prefix/`: AWS and compatible stores. Listing and odd keys by requests of our own, reads by obstore.

A uri without a slash at its end, `s3://b/x`, means the keys below `x/`, and the object `x` itself where there is one;
never `xy`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from stoker.api.globs import Selection
from stoker.api.reasons import Reason
from stoker.api.uri import Uri
from stoker.sources.base import PIECE, Credentials, ObjectEntry, ObjectVersion, SourceError, SourceSpec
from stoker.sources.checked import Wanted, checked_body, content_range
from stoker.sources.credentials import KeyRing
from stoker.sources.http_client import HttpClient
from stoker.sources.retry import persistently
from stoker.sources.s3_listing import list_prefix
from stoker.sources.s3_location import location_of
from stoker.sources.s3_reads import ObstoreReader, expressible
from stoker.sources.s3_requests import S3Requests
from stoker.sources.selection import chosen
from stoker.sources.text import etag_of, ns_of_http_date

_ARCHIVED = ("GLACIER", "DEEP_ARCHIVE")


class S3Source:
    """One bucket below one prefix."""

    @classmethod
    def open(cls, spec: SourceSpec, uri: Uri) -> S3Source:
        """Contacts nothing. Raises SourceError(InvalidValue)."""
        location = location_of(spec, uri)
        ring = KeyRing(Credentials() if location.unsigned else spec.credentials)
        requests = S3Requests(location, ring, HttpClient())
        return cls(requests, uri, Selection.compile(spec.include, spec.exclude), one_file=spec.one_file)

    def __init__(self, requests: S3Requests, uri: Uri, selection: Selection, *, one_file: bool = False) -> None:
        self._requests = requests
        self._reader = ObstoreReader(requests)
        self._uri = uri
        self._selection = selection
        self._one_file = one_file and not uri.is_folder
        self.origin = requests.location.origin
        self.prefix = uri.prefix if uri.is_folder else uri.prefix + b"/"

    async def list(self) -> AsyncGenerator[list[ObjectEntry], None]:
        itself = None if self._uri.is_folder else await self._itself()
        if itself is not None and (kept := chosen([itself], self.prefix, self._selection)):
            yield kept
        if self._one_file:
            return
        pages = list_prefix(self._requests, self.prefix, self._uri.text)
        try:
            async with contextlib.aclosing(pages):
                async for page in pages:
                    if kept := chosen(page, self.prefix, self._selection):
                        yield kept
        except SourceError as error:
            # Rights to read one object are enough to read it.
            if itself is None or error.reason not in (Reason.AccessDenied, Reason.CredentialsMissing):
                raise

    async def _itself(self) -> ObjectEntry | None:
        """The object that the uri names; whether it may be seen is for the listing to say."""
        try:
            return await persistently(
                lambda: self.head(self._uri.prefix), lambda: self._requests.answered, self._uri.text
            )
        except SourceError as error:
            listed = (Reason.SourceNotFound, Reason.AccessDenied, Reason.CredentialsMissing)
            if error.reason in listed and not self._one_file:
                return None
            raise

    async def head(self, key: bytes) -> ObjectEntry:
        try:
            async with self._requests.request("HEAD", key) as response:
                headers = response.headers
                size = int(headers.get("Content-Length", "0"))
        except SourceError as error:
            # An answer to HEAD has no body that could say why, or whose fault it is.
            if error.reason not in (Reason.AccessDenied, Reason.CredentialsMissing, Reason.SourceNotFound):
                raise
            async with self._requests.request(
                "GET", key, headers={"Range": "bytes=0-0"}, accept=(200, 206, 416)
            ) as got:
                headers = got.headers
                found = content_range(headers.get("Content-Range"))
                size = found[2] if found else int(headers.get("Content-Length", "0"))
        return ObjectEntry(
            key,
            size,
            etag_of(headers.get("ETag")),
            ns_of_http_date(headers.get("Last-Modified")),
            headers.get("x-amz-storage-class") in _ARCHIVED
            and 'ongoing-request="false"' not in headers.get("x-amz-restore", ""),
        )

    async def read(
        self, version: ObjectVersion, start: int, stop: int, piece: int = PIECE
    ) -> AsyncGenerator[memoryview, None]:
        if start >= stop:
            return
        wanted = Wanted(version, start, stop, self._requests.place(version.key))
        fast = expressible(version.key) and self._reader.safe
        pieces = self._reader.read(wanted, piece) if fast else self._read_signed(wanted)
        async with contextlib.aclosing(pieces):
            async for part in pieces:
                yield part

    async def _read_signed(self, wanted: Wanted) -> AsyncGenerator[memoryview, None]:
        """For keys that obstore cannot express, and tokens that it cannot keep."""
        key, headers = wanted.version.key, wanted.headers()
        try:
            async with (
                self._requests.request("GET", key, headers=headers) as response,
                contextlib.aclosing(checked_body(response, wanted)) as pieces,
            ):
                async for part in pieces:
                    yield part
        except SourceError as error:
            raise wanted.gone(error) from None

    async def close(self) -> None:
        await self._requests.client.close()
